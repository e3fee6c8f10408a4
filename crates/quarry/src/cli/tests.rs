use super::*;
use clap::FromArgMatches;
use echo::EchoController;

#[path = "../../../operator/tests/echo/mod.rs"]
mod echo;

fn parse(line: &str) -> Result<Cli, String> {
    parse_with(&Registry::standard(), line)
}

fn parse_with(registry: &Registry, line: &str) -> Result<Cli, String> {
    let matches = Cli::command_with(registry).try_get_matches_from(line.split_whitespace());
    matches.and_then(|found| Cli::from_arg_matches(&found)).map_err(|error| error.to_string())
}

#[test]
fn the_command_definition_is_consistent() {
    Cli::command_with(&Registry::standard()).debug_assert();
}

#[test]
fn every_documented_command_parses() {
    for line in [
        "quarry up",
        "quarry up --demo --data-dir /tmp/q --listen 127.0.0.1:0 --node-name n1",
        "quarry volumes -o wide --watch --node n1",
        "quarry volume create v1 --node n1 --class c --size 10Gi --mode block --label a=b --label c=d --wait --timeout 30s",
        "quarry volume create v1 --class c --size -1",
        "quarry volume delete v1 --wait",
        "quarry volume retry v1",
        "quarry explain volume/v1",
        "quarry explain Volumes/v1",
        "quarry explain /dev/sdb --host-root /host",
        "quarry explain n1/sdb --namespace x",
        "quarry explain set/s1 -n storage",
        "quarry explain LocalVolume/v1",
        "quarry explain host/h1 -n metal",
        "quarry explain bmh/h1",
        "quarry osds",
        "quarry osds -n rook-ceph -o wide --watch",
        "quarry explain osd/3 -n rook-ceph",
        "quarry explain OSD/set-data-0-1f2e3d4c",
        "quarry hosts -n metal -o wide --watch",
        "quarry hosts -A -o json",
        "quarry host inspect h1 -n metal",
        "quarry host reboot h1 --hard --force",
        "quarry host detach h1 --force --delete-action delete",
        "quarry host attach h1",
        "quarry host move-out h1 h2 -n metal --timeout 30s",
        "quarry host move-out --all",
        "quarry host move-in --all -n metal --force",
        "quarry sets -n storage -o wide --node n1",
        "quarry plan -f set.yaml",
        "quarry plan -f - --node n1 -o json",
        "quarry plan set/s1 -n storage",
        "quarry plan -f set.yaml --local",
        "quarry plan -f set.yaml --host-root /host",
        "quarry ledger",
        "quarry ledger --host-root /host --data-dir /var/lib/quarry -o json",
        "quarry operator --controllers nodeinventory,deviceclaims",
        "quarry devices",
        "quarry devices n1 n2 -o wide --watch --all",
        "quarry devices --local -o yaml",
        "quarry devices --host-root /host",
        "quarry up --allow-real-disks",
        "quarry agent --node-name n1 --rescan-interval 10m --settling-time 0s",
        "quarry operator --controllers volume,nodejob --no-leader-election --metrics-listen 127.0.0.1:0",
        "quarry agent --host-root /host --data-dir /var/lib/quarry --node-name n1",
        "quarry crds --format json",
        "quarry crds apply --take-over",
        "quarry policies",
        "quarry store dump --data-dir /tmp/q",
        "quarry version -o json --kubeconfig /x --log-format json",
    ] {
        if let Err(error) = parse(line) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn wrong_arguments_name_the_remedy() {
    for (line, remedy) in [
        ("quarry explain /", "names no device"),
        ("quarry explain n1/", "a name is missing"),
        ("quarry explain node/n1", "node/n1/DEVICE"),
        ("quarry devices --local n1", "cannot be used with"),
        ("quarry agent --node-name n1 --settling-time=-1s", "or 0s"),
        ("quarry agent --node-name n1 --rescan-interval 0s", "write it as 30s"),
        ("quarry explain volume/", "the name is missing"),
        ("quarry explain osd/", "osd/ID"),
        ("quarry volume delete v1 --timeout soon", "write it as 30s, 5m or 1h"),
        ("quarry volume delete v1 --timeout 0s", "write it as 30s, 5m or 1h"),
        (
            "quarry operator --controllers volumes",
            "possible values: volume, nodeinventory, nodejob, agentdaemonset, discovery, deviceclaims",
        ),
        ("quarry explain set/", "write it as set/NAME"),
        ("quarry explain bmh/", "write it as host/NAME"),
        ("quarry hosts -A -n metal", "cannot be used with"),
        ("quarry host move-out", "<NAME|--all>"),
        ("quarry host move-in --all h1", "cannot be used with"),
        ("quarry host detach h1 --delete-action now", "possible values: delay, delete"),
        ("quarry plan", "--file <FILE>"),
        ("quarry plan fast", "write it as set/NAME or localvolume/NAME"),
        ("quarry plan volume/v1", "write it as set/NAME or localvolume/NAME"),
        ("quarry plan set/a -f set.yaml", "cannot be used with"),
        ("quarry plan set/a --local", "cannot be used with"),
        ("quarry plan -f set.yaml --local --node n1", "cannot be used with"),
        ("quarry up --listen localhost", "invalid socket address"),
    ] {
        let message = parse(line).unwrap_err();
        assert!(message.contains(remedy), "{line}: {message}");
    }
}

#[test]
fn a_negative_size_is_a_value_and_not_a_flag() {
    let Command::Volume { command: VolumeCommand::Create(args) } =
        parse("quarry volume create v --class c --size -1Gi").unwrap().command
    else {
        panic!()
    };
    assert_eq!(args.size, "-1Gi");
    assert_eq!(args.wait.timeout, Duration::from_secs(120));
}

#[test]
fn the_target_of_explain_is_parsed_by_its_form() {
    let device = |node: Option<&str>, device: &str| Target::Device {
        node: node.map(str::to_owned),
        device: device.to_owned(),
    };
    for (text, target) in [
        ("volume/v1", Target::Volume("v1".into())),
        ("set/s1", Target::Owner(OwnerRef::Set("s1".into()))),
        ("LocalVolumeSets/s1", Target::Owner(OwnerRef::Set("s1".into()))),
        ("lvol/v1", Target::Owner(OwnerRef::LocalVolume("v1".into()))),
        ("localvolume/v1", Target::Owner(OwnerRef::LocalVolume("v1".into()))),
        ("host/h1", Target::Host("h1".into())),
        ("BareMetalHosts/h1", Target::Host("h1".into())),
        ("node/host/sdb", device(Some("host"), "sdb")),
        ("node/set/sdb", device(Some("set"), "sdb")),
        ("node/lv/sdb", device(Some("lv"), "sdb")),
        ("sdb", device(None, "sdb")),
        ("/dev/disk/by-id/wwn-1", device(None, "/dev/disk/by-id/wwn-1")),
        ("wwn:5000", device(None, "wwn:5000")),
        ("file:/a/b#1", device(None, "file:/a/b#1")),
        ("n1/sdb", device(Some("n1"), "sdb")),
        ("n1//dev/sdb", device(Some("n1"), "/dev/sdb")),
        ("n1/dev/sdb", device(Some("n1"), "dev/sdb")),
        ("n1/file:/a/b#1", device(Some("n1"), "file:/a/b#1")),
        ("node/volume/sdb", device(Some("volume"), "sdb")),
        ("node/node/sdb", device(Some("node"), "sdb")),
    ] {
        assert_eq!(parse_target(text), Ok(target), "{text}");
    }
}

#[test]
fn every_group_of_controllers_runs_by_default() {
    let Command::Operator(args) = parse("quarry operator").unwrap().command else { panic!() };
    assert_eq!(args.controllers, Registry::standard().groups());
}

#[test]
fn a_registered_controller_can_be_chosen() {
    let registry = Registry::standard().with::<EchoController>();
    let chosen = |line: &str| match parse_with(&registry, line).unwrap().command {
        Command::Operator(args) => args.controllers,
        other => panic!("{other:?}"),
    };
    assert_eq!(chosen("quarry operator --controllers echo,volume"), ["echo", "volume"]);
    assert_eq!(chosen("quarry operator"), registry.groups(), "it runs by default");
    let help = parse_with(&registry, "quarry operator --help").unwrap_err();
    assert!(help.contains("echo"), "{help}");
    assert!(parse("quarry operator --controllers echo").is_err(), "it is not registered");
}
