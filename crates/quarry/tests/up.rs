//! `quarry up` as a process: the first minute, and what goes wrong there.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "starts the binary on directories of its own"
)]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{
    io::{BufRead, BufReader, Read},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

const BINARY: &str = env!("CARGO_BIN_EXE_quarry");
const LIMIT: Duration = Duration::from_secs(60);
const UNPRIVILEGED: u32 = 65534;

/// A running `quarry up`; killed when the test ends early.
struct Up {
    child: Child,
    lines: mpsc::Receiver<String>,
    printed: Vec<String>,
}

impl Up {
    fn start(dir: &Path, more: &[&str]) -> Self {
        Self::spawn(command(dir, more))
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Up { child, lines, printed: Vec::new() }
    }

    /// The first line that contains `text`.
    fn line(&mut self, text: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.printed.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(why) => {
                    panic!("no line with {text:?} ({why}); it printed: {:#?}", self.printed)
                }
            }
        }
    }

    fn ready(&mut self) -> String {
        self.line("is ready after")
    }

    fn signal(&mut self, signal: rustix::process::Signal) -> i32 {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
            .unwrap();
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not end after {signal:?}");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(dir: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .arg("up")
        .arg("--data-dir")
        .arg(dir)
        .args(["--listen", "127.0.0.1:0", "--node-name", "box"])
        .args(more);
    command.env_remove("KUBECONFIG").env_remove("RUST_LOG");
    command
}

/// The error of a command that must fail at once.
fn refused(mut command: Command) -> String {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("it runs although it must fail");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{message}");
    message
}

fn quarry(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).env("KUBECONFIG", dir.join("kubeconfig")).output().unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

async fn client(dir: &Path) -> Client {
    let file = Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
    Client::try_from(
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap(),
    )
    .unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn it_starts_serves_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &[]);
    let ready = up.ready();
    assert!(
        ready.contains("https://127.0.0.1:")
            && !ready.contains(":0,")
            && ready.contains("node box"),
        "{ready}"
    );
    up.line(&format!("export KUBECONFIG={}", dir.path().join("kubeconfig").display()));
    let mode =
        std::fs::metadata(dir.path().join("kubeconfig")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let listed = quarry(dir.path(), &["volumes"]);
    assert!(listed.status.success() && text(&listed).contains("no volumes"), "{}", text(&listed));
    let unknown = quarry(dir.path(), &["explain", "volume/nope"]);
    assert_eq!(
        text(&unknown),
        "error: volume nope does not exist\nhint: run `quarry volumes` to list them\n"
    );
    assert_eq!(unknown.status.code(), Some(1));
    let crds = quarry(dir.path(), &["crds", "apply"]);
    assert!(
        crds.status.success()
            && text(&crds).contains(
                "customresourcedefinition/volumes.storage.metalk8s.scality.com unchanged"
            ),
        "{}",
        text(&crds)
    );
    assert_eq!(up.signal(rustix::process::Signal::INT), 0);
    let dump = quarry(dir.path(), &["store", "dump", "--data-dir", dir.path().to_str().unwrap()]);
    let dump = text(&dump);
    assert!(dump.contains("\"name\":\"box\""), "{dump}");
    if is_root() {
        let lease =
            dump.lines().find(|line| line.contains("\"name\":\"quarry-agent-box\"")).unwrap();
        assert!(lease.contains("\"holderIdentity\":\"\""), "the agent releases its Lease: {lease}");
    }
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &[]);
    up.ready();
    let message = refused(command(dir.path(), &[]));
    assert!(
        message.contains("in use by another process") && message.contains("--data-dir"),
        "{message}"
    );
    let message =
        text(&quarry(dir.path(), &["store", "dump", "--data-dir", dir.path().to_str().unwrap()]));
    assert!(message.contains("in use by another process"), "{message}");
    assert!(quarry(dir.path(), &["volumes"]).status.success(), "the first one still runs");
    assert_eq!(up.signal(rustix::process::Signal::TERM), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn written_objects_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &[]);
    up.ready();
    let maps: Api<ConfigMap> = Api::namespaced(client(dir.path()).await, "default");
    let map: ConfigMap = serde_json::from_value(
        serde_json::json!({"metadata": {"name": "kept"}, "data": {"a": "b"}}),
    )
    .unwrap();
    let uid = maps.create(&PostParams::default(), &map).await.unwrap().metadata.uid;
    up.signal(rustix::process::Signal::KILL);
    let mut again = Up::start(dir.path(), &[]);
    again.ready();
    let maps: Api<ConfigMap> = Api::namespaced(client(dir.path()).await, "default");
    assert_eq!(maps.get("kept").await.unwrap().metadata.uid, uid);
    assert_eq!(again.signal(rustix::process::Signal::INT), 0);
}

#[test]
fn a_damaged_store_is_refused_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("api.redb");
    std::fs::write(&store, vec![7; 4096]).unwrap();
    let message = refused(command(dir.path(), &[]));
    assert!(
        message.contains("damaged") && message.contains("move it away to start empty"),
        "{message}"
    );
    assert_eq!(std::fs::read(&store).unwrap(), vec![7; 4096]);
}

