//! Software RAID with the real ironic-python-agent and mdadm, on the one real machine. The oracle is the guest: mdadm and
//! lsblk. What Ironic calls `raid_config` only repeats the request.

use super::provision::{image_of_the_lab, node_of, provisioned};
use quarry_tests::services::{LIMIT, Lab, Quarry, System, figures::Meter, quarry::SECRETS, until};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Level and members (serials of disks) of each array that the guest has assembled.
type Arrays = BTreeSet<(String, BTreeSet<String>)>;

fn arrays(machine: &System) -> Arrays {
    let shown = machine.shell("udevadm settle; lsblk -J -o NAME,TYPE,SERIAL");
    let shown: Value = serde_json::from_str(&shown).expect(&shown);
    let mut found = BTreeMap::<(String, String), BTreeSet<String>>::new();
    for disk in shown["blockdevices"].as_array().unwrap() {
        let serial = disk["serial"].as_str().unwrap_or_default().to_owned();
        for part in disk["children"].as_array().into_iter().flatten() {
            for array in part["children"].as_array().into_iter().flatten() {
                let text = |key: &str| array[key].as_str().unwrap().to_owned();
                found.entry((text("name"), text("type"))).or_default().insert(serial.clone());
            }
        }
    }
    found.into_iter().map(|((_, level), members)| (level, members)).collect()
}

/// Levels in the superblocks of all partitions and disks, with how many there are.
fn superblocks(machine: &System) -> BTreeMap<String, usize> {
    let examine =
        "udevadm settle; for p in /dev/sd*; do mdadm --examine --export $p 2>/dev/null; done";
    let mut found = BTreeMap::new();
    for line in machine.shell(examine).lines() {
        if let Some(level) = line.strip_prefix("MD_LEVEL=") {
            *found.entry(level.to_owned()).or_default() += 1;
        }
    }
    found
}

fn array(level: &str, members: [&str; 2]) -> (String, BTreeSet<String>) {
    (level.to_owned(), members.map(str::to_owned).into())
}

fn volume(level: &str, size: Option<u32>, serials: [&str; 2]) -> Value {
    let disks = serials.map(|serial| json!({"serialNumber": serial}));
    json!({"level": level, "sizeGibibytes": size, "physicalDisks": disks})
}

fn software(volumes: &[Value]) -> Value {
    json!({"raid": {"softwareRAIDVolumes": volumes}})
}

/// A mirror for the system and stripes for data: the arrays that both tests end with.
fn two_volumes() -> [Value; 2] {
    [volume("1", Some(2), ["A0A1", "B0B2"]), volume("0", None, ["C0C3", "D0D4"])]
}

fn two_arrays() -> Arrays {
    [array("raid1", ["A0A1", "B0B2"]), array("raid0", ["C0C3", "D0D4"])].into()
}

#[track_caller]
fn two_arrays_are_there(machine: &System) {
    assert_eq!(arrays(machine), two_arrays());
    let levels = [("raid0".to_owned(), 2), ("raid1".to_owned(), 2)];
    assert_eq!(superblocks(machine), BTreeMap::from(levels));
}

fn register(quarry: &Quarry, machine: &System, raid: &Value) {
    quarry.create_secret(&machine.name, &Lab::get().bmc_password);
    // The guest has no UEFI.
    let mut spec = json!({"bootMode": "legacy", "automatedCleaningMode": "disabled"});
    spec["raid"] = raid["raid"].clone();
    quarry.create_host(machine, &json!({"spec": spec}));
}

#[track_caller]
fn fails(quarry: &Quarry, machine: &System, text: &str) {
    let host = quarry.wait(&machine.name, &format!("reports {text}"), LIMIT * 3, |status| {
        let message = status["errorMessage"].as_str().unwrap_or_default();
        status["errorType"] == "preparation error" && message.contains(text)
    });
    assert_eq!(host["status"]["operationalStatus"], "error");
    assert_eq!(host["status"]["provisioning"]["state"], "preparing");
}

#[track_caller]
fn prepared(quarry: &Quarry, machine: &System) -> Value {
    let host = quarry.wait(&machine.name, "is prepared", LIMIT * 4, |status| {
        status["provisioning"]["raid"]["softwareRAIDVolumes"].as_array().map(Vec::len) == Some(2)
            && status["provisioning"]["state"] == "available"
            && status["operationalStatus"] == "OK"
    });
    // The agent repeats the request: nothing has shown the arrays yet.
    let verified = Quarry::condition(&host["status"], "quarry.dev/RAIDVerified");
    assert_eq!(verified["status"], "Unknown", "{verified}");
    host
}

