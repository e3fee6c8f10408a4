//! The disks of this machine, printed once after the demo: the real ones, and the device of the demo volume.

use super::{Standalone, text};
use crate::{
    devices::{
        local::Machine,
        table::{self, Style},
    },
    output,
};
use kube::{Api, runtime::wait::await_condition};
use quarry_api::NodeInventory;
use quarry_node::inspect::Scan;
use quarry_view::devices::{DeviceView, of_inventory};
use std::{path::Path, time::Duration};

/// As many as fit on a screen.
const LINES: usize = 12;
/// Agents publish a new device within milliseconds.
const LIMIT: Duration = Duration::from_secs(5);

/// As the agent published them, with the device of this volume.
pub async fn published(standalone: &Standalone, volume: Option<&str>) -> anyhow::Result<String> {
    let cluster = &standalone.cluster;
    let shows = |inventory: Option<&NodeInventory>| {
        let status = inventory.and_then(|inventory| inventory.status.as_ref());
        status.is_some_and(|status| {
            status.devices.iter().any(|device| device.volume_uid.as_deref() == volume)
        })
    };
    let waited =
        await_condition(Api::<NodeInventory>::all(cluster.client.clone()), &standalone.node, shows);
    // A late agent is no reason to print nothing.
    let _ = tokio::time::timeout(LIMIT, waited).await;
    let api: Api<NodeInventory> = Api::all(cluster.client.clone());
    let inventory = cluster.call("reading the NodeInventory", api.get(&standalone.node)).await?;
    Ok(short(&of_inventory(&inventory), standalone.real_disks, true))
}

/// As scanned by this process, without an agent.
pub fn scanned() -> anyhow::Result<String> {
    let scanned =
        tokio::task::block_in_place(|| Machine::open(Path::new("/"))?.scan(Scan::Everything))?;
    Ok(short(&scanned.devices, false, false))
}

fn short(all: &[DeviceView], real_disks: bool, agent: bool) -> String {
    let mut listed: Vec<DeviceView> = all.iter().filter(|view| is_listed(view)).cloned().collect();
    // The device of the demo volume comes first.
    listed.sort_by_key(|view| view.device.volume_uid.is_none());
    listed.truncate(LINES);
    let style =
        Style { colors: output::colors(), width: output::width(), root: agent, ..Style::default() };
    let table = if listed.is_empty() {
        String::new()
    } else {
        format!("\nThe disks of this machine:\n{}", table::render(&listed, style))
    };
    table + &text::disks(all.len() - listed.len(), real_disks, agent)
}

/// Whole disks, and loop devices of volumes.
fn is_listed(view: &DeviceView) -> bool {
    let device = &view.device;
    !view.is_minor()
        && device.kind != "part"
        && (device.kind != "loop" || device.volume_uid.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_view::devices::samples;
    use serde_json::json;

    #[test]
    fn the_list_is_short_and_notes_observed_disks() {
        let mut all = samples::machine();
        let many = (0..40).map(|at| samples::device(json!({"name": format!("nvme{at}n1"), "size": 1 << 30, "reasons": [{"reason": "ObservedOnly"}]})));
        all.extend(many);
        let text = short(&all, false, true);
        assert!(
            text.contains("loop0") && text.contains("until it is started with --allow-real-disks"),
            "{text}"
        );
        assert_eq!(text.lines().count(), LINES + 5, "{text}");
        assert!(text.contains(&format!("… and {} more", all.len() - LINES)), "{text}");
    }
}
