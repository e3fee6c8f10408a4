//! A complete controller in one file, with a CRD of its own: what CONTRIBUTING.md asks for, and nothing else. Also used by
//! the tests of the command line.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, CustomResource, KubeSchema, Resource, ResourceExt};
use quarry_operator::{
    Context,
    cache::Cached,
    controller::{Controller, Failure, Group, Need, Next},
    trigger::Triggers,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt;

#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "test.quarry.dev",
    version = "v1alpha1",
    kind = "Echo",
    plural = "echoes",
    status = "EchoStatus"
)]
pub struct EchoSpec {
    pub message: String,
}

#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EchoStatus {
    pub answer: Option<String>,
}

impl Cached for Echo {}

pub struct EchoController;

#[derive(Debug)]
pub struct EmptyAnswer;

impl fmt::Display for EmptyAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an empty answer")
    }
}

impl Controller for EchoController {
    const NAME: &'static str = "echo";
    const GROUP: Group = "echo";
    const NEEDS: &'static [Need] =
        &[Need { crd: "echoes.test.quarry.dev", fields: &["spec.message", "status.answer"] }];
    type Observed = Echo;
    type Plan = EchoStatus;
    type Violation = EmptyAnswer;

    fn triggers(triggers: &mut Triggers<'_>) {
        triggers.on::<Echo>(|change, _, enqueue| enqueue(change.object().name_any()));
    }

    async fn observe(context: &Context, key: &str) -> Result<Option<Echo>, Failure> {
        Ok(context.caches.get::<Echo>(key).map(|found| (*found).clone()))
    }

    fn plan(observed: &Echo, _now: Timestamp) -> EchoStatus {
        EchoStatus { answer: Some(observed.spec.message.to_uppercase()) }
    }

    fn check(_observed: &Echo, plan: &EchoStatus) -> Vec<EmptyAnswer> {
        let empty = plan.answer.as_ref().is_none_or(String::is_empty);
        if empty { vec![EmptyAnswer] } else { Vec::new() }
    }

    async fn apply(context: &Context, observed: &Echo, plan: EchoStatus) -> Result<Next, Failure> {
        let api: Api<Echo> = Api::all(context.client.clone());
        let version = observed.resource_version().unwrap_or_default();
        let old = json!(observed.status.clone().unwrap_or_default());
        let name = observed.name_any();
        let written = context.writer.patch_status(&api, &name, &version, &old, &json!(plan)).await;
        written.map_err(|error| Failure::api("writing the status of an Echo", error))?;
        Ok(Next::AwaitChange)
    }

    fn subject(observed: &Echo) -> Option<ObjectReference> {
        Some(observed.object_ref(&()))
    }
}
