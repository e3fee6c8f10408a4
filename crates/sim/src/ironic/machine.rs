//! The machines behind the nodes: what is on their disks, whatever Ironic knows of it.
//!
//! Owns the effect of a step. When a step runs, and how it ends, is recorded: `mod.rs`.

use serde_json::{Value, json};

/// What Ironic does not show.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// What its BMC accepts.
    pub password: String,
    /// Its ramdisk never calls.
    pub silent: bool,
    /// The step of a cleaning that fails.
    pub fails: Option<&'static str>,
    pub disks: Disks,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disks {
    /// Volumes of the controller, as Ironic reads them from the BMC.
    pub volumes: Vec<Value>,
    /// Arrays, as they were requested.
    pub arrays: Vec<Value>,
    /// The image that runs.
    pub image: Option<String>,
    /// How often RAID was built, and erased.
    pub built: u32,
    pub erased: u32,
    /// A mistake that must be found: deleting deletes nothing.
    pub stuck: bool,
}

pub const DELETE: &str = "raid.delete_configuration";
pub const CREATE: &str = "raid.create_configuration";
pub const ERASE: &str = "deploy.erase_devices_metadata";
/// An image is deployed, or removed: no step of a cleaning.
pub const DEPLOY: &str = "deploy";
/// What the lab's controller makes of all there is, in GiB.
const ALL: u64 = 500;

impl Disks {
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.arrays.is_empty()
    }

    /// One step, for a node as Ironic has it. `Err`: what must not happen.
    pub fn step(&mut self, step: &str, node: &Value) -> Result<(), String> {
        let agent = node["raid_interface"] == "agent";
        match step {
            DELETE => {
                self.erased += 1;
                if self.stuck {
                    return Ok(());
                }
                if agent { self.arrays.clear() } else { self.volumes.clear() }
            }
            CREATE => return self.build(agent, &node["target_raid_config"]),
            ERASE => self.image = None,
            DEPLOY => {
                let info = &node["instance_info"];
                let image = info["boot_iso"].as_str().or(info["image_source"].as_str());
                self.image = image.map(str::to_owned);
            }
            other => return Err(format!("the machine has no step {other}")),
        }
        Ok(())
    }

    fn build(&mut self, agent: bool, target: &Value) -> Result<(), String> {
        if !self.is_empty() {
            return Err(format!("RAID is built over {:?} and {:?}", self.volumes, self.arrays));
        }
        self.built += 1;
        let disks = target["logical_disks"].as_array().into_iter().flatten();
        for (number, disk) in disks.enumerate() {
            if agent {
                self.arrays.push(disk.clone());
                continue;
            }
            let size = disk["size_gb"].as_u64().unwrap_or(ALL);
            self.volumes.push(json!({
                "controller": "1", "id": (number + 1).to_string(), "size_gb": size,
                "name": disk["volume_name"].as_str().unwrap_or("volume"),
                "raid_level": disk["raid_level"],
            }));
        }
        Ok(())
    }
}
