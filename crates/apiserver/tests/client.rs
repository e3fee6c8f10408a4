//! The embedded API used through the kube client, in process, on one thread with paused time.

mod common;

use common::{Widget, WidgetSpec, server, widget};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume};
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::events::{Event as NewEvent, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizing, finalizer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn objects_are_created_read_listed_and_removed() {
    let widgets: Api<Widget> = Api::default_namespaced(server().client("default"));
    let created = widgets.create(&PostParams::default(), &widget("a", "12")).await.unwrap();
    assert_eq!(created.metadata.generation, Some(1));
    assert_eq!(created.spec.color.as_deref(), Some("red"), "the default is set");
    assert!(created.uid().is_some() && created.resource_version().is_some());
    assert_eq!(widgets.get("a").await.unwrap().spec.size, "12");
    assert_eq!(widgets.list(&ListParams::default()).await.unwrap().items.len(), 1);
    widgets.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(widgets.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn stale_write_conflicts() {
    let widgets: Api<Widget> = Api::default_namespaced(server().client("default"));
    let first = widgets.create(&PostParams::default(), &widget("a", "12")).await.unwrap();
    let mut second = first.clone();
    second.spec.size = "13".into();
    let second = widgets.replace("a", &PostParams::default(), &second).await.unwrap();
    assert_eq!(second.metadata.generation, Some(2));
    let refused = widgets.replace("a", &PostParams::default(), &first).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        status.message,
        "Operation cannot be fulfilled on widgets.example.com \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_separately() {
    let widgets: Api<Widget> = Api::default_namespaced(server().client("default"));
    widgets.create(&PostParams::default(), &widget("a", "12")).await.unwrap();
    let merge = |value| Patch::Merge(value);
    let params = PatchParams::default();
    let main = widgets
        .patch("a", &params, &merge(json!({"spec": {"size": "14"}, "status": {"x": 1}})))
        .await
        .unwrap();
    assert_eq!((main.metadata.generation, main.status), (Some(2), None));
    let status = widgets
        .patch_status("a", &params, &merge(json!({"spec": {"size": "15"}, "status": {"x": 1}})))
        .await
        .unwrap();
    assert_eq!((status.metadata.generation, status.spec.size.as_str()), (Some(2), "14"));
    assert_eq!(status.status, Some(json!({"x": 1})));
    let again =
        widgets.patch_status("a", &params, &merge(json!({"status": {"x": 1}}))).await.unwrap();
    assert_eq!(
        again.resource_version(),
        status.resource_version(),
        "nothing changed, nothing is written"
    );
}

#[tokio::test(start_paused = true)]
async fn watcher_gets_all_events_in_order() {
    let server = server();
    let widgets: Api<Widget> = Api::default_namespaced(server.client("default"));
    widgets.create(&PostParams::default(), &widget("a", "12")).await.unwrap();
    for streaming in [false, true] {
        let config = if streaming {
            watcher::Config::default().streaming_lists()
        } else {
            watcher::Config::default()
        };
        let mut events = watcher(widgets.clone(), config).applied_objects().boxed();
        assert_eq!(events.try_next().await.unwrap().unwrap().name_any(), "a");
        let name = if streaming { "c" } else { "b" };
        widgets.create(&PostParams::default(), &widget(name, "12")).await.unwrap();
        let mut seen = events.try_next().await.unwrap().unwrap();
        while seen.name_any() != name {
            seen = events.try_next().await.unwrap().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn selector_turns_changes_into_added_and_deleted() {
    let widgets: Api<Widget> = Api::default_namespaced(server().client("default"));
    let created = widgets.create(&PostParams::default(), &widget("a", "12")).await.unwrap();
    let params = WatchParams::default().labels("on=yes").timeout(10);
    let mut events =
        widgets.watch(&params, &created.resource_version().unwrap()).await.unwrap().boxed();
    for on in [json!("yes"), json!("no")] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"on": on}}}));
        widgets.patch("a", &PatchParams::default(), &patch).await.unwrap();
    }
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Deleted(_))));
    assert!(
        matches!(events.try_next().await.unwrap(), None | Some(WatchEvent::Bookmark(_))),
        "it times out"
    );
}

