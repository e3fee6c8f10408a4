//! Gathers what a decision about one host needs. Decides nothing.

use super::rival;
use crate::{Context, controller::Failure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use quarry_api::{BareMetalHost, HardwareData, NodeInventory};
use quarry_core::{
    bare_metal_host::{IronicView, Observed, needs_ironic, needs_user_data, raid::wants_arrays},
    host_join::{
        joins,
        raid::{Array, arrays},
    },
};

/// `None` when there is no such host, or when another operator drives it.
pub async fn observe(context: &Context, key: &str) -> Result<Option<Observed>, Failure> {
    let Some(hosts) = &context.hosts else { return Ok(None) };
    let caches = context.caches.as_ref();
    let Some(host) = caches.get::<BareMetalHost>(key) else {
        hosts.ironic.forget(key);
        return Ok(None);
    };
    if let Some(rival) = rival::active(context).await? {
        return Err(Failure::waiting(format!(
            "skipped BareMetalHost {key}: {rival}; stop it before Quarry drives its hosts"
        )));
    }
    let hardware_data = match caches.get::<HardwareData>(key) {
        Some(data) => Some((*data).clone()),
        None => read_hardware_data(context, &host).await?,
    };
    let secret = read_secret(context, &host).await?;
    let user_data = read_user_data(context, &host).await?;
    let ironic = if needs_ironic(&host) {
        match hosts.ironic.view(&host, context.now()).await {
            Ok(seen) => IronicView::Seen(Box::new(seen)),
            Err(error) => IronicView::Failed(error),
        }
    } else {
        IronicView::NotAsked
    };
    Ok(Some(Observed {
        secret_is_shared: is_shared(context, &host),
        host: (*host).clone(),
        hardware_data,
        secret,
        user_data,
        arrays: read_arrays(context, &host),
        ironic,
        settings: hosts.settings.clone(),
    }))
}

/// Absence counts: a host without one may be inspected again, which reboots it.
async fn read_hardware_data(
    context: &Context,
    host: &BareMetalHost,
) -> Result<Option<HardwareData>, Failure> {
    let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
    let api: Api<HardwareData> = Api::namespaced(context.client.clone(), &namespace);
    let found = api.get_opt(&name).await;
    found.map_err(|error| Failure::api(format!("reading HardwareData {namespace}/{name}"), error))
}

/// One that no host has used yet has no label, and is not in the cache.
async fn read_secret(context: &Context, host: &BareMetalHost) -> Result<Option<Secret>, Failure> {
    let Some(bmc) = host.bmc().filter(|bmc| !bmc.credentials_name.is_empty()) else {
        return Ok(None);
    };
    let namespace = host.namespace().unwrap_or_default();
    let key = format!("{namespace}/{}", bmc.credentials_name);
    if let Some(found) = context.caches.get::<Secret>(&key) {
        return Ok(Some((*found).clone()));
    }
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let found = api.get_opt(&bmc.credentials_name).await;
    found.map_err(|error| Failure::api(format!("reading Secret {key}"), error))
}

/// Every host and node is compared for this: asked only while arrays were not seen.
fn read_arrays(context: &Context, host: &BareMetalHost) -> Option<Vec<Array>> {
    if !wants_arrays(host) {
        return None;
    }
    let caches = context.caches.as_ref();
    let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
    let all = joins(caches);
    let found = all.iter().find(|one| one.namespace == namespace && one.name == name)?;
    let inventory = caches.get::<NodeInventory>(found.node()?)?;
    Some(arrays(&inventory.status.as_ref()?.devices))
}

/// Never cached: it is used once, and belongs to others.
async fn read_user_data(
    context: &Context,
    host: &BareMetalHost,
) -> Result<Option<Secret>, Failure> {
    let reference = host.spec.user_data.as_ref().filter(|_| needs_user_data(host));
    let Some(name) = reference.and_then(|reference| reference.name.clone()) else {
        return Ok(None);
    };
    let namespace = reference.and_then(|reference| reference.namespace.clone());
    let namespace = namespace.or(host.namespace()).unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let found = api.get_opt(&name).await;
    found.map_err(|error| Failure::api(format!("reading Secret {namespace}/{name}"), error))
}

/// Asked only at the end of a host: every other one is looked through.
fn is_shared(context: &Context, host: &BareMetalHost) -> bool {
    if host.metadata.deletion_timestamp.is_none() {
        return false;
    }
    let name = |host: &BareMetalHost| host.bmc().map(|bmc| bmc.credentials_name.clone());
    let wanted = name(host);
    let mut others = context.caches.store::<BareMetalHost>().each();
    wanted.is_some()
        && others.any(|other| {
            other.uid() != host.uid()
                && other.namespace() == host.namespace()
                && name(&other) == wanted
        })
}
