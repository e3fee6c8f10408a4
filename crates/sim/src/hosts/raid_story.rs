//! The stories of hosts with RAID and images.

use super::story::{HOST, MACHINE, RIGHT, Step, Story, View, host, one, patched, removed, secret};
use crate::{
    ironic::{SimIronic, machine::CREATE},
    kind::Kind,
};
use serde_json::{Value, json};

fn sized() -> Value {
    json!({"hardwareRAIDVolumes": [{"level": "1", "sizeGibibytes": 100}]})
}

fn picked() -> Value {
    json!({"hardwareRAIDVolumes": [{"level": "1"}]})
}

fn arrays() -> Value {
    json!({"softwareRAIDVolumes": [{"level": "1", "sizeGibibytes": 10}, {"level": "0"}]})
}

fn create(raid: &Value) -> Vec<Step> {
    let mut host = host(HOST, 1);
    host["spec"]["raid"] = raid.clone();
    vec![Step::Create(0, Kind::Secret, secret(HOST, RIGHT)), Step::Create(0, Kind::Host, host)]
}

/// Available, and built as recorded.
fn is_built(view: &View<'_>) -> bool {
    view.is(0, HOST, "available")
        && !view.disks.is_empty()
        && view.host(0, HOST).is_some_and(|host| {
            let conditions = host["status"]["conditions"].as_array().into_iter().flatten();
            let preparing = |one: &&Value| one["reason"] == "Preparing";
            host["status"]["provisioning"]["raid"].is_object()
                && conditions.filter(preparing).count() == 0
        })
}

fn built(raid: &Value) -> Vec<Step> {
    let mut steps = create(raid);
    steps.push(Step::Await("built", is_built));
    steps
}

fn is_cleaned(view: &View<'_>) -> bool {
    view.node(HOST).is_some_and(|node| {
        let state = node["provision_state"].as_str().unwrap_or_default();
        state.starts_with("clean")
    })
}

fn changed() -> Vec<Step> {
    let mut steps = built(&arrays());
    steps.extend([
        patched(json!({"spec": {"raid": {"softwareRAIDVolumes": []}}})),
        Step::Await("erased", |view| {
            let recorded = view.host(0, HOST).map(|host| {
                let list = &host["status"]["provisioning"]["raid"]["softwareRAIDVolumes"];
                *list == json!([])
            });
            view.is(0, HOST, "available") && view.disks.is_empty() && recorded == Some(true)
        }),
    ]);
    steps
}

fn fails(raid: &Value) -> Vec<Step> {
    let mut steps = vec![Step::Ironic("volumes cannot be built", |ironic| {
        ironic.machine(MACHINE).fails = Some(CREATE);
    })];
    steps.extend(create(raid));
    steps.extend([
        Step::Await("preparation error", |view| super::story::failed("preparation error", view)),
        Step::Ironic("volumes can be built", |ironic| ironic.machine(MACHINE).fails = None),
        Step::Await("built", is_built),
    ]);
    steps
}

fn live_iso() -> Value {
    json!({"url": "https://images.example/live.iso", "format": "live-iso"})
}

fn image(image: &Value) -> Step {
    patched(json!({"spec": {"image": image}}))
}

fn provisioned() -> Vec<Step> {
    let mut steps = built(&sized());
    steps.extend([
        image(&live_iso()),
        Step::Await("provisioned", |view| {
            let active = view.node(HOST).is_some_and(|node| node["provision_state"] == "active");
            view.is(0, HOST, "provisioned") && active && view.disks.image.is_some()
        }),
    ]);
    steps
}

/// The settings are still there, so the volumes are built again.
fn deprovisioned() -> Vec<Step> {
    let mut steps = provisioned();
    steps.extend([
        image(&Value::Null),
        Step::Await("deprovisioning", |view| view.is(0, HOST, "deprovisioning")),
        Step::Await("built again", |view| is_built(view) && view.disks.image.is_none()),
    ]);
    steps
}

fn lost(when: &'static str, reached: fn(&View<'_>) -> bool, end: Step) -> Vec<Step> {
    let mut steps = create(&sized());
    steps.extend([
        Step::Await(when, reached),
        Step::Ironic("the database is lost", SimIronic::lose_database),
        end,
    ]);
    steps
}

fn provisioned_and_lost() -> Vec<Step> {
    let mut steps = provisioned();
    steps.extend([
        Step::Ironic("the database is lost", SimIronic::lose_database),
        Step::Await("active again", |view| {
            let active = view.node(HOST).is_some_and(|node| node["provision_state"] == "active");
            view.is(0, HOST, "provisioned") && active
        }),
    ]);
    steps
}

/// Deleted when the node knows its image and is not deployed yet.
fn deleted_early() -> Vec<Step> {
    let mut steps = built(&sized());
    steps.extend([
        image(&live_iso()),
        Step::Await("an instance", |view| {
            view.node(HOST).is_some_and(|node| node["instance_uuid"].is_string())
        }),
    ]);
    steps.extend(removed());
    steps
}

pub fn stories() -> Vec<Story> {
    let then = |steps: Vec<Step>, more: Vec<Step>| steps.into_iter().chain(more).collect();
    let cut_off = then(
        create(&sized()).into_iter().chain([Step::Await("cleaned", is_cleaned)]).collect(),
        removed(),
    );
    let with = |name, raid, steps| Story { raid, ..one(name, steps) };
    let loses = |name, raid, steps| Story { loses_nodes: true, ..with(name, raid, steps) };
    vec![
        with("raid-hardware", (1, 3), then(built(&sized()), removed())),
        Story { inspections: 2, ..with("raid-picked", (1, 1), built(&picked())) },
        with("raid-software", (1, 2), changed()),
        with("raid-fails", (1, 2), fails(&sized())),
        with("raid-software-fails", (1, 2), fails(&arrays())),
        with("provisioned", (2, 4), deprovisioned()),
        with("provisioning-deleted", (1, 3), deleted_early()),
        with("raid-deleted", (0, 2), cut_off),
        loses("raid-lost", (1, 1), lost("cleaned", is_cleaned, Step::Await("built", is_built))),
        loses("provisioned-lost", (1, 1), provisioned_and_lost()),
    ]
}
