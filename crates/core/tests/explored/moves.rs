//! What can happen: one move of one party. A crash is a plan of which only the first writes are made.

use super::model::{
    Content, Mistake, Model, Objects, identity, new_local_volume, new_set, now, version,
};
use k8s_openapi::api::core::v1::PersistentVolume;
use quarry_api::{names, node_job::JobPhase};
use quarry_core::{
    device_claim::{ClaimContext, Step, claim_contexts, decide, pv, reads},
    job::Task,
    node_inventory,
    precondition::{WipePrecondition, check_wipe},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a world allows: its bound.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    pub operators: usize,
    /// Sets that may be created.
    pub sets: Vec<&'static str>,
    pub local_volume: bool,
    /// How many claims may use the volume, one after the other.
    pub uses: u32,
    /// Whether an administrator may reserve a free PersistentVolume for a PVC that does not exist yet.
    pub reserve: bool,
    /// Whether a PVC may name its PersistentVolume: it is bound although the PersistentVolume is being deleted.
    pub by_name: bool,
    /// How many objects people may delete.
    pub deletions: u32,
    /// How often a disk may be pulled or plugged in.
    pub plugs: u32,
    pub other_data: bool,
    pub unmanaged_pv: bool,
    /// A Volume may take the disk, and give it back.
    pub volume: bool,
    pub crashes: bool,
    /// How often an object may be removed by force, with its finalizer, once an operator has seen its state.
    pub tears: u32,
}

