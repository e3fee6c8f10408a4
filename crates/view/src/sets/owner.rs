//! Naming an owner: `set/NAME` or `localvolume/NAME`, and finding it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use quarry_core::{
    device_claim::{
        Demand,
        demand::{of_local_volume, of_set},
    },
    source::Source,
};

/// An object that requests devices, by kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerRef {
    Set(String),
    LocalVolume(String),
}

impl OwnerRef {
    pub fn name(&self) -> &str {
        match self {
            OwnerRef::Set(name) | OwnerRef::LocalVolume(name) => name,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            OwnerRef::Set(_) => "LocalVolumeSet",
            OwnerRef::LocalVolume(_) => "LocalVolume",
        }
    }

    /// By kubectl's names of the kinds; `None` for another word.
    pub fn parse(kind: &str, name: &str) -> Option<Self> {
        match kind.to_ascii_lowercase().as_str() {
            "set" | "sets" | "lvset" | "localvolumeset" | "localvolumesets" => {
                Some(OwnerRef::Set(name.to_owned()))
            }
            "lvol" | "localvolume" | "localvolumes" => Some(OwnerRef::LocalVolume(name.to_owned())),
            _ => None,
        }
    }
}

/// The UID of the owner in the operator's namespace; `None` when it does not exist.
pub fn live(source: &impl Source, owner: &OwnerRef) -> Option<String> {
    let here = |meta: &ObjectMeta| {
        meta.name.as_deref() == Some(owner.name())
            && meta.namespace.as_deref() == Some(source.namespace())
    };
    match owner {
        OwnerRef::Set(_) => source.sets().iter().find(|set| here(&set.metadata))?.uid(),
        OwnerRef::LocalVolume(_) => {
            source.local_volumes().iter().find(|volume| here(&volume.metadata))?.uid()
        }
    }
}

/// That the owner does not exist, with the names of those that do.
pub fn missing(source: &impl Source, owner: &OwnerRef) -> String {
    let here = |namespace: Option<String>| namespace.as_deref() == Some(source.namespace());
    let names: Vec<String> = match owner {
        OwnerRef::Set(_) => {
            let sets = source.sets().into_iter().filter(|set| here(set.namespace()));
            sets.map(|set| set.name_any()).collect()
        }
        OwnerRef::LocalVolume(_) => {
            let volumes = source.local_volumes().into_iter();
            let volumes = volumes.filter(|volume| here(volume.namespace()));
            volumes.map(|volume| volume.name_any()).collect()
        }
    };
    let remedy = if names.is_empty() {
        "choose another namespace with -n: this one has none".to_owned()
    } else {
        format!("use one of: {} (or another namespace with -n)", names.join(", "))
    };
    let (namespace, kind, name) = (source.namespace(), owner.kind(), owner.name());
    format!("namespace {namespace} has no {kind} {name}; {remedy}")
}

/// Sets and LocalVolumes that no operator acts on.
pub fn outside_namespace(source: &impl Source) -> Vec<Demand> {
    let sets = source.sets().into_iter().map(|set| of_set(&set));
    let volumes = source.local_volumes().into_iter().map(|volume| of_local_volume(&volume));
    let outside = |demand: &Demand| demand.owner.namespace.as_deref() != Some(source.namespace());
    sets.chain(volumes).filter(outside).collect()
}
