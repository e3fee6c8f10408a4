//! One life of a host with RAID and an image, in which Quarry is killed before and after each of its writes to Ironic.

use super::{
    provision::live_iso,
    raid_hardware::{Built, built, hardware, raid_steps},
};
use quarry_tests::services::{Lab, Proxy, Quarry, System, until};
use serde_json::{Value, json};
use std::time::Duration;

/// Every restart waits for a debug build to serve.
const LIFE: Duration = Duration::from_secs(400);

/// Lets Quarry work until its host is as wanted, and kills it at every write that the proxy holds. `wanted` gets null
/// when there is no host.
fn live(
    quarry: &mut Quarry,
    proxy: &Proxy,
    system: &System,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    until(what, LIFE, || {
        if let Some(held) = proxy.held() {
            // The intent is recorded before the first call that changes anything.
            if held.write.contains("states/raid") {
                let host = quarry.host(&system.name).unwrap();
                let state = &host["status"]["provisioning"];
                assert!(!state["raid"].is_null(), "{held:?} before its snapshot: {state}");
            }
            quarry.kill();
            proxy.release();
            quarry.run();
        }
        let host = quarry.host(&system.name).unwrap_or_default();
        if wanted(&host) {
            Ok(host)
        } else {
            Err(format!("{} {:?}", host["status"], proxy.all().last()))
        }
    })
}

fn is(host: &Value, state: &str) -> bool {
    host["status"]["provisioning"]["state"] == state && host["status"]["operationalStatus"] == "OK"
}

#[test]
fn kills_around_every_write_repeat_nothing() {
    let system = Lab::get().system();
    let name = system.name.clone();
    let proxy = Proxy::start(&Lab::get().ironic_url);
    let mut quarry = Quarry::start_with(&proxy.url, &[]);
    quarry.create_secret(&name, &Lab::get().bmc_password);
    quarry.create_host(&system, &hardware(&json!([{"level": "1", "name": "root"}])));
    let host = live(&mut quarry, &proxy, &system, "it is available", |host| is(host, "available"));
    let node = host["status"]["provisioning"]["ID"].as_str().unwrap().to_owned();
    assert_eq!(raid_steps(&node), ["delete_configuration", "create_configuration"]);
    let volumes = system.volumes();
    assert_eq!(volumes.len(), 1, "{volumes:?}");

    quarry.change(&name, &json!({"image": live_iso()}));
    live(&mut quarry, &proxy, &system, "it is provisioned", |host| is(host, "provisioned"));
    assert_eq!(raid_steps(&node).len(), 2, "not built again");
    assert_eq!(system.volumes(), volumes);
    let deploys = || Lab::get().steps(&node).iter().filter(|step| *step == "deploy").count();
    assert_eq!(deploys(), 1);

    quarry.change(&name, &json!({"image": null, "raid": null}));
    live(&mut quarry, &proxy, &system, "it is available again", |host| is(host, "available"));
    // Arrays of software first, then volumes of controllers.
    let mut expected = vec!["delete_configuration", "create_configuration"];
    expected.extend(["delete_configuration"; 2]);
    assert_eq!(raid_steps(&node), expected, "each kind is erased once");
    assert_eq!((built(&system), deploys()), (Built::new(), 1));

    quarry.delete_host(&name);
    live(&mut quarry, &proxy, &system, "it is gone", Value::is_null);
    assert_eq!(raid_steps(&node), expected, "and not again");
    let listed = Lab::get().ironic().get("/v1/nodes?fields=name").ok();
    let left = listed["nodes"].as_array().unwrap().iter();
    assert!(left.clone().all(|one| one["name"] != format!("default~{name}")), "{listed}");
    let all = proxy.all();
    let [before, after] =
        [false, true].map(|done| all.iter().filter(|one| one.forwarded == done).count());
    println!(
        "figure: one life with RAID and an image: killed before {before} writes to Ironic and after {after}, nothing was built or erased twice"
    );
    assert!(before >= 12 && after >= 12, "{all:#?}");
}
