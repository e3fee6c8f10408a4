//! `quarry osd prepare`: from a blank device to an OSD that can be started, or to the one that is there.
//!
//! 1. Read: flags, keyring, devices.
//! 2. Judge: refuse, adopt or prepare.
//! 3. Ask the monitors for the cluster's identity and its OSDs.
//! 4. Register the OSD.
//! 5. mkfs.
//! 6. Read the label back.
//!
//! Nothing is remembered between runs: the UUID is the PVC's UID and the key is derived, so that a run that was killed
//! anywhere is repeated from the beginning and ends with the same ID. Before step 4 nothing has been changed anywhere.

use super::{
    Failure,
    devices::{OpenDevices, read_label},
    tools::{self, ask_monitors},
};
use crate::cli::PrepareArgs;
use quarry_ceph::{
    Content, Key, Mkfs, OsdInfo, PrepareResult, Session, Uuid, Verdict,
    command::{crush_location, link_path},
    config::{self, User},
    judge::{Target, judge},
    osd::parse_osd_dump,
    registered::{self, Registered},
    result::Reason,
};
use quarry_failpoint::failpoint;
use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};
use tracing::info;

/// Below the working directory.
const OSD_DIRECTORY: &str = "osd";

/// Everything that a run works with.
struct Run<'a> {
    args: &'a PrepareArgs,
    target: Target,
    user: User,
    session: Session,
    device_class: Option<&'a str>,
}

pub fn run(args: &PrepareArgs) -> Result<PrepareResult, Failure> {
    let run = Run::new(args)?;
    let mut devices = OpenDevices::open(args)?;
    let verdict = judge(&run.target, &devices.data, &devices.others);
    failpoint!("osd.judged");
    match &verdict {
        Verdict::Refuse(refusal) => Err(Failure::new(refusal.reason, refusal.message.clone())),
        &Verdict::Adopt { id } => {
            run.verify(&verdict)?;
            info!(id, "adopted");
            Ok(run.completed(id, format!("osd.{id} was prepared earlier")))
        }
        Verdict::Prepare | Verdict::FinishHalfDone => {
            run.verify(&verdict)?;
            let id = run.register()?;
            failpoint!("osd.registered");
            run.make(id, &mut devices)?;
            info!(id, "prepared");
            Ok(run.completed(id, format!("prepared osd.{id}")))
        }
    }
}

impl<'a> Run<'a> {
    fn new(args: &'a PrepareArgs) -> Result<Self, Failure> {
        let uuid = |flag: &str, text: &str| {
            let parsed = text.trim().parse::<Uuid>();
            parsed.map_err(|error| Failure::new(Reason::InvalidInput, format!("{flag}: {error}")))
        };
        let target = Target { osd: uuid("--uuid", &args.uuid)?, fsid: uuid("--fsid", &args.fsid)? };
        let keyring = read("--keyring", &args.keyring)?;
        let user = config::parse_keyring(&keyring).map_err(|error| {
            let problem = format!("--keyring {}: {error}", args.keyring.display());
            Failure::new(Reason::InvalidInput, problem)
        })?;
        let overrides = match &args.config_override {
            Some(file) => read("--config-override", file)?,
            None => String::new(),
        };
        let directory = utf8("--work-dir", &args.work_dir)?;
        // Nothing is written outside the working directory: the root file system is read-only.
        let defaults = [("log_to_file", "false"), ("run_dir", directory)];
        let conf = config::ceph_conf(&target.fsid, &args.mon_host, &defaults, &overrides)
            .map_err(Failure::because(Reason::InvalidInput))?;
        new_directory(&args.work_dir)?;
        let conf_file = args.work_dir.join("ceph.conf");
        fs::write(&conf_file, conf).map_err(failed_write(&conf_file))?;
        let session = Session {
            conf: utf8("--work-dir", &conf_file)?.to_owned(),
            user: user.name.clone(),
            keyring: utf8("--keyring", &args.keyring)?.to_owned(),
        };
        // A variable that is set to nothing is not set.
        let device_class = args.device_class.as_deref().filter(|class| !class.is_empty());
        Ok(Self { args, target, user, session, device_class })
    }

    /// Asks the monitors whether they allow what the devices say.
    fn verify(&self, verdict: &Verdict) -> Result<(), Failure> {
        let attempt = "reading the OSDs of the cluster";
        let output = ask_monitors(&self.session.osd_dump(), attempt, &self.args.mon_host)?;
        let dump = parse_osd_dump(&output).map_err(Failure::because(Reason::CommandFailed))?;
        failpoint!("osd.connected");
        let data = self.args.data.to_string_lossy();
        registered::verify(&self.target, verdict, &dump, &data, &self.args.mon_host)
            .map_err(|refusal| Failure::new(refusal.reason, refusal.message))
    }

    fn key(&self) -> Result<Key, Failure> {
        Key::of_osd(&self.user.key, &self.target.osd)
            .map_err(Failure::because(Reason::InvalidInput))
    }