#[tokio::test(start_paused = true)]
async fn kubes_finalizer_helper_works() {
    let widgets: Api<Widget> = Api::default_namespaced(server().client("default"));
    let step = |widget: Widget| {
        let widgets = widgets.clone();
        async move {
            finalizer(&widgets, "example.com/f", Arc::new(widget), |event| async move {
                match event {
                    Finalizing::Apply(_) | Finalizing::Cleanup(_) => {
                        Ok::<_, std::io::Error>(kube::runtime::controller::Action::await_change())
                    }
                }
            })
            .await
        }
    };
    let created = widgets.create(&PostParams::default(), &widget("a", "12")).await.unwrap();
    step(created).await.unwrap();
    let held = widgets.get("a").await.unwrap();
    assert_eq!(held.finalizers(), ["example.com/f"]);
    let waiting = widgets.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(waiting.metadata.deletion_timestamp.is_some());
    assert_eq!(waiting.metadata.generation, Some(2), "a delete increments the generation");
    step(widgets.get("a").await.unwrap()).await.unwrap();
    assert!(widgets.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn kubes_recorder_events_appear_in_the_core_group() {
    let client = server().client("default");
    let widgets: Api<Widget> = Api::default_namespaced(client.clone());
    let created = widgets.create(&PostParams::default(), &widget("a", "12")).await.unwrap();
    let reporter = Reporter { controller: "tests".into(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    let event = NewEvent {
        type_: EventType::Warning,
        reason: "Broken".into(),
        note: Some("it broke".into()),
        action: "Testing".into(),
        secondary: None,
    };
    for _ in 0..2 {
        recorder.publish(&event, &created.object_ref(&())).await.unwrap();
    }
    let events: Api<Event> = Api::default_namespaced(client);
    let list = events
        .list(&ListParams::default().fields("involvedObject.name=a,type=Warning"))
        .await
        .unwrap();
    let [only] = list.items.as_slice() else { panic!("{list:?}") };
    assert_eq!(only.message.as_deref(), Some("it broke"));
    assert_eq!(only.involved_object.kind.as_deref(), Some("Widget"));
    assert_eq!(only.series.as_ref().and_then(|series| series.count), Some(2));
}

#[tokio::test(start_paused = true)]
async fn dependents_are_deleted_with_their_owner_across_scopes() {
    let client = server().client("default");
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let widgets: Api<Widget> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let pv: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": "pv"},
        "spec": {"capacity": {"storage": "1024Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}},
    }))
    .unwrap();
    let pv = volumes.create(&PostParams::default(), &pv).await.unwrap();
    assert_eq!(pv.status.as_ref().unwrap().phase.as_deref(), Some("Available"));
    assert_eq!(pv.spec.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0, "1Gi");
    let mut owned = widget("a", "12");
    owned.metadata.owner_references = Some(vec![pv.owner_ref(&()).unwrap()]);
    let owned = widgets.create(&PostParams::default(), &owned).await.unwrap();
    let map = ConfigMap {
        metadata: kube::api::ObjectMeta {
            name: Some("m".into()),
            owner_references: Some(vec![owned.owner_ref(&()).unwrap()]),
            ..Default::default()
        },
        ..Default::default()
    };
    maps.create(&PostParams::default(), &map).await.unwrap();
    volumes.delete("pv", &DeleteParams::default()).await.unwrap();
    assert!(widgets.get_opt("a").await.unwrap().is_none());
    assert!(maps.get_opt("m").await.unwrap().is_none());
    // A dependent of an owner that does not exist is deleted immediately.
    maps.create(&PostParams::default(), &map).await.unwrap();
    assert!(maps.get_opt("m").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn invalid_objects_get_every_problem_reported() {
    let widgets: Api<Widget> = Api::default_namespaced(server().client("default"));
    let mut bad = widget("a", "x");
    bad.spec = WidgetSpec { color: Some("blue".into()), count: Some(0), ..bad.spec };
    let refused = widgets.create(&PostParams::default(), &bad).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(
        status.message,
        "Widget.example.com \"a\" is invalid: [spec.color: Unsupported value: \"blue\": supported values: \"red\", \"green\", spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1, spec.size: Invalid value: \"x\": spec.size in body should be at least 2 chars long, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]"
    );
    assert_eq!(status.details.unwrap().causes.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn pages_stay_consistent_across_writes() {
    let widgets: Api<Widget> = Api::default_namespaced(server().client("default"));
    for name in ["a", "b", "c", "d"] {
        widgets.create(&PostParams::default(), &widget(name, "12")).await.unwrap();
    }
    let page = widgets.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(page.metadata.remaining_item_count, Some(2));
    widgets.delete("c", &DeleteParams::default()).await.unwrap();
    let token = page.metadata.continue_.unwrap();
    let rest = widgets.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    let names: Vec<String> = rest.items.iter().map(|widget| widget.name_any()).collect();
    assert_eq!(names, ["c", "d"], "the list is as it was when it began");
}

#[tokio::test(start_paused = true)]
async fn writes_are_counted_except_dry_runs() {
    let server = server();
    let widgets: Api<Widget> = Api::default_namespaced(server.client("default"));
    assert_eq!(server.write_count(), 0);
    widgets
        .create(&PostParams { dry_run: true, ..Default::default() }, &widget("a", "12"))
        .await
        .unwrap();
    assert_eq!(server.write_count(), 0);
    widgets.create(&PostParams::default(), &widget("a", "12")).await.unwrap();
    assert_eq!(server.write_count(), 1);
    assert_eq!(server.write_counts()["example.com/widgets"], 1);
}
