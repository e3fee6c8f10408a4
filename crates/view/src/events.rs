//! The Events of an object, as explanations show them.

use crate::reader::Reader;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Resource, api::ListParams};
use serde::Serialize;

/// As many as are read at a glance.
const RECENT: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// When it last happened.
    pub time: Option<Timestamp>,
    /// Normal or Warning.
    #[serde(rename = "type")]
    pub kind: String,
    pub reason: String,
    pub message: String,
    /// How often, if more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
}

/// The latest of these, oldest first.
pub fn recent(events: &[Event]) -> Vec<EventView> {
    events.iter().skip(events.len().saturating_sub(RECENT)).map(EventView::new).collect()
}

impl EventView {
    fn new(event: &Event) -> Self {
        let count = event.series.as_ref().and_then(|series| series.count).or(event.count);
        EventView {
            time: event_time(event),
            kind: event.type_.clone().unwrap_or_default(),
            reason: event.reason.clone().unwrap_or_default(),
            message: event.message.clone().unwrap_or_default(),
            count: count.filter(|count| *count > 1),
        }
    }
}

/// The Events of an object, oldest first, without those of an earlier object of the same name.
pub async fn read<K, R: Reader>(reader: &R, object: &K) -> Result<Vec<Event>, R::Error>
where
    K: Resource<DynamicType = ()>,
{
    let name = object.meta().name.clone().unwrap_or_default();
    let api: Api<Event> = Api::all(reader.client());
    of_object(reader, api, &K::kind(&()), &name, object.meta().uid.as_ref()).await
}

/// The same, for a user who may read one namespace only.
pub async fn read_in<R: Reader>(
    reader: &R,
    namespace: &str,
    kind: &str,
    name: &str,
    uid: Option<&String>,
) -> Result<Vec<Event>, R::Error> {
    of_object(reader, Api::namespaced(reader.client(), namespace), kind, name, uid).await
}

async fn of_object<R: Reader>(
    reader: &R,
    api: Api<Event>,
    kind: &str,
    name: &str,
    uid: Option<&String>,
) -> Result<Vec<Event>, R::Error> {
    let selector = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let params = ListParams::default().fields(&selector);
    let mut events = reader.call("reading its Events", api.list(&params)).await?.items;
    events.retain(|event| {
        let of = event.involved_object.uid.as_ref();
        of.is_none() || of == uid
    });
    sort(&mut events);
    Ok(events)
}

/// The oldest first. Times are whole seconds: within one, the resourceVersion gives the order.
pub(crate) fn sort(events: &mut [Event]) {
    let version = |event: &Event| event.metadata.resource_version.as_deref()?.parse::<u64>().ok();
    events.sort_by_key(|event| (event_time(event), version(event)));
}

/// When it last happened, whichever of the two APIs wrote it.
fn event_time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    series
        .map(|time| time.0)
        .or(event.last_timestamp.as_ref().map(|time| time.0))
        .or(event.event_time.as_ref().map(|time| time.0))
        .or(event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}
