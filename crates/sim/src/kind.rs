//! The kinds that the simulator follows, and where the API serves them.

use quarry_api::names;
use std::sync::LazyLock;

/// Where claims of the stories live.
pub const NAMESPACE: &str = "default";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Volume,
    Pv,
    Class,
    Node,
    Job,
    Inventory,
    Lease,
    Pvc,
    Discovery,
    Result,
    Set,
    LocalVolume,
}

/// Compared with every call: put together once, in the order of the kinds.
static PATHS: LazyLock<[String; 12]> = LazyLock::new(|| Kind::ALL.map(Kind::make_path));

impl Kind {
    /// In the order in which they are declared.
    pub const ALL: [Kind; 12] = [
        Kind::Volume,
        Kind::Pv,
        Kind::Class,
        Kind::Node,
        Kind::Job,
        Kind::Inventory,
        Kind::Lease,
        Kind::Pvc,
        Kind::Discovery,
        Kind::Result,
        Kind::Set,
        Kind::LocalVolume,
    ];
    /// Those that an operator watches, in the order in which it starts.
    pub const OPERATORS: [Kind; 11] = [
        Kind::Volume,
        Kind::Pv,
        Kind::Class,
        Kind::Node,
        Kind::Job,
        Kind::Inventory,
        Kind::Lease,
        Kind::Discovery,
        Kind::Result,
        Kind::Set,
        Kind::LocalVolume,
    ];

    /// As the API names it.
    pub fn kubernetes_kind(self) -> &'static str {
        match self {
            Kind::Volume => "Volume",
            Kind::Pv => "PersistentVolume",
            Kind::Class => "StorageClass",
            Kind::Node => "Node",
            Kind::Job => "NodeJob",
            Kind::Inventory => "NodeInventory",
            Kind::Lease => "Lease",
            Kind::Pvc => "PersistentVolumeClaim",
            Kind::Discovery => "LocalVolumeDiscovery",
            Kind::Result => "LocalVolumeDiscoveryResult",
            Kind::Set => "LocalVolumeSet",
            Kind::LocalVolume => "LocalVolume",
        }
    }

    /// The path of the collection.
    pub fn path(self) -> &'static str {
        &PATHS[self as usize]
    }

    fn make_path(self) -> String {
        let local = |version: &str, plural: &str| {
            format!(
                "/apis/local.storage.openshift.io/{version}/namespaces/{}/{plural}",
                names::DEFAULT_NAMESPACE
            )
        };
        match self {
            Kind::Volume => "/apis/storage.metalk8s.scality.com/v1alpha1/volumes".into(),
            Kind::Pv => "/api/v1/persistentvolumes".into(),
            Kind::Class => "/apis/storage.k8s.io/v1/storageclasses".into(),
            Kind::Node => "/api/v1/nodes".into(),
            Kind::Job => "/apis/quarry.dev/v1alpha1/nodejobs".into(),
            Kind::Inventory => "/apis/quarry.dev/v1alpha1/nodeinventories".into(),
            Kind::Lease => format!(
                "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
                names::DEFAULT_NAMESPACE
            ),
            Kind::Discovery => local("v1alpha1", "localvolumediscoveries"),
            Kind::Result => local("v1alpha1", "localvolumediscoveryresults"),
            Kind::Set => local("v1alpha1", "localvolumesets"),
            Kind::LocalVolume => local("v1", "localvolumes"),
            Kind::Pvc => format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"),
        }
    }

    pub fn object_path(self, name: &str) -> String {
        format!("{}/{name}", self.path())
    }

    /// What a path names: a kind and, unless it is the collection, an object.
    pub fn of_path(path: &str) -> Option<(Kind, Option<&str>)> {
        Kind::ALL.into_iter().find_map(|kind| {
            let rest = path.strip_prefix(kind.path())?;
            match rest.strip_prefix('/') {
                None if rest.is_empty() => Some((kind, None)),
                Some(name) if !name.contains('/') => Some((kind, Some(name))),
                _ => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_distinct() {
        assert_eq!(Kind::of_path("/api/v1/persistentvolumes/v1"), Some((Kind::Pv, Some("v1"))));
        assert_eq!(Kind::of_path("/api/v1/persistentvolumes"), Some((Kind::Pv, None)));
        assert_eq!(Kind::of_path("/api/v1/persistentvolumes/v1/status"), None);
        assert_eq!(Kind::of_path("/api/v1/namespaces/default/events/x"), None);
    }
}
