//! BareMetalHost (metal3.io/v1alpha1): a machine that is managed through its BMC.
//!
//! Owns: the upstream fields with upstream's schema, so that its manifests are accepted unchanged, and rules for the
//! changes that upstream's webhook refuses. Never decides what to do with a host.
//! Next to read: `status.rs`, `raid.rs`, `raid_rules.rs`, `hardware.rs`; `fields.rs` says which fields are used.

pub mod annotations;
pub mod conditions;
pub mod fields;
pub mod hardware;
pub mod raid;
mod raid_rules;
pub(crate) mod schema;
pub mod status;
mod text_enum;
pub mod values;

pub use annotations::{DetachedArguments, RebootArguments};
pub use hardware::HardwareDetails;
pub use raid::{HardwareRaidVolume, RaidConfig, RaidLevel, RaidList, RaidSpec, SoftwareRaidVolume};
pub use status::{
    BareMetalHostStatus, CredentialsStatus, OperationHistory, OperationMetric, ProvisionStatus,
};
pub use values::{
    AutomatedCleaningMode, BootMode, ChecksumType, DetachedDeleteAction, DiskType, ErrorType,
    ImageFormat, InspectionMode, OperationalStatus, ProvisioningState, RebootMode, SwitchPortMode,
};

use crate::null_as_default;
use k8s_openapi::api::core::v1::{ObjectReference, SecretReference, Taint};
use kube::{CustomResource, KubeSchema};
use schema::{MAC, is_false, is_zero, plain_integers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    kind = "BareMetalHost",
    plural = "baremetalhosts",
    shortname = "bmh",
    shortname = "bmhost",
    namespaced,
    status = "BareMetalHostStatus",
    derive = "PartialEq",
    derive = "Default",
    category = "quarry",
    doc = "A machine that is managed through its BMC.",
    validation = Rule::new("!has(oldSelf.spec.bmc) || oldSelf.spec.bmc.address == '' || (has(self.spec.bmc) && self.spec.bmc.address == oldSelf.spec.bmc.address) || (has(self.status) && (self.status.operationalStatus == 'detached' || self.status.provisioning.state == 'registering'))").message("spec.bmc.address can be changed only while the host is registering or detached; detach the host first, or delete it and create another"),
    validation = Rule::new("!has(oldSelf.spec.bootMACAddress) || oldSelf.spec.bootMACAddress == '' || (has(self.spec.bootMACAddress) && self.spec.bootMACAddress.lowerAscii() == oldSelf.spec.bootMACAddress.lowerAscii())").message("spec.bootMACAddress is immutable once it is set; delete the host and create another"),
    validation = Rule::new("!has(oldSelf.spec.externallyProvisioned) || !oldSelf.spec.externallyProvisioned || (has(self.spec.externallyProvisioned) && self.spec.externallyProvisioned)").message("spec.externallyProvisioned cannot be changed from true to false; delete the host and create another"),
    validation = Rule::new("(has(oldSelf.spec.externallyProvisioned) && oldSelf.spec.externallyProvisioned) || !has(self.spec.externallyProvisioned) || !self.spec.externallyProvisioned || (has(self.status) && self.status.provisioning.state == 'available')").message("spec.externallyProvisioned can be set only at creation or while the host is available; wait until the host is available"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.operationalStatus",
        description = "Operational status",
        priority = 1
    ),
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".status.provisioning.state",
        description = "Provisioning status"
    ),
    printcolumn(
        name = "Consumer",
        type_ = "string",
        json_path = ".spec.consumerRef.name",
        description = "What uses the host"
    ),
    printcolumn(
        name = "BMC",
        type_ = "string",
        json_path = ".spec.bmc.address",
        description = "Address of the BMC",
        priority = 1
    ),
    printcolumn(
        name = "Online",
        type_ = "string",
        json_path = ".spec.online",
        description = "Whether the host is to be powered on"
    ),
    printcolumn(
        name = "Error",
        type_ = "string",
        json_path = ".status.errorType",
        description = "Type of the last error"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the creation"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.disablePowerOff) || !self.disablePowerOff || self.online").message("online: false contradicts disablePowerOff: true; set online to true, or remove disablePowerOff"))]
