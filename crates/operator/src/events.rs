//! Events for people: `kubectl describe` and `quarry explain` show them.
//!
//! The name is a hash of object, reason and message, so that the same event told again (after a crash, by
//! a second leader) raises a count instead of making another object. Telling is best effort: a lost event
//! never holds back the work.

use crate::{Context, writer::is_code};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use quarry_api::node_job::hex_digest;
use quarry_core::volume::Note;
use serde_json::json;

/// Events of cluster-scoped objects live here, as the API conventions have it.
const CLUSTER_EVENTS: &str = "default";

pub async fn tell<K: Resource<DynamicType = ()>>(context: &Context, object: &K, notes: &[Note]) {
    for note in notes {
        if let Err(error) = tell_one(context, object, note).await {
            tracing::warn!(object = %object.name_any(), reason = note.reason, %error, "an event could not be told");
        }
    }
}

async fn tell_one<K: Resource<DynamicType = ()>>(context: &Context, object: &K, note: &Note) -> Result<(), kube::Error> {
    let namespace = object.namespace().unwrap_or_else(|| CLUSTER_EVENTS.to_owned());
    let uid = object.uid().unwrap_or_default();
    let name = format!("{}.{}", object.name_any(), &hex_digest(&[&uid, note.reason, &note.message])[..16]);
    let api: Api<Event> = Api::namespaced(context.client.clone(), &namespace);
    let now = Time(Timestamp::from_second(context.now().as_second()).unwrap_or_default());
    let event = Event {
        metadata: ObjectMeta { name: Some(name.clone()), namespace: Some(namespace), ..ObjectMeta::default() },
        involved_object: ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: Some(object.name_any()),
            namespace: object.namespace(),
            uid: Some(uid),
            resource_version: object.resource_version(),
            field_path: None,
        },
        type_: Some(if note.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(note.reason.to_owned()),
        message: Some(note.message.clone()),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now.clone()),
        source: Some(EventSource { component: Some("quarry-operator".to_owned()), host: None }),
        ..Event::default()
    };
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => Ok(()),
        Err(error) if is_code(&error, 409) => {
            let count = api.get(&name).await?.count.unwrap_or(1) + 1;
            let again = json!({"count": count, "lastTimestamp": now});
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&again)).await.map(|_| ())
        }
        Err(error) => Err(error),
    }
}