    fn register(&self) -> Result<u32, Failure> {
        let osd = &self.target.osd;
        let command = self.session.osd_new(osd, self.args.id, &self.key()?, self.device_class);
        let output = tools::run(&command)?;
        let answer =
            registered::registered(osd, &self.user.name, output.code, &output.stdout, &output.said);
        match answer.map_err(Failure::because(Reason::CommandFailed))? {
            Registered::Id(id) => Ok(id),
            Registered::Refused(refusal) => Err(Failure::new(refusal.reason, refusal.message)),
            Registered::Failed => {
                Err(tools::refused(&output, "registering the OSD", &self.args.mon_host))
            }
        }
    }

    /// Repeatable: mkfs writes over what an earlier one began, and completes what it had formatted.
    fn make(&self, id: u32, devices: &mut OpenDevices) -> Result<(), Failure> {
        let work_dir = &self.args.work_dir;
        let (directory, monmap) = (work_dir.join(OSD_DIRECTORY), work_dir.join("monmap"));
        let directory = utf8("--work-dir", &directory)?;
        let monmap = utf8("--work-dir", &monmap)?;
        let attempt = "reading the addresses of the monitors";
        ask_monitors(&self.session.mon_getmap(monmap), attempt, &self.args.mon_host)?;
        for device in devices.all() {
            let link = PathBuf::from(link_path(directory, device.role));
            symlink(&device.path, &link).map_err(failed_write(&link))?;
        }
        failpoint!("osd.linked");
        let key = self.key()?;
        let conf = &self.session.conf;
        let mkfs = Mkfs { conf, id, uuid: &self.target.osd, directory, monmap, key: &key };
        for (name, text) in mkfs.files() {
            let file = Path::new(directory).join(name);
            fs::write(&file, text).map_err(failed_write(&file))?;
        }
        devices.close();
        let running = tools::start(&mkfs.command())?;
        failpoint!("osd.mkfs-started");
        let output = tools::wait(running)?;
        failpoint!("osd.mkfs-ended");
        if output.code != Some(0) {
            return Err(Failure::new(
                Reason::CommandFailed,
                format!(
                    "mkfs of osd.{id} on {}: {}: {}; check the device, then run prepare again",
                    self.args.data.display(),
                    output.how,
                    output.said
                ),
            ));
        }
        self.verify_made(id, &key, devices)
    }

    /// Exit code 0 is not taken for it: what counts later is the label.
    fn verify_made(&self, id: u32, key: &Key, devices: &OpenDevices) -> Result<(), Failure> {
        let mut now = Vec::new();
        for device in devices.all() {
            now.push(quarry_ceph::Device { content: read_label(&device.path)?, ..device.clone() });
        }
        let (data, others) = now.split_first().expect("there is always a data device");
        let problem = match (judge(&self.target, data, others), &data.content) {
            (Verdict::Adopt { id: made }, Content::Label(label)) if made == id => {
                if label.osd_key.as_ref() == Some(key) {
                    return Ok(());
                }
                "its label has another key".to_owned()
            }
            (Verdict::Refuse(refusal), _) => refusal.message,
            (verdict, _) => format!("the result is {verdict:?}"),
        };
        Err(Failure::new(
            Reason::CommandFailed,
            format!("mkfs of osd.{id} ended without an error, but {problem}; run prepare again"),
        ))
    }

    fn completed(&self, id: u32, message: String) -> PrepareResult {
        let args = self.args;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let other = |path: &Option<PathBuf>| path.as_deref().map(text).unwrap_or_default();
        let host = args.crush_host.as_deref().filter(|host| !host.is_empty());
        let host = host.unwrap_or(&args.node_name);
        let location = match host {
            "" => String::new(),
            host => crush_location(&args.crush_root, host, &[]),
        };
        let osd = OsdInfo {
            id,
            cluster: "ceph".into(),
            uuid: self.target.osd.clone(),
            device_class: self.device_class.unwrap_or_default().to_owned(),
            block_path: text(&args.data),
            metadata_path: other(&args.metadata),
            wal_path: other(&args.wal),
            location,
            mode: "raw".into(),
            store: "bluestore".into(),
            encrypted: false,
            node_name: args.node_name.clone(),
            pvc_name: args.pvc_name.clone(),
        };
        PrepareResult::completed(osd, message)
    }
}

fn read(flag: &str, file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| {
        let problem = format!("{flag} {}: {error}; check the mounted volume", file.display());
        // The kubelet may not have mounted all of it yet.
        Failure::new(Reason::MountUnusable, problem)
    })
}

fn utf8<'p>(flag: &str, path: &'p Path) -> Result<&'p str, Failure> {
    let problem = || format!("{flag} {}: the path is not valid UTF-8", path.display());
    path.to_str().ok_or_else(|| Failure::new(Reason::InvalidInput, problem()))
}

/// An emptyDir outlives a container: what a killed run left must not be taken for this one's. Only the directory that
/// this command creates is removed, whatever `--work-dir` names.
fn new_directory(work_dir: &Path) -> Result<(), Failure> {
    let directory = work_dir.join(OSD_DIRECTORY);
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed_write(&directory)(error));
        }
        _ => {}
    }
    fs::create_dir_all(&directory).map_err(failed_write(&directory))
}

fn failed_write(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| {
        let problem = format!(
            "writing {}: {error}; mount an emptyDir above it that the user of the pod may write to",
            path.display()
        );
        Failure::new(Reason::MountUnusable, problem)
    }
}

#[cfg(test)]
mod tests;
