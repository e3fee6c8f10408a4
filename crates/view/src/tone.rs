//! How a row is meant: good, waiting, bad. The one value from which colors are chosen.

use quarry_core::{device_claim::Health, volume::explain::Verdict};
use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Tone {
    /// Usable now, or about to be given.
    Good,
    /// Continues without intervention.
    Waiting,
    /// Needs a decision or a fix, if the device is needed.
    Bad,
    /// Would match, and is not needed.
    Spare,
    /// Not what was requested.
    #[default]
    Other,
}

impl Tone {
    pub fn verdict(self) -> Verdict {
        match self {
            Tone::Good => Verdict::Ok,
            Tone::Waiting => Verdict::Waiting,
            Tone::Bad => Verdict::Problem,
            Tone::Spare | Tone::Other => Verdict::Skipped,
        }
    }
}

impl From<Health> for Tone {
    fn from(health: Health) -> Self {
        match health {
            Health::Good => Tone::Good,
            Health::UnderWay => Tone::Waiting,
            Health::Trouble => Tone::Bad,
        }
    }
}
