//! HardwareData (metal3.io/v1alpha1): what inspection of a BareMetalHost found, in an object of its own.
//!
//! It has the name and namespace of its host. Its spec is immutable: a new inspection deletes it and creates another.
//! Next to read: `bare_metal_host/hardware.rs`.

use crate::bare_metal_host::HardwareDetails;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    kind = "HardwareData",
    plural = "hardwaredata",
    singular = "hardwaredata",
    shortname = "hd",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    category = "quarry",
    doc = "What inspection of a BareMetalHost found. Immutable.",
    validation = Rule::new("self.spec == oldSelf.spec").message("the spec of a HardwareData is immutable; annotate the BareMetalHost with inspect.metal3.io to inspect it again, or delete this object and create another"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the creation"
    )
)]
pub struct HardwareDataSpec {
    /// The hardware of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareDetails>,
}
