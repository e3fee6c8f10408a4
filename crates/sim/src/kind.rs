//! The kinds that the simulator follows: one line each; where the API serves them follows from their types.

use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret},
    storage::v1::StorageClass,
};
use kube::Resource;
use quarry_api::{
    BareMetalHost, CephCluster, HardwareData, LocalVolume, LocalVolumeDiscovery,
    LocalVolumeDiscoveryResult, LocalVolumeSet, NodeInventory, NodeJob, Volume, names,
};
use std::{borrow::Cow, sync::LazyLock};

/// Where PVCs of the stories live.
pub const NAMESPACE: &str = "default";

macro_rules! kinds {
    ($($name:ident = $kind:ty, $namespace:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($name),* }

        impl Kind {
            /// In the order in which they are declared.
            pub const ALL: &[Kind] = &[$(Kind::$name),*];

            /// As the API names it.
            pub fn kubernetes_kind(self) -> Cow<'static, str> {
                match self { $(Kind::$name => <$kind>::kind(&())),* }
            }

            fn make_path(self) -> String {
                match self { $(Kind::$name => <$kind>::url_path(&(), $namespace)),* }
            }
        }
    };
}

/// Of the operator.
const OWN: Option<&str> = Some(names::DEFAULT_NAMESPACE);

kinds! {
    Volume = Volume, None;
    Pv = PersistentVolume, None;
    Class = StorageClass, None;
    Node = Node, None;
    Job = NodeJob, None;
    Inventory = NodeInventory, None;
    Lease = Lease, OWN;
    Pvc = PersistentVolumeClaim, Some(NAMESPACE);
    Discovery = LocalVolumeDiscovery, OWN;
    Result = LocalVolumeDiscoveryResult, OWN;
    Set = LocalVolumeSet, OWN;
    LocalVolume = LocalVolume, OWN;
    Host = BareMetalHost, OWN;
    HardwareData = HardwareData, OWN;
    Secret = Secret, OWN;
    CephCluster = CephCluster, OWN;
    OsdClaim = PersistentVolumeClaim, OWN;
    PrepareJob = Job, OWN;
    Pod = Pod, OWN;
    ConfigMap = ConfigMap, OWN;
    Deployment = Deployment, OWN;
}

/// Compared with every call: put together once, in the order of the kinds.
static PATHS: LazyLock<Vec<String>> =
    LazyLock::new(|| Kind::ALL.iter().map(|kind| kind.make_path()).collect());

impl Kind {
    /// The path of the collection.
    pub fn path(self) -> &'static str {
        &PATHS[self as usize]
    }

    pub fn object_path(self, name: &str) -> String {
        format!("{}/{name}", self.path())
    }

    /// What a path names: a kind and, unless it is the collection, an object.
    pub fn of_path(path: &str) -> Option<(Kind, Option<&str>)> {
        Kind::ALL.iter().find_map(|&kind| {
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
    fn every_kind_that_a_controller_watches_is_followed() {
        for watched in quarry_operator::Registry::standard().watched_kinds() {
            let followed = |kind: &Kind| kind.kubernetes_kind() == watched.kind();
            assert!(Kind::ALL.iter().any(followed), "{} needs a line here", watched.kind());
        }
    }

    #[test]
    fn paths_are_distinct() {
        assert_eq!(Kind::of_path("/api/v1/persistentvolumes/v1"), Some((Kind::Pv, Some("v1"))));
        assert_eq!(Kind::of_path("/api/v1/persistentvolumes"), Some((Kind::Pv, None)));
        assert_eq!(Kind::of_path("/api/v1/persistentvolumes/v1/status"), None);
        assert_eq!(Kind::of_path("/api/v1/namespaces/default/events/x"), None);
        let set =
            "/apis/local.storage.openshift.io/v1alpha1/namespaces/quarry-system/localvolumesets";
        assert_eq!(Kind::Set.path(), set);
        assert_eq!(Kind::Pvc.path(), "/api/v1/namespaces/default/persistentvolumeclaims");
    }
}
