//! The stages in the life of a claim, with what there is to say about each. Which one it is: `life.rs`.

/// Whether anybody has to do anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
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
    Held(String),
    /// Confirmed; this plan publishes it.
    Publishing,
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
    Ending(String),
    /// In use, and another device shows the same identity.
    InDoubt(String),
    /// It ends, and its link cannot be removed.
    Stuck(String),
}

impl Stage {
    /// The word in metrics and tables.
    pub fn word(&self) -> &'static str {
        match self {
            Stage::Frozen(_) => "Frozen",
            Stage::Claimed => "Claimed",
            Stage::Refused(_) => "Refused",
            Stage::Held(_) => "Held",
            Stage::Publishing => "Confirmed",
            Stage::Available => "Available",
            Stage::Bound(_) => "Bound",
            Stage::Retained(_) => "Retained",
            Stage::Releasing(_) => "Releasing",
            Stage::Wiping(_) => "Wiping",
            Stage::WipeFailed(_) => "WipeFailed",
            Stage::Missing(_) => "Missing",
            Stage::Ending(_) => "Ending",
            Stage::InDoubt(_) => "InDoubt",
            Stage::Stuck(_) => "Stuck",
        }
    }

    /// What there is to say beyond the word.
    pub fn detail(&self) -> &str {
        match self {
            Stage::Claimed | Stage::Publishing | Stage::Available => "",
            Stage::Frozen(text)
            | Stage::Refused(text)
            | Stage::Held(text)
            | Stage::Bound(text)
            | Stage::Retained(text)
            | Stage::Releasing(text)
            | Stage::Wiping(text)
            | Stage::WipeFailed(text)
            | Stage::Missing(text)
            | Stage::Ending(text)
            | Stage::InDoubt(text)
            | Stage::Stuck(text) => text,
        }
    }

    pub fn outlook(&self) -> Outlook {
        match self {
            Stage::Available | Stage::Bound(_) => Outlook::Good,
            Stage::Claimed
            | Stage::Publishing
            | Stage::Releasing(_)
            | Stage::Wiping(_)
            | Stage::Ending(_) => Outlook::UnderWay,
            Stage::Frozen(_)
            | Stage::Refused(_)
            | Stage::Held(_)
            | Stage::Retained(_)
            | Stage::WipeFailed(_)
            | Stage::Missing(_)
            | Stage::InDoubt(_)
            | Stage::Stuck(_) => Outlook::Trouble,
        }
    }

    /// Its PersistentVolume can be used now.
    pub fn is_provisioned(&self) -> bool {
        matches!(self, Stage::Available | Stage::Bound(_) | Stage::InDoubt(_))
    }
}