#[derive(Clone, Debug)]
pub enum Move {
    CreateSet(&'static str),
    CreateLocalVolume,
    DeleteOwner(String),
    /// The owner's controller lets it go: it has no claim any more.
    LetGo(String),
    Refresh(usize),
    /// The operator plans on what it has seen and makes this many writes.
    Plan {
        operator: usize,
        writes: usize,
    },
    Observe,
    Write,
    Bind,
    /// Through `volumeName`: as kube-controller-manager does it, whatever becomes of the PersistentVolume.
    BindByName,
    Reserve,
    Use,
    Unuse,
    DeletePv,
    TearPv,
    /// The agent checks live, wipes, and dies before it says so.
    Wipe(String),
    Report(String),
    Pull,
    Plug(usize),
    OtherData,
    UnmanagedPv,
    Volume,
    VolumeGone,
}

pub fn moves(model: &Model, allowed: &Allowed) -> Vec<Move> {
    let api = &model.api;
    let mut found: Vec<Move> = vec![Move::Observe, Move::Write, Move::Bind, Move::Use, Move::Unuse];
    found.extend(
        allowed
            .sets
            .iter()
            .filter(|name| !api.sets.contains_key(**name) && model.deleted == 0)
            .map(|name| Move::CreateSet(name)),
    );
    if allowed.local_volume && api.local_volume.is_none() && model.deleted == 0 {
        found.push(Move::CreateLocalVolume);
    }
    if model.deleted < allowed.deletions {
        found.extend(
            api.sets
                .keys()
                .cloned()
                .chain(api.local_volume.iter().map(|_| "lv".to_owned()))
                .map(Move::DeleteOwner),
        );
        found.push(Move::DeletePv);
    }
    if model.torn < allowed.tears {
        found.push(Move::TearPv);
    }
    found.extend(
        api.sets
            .keys()
            .cloned()
            .chain(api.local_volume.iter().map(|_| "lv".to_owned()))
            .map(Move::LetGo),
    );
    for operator in 0..allowed.operators {
        found.push(Move::Refresh(operator));
        found.push(Move::Plan { operator, writes: 9 });
        if allowed.crashes {
            found.extend((1..3).map(|writes| Move::Plan { operator, writes }));
        }
    }
    if allowed.by_name {
        found.push(Move::BindByName);
    }
    if model.used >= allowed.uses {
        found.retain(|one| !matches!(one, Move::Bind | Move::BindByName));
    }
    found.extend(
        api.jobs.keys().flat_map(|job| [Move::Wipe(job.clone()), Move::Report(job.clone())]),
    );
    if model.plugged < allowed.plugs {
        found.push(Move::Pull);
        found.extend([Move::Plug(0), Move::Plug(1)]);
    }
    if allowed.reserve {
        found.push(Move::Reserve);
    }
    if allowed.other_data {
        found.push(Move::OtherData);
    }
    if allowed.unmanaged_pv {
        found.push(Move::UnmanagedPv);
    }
    if allowed.volume {
        found.extend([Move::Volume, Move::VolumeGone]);
    }
    found
}

/// The world after the move; `None` when it cannot be made, or changes nothing.
pub fn take(model: &Model, one: &Move) -> Option<Model> {
    let mut next = model.clone();
    match one {
        Move::CreateSet(name) => {
            next.change(|api| drop(api.sets.insert((*name).to_owned(), new_set(name))))
        }
        Move::CreateLocalVolume => next.change(|api| api.local_volume = Some(new_local_volume())),
        Move::DeleteOwner(name) => {
            let at = serde_json::from_value(json!("2026-01-01T01:00:00Z")).unwrap();
            next.deleted += 1;
            next.change(|api| match api.sets.get_mut(name) {
                Some(set) => set.metadata.deletion_timestamp = Some(at),
                None => api.local_volume.as_mut().unwrap().metadata.deletion_timestamp = Some(at),
            });
        }
        Move::LetGo(name) => {
            let uid = format!("uid-{name}");
            let going = match api_owner(&model.api, name) {
                Some(meta) => meta.deletion_timestamp.is_some(),
                None => return None,
            };
            if !going
                || model.api.inventory.spec.device_claims.iter().any(|claim| claim.owner.uid == uid)
            {
                return None;
            }
            next.change(|api| {
                api.sets.remove(name);
                if name == "lv" {
                    api.local_volume = None;
                }
            });
        }
        Move::Refresh(operator) => {
            if Arc::ptr_eq(&model.caches[*operator], &model.api) {
                return None;
            }
            next.refresh(*operator);
        }
        Move::Plan { operator, writes } => return operate(next, *operator, *writes),
        Move::Observe => next.observe(),
        Move::Write => {
            let before = model.api.clone();
            model.pending.as_ref()?;
            if !next.write() || version(&before.inventory) == version(&next.api.inventory) {
                // Nothing new: the agent forgets what it has seen.
                return model.pending.as_ref().map(|_| next);
            }
        }
        Move::Bind => bind(&mut next, &free_pv(&model.api)?),
        Move::BindByName => {
            let unbound = |pv: &PersistentVolume| is_ours(pv) && pv::pvc_uid(pv).is_none();
            let name = model.api.pvs.iter().find(|(_, pv)| unbound(pv)).map(|(name, _)| name)?;
            bind(&mut next, name);
        }
        Move::Reserve => {
            let name = free_pv(&model.api)?;
            change_pv(&mut next, &name, |pv| {
                pv["spec"]["claimRef"] = json!({"namespace": "d", "name": "later"})
            });
        }
        Move::Use => {
            let user = *model.users.last()?;
            let disk = bound_disk(&model.api, user)?;
            if model.slot != Some(disk) || model.disks[disk] == Content::Data(user) {
                return None;
            }
            next.disks[disk] = Content::Data(user);
        }
        Move::Unuse => {
            let user = next.users.pop()?;
            let name = model
                .api
                .pvs
                .iter()
                .find(|(_, pv)| claim_of(pv) == Some(user))
                .map(|(name, _)| name.clone())?;
            change_pv(&mut next, &name, |pv| pv["status"]["phase"] = json!("Released"));
        }
        Move::DeletePv => {
            let name = model
                .api
                .pvs
                .iter()
                .find(|(_, pv)| pv.metadata.deletion_timestamp.is_none() && is_ours(pv))
                .map(|(name, _)| name.clone())?;
            next.deleted += 1;
            change_pv(&mut next, &name, |pv| {
                pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:00:00Z")
            });
        }
        Move::TearPv => {
            let recorded = |pv: &PersistentVolume| {
                let last = model
                    .api
                    .inventory
                    .spec
                    .device_claims
                    .iter()
                    .find_map(|claim| claim.last_pv.as_ref());
                claim_of(pv).is_none()
                    || last.is_some_and(|last| pv.metadata.uid.as_ref() == Some(&last.uid))
            };
            let name = model
                .api
                .pvs
                .iter()
                .find(|(_, pv)| is_ours(pv) && recorded(pv))
                .map(|(name, _)| name.clone())?;
            next.torn += 1;
            next.change(|api| drop(api.pvs.remove(&name)));
        }
        Move::Wipe(job) => return wipe(next, job),
        Move::Report(job) => {
            if model.wiped.as_ref() != Some(job) {
                return None;
            }
            next.wiped = None;
            next.change(|api| {
                let job = api.jobs.get_mut(job).unwrap();
                job.status =
                    serde_json::from_value(json!({"phase": "Succeeded", "runs": 1})).unwrap();
            });
        }
        Move::Pull => {
            model.slot?;
            next.slot = None;
            next.plugged += 1;
        }
        Move::Plug(disk) => {
            if model.slot.is_some() {
                return None;
            }
            next.slot = Some(*disk);
            next.plugged += 1;
        }
        // Before the disk is confirmed as blank: writes to a confirmed disk cannot be foreseen.
        Move::OtherData => {
            let disk = model.slot?;
            let relied_on =
                model.pending.is_some() || !model.api.inventory.spec.device_claims.is_empty();
            let reported = model
                .api
                .inventory
                .status
                .as_ref()
                .is_some_and(|status| !status.device_claims.is_empty());
            if model.disks[disk] != Content::Blank
                || reported
                || (relied_on && model.pending.is_some())
            {
                return None;
            }
            next.disks[disk] = Content::Other;
        }
        Move::UnmanagedPv => {
            if model.api.pvs.contains_key("unmanaged") {
                return None;
            }
            let pv = json!({"metadata": {"name": "unmanaged", "uid": "f"}, "spec": {"local": {"path": "/mnt/local-storage/x/wwn-0"}}, "status": {"phase": "Available"}});
            next.change(|api| {
                drop(api.pvs.insert("unmanaged".into(), serde_json::from_value(pv).unwrap()))
            });
        }
        // Never a disk that is claimed; but a plan that claims it now may be based on an earlier read.
        Move::Volume => {
            let disk = model.slot?;
            if model.disks[disk] != Content::Blank
                || !model.api.inventory.spec.device_claims.is_empty()
            {
                return None;
            }
            next.disks[disk] = Content::Volume;
        }
        Move::VolumeGone => {
            let disk = model.slot.filter(|disk| model.disks[*disk] == Content::Volume)?;
            next.disks[disk] = Content::Blank;
        }
    }
    Some(next)
}

fn api_owner<'a>(
    api: &'a Objects,
    name: &str,
) -> Option<&'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta> {
    api.sets.get(name).map(|set| &set.metadata).or(api
        .local_volume
        .as_ref()
        .filter(|_| name == "lv")
        .map(|volume| &volume.metadata))
}