#[test]
fn a_directory_that_is_not_writable_is_an_error() {
    let message = refused(command(Path::new("/proc/quarry"), &[]));
    assert!(
        message.contains("/proc/quarry") && message.contains("choose another with --data-dir"),
        "{message}"
    );
}

#[test]
fn an_unreachable_cluster_names_both_remedies() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &[]);
    up.ready();
    up.signal(rustix::process::Signal::INT);
    let message = text(&quarry(dir.path(), &["volumes"]));
    assert!(
        message.starts_with("error: listing volumes: cannot reach https://127.0.0.1:"),
        "{message}"
    );
    assert!(message.contains("`quarry up`") && message.contains("KUBECONFIG"), "{message}");
    assert_eq!(message.lines().count(), 2, "an error and a hint: {message}");
}

/// Runs without root also where the tests run as root.
fn without_root(dir: &Path, mut command: Command) -> Command {
    if is_root() {
        std::os::unix::fs::chown(dir, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

#[test]
fn without_root_it_starts_without_an_agent() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::spawn(without_root(dir.path(), command(dir.path(), &["--demo"])));
    up.ready();
    up.line("there is no agent");
    up.line("volume first is created and stays Pending without an agent");
    let deadline = Instant::now() + LIMIT;
    loop {
        let message = text(&quarry(dir.path(), &["explain", "volume/first"]));
        if message.contains("Blocked by: no agent has been seen on node box") {
            break;
        }
        assert!(Instant::now() < deadline, "{message}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let refused = quarry(dir.path(), &["volume", "delete", "first"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("is Pending"), "{}", text(&refused));
    assert_eq!(up.signal(rustix::process::Signal::INT), 0);
    assert_eq!(
        std::fs::metadata(dir.path().join("kubeconfig")).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

/// A command without any configuration.
fn unconfigured(home: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    command
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("HOME", home)
        .env("XDG_DATA_HOME", home);
    text(&without_root(home, command).output().unwrap())
}

#[test]
fn standalone_is_found_without_a_kubeconfig() {
    let home = tempfile::tempdir().unwrap();
    let message = unconfigured(home.path(), &["volumes"]);
    assert!(
        message.starts_with("error: no cluster is configured\nhint: run `quarry up`"),
        "{message}"
    );
    let dir = home.path().join("quarry");
    let mut up = Up::spawn(without_root(home.path(), command(&dir, &[])));
    up.ready();
    let message = unconfigured(home.path(), &["volumes"]);
    assert!(
        message.starts_with(&format!(
            "using the standalone Quarry of {}",
            dir.join("kubeconfig").display()
        )) && message.contains("no volumes"),
        "{message}"
    );
    assert_eq!(up.signal(rustix::process::Signal::TERM), 0);
}

#[test]
fn a_second_agent_on_a_data_directory_is_refused() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let lock = std::fs::File::create(dir.path().join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let message = refused(command(dir.path(), &[]));
    assert!(
        message.contains("another agent runs on this node") && message.contains("--data-dir"),
        "{message}"
    );
}

/// What another user may have placed in the directory is neither followed nor trusted.
#[test]
fn a_data_directory_with_planted_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (data, precious) = (dir.path().join("data"), dir.path().join("precious"));
    std::fs::create_dir(&data).unwrap();
    std::fs::write(&precious, "precious").unwrap();
    for name in ["token", "ca.key", "api.redb", "kubeconfig", "lock", "ledger"] {
        std::os::unix::fs::symlink(&precious, data.join(name)).unwrap();
        let message = refused(command(&data, &[]));
        assert!(message.contains(&format!("{name} is a symbolic link")), "{name}: {message}");
        std::fs::remove_file(data.join(name)).unwrap();
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "{name}: nothing was created");
    }
    if is_root() {
        std::os::unix::fs::chown(&data, Some(65534), None).unwrap();
        std::fs::write(data.join("token"), "planted").unwrap();
        let message = refused(command(&data, &[]));
        assert!(message.contains("belongs to user 65534"), "{message}");
        assert!(message.contains("--data-dir"), "{message}");
    }
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
}

/// Whatever its data directory is.
#[test]
fn real_disks_that_another_one_uses_are_refused() {
    if !is_root() {
        return;
    }
    std::fs::create_dir_all("/run/quarry").unwrap();
    let mut options = std::fs::File::options();
    let lock = options.create(true).truncate(false).write(true).open("/run/quarry/real-disks");
    let lock = lock.unwrap();
    // An agent of this machine may have it: then that one keeps others away.
    let taken = rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    let dir = tempfile::tempdir().unwrap();
    let message = refused(command(dir.path(), &["--allow-real-disks"]));
    drop((taken, lock));
    assert!(message.contains("another Quarry uses the disks of this machine"), "{message}");
    assert!(message.contains("start without --allow-real-disks"), "{message}");
    assert!(!message.contains("--data-dir"), "another directory would share them: {message}");
}

#[test]
fn kubectl_finds_it_as_a_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let plugin: PathBuf = dir.path().join("kubectl-quarry");
    std::os::unix::fs::symlink(BINARY, &plugin).unwrap();
    let help = Command::new(&plugin).args(["volumes", "--help"]).output().unwrap();
    assert!(text(&help).contains("Usage: kubectl quarry volumes"), "{}", text(&help));
}
