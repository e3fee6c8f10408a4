//! Events for people, told: best effort, a lost event never holds back the work. What they are: `quarry_core::event`.

use crate::{Context, writer::is_code};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use quarry_core::{
    event::PendingEvent,
    event::{AboutObject, EVENTS_OF_CLUSTER_OBJECTS},
};
use serde_json::json;

pub async fn tell<K: Resource<DynamicType = ()>>(
    context: &Context,
    object: &K,
    notes: &[PendingEvent],
) {
    for note in notes {
        if let Err(error) = tell_one(context, object, note).await {
            tracing::warn!(object = %object.name_any(), reason = note.reason, %error, "an event could not be told");
        }
    }
}

async fn tell_one<K: Resource<DynamicType = ()>>(
    context: &Context,
    object: &K,
    note: &PendingEvent,
) -> Result<(), kube::Error> {
    let about = AboutObject {
        reference: object.object_ref(&()),
        namespace: object.namespace().unwrap_or_else(|| EVENTS_OF_CLUSTER_OBJECTS.to_owned()),
        component: "quarry-operator".to_owned(),
        host: None,
    };
    let event = about.event(note.warning, note.reason, &note.message, context.now());
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
