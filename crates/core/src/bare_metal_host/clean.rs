//! Manual cleanings that build or erase RAID: each requested once, and its end recognized.
//!
//! A node is manageable before a cleaning and after it. So each is announced in Ironic first: `extra.quarry` names the
//! phase, and when the node last changed its state before it. A node that is manageable and has changed since then has
//! ended that phase. The mark is lost with Ironic's database, and then the work begins again; it is removed when a phase
//! fails. Next to read: `raid/phases.rs` (what is requested), `prepare.rs` and `deprovision.rs` (when).

use super::{
    Observed, Plan,
    power::AT_REST,
    prepare,
    raid::phases::Phase,
    register::{is_maintained_by_hand, keep_waiting},
    state_machine::{self, recover},
    status::{Draft, Flow},
};
use jiff::{SignedDuration, Timestamp};
use quarry_api::bare_metal_host::{ErrorType, OperationalStatus};
use quarry_ironic::{
    Call, Node, PatchOp, PowerState, PowerTarget, ProvisionState, ProvisionTarget,
};
use serde_json::{Value, json};

/// Ironic needs seconds for a step of a BMC, and half a minute to boot a ramdisk.
pub(super) const POLL: SignedDuration = SignedDuration::from_secs(2);
const POLL_LATER: SignedDuration = SignedDuration::from_secs(5);
const LATER: SignedDuration = SignedDuration::from_secs(20);
const AT_ONCE: SignedDuration = SignedDuration::ZERO;
const DELAYED_AGAIN: SignedDuration = SignedDuration::from_secs(15);
const EXTRA: &str = "quarry";

/// What was announced on a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mark<'a> {
    pub phase: &'a str,
    since: Option<Timestamp>,
}

impl<'a> Mark<'a> {
    /// `None`: nothing is announced, or not in a form that this version writes.
    pub fn of(node: &'a Node) -> Option<Self> {
        let mark = node.extra.get(EXTRA)?;
        let since = match mark.get("since") {
            Some(Value::String(text)) => Some(text.parse().ok()?),
            _ => None,
        };
        Some(Mark { phase: mark.get("phase")?.as_str()?, since })
    }

    /// The node has changed its state since.
    pub fn is_past(&self, node: &Node) -> bool {
        node.provision_updated_at != self.since
    }

    pub fn announce(node: &Node, phase: &str) -> PatchOp {
        let since = node.provision_updated_at.map(|time| time.to_string());
        PatchOp::add(format!("/extra/{EXTRA}"), json!({"phase": phase, "since": since}))
    }

    pub fn remove(node: &Node) -> Option<PatchOp> {
        node.extra.contains_key(EXTRA).then(|| PatchOp::remove(format!("/extra/{EXTRA}")))
    }
}

/// What was announced and not requested must not be taken for ended when the node changes its state for another reason:
/// the announcement is removed before that.
pub(super) fn withdraw_first(seen: &Observed, plan: &Plan, now: Timestamp) -> Option<Plan> {
    let Some(Call::SetProvisionState { id, target }) = &plan.call else { return None };
    let mut draft = Draft::new(seen, now);
    let node = draft.node()?;
    let mark = Mark::of(node).filter(|mark| !mark.is_past(node))?;
    let is_announced = match target {
        ProvisionTarget::Clean { .. } => true,
        ProvisionTarget::Inspect => mark.phase == prepare::DRIVES,
        _ => false,
    };
    let ops = vec![Mark::remove(node).filter(|_| !is_announced)?];
    draft.call(Call::PatchNode { id: id.clone(), ops }, AT_ONCE);
    Some(draft.finish())
}

/// Whether another host may be worked on; if not, this one is delayed.
pub(super) fn has_room(draft: &mut Draft<'_>) -> bool {
    let super::IronicView::Seen(seen) = &draft.seen.ironic else { return false };
    if seen.busy < draft.seen.settings.max_busy_hosts {
        return true;
    }
    draft.status.operational_status = OperationalStatus::Delayed;
    draft.again_in(DELAYED_AGAIN);
    false
}

