//! Metrics (`quarry_*`) and the small HTTP listener that serves them and the probes.

use crate::cache::Caches;
use axum::{Router, http::StatusCode, routing::get};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use quarry_api::{
    BareMetalHost, LocalVolume, LocalVolumeSet, NodeInventory, NodeInventoryStatus, Volume,
    node_inventory::{ClaimState, DeviceClaim, DeviceState},
    node_job::OwnerKind,
    volume::Phase,
};
use quarry_core::{device_claim::confirm::previous, device_set::OsdState};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReconcileLabel {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OsdLabel {
    namespace: String,
    cluster: String,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WriteLabel {
    kind: String,
    verb: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabel {
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HostLabel {
    state: String,
    operational_status: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct MeaningLabel {
    meaning: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reported {
    state: ClaimLabel,
}

/// A device claim by what its agent reports; the label is the name of the variant.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelValue)]
enum ClaimLabel {
    /// There is no report yet.
    Claimed,
    Confirmed,
    Refused,
    Outdated,
    Terminating,
}

impl ClaimLabel {
    const ALL: [ClaimLabel; 5] = [
        ClaimLabel::Claimed,
        ClaimLabel::Confirmed,
        ClaimLabel::Refused,
        ClaimLabel::Outdated,
        ClaimLabel::Terminating,
    ];

    fn new(claim: &DeviceClaim, status: Option<&NodeInventoryStatus>) -> Self {
        match previous(claim, status).map(|report| report.state) {
            _ if claim.terminating => ClaimLabel::Terminating,
            Some(ClaimState::Confirmed) => ClaimLabel::Confirmed,
            Some(ClaimState::Refused) => ClaimLabel::Refused,
            Some(ClaimState::Outdated) => ClaimLabel::Outdated,
            Some(ClaimState::Removed | ClaimState::RemovalFailed) | None => ClaimLabel::Claimed,
        }
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Owner {
    kind: &'static str,
    namespace: String,
    name: String,
}

pub struct Metrics {
    registry: Registry,
    reconciles: Family<ReconcileLabel, Counter>,
    seconds: Family<ControllerLabel, Histogram>,
    writes: Family<WriteLabel, Counter>,
    volumes: Family<PhaseLabel, Gauge>,
    devices: Family<StateLabel, Gauge>,
    device_reasons: Family<ReasonLabel, Gauge>,
    claims: Family<Reported, Gauge>,
    provisioned: Family<Owner, Gauge>,
    stages: Family<StateLabel, Gauge>,
    /// By the object that has the device claims, as its controller last saw them.
    stages_of: Mutex<BTreeMap<String, BTreeMap<&'static str, i64>>>,
    hosts: Family<HostLabel, Gauge>,
    ironic_errors: Family<MeaningLabel, Counter>,
    host_rival: Gauge,
    osds: Family<OsdLabel, Gauge>,
    leading: Gauge,
    ready: AtomicBool,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("quarry");
        let reconciles = Family::default();
        let seconds = Family::<ControllerLabel, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.001, 2.0, 14))
        });
        let (writes, volumes, leading) = (Family::default(), Family::default(), Gauge::default());
        registry.register("reconciles", "Reconciles by controller and outcome", reconciles.clone());
        registry.register("reconcile_seconds", "How long a reconcile took", seconds.clone());
        registry.register("api_writes", "Writes to the API by kind and verb", writes.clone());
        registry.register("volumes", "Volumes by phase", volumes.clone());
        let (devices, device_reasons) = (Family::default(), Family::default());
        registry.register("devices", "Devices of all nodes by verdict", devices.clone());
        registry.register(
            "device_reasons",
            "Devices of all nodes by reason why they are not available",
            device_reasons.clone(),
        );
        let (claims, provisioned) = (Family::default(), Family::default());
        registry.register(
            "device_claims",
            "Device claims of all nodes by the agent's report",
            claims.clone(),
        );
        registry.register(
            "provisioned_devices",
            "Devices that are PersistentVolumes, by the object that requests them",
            provisioned.clone(),
        );
        let stages = Family::default();
        registry.register(
            "device_claim_stages",
            "Device claims of all nodes by stage, as the leading operator sees them",
            stages.clone(),
        );
        let (hosts, ironic_errors) = (Family::default(), Family::default());
        registry.register("host_states", "BareMetalHosts by state", hosts.clone());
        registry.register(
            "host_ironic_errors",
            "Requests that Ironic refused or did not answer, by meaning",
            ironic_errors.clone(),
        );
        let host_rival = Gauge::default();
        registry.register(
            "host_rival",
            "1 while another operator drives BareMetalHosts, so that this one does not",
            host_rival.clone(),
        );
        let osds = Family::default();
        registry.register("osds", "OSDs of device sets by state", osds.clone());
        registry.register("leader", "1 while this operator leads", leading.clone());
        Metrics {
            registry,
            reconciles,
            seconds,
            writes,
            volumes,
            devices,
            device_reasons,
            claims,
            provisioned,
            stages,
            stages_of: Mutex::default(),
            hosts,
            ironic_errors,
            host_rival,
            osds,
            leading,
            ready: AtomicBool::new(false),
        }
    }
}

impl Metrics {
    pub fn count_reconcile(&self, controller: &'static str, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&ReconcileLabel { controller, outcome }).inc();
        self.seconds.get_or_create(&ControllerLabel { controller }).observe(took.as_secs_f64());
    }

    pub fn count_write(&self, kind: &str, verb: &'static str) {
        self.writes.get_or_create(&WriteLabel { kind: kind.to_owned(), verb }).inc();
    }

    /// Every controller is listed from the start, also one that has nothing to do.
    pub fn register(&self, controllers: impl Iterator<Item = &'static str>) {
        for controller in controllers {
            drop(self.reconciles.get_or_create(&ReconcileLabel { controller, outcome: "done" }));
        }
    }

    pub fn count_ironic_error(&self, meaning: &'static str) {
        self.ironic_errors.get_or_create(&MeaningLabel { meaning }).inc();
    }

    pub fn set_host_rival(&self, is_active: bool) {
        self.host_rival.set(i64::from(is_active));
    }

    fn count_hosts(&self, caches: &Caches) {
        let mut counts: BTreeMap<(String, String), i64> = BTreeMap::new();
        for host in caches.store::<BareMetalHost>().each() {
            let status = host.status.as_ref().map(|status| status.operational_status.to_string());
            *counts.entry((host.state().to_string(), status.unwrap_or_default())).or_default() += 1;
        }
        // A state that no host is in any more disappears.
        self.hosts.clear();
        for ((state, operational_status), count) in counts {
            self.hosts.get_or_create(&HostLabel { state, operational_status }).set(count);
        }
    }

    fn count_volumes(&self, caches: &Caches) {
        let volumes = caches.all::<Volume>();
        for phase in [Phase::Available, Phase::Pending, Phase::Failed, Phase::Terminating] {
            let count = volumes.iter().filter(|volume| volume.phase() == Some(phase)).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.volumes.get_or_create(&PhaseLabel { phase: phase.as_str() }).set(count);
        }
    }

    /// The stages of one owner's device claims; none when it is gone.
    pub fn set_stages(&self, owner: &str, stages: impl Iterator<Item = &'static str>) {
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        stages.for_each(|stage| *counts.entry(stage).or_default() += 1);
        let mut known = self.stages_of.lock().unwrap_or_else(PoisonError::into_inner);
        let mut touched: BTreeSet<&'static str> = counts.keys().copied().collect();
        touched.extend(known.get(owner).into_iter().flat_map(BTreeMap::keys));
        if counts.is_empty() {
            known.remove(owner);
        } else {
            known.insert(owner.to_owned(), counts);
        }
        for state in touched {
            let all = known.values().filter_map(|counts| counts.get(state)).sum();
            self.stages.get_or_create(&StateLabel { state }).set(all);
        }
    }

    /// The OSDs of one cluster by state; none when it is gone.
    pub fn set_osds(&self, namespace: &str, cluster: &str, counts: &BTreeMap<&'static str, usize>) {
        for state in OsdState::WORDS {
            let label = OsdLabel { namespace: namespace.into(), cluster: cluster.into(), state };
            match counts.get(state) {
                Some(count) => {
                    let count = i64::try_from(*count).unwrap_or(i64::MAX);
                    self.osds.get_or_create(&label).set(count);
                }
                None => drop(self.osds.remove(&label)),
            }
        }
    }

    pub fn set_leading(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }

    /// Ready: the caches are filled and the loop runs.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    fn count_claims(&self, caches: &Caches) {
        let mut states: BTreeMap<ClaimLabel, i64> =
            ClaimLabel::ALL.into_iter().map(|state| (state, 0)).collect();
        for inventory in caches.all::<NodeInventory>() {
            let status = inventory.status.as_ref();
            for claim in &inventory.spec.device_claims {
                *states.entry(ClaimLabel::new(claim, status)).or_default() += 1;
            }
        }
        for (state, count) in states {
            self.claims.get_or_create(&Reported { state }).set(count);
        }
        self.provisioned.clear();
        let name = |object: &ObjectMeta| {
            (object.namespace.clone().unwrap_or_default(), object.name.clone().unwrap_or_default())
        };
        for set in caches.all::<LocalVolumeSet>() {
            let (namespace, name) = name(&set.metadata);
            let count = set
                .status
                .as_ref()
                .and_then(|status| status.total_provisioned_device_count)
                .unwrap_or_default();
            self.provisioned
                .get_or_create(&Owner { kind: OwnerKind::LocalVolumeSet.as_str(), namespace, name })
                .set(count.into());
        }
        for volume in caches.all::<LocalVolume>() {
            let (namespace, name) = name(&volume.metadata);
            let count =
                volume.status.as_ref().map(|status| status.ready_replicas).unwrap_or_default();
            self.provisioned
                .get_or_create(&Owner { kind: OwnerKind::LocalVolume.as_str(), namespace, name })
                .set(count.into());
        }
    }

    /// Counted at every scrape: at rest nothing is counted. By state and reason only, never by node or device.
    fn count_devices(&self, caches: &Caches) {
        let (mut states, mut reasons) = (BTreeMap::new(), BTreeMap::new());
        for state in [DeviceState::Available, DeviceState::NotAvailable, DeviceState::Unknown] {
            states.insert(state, 0_i64);
        }
        for inventory in caches.all::<NodeInventory>() {
            for device in inventory.status.iter().flat_map(|status| &status.devices) {
                *states.entry(device.state).or_default() += 1;
                for reason in device.reasons.iter().filter_map(|reason| reason.reason.known()) {
                    *reasons.entry(reason).or_insert(0_i64) += 1;
                }
            }
        }
        // A reason that is gone must not keep its last number.
        self.device_reasons.clear();
        for (state, count) in states {
            self.devices.get_or_create(&StateLabel { state: state.as_str() }).set(count);
        }
        for (reason, count) in reasons {
            self.device_reasons.get_or_create(&ReasonLabel { reason: reason.as_str() }).set(count);
        }
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Serves /metrics, /healthz and /readyz until it is stopped.
pub async fn serve(
    metrics: Arc<Metrics>,
    caches: Arc<Caches>,
    listener: TcpListener,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let for_ready = metrics.clone();
    let router = Router::new()
        .route(
            "/metrics",
            get(move || {
                let metrics = metrics.clone();
                metrics.count_devices(&caches);
                metrics.count_claims(&caches);
                metrics.count_volumes(&caches);
                metrics.count_hosts(&caches);
                async move { metrics.text().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR) }
            }),
        )
        .route("/healthz", get(|| async { "ok" }))
        .route(
            "/readyz",
            get(move || {
                let ready = for_ready.ready.load(Ordering::Acquire);
                async move {
                    if ready {
                        (StatusCode::OK, "ok")
                    } else {
                        (
                            StatusCode::SERVICE_UNAVAILABLE,
                            "waiting for the Lease or the first lists",
                        )
                    }
                }
            }),
        );
    axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn osds_are_counted_per_cluster_until_it_is_gone() {
        let metrics = Metrics::default();
        metrics.set_osds("rook-ceph", "store", &BTreeMap::from([("Running", 2), ("Refused", 1)]));
        metrics.set_osds("rook-ceph", "store", &BTreeMap::from([("Running", 3)]));
        let mut text = String::new();
        encode(&mut text, &metrics.registry).unwrap();
        let line = "quarry_osds{namespace=\"rook-ceph\",cluster=\"store\",state=\"Running\"} 3";
        assert!(text.contains(line) && !text.contains("Refused"), "{text}");
        metrics.set_osds("rook-ceph", "store", &BTreeMap::new());
        let mut text = String::new();
        encode(&mut text, &metrics.registry).unwrap();
        assert!(!text.contains("quarry_osds{"), "{text}");
    }

    #[test]
    fn stages_are_counted_over_all_owners_and_go_with_them() {
        let metrics = Metrics::default();
        let count = |state: &'static str| metrics.stages.get_or_create(&StateLabel { state }).get();
        metrics.set_stages("a", ["Bound", "Bound", "Missing"].into_iter());
        metrics.set_stages("b", ["Bound"].into_iter());
        assert_eq!((count("Bound"), count("Missing")), (3, 1));
        metrics.set_stages("a", ["Bound"].into_iter());
        assert_eq!((count("Bound"), count("Missing")), (2, 0));
        metrics.set_stages("a", std::iter::empty());
        assert_eq!((count("Bound"), metrics.stages_of.lock().unwrap().len()), (1, 1));
    }

    #[test]
    fn device_claims_are_counted_by_the_report_on_them() {
        let (metrics, caches) = (Metrics::default(), Caches::default());
        let owner = |kind: &str| serde_json::json!({"kind": kind, "name": "s", "uid": "u"});
        let claim = |identity: &str, terminating: bool| serde_json::json!({"identity": identity, "owner": owner("LocalVolumeSet"), "round": 2, "terminating": terminating});
        let report = |identity: &str, round: i64, state: &str| serde_json::json!({"identity": identity, "ownerUID": "u", "round": round, "state": state});
        let inventory = serde_json::json!({
            "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": "n1"},
            "spec": {"deviceClaims": [claim("a", false), claim("b", false), claim("c", false), claim("d", true)]},
            "status": {"deviceClaims": [report("a", 2, "Confirmed"), report("b", 2, "Refused"), report("c", 1, "Confirmed"), report("d", 2, "Confirmed")]},
        });
        let inventory = serde_json::from_value(inventory).unwrap();
        caches.store::<NodeInventory>().put(std::sync::Arc::new(inventory));
        metrics.count_claims(&caches);
        let text = metrics.text().unwrap();
        for state in ["Claimed", "Confirmed", "Refused", "Terminating"] {
            let line = format!("quarry_device_claims{{state=\"{state}\"}} 1");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }

    #[test]
    fn devices_are_counted_by_state_and_reason_over_all_nodes() {
        let (metrics, caches) = (Metrics::default(), Caches::default());
        let put = |node: &str, devices: serde_json::Value| {
            let inventory = serde_json::json!({"apiVersion": "quarry.dev/v1alpha1", "kind": "NodeInventory", "metadata": {"name": node}, "spec": {}, "status": {"devices": devices}});
            caches
                .store::<NodeInventory>()
                .put(std::sync::Arc::new(serde_json::from_value(inventory).unwrap()));
        };
        let mounted = serde_json::json!({"name": "sda", "type": "disk", "size": 1, "state": "NotAvailable", "reasons": [{"reason": "Mounted", "detail": "/"}, {"reason": "made up"}]});
        put(
            "n1",
            serde_json::json!([mounted, {"name": "sdb", "type": "disk", "size": 1, "state": "Available"}]),
        );
        put("n2", serde_json::json!([mounted]));
        metrics.count_devices(&caches);
        let text = metrics.text().unwrap();
        for line in [
            "quarry_devices{state=\"Available\"} 1",
            "quarry_devices{state=\"NotAvailable\"} 2",
            "quarry_devices{state=\"Unknown\"} 0",
            "quarry_device_reasons{reason=\"Mounted\"} 2",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("made up"));
        put("n1", serde_json::json!([]));
        put("n2", serde_json::json!([]));
        metrics.count_devices(&caches);
        assert!(!metrics.text().unwrap().contains("Mounted"));
    }
}
