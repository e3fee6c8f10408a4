//! Erasing a device: by the descriptor that was verified while held, and only by that.
//!
//! Three ways, which all end alike: first and last MiB overwritten, everything on the disk (fsync), read back directly,
//! and blank to the inspector and to libblkid. A crash anywhere leaves a device that is erased again from the start.

use super::{
    hold::{Held, Verified},
    zeros::{Direct, PAGE, Pace, ends, piecewise, spread, zero_out},
};
use crate::{
    error::NodeError,
    host_root::HostRoot,
    inspect::{
        image::{Image, probed_ranges},
        loops,
    },
    progress::Progress,
    sys::{self, blkid, erase},
    wait,
};
use quarry_api::{node_job::WipePolicy, quantity::Bytes};
use quarry_core::device::sanitize::printable;
use quarry_failpoint::failpoint;
use rustix::io::Errno;
use std::{ops::Range, time::Duration};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const ZEROING: Pace = Pace { first: 64 * MIB, largest: GIB };
const DISCARDING: Pace = Pace { first: GIB, largest: 64 * GIB };
/// Pages all over the device that get a marker before a discard, beside the first and the last one.
const SAMPLES: u64 = 64;
/// Each round removes what libblkid finds; formats hide behind others, not behind that many.
const ROUNDS: usize = 16;
/// A prober who has a partition open is gone in a moment, a user is not.
const PARTITIONS_WITHIN: Duration = Duration::from_secs(5);

/// What is known about discards of one device beyond this wipe.
pub trait DiscardRecord {
    /// A discard left data before: it is not tried again.
    fn is_ineffective(&self) -> bool;

    /// Durable when it returns.
    fn record_ineffective(&self) -> Result<(), NodeError>;
}

/// How it was done, for people.
pub fn wipe(
    host: &HostRoot,
    held: &Held<Verified>,
    policy: WipePolicy,
    discards: &dyn DiscardRecord,
    progress: &Progress,
) -> Result<String, NodeError> {
    let name = held.name();
    // Before the first byte: a process that has a partition open loses nothing.
    drop_partitions(host, held)?;
    failpoint!("wipe.before");
    let how = match policy {
        WipePolicy::Quick => quick(held, progress)?,
        WipePolicy::Discard => discard(held, discards, progress)?,
        WipePolicy::Zero => zero(held, progress)?,
    };
    failpoint!("wipe.erased");
    progress.set(format!("checking that {name} is blank"));
    let mut direct = Direct::new(held.device());
    for end in ends(held.size()) {
        direct.zero(&end).map_err(NodeError::device(format!("overwriting the ends of {name}")))?;
    }
    drop(direct);
    sync(held)?;
    failpoint!("wipe.synced");
    prove(held)?;
    drop_partitions(host, held)?;
    if !held.is_still_there() {
        return Err(NodeError::Refused(format!(
            "{name} changed while it was erased: it is not the same disk any more"
        )));
    }
    failpoint!("wipe.proven");
    Ok(how)
}

/// Everything that says what is on the device; data between that stays.
fn quick(held: &Held<Verified>, progress: &Progress) -> Result<String, NodeError> {
    let name = held.name();
    progress.set(format!("removing what is found on {name}"));
    let attempt = || format!("overwriting the signatures of {name}");
    overwrite(held, &probed_ranges(held.size())).map_err(NodeError::device(attempt()))?;
    failpoint!("wipe.overwritten");
    for _ in 0..ROUNDS {
        let found = signatures(held)?;
        let places: Vec<Range<u64>> =
            found.iter().filter_map(|found| found.at).map(|at| page_of(at, held.size())).collect();
        if places.is_empty() {
            break;
        }
        overwrite(held, &places).map_err(NodeError::device(attempt()))?;
    }
    Ok("signatures removed".into())
}

fn overwrite(held: &Held<Verified>, ranges: &[Range<u64>]) -> Result<(), Errno> {
    let mut direct = Direct::new(held.device());
    ranges.iter().try_for_each(|range| direct.zero(range))?;
    drop(direct);
    rustix::fs::fsync(held.device())
}

/// The page that holds this byte; of the last one what there is.
fn page_of(at: u64, size: u64) -> Range<u64> {
    let start = at.min(size) / 4096 * 4096;
    start..size.min(start + 4096)
}

