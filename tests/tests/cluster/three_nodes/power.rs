//! The power of a node is cut in the middle of a device claim, of a wipe and of a Volume job: its
//! agent stops at a failpoint, then every process of the node is killed. When the node is back, the
//! end state is the one without a power cut.

use quarry_tests::{
    lab::{apply, create_pvc, get, kubectl, phase_is, pod, pod_output, run, until, wait_deleted},
    nodes::{
        Disk, Set, StoppedAgent, agents_ready, directory, installed, is_available, jobs_of,
        node_of, nodes, other_nodes, power_off, power_on,
    },
};
use std::{
    fs,
    process::{Child, Command},
    time::Duration,
};

const LIMIT: Duration = Duration::from_secs(60);

// invariant: 1, 2
#[test]
fn power_cut_during_a_device_claim() {
    installed();
    let node = other_nodes()[0];
    let disk = Disk::new("claiming", 96, &[node]);
    disk.wait_listed(node, &[]);
    let agent = StoppedAgent::at(node, "confirm.held");
    let set = Set::new("claiming", 96);
    agent.power_cycle(|| {
        assert!(set.pvs().is_empty(), "nothing is published before it is confirmed");
    });
    let pvs = set.wait_available(1);
    assert_eq!(node_of(&pvs[0]), node);
    let link = pvs[0]["spec"]["local"]["path"].as_str().expect("a local volume has a path");
    assert_eq!(nodes("node", &[node, "readlink", "-f", link]), disk.device);
    let claims = get(&["nodeinventory", node]).unwrap_or_default()["spec"]["deviceClaims"].clone();
    assert_eq!(claims.as_array().map(Vec::len), Some(1), "{claims}");
}

// invariant: 5, 10
#[test]
fn power_cut_during_a_wipe() {
    installed();
    let node = other_nodes()[0];
    let disk = Disk::new("wiping", 112, &[node]);
    apply(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: wiping, annotations: {quarry.dev/wipe: Zero}}\nprovisioner: kubernetes.io/no-provisioner\n\
         reclaimPolicy: Delete\nvolumeBindingMode: WaitForFirstConsumer\n",
    );
    let set = Set::new("wiping", 112);
    let first = set.wait_available(1).remove(0);
    create_pvc("wiping", "wiping", "Block", "100Mi");
    let write = "for at in 1 100; do printf secret-at-$at | dd of=/dev/data bs=1M seek=$at 2>/dev/null; done; sync; echo done";
    pod("writer", "wiping", true, write);
    assert_eq!(pod_output("writer"), "done");
    assert!(disk.contains("secret-at-1") && disk.contains("secret-at-100"));
    kubectl(&["delete", "pod", "writer"]);
    // After the first 64 MiB.
    let agent = StoppedAgent::at(node, "wipe.zeroing");
    kubectl(&["delete", "pvc", "wiping"]);
    agent.power_cycle(|| {
        assert!(disk.contains("secret-at-100"), "the wipe was interrupted");
        assert!(!set.pvs().iter().any(is_available), "not offered before it is wiped");
    });
    set.wait_pvs("another PersistentVolume", |pvs| {
        pvs.len() == 1
            && is_available(&pvs[0])
            && pvs[0]["metadata"]["uid"] != first["metadata"]["uid"]
    });
    assert!(!disk.contains("secret-at-"), "nothing of the old data is left");
    let owner = get(&["-n", "storage", "localvolumeset", "wiping"]).unwrap_or_default();
    let jobs = jobs_of(owner["metadata"]["uid"].as_str().unwrap_or_default());
    let wipes: Vec<_> = jobs.iter().filter(|job| job["spec"]["action"] == "Wipe").collect();
    // The first attempt may fail before it erases anything, on a machine that is too busy to read the
    // disk in time.
    let succeeded = wipes.iter().filter(|job| job["status"]["phase"] == "Succeeded").count();
    assert_eq!(succeeded, 1, "wiped once after the power cut: {wipes:?}");
}

// invariant: 1, 10
#[test]
fn power_cut_during_a_volume_job() {
    installed();
    let node = other_nodes()[0];
    let agent = StoppedAgent::at(node, "format-draft.written");
    apply(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: cut}\nprovisioner: kubernetes.io/no-provisioner\nparameters: {fsType: ext4}\n",
    );
    apply(&format!(
        "apiVersion: storage.metalk8s.scality.com/v1alpha1\nkind: Volume\nmetadata: {{name: cut}}\nspec: {{nodeName: {node}, storageClassName: cut, sparseLoopDevice: {{size: 64Mi}}}}\n"
    ));
    agent.power_cycle(|| {
        assert!(get(&["pv", "cut"]).is_none(), "no PersistentVolume before the job has ended");
    });
    let volume = phase_is("cut", "Available");
    let uid = volume["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    assert_eq!(jobs_of(&uid).len(), 1, "one job, which the next boot continued");
    let directory = directory().join(node).join("fs/quarry/volumes");
    let entries = fs::read_dir(directory).expect("the node's data directory is readable");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let files: Vec<String> = names.collect();
    assert_eq!(files, std::slice::from_ref(&uid), "one file, and no draft");
    let link = format!("/dev/disk/by-uuid/{uid}");
    let device = nodes("node", &[node, "readlink", "-f", &link]);
    assert!(device.starts_with("/dev/loop"), "{device}");
    let phases = Phases::of("cut");
    power_off(node);
    // A reboot ends the loops of the kernel.
    run("losetup", &["--detach", device.trim()]);
    power_on(node);
    agents_ready();
    until("the loop is attached again", LIMIT, || {
        let link = nodes("node", &[node, "readlink", "-m", &link]);
        if link.starts_with("/dev/loop") { Ok(()) } else { Err(link) }
    });
    phase_is("cut", "Available");
    let seen = phases.seen();
    assert!(seen.contains(&"Available".to_owned()), "{seen:?}");
    assert!(!seen.contains(&"Failed".to_owned()), "not ready yet is not failed: {seen:?}");
    kubectl(&["delete", "volume", "cut", "--wait=false"]);
    wait_deleted("volume", "cut");
}

/// Every phase that a Volume shows from now on.
struct Phases {
    watch: Child,
    output: tempfile::NamedTempFile,
}

impl Phases {
    fn of(volume: &str) -> Self {
        let output = tempfile::NamedTempFile::new().expect("a temporary file can be created");
        let file = output.reopen().expect("the temporary file can be opened");
        let show = "--output=jsonpath={.status.phase}{\"\\n\"}";
        let watch = Command::new("kubectl")
            .args(["get", "volume", volume, "--watch", show])
            .stdout(file)
            .spawn()
            .expect("kubectl can be started");
        let phases = Phases { watch, output };
        until("the watch shows the Volume", LIMIT, || {
            if phases.seen().is_empty() { Err("nothing".to_owned()) } else { Ok(()) }
        });
        phases
    }

    fn seen(&self) -> Vec<String> {
        let text = fs::read_to_string(self.output.path()).expect("the watch's output is readable");
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        self.watch.kill().ok();
        self.watch.wait().ok();
    }
}
