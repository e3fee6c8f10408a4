//! The disks of this machine, shown once after the demo: the real ones, and what the demo made.

use super::{Standalone, text};
use crate::{
    devices::{
        self,
        local::Machine,
        table::{self, Style},
        view::Shown,
    },
    output,
};
use kube::{Api, runtime::wait::await_condition};
use quarry_api::NodeInventory;
use quarry_node::inspect::Scan;
use std::{path::Path, time::Duration};

/// As many as fit on a screen.
const LINES: usize = 12;
/// The agent publishes a new device within milliseconds.
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
    // Late is no reason to show nothing.
    let _ = tokio::time::timeout(LIMIT, waited).await;
    let api: Api<NodeInventory> = Api::all(cluster.client.clone());
    let inventory = cluster.call("reading the node's inventory", api.get(&standalone.node)).await?;
    Ok(short(&devices::of_inventory(&inventory), standalone.real_disks, true))
}

/// As they look from here, without an agent.
pub fn here() -> anyhow::Result<String> {
    let look =
        tokio::task::block_in_place(|| Machine::open(Path::new("/"))?.look(Scan::Everything))?;
    Ok(short(&look.devices, false, false))
}

fn short(all: &[Shown], real_disks: bool, agent: bool) -> String {
    let mut kept: Vec<Shown> = all.iter().filter(|shown| is_shown(shown)).cloned().collect();
    // The volume's own device is what the demo is about.
    kept.sort_by_key(|shown| shown.device.volume_uid.is_none());
    kept.truncate(LINES);
    let style = Style {
        colours: output::colours(),
        width: output::width(),
        root: agent,
        ..Style::default()
    };
    let table = if kept.is_empty() {
        String::new()
    } else {
        format!("\nThe disks of this machine:\n{}", table::render(&kept, style))
    };
    table + &text::disks(all.len() - kept.len(), real_disks, agent)
}

/// Whole disks, and loop devices of volumes; other loops are somebody else's business.
fn is_shown(shown: &Shown) -> bool {
    let device = &shown.device;
    !shown.is_minor()
        && device.kind != "part"
        && (device.kind != "loop" || device.volume_uid.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::samples;
    use serde_json::json;

    #[test]
    fn the_list_is_short_and_says_that_disks_are_only_observed() {
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
