//! Tests of engine rules that clients rarely meet: garbage collection, propagation, expiry, the end
//! of the log.

use super::*;
use crate::kind::builtin;
use serde_json::json;
use std::cell::Cell;

struct Lab {
    engine: Engine,
    now: Timestamp,
    next: Cell<u64>,
}

impl Lab {
    fn new() -> Self {
        let mut registry = Registry::default();
        let mut kinds = builtin::standard();
        kinds.push(crate::kind::BuiltIn::pod());
        builtin::register(&mut registry, kinds).unwrap();
        let registry = Arc::new(registry);
        let store = Store::new(registry.buckets(), 0);
        let engine = Engine::new(registry, Policies::default(), store);
        let mut lab =
            Self { engine, now: "2026-01-01T00:00:00Z".parse().unwrap(), next: Cell::new(0) };
        lab.create("namespaces", "", json!({"metadata": {"name": "n"}}));
        lab
    }

    fn call(
        &mut self,
        plural: &str,
        namespace: &str,
        name: &str,
        verb: Verb,
    ) -> Result<Answer, ApiError> {
        let group = if plural == "leases" { "coordination.k8s.io" } else { "" };
        let resource = self.engine.registry.find(group, "v1", plural).unwrap();
        let request = Request {
            resource,
            namespace: namespace.into(),
            name: name.into(),
            status: false,
            verb,
        };
        let uids = || {
            self.next.set(self.next.get() + 1);
            format!("uid-{}", self.next.get())
        };
        self.engine.handle(request, &Outside { now: self.now, uids: &uids })
    }

    fn create(&mut self, plural: &str, namespace: &str, value: Value) -> Value {
        let body = Body { value, duplicates: Vec::new() };
        object(
            self.call(plural, namespace, "", Verb::Create(body, WriteOptions::default())).unwrap(),
        )
    }

    fn map(&mut self, name: &str, metadata: Value) -> Value {
        let mut value = json!({"metadata": metadata});
        value["metadata"]["name"] = name.into();
        self.create("configmaps", "n", value)
    }

    fn get(&mut self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.call(plural, namespace, name, Verb::Get).ok().map(object)
    }

    fn delete(&mut self, plural: &str, namespace: &str, name: &str, options: DeleteOptions) {
        self.call(plural, namespace, name, Verb::Delete(options)).unwrap();
    }

    fn release(&mut self, name: &str) {
        let body =
            Body { value: json!({"metadata": {"finalizers": null}}), duplicates: Vec::new() };
        self.call(
            "configmaps",
            "n",
            name,
            Verb::Patch(PatchKind::Merge, body, WriteOptions::default()),
        )
        .unwrap();
    }
}

fn object(answer: Answer) -> Value {
    match answer.body {
        Answered::Object(stored) => stored.value.clone(),
        Answered::Status(status) => status,
        Answered::List(_) => Value::Null,
    }
}

fn owned_by(owner: &Value, blocking: bool) -> Value {
    json!({"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocking,
    }]})
}

fn propagating(propagation: Propagation) -> DeleteOptions {
    DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() }
}

#[test]
fn orphaned_dependents_are_not_deleted() {
    let mut lab = Lab::new();
    let owner = lab.map("owner", json!({}));
    lab.map("child", owned_by(&owner, true));
    lab.delete("configmaps", "n", "owner", propagating(Propagation::Orphan));
    assert!(lab.get("configmaps", "n", "owner").is_none());
    assert_eq!(
        lab.get("configmaps", "n", "child").unwrap()["metadata"].get("ownerReferences"),
        None
    );
}

#[test]
fn foreground_owner_is_removed_after_its_dependents() {
    let mut lab = Lab::new();
    let owner = lab.map("owner", json!({}));
    let mut metadata = owned_by(&owner, true);
    metadata["finalizers"] = json!(["example.com/held"]);
    lab.map("held", metadata);
    lab.map("free", owned_by(&owner, true));
    lab.delete("configmaps", "n", "owner", propagating(Propagation::Foreground));
    assert!(lab.get("configmaps", "n", "free").is_none());
    let waiting = lab.get("configmaps", "n", "owner").unwrap();
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(meta::is_deleting(&lab.get("configmaps", "n", "held").unwrap()));
    lab.release("held");
    assert!(lab.get("configmaps", "n", "held").is_none());
    assert!(lab.get("configmaps", "n", "owner").is_none());
}

