//! A device claim without a PersistentVolume: until it is confirmed and published, or ends.

use super::{
    ClaimContext, NodeWorld, Stage, Step,
    content::{
        UNFIT_REMEDY, blocks_reuse, exposed_remnant, partitions, shows_data, unfit_device,
        unusable, user, was_published,
    },
    demand::{Demand, PvSettings},
    messages::{missing, remove_path},
    pv,
    state_machine::{Transition, is_demanded, mark_resolved, retained_data},
    wipe_remnant_text, wipe_remnants_on,
};
use crate::device::{Reason, group::published_candidates};
use quarry_api::{
    names,
    node_inventory::{ClaimContent, ClaimState},
    volume::VolumeMode,
};

pub fn unpublished(world: &NodeWorld, ctx: &ClaimContext<'_>) -> Transition {
    let claim = ctx.claim;
    let unresolved =
        pv::used(claim).map(|last| &last.uid).or(claim.job.as_ref().map(|job| &job.name));
    if let Some(uid) = unresolved.cloned() {
        // The PersistentVolume was removed by force while it was used, perhaps during a wipe: its data is retained.
        let keeps = Some(retained_data(world, &claim.identity, uid.clone()));
        return Transition {
            keeps,
            ..Transition::change(ctx, Stage::Claimed, |claim| mark_resolved(claim, uid))
        };
    }
    if claim.terminating || !is_demanded(ctx) {
        return ending(ctx, "its owner does not demand it any more");
    }
    // Nothing is at stake while it is not published: what the set does not match any more is released. This is how a disk
    // is removed from a set: exclude it, then delete its PersistentVolume.
    if ctx.demand.zip(ctx.device).is_some_and(|(demand, device)| !demand.describes(device)) {
        return ending(ctx, "the LocalVolumeSet does not match it any more");
    }
    let other =
        ctx.demand.filter(|demand| !demand.makes(claim)).and_then(|demand| demand.settings(claim));
    // A device that reports no size has not changed its size.
    let size = ctx.device.map(|device| device.size).filter(|size| *size != claim.size && *size > 0);
    match (&claim.path, other, size) {
        (_, None, None) => {}
        (None, Some(_), _) => {
            return ending(
                ctx,
                "the LocalVolumeSet has other settings for its devices now; the device is claimed again",
            );
        }
        (None, None, Some(size)) => {
            return ending(
                ctx,
                &format!(
                    "the device has {size} bytes, the device claim {}; the device is claimed again",
                    claim.size
                ),
            );
        }
        // Its path must not be resolved again: it may lead to another disk now.
        (Some(_), other, size) => return refit(world, ctx, other, size),
    }
    // A disk that is gone for good must not count for ever: this is how one is released, by deleting its
    // PersistentVolume. Not one that a LocalVolume names: the path would be resolved again, and may lead to another disk.
    if claim.path.is_none() && is_surely_absent(world, ctx) {
        return ending(
            ctx,
            &format!("device {} is missing and has no PersistentVolume", claim.identity),
        );
    }
    // It may pass: the device claim reserves the device meanwhile.
    if let Some(quarantine) = &ctx.quarantine {
        return Transition::stay(ctx, Stage::Blocked(quarantine.why.clone()));
    }
    // More is known about the device than when it was claimed: recorded before a PersistentVolume exists.
    if let Some(identifiers) = grown_evidence(ctx) {
        return Transition::change(ctx, Stage::Claimed, |claim| claim.identifiers = identifiers);
    }
    let Some(report) = ctx.report else { return Transition::stay(ctx, unanswered(world, ctx)) };
    match report.state {
        ClaimState::Removed | ClaimState::RemovalFailed => Transition::stay(ctx, Stage::Claimed),
        ClaimState::Outdated => ending(
            ctx,
            &format!(
                "{}; the device is claimed again if it is still demanded",
                report.message.as_deref().unwrap_or_default()
            ),
        ),
        ClaimState::Refused => refused(world, ctx, report.message.clone().unwrap_or_default()),
        ClaimState::Confirmed => confirmed(world, ctx),
    }
}

/// A device that was named by its path stays claimed and gets the current settings. It is confirmed again: what it may
/// contain depends on the settings.
fn refit(
    world: &NodeWorld,
    ctx: &ClaimContext<'_>,
    other: Option<&PvSettings>,
    size: Option<i64>,
) -> Transition {
    let left = ctx.device.and_then(|device| {
        wipe_remnants_on(world, device, partitions(ctx.claim)).into_iter().next()
    });
    if let Some(left) = left.filter(|_| {
        other.is_some_and(|other| other.mode == VolumeMode::Block)
            && ctx.claim.volume_mode != VolumeMode::Block
    }) {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!("the device {}", wipe_remnant_text(left))),
        );
    }
    Transition::change(ctx, Stage::Claimed, |claim| {
        if let Some(PvSettings { class: _, mode, fs_type }) = other {
            (claim.volume_mode, claim.fs_type) = (*mode, fs_type.clone());
        }
        claim.size = size.unwrap_or(claim.size);
        claim.round += 1;
    })
}

/// Everything that identifies the device now, if that is more than what was claimed.
fn grown_evidence(ctx: &ClaimContext<'_>) -> Option<Vec<String>> {
    let now = published_candidates(ctx.device?);
    let known = &ctx.claim.identifiers;
    let grown = now.len() > known.len() && known.iter().all(|one| now.contains(one));
    grown.then(|| now.into_iter().collect())
}

