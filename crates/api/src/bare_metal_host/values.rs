//! The words of a BareMetalHost: states, errors, modes, with the exact upstream strings.
//!
//! Owns: enumerations. Never decides what follows from them. Next to read: `status.rs`.

use super::text_enum::text_enum;

text_enum! {
    /// What the operator does with the host. Upstream has no list in the schema.
    #[derive(Default)]
    unlisted ProvisioningState {
        /// Not reconciled yet.
        #[default]
        None = "",
        /// There is no BMC address or no name of credentials.
        Unmanaged = "unmanaged",
        Registering = "registering",
        Inspecting = "inspecting",
        /// A state of older versions, without work of its own.
        MatchProfile = "match profile",
        Preparing = "preparing",
        /// The older name of `Available`.
        Ready = "ready",
        Available = "available",
        Provisioning = "provisioning",
        Provisioned = "provisioned",
        ExternallyProvisioned = "externally provisioned",
        Deprovisioning = "deprovisioning",
        PoweringOffBeforeDelete = "powering off before delete",
        Deleting = "deleting",
    }
}

text_enum! {
    /// Whether the host can be worked with.
    #[derive(Default)]
    listed OperationalStatus {
        #[default]
        None = "",
        Ok = "OK",
        /// BMC details are incomplete.
        Discovered = "discovered",
        Error = "error",
        /// Waits until fewer hosts are being inspected, provisioned or deprovisioned.
        Delayed = "delayed",
        Detached = "detached",
        Servicing = "servicing",
    }
}

text_enum! {
    /// What failed. `detach error` is set by upstream's controller too, although the schema of some versions lacks it.
    listed ErrorType {
        ProvisionedRegistration = "provisioned registration error",
        Registration = "registration error",
        Inspection = "inspection error",
        Preparation = "preparation error",
        Provisioning = "provisioning error",
        PowerManagement = "power management error",
        Detach = "detach error",
        Servicing = "servicing error",
    }
}

text_enum! {
    /// How the hardware is inspected.
    listed InspectionMode {
        Disabled = "disabled",
        /// A ramdisk is booted on the host.
        Agent = "agent",
        /// Only the BMC is asked.
        Fast = "fast",
    }
}

text_enum! {
    listed AutomatedCleaningMode {
        /// Partition tables and other metadata of all disks are erased.
        Metadata = "metadata",
        Disabled = "disabled",
    }
}

text_enum! {
    listed BootMode {
        Uefi = "UEFI",
        UefiSecureBoot = "UEFISecureBoot",
        Legacy = "legacy",
    }
}

text_enum! {
    listed ChecksumType {
        Md5 = "md5",
        Sha256 = "sha256",
        Sha512 = "sha512",
        /// From the length of the checksum.
        Auto = "auto",
    }
}

text_enum! {
    listed ImageFormat {
        Raw = "raw",
        Qcow2 = "qcow2",
        Vdi = "vdi",
        Vmdk = "vmdk",
        /// Booted, not written to a disk.
        LiveIso = "live-iso",
    }
}

text_enum! {
    listed DiskType {
        Hdd = "HDD",
        Ssd = "SSD",
        Nvme = "NVME",
    }
}

text_enum! {
    listed SwitchPortMode {
        Access = "access",
        Trunk = "trunk",
        Hybrid = "hybrid",
    }
}

text_enum! {
    /// Of the annotation `reboot.metal3.io`.
    #[derive(Default)]
    listed RebootMode {
        /// As absent: `soft`.
        #[default]
        None = "",
        Hard = "hard",
        Soft = "soft",
    }
}

text_enum! {
    /// Of the annotation `baremetalhost.metal3.io/detached`: what a deletion of the detached host does.
    #[derive(Default)]
    listed DetachedDeleteAction {
        #[default]
        None = "",
        /// Waits until the host is attached again.
        Delay = "delay",
        /// Removes the host without touching the machine.
        Delete = "delete",
    }
}
