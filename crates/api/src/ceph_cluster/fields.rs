//! What is accepted and not done, or done in another way than it reads: one table.
//!
//! The admission policy is built from it, and docs/unsupported.md is tested against it. Fields of other daemons are not
//! listed: Quarry runs OSDs of device sets only, and docs/guide/coming-from-rook.md has them.

use super::{DEVICE_SET_KEYS, device_set::config};

/// A field, or a value of it, that is warned about when it is written.
#[derive(Clone, Debug)]
pub struct Warned {
    /// Path from the root; `set` stands for one of either list of sets.
    pub field: &'static str,
    /// A CEL expression over `object`: true if the user gave it.
    pub given: String,
    /// What happens instead, and the remedy.
    pub message: String,
}

/// True if `expression` holds of any `set`.
fn any_set(expression: &str) -> String {
    let lists = DEVICE_SET_KEYS.map(|key| {
        format!(
            "(has(object.spec.storage.{key}) && object.spec.storage.{key}.exists(set, {expression}))"
        )
    });
    format!("has(object.spec.storage) && ({})", lists.join(" || "))
}

/// True if a term of affinity or anti-affinity to pods in `place` has no topology key.
fn no_topology_key(place: &str) -> String {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let absent = |term: &str| format!("(!has({term}.topologyKey) || {term}.topologyKey == '')");
    let one = |affinity: &str| {
        let (term, preference) = (absent("term"), absent("term.podAffinityTerm"));
        format!(
            "(has({affinity}.{required}) && {affinity}.{required}.exists(term, {term})) || (has({affinity}.{preferred}) && {affinity}.{preferred}.exists(term, has(term.podAffinityTerm) && {preference}))"
        )
    };
    let both = ["podAffinity", "podAntiAffinity"].map(|name| {
        let affinity = format!("{place}.{name}");
        format!("(has({affinity}) && ({}))", one(&affinity))
    });
    format!("({})", both.join(" || "))
}

fn given(map: &str, key: &str) -> String {
    format!("has({map}) && '{key}' in {map}")
}

/// Each of these is warned about when it is written.
pub fn warned() -> Vec<Warned> {
    let row = |field, given, message: &str| Warned { field, given, message: message.to_owned() };
    let set_terms = ["set.placement", "set.preparePlacement"]
        .map(|place| format!("(has({place}) && {})", no_topology_key(place)));
    let cluster_terms = format!(
        "has(object.spec.placement) && object.spec.placement.exists(key, {})",
        no_topology_key("object.spec.placement[key]")
    );
    let known = config::KNOWN.map(|key| format!("'{key}'")).join(", ");
    let per_device = config::OSDS_PER_DEVICE;
    let encrypted = config::ENCRYPTED_DEVICE;
    let below = "has(set.resources) && has(set.resources.limits) && has(set.resources.requests) && set.resources.limits.exists(key, key in set.resources.requests && quantity(string(set.resources.limits[key])).compareTo(quantity(string(set.resources.requests[key]))) < 0)";
    let storage = "object.spec.storage";
    vec![
        row(
            "set.placement: a term without topologyKey",
            format!("({}) || ({cluster_terms})", any_set(&set_terms.join(" || "))),
            "a term of podAffinity or podAntiAffinity has no topologyKey, and kubernetes.io/hostname is used; set topologyKey",
        ),
        row(
            "set.encrypted: true",
            any_set(&format!(
                "(has(set.encrypted) && set.encrypted) || ({} && set.config['{encrypted}'] == 'true')",
                given("set.config", encrypted)
            )),
            "encrypted is not supported, and no OSD of such a set is created; remove it, or use devices that encrypt",
        ),
        row(
            "set.config.osdsPerDevice above 1",
            any_set(&format!(
                "{} && !(set.config['{per_device}'] in ['', '1'])",
                given("set.config", per_device)
            )),
            "config.osdsPerDevice above 1 is not supported, and no OSD of such a set is created; set it to \"1\" or remove it",
        ),
        row(
            "set.config: a key that is not known",
            any_set(&format!(
                "has(set.config) && set.config.exists(key, !(key in [{known}]))"
            )),
            &format!(
                "config of a set has a key that is kept and not used; known are {}",
                config::KNOWN.join(", ")
            ),
        ),
        row(
            "set.resources.limits below requests",
            any_set(below),
            "resources.limits of a set is below resources.requests, and no OSD of such a set is created; raise the limit or lower the request",
        ),
        row(
            "set.tuneFastDeviceClass beside tuneDeviceClass",
            any_set(
                "has(set.tuneDeviceClass) && set.tuneDeviceClass && has(set.tuneFastDeviceClass) && set.tuneFastDeviceClass",
            ),
            "tuneFastDeviceClass is not used, because tuneDeviceClass is set too; remove one of them",
        ),
        row(
            "spec.storage: devices of hosts",
            format!(
                "has({storage}) && ((has({storage}.useAllDevices) && {storage}.useAllDevices) || (has({storage}.nodes) && {storage}.nodes != null && {storage}.nodes.size() > 0))"
            ),
            "spec.storage.useAllDevices and nodes are not used; publish the devices with a LocalVolumeSet, and request them in storageClassDeviceSets",
        ),
        row(
            "spec.network: host",
            "has(object.spec.network) && object.spec.network != null && ((has(object.spec.network.provider) && object.spec.network.provider == 'host') || (has(object.spec.network.hostNetwork) && object.spec.network.hostNetwork == true))".to_owned(),
            "spec.network is not used; OSDs are in the network of pods, which clients and mons must reach",
        ),
        row(
            "spec.external beside device sets",
            format!(
                "has(object.spec.external) && has(object.spec.external.enable) && object.spec.external.enable && {}",
                any_set("true")
            ),
            "device sets are not used, because spec.external.enable is true; remove one of them",
        ),
    ]
}