/// Reported by an agent that is present.
fn is_surely_absent(world: &NodeWorld, ctx: &ClaimContext<'_>) -> bool {
    ctx.device.is_none() && world.agent_present && world.inventory.status.is_some()
}

/// There is no report on the device, or none yet.
fn unanswered(world: &NodeWorld, ctx: &ClaimContext<'_>) -> Stage {
    let more = match &ctx.claim.path {
        Some(path) => remove_path(path),
        None => {
            format!("this is not certain, because the agent on node {} is absent", world.name)
        }
    };
    missing(ctx, &more).unwrap_or(Stage::Claimed)
}

/// Removed from the inventory when the agent reports that nothing of it is left.
fn ending(ctx: &ClaimContext<'_>, why: &str) -> Transition {
    let ended = ctx.claim.terminating
        && ctx.report.is_some_and(|report| report.state == ClaimState::Removed);
    let stuck = ctx
        .report
        .filter(|report| ctx.claim.terminating && report.state == ClaimState::RemovalFailed)
        .and_then(|report| report.message.as_ref());
    let stage = stuck.map_or_else(
        || Stage::Terminating(why.to_owned()),
        |trouble| Stage::RemovalFailed(format!("{why}, but {trouble}")),
    );
    if ended {
        return Transition { claim: None, ..Transition::stay(ctx, stage) };
    }
    Transition::change(ctx, stage, |claim| claim.terminating = true)
}

/// A device claim that cannot be used counts against the set for nothing: it ends when the device shows a lasting reason.
/// What may pass (another process reads the device just now) is waited for.
fn refused(world: &NodeWorld, ctx: &ClaimContext<'_>, why: String) -> Transition {
    let lasting = ctx
        .device
        .is_some_and(|device| device.reasons.iter().any(|finding| !finding.reason.is_transient()));
    if lasting && ctx.claim.content == ClaimContent::Blank {
        return ending(ctx, &why);
    }
    let stage = if ctx.device.is_some() { Stage::Refused(why) } else { unanswered(world, ctx) };
    Transition::stay(ctx, stage)
}

fn confirmed(world: &NodeWorld, ctx: &ClaimContext<'_>) -> Transition {
    let claim = ctx.claim;
    let Some(device) = ctx.device else { return Transition::stay(ctx, unanswered(world, ctx)) };
    if !ctx.report.is_some_and(|report| report.linked) {
        let why = ctx
            .report
            .and_then(|report| report.message.clone())
            .unwrap_or_else(|| "the link does not exist yet".into());
        return Transition::stay(ctx, Stage::Blocked(why));
    }
    if claim.content == ClaimContent::Blank && shows_data(device) {
        return Transition::stay(
            ctx,
            Stage::Blocked("the device was written to after it was confirmed".into()),
        );
    }
    if let Some(why) = user(ctx) {
        return Transition::stay(ctx, Stage::Blocked(format!("the device is in use: {why}")));
    }
    if let Some(why) = unusable(device) {
        return Transition::stay(ctx, Stage::Blocked(why));
    }
    if let Some(why) = unfit_device(device, claim.volume_mode, claim.fs_type.as_deref()) {
        let why = format!("{} {why}; {UNFIT_REMEDY}", device.name);
        return Transition::stay(ctx, Stage::Blocked(why));
    }
    if let Some(left) = exposed_remnant(world, claim, device) {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!("{} {}", device.name, wipe_remnant_text(left))),
        );
    }
    if claim.content == ClaimContent::Blank && blocks_reuse(world, claim, device) {
        return Transition::stay(
            ctx,
            Stage::Blocked(
                Reason::RetainedData.message(&names::local_pv(&world.name, &claim.identity)),
            ),
        );
    }
    // It may have been used since it was named: that data must not be exposed to the next user.
    if let Some(path) = claim.path.as_ref().filter(|_| {
        was_published(claim) && (shows_data(device) || blocks_reuse(world, claim, device))
    }) {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!(
                "the device contains data, perhaps of the deleted PersistentVolume, and is not published; to use the data, remove {path} from spec.storageClassDevices.devicePaths, wait until the device claim has ended, and add it again"
            )),
        );
    }
    if !world.agent_present {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!(
                "the agent on node {} is absent; check that the node is up and that its quarry-agent pod runs",
                world.name
            )),
        );
    }
    let demand = ctx.demand;
    let min = demand.map_or(0, Demand::min);
    let ready = ctx.ready;
    if ready < min {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!(
                "{ready} devices of this node are confirmed, spec.minDeviceCount is {min}"
            )),
        );
    }
    let class = world.classes.get(&claim.storage_class_name);
    if let Some(class) = class.filter(|class| class.provisioner != pv::NO_PROVISIONER) {
        let text = format!(
            "StorageClass {} belongs to the provisioner {}; use another spec.storageClassName, or delete the StorageClass",
            claim.storage_class_name, class.provisioner
        );
        return Transition::stay(ctx, Stage::Blocked(text));
    }
    let Some(made) = pv::build(world, ctx, class.map(AsRef::as_ref)) else {
        return Transition::stay(
            ctx,
            Stage::Blocked(format!(
                "node {} has no label {}, which the node affinity of PersistentVolumes needs; add the label",
                world.name,
                pv::HOSTNAME_LABEL
            )),
        );
    };
    let mut transition = Transition::stay(ctx, Stage::Confirmed);
    if class.is_none() {
        transition.steps.push(Step::CreateClass(Box::new(pv::build_class(claim))));
    }
    transition.steps.push(Step::CreatePv(Box::new(made)));
    transition
}
