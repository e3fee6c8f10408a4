//! Which changes enqueue which hosts.

use crate::trigger::Triggers;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use quarry_api::{BareMetalHost, HardwareData};

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

fn key<K: ResourceExt>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
