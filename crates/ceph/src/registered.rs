//! What the monitors know of an OSD, against what was read from its devices.
//!
//! The second half of the decision before a device is written; `judge.rs` is the first. Also what `osd new` answers.

use crate::{
    Uuid, Verdict,
    judge::{Refusal, Target},
    osd::{OsdDump, parse_new_id},
    parse::ParseError,
    result::Reason,
};

/// EEXIST, as the exit code of `ceph osd new`.
const EXISTS: i32 = 17;

/// Whether the cluster's own list of OSDs allows what was judged. `data`: the path of the data device, for people.
pub fn verify(
    target: &Target,
    verdict: &Verdict,
    dump: &OsdDump,
    data: &str,
    mon_host: &str,
) -> Result<(), Refusal> {
    if dump.fsid != target.fsid {
        return Err(Refusal {
            reason: Reason::FsidMismatch,
            message: format!(
                "the monitors at {mon_host} serve cluster {}, but --fsid is {}; check the Secrets rook-ceph-mon and rook-ceph-config",
                dump.fsid, target.fsid
            ),
        });
    }
    match verdict {
        Verdict::Refuse(refusal) => Err(refusal.clone()),
        Verdict::Adopt { id } => verify_known(target, *id, dump, data),
        Verdict::Prepare | Verdict::FinishHalfDone => verify_never_started(target, dump, data),
    }
}

/// An OSD that was purged has no key in the cluster, and its ID may be another's by now.
fn verify_known(target: &Target, id: u32, dump: &OsdDump, data: &str) -> Result<(), Refusal> {
    let Target { osd, fsid } = target;
    let message = match dump.by_uuid(osd).map(|known| known.id) {
        Some(known) if known == id => return Ok(()),
        Some(known) => format!(
            "the label of data device {data} names osd.{id}, but cluster {fsid} knows UUID {osd} as osd.{known}; wipe the device if its data is not needed"
        ),
        None => format!(
            "data device {data} contains osd.{id} ({osd}), which cluster {fsid} no longer has; it was purged or destroyed: wipe the device if its data is not needed"
        ),
    };
    Err(Refusal { reason: Reason::UnknownOsd, message })
}

/// A blank device under an OSD that has run is a device that was replaced. Formatting it would present an empty
/// OSD to the cluster under the identity of one with data.
fn verify_never_started(target: &Target, dump: &OsdDump, data: &str) -> Result<(), Refusal> {
    match dump.by_uuid(&target.osd).filter(|known| known.has_run()) {
        None => Ok(()),
        Some(known) => Err(Refusal {
            reason: Reason::DeviceMismatch,
            message: format!(
                "osd.{id} of this PVC has run before, but data device {data} has no data of it; attach the old device, or remove the OSD with `ceph osd purge {id} --yes-i-really-mean-it` and prepare again",
                id = known.id
            ),
        }),
    }
}

/// What `osd new` has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registered {
    Id(u32),
    Refused(Refusal),
    /// The monitors could not be asked, or did not understand.
    Failed,
}

/// `user`: whose key the key of the OSD is derived from.
pub fn registered(
    osd: &Uuid,
    user: &str,
    code: Option<i32>,
    stdout: &[u8],
    said: &str,
) -> Result<Registered, ParseError> {
    match code {
        Some(0) => parse_new_id(stdout).map(Registered::Id),
        Some(EXISTS) => Ok(Registered::Refused(Refusal {
            reason: Reason::KeyMismatch,
            message: format!(
                "registering the OSD: UUID {osd} is registered with another key ({said}): the key of {user} has changed since; remove the OSD, which has never run, with `ceph osd purge-new ID --yes-i-really-mean-it`"
            ),
        })),
        _ => Ok(Registered::Failed),
    }
}
