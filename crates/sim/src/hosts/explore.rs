//! A story of hosts once without faults, then once for every point and fault that is chosen.

use super::{run, story::Story};
use crate::explore::{Choice, Summary, every_point_of, random_of};

pub fn every_point(story: &Story, choice: Choice) -> Summary {
    every_point_of(story.name, "hosts", choice, |mode| run(story, mode))
}

/// Random orders with random faults: seeds from `first` on.
pub fn random(story: &Story, first: u64, count: u64) -> Summary {
    random_of(story.name, "hosts", first, count, |mode| run(story, mode))
}