/// The device forgets its blocks. Not every one does: markers that are written first must be gone afterwards. What was
/// on it before proves nothing, it may have been zero there already.
fn discard(
    held: &Held<Verified>,
    discards: &dyn DiscardRecord,
    progress: &Progress,
) -> Result<String, NodeError> {
    let (name, size) = (held.name(), held.size());
    if discards.is_ineffective() {
        return zero(held, progress)
            .map(|how| format!("{how}, because a discard of this device left data before"));
    }
    progress.set(format!("discarding {name}"));
    mark(held)?;
    failpoint!("wipe.marked");
    let mut first = true;
    let tried = piecewise(
        size,
        DISCARDING,
        |range| erase::discard(held.device(), range),
        |at| {
            progress.advance(at, size);
            if std::mem::take(&mut first) {
                failpoint!("wipe.discarding");
            }
        },
    );
    let why = match tried {
        Ok(()) if markers_are_gone(held)? => {
            return Ok("discarded, and every marker is gone".into());
        }
        Ok(()) => {
            // Recorded before the first zero: a wipe that is interrupted now must not trust a discard again.
            discards.record_ineffective()?;
            "its data is still there after a discard".to_owned()
        }
        Err((_, Errno::OPNOTSUPP)) => "it cannot discard".to_owned(),
        // If it is broken, zeroing says so.
        Err((at, error)) => {
            format!("discarding failed at {}: {}", Bytes(at), std::io::Error::from(error))
        }
    };
    tracing::info!(device = name, why, "skipped the discard; the device is zeroed");
    zero(held, progress).map(|how| format!("{how}, because {why}"))
}

/// A page at both ends, and evenly spread ones between.
fn marked_pages(size: u64) -> impl Iterator<Item = Range<u64>> {
    let last = size.saturating_sub(PAGE) / PAGE * PAGE;
    [0..PAGE.min(size), last..size.min(last + PAGE)].into_iter().chain(spread(size, SAMPLES))
}

/// Random bytes: a device that compresses or deduplicates stores them all the same.
fn mark(held: &Held<Verified>) -> Result<(), NodeError> {
    let attempt = || format!("writing markers to {}", held.name());
    let mut direct = Direct::new(held.device());
    for page in marked_pages(held.size()) {
        direct.randomize(&page).map_err(NodeError::device(attempt()))?;
    }
    drop(direct);
    sync(held)
}

fn markers_are_gone(held: &Held<Verified>) -> Result<bool, NodeError> {
    let attempt = || format!("reading the markers of {}", held.name());
    sync(held)?;
    let mut direct = Direct::new(held.device());
    for page in marked_pages(held.size()) {
        if !direct.is_zero(&page).map_err(NodeError::device(attempt()))? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn zero(held: &Held<Verified>, progress: &Progress) -> Result<String, NodeError> {
    let (name, size) = (held.name(), held.size());
    progress.set(format!("zeroing {name}"));
    let mut first = true;
    let tried = piecewise(
        size,
        ZEROING,
        |range| zero_out(held.device(), range),
        |at| {
            progress.advance(at, size);
            if std::mem::take(&mut first) {
                failpoint!("wipe.zeroing");
            }
        },
    );
    tried.map_err(|(at, error)| {
        NodeError::device(format!("zeroing {name} failed at {} of {}", Bytes(at), Bytes(size)))(
            error,
        )
    })?;
    Ok("zeroed".into())
}

fn sync(held: &Held<Verified>) -> Result<(), NodeError> {
    rustix::fs::fsync(held.device()).map_err(NodeError::device(format!("syncing {}", held.name())))
}

fn signatures(held: &Held<Verified>) -> Result<Vec<blkid::Signature>, NodeError> {
    let attempt = || format!("looking for signatures on {}", held.name());
    let sector = sys::sector_size(held.device()).map_err(NodeError::device(attempt()))?;
    blkid::signatures(held.device(), held.size(), sector).map_err(NodeError::device(attempt()))
}

/// What was written is what is there: as the inspector sees it, and as libblkid does.
fn prove(held: &Held<Verified>) -> Result<(), NodeError> {
    let name = held.name();
    let mut image = Image::new();
    image
        .take(held.device(), held.size())
        .map_err(NodeError::device(format!("reading back {name}")))?;
    if !image.is_zero() {
        return Err(NodeError::Refused(format!(
            "{name} does not keep what is written to it: it is not blank after it was erased"
        )));
    }
    let left = signatures(held)?;
    if left.is_empty() {
        return Ok(());
    }
    let left: Vec<String> = left.iter().filter_map(|found| printable(&found.kind)).collect();
    Err(NodeError::Refused(format!("{name} still shows {} after it was erased", left.join(", "))))
}

/// The kernel keeps partitions whose table is gone, and would show the next owner's bytes through them.
fn drop_partitions(host: &HostRoot, held: &Held<Verified>) -> Result<(), NodeError> {
    let in_sysfs = held.name().replace('/', "!");
    for partition in loops::partitions(host, &in_sysfs) {
        let Some(number) = loops::partition_number(host, &partition) else { continue };
        let gone = wait::until(PARTITIONS_WITHIN, || {
            match sys::delete_partition(held.device(), number) {
                Ok(()) | Err(Errno::NXIO) => Ok(Some(())),
                Err(Errno::BUSY) => Ok(None),
                Err(error) => {
                    Err(NodeError::io(format!("removing the partition {partition}"))(error))
                }
            }
        })?;
        if gone.is_none() {
            return Err(NodeError::InUse {
                device: partition,
                users: "opened by another process".into(),
            });
        }
    }
    Ok(())
}
