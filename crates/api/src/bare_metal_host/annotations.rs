//! Values of annotations on a BareMetalHost.
//!
//! Owns: their form. What to do about a malformed one is the planner's. Next to read: `../names.rs`.

use super::values::{DetachedDeleteAction, RebootMode};
use serde::{Deserialize, Serialize};

/// Of `reboot.metal3.io` and `reboot.metal3.io/<key>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RebootArguments {
    pub mode: RebootMode,
    /// Also interrupts a ramdisk that inspects or deploys.
    pub force: bool,
}

/// Of `baremetalhost.metal3.io/detached`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DetachedArguments {
    pub delete_action: DetachedDeleteAction,
    /// In any state.
    pub force: bool,
}

impl RebootArguments {
    /// An empty value has the defaults.
    pub fn parse(value: &str) -> Result<Self, serde_json::Error> {
        if value.is_empty() { Ok(Self::default()) } else { serde_json::from_str(value) }
    }
}

impl DetachedArguments {
    /// An empty value has the defaults. Clients also write plain text, such as their own name; that is an error here,
    /// and the caller decides that it means the defaults, as upstream.
    pub fn parse(value: &str) -> Result<Self, serde_json::Error> {
        if value.is_empty() { Ok(Self::default()) } else { serde_json::from_str(value) }
    }
}