/// Ironic refuses to work on a node in maintenance. Its own is ended after a backoff; that of a person is waited for, and
/// counts as a failure of a deletion. `None`: there is none.
pub(super) fn maintenance(draft: &mut Draft<'_>, kind: &ErrorType, node: &Node) -> Option<Flow> {
    if !node.maintenance {
        return None;
    }
    let id = node.uuid.clone();
    let by_hand = is_maintained_by_hand(node);
    if !by_hand && !draft.has_error(kind) {
        let fault = node.fault.as_deref().unwrap_or_default();
        let error = node.last_error.as_deref().unwrap_or_default();
        return Some(draft.fail(
            kind.clone(),
            format!("Ironic set node {id} into maintenance ({fault}): {error}; check the BMC"),
        ));
    }
    if !draft.may_retry(kind) {
        return Some(keep_waiting(draft, kind.clone()));
    }
    if by_hand {
        draft.status.error_message.clear();
        return Some(draft.fail(
            kind.clone(),
            format!("node {id} is in maintenance in Ironic; end it: baremetal node maintenance unset {id}"),
        ));
    }
    draft.carry_on(kind);
    Some(draft.call(Call::ClearMaintenance { id }, AT_ONCE))
}

/// How soon a node is asked again that Ironic cleans: a BMC takes seconds, a ramdisk minutes.
pub(super) fn poll(draft: &mut Draft<'_>) -> Flow {
    let since = draft.status.last_updated.as_ref();
    let since = since.map_or(SignedDuration::ZERO, |time| draft.now.duration_since(time.0));
    draft.again_in(if since > LATER { POLL_LATER } else { POLL })
}

/// All phases of a run, one after the other. `Continue` when the last one has ended.
pub(super) fn run(draft: &mut Draft<'_>, kind: &ErrorType, run: &str, phases: &[Phase]) -> Flow {
    let Some(node) = draft.node() else { return Flow::Stop };
    let id = node.uuid.clone();
    match node.provision_state {
        ProvisionState::Manageable => {}
        _ if phases.is_empty() => return Flow::Continue,
        ProvisionState::Available => {
            let target = ProvisionTarget::Manage;
            return draft.call(Call::SetProvisionState { id, target }, AT_ONCE);
        }
        ProvisionState::Cleaning | ProvisionState::CleanWait => {
            draft.clear_error();
            return poll(draft);
        }
        ProvisionState::CleanFailed => return failed(draft, kind, run, phases, node),
        ProvisionState::InspectFailed | ProvisionState::AdoptFailed => return recover(draft, node),
        _ => return state_machine::unexpected(draft, node, AT_REST),
    }
    if !phases.is_empty()
        && let Some(flow) = maintenance(draft, kind, node)
    {
        return flow;
    }
    let mark = Mark::of(node);
    let begun = mark.as_ref().and_then(|mark| {
        let position = phases.iter().position(|phase| phase.key(run) == mark.phase);
        position.map(|position| (position, mark.is_past(node)))
    });
    match begun {
        Some((position, false)) => request(draft, kind, node, phases.get(position)),
        Some((position, true)) if has_succeeded(draft, kind, node) => {
            match phases.get(position + 1) {
                None => Flow::Continue,
                next => announce(draft, kind, run, node, next),
            }
        }
        // It failed, and the node was managed by hand; or what it built is not what was requested.
        Some((_, true)) => again(draft, kind, node),
        None => announce(draft, kind, run, node, phases.first()),
    }
}

/// Ironic keeps the error of a failure when the node is managed again.
fn has_succeeded(draft: &Draft<'_>, kind: &ErrorType, node: &Node) -> bool {
    let error = node.last_error.as_deref().filter(|error| !error.is_empty());
    !draft.has_error(kind) && error.is_none_or(has_no_storage)
}

/// The BMC has no storage at all, so there are no volumes. Only erasing gets that far: what is built is verified.
fn has_no_storage(error: &str) -> bool {
    error.contains("attribute Storage is missing from the resource")
}

