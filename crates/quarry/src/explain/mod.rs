//! `quarry explain`: every check of a device, a set, a LocalVolume, a Volume, a host or an OSD, what blocks it, and what to do.
//!
//! The explanations are values of `quarry_view::explain`; here they are read for and written as text.
//! Next to read: `volume.rs`, `device.rs`, `owner.rs`, `host.rs`, `osd.rs`.

mod device;
mod host;
mod osd;
mod owner;
mod volume;

use crate::{
    cli::{ConnectArgs, ExplainArgs, Target},
    output, sanitize,
};
use jiff::Timestamp;
use quarry_core::volume::explain::Verdict;
use quarry_view::{events::EventView, explain::device::Remedy};

/// The width of the longest reason.
const NAME: usize = 21;

pub async fn run(connect: &ConnectArgs, args: &ExplainArgs) -> anyhow::Result<()> {
    match &args.target {
        Target::Volume(name) => volume::run(connect, args, name).await,
        Target::Owner(owner) => owner::run(connect, args, owner).await,
        Target::Host(name) => host::run(connect, args, name).await,
        Target::Osd(which) => osd::run(connect, args, which).await,
        Target::Device { node: None, device } => device::here(connect, args, device).await,
        Target::Device { node: Some(node), device } => {
            device::on_node(connect, args, node, device).await
        }
    }
}

fn mark(verdict: Verdict, colors: bool) -> String {
    let (mark, color) = match verdict {
        Verdict::Ok => ('✓', "32"),
        Verdict::Waiting => ('…', "33"),
        Verdict::Problem => ('✗', "31"),
        Verdict::Skipped => ('-', "2"),
    };
    if colors { format!("\u{1b}[{color}m{mark}\u{1b}[0m") } else { mark.to_string() }
}

/// `width`: of the column of reasons.
fn add_remedies(text: &mut output::Lines, remedies: &[Remedy], width: usize) {
    for Remedy { reason, text: remedy } in remedies {
        let line = match reason {
            Some(reason) => format!("  {:<width$} {remedy}", sanitize::line(reason)),
            None => format!("  {remedy}"),
        };
        text.add(&sanitize::line(&line));
    }
}

fn add_events(text: &mut output::Lines, events: &[EventView], now: Timestamp) {
    text.add(if events.is_empty() { "Events: none" } else { "Events:" });
    for EventView { time, kind, reason, message, count } in events {
        let age = output::age(time.as_ref(), now);
        let count = count.map_or_else(String::new, |count| format!(" (x{count})"));
        let line = format!("  {age:>6}  {kind:<7} {reason} {message}{count}");
        text.add(&sanitize::line(&line));
    }
}
