//! The stages in the life of a claim, with what there is to say about each. Which one it is: `life.rs`.

/// Whether anybody has to do anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Good,
    /// It goes on by itself.
    UnderWay,
    /// Somebody has to do something, or to decide.
    Trouble,
}

/// Where a claim stands, with what there is to say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Another machine answers under the node's name, or the Node is gone.
    Frozen(String),
    /// The agent has not looked yet.
    Claimed,
    /// The agent has looked and says no.
    Refused(String),
    /// Confirmed; something else keeps it from being published.
    Blocked(String),
    /// Confirmed; this plan publishes it.
    Confirmed,
    Available,
    Bound(String),
    /// Somebody must decide: the data is kept.
    Retained(String),
    /// The PersistentVolume is on its way out.
    Releasing(String),
    Wiping(String),
    WipeFailed(String),
    /// The device is not there; its PersistentVolume waits for it.
    Missing(String),
    Terminating(String),
    /// In use, and another device shows the same identity.
    Conflict(String),
    /// It ends, and its link cannot be removed.
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

    /// What there is to say beyond the word.
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