fn is_ours(pv: &PersistentVolume) -> bool {
    quarry_core::device_claim::pv::is_ours(pv)
}

fn free_pv(api: &Objects) -> Option<String> {
    let free = |pv: &PersistentVolume| {
        pv.metadata.deletion_timestamp.is_none()
            && pv.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none())
            && is_ours(pv)
    };
    api.pvs.iter().find(|(_, pv)| free(pv)).map(|(name, _)| name.clone())
}

fn bind(next: &mut Model, name: &str) {
    next.used += 1;
    let number = next.used;
    next.users.push(number);
    change_pv(next, name, |pv| {
        pv["spec"]["claimRef"] =
            json!({"namespace": "d", "name": "c", "uid": format!("claim-{number}")});
        pv["status"]["phase"] = json!("Bound");
    });
}

fn claim_of(pv: &PersistentVolume) -> Option<u32> {
    pv::pvc_uid(pv)?.strip_prefix("claim-")?.parse().ok()
}

fn bound_disk(api: &Objects, user: u32) -> Option<usize> {
    let pv = api.pvs.values().find(|pv| claim_of(pv) == Some(user))?;
    let of = pv.metadata.annotations.as_ref()?.get(names::IDENTITY_ANNOTATION)?;
    (0..2).find(|disk| identity(*disk) == *of)
}

