//! Many hosts against the simulated Ironic, in virtual time, with the operator's own loop: 60 by default, because each
//! reconcile of a host still decodes all of them; `FULL=1` takes 500, QUARRY_SIM_HOSTS any number.

use quarry_sim::hosts::many::{Inspected, inspect_everything};

// invariant: 8
#[test]
fn all_hosts_become_available_and_then_rest() {
    let default = if std::env::var_os("FULL").is_some() { 500 } else { 60 };
    let asked = std::env::var("QUARRY_SIM_HOSTS").ok().and_then(|text| text.parse().ok());
    let hosts: usize = asked.unwrap_or(default);
    let begun = std::time::Instant::now();
    let found = inspect_everything(hosts).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a figure of this process")]
    let memory = std::fs::read_to_string("/proc/self/status").unwrap();
    let memory = memory.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!(
        "sim: {hosts} hosts: {found:?}, {:.1} requests and {:.1} writes a host ({:.1} s, {memory})",
        found.requests as f64 / hosts as f64,
        found.writes as f64 / hosts as f64,
        begun.elapsed().as_secs_f32()
    );
    let Inspected { available, hardware_data, busiest, delayed, .. } = found;
    assert_eq!((available, hardware_data), (hosts, hosts));
    assert!(busiest <= 20, "{busiest} at a time");
    assert!(hosts <= 20 || delayed > 0, "those that waited did not say so");
    assert_eq!(found.writes_at_rest, 0);
    assert!(found.requests_at_rest <= 90, "{} requests in an hour", found.requests_at_rest);
}
