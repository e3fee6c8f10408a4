//! Fixture of the cluster tier: the real cluster that this process runs in, with Quarry installed
//! from `deploy/`.
//!
//! `make test` starts the cluster and runs the test binary inside its namespaces. Everything here
//! polls with a deadline and reports the last state when it times out.

use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

pub const NODE: &str = "lab-node";
pub const NAMESPACE: &str = "quarry-system";

/// Root of the repository; used only by the cluster tier of `make test`.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}

/// The path of a program that a stage of `scripts/setup` has built.
pub fn program(stage: &str, name: &str) -> String {
    let setup = repository().join("scripts/setup");
    let directory = run(setup.to_str().expect("the path is text"), &[stage]);
    Path::new(directory.trim()).join(name).display().to_string()
}

/// Standard output of a command that must succeed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = try_run(program, arguments, None);
    assert!(
        output.status.success(),
        "{program} {arguments:?}\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

pub fn try_run(program: &str, arguments: &[&str], input: Option<&str>) -> Output {
    use std::io::Write;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(input.as_bytes()).expect("the command reads its input");
    }
    child.wait_with_output().expect("the command was started above")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn kubectl(arguments: &[&str]) -> String {
    run("kubectl", arguments)
}

/// The error of the API server when it refuses; panics when it accepts.
pub fn kubectl_refused(arguments: &[&str], input: Option<&str>) -> String {
    let output = try_run("kubectl", arguments, input);
    assert!(
        !output.status.success(),
        "kubectl {arguments:?} was accepted: {}",
        text(&output.stdout)
    );
    text(&output.stderr)
}

/// Applies YAML; returns the output of kubectl on both streams (warnings are on stderr).
pub fn apply(yaml: &str) -> String {
    let output = try_run("kubectl", &["apply", "-f", "-"], Some(yaml));
    assert!(output.status.success(), "{yaml}\n{}", text(&output.stderr));
    text(&output.stdout) + &text(&output.stderr)
}

pub fn get(arguments: &[&str]) -> Option<Value> {
    let output = try_run(
        "kubectl",
        &[&["get", "-o", "json", "--ignore-not-found"], arguments].concat(),
        None,
    );
    serde_json::from_slice(&output.stdout).ok()
}

/// Runs the quarry binary under test.
pub fn quarry(arguments: &[&str]) -> Output {
    let binary = std::env::var("QUARRY_BIN").expect("QUARRY_BIN is set by the tier's runner");
    try_run(&binary, arguments, None)
}

/// Polls until `probe` returns a value; panics with the last state at the time limit. A long wait is
/// printed: the log of the tier then shows where the time went.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let (begun, deadline) = (Instant::now(), Instant::now() + limit);
    loop {
        match probe() {
            Ok(value) => {
                let waited = begun.elapsed();
                if waited > Duration::from_secs(5) {
                    eprintln!("waited {:.1} s until {what}", waited.as_secs_f32());
                }
                return value;
            }
            Err(seen) if Instant::now() > deadline => {
                panic!(
                    "timed out after {limit:?} waiting until {what}\nlast seen: {seen}\n{}",
                    diagnosis()
                )
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// What an engineer would check first.
fn diagnosis() -> String {
    let show = |arguments: &[&str]| {
        let output = try_run("kubectl", arguments, None);
        format!(
            "--- kubectl {}\n{}{}",
            arguments.join(" "),
            text(&output.stdout),
            text(&output.stderr)
        )
    };
    let all = ["get", "deployments", "-A", "-l", "app.kubernetes.io/name=quarry-operator"];
    let first = ["-o", "jsonpath={.items[0].metadata.namespace}"];
    let namespace = text(&try_run("kubectl", &[&all[..], &first].concat(), None).stdout);
    let label = |name: &str| format!("app.kubernetes.io/name={name}");
    let labels = ["quarry-operator", "quarry-agent"].map(label);
    let logs =
        |label: &str| show(&["-n", &namespace, "logs", "-l", label, "--prefix", "--tail=40"]);
    [
        show(&[
            "get",
            "volumes,pv,pvc,pods,nodejobs,nodeinventories,localvolumediscoveries,localvolumediscoveryresults,localvolumesets,localvolumes",
            "-A",
            "-o",
            "wide",
        ]),
        show(&["get", "events", "-A", "--sort-by=.lastTimestamp"]),
        logs(&labels[0]),
        logs(&labels[1]),
    ]
    .join("\n")
}

/// Installs `deploy/` once per test binary and waits until operator and agent are running.
pub fn installed() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(install);
}

/// Installs `deploy/` and waits until operator and agent are running.
pub fn install() {
    let deploy = repository().join("deploy");
    until("the manifests are accepted", Duration::from_secs(60), || {
        let output = try_run("kubectl", &["apply", "-k", &deploy.to_string_lossy()], None);
        // The first attempt may name kinds whose CRDs are not served yet; every `kubectl apply`
        // fails then.
        if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
    });
    until("the operator is ready", Duration::from_secs(60), || {
        let ready = kubectl(&[
            "-n",
            NAMESPACE,
            "get",
            "deploy",
            "quarry-operator",
            "-o",
            "jsonpath={.status.readyReplicas}",
        ]);
        if ready == "1" { Ok(()) } else { Err(format!("readyReplicas {ready:?}")) }
    });
    until("the agent has published the inventory", Duration::from_secs(60), || {
        let inventory = get(&["nodeinventory", NODE]).unwrap_or_default();
        if inventory["status"]["nodeUID"].is_string() { Ok(()) } else { Err(inventory.to_string()) }
    });
}

pub fn phase_is(volume: &str, wanted: &str) -> Value {
    until(&format!("volume {volume} is {wanted}"), Duration::from_secs(60), || {
        let object = get(&["volume", volume]).unwrap_or_default();
        if object["status"]["phase"] == wanted {
            Ok(object)
        } else {
            Err(object["status"].to_string())
        }
    })
}

pub fn wait_deleted(kind: &str, name: &str) {
    until(&format!("{kind} {name} is deleted"), Duration::from_secs(90), || {
        match get(&[kind, name]) {
            None => Ok(()),
            Some(object) => Err(object["status"].to_string()),
        }
    });
}

/// Waits until a condition of an object (namespace, kind, name) has this status and message.
#[track_caller]
pub fn wait_condition(
    [namespace, kind, name]: &[&str; 3],
    condition: &str,
    status: &str,
    words: &str,
    limit: Duration,
) -> Value {
    until(&format!("{name} has {condition}={status} {words:?}"), limit, || {
        let object = get(&["-n", namespace, kind, name]).unwrap_or_default();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let matching = |one: &Value| {
            one["type"] == condition
                && one["status"] == status
                && one["message"].as_str().unwrap_or_default().contains(words)
        };
        if conditions.iter().any(matching) { Ok(object) } else { Err(object["status"].to_string()) }
    })
}

/// Replaces the arguments of the operator's container.
pub fn set_operator_arguments(arguments: &[&str]) {
    let path = "/spec/template/spec/containers/0/args";
    let patch = json!([{"op": "replace", "path": path, "value": arguments}]).to_string();
    let deployment = ["-n", NAMESPACE, "patch", "deploy", "quarry-operator"];
    kubectl(&[&deployment[..], &["--type=json", "-p", &patch]].concat());
}

const ROLLOUT: [&str; 6] =
    ["-n", NAMESPACE, "rollout", "status", "deploy/quarry-operator", "--timeout=60s"];

/// Waits until the operator runs with its current arguments.
pub fn rollout() {
    kubectl(&ROLLOUT);
}

/// Applies `deploy/` again. Used in destructors, so failures are ignored.
pub fn restore_operator() {
    let deploy = repository().join("deploy");
    try_run("kubectl", &["apply", "-k", &deploy.to_string_lossy()], None);
    try_run("kubectl", &ROLLOUT, None);
}

/// Creates a PersistentVolumeClaim.
pub fn create_pvc(name: &str, class: &str, mode: &str, size: &str) {
    apply(&format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec: {{accessModes: [ReadWriteOnce], storageClassName: {class}, volumeMode: {mode}, resources: {{requests: {{storage: {size}}}}}}}\n"
    ));
}

/// Creates a pod that runs a command on the PVC and exits.
pub fn pod(name: &str, claim: &str, block: bool, script: &str) {
    let attachment = if block {
        "volumeDevices: [{name: data, devicePath: /dev/data}]"
    } else {
        "volumeMounts: [{name: data, mountPath: /data}]"
    };
    apply(&format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 0\n  containers:\n  - name: c\n    image: lab.local/shell:1\n    \
         imagePullPolicy: Never\n    command: [sh, -c, {script:?}]\n    {attachment}\n  volumes: [{{name: data, persistentVolumeClaim: {{claimName: {claim}}}}}]\n"
    ));
}

/// Output of the pod, once it has succeeded.
pub fn pod_output(name: &str) -> String {
    until(&format!("pod {name} succeeds"), Duration::from_secs(90), || {
        let pod = get(&["pod", name]).unwrap_or_default();
        if pod["status"]["phase"] == "Succeeded" { Ok(()) } else { Err(pod["status"].to_string()) }
    });
    kubectl(&["logs", name]).trim().to_owned()
}

/// A loop device over a file; detached and removed on drop.
pub struct LoopDisk {
    pub file: PathBuf,
    pub device: String,
}

impl LoopDisk {
    pub fn attach(name: &str, bytes: u64) -> Self {
        let file = std::env::temp_dir().join(format!("quarry-lab-{name}-{}", std::process::id()));
        LoopDisk::attach_file(file, bytes)
    }

    pub fn attach_file(file: PathBuf, bytes: u64) -> Self {
        std::fs::File::create(&file)
            .and_then(|created| created.set_len(bytes))
            .expect("a sparse file can be created");
        let device =
            run("losetup", &["--find", "--show", &file.to_string_lossy()]).trim().to_owned();
        LoopDisk { file, device }
    }

    pub fn name(&self) -> &str {
        self.device.trim_start_matches("/dev/")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        try_run("losetup", &["--detach", &self.device], None);
        std::fs::remove_file(&self.file).ok();
    }
}
