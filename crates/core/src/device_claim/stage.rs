//! The stages of a device claim, each with its detail. `state_machine.rs` decides which one applies.

/// Whether an administrator has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Good,
    /// It proceeds without intervention.
    UnderWay,
    /// An administrator has to act or to decide.
    Trouble,
}

/// The stage of a device claim, with its detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Another machine has the name of the node, or the Node does not exist.
    Frozen(String),
    /// The agent has not checked it yet.
    Claimed,
    /// The agent refuses it.
    Refused(String),
    /// Confirmed; something else keeps it from being published.
    Blocked(String),
    /// Confirmed; this plan publishes it.
    Confirmed,
    Available,
    Bound(String),
    /// The data is retained until an administrator decides.
    Retained(String),
    /// The PersistentVolume is being deleted.
    Releasing(String),
    Wiping(String),
    WipeFailed(String),
    /// The device is missing; its PersistentVolume waits for it.
    Missing(String),
    Terminating(String),
    /// Published, and another device shows the same identity, here or on another node.
    Conflict(String),
    /// It is terminating, and its link cannot be removed.
    RemovalFailed(String),
}

impl Stage {
    /// The word in metrics and tables.
    pub fn as_str(&self) -> &'static str {
        match self {
            Stage::Frozen(_) => "Frozen",
            Stage::Claimed => "Claimed",
            Stage::Refused(_) => "Refused",
            Stage::Blocked(_) => "Blocked",
            Stage::Confirmed => "Confirmed",
            Stage::Available => "Available",
            Stage::Bound(_) => "Bound",
            Stage::Retained(_) => "Retained",
            Stage::Releasing(_) => "Releasing",
            Stage::Wiping(_) => "Wiping",
            Stage::WipeFailed(_) => "WipeFailed",
            Stage::Missing(_) => "Missing",
            Stage::Terminating(_) => "Terminating",
            Stage::Conflict(_) => "Conflict",
            Stage::RemovalFailed(_) => "RemovalFailed",
        }
    }

    /// The detail beyond the name of the stage.
    pub fn detail(&self) -> &str {
        match self {
            Stage::Claimed | Stage::Confirmed | Stage::Available => "",
            Stage::Frozen(text)
            | Stage::Refused(text)
            | Stage::Blocked(text)
            | Stage::Bound(text)
            | Stage::Retained(text)
            | Stage::Releasing(text)
            | Stage::Wiping(text)
            | Stage::WipeFailed(text)
            | Stage::Missing(text)
            | Stage::Terminating(text)
            | Stage::Conflict(text)
            | Stage::RemovalFailed(text) => text,
        }
    }

    pub fn health(&self) -> Health {
        match self {
            Stage::Available | Stage::Bound(_) => Health::Good,
            Stage::Claimed
            | Stage::Confirmed
            | Stage::Releasing(_)
            | Stage::Wiping(_)
            | Stage::Terminating(_) => Health::UnderWay,
            Stage::Frozen(_)
            | Stage::Refused(_)
            | Stage::Blocked(_)
            | Stage::Retained(_)
            | Stage::WipeFailed(_)
            | Stage::Missing(_)
            | Stage::Conflict(_)
            | Stage::RemovalFailed(_) => Health::Trouble,
        }
    }

    /// Its PersistentVolume can be used now.
    pub fn is_provisioned(&self) -> bool {
        matches!(self, Stage::Available | Stage::Bound(_) | Stage::Conflict(_))
    }
}
