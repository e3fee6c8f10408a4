//! Which changes enqueue which hosts.

use crate::{cache::Caches, trigger::Triggers};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::ResourceExt;
use quarry_api::{BareMetalHost, HardwareData, NodeInventory};
use quarry_core::{bare_metal_host::raid::wants_arrays, host_join::raid};

pub fn register(triggers: &mut Triggers<'_>) {
    triggers
        .on::<BareMetalHost>(|change, _, enqueue| {
            // Reports of our own enqueue nothing, except a new state or node: that is the next step.
            let parts = |host: &BareMetalHost| {
                let meta = &host.metadata;
                let status = host.status.as_ref();
                (
                    (meta.uid.clone(), meta.generation, meta.deletion_timestamp.clone()),
                    (meta.annotations.clone(), meta.finalizers.clone()),
                    status.map(|status| {
                        (status.provisioning.state.clone(), status.provisioning.id.clone())
                    }),
                )
            };
            if change.differs(parts) {
                enqueue(key(change.object()));
            }
        })
        // Arrays of a host that wants to know them; its Node says which host it runs on.
        .on::<NodeInventory>(|change, caches, enqueue| {
            let arrays = |one: &NodeInventory| {
                one.status.as_ref().map(|status| raid::arrays(&status.devices))
            };
            if change.differs(arrays) {
                enqueue_waiting(caches, enqueue);
            }
        })
        .on::<Node>(|change, caches, enqueue| {
            let id = |node: &Node| node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
            if change.differs(id) {
                enqueue_waiting(caches, enqueue);
            }
        })
        .on::<HardwareData>(|change, _, enqueue| enqueue(key(change.object())))
        .on::<Secret>(|change, caches, enqueue| {
            let (namespace, name) = (change.object().namespace(), change.object().name_any());
            for host in caches.store::<BareMetalHost>().each() {
                let named = host.bmc().is_some_and(|bmc| bmc.credentials_name == name);
                if named && host.namespace() == namespace {
                    enqueue(key(&*host));
                }
            }
        });
}

fn enqueue_waiting(caches: &Caches, enqueue: &mut dyn FnMut(String)) {
    let hosts = caches.store::<BareMetalHost>().each();
    hosts.filter(|host| wants_arrays(host)).for_each(|host| enqueue(key(&*host)));
}

fn key<K: ResourceExt>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
