//! Types and reasons of the conditions of a BareMetalHost, with the exact upstream strings.
//!
//! Owns: names. Which of them hold is the planner's to decide. Next to read: `status.rs`.

/// Conditions of Quarry's own about RAID: absent where no RAID was requested.
pub mod raid {
    /// Whether the volumes are those that were requested.
    pub const VERIFIED: &str = "quarry.dev/RAIDVerified";
    /// Whether the spec requests what is on the host.
    pub const CURRENT: &str = "quarry.dev/RAIDCurrent";

    /// Whether the settings describe the volumes that the host came with, and that deprovisioning erases.
    pub const RECORDED: &str = "quarry.dev/RAIDRecorded";

    /// Reason of a verified condition that is Unknown: the record is not applied yet.
    pub const PREPARING: &str = "Preparing";
    /// Reason of a verified condition that is Unknown: the settings were removed before the record was applied.
    pub const ABANDONED: &str = "Abandoned";
    /// Reason of a verified condition that is Unknown: the host is deprovisioned, and the volumes go.
    pub const ERASING: &str = "Erasing";
    /// Reason of a recorded condition that is False.
    pub const MADE_BY_HAND: &str = "MadeByHand";
    /// Reason of a verified condition that is True.
    pub const MATCHES: &str = "Matches";
    /// How the message of a verified condition begins whose volumes the BMC reports. They follow, separated by `; `.
    pub const REPORTED: &str = "the BMC reports ";
    /// Reason of a verified condition that is False: the message has the difference.
    pub const DIFFERS: &str = "Differs";
    /// Reason of a verified condition that is Unknown: software RAID that no node or inspection has shown.
    pub const NOT_SEEN: &str = "NotSeen";
    /// Reason of a current condition that is False: applied once the host is deprovisioned.
    pub const CHANGED_WHILE_PROVISIONED: &str = "ChangedWhileProvisioned";
}

/// Types of conditions.
pub mod kind {
    /// Registered in Ironic, and its power can be controlled.
    pub const MANAGEABLE: &str = "Manageable";
    /// In the state `available`.
    pub const AVAILABLE_FOR_PROVISIONING: &str = "AvailableForProvisioning";
    /// An image is deployed.
    pub const PROVISIONED: &str = "Provisioned";
    /// Provisioned and without an error.
    pub const READY: &str = "Ready";
    /// In a state that another follows.
    pub const PROGRESSING: &str = "Progressing";
    /// As the BMC reports it.
    pub const HEALTHY: &str = "Healthy";

    /// All of them, in the order in which they are written.
    pub const ALL: [&str; 6] =
        [MANAGEABLE, AVAILABLE_FOR_PROVISIONING, PROVISIONED, READY, PROGRESSING, HEALTHY];
}

/// Reasons of conditions.
pub mod reason {
    pub const MANAGEABLE: &str = "Manageable";
    pub const NOT_MANAGED: &str = "NotManaged";
    pub const REGISTERING: &str = "Registering";
    pub const REGISTRATION_FAILED: &str = "RegistrationFailed";
    pub const POWER_FAILURE: &str = "PowerFailure";
    pub const PROVISIONED: &str = "Provisioned";
    pub const NOT_PROVISIONED: &str = "NotProvisioned";
    pub const PROVISIONING: &str = "Provisioning";
    pub const ERROR: &str = "Error";
    pub const DETACHED: &str = "Detached";
    pub const SERVICING: &str = "Servicing";
    pub const AVAILABLE: &str = "Available";
    /// Upstream's spelling, with the suffix.
    pub const NOT_MANAGEABLE: &str = "NotManageableReason";
    pub const NOT_AVAILABLE: &str = "NotAvailable";
    pub const INSPECTING: &str = "Inspecting";
    pub const PREPARING: &str = "Preparing";
    pub const DEPROVISIONING: &str = "Deprovisioning";
    pub const POWERING_OFF_BEFORE_DELETE: &str = "PoweringOffBeforeDelete";
    pub const DELETING: &str = "Deleting";
    pub const NOT_PROGRESSING: &str = "NotProgressing";
    pub const HEALTHY: &str = "Healthy";
    pub const UNKNOWN_HEALTH: &str = "Unknown";
    pub const WARNING_HEALTH: &str = "Warning";
    pub const CRITICAL_HEALTH: &str = "CriticalError";
}