#[test]
fn dependent_of_two_owners_loses_only_the_deleted_one() {
    let mut lab = Lab::new();
    let (one, two) = (lab.map("one", json!({})), lab.map("two", json!({})));
    let mut metadata = owned_by(&one, false);
    let second = owned_by(&two, false)["ownerReferences"][0].clone();
    metadata["ownerReferences"].as_array_mut().unwrap().push(second);
    lab.map("child", metadata);
    lab.delete("configmaps", "n", "one", DeleteOptions::default());
    let child = lab.get("configmaps", "n", "child").unwrap();
    assert_eq!(child["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    lab.delete("configmaps", "n", "two", DeleteOptions::default());
    assert!(lab.get("configmaps", "n", "child").is_none());
}

#[test]
fn owners_of_unserved_kinds_are_assumed_to_exist() {
    let mut lab = Lab::new();
    lab.map(
        "child",
        json!({"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "quarry", "uid": "elsewhere"},
        ]}),
    );
    assert!(lab.get("configmaps", "n", "child").is_some());
}

#[test]
fn namespace_is_removed_after_its_contents() {
    let mut lab = Lab::new();
    lab.map("free", json!({}));
    lab.map("held", json!({"finalizers": ["example.com/held"]}));
    lab.delete("namespaces", "", "n", DeleteOptions::default());
    assert_eq!(lab.get("namespaces", "", "n").unwrap()["status"]["phase"], "Terminating");
    assert!(lab.get("configmaps", "n", "free").is_none());
    lab.release("held");
    assert!(lab.get("namespaces", "", "n").is_none());
}

#[test]
fn running_pod_is_removed_by_the_second_delete() {
    let mut lab = Lab::new();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "x", "containers": [{"name": "c"}]}});
    lab.create("pods", "n", pod);
    lab.delete("pods", "n", "p", DeleteOptions::default());
    let ending = lab.get("pods", "n", "p").unwrap();
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(ending["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    lab.delete(
        "pods",
        "n",
        "p",
        DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() },
    );
    assert!(lab.get("pods", "n", "p").is_none());
}

#[test]
fn old_events_expire() {
    let mut lab = Lab::new();
    lab.create("namespaces", "", json!({"metadata": {"name": "default"}}));
    let event = |name: &str| json!({"metadata": {"name": name}, "involvedObject": {"kind": "Node", "name": "x"}});
    lab.create("events", "default", event("old"));
    lab.now += jiff::SignedDuration::from_mins(61);
    lab.create("events", "default", event("new"));
    assert!(lab.get("events", "default", "old").is_none());
    assert!(lab.get("events", "default", "new").is_some());
}

#[test]
fn watch_that_fell_behind_gets_410_gone() {
    let mut lab = Lab::new();
    let created = lab.map("m", json!({}));
    let start: u64 = created["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let resource = lab.engine.registry.find("", "v1", "configmaps").unwrap();
    let call = Request {
        resource,
        namespace: String::new(),
        name: String::new(),
        status: false,
        verb: Verb::Get,
    };
    let (_, mut watching) =
        lab.engine.watch(call, ListOptions::default(), WatchFrom::After(start)).unwrap();
    for round in 0..9000 {
        let body =
            Body { value: json!({"data": {"a": round.to_string()}}), duplicates: Vec::new() };
        lab.call(
            "configmaps",
            "n",
            "m",
            Verb::Patch(PatchKind::Merge, body, WriteOptions::default()),
        )
        .unwrap();
    }
    let newest = lab.engine.version();
    let expired = lab.engine.events(&mut watching, newest).unwrap_err();
    assert_eq!((expired.code, expired.reason), (410, "Expired"));
    watching.cursor = newest - 10;
    assert_eq!(lab.engine.events(&mut watching, newest).unwrap().len(), 10);
}

#[test]
fn failed_writes_are_rolled_back() {
    let mut lab = Lab::new();
    let owner = lab.map("owner", json!({}));
    lab.map("child", owned_by(&owner, false));
    let before = lab.engine.version();
    lab.map("new", json!({}));
    lab.delete("configmaps", "n", "owner", DeleteOptions::default());
    assert!(lab.get("configmaps", "n", "child").is_none());
    lab.engine.roll_back(before);
    assert!(lab.get("configmaps", "n", "new").is_none());
    assert!(
        lab.get("configmaps", "n", "owner").is_some()
            && lab.get("configmaps", "n", "child").is_some()
    );
    assert_eq!(lab.engine.version(), before, "a version that is not on disk is never returned");
    lab.delete("configmaps", "n", "owner", DeleteOptions::default());
    assert!(lab.get("configmaps", "n", "child").is_none(), "the indexes are rolled back too");
    assert!(lab.engine.version() > before + 3, "versions are not used twice");
}

#[test]
fn equal_calls_lead_to_equal_state() {
    let run = || {
        let mut lab = Lab::new();
        let owner = lab.map("owner", json!({}));
        for name in ["a", "b", "c"] {
            lab.map(name, owned_by(&owner, false));
        }
        lab.create("configmaps", "n", json!({"metadata": {"generateName": "g-"}}));
        lab.delete("configmaps", "n", "owner", DeleteOptions::default());
        let changes = lab.engine.take_pending();
        changes
            .iter()
            .map(|change| format!("{} {} {:?}", change.bucket, change.key, change.value))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}
