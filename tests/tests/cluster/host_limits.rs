//! The limits of what is stored about a host, on the real API server with its etcd: objects just below them are stored
//! whole, and come back as they were.

use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use quarry_api::{
    BareMetalHost, BareMetalHostSpec, HardwareData, HardwareDataSpec,
    bare_metal_host::{BareMetalHostStatus, HardwareDetails, OperationalStatus, hardware::Storage},
    names,
};
use quarry_core::bare_metal_host::{HARDWARE_DATA_LIMIT, STATUS_HARDWARE_LIMIT};
use quarry_tests::lab::installed;
use serde_json::json;

const NAMESPACE: &str = "default";

fn disk(number: usize) -> Storage {
    Storage {
        name: format!("/dev/disk/by-path/pci-0000:3b:00.0-fc-0x5000c500{number:08x}-lun-{number}"),
        alternate_names: vec![format!("/dev/dm-{number}")],
        size_bytes: 500 << 30,
        vendor: "ACME".to_owned(),
        model: "LAB-SSD".to_owned(),
        serial_number: format!("S-{number:08}"),
        wwn: format!("0x5000c500{number:08x}"),
        hctl: format!("1:0:0:{number}"),
        ..Storage::default()
    }
}

fn size(hardware: &HardwareDetails) -> usize {
    serde_json::to_vec(hardware).expect("it is plain data").len()
}

/// As many disks as fit below the limit, then text up to the last byte of it.
fn hardware_of(limit: usize) -> HardwareDetails {
    let mut hardware = HardwareDetails::default();
    // Numbers of four digits from the start: every disk takes as many bytes as the first.
    hardware.storage.push(disk(1000));
    let one = size(&HardwareDetails { storage: vec![disk(1000), disk(1001)], ..hardware.clone() })
        - size(&hardware);
    // One less: the name of the host has its own field.
    let count = (limit - size(&hardware)) / one - 1;
    hardware.storage.extend((1001..).take(count).map(disk));
    hardware.hostname.push('h');
    let room = limit - size(&hardware);
    hardware.hostname.push_str(&"h".repeat(room));
    assert_eq!(size(&hardware), limit);
    hardware
}

#[tokio::test]
async fn hardware_data_at_its_limit_is_stored() {
    installed();
    let client = Client::try_default().await.expect("KUBECONFIG is set by the tier's runner");
    let api: Api<HardwareData> = Api::namespaced(client, NAMESPACE);
    let hardware = hardware_of(HARDWARE_DATA_LIMIT);
    let made = HardwareData::new("at-the-limit", HardwareDataSpec { hardware: Some(hardware) });
    let stored = api.create(&PostParams::default(), &made).await.expect("it fits into etcd");
    assert_eq!(stored.spec, made.spec);
    assert_eq!(api.get("at-the-limit").await.unwrap().spec, made.spec);
    api.delete("at-the-limit", &DeleteParams::default()).await.unwrap();
}

/// With `managedFields`, which name every field of the status. Paused, so that no operator writes to it.
#[tokio::test]
async fn a_host_with_a_status_at_its_limit_is_stored() {
    installed();
    let client = Client::try_default().await.expect("KUBECONFIG is set by the tier's runner");
    let api: Api<BareMetalHost> = Api::namespaced(client, NAMESPACE);
    let spec = BareMetalHostSpec { online: true, ..BareMetalHostSpec::default() };
    let mut host = BareMetalHost::new("at-the-limit", spec);
    let paused = [(names::PAUSED_ANNOTATION.to_owned(), String::new())];
    host.metadata.annotations = Some(paused.into());
    api.create(&PostParams::default(), &host).await.unwrap();
    let status = BareMetalHostStatus {
        operational_status: OperationalStatus::Ok,
        hardware: Some(hardware_of(STATUS_HARDWARE_LIMIT)),
        ..BareMetalHostStatus::default()
    };
    let patch = json!({"status": status});
    let stored = api
        .patch_status("at-the-limit", &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .expect("it fits into etcd");
    assert_eq!(
        stored.status.as_ref().and_then(|found| found.hardware.as_ref()),
        status.hardware.as_ref()
    );
    // Another write of the whole object still fits: the operator must be able to change it.
    let change = json!({"metadata": {"annotations": {"example.com/note": "x"}}});
    api.patch("at-the-limit", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    api.delete("at-the-limit", &DeleteParams::default()).await.unwrap();
}
