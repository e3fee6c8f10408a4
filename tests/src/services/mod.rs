//! Fixture of the services tier: the lab of `scripts/services-lab` that this process runs in.
//!
//! One lab serves all tests. `Lab::system` hands out an emulated system that no other test uses,
//! `Lab::machine` the one real machine. Faults of one system are part of it (`system.rs`). Faults that
//! every test would notice need `Lab::alone`, which waits until no system is in use. What a fixture
//! changes it restores when it is dropped. It never talks to Ironic through Quarry: `ironic.rs` is the
//! tests' own view. Read next: `system.rs`, then `scripts/services/control.py`.

pub mod figures;
mod http;
mod ironic;
mod proxy;
pub mod quarry;
mod system;

pub use http::{Answer, request};
pub use ironic::Ironic;
pub use proxy::{Held, Proxy};
pub use quarry::Quarry;
pub use system::{Request, System};

use serde_json::Value;
use std::{
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::Command,
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// Time limit of a wait that has no other: a busy machine is slow.
pub const LIMIT: Duration = Duration::from_secs(90);

/// Systems in use, and whether one test has the lab alone. Not an `RwLock`: a test with one system may
/// take a second one while another test waits to be alone.
static USE: Mutex<Use> = Mutex::new(Use { systems: 0, alone: false });
static CHANGED: Condvar = Condvar::new();

struct Use {
    systems: usize,
    alone: bool,
}

fn lab_use() -> MutexGuard<'static, Use> {
    USE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held by every system in use that was not taken through `Alone`.
struct Shared;

impl Shared {
    fn wait() -> Self {
        let free = CHANGED.wait_while(lab_use(), |now| now.alone);
        free.unwrap_or_else(PoisonError::into_inner).systems += 1;
        Shared
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        lab_use().systems -= 1;
        CHANGED.notify_all();
    }
}

pub struct Lab {
    pub dir: PathBuf,
    /// Address of Ironic for the tests' own requests; Quarry uses `System::ironic_url`.
    pub ironic_url: String,
    /// The BMCs of all systems in one; never has a fault.
    pub redfish_url: String,
    pub bmc_user: String,
    pub bmc_password: String,
    /// What `deploy_iso` of a node is set to.
    pub deploy_iso: String,
    /// A qcow2 image; `….sha256` is its checksum.
    pub disk_image: String,
    systems: Vec<Value>,
}

impl Lab {
    /// The lab that this process runs in.
    pub fn get() -> &'static Lab {
        static LAB: OnceLock<Lab> = OnceLock::new();
        LAB.get_or_init(|| {
            let systems = std::fs::read(variable("QUARRY_SYSTEMS")).unwrap();
            Lab {
                dir: variable("QUARRY_SERVICES_DIR").into(),
                ironic_url: variable("QUARRY_IRONIC_URL"),
                redfish_url: variable("QUARRY_REDFISH_URL"),
                bmc_user: variable("QUARRY_BMC_USER"),
                bmc_password: variable("QUARRY_BMC_PASSWORD"),
                deploy_iso: variable("QUARRY_DEPLOY_ISO"),
                disk_image: variable("QUARRY_DISK_IMAGE"),
                systems: serde_json::from_slice(&systems).unwrap(),
            }
        })
    }

    /// An emulated system that no other test uses, off and without faults; waits for one.
    pub fn system(&'static self) -> System {
        self.take(false, Some(Shared::wait()))
    }

    /// The real machine, off; waits until no other test uses it.
    pub fn machine(&'static self) -> System {
        self.take(true, Some(Shared::wait()))
    }

    /// Waits until no system is in use, and keeps other tests from getting one until it is dropped.
    pub fn alone(&'static self) -> Alone {
        let free = CHANGED.wait_while(lab_use(), |now| now.alone || now.systems > 0);
        free.unwrap_or_else(PoisonError::into_inner).alone = true;
        Alone { lab: self, _only: Only }
    }

    pub fn ironic(&self) -> Ironic {
        Ironic::new(&self.ironic_url)
    }

    /// Every request to Ironic since the lab was started, in the order in which they were answered.
    pub fn requests(&self) -> Vec<Request> {
        let log = std::fs::read_to_string(self.dir.join("log/requests.log")).unwrap();
        // The last line may be incomplete.
        let complete = log.rsplit_once('\n').map_or("", |(complete, _)| complete);
        complete.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// Steps of cleaning and deployment that Ironic has executed on a node, in this order, by its log.
    pub fn steps(&self, node: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.join("log/ironic.log")).unwrap();
        let of_node = log.lines().filter(|line| line.ends_with(&format!("on node {node}")));
        let executed = of_node.filter_map(|line| line.split_once("] Executing "));
        let names = executed.filter_map(|(_, step)| step.split_once("'step': '"));
        names.filter_map(|(_, rest)| Some(rest.split_once('\'')?.0.to_owned())).collect()
    }

    /// When Ironic was done with what a node was asked for, in seconds since 1970, by its log.
    pub fn done(&self, node: &str) -> Vec<f64> {
        let log = std::fs::read_to_string(self.dir.join("log/ironic.log")).unwrap();
        let moved = format!("Node {node} moved to provision state");
        let lines = log.lines().filter(|line| line.contains(&moved));
        let done = lines.filter(|line| line.ends_with("target provision state is \"None\""));
        let zone = jiff::tz::TimeZone::system();
        done.map(|line| {
            let time: jiff::civil::DateTime = line[..23].parse().expect(line);
            time.to_zoned(zone.clone()).unwrap().timestamp().as_millisecond() as f64 / 1000.0
        })
        .collect()
    }

    fn take(&'static self, real: bool, shared: Option<Shared>) -> System {
        let all: Vec<&Value> = self.systems.iter().filter(|one| one["real"] == real).collect();
        assert!(!all.is_empty(), "the lab was started without the real machine (REAL=0)");
        let found = until("a system is free", Duration::from_secs(480), || {
            let free = all.iter().find_map(|one| System::take(self, one));
            free.ok_or_else(|| format!("all {} are in use", all.len()))
        });
        found.ready(shared)
    }

    /// `services-lab COMMAND DIR ARGUMENTS…`; standard output of a command that must succeed.
    #[track_caller]
    fn script(&self, command: &str, arguments: &[&str]) -> String {
        let script = crate::lab::repository().join("scripts/services-lab");
        let output =
            Command::new(script).arg(command).arg(&self.dir).args(arguments).output().unwrap();
        let [printed, errors] = [&output.stdout, &output.stderr].map(|text| crate::lab::text(text));
        assert!(output.status.success(), "services-lab {command} {arguments:?}\n{printed}{errors}");
        printed
    }
}

