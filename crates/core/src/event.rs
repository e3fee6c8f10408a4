//! Events as values: `kubectl describe` and `quarry explain` show them.
//!
//! The name is a hash of object, reason and message: publishing the same Event again (after a crash, by a second leader)
//! finds the existing object, and two different messages never become one.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
pub use quarry_api::names::EVENTS_OF_CLUSTER_OBJECTS;
use quarry_api::node_job::hex_digest;

/// An Event that is published once, after the plan was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEvent {
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl PendingEvent {
    /// With the API server's answer, which is known only after the plan.
    pub fn with_answer(&self, answer: &str) -> Self {
        PendingEvent { message: format!("{}: {answer}", self.message), ..self.clone() }
    }
}

/// The object of the Events, and their source.
#[derive(Clone, Debug)]
pub struct AboutObject {
    pub reference: ObjectReference,
    pub namespace: String,
    pub component: String,
    pub host: Option<String>,
}

impl AboutObject {
    pub fn event(&self, warning: bool, reason: &str, message: &str, now: Timestamp) -> Event {
        let uid = self.reference.uid.as_deref().unwrap_or_default();
        let name = format!(
            "{}.{}",
            self.reference.name.as_deref().unwrap_or_default(),
            &hex_digest(&[uid, reason, message])[..16]
        );
        let now = Time(Timestamp::from_second(now.as_second()).unwrap_or_default());
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: self.reference.clone(),
            type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource {
                component: Some(self.component.clone()),
                host: self.host.clone(),
            }),
            ..Event::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_messages_are_one_event_and_others_are_not() {
        let about = AboutObject {
            reference: ObjectReference {
                name: Some("n1".into()),
                uid: Some("u".into()),
                ..ObjectReference::default()
            },
            namespace: "default".into(),
            component: "c".into(),
            host: None,
        };
        let name = |message: &str, second| {
            about.event(false, "R", message, Timestamp::from_second(second).unwrap()).metadata.name
        };
        assert_eq!(name("a", 1), name("a", 2));
        assert_ne!(name("a", 1), name("b", 1));
    }
}
