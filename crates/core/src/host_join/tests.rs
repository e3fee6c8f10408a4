use super::*;
use serde_json::{Value, json};

struct Host {
    name: &'static str,
    uid: &'static str,
    hardware: Option<HardwareDetails>,
}

struct NodeObject {
    name: &'static str,
    provider_id: Option<&'static str>,
    devices: Option<Vec<Device>>,
}

fn host(name: &'static str, storage: Value) -> Host {
    let hardware = serde_json::from_value(json!({"storage": storage})).unwrap();
    Host { name, uid: name, hardware: Some(hardware) }
}

fn node(name: &'static str, devices: Value) -> NodeObject {
    let list = devices.as_array().unwrap().iter();
    let device = |fields: &Value| {
        let mut object = json!({"name": "sda", "type": "disk", "size": 1000, "state": "Available"});
        for (key, value) in fields.as_object().unwrap() {
            object[key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    };
    NodeObject { name, provider_id: None, devices: Some(list.map(device).collect()) }
}

fn joined(hosts: &[Host], nodes: &[NodeObject]) -> Vec<HostJoin> {
    let hosts: Vec<HostSide<'_>> = hosts
        .iter()
        .map(|host| HostSide {
            namespace: "metal",
            name: host.name,
            uid: host.uid,
            hardware: host.hardware.as_ref(),
        })
        .collect();
    let nodes: Vec<NodeSide<'_>> = nodes
        .iter()
        .map(|node| NodeSide {
            name: node.name,
            provider_id: node.provider_id,
            devices: node.devices.as_deref(),
        })
        .collect();
    join(&hosts, &nodes)
}

/// `h=n1` or the reason, then each disk as `host=device`.
fn text(hosts: &[Host], nodes: &[NodeObject]) -> Vec<String> {
    joined(hosts, nodes)
        .iter()
        .map(|one| {
            let outcome = match &one.outcome {
                Outcome::Joined { node, by } => format!("{node} by {by:?}"),
                Outcome::NotJoined(why) => why.message(),
            };
            let disk = |disk: &JoinedDisk| {
                let host = disk.host.as_ref().map_or("-".to_owned(), |host| host.names.join("+"));
                format!("{host}={}", disk.device.as_deref().unwrap_or("-"))
            };
            let disks: Vec<String> = one.disks.iter().map(disk).collect();
            format!("{}: {outcome} [{}]", one.name, disks.join(" "))
        })
        .collect()
}

fn wwn(name: &str, wwn: &str) -> Value {
    json!({"name": name, "wwn": wwn})
}

fn disk(name: &str, identity: &str) -> Value {
    json!({"name": name, "identity": identity})
}

const A: &str = "5000c500a1b2c3d4";
const B: &str = "5000c500a1b2c3d5";

fn two(first: &str, second: &str) -> Value {
    json!([disk(first, &format!("wwn:{A}")), disk(second, &format!("wwn:{B}"))])
}

fn two_of_host() -> Value {
    json!([wwn("/dev/sda", &format!("0x{A}")), wwn("/dev/sdb", &format!("0x{B}"))])
}

#[test]
fn a_provider_id_names_the_host_in_both_forms() {
    for (id, expected) in [
        ("metal3://metal/h1/m1", Some("n1")),
        ("metal3://uid-1", Some("n1")),
        ("metal3://metal/h2/m1", None),
        ("metal3://metal/h1", None),
        ("metal3:///h1/m1", None),
        ("aws:///zone/i-1", None),
    ] {
        let hosts = [Host { name: "h1", uid: "uid-1", hardware: None }];
        let mut one = node("n1", json!([]));
        one.provider_id = Some(id);
        assert_eq!(joined(&hosts, &[one])[0].node(), expected, "{id}");
    }
}

#[test]
fn two_nodes_that_name_one_host_join_nothing() {
    let nodes = ["n1", "n2"].map(|name| NodeObject {
        name,
        provider_id: Some("metal3://metal/h1/m1"),
        devices: None,
    });
    let hosts = [Host { name: "h1", uid: "u", hardware: None }];
    assert_eq!(
        text(&hosts, &nodes),
        [
            "h1: ambiguous: the Nodes n1, n2 have a provider ID that names it; delete those that are gone []"
        ]
    );
}

#[test]
fn a_provider_id_decides_before_equal_disks() {
    let mut named = node("n1", two("sda", "sdb"));
    named.provider_id = Some("metal3://other/h9/m1");
    let hosts = [host("h1", two_of_host())];
    let result = text(&hosts, &[named]);
    assert!(result[0].contains("no node has its disks"), "{result:?}");
    // The UID is that of the cluster that the host came from.
    let mut moved = node("n1", two("sda", "sdb"));
    moved.provider_id = Some("metal3://0f2c");
    assert_eq!(joined(&hosts, &[moved])[0].node(), Some("n1"));
}

#[test]
fn two_equal_disks_join_and_one_side_alone_is_shown() {
    let storage = json!([
        wwn("/dev/sda", "0x5000C500A1B2C3D4"),
        wwn("/dev/sdb", "naa.5000c500a1b2c3d5"),
        wwn("/dev/sdc", "0x5000c500ffffff01"),
    ]);
    let devices = json!([
        disk("sdb", "wwn:5000c500a1b2c3d4"),
        disk("sdc", "wwn:5000c500a1b2c3d5"),
        disk("sdd", "wwn:5000c500ffffff02"),
    ]);
    assert_eq!(
        text(&[host("h1", storage)], &[node("n1", devices)]),
        ["h1: n1 by Disks { matching: 2 } [/dev/sda=sdb /dev/sdb=sdc /dev/sdc=- -=sdd]"]
    );
}

#[test]
fn one_disk_joins_only_as_the_only_disk_of_both() {
    let one = json!([wwn("/dev/sda", &format!("0x{A}"))]);
    let only = json!([disk("sda", &format!("wwn:{A}"))]);
    let hosts = [host("h1", one.clone())];
    assert_eq!(joined(&hosts, &[node("n1", only.clone())])[0].node(), Some("n1"));
    let more = json!([disk("sda", &format!("wwn:{A}")), disk("sdb", "wwn:5000c500ffffff02")]);
    assert_eq!(
        text(&hosts, &[node("n1", more)]),
        [
            "h1: node n1 has only 1 disk of it; two are needed, or the only disk of both [/dev/sda=-]"
        ]
    );
}

#[test]
fn partitions_loops_and_paths_are_no_disks() {
    let devices = json!([
        {"name": "dm-0", "type": "mpath", "identity": format!("wwn:{A}"), "paths": ["sda", "sdb"]},
        {"name": "dm-1", "type": "part", "identity": "part:1", "parent": "dm-0"},
        {"name": "loop0", "type": "loop", "identity": "file:/x"},
        {"name": "sr0", "type": "rom"},
        {"name": "zram0"},
        {"name": "sdz", "size": 0},
    ]);
    // Inspection saw both paths.
    let storage = json!([wwn("/dev/sda", &format!("0x{A}")), wwn("/dev/sdb", &format!("0x{A}")), {"name": "/dev/md127"}]);
    assert_eq!(
        text(&[host("h1", storage)], &[node("n1", devices)]),
        ["h1: n1 by Disks { matching: 1 } [/dev/sda+/dev/sdb=dm-0]"]
    );
}

#[test]
fn a_wwn_without_extension_counts_only_where_it_is_unique() {
    let short = "0x600508b1001c7e1b";
    let storage = json!([
        wwn("/dev/sda", short),
        {"name": "/dev/sdb", "wwn": "0x600508b1001c0000", "wwnWithExtension": "0x600508b1001c0000aaaaaaaaaaaaaaaa"},
    ]);
    let long =
        |name: &str, extension: &str| disk(name, &format!("wwn:600508b1001c7e1b{extension}"));
    let other = disk("sdb", "wwn:600508b1001c0000aaaaaaaaaaaaaaaa");
    let unique = json!([long("sda", "0123456789abcdef"), other]);
    let hosts = [host("h1", storage)];
    assert_eq!(
        text(&hosts, &[node("n1", unique)]),
        ["h1: n1 by Disks { matching: 2 } [/dev/sda=sda /dev/sdb=sdb]"]
    );
    let several = json!([long("sda", "0123456789abcdef"), long("sdc", "fedcba9876543210"), other]);
    let result = text(&hosts, &[node("n1", several)]);
    assert!(result[0].contains("has only 1 disk of it"), "{result:?}");
}

#[test]
fn serial_and_model_count_where_a_wwn_is_missing() {
    let storage = json!([
        {"name": "/dev/sda", "serialNumber": "PHYF 1234", "model": "INTEL SSDSC2KB480G8"},
        {"name": "/dev/nvme0n1", "serialNumber": "S4EV", "model": "Samsung 970", "wwn": "eui.0025385b71b0a1c2"},
        {"name": "/dev/sdc", "serialNumber": "Z1", "model": "ST4000", "wwn": "0x5000c500a1b2c3d4"},
        {"name": "/dev/sdd", "serialNumber": "QM00003", "model": "QEMU HARDDISK"},
    ]);
    let devices = json!([
        {"name": "sda", "serial": "PHYF1234", "model": "INTEL_SSDSC2KB48"},
        {"name": "nvme0n1", "serial": "S4EV", "model": "Samsung 970"},
        {"name": "sdc", "serial": "Z1", "model": "ST4000", "identity": "wwn:5000c500ffffffff"},
        {"name": "sdd", "serial": "QM00003", "model": "QEMU HARDDISK"},
        {"name": "sde", "serial": "00000000", "model": "ST4000"},
    ]);
    assert_eq!(
        text(&[host("h1", storage)], &[node("n1", devices)]),
        [
            "h1: n1 by Disks { matching: 2 } [/dev/sda=sda /dev/nvme0n1=nvme0n1 /dev/sdc=- /dev/sdd=- -=sdc -=sdd -=sde]"
        ]
    );
}

#[test]
fn disks_in_two_nodes_join_nothing() {
    let four = ["01", "02", "03", "04"].map(|end| format!("5000c500000000{end}"));
    let storage: Vec<Value> = four.iter().map(|one| wwn(one, &format!("0x{one}"))).collect();
    let has = |from: usize| {
        let disks = four[from..from + 2].iter().map(|one| disk(one, &format!("wwn:{one}")));
        json!(disks.collect::<Vec<Value>>())
    };
    let result = text(&[host("h1", json!(storage))], &[node("n1", has(0)), node("n2", has(2))]);
    assert!(
        result[0].starts_with("h1: ambiguous: its disks are in the nodes n1, n2"),
        "{result:?}"
    );
}

#[test]
fn shared_disks_prove_nothing() {
    let hosts = [host("h1", two_of_host()), host("h2", two_of_host())];
    let result = text(&hosts, &[node("n1", two("sda", "sdb"))]);
    assert!(
        result[0].starts_with("h1: ambiguous: its disks in node n1 are also seen by host metal/h2"),
        "{result:?}"
    );
    let nodes = [node("n1", two("sda", "sdb")), node("n2", two("sdx", "sdy"))];
    let result = text(&hosts[..1], &nodes);
    assert!(result[0].contains("in node n1 are also seen by node n2"), "{result:?}");
    // A LUN of both machines beside two disks of each.
    let with = |own: &str| {
        let own = [format!("5000c50000000{own}01"), format!("5000c50000000{own}02")];
        let mut storage: Vec<Value> = own.iter().map(|one| wwn(one, &format!("0x{one}"))).collect();
        let mut devices: Vec<Value> =
            own.iter().map(|one| disk(one, &format!("wwn:{one}"))).collect();
        storage.push(wwn("/dev/sdz", &format!("0x{A}")));
        devices.push(disk("sdz", &format!("wwn:{A}")));
        (json!(storage), json!(devices))
    };
    let ((first, one), (second, two)) = (with("a"), with("b"));
    let found =
        joined(&[host("h1", first), host("h2", second)], &[node("n1", one), node("n2", two)]);
    assert_eq!([found[0].node(), found[1].node()], [Some("n1"), Some("n2")]);
    assert_eq!(found[0].disks[2].device.as_deref(), Some("sdz"), "both see the LUN");
}

#[test]
fn hosts_with_disks_of_one_node_join_nothing() {
    let four = ["01", "02", "03", "04"].map(|end| format!("5000c500000000{end}"));
    let storage = |from: usize| {
        let disks = four[from..from + 2].iter().map(|one| wwn(one, &format!("0x{one}")));
        json!(disks.collect::<Vec<Value>>())
    };
    let devices: Vec<Value> = four.iter().map(|one| disk(one, &format!("wwn:{one}"))).collect();
    let hosts = [host("h1", storage(0)), host("h2", storage(2))];
    for result in text(&hosts, &[node("n1", json!(devices))]) {
        assert!(
            result.contains("ambiguous: the disks of node n1 are in the hosts metal/h1, metal/h2"),
            "{result}"
        );
    }
}

#[test]
fn a_host_without_known_disks_says_why() {
    let nodes = [node("n1", two("sda", "sdb"))];
    for (hardware, why) in [
        (None, "its hardware is not known"),
        (Some(json!({"storage": [{"name": "/dev/sda"}]})), "none of its disks has a WWN"),
        (
            Some(json!({"storage": [wwn("/dev/sda", "0x5000c50000000099")]})),
            "no node has its disks",
        ),
    ] {
        let hardware = hardware.map(|one| serde_json::from_value(one).unwrap());
        let result = text(&[Host { name: "h1", uid: "u", hardware }], &nodes);
        assert!(result[0].contains(why), "{result:?}");
    }
}

#[test]
fn a_thousand_disks_are_joined_quickly() {
    let name = |at: usize| format!("5000c5000{at:07x}");
    let storage: Vec<Value> =
        (0..1000).map(|at| wwn("/dev/sd", &format!("0x{}", name(at)))).collect();
    let devices: Vec<Value> =
        (0..1000).map(|at| disk("sd", &format!("wwn:{}", name(999 - at)))).collect();
    let found = joined(&[host("h1", json!(storage))], &[node("n1", json!(devices))]);
    assert_eq!(
        found[0].outcome,
        Outcome::Joined { node: "n1".into(), by: JoinedBy::Disks { matching: 1000 } }
    );
}

/// Two mirrored disks with two arrays, a disk beside them, and a member that no array contains.
fn mirrored() -> NodeObject {
    let part = |name: &str, parent: &str, array: &str| {
        json!({"name": name, "type": "part", "parent": parent, "fsType": "linux_raid_member", "state": "NotAvailable",
            "reasons": [{"reason": "HasHolders", "detail": array}, {"reason": "Signature", "detail": "linux_raid_member"}]})
    };
    node(
        "n1",
        json!([
            {"name": "sda"}, part("sda1", "sda", "md127"), part("sda2", "sda", "md126"),
            {"name": "sdb"}, part("sdb1", "sdb", "md127"), part("sdb2", "sdb", "md126"),
            {"name": "sdc"},
            {"name": "sdd", "fsType": "linux_raid_member"},
            {"name": "md127", "type": "raid1", "size": 49}, {"name": "md126", "type": "raid10", "size": 500},
            {"name": "md125", "type": "linear"},
        ]),
    )
}

#[test]
fn members_of_arrays_are_found_in_the_devices_of_a_node() {
    let devices = mirrored().devices.unwrap();
    let arrays = raid::arrays(&devices);
    let found: Vec<String> = arrays
        .iter()
        .map(|one| format!("{} {} {} {}", one.name, one.level, one.size, one.members.join(",")))
        .collect();
    assert_eq!(found, ["md126 1+0 500 sda2,sdb2", "md127 1 49 sda1,sdb1"]);
    let role = |name: &str| match raid::role(&devices, &arrays, name) {
        None => "none".to_owned(),
        Some(raid::Role::Array(array)) => format!("array {}", array.name),
        Some(raid::Role::Member(array)) => format!("member {}", array.name),
        Some(raid::Role::Unassembled) => "unassembled".to_owned(),
        Some(raid::Role::Disk(with)) => format!("disk {}", with.len()),
    };
    let roles: Vec<String> =
        ["sda", "sda1", "sdb2", "sdc", "sdd", "md127", "md125", "nvme0n1"].map(role).into();
    assert_eq!(
        roles,
        [
            "disk 2",
            "member md127",
            "member md126",
            "none",
            "unassembled",
            "array md127",
            "none",
            "none"
        ]
    );
}

#[test]
fn an_array_belongs_to_the_volume_of_its_level() {
    let devices = mirrored().devices.unwrap();
    let arrays = raid::arrays(&devices);
    let requested = |config: Value| {
        let config = serde_json::from_value(config).unwrap();
        let of = |array: &raid::Array| raid::requested(&config, array);
        (of(&arrays[1]), of(&arrays[0]))
    };
    use raid::Requested::{No, OneOfSeveral, Volume};
    let (mirror, striped) = (json!({"level": "1"}), json!({"level": "1+0"}));
    assert_eq!(
        requested(json!({"softwareRAIDVolumes": [mirror, striped]})),
        (Volume(0), Volume(1))
    );
    assert_eq!(requested(json!({"softwareRAIDVolumes": [mirror, mirror]})), (OneOfSeveral, No));
    assert_eq!(requested(json!({"softwareRAIDVolumes": []})), (No, No));
    assert_eq!(
        requested(json!({"hardwareRAIDVolumes": [mirror], "softwareRAIDVolumes": [mirror]})),
        (No, No)
    );
}
