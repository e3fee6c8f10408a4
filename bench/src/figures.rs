//! Percentiles, printed in the same format everywhere.

use std::time::Duration;

pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn new(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Samples(all)
    }

    /// Nearest-rank percentile.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or_default()
    }
}

pub fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// `figure: NAME: ours p50/p95, peer p50/p95, difference at p95`.
pub fn compare(name: &str, ours: Vec<Duration>, peer: Vec<Duration>, target: &str) {
    let count = ours.len();
    let (ours, peer) = (Samples::new(ours), Samples::new(peer));
    let over = ours.percentile(95).as_secs_f64() - peer.percentile(95).as_secs_f64();
    println!(
        "figure: {name} ({count} samples): quarry p50 {} p95 {}; bare commands p50 {} p95 {}; over bare at p95 {:+.1} ms (aim: {target})",
        milliseconds(ours.percentile(50)),
        milliseconds(ours.percentile(95)),
        milliseconds(peer.percentile(50)),
        milliseconds(peer.percentile(95)),
        over * 1000.0
    );
}

/// One line of /proc/PID/status, in KiB.
fn status(pid: u32, line: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'));
    value.and_then(|text| text.split_whitespace().next()).and_then(|number| number.parse().ok())
}

/// Resident memory of a process in KiB, from the kernel.
pub fn resident(pid: u32) -> Option<u64> {
    status(pid, "VmRSS")
}

/// Resident memory as text, with its parts and its peak.
pub fn memory(pid: u32) -> String {
    let [now, own, file, most] = ["VmRSS", "RssAnon", "RssFile", "VmHWM"]
        .map(|line| status(pid, line).unwrap_or_default() as f64 / 1024.0);
    format!("{now:.1} MiB resident (anonymous {own:.1}, file pages {file:.1}; peak {most:.1})")
}