fn change_pv(model: &mut Model, name: &str, change: impl FnOnce(&mut Value)) {
    let mut object = serde_json::to_value(&model.api.pvs[name]).unwrap();
    change(&mut object);
    model.change(|api| {
        drop(api.pvs.insert(name.to_owned(), serde_json::from_value(object).unwrap()))
    });
}

/// One plan on what this operator has seen; its first writes, each under what it was read at.
fn operate(mut next: Model, operator: usize, writes: usize) -> Option<Model> {
    let mut seen = next.caches[operator].world();
    seen.inventory.metadata.resource_version = Some(version(&next.caches[operator].inventory));
    for demand in next.api.world().demands {
        let missing = seen
            .inventory
            .spec
            .device_claims
            .iter()
            .any(|claim| claim.owner.uid == demand.owner.uid)
            && !seen.demands.iter().any(|known| known.owner.uid == demand.owner.uid);
        if missing {
            seen.demands.push(demand);
        }
    }
    // "There is none" is asked of the API itself where something could be given up because of it.
    let absent = reads::absent_pvs(&seen);
    let ends = |ctx: &ClaimContext<'_>| {
        decide(&seen, ctx, now()).claim.is_none_or(|claim| claim.terminating)
    };
    let unread = claim_contexts(&seen).into_iter().find(|ctx| {
        let name = names::local_pv(super::model::NODE, &ctx.claim.identity);
        ctx.pv.is_none() && ends(ctx) && !absent.contains(&name)
    });
    if let Some(ctx) = unread {
        next.wrong.push(format!("{:?} would end because a cache lacks its volume", ctx.claim));
        return Some(next);
    }
    seen.pvs.extend(absent.iter().filter_map(|name| next.api.pvs.get(name)).cloned().map(Arc::new));
    // What a cache shows instead of the volume that a claim knows may be gone.
    let unfamiliar = reads::unfamiliar(&seen);
    seen.pvs.retain(|pv| pv.metadata.name.as_ref().is_none_or(|name| !unfamiliar.contains(name)));
    seen.pvs
        .extend(unfamiliar.iter().filter_map(|name| next.api.pvs.get(name).cloned()).map(Arc::new));
    for claim in &seen.inventory.spec.device_claims.clone() {
        if let Some(job) = &claim.job
            && !seen.jobs.contains_key(&job.name)
        {
            seen.jobs.extend(
                next.api
                    .jobs
                    .get(&job.name)
                    .map(|found| (job.name.clone(), Arc::new(found.clone()))),
            );
        }
    }
    let observed = node_inventory::Observed {
        name: super::model::NODE.into(),
        node_exists: true,
        inventory: Some(seen.inventory.clone()),
        world: Some(seen.clone()),
        ..node_inventory::Observed::default()
    };
    let planned = node_inventory::plan(&observed, now());
    let violations = node_inventory::check(&observed, &planned);
    if !violations.is_empty() {
        next.wrong.push(format!("the checker refused a plan: {violations:?}"));
        return Some(next);
    }
    let forgets = next.mistake == Some(Mistake::NothingIsKept);
    let mut left = writes;
    let mut changed = false;
    if let Some(node_inventory::Step::Update(update)) = planned.inventory {
        if version(&next.api.inventory) != update.resource_version
            && next.mistake != Some(Mistake::NoVersions)
        {
            return None;
        }
        next.change(|api| {
            api.inventory.spec = update.spec.clone();
            if forgets {
                api.inventory.spec.retained_data.clear();
            }
            if let Some(finalizers) = update.finalizers.clone() {
                api.inventory.metadata.finalizers = Some(finalizers);
            }
        });
        (left, changed) = (left - 1, true);
    }
    for step in planned.claims.map(|claims| claims.steps).unwrap_or_default() {
        if left == 0 {
            break;
        }
        match step {
            Step::CreateClass(_) => continue,
            Step::CreatePv(pv) => {
                let name = pv.metadata.name.clone().unwrap();
                // As `apply` does: the claim and its confirmation must be live.
                let same = serde_json::to_value(&next.api.inventory.spec.device_claims).unwrap()
                    == serde_json::to_value(&seen.inventory.spec.device_claims).unwrap();
                let reports = |inventory: &quarry_api::NodeInventory| {
                    inventory.status.as_ref().map(|status| status.device_claims.clone())
                };
                if next.api.pvs.contains_key(&name)
                    || !same
                    || reports(&next.api.inventory) != reports(&seen.inventory)
                {
                    break;
                }
                next.made += 1;
                let mut pv = *pv;
                pv.metadata.uid = Some(format!("pv-{}", next.made));
                pv.status = serde_json::from_value(json!({"phase": "Available"})).unwrap();
                next.change(|api| drop(api.pvs.insert(name, pv)));
            }
            Step::DeletePv { name, uid, .. } => {
                let read = next.caches[operator].pvs.get(&name).map(version);
                let Some(found) = next.api.pvs.get(&name).filter(|found| {
                    found.metadata.uid.as_deref() == Some(&uid) && Some(version(*found)) == read
                }) else {
                    break;
                };
                if found.metadata.deletion_timestamp.is_none() {
                    change_pv(&mut next, &name, |pv| {
                        pv["metadata"]["deletionTimestamp"] = json!("2026-01-01T02:00:00Z")
                    });
                }
            }
            Step::ReleasePv { name, .. } => {
                let read = seen
                    .pvs
                    .iter()
                    .find(|pv| pv.metadata.name.as_deref() == Some(&name))
                    .map(|pv| version(pv.as_ref()));
                if next.api.pvs.get(&name).map(version) != read {
                    break;
                }
                next.change(|api| drop(api.pvs.remove(&name)));
            }
            Step::CreateJob(job) => {
                let name = job.metadata.name.clone().unwrap();
                if next.api.jobs.contains_key(&name) {
                    continue;
                }
                next.change(|api| drop(api.jobs.insert(name, *job)));
            }
        }
        (left, changed) = (left - 1, true);
    }
    changed.then_some(next)
}

