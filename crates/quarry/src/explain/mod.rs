//! `quarry explain`: every check of a volume, a device, a set or a LocalVolume with its result, what blocks it, what to do, recent Events.
//!
//! The checks are those of `quarry-core`, by which operator and agent decide; here they are only gathered for and
//! written down. Next to read: `volume.rs`, or `device.rs` (what is gathered) and `text.rs` (what is said).

mod checks;
mod device;
mod device_claims;
mod evidence;
mod owner;
mod text;
mod volume;

use crate::{
    cli::{ConnectArgs, ExplainArgs, Target},
    output, sanitize,
    volume::observe,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use quarry_core::volume::explain::Verdict;

/// As many as are read at a glance.
const EVENTS: usize = 8;

pub async fn run(connect: &ConnectArgs, args: &ExplainArgs) -> anyhow::Result<()> {
    match &args.target {
        Target::Volume(name) => volume::run(connect, args, name).await,
        Target::Owner(owner) => device_claims::run(connect, args, owner).await,
        Target::Device { node: None, device } => device::here(connect, args, device).await,
        Target::Device { node: Some(node), device } => {
            device::on_node(connect, args, node, device).await
        }
    }
}

fn mark(verdict: Verdict, colours: bool) -> String {
    let (mark, colour) = match verdict {
        Verdict::Ok => ('✓', "32"),
        Verdict::Waiting => ('…', "33"),
        Verdict::Problem => ('✗', "31"),
        Verdict::Skipped => ('-', "2"),
    };
    if colours { format!("\u{1b}[{colour}m{mark}\u{1b}[0m") } else { mark.to_string() }
}

/// The last part of the answer.
fn event_lines(events: &[Event], now: Timestamp) -> Vec<String> {
    let head = if events.is_empty() { "Events: none" } else { "Events:" };
    let recent = events.iter().skip(events.len().saturating_sub(EVENTS));
    std::iter::once(head.to_owned()).chain(recent.map(|event| event_line(event, now))).collect()
}

fn event_line(event: &Event, now: Timestamp) -> String {
    let age = output::age(observe::event_time(event).as_ref(), now);
    let kind = event.type_.as_deref().unwrap_or_default();
    let count = event
        .series
        .as_ref()
        .and_then(|series| series.count)
        .or(event.count)
        .filter(|count| *count > 1)
        .map_or_else(String::new, |count| format!(" (x{count})"));
    let text = format!(
        "{} {}{count}",
        event.reason.as_deref().unwrap_or_default(),
        event.message.as_deref().unwrap_or_default()
    );
    sanitize::line(&format!("  {age:>6}  {kind:<7} {text}")).into_owned()
}
