//! The rules of `spec.raid` at the embedded API and in the planner are the same, for settings that the schema allows.
#![allow(clippy::unwrap_used, reason = "test")]

use proptest::prelude::*;
use quarry_api::{BareMetalHost, bare_metal_host::raid::HARDWARE_LEVELS};
use quarry_apiserver::{Options, Server};
use quarry_core::bare_metal_host::raid_rules::{has_hints, invalid};
use serde_json::{Value, json};
use std::cell::Cell;

fn level(allowed: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop::sample::select(allowed).prop_flat_map(|level| {
        // YAML makes an integer of a level without quotes.
        let number = level.parse::<i64>().map_or(json!(level), |number| json!(number));
        prop_oneof![Just(json!(level)), Just(number)]
    })
}

/// The object without its null fields.
fn given(fields: Value) -> Value {
    let Value::Object(fields) = fields else { return fields };
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

fn hardware_volume() -> impl Strategy<Value = Value> {
    let name = prop::option::weighted(0.3, prop::sample::select(vec!["", "a", "b"]));
    let count = prop::option::weighted(0.5, 1..10_i64);
    let disks = prop::option::weighted(0.4, 0..9_usize);
    let controller = prop::option::weighted(0.8, prop::sample::select(vec!["", "c", "c", "c"]));
    (level(&HARDWARE_LEVELS), name, count, disks, controller).prop_map(
        |(level, name, count, disks, controller)| {
            let disks = disks.map(|disks| (0..disks).map(|at| at.to_string()).collect::<Vec<_>>());
            given(json!({"level": level, "name": name, "numberOfPhysicalDisks": count, "physicalDisks": disks, "controller": controller}))
        },
    )
}

fn software_volume() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "",
        "/dev/sda",
        "/dev/disk/by-path/pci-0",
        "/dev/disk/by-id/x",
        "sda",
        "/dev/",
        "/dev/disk/by-path/",
    ]);
    let hint = prop_oneof![
        3 => Just(json!({"deviceName": "/dev/sda"})),
        1 => name.prop_map(|name| json!({"deviceName": name})),
        1 => Just(json!({"wwn": "0x1"})),
    ];
    let disks = prop::option::weighted(0.3, prop::collection::vec(hint, 2..4));
    let size = prop::option::weighted(0.8, 0..3_i64);
    let root = prop::option::weighted(0.5, any::<bool>());
    let level = prop_oneof![3 => level(&["1"]), 1 => level(&["0", "1", "1+0"])];
    (level, size, root, disks).prop_map(|(level, size, root, disks)| {
        given(json!({"level": level, "sizeGibibytes": size, "rootVolume": root, "physicalDisks": disks}))
    })
}

/// One spelling of a list, absent, null or with volumes.
fn list(
    names: [&'static str; 2],
    volume: impl Strategy<Value = Value>,
    most: usize,
) -> impl Strategy<Value = Option<(&'static str, Value)>> {
    let value = prop_oneof![
        1 => Just(json!(null)),
        6 => prop::collection::vec(volume, 0..=most).prop_map(Value::from),
    ];
    prop::option::weighted(0.6, (prop::sample::select(names.to_vec()), value))
}

fn spec() -> impl Strategy<Value = Value> {
    let hints = prop_oneof![
        4 => Just(json!(null)),
        1 => Just(json!({})),
        1 => Just(json!({"deviceName": ""})),
        2 => Just(json!({"rotational": false})),
        1 => Just(json!({"minSizeGigabytes": 5})),
        1 => Just(json!({"deviceName": "/dev/sda"})),
    ];
    let address = prop::sample::select(vec![
        "",
        "ipmi://h",
        "ipmi+http://h",
        "libvirt://h",
        "h",
        "redfish://h/1",
        "redfish://h/1",
        "idrac-virtualmedia+http://h/1",
    ]);
    (
        list(["hardwareRAIDVolumes", "hardwareVolumes"], hardware_volume(), 3),
        list(["softwareRAIDVolumes", "softwareVolumes"], software_volume(), 2),
        hints,
        address,
    )
        .prop_map(|(hardware, software, hints, address)| {
            let raid: Value = hardware
                .into_iter()
                .chain(software)
                .map(|(name, list)| (name.to_owned(), list))
                .collect();
            given(json!({
                "online": true, "raid": raid, "rootDeviceHints": hints,
                "bmc": {"address": address, "credentialsName": "bmc"},
            }))
        })
}

/// The code and the message.
async fn create(client: &kube::Client, object: &Value) -> (u16, String) {
    let path = "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts";
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(kube::client::Body::from(object.to_string().into_bytes()))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.unwrap();
    (code, String::from_utf8_lossy(&body).into_owned())
}

#[test]
fn admission_and_planner_refuse_the_same_raid_settings() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(async { Server::in_memory(Options::new(quarry_api::crds())) });
    let client = runtime.block_on(async { server.client("default") });
    let (tried, refused) = (Cell::new(0), Cell::new(0));
    let config = ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() };
    let result = proptest::test_runner::TestRunner::new(config).run(&spec(), |spec| {
        tried.set(tried.get() + 1);
        let name = format!("h{}", tried.get());
        let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name}, "spec": spec});
        let host: BareMetalHost = serde_json::from_value(object.clone()).unwrap();
        let address = &host.spec.bmc.as_ref().unwrap().address;
        let no_raid = !address.is_empty()
            && (!address.contains("://") || address.starts_with("ipmi") || address.starts_with("libvirt"));
        let levels = (!no_raid).then_some(HARDWARE_LEVELS.as_slice());
        let config = host.raid().unwrap_or_default();
        let mut mistakes = invalid(&config, has_hints(&host), levels);
        mistakes.sort();
        let (code, body) = runtime.block_on(create(&client, &object));
        refused.set(refused.get() + usize::from(code == 422));
        let expected = if mistakes.is_empty() { 201 } else { 422 };
        prop_assert_eq!(code, expected, "{}\n{:#?}\n{}", object, mistakes, body);
        Ok(())
    });
    result.unwrap();
    let (tried, refused) = (tried.get(), refused.get());
    assert!(refused * 5 > tried && refused * 5 < tried * 4, "{refused} of {tried} were refused");
}