/// The agent's live check, and the wipe. What it destroys is checked from outside.
fn wipe(mut next: Model, name: &str) -> Option<Model> {
    let job = next.api.jobs.get(name)?;
    if next.wiped.is_some()
        || job.status.as_ref().and_then(|status| status.phase).is_some_and(JobPhase::finished)
    {
        return None;
    }
    let Ok(Task::Wipe(device)) = Task::try_from(&job.spec) else { return None };
    let pv = next.api.pvs.get(device.pv.as_str()).cloned();
    let claimed = pv.as_ref().and_then(claim_of);
    let unused = claimed.is_none();
    let live = WipePrecondition {
        node_uid: Some("node".into()),
        owner_uid: api_owner(&next.api, &job.spec.owner.name).and_then(|meta| meta.uid.clone()),
        inventory: Some(next.api.inventory.clone()),
        pvc_uid: claimed
            .filter(|user| next.users.contains(user))
            .map(|user| format!("claim-{user}")),
        pv,
    };
    let allowed = check_wipe(name, &job.spec, &device, &live).is_ok();
    let disk = next.slot.filter(|disk| device.identity == identity(*disk));
    let (true, Some(disk)) = (allowed, disk) else {
        // Void: the job fails, and a new one is made if it is still wanted. Failing is left to the simulator.
        return None;
    };
    if unused {
        next.wrong.push("a PersistentVolume that was never used was wiped".into());
    }
    match &next.disks[disk] {
        Content::Data(user) if next.users.contains(user) => {
            next.wrong.push(format!("the data of claim {user} was wiped while it exists"))
        }
        Content::Volume => next.wrong.push("a Volume's disk was wiped".into()),
        Content::Other
            if !next.api.inventory.spec.device_claims.iter().any(|claim| claim.path.is_some()) =>
        {
            next.wrong.push("data of another process was wiped".into())
        }
        Content::Data(_) | Content::Other | Content::Blank => {}
    }
    next.disks[disk] = Content::Blank;
    next.wiped = Some(name.to_owned());
    Some(next)
}
