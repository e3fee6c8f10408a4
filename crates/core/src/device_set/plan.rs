//! The order of the questions: who serves the cluster, what is wrong with it, how it is reached, then each OSD alone.

use super::{
    Access, Observed, Plan, Step, claims,
    index::Index,
    osd::{self, Nodes, Osd, OsdState},
    pods,
    provider::{CephProvider, Prepared, Provider},
    report::{self, Report},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::JobCondition;
use kube::ResourceExt;
use quarry_api::{
    CephCluster,
    ceph_cluster::{DeviceSet, TemplateRole, problems},
};
use quarry_ceph::command::crush_location;

/// While something moves on its own: a Job runs, an OSD starts.
const SOON: SignedDuration = SignedDuration::from_secs(2);
/// While a person is waited for.
const LATER: SignedDuration = SignedDuration::from_secs(20);
const AT_REST: SignedDuration = SignedDuration::from_secs(60);
/// A Job that has failed is made again after this time: the cause may be gone.
const RETRY: SignedDuration = SignedDuration::from_mins(5);
/// PVCs that are created at once: the volumes of a thousand are not looked for in one moment.
const NEW_AT_ONCE: usize = 50;

pub fn plan(observed: &Observed, now: Timestamp) -> Plan {
    plan_with(observed, &CephProvider, now)
}

pub fn plan_with(observed: &Observed, provider: &dyn Provider, now: Timestamp) -> Plan {
    let cluster = &observed.cluster;
    if cluster.metadata.deletion_timestamp.is_some() || cluster.spec.device_sets().next().is_none()
    {
        return finish(observed, Vec::new(), Report::none(), None, now);
    }
    if let Some(rook) = &observed.rook {
        let report = Report::blocked(
            "ServedByRook",
            format!(
                "Deployment {rook} serves this cluster, and nothing is done here; scale it to 0 to have Quarry serve it"
            ),
        );
        return finish(observed, Vec::new(), report, Some(AT_REST), now);
    }
    if cluster.spec.is_external() {
        let report = Report::blocked("External", "spec.external.enable is true: a cluster that runs elsewhere has no device sets; remove it, or the sets".to_owned());
        return finish(observed, Vec::new(), report, None, now);
    }
    if let Some(first) = first_of_namespace(observed) {
        let report = Report::blocked(
            "OtherClusterServed",
            format!(
                "CephCluster {first} is older, and a namespace has the OSDs of one cluster; move this one to a namespace of its own, or add its sets to {first}"
            ),
        );
        return finish(observed, Vec::new(), report, Some(AT_REST), now);
    }
    let access = match ready(observed) {
        Ok(access) => access,
        Err(problem) => {
            let report = Report::blocked("NotReachable", problem);
            return finish(observed, Vec::new(), report, Some(LATER), now);
        }
    };
    let index = &Index::new(observed);
    let mut work = Work { observed, index, provider, access, steps: Vec::new(), soon: None, now };
    work.apply_config();
    let invalid = problems(&cluster.spec);
    let mut report = Report::default();
    for (at, set) in cluster.spec.device_sets().enumerate() {
        let wrong: Vec<String> =
            invalid.iter().filter(|one| one.set == at).map(ToString::to_string).collect();
        report.notes.extend(provider.problems(set));
        if !wrong.is_empty() {
            report.invalid.extend(wrong);
            continue;
        }
        work.set(set, &mut report);
    }
    report.add_removed_sets(index);
    let Work { steps, soon, .. } = work;
    let requeue = soon.unwrap_or(if report.is_ready() { AT_REST } else { LATER });
    finish(observed, steps, report, Some(requeue), now)
}

/// Secrets, names and labels in a namespace are those of one Ceph cluster: the oldest object has them.
fn first_of_namespace(observed: &Observed) -> Option<String> {
    let age = |one: &CephCluster| {
        (one.metadata.creation_timestamp.as_ref().map(|time| time.0), one.name_any())
    };
    let first = observed.others.iter().min_by_key(|one| age(one))?;
    (age(first) < age(&observed.cluster)).then(|| first.name_any())
}

/// `Err`: what is missing before the first OSD.
fn ready(observed: &Observed) -> Result<&Access, String> {
    pods::image(&observed.cluster)?;
    observed.access.as_ref().map_err(Clone::clone)
}

struct Work<'a> {
    observed: &'a Observed,
    index: &'a Index<'a>,
    provider: &'a dyn Provider,
    access: &'a Access,
    steps: Vec<Step>,
    soon: Option<SignedDuration>,
    now: Timestamp,
}

