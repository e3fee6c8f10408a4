use super::*;
use clap::CommandFactory;

fn parse(line: &str) -> Result<Cli, String> {
    Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
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
        ("quarry explain v1", "such as volume/v1"),
        ("quarry explain pod/v1", "what can: volume/NAME"),
        ("quarry explain volume/", "the name is missing"),
        ("quarry volume delete v1 --timeout soon", "write it as 30s, 5m or 1h"),
        ("quarry volume delete v1 --timeout 0s", "write it as 30s, 5m or 1h"),
        ("quarry operator --controllers volumes", "possible values: volume, nodeinventory, nodejob, agent, discovery"),
        ("quarry up --listen localhost", "invalid socket address"),
    ] {
        let said = parse(line).unwrap_err();
        assert!(said.contains(remedy), "{line}: {said}");
    }
}

#[test]
fn a_size_with_a_minus_is_a_value_and_not_a_flag() {
    let Command::Volume { command: VolumeCommand::Create(args) } = parse("quarry volume create v --class c --size -1Gi").unwrap().command else { panic!() };
    assert_eq!(args.size, "-1Gi");
    assert_eq!(args.wait.timeout, Duration::from_secs(120));
}