fn variable(name: &str) -> String {
    let hint = "run the test inside a lab: scripts/services-lab exec DIR";
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; {hint}"))
}

/// A test that has the lab for itself. All parts run, without authentication, when it is dropped.
pub struct Alone {
    lab: &'static Lab,
    // Dropped after the parts run again.
    _only: Only,
}

struct Only;

impl Drop for Only {
    fn drop(&mut self) {
        lab_use().alone = false;
        CHANGED.notify_all();
    }
}

impl Deref for Alone {
    type Target = Lab;
    fn deref(&self) -> &Lab {
        self.lab
    }
}

impl Alone {
    pub fn system(&self) -> System {
        self.lab.take(false, None)
    }

    /// Stops `ironic`, `bmc`, `agent`, `files` or `machine`.
    pub fn stop(&self, part: &str) {
        self.script("stop", &[part]);
    }

    /// Starts it, and waits until it answers.
    pub fn start(&self, part: &str) {
        self.script("start", &[part]);
    }

    /// Restarts Ironic with an empty database.
    pub fn lose_database(&self) {
        self.script("lose-database", &[]);
    }

    /// Restarts Ironic with HTTP basic authentication; returns user and password.
    pub fn require_password(&self) -> (String, String) {
        let printed = self.script("auth", &["basic"]);
        let (user, password) = printed.trim().split_once(':').expect("USER:PASSWORD");
        (user.to_owned(), password.to_owned())
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        restore(|| {
            let settings = std::fs::read_to_string(self.dir.join("settings")).unwrap();
            if settings.contains("\nbasic\n") {
                self.script("auth", &["none"]);
            }
            for part in ["files", "bmc", "ironic", "agent", "machine"] {
                self.start(part);
            }
        });
    }
}

/// For destructors: a second panic would end the process and hide the first.
fn restore(action: impl FnOnce()) {
    if !std::thread::panicking() {
        action();
    } else if catch_unwind(AssertUnwindSafe(action)).is_err() {
        eprintln!("the failed test left something behind");
    }
}

/// Polls until `probe` returns a value; panics with the last state at the time limit.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match probe() {
            Ok(value) => return value,
            Err(seen) if Instant::now() > deadline => {
                panic!("not within {limit:?}: {what}\nlast seen: {seen}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