#[x_kube(validation = raid_rules::driver_has_raid("hardwareRAIDVolumes"))]
#[x_kube(validation = raid_rules::driver_has_raid("hardwareVolumes"))]
#[x_kube(validation = raid_rules::one_root("softwareRAIDVolumes"))]
#[x_kube(validation = raid_rules::one_root("softwareVolumes"))]
#[x_kube(validation = raid_rules::root_is_distinct("softwareRAIDVolumes"))]
#[x_kube(validation = raid_rules::root_is_distinct("softwareVolumes"))]
pub struct BareMetalHostSpec {
    /// Not used, as upstream: taints for a Machine that runs on the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::taints")]
    pub taints: Vec<Taint>,
    /// The BMC of the host. Absent: the host is unmanaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcDetails>,
    /// RAID settings, applied before the host is available. Absent: left as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<RaidSpec>,
    /// Not used, as upstream: BIOS settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareConfig>,
    /// Not used: upstream derives the root disk from it. Use rootDeviceHints.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hardware_profile: String,
    /// Which disk the image is written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = raid_rules::device_name())]
    pub root_device_hints: Option<RootDeviceHints>,
    /// How the firmware boots. Absent: UEFI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<BootMode>,
    /// MAC address of the interface from which the host boots; never that of the BMC. Cannot be changed once it is set.
    #[serde(default, rename = "bootMACAddress", skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = MAC))]
    pub boot_mac_address: String,
    /// Whether the host is to be powered on. Applied while the host is in a stable state.
    pub online: bool,
    /// What uses the host. Informative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_reference")]
    pub consumer_ref: Option<ObjectReference>,
    /// The image to deploy. Setting it starts provisioning, removing it starts deprovisioning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self.url == '' || self.url.matches('^((https?|oci)://[^/[:space:]]|file:///)[^[:space:]]*$')").message("image.url must be a URL with http, https, oci or file; give the complete URL of the image"))]
    #[x_kube(validation = Rule::new("self.url == '' || (has(self.checksum) && self.checksum != '') || (has(self.format) && self.format == 'live-iso') || self.url.startsWith('oci://')").message("image.checksum is required for this image; set checksum and checksumType, or use the format live-iso or an oci:// URL"))]
    pub image: Option<Image>,
    /// The Secret with user data for the first boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::secret_reference")]
    pub user_data: Option<SecretReference>,
    /// Not used: the Secret with network data for the ramdisk.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub preprovisioning_network_data_name: String,
    /// Not used: the Secret with network data for the first boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::secret_reference")]
    pub network_data: Option<SecretReference>,
    /// Not used: the Secret with metadata for the first boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::secret_reference")]
    pub meta_data: Option<SecretReference>,
    /// Text for people. Informative.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The image of the host was deployed by other means: only its power is managed. Set at creation or while the host is available.
    #[serde(default, skip_serializing_if = "is_false")]
    pub externally_provisioned: bool,
    /// Whether Ironic erases the metadata of all disks before and after the host is provisioned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "metadata"))]
    pub automated_cleaning_mode: Option<AutomatedCleaningMode>,
    /// Not used: a deploy step of a ramdisk of your own, instead of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// CPU architecture, such as `x86_64`. Absent: from inspection.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub architecture: String,
    /// The host is never powered off; it is rebooted instead.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_power_off: bool,
    /// How the hardware is inspected: disabled, agent (the default) or fast, which is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspection_mode: Option<InspectionMode>,
    /// Not used: configuration of switch ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub network_interfaces: Vec<NetworkInterface>,
}