/// Begins from the start: nothing is announced any more.
pub(super) fn again(draft: &mut Draft<'_>, kind: &ErrorType, node: &Node) -> Flow {
    if !draft.may_retry(kind) {
        return keep_waiting(draft, kind.clone());
    }
    draft.carry_on(kind);
    let ops = Mark::remove(node).into_iter().collect();
    draft.call(Call::PatchNode { id: node.uuid.clone(), ops }, AT_ONCE)
}

fn announce(
    draft: &mut Draft<'_>,
    kind: &ErrorType,
    run: &str,
    node: &Node,
    phase: Option<&Phase>,
) -> Flow {
    let Some(phase) = phase else { return Flow::Continue };
    if !draft.may_retry(kind) {
        return keep_waiting(draft, kind.clone());
    }
    if !has_room(draft) {
        return Flow::Stop;
    }
    let mut ops = Vec::new();
    if node.raid_interface.as_deref() != Some(phase.interface) {
        ops.push(PatchOp::add("/raid_interface", phase.interface));
    }
    ops.extend(prepare::restored_inspection(node));
    ops.push(Mark::announce(node, &phase.key(run)));
    draft.call(Call::PatchNode { id: node.uuid.clone(), ops }, AT_ONCE)
}

fn request(draft: &mut Draft<'_>, kind: &ErrorType, node: &Node, phase: Option<&Phase>) -> Flow {
    let Some(phase) = phase else { return Flow::Continue };
    if !draft.may_retry(kind) {
        return keep_waiting(draft, kind.clone());
    }
    if !has_room(draft) {
        return Flow::Stop;
    }
    draft.clear_error();
    let id = node.uuid.clone();
    // Unreadable is different, and replaced.
    let known = node.target_raid().ok();
    if let Some(config) = phase.target.as_ref().filter(|target| known.as_ref() != Some(*target)) {
        return draft.call(Call::SetRaid { id, config: config.clone() }, AT_ONCE);
    }
    let target = ProvisionTarget::Clean { steps: phase.steps.clone() };
    draft.call(Call::SetProvisionState { id, target }, POLL)
}

fn failed(
    draft: &mut Draft<'_>,
    kind: &ErrorType,
    run: &str,
    phases: &[Phase],
    node: &Node,
) -> Flow {
    let mark = Mark::of(node);
    let phase =
        phases.iter().find(|phase| mark.as_ref().is_some_and(|mark| mark.phase == phase.key(run)));
    let erased_nothing = phase.is_some_and(|phase| phase.target.is_none())
        && node.last_error.as_deref().is_some_and(has_no_storage);
    if erased_nothing {
        draft.clear_error();
        return recover(draft, node);
    }
    if !draft.has_error(kind) {
        let Some(error) = state_machine::error_of(draft, node) else { return draft.again_in(POLL) };
        let remedy = match kind {
            ErrorType::Preparation => {
                "correct spec.raid, or the disks; RAID is erased and built again"
            }
            _ => {
                "RAID is erased again; to leave it, annotate the host with quarry.dev/retain-raid=\"\""
            }
        };
        return draft.fail(kind.clone(), format!("{error}; {remedy}"));
    }
    if !draft.may_retry(kind) {
        return keep_waiting(draft, kind.clone());
    }
    draft.carry_on(kind);
    match Mark::remove(node) {
        Some(op) => draft.call(Call::PatchNode { id: node.uuid.clone(), ops: vec![op] }, AT_ONCE),
        None if node.target_power_state.is_some() => draft.again_in(POLL),
        // With fast track the agent still runs, and Ironic has dropped its token: the next attempt needs another boot.
        None if node.power_state == Some(PowerState::On)
            && !draft.seen.host.spec.disable_power_off =>
        {
            let target = PowerTarget::Off;
            draft.call(Call::SetPower { id: node.uuid.clone(), target }, POLL)
        }
        None => recover(draft, node),
    }
}
