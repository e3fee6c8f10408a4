//! The API server of a run. Making one compiles every schema, which takes longer than most runs: so each thread keeps
//! one and empties it after a run. UIDs and time start over; only versions go on, and those are not read.

use crate::{admin_client::AdminClient, clock::Clock, lock};
use http::Method;
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job};
use quarry_api::{admission, crds, names};
use quarry_apiserver::{BuiltIn, Options, Server};
use serde_json::json;
use std::{
    cell::RefCell,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

struct Bench {
    /// One run may have several.
    number: usize,
    server: Server,
    clock: Arc<Mutex<Clock>>,
    uids: Arc<AtomicU64>,
}

thread_local! {
    static IDLE: RefCell<Vec<Bench>> = const { RefCell::new(Vec::new()) };
    static USED: RefCell<Vec<Bench>> = const { RefCell::new(Vec::new()) };
}

/// What a story can leave behind; the first of them may be held by finalizers.
const COLLECTIONS: [&str; 23] = [
    "/apis/metal3.io/v1alpha1/namespaces/quarry-system/hardwaredata",
    "/apis/metal3.io/v1alpha1/namespaces/quarry-system/baremetalhosts",
    "/api/v1/namespaces/quarry-system/secrets",
    "/api/v1/namespaces/quarry-system/pods",
    "/apis/batch/v1/namespaces/quarry-system/jobs",
    "/apis/storage.metalk8s.scality.com/v1alpha1/volumes",
    "/api/v1/persistentvolumes",
    "/api/v1/namespaces/default/persistentvolumeclaims",
    "/apis/quarry.dev/v1alpha1/nodeinventories",
    "/apis/local.storage.openshift.io/v1alpha1/namespaces/quarry-system/localvolumesets",
    "/apis/local.storage.openshift.io/v1/namespaces/quarry-system/localvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/api/v1/nodes",
    "/apis/quarry.dev/v1alpha1/nodejobs",
    "/apis/coordination.k8s.io/v1/namespaces/quarry-system/leases",
    "/api/v1/namespaces/default/events",
    "/apis/local.storage.openshift.io/v1alpha1/namespaces/quarry-system/localvolumediscoveries",
    "/apis/local.storage.openshift.io/v1alpha1/namespaces/quarry-system/localvolumediscoveryresults",
    "/api/v1/namespaces/quarry-system/events",
    "/apis/ceph.rook.io/v1/namespaces/quarry-system/cephclusters",
    "/apis/apps/v1/namespaces/quarry-system/deployments",
    "/api/v1/namespaces/quarry-system/configmaps",
    "/api/v1/namespaces/quarry-system/persistentvolumeclaims",
];

const WITH_FINALIZERS: usize = 11;

/// An empty server whose time begins now.
pub async fn take() -> (Server, Clock) {
    // A run that failed has left its own, which may hold anything.
    USED.take();
    take_another(0).await
}

/// One more for the same run; the first is 0.
pub async fn take_another(number: usize) -> (Server, Clock) {
    let now = Clock::start();
    let idle = IDLE.with_borrow_mut(|idle| {
        let at = idle.iter().position(|bench| bench.number == number)?;
        Some(idle.swap_remove(at))
    });
    let bench = idle.unwrap_or_else(|| make(number, now));
    *lock(&bench.clock) = now;
    let server = bench.server.clone();
    lay_out(&server).await;
    bench.uids.store(0, Ordering::Relaxed);
    USED.with_borrow_mut(|used| used.push(bench));
    (server, now)
}

fn make(number: usize, now: Clock) -> Bench {
    let clock = Arc::new(Mutex::new(now));
    let uids = Arc::new(AtomicU64::new(0));
    let (time, counter) = (clock.clone(), uids.clone());
    let server = Server::in_memory(Options {
        crds: crds::crds(),
        policies: admission::embedded_policies()
            .into_iter()
            .map(|policy| (policy.policy, policy.binding))
            .collect(),
        clock: Arc::new(move || lock(&time).now()),
        uids: Arc::new(move || {
            let next = counter.fetch_add(1, Ordering::Relaxed);
            format!("00000000-0000-4000-8{number:03x}-{next:012x}")
        }),
        extra_kinds: vec![
            BuiltIn::pod(),
            BuiltIn::workload::<Job>(&[]),
            BuiltIn::workload::<Deployment>(&["deploy"]),
        ],
    });
    Bench { number, server, clock, uids }
}

/// Makes sure that the operator's namespace is there.
async fn lay_out(server: &Server) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::DEFAULT_NAMESPACE}});
    // Refused when an earlier run made it.
    let _ = AdminClient::new(server.service()).create("/api/v1/namespaces", &namespace).await;
}

/// Empties the server and keeps it, unless something does not go.
pub async fn give_back(server: &Server) {
    give_back_another(0, server).await;
}

pub async fn give_back_another(number: usize, server: &Server) {
    let raw = AdminClient::new(server.service());
    for collection in &COLLECTIONS[..WITH_FINALIZERS] {
        let Ok(list) = raw.call(Method::GET, collection, None).await else { return };
        for object in list["items"].as_array().into_iter().flatten() {
            let path =
                format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
            if raw
                .patch(&path, &json!({"metadata": {"finalizers": null}}))
                .await
                .is_err_and(|refused| refused.code != 404)
            {
                return;
            }
        }
    }
    for collection in COLLECTIONS {
        if raw.delete(collection).await.is_err() {
            return;
        }
    }
    let used = USED.with_borrow_mut(|used| {
        let at = used.iter().position(|bench| bench.number == number)?;
        Some(used.swap_remove(at))
    });
    IDLE.with_borrow_mut(|idle| idle.extend(used));
}
