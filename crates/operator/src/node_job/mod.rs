//! The NodeJob controller: deletes finished jobs by age, never one that an object names.

use crate::{
    Context,
    cache::Cached,
    controller::{Controller, Failure, Group, Need, Next},
    registry::group,
    trigger::Triggers,
};
use jiff::Timestamp;
use kube::{Api, ResourceExt};
use quarry_api::{NodeInventory, NodeJob, Volume, node_inventory::DeviceClaim};
use quarry_core::{
    node_job::{self, Observed, Plan, Violation},
    volume::observed::job_name,
};

impl Cached for NodeJob {}

pub struct NodeJobController;

impl Controller for NodeJobController {
    const NAME: &'static str = "nodejob";
    const GROUP: Group = group::NODE_JOB;
    const NEEDS: &'static [Need] = &[];
    type Observed = Observed;
    type Plan = Plan;
    type Violation = Violation;

    fn triggers(triggers: &mut Triggers<'_>) {
        triggers
            .on::<NodeJob>(|change, _, enqueue| enqueue(change.object().name_any()))
            // A job that its owner no longer names may be deleted in time.
            .also_on::<Volume>(|change, _, enqueue| {
                let (before, after) =
                    (change.before.and_then(job_name), change.after.and_then(job_name));
                before.filter(|job| after.as_ref() != Some(job)).into_iter().for_each(enqueue);
            })
            .on::<NodeInventory>(|change, _, enqueue| {
                let (before, after) = (claims(change.before), claims(change.after));
                let names = |claim: &DeviceClaim| claim.job.as_ref().map(|job| job.name.clone());
                let after: Vec<String> = after.iter().filter_map(names).collect();
                let gone = before.iter().filter_map(names).filter(|job| !after.contains(job));
                gone.for_each(enqueue);
            });
    }

    async fn observe(context: &Context, key: &str) -> Result<Option<Observed>, Failure> {
        let caches = &context.caches;
        let Some(job) = caches.get::<NodeJob>(key) else { return Ok(None) };
        Ok(Some(Observed {
            volumes_watched: context.is_on(group::VOLUME),
            volume: caches.get(&job.spec.owner.name),
            inventory: caches.get(&job.spec.node_name),
            retention: context.job_retention,
            job,
        }))
    }

    fn plan(observed: &Observed, now: Timestamp) -> Plan {
        node_job::plan(observed, now)
    }

    fn check(observed: &Observed, plan: &Plan) -> Vec<Violation> {
        node_job::check(observed, plan)
    }

    async fn apply(context: &Context, observed: &Observed, plan: Plan) -> Result<Next, Failure> {
        match plan {
            Plan::Keep => Ok(Next::AwaitChange),
            Plan::KeepFor(time) => Ok(Next::Requeue(time)),
            Plan::Delete { uid, resource_version } => {
                let name = observed.job.name_any();
                let api: Api<NodeJob> = Api::all(context.client.clone());
                let deleted =
                    context.writer.delete(&api, &name, &uid, Some(&resource_version)).await;
                deleted.map_err(|error| Failure::api(format!("deleting NodeJob {name}"), error))?;
                tracing::info!(job = name, "deleted NodeJob");
                Ok(Next::AwaitChange)
            }
        }
    }
}

fn claims(inventory: Option<&NodeInventory>) -> &[DeviceClaim] {
    inventory.map(|inventory| inventory.spec.device_claims.as_slice()).unwrap_or_default()
}
