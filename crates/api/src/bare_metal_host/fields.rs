//! Which fields of `spec` are used, and what is reported about the others: one table.
//!
//! The admission policy is built from it, and docs/unsupported.md is tested against it. A test compares it with the
//! schema, so that no field is accepted and ignored silently.

/// A field, or a value of it, that is accepted and not used.
#[derive(Clone, Copy, Debug)]
pub struct Unused {
    /// Path from the root.
    pub field: &'static str,
    /// A CEL expression over `object`: true if the user gave it.
    pub given: &'static str,
    /// What happens instead, and the remedy.
    pub message: &'static str,
}

/// Volumes of both kinds in the lists that hold: hardware RAID is used, as the design of upstream says.
const BOTH_KINDS: &str = "has(object.spec.raid) && (has(object.spec.raid.hardwareRAIDVolumes) && object.spec.raid.hardwareRAIDVolumes != null ? object.spec.raid.hardwareRAIDVolumes.size() > 0 : has(object.spec.raid.hardwareVolumes) && object.spec.raid.hardwareVolumes != null && object.spec.raid.hardwareVolumes.size() > 0) && (has(object.spec.raid.softwareRAIDVolumes) && object.spec.raid.softwareRAIDVolumes != null ? object.spec.raid.softwareRAIDVolumes.size() > 0 : has(object.spec.raid.softwareVolumes) && object.spec.raid.softwareVolumes != null && object.spec.raid.softwareVolumes.size() > 0)";

/// Each of these is warned about when it is written.
pub const UNUSED: &[Unused] = &[
    Unused {
        field: "spec.taints",
        given: "has(object.spec.taints) && object.spec.taints.size() > 0",
        message: "spec.taints is not used, as in metal3; set taints where the Node is created",
    },
    Unused {
        field: "spec.firmware",
        given: "has(object.spec.firmware) && object.spec.firmware.size() > 0",
        message: "spec.firmware is not used, as in metal3; change BIOS settings through the BMC",
    },
    Unused {
        field: "spec.hardwareProfile",
        given: "has(object.spec.hardwareProfile) && !(object.spec.hardwareProfile in ['', 'empty', 'unknown'])",
        message: "spec.hardwareProfile is not used; select the root disk with spec.rootDeviceHints",
    },
    Unused {
        field: "spec.preprovisioningNetworkDataName",
        given: "has(object.spec.preprovisioningNetworkDataName) && object.spec.preprovisioningNetworkDataName != ''",
        message: "spec.preprovisioningNetworkDataName is not used; the ramdisk configures its network with DHCP",
    },
    Unused {
        field: "spec.networkInterfaces",
        given: "has(object.spec.networkInterfaces) && object.spec.networkInterfaces.size() > 0",
        message: "spec.networkInterfaces is not used; configure switch ports by other means",
    },
    Unused {
        field: "spec.customDeploy",
        given: "has(object.spec.customDeploy)",
        message: "spec.customDeploy is not used, and the host is not provisioned by it; use spec.image",
    },
    Unused {
        field: "spec.networkData",
        given: "has(object.spec.networkData) && has(object.spec.networkData.name) && object.spec.networkData.name != ''",
        message: "spec.networkData is not used; configure the network with DHCP or in the image",
    },
    Unused {
        field: "spec.metaData",
        given: "has(object.spec.metaData) && has(object.spec.metaData.name) && object.spec.metaData.name != ''",
        message: "spec.metaData is not used; put what the first boot needs into spec.userData",
    },
    Unused {
        field: "spec.image.ociAuthSecretName",
        given: "has(object.spec.image) && has(object.spec.image.ociAuthSecretName) && object.spec.image.ociAuthSecretName != ''",
        message: "spec.image.ociAuthSecretName is not used; use an image that needs no credentials",
    },
    Unused {
        field: "spec.inspectionMode: fast",
        given: "has(object.spec.inspectionMode) && object.spec.inspectionMode == 'fast'",
        message: "spec.inspectionMode fast is not supported, and the host is not inspected; use agent or disabled",
    },
    Unused {
        field: "spec.raid.hardwareVolumes beside hardwareRAIDVolumes",
        given: "has(object.spec.raid) && has(object.spec.raid.hardwareVolumes) && object.spec.raid.hardwareVolumes != null && has(object.spec.raid.hardwareRAIDVolumes) && object.spec.raid.hardwareRAIDVolumes != null",
        message: "spec.raid.hardwareVolumes is not used, because spec.raid.hardwareRAIDVolumes is given too; remove one of them",
    },
    Unused {
        field: "spec.raid.softwareVolumes beside softwareRAIDVolumes",
        given: "has(object.spec.raid) && has(object.spec.raid.softwareVolumes) && object.spec.raid.softwareVolumes != null && has(object.spec.raid.softwareRAIDVolumes) && object.spec.raid.softwareRAIDVolumes != null",
        message: "spec.raid.softwareVolumes is not used, because spec.raid.softwareRAIDVolumes is given too; remove one of them",
    },
    Unused {
        field: "spec.raid.softwareRAIDVolumes beside hardwareRAIDVolumes",
        given: BOTH_KINDS,
        message: "spec.raid.softwareRAIDVolumes is not used, because hardware RAID is requested too; remove one of them",
    },
];

/// Fields that are used, and those that only inform people and other programs.
pub const USED: &[&str] = &[
    "architecture",
    "automatedCleaningMode",
    "bmc",
    "bootMACAddress",
    "bootMode",
    "consumerRef",
    "description",
    "disablePowerOff",
    "externallyProvisioned",
    "image",
    "inspectionMode",
    "online",
    "raid",
    "rootDeviceHints",
    "userData",
];
