//! Gathers what a decision about one host needs. Decides nothing.

use super::rival;
use crate::{Context, controller::Failure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use quarry_api::{BareMetalHost, HardwareData, NodeInventory};
use quarry_core::{
    bare_metal_host::{
        FormerSecret, IronicView, Observed, former_names, needs_ironic, needs_user_data,
        raid::{wants_arrays, warns_of_arrays},
    },
    host_join::{
        joins,
        raid::{Array, arrays},
    },
};
use std::sync::Arc;

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
    let former_secrets = read_former_secrets(context, &host).await?;
    let ironic = if needs_ironic(&host) {
        match hosts.ironic.view(&host, hardware_data.as_ref(), context.now()).await {
            Ok(seen) => IronicView::Seen(Box::new(seen)),
            Err(error) => IronicView::Failed(error),
        }
    } else {
        IronicView::NotAsked
    };
    Ok(Some(Observed {
        secret_is_shared: is_secret_shared(context, &host),
        host: (*host).clone(),
        hardware_data,
        secret,
        user_data,
        arrays: read_arrays(context, &host),
        former_secrets,
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
    read_named_secret(context, host, &bmc.credentials_name).await
}

async fn read_named_secret(
    context: &Context,
    host: &BareMetalHost,
    name: &str,
) -> Result<Option<Secret>, Failure> {
    let namespace = host.namespace().unwrap_or_default();
    let key = format!("{namespace}/{name}");
    if let Some(found) = context.caches.get::<Secret>(&key) {
        return Ok(Some((*found).clone()));
    }
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let found = api.get_opt(name).await;
    found.map_err(|error| Failure::api(format!("reading Secret {key}"), error))
}

/// Every host and node is compared for this: asked only while arrays were not seen, or where there are some.
fn read_arrays(context: &Context, host: &BareMetalHost) -> Option<Vec<Array>> {
    let caches = context.caches.as_ref();
    let has_arrays = |inventory: Arc<NodeInventory>| {
        inventory.status.as_ref().is_some_and(|status| !arrays(&status.devices).is_empty())
    };
    let exist = || caches.store::<NodeInventory>().each().any(has_arrays);
    if !(wants_arrays(host) || warns_of_arrays(host) && exist()) {
        return None;
    }
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
    // Never one of another namespace: the planner refuses it.
    let namespace = host.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let found = api.get_opt(&name).await;
    found.map_err(|error| Failure::api(format!("reading Secret {namespace}/{name}"), error))
}

/// Those that the status names, and those that were claimed for the host before the status could name them.
async fn read_former_secrets(
    context: &Context,
    host: &BareMetalHost,
) -> Result<Vec<FormerSecret>, Failure> {
    let named = host.bmc().map(|bmc| bmc.credentials_name.clone());
    let mut former = former_names(host);
    let claimed = context.caches.store::<Secret>().each().filter(|secret| {
        secret.namespace() == host.namespace()
            && secret.owner_references().iter().any(|one| Some(&one.uid) == host.uid().as_ref())
    });
    former.extend(
        claimed.map(|secret| secret.name_any()).filter(|name| Some(name) != named.as_ref()),
    );
    former.sort();
    former.dedup();
    let mut found = Vec::new();
    for name in former {
        if let Some(secret) = read_named_secret(context, host, &name).await? {
            found.push(FormerSecret { secret, is_shared: is_shared(context, host, &name) });
        }
    }
    Ok(found)
}

/// Asked only at the end of a host: every other one is looked through.
fn is_secret_shared(context: &Context, host: &BareMetalHost) -> bool {
    let deleted = host.metadata.deletion_timestamp.is_some();
    let named = host.bmc().filter(|_| deleted);
    named.is_some_and(|bmc| is_shared(context, host, &bmc.credentials_name))
}

/// Another host names the Secret.
fn is_shared(context: &Context, host: &BareMetalHost, secret: &str) -> bool {
    context.caches.store::<BareMetalHost>().each().any(|other| {
        other.uid() != host.uid()
            && other.namespace() == host.namespace()
            && other.bmc().is_some_and(|bmc| bmc.credentials_name == secret)
    })
}
