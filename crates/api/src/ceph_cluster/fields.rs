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
    /// CEL expressions over `object`: one of them is true if the user gave it. Several shallow ones instead of one:
    /// an evaluator needs stack for every level.
    pub given: Vec<String>,
    /// What happens instead, and the remedy.
    pub message: String,
}

/// For each list of sets: true if `expression` holds of any `set`.
fn any_set(expression: &str) -> Vec<String> {
    let lists = DEVICE_SET_KEYS.map(|key| {
        format!(
            "has(object.spec.storage) && has(object.spec.storage.{key}) && object.spec.storage.{key}.exists(set, {expression})"
        )
    });
    lists.into()
}

/// For each kind of term of affinity and anti-affinity to pods in `place`: true if one has no topology key.
fn no_topology_key(place: &str) -> Vec<String> {
    let mut all = Vec::new();
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let place = format!("{place}.{affinity}");
        for (kind, absent) in [
            ("required", "!has(term.topologyKey) || term.topologyKey == ''"),
            (
                "preferred",
                "!has(term.podAffinityTerm) || !has(term.podAffinityTerm.topologyKey) || term.podAffinityTerm.topologyKey == ''",
            ),
        ] {
            let terms = format!("{place}.{kind}DuringSchedulingIgnoredDuringExecution");
            all.push(format!("has({place}) && has({terms}) && {terms}.exists(term, {absent})"));
        }
    }
    all
}

fn given(map: &str, key: &str) -> String {
    format!("has({map}) && '{key}' in {map}")
}

/// Each of these is warned about when it is written.
pub fn warned() -> Vec<Warned> {
    let row = |field, given, message: &str| Warned { field, given, message: message.to_owned() };
    let mut terms: Vec<String> = ["set.placement", "set.preparePlacement"]
        .iter()
        .flat_map(|place| no_topology_key(place).into_iter().map(move |one| (place, one)))
        .flat_map(|(place, one)| any_set(&format!("has({place}) && {one}")))
        .collect();
    terms.extend(no_topology_key("object.spec.placement[key]").into_iter().map(|one| {
        format!("has(object.spec.placement) && object.spec.placement.exists(key, {one})")
    }));
    let known = config::KNOWN.map(|key| format!("'{key}'")).join(", ");
    let per_device = config::OSDS_PER_DEVICE;
    let encrypted = config::ENCRYPTED_DEVICE;
    let below = "has(set.resources) && has(set.resources.limits) && has(set.resources.requests) && set.resources.limits.exists(key, key in set.resources.requests && quantity(string(set.resources.limits[key])).compareTo(quantity(string(set.resources.requests[key]))) < 0)";
    let storage = "object.spec.storage";
    let network = "has(object.spec.network) && object.spec.network != null";
    let external = "has(object.spec.external) && has(object.spec.external.enable) && object.spec.external.enable";
    vec![
        row(
            "set.placement: a term without topologyKey",
            terms,
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
            any_set(&format!("has(set.config) && set.config.exists(key, !(key in [{known}]))")),
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
            vec![
                format!(
                    "has({storage}) && has({storage}.useAllDevices) && {storage}.useAllDevices"
                ),
                format!(
                    "has({storage}) && has({storage}.nodes) && {storage}.nodes != null && {storage}.nodes.size() > 0"
                ),
            ],
            "spec.storage.useAllDevices and nodes are not used; publish the devices with a LocalVolumeSet, and request them in storageClassDeviceSets",
        ),
        row(
            "spec.network: host",
            vec![
                format!(
                    "{network} && has(object.spec.network.provider) && object.spec.network.provider == 'host'"
                ),
                format!(
                    "{network} && has(object.spec.network.hostNetwork) && object.spec.network.hostNetwork == true"
                ),
            ],
            "spec.network is not used; OSDs are in the network of pods, which clients and mons must reach",
        ),
        row(
            "spec.external beside device sets",
            any_set("true").into_iter().map(|sets| format!("{external} && {sets}")).collect(),
            "device sets are not used, because spec.external.enable is true; remove one of them",
        ),
    ]
}