/// No disk for a hint, a disk that is too small, what that leaves behind, and a power cut in the middle.
#[test]
fn software_raid_is_built_after_every_failure() {
    let machine = Lab::get().machine();
    let name = &machine.name;
    let mut quarry = Quarry::start(&machine);
    register(&quarry, &machine, &software(&[volume("1", Some(2), ["NOSUCH", "B0B2"])]));
    fails(&quarry, &machine, "NOSUCH");
    super::hosts_hardware::storage_equals_lsblk(&quarry, &machine);
    assert_eq!((arrays(&machine), superblocks(&machine)), (Arrays::new(), BTreeMap::new()));

    quarry.change(name, &software(&[volume("1", Some(3), ["C0C3", "D0D4"])]));
    fails(&quarry, &machine, "outside of the device");
    let left = machine.shell("lsblk -n -o NAME,TYPE --list");
    assert!(left.contains(" part"), "a partition on the larger disk: {left}");
    assert_eq!(arrays(&machine), Arrays::new());

    quarry.change(name, &software(&two_volumes()));
    let node = quarry.host(name).unwrap();
    until("the arrays are being created", LIMIT * 2, || {
        let node = node_of(&node);
        let step = &node["clean_step"]["step"];
        let waits = node["provision_state"] == "clean wait" && *step == "create_configuration";
        if waits { Ok(()) } else { Err(format!("{} {step}", node["provision_state"])) }
    });
    quarry.kill();
    machine.cut_power();
    quarry.run();
    fails(&quarry, &machine, "imeout");
    quarry.change(name, &json!({"description": "the power is back"}));
    prepared(&quarry, &machine);
    two_arrays_are_there(&machine);

    // Each attempt began with the erase of everything.
    let uuid = node["status"]["provisioning"]["ID"].as_str().unwrap();
    let steps = Lab::get().steps(uuid).into_iter().filter(|step| !step.starts_with("verify"));
    let steps: Vec<String> = steps.collect();
    let attempt = ["delete_configuration", "erase_devices_metadata", "create_configuration"];
    assert!(steps.len() >= 12 && steps.chunks(3).all(|one| one == attempt), "{steps:?}");

    // An inspection shows the arrays.
    quarry.annotate(name, "inspect.metal3.io", "");
    quarry.wait(name, "is verified", LIMIT * 2, |status| {
        let verified = Quarry::condition(status, "quarry.dev/RAIDVerified");
        verified["status"] == "True" && status["provisioning"]["state"] == "available"
    });
    two_arrays_are_there(&machine);
}

fn marker(machine: &System) -> String {
    let read = "udevadm settle; mkdir -p /run/root; mount -o ro /dev/disk/by-label/lab-root /run/root && cat /run/root/marker; umount /run/root; \
                lsblk -n -s -o TYPE --list /dev/disk/by-label/lab-root | sort -u | tr '\\n' ' '";
    machine.shell(read)
}

#[test]
fn an_image_on_software_raid_survives_power_cycles() {
    let machine = Lab::get().machine();
    let (name, quarry) = (&machine.name, Quarry::start(&machine));
    let data = json!({"userData": "#cloud-config\n# the user data of this test\n"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "user-data"}, "stringData": data});
    quarry.create(SECRETS, &secret);
    let meter = Meter::requests(&machine);
    register(&quarry, &machine, &software(&two_volumes()));
    let host = prepared(&quarry, &machine);
    let cost = meter.read(&machine, &host);
    println!(
        "figure: created to available with software RAID: {} requests to Ironic",
        cost.requests.len()
    );
    two_arrays_are_there(&machine);

    // Off, so that the ramdisk that writes the image is another one than the one that built the arrays.
    quarry.change(name, &json!({"online": false}));
    quarry.wait(name, "is off", LIMIT, |status| status["poweredOn"] == false);
    let provision = json!({"online": true, "image": image_of_the_lab(), "userData": {"name": "user-data", "namespace": "default"}});
    quarry.change(name, &provision);
    provisioned(&quarry, &machine);
    two_arrays_are_there(&machine);
    assert_eq!(marker(&machine), "marker of the lab\ndisk part raid1 ");
    let config =
        machine.shell("strings /dev/disk/by-label/config-2 | grep 'of this test' | sort -u");
    assert_eq!(config, "# the user data of this test\n");
    machine.cut_power();
    machine.switch("On");
    two_arrays_are_there(&machine);
    assert_eq!(marker(&machine), "marker of the lab\ndisk part raid1 ");

    quarry.change(name, &json!({"image": null, "userData": null, "raid": null}));
    let host = quarry.wait(name, "is deprovisioned", LIMIT * 3, |status| {
        status["provisioning"]["state"] == "available" && status["operationalStatus"] == "OK"
    });
    let snapshot = &host["status"]["provisioning"]["raid"];
    assert!(snapshot["softwareRAIDVolumes"].as_array().is_none_or(Vec::is_empty), "{snapshot}");
    assert_eq!((arrays(&machine), superblocks(&machine)), (Arrays::new(), BTreeMap::new()));
    let left = machine.shell("lsblk -n -o TYPE --list | sort -u");
    assert_eq!(left, "disk\n", "no partitions, either");
    assert!(cost.requests.len() <= 60, "{} requests: {:#?}", cost.requests.len(), cost.lines());
}