/// How to reach a BMC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BmcDetails {
    /// URL of the BMC; the scheme selects the driver. Can be changed only while the host is registering or detached.
    pub address: String,
    /// Name of the Secret with the keys `username` and `password`.
    pub credentials_name: String,
    /// Accept any TLS certificate of the BMC. Insecure.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable_certificate_verification: bool,
}

/// Which disk is meant: every hint that is given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = plain_integers)]
pub struct RootDeviceHints {
    /// Device name, such as /dev/vda, or a path below /dev/disk/by-path. Exact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub device_name: String,
    /// SCSI address, such as 0:0:0:0. Exact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hctl: String,
    /// Part of the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Part of the vendor.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vendor: String,
    /// Serial number. Exact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub serial_number: String,
    /// Minimum size in GB.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub min_size_gigabytes: i64,
    /// World Wide Name. Exact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn: String,
    /// World Wide Name with the vendor's extension. Exact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn_with_extension: String,
    /// The vendor's extension of the World Wide Name. Exact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wwn_vendor_extension: String,
    /// Whether the disk rotates. Absent: either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareConfig {
    /// Hardware support for virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::listed_bool")]
    pub virtualization_enabled: Option<bool>,
    /// Several logical processors per core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::listed_bool")]
    pub simultaneous_multithreading_enabled: Option<bool>,
    /// Virtual functions of PCI devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::listed_bool")]
    pub sriov_enabled: Option<bool>,
}

/// An image to deploy, or one that was deployed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Where the image is.
    pub url: String,
    /// Checksum of the image, or the URL of a file that contains it. Required except for live-iso and oci:// images.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub checksum: String,
    /// Algorithm of the checksum. Absent: md5. If in doubt: auto.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_type: Option<ChecksumType>,
    /// Format of the image. live-iso: booted, not written to a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ImageFormat>,
    /// Name of the Secret with credentials for the registry of an oci:// image.
    #[serde(default, rename = "ociAuthSecretName", skip_serializing_if = "Option::is_none")]
    pub oci_auth_secret_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CustomDeploy {
    /// Name of the deploy step in the ramdisk.
    pub method: String,
}

/// Configuration of the switch port behind an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// Name of the interface, as inspection found it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = "^[a-zA-Z0-9._-]+$"))]
    pub name: String,
    /// MAC address of the interface, instead of its name.
    #[serde(default, rename = "macAddress", skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"))]
    pub mac_address: String,
    /// The HostNetworkAttachment with the configuration.
    pub host_network_attachment: HostNetworkAttachmentRef,
    /// The switch port, if LLDP does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_port: Option<SwitchPortIdentifier>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostNetworkAttachmentRef {
    /// Name of the HostNetworkAttachment.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the HostNetworkAttachment. Absent: that of the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SwitchPortIdentifier {
    /// MAC address of the switch's management interface.
    #[serde(rename = "switchID")]
    #[schemars(extend("pattern" = "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"))]
    pub switch_id: String,
    /// Name of the port in the switch's configuration.
    #[serde(rename = "portID")]
    pub port_id: String,
    /// Name of the switch.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub switch_system_name: String,
}

impl BareMetalHost {
    /// The BMC details. `None` also when both are empty, which is how a Go client writes absent ones.
    pub fn bmc(&self) -> Option<&BmcDetails> {
        let given = |bmc: &&BmcDetails| !bmc.address.is_empty() || !bmc.credentials_name.is_empty();
        self.spec.bmc.as_ref().filter(given)
    }

    /// The state of the host; `None` before the first reconcile.
    pub fn state(&self) -> ProvisioningState {
        self.status.as_ref().map(|status| status.provisioning.state.clone()).unwrap_or_default()
    }

    /// RAID settings in the upstream spelling. `None`: leave as they are.
    pub fn raid(&self) -> Option<RaidConfig> {
        self.spec.raid.as_ref().map(RaidSpec::config)
    }
}

#[cfg(test)]
mod tests;
