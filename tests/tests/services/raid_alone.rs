//! Many hosts at once, with an operator of its own, whose memory can be measured.

use super::raid_hardware::hardware;
use quarry_tests::services::{LIMIT, Lab, Quarry, System, figures::Meter, until};
use serde_json::json;
use std::process::{Child, Command, Stdio};

/// Killed on drop.
struct Operator(Child);

impl Operator {
    fn start(quarry: &Quarry, ironic_url: &str) -> Self {
        let binary = std::env::var("QUARRY_BIN").expect("QUARRY_BIN is set by the tier's runner");
        let child = Command::new(binary)
            .arg(format!("--kubeconfig={}", quarry.dir().join("kubeconfig").display()))
            .args(["operator", "--controllers=hosts", "--no-leader-election"])
            .args(["--metrics-listen=127.0.0.1:0", "--ironic-url", ironic_url])
            .args(["--deploy-iso", &Lab::get().deploy_iso])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Operator(child)
    }

    /// Resident memory in KiB: all of it, and without what is mapped from files. Of a debug build that is much: its code.
    fn memory(&self) -> [u64; 2] {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        ["VmRSS:", "RssAnon:"].map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        })
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn many_hosts_with_raid_cost_few_requests_and_memory() {
    let lab = Lab::get().alone();
    let systems: Vec<System> = std::thread::scope(|scope| {
        let taken: Vec<_> = (0..22).map(|_| scope.spawn(|| lab.system())).collect();
        taken.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let quarry = Quarry::api_only();
    let operator = Operator::start(&quarry, &systems[0].ironic_url());
    for system in &systems {
        quarry.create_secret(&system.name, &lab.bmc_password);
    }
    let available = |system: &System| {
        let host = quarry.host(&system.name).unwrap();
        let state = host["status"]["provisioning"]["state"].clone();
        state == "available" && host["status"]["operationalStatus"] == "OK"
    };
    let all_are = |what: &str, systems: &[System]| {
        until(what, LIMIT * 4, || {
            let left: Vec<&str> =
                systems.iter().filter(|one| !available(one)).map(|one| one.name.as_str()).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("not: {left:?}")) }
        });
    };
    // Two without RAID, then twenty at once with it.
    for system in &systems[..2] {
        quarry.create_host(system, &json!({}));
    }
    all_are("the first two are available", &systems[..2]);
    let meter = Meter::requests(&systems[0]);
    for system in &systems[2..] {
        quarry.create_host(system, &hardware(&json!([{"level": "1"}])));
    }
    all_are("twenty hosts are available", &systems[2..]);
    let cost = meter.read(&systems[0], &json!({}));
    for system in &systems[2..] {
        let built = super::raid_hardware::built(system);
        assert_eq!(built.len(), 1, "{}: {built:?}", system.name);
    }
    let (requests, [all, own]) = (cost.requests.len(), operator.memory());
    let (per_host, [all, mebibytes]) =
        (requests as f64 / 20.0, [all, own].map(|kib| kib as f64 / 1024.0));
    println!(
        "figure: twenty hosts with RAID at once: {per_host:.1} requests to Ironic per host; operator with 22 hosts: {mebibytes:.1} MiB of its own, {all:.1} MiB resident with the code of a debug build"
    );
    assert!(requests <= 600, "{requests} requests: {:#?}", cost.lines());
    assert!(own < 40 * 1024, "{own} KiB");
    drop(operator);
    std::thread::scope(|scope| {
        for system in systems {
            scope.spawn(move || drop(system));
        }
    });
}
