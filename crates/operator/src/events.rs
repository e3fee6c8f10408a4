//! Publishes Events: best effort, a lost one never holds back the work. What they are: `quarry_core::event`.

use crate::{Context, writer::is_code};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams, PostParams},
};
use quarry_core::event::{AboutObject, EVENTS_OF_CLUSTER_OBJECTS, PendingEvent};
use serde_json::json;

pub async fn publish<K: Resource<DynamicType = ()>>(
    context: &Context,
    object: &K,
    events: &[PendingEvent],
) {
    publish_on(context, object.object_ref(&()), events).await;
}

pub async fn publish_on(context: &Context, object: ObjectReference, events: &[PendingEvent]) {
    for event in events {
        if let Err(error) = publish_one(context, &object, event).await {
            let name = object.name.as_deref().unwrap_or_default();
            tracing::warn!(object = name, reason = event.reason, %error, "failed to publish Event");
        }
    }
}

async fn publish_one(
    context: &Context,
    object: &ObjectReference,
    event: &PendingEvent,
) -> Result<(), kube::Error> {
    let about = AboutObject {
        reference: object.clone(),
        namespace: object.namespace.clone().unwrap_or_else(|| EVENTS_OF_CLUSTER_OBJECTS.to_owned()),
        component: "quarry-operator".to_owned(),
        host: None,
    };
    let event = about.event(event.warning, event.reason, &event.message, context.now());
    let api: Api<Event> = Api::namespaced(context.client.clone(), &about.namespace);
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => Ok(()),
        Err(error) if is_code(&error, 409) => {
            let name = event.metadata.name.as_deref().unwrap_or_default();
            let count = api.get(name).await?.count.unwrap_or(1) + 1;
            let again = json!({"count": count, "lastTimestamp": event.last_timestamp});
            api.patch(name, &PatchParams::default(), &Patch::Merge(&again)).await.map(|_| ())
        }
        Err(error) => Err(error),
    }
}