impl Work<'_> {
    fn soon(&mut self) {
        self.soon = Some(SOON);
    }

    fn apply_config(&mut self) {
        // Unusable text is reported by the prepare Jobs, with its line.
        if let Ok(config) = pods::config(&self.observed.cluster, self.access) {
            let known = self.observed.config.as_ref();
            if known.and_then(|one| one.data.as_ref()) != config.data.as_ref() {
                self.steps.push(Step::ApplyConfig(Box::new(config)));
            }
        }
    }

    fn set(&mut self, set: &DeviceSet, report: &mut Report) {
        let Ok(roles) = set.roles() else { return };
        if let Some(problem) = self.class_problem(set) {
            report.invalid.push(problem);
            return;
        }
        let existing = claims::of_set(self.index, set);
        let (count, new) = (existing.len(), claims::new_indices(&existing, set.wanted()));
        for osd in osd::of_claims(self.index, self.provider, set, existing) {
            self.osd(&osd);
            report.add(&osd);
        }
        let surplus = count.saturating_sub(set.wanted());
        if surplus > 0 {
            report.notes.push(format!(
                "set {} has {} OSDs, and its count is {}: they stay; remove an OSD from Ceph first, then its Deployment and PVCs",
                set.name,
                count,
                set.wanted()
            ));
        }
        for index in new.iter().take(NEW_AT_ONCE) {
            let osd = osd::new(set, &roles, *index);
            self.create_claims(&osd);
            report.add(&osd);
        }
        report.waiting += new.len().saturating_sub(NEW_AT_ONCE);
    }

    /// A class that does not exist would leave every PVC waiting for ever, without a word.
    fn class_problem(&self, set: &DeviceSet) -> Option<String> {
        let classes = &self.observed.classes;
        set.volume_claim_templates.iter().enumerate().find_map(|(at, template)| {
            let named = template.spec.storage_class_name.as_deref().filter(|name| !name.is_empty());
            match named {
                Some(name) if !classes.iter().any(|class| class.name_any() == name) => Some(format!(
                    "volumeClaimTemplates[{at}].spec.storageClassName of set {} names StorageClass {name}, which does not exist; create it, or name another",
                    set.name
                )),
                None if claims::default_class(self.observed).is_none() => Some(format!(
                    "volumeClaimTemplates[{at}].spec.storageClassName of set {} is not set, and the cluster has no default StorageClass; name one",
                    set.name
                )),
                Some(_) | None => None,
            }
        })
    }

    fn create_claims(&mut self, osd: &Osd<'_>) {
        let cluster = &self.observed.cluster;
        // The data PVC first, and the others when it exists: without it they would look like what a lost one has left.
        let has_data = osd.data().is_some();
        let is_next = |at: &usize| match has_data {
            true => !osd.claims.0.contains_key(at),
            false => osd.roles[*at] == TemplateRole::Data,
        };
        for at in (0..osd.roles.len()).filter(is_next) {
            let made = claims::claim(cluster, osd.set, osd.index, at, osd.roles[at]);
            self.steps.push(Step::CreateClaim(Box::new(made)));
        }
        self.soon();
    }

    fn osd(&mut self, osd: &Osd<'_>) {
        match &osd.state {
            OsdState::New => self.create_claims(osd),
            OsdState::Unprepared => self.create_job(osd),
            OsdState::Preparing | OsdState::Starting => self.soon(),
            // Its Job tries again, or has given up.
            OsdState::PrepareFailed(_) if failed_job(osd).is_none() => self.soon(),
            OsdState::ResultLost => self.delete_job(osd),
            OsdState::Prepared => self.start(osd),
            OsdState::Unscheduled(_)
            | OsdState::PrepareFailed(_)
            | OsdState::Refused(_)
            | OsdState::Running
            | OsdState::NotReady(_)
            | OsdState::ClaimLost(_)
            | OsdState::Conflict(_) => {}
        }
        if matches!(osd.state, OsdState::PrepareFailed(_) | OsdState::Refused(_))
            && self.is_due(osd)
        {
            self.delete_job(osd);
        }
        if let Some(text) = &osd.unrecorded {
            let made = pods::result(&self.observed.cluster, osd, text);
            self.steps.push(Step::RecordResult(Box::new(made)));
        }
    }

    /// A Job that has ended without success is made again, because its cause may be gone.
    fn is_due(&self, osd: &Osd<'_>) -> bool {
        let at = failed_job(osd).and_then(|one| one.last_transition_time.as_ref());
        at.is_some_and(|at| self.now.duration_since(at.0) >= RETRY)
    }

    fn create_job(&mut self, osd: &Osd<'_>) {
        let image = &self.observed.cluster.spec.ceph_version.image;
        let job = pods::prepare_job(self.observed, self.provider, osd, self.access, image);
        self.steps.push(Step::CreateJob(Box::new(job)));
        self.soon();
    }

    fn delete_job(&mut self, osd: &Osd<'_>) {
        let Some(job) = osd.job else { return };
        let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
        if job.metadata.deletion_timestamp.is_none() {
            self.steps.push(Step::DeleteJob { name, uid });
        }
        self.soon();
    }

    fn start(&mut self, osd: &Osd<'_>) {
        let Some(Ok(prepared)) = &osd.result else { return };
        let node = match osd::nodes_of(osd, self.index) {
            Nodes::One(node) => Some(node),
            Nodes::Several => None,
            // Without it an OSD that stays on its node would be made one that may move.
            Nodes::Unseen => return self.soon(),
        };
        let portable = osd.set.portable.unwrap_or(node.is_none());
        // A volume that can be used on several nodes stays where it was prepared, if it is not to move.
        let prepared_on = || self.observed.nodes.iter().find(|one| one.name_any() == prepared.node);
        let pinned = match portable {
            true => None,
            false => node.or_else(|| prepared_on().map(AsRef::as_ref)),
        };
        if !portable && pinned.is_none() {
            return self.soon();
        }
        let host = pinned.map(hostname);
        let levels = node.map(osd::levels).unwrap_or_default();
        let levels: Vec<(&str, &str)> =
            levels.iter().map(|(level, value)| (*level, value.as_str())).collect();
        let of_crush = host.as_deref().unwrap_or_else(|| osd.data_claim());
        let prepared =
            Prepared { location: crush_location("default", of_crush, &levels), ..prepared.clone() };
        let image = &self.observed.cluster.spec.ceph_version.image;
        let made = pods::deployment(
            self.observed,
            self.provider,
            osd,
            self.access,
            image,
            &prepared,
            host.as_deref(),
        );
        self.steps.push(Step::CreateDeployment(Box::new(made)));
        self.soon();
    }
}

/// Why the Job of an OSD has given up.
fn failed_job<'a>(osd: &Osd<'a>) -> Option<&'a JobCondition> {
    osd::condition(osd.job?, "Failed")
}

/// The value that a node selector needs, which may differ from the name of the node.
fn hostname(node: &k8s_openapi::api::core::v1::Node) -> String {
    let label = node.labels().get("kubernetes.io/hostname").cloned();
    label.unwrap_or_else(|| node.name_any())
}

fn finish(
    observed: &Observed,
    steps: Vec<Step>,
    report: Report,
    requeue: Option<SignedDuration>,
    now: Timestamp,
) -> Plan {
    let (status, events) = report::write(observed, &report, now);
    Plan { steps, status, events, counts: report.counts, requeue }
}
