//! Names that more than one crate must spell alike: groups, finalizers, annotations, leases.

/// Our own API group.
pub const GROUP: &str = "quarry.dev";
/// Every kind of ours is listed by `kubectl get quarry`.
pub const CATEGORY: &str = "quarry";
/// Held on a Volume and on its PersistentVolume while storage exists; the upstream name, so that either operator can take over.
pub const VOLUME_FINALIZER: &str = "storage.metalk8s.scality.com/volume-protection";
/// A new value requests another attempt after a failed preparation.
pub const RETRY_ANNOTATION: &str = "quarry.dev/retry";
/// On a Volume, with the name of its node as value: the node does not come back, and the storage there is abandoned.
pub const ABANDON_NODE_ANNOTATION: &str = "quarry.dev/abandon-node";
/// The value of `app.kubernetes.io/managed-by`.
pub const MANAGED_BY: &str = "quarry";
/// The default namespace of the operator, its agents and their leases.
pub const DEFAULT_NAMESPACE: &str = "quarry-system";
/// The service account of every agent.
pub const AGENT_SERVICE_ACCOUNT: &str = "quarry-agent";
/// The DaemonSet that the operator creates.
pub const AGENT_DAEMON_SET: &str = "quarry-agent";
/// The namespace of Events about cluster-scoped objects, by the API conventions.
pub const EVENTS_OF_CLUSTER_OBJECTS: &str = "default";
/// The lease that the leading operator holds.
pub const LEADER_LEASE: &str = "quarry-operator";

/// On a NodeInventory while it has device claims: they must outlive their Node.
pub const DEVICE_CLAIMS_FINALIZER: &str = "quarry.dev/device-claims";
/// On a NodeInventory: identities (separated by commas) that an administrator accepts as they are now.
pub const ACCEPT_IDENTITY_ANNOTATION: &str = "quarry.dev/accept-identity";
/// On a PersistentVolume of the Local Storage Operator: the by-id name of its device.
pub const LSO_DEVICE_ID_ANNOTATION: &str = "storage.openshift.com/device-id";
/// On a NodeInventory, with the machine ID of its device claims as value: they are released. Nothing is wiped.
pub const RELEASE_DEVICE_CLAIMS_ANNOTATION: &str = "quarry.dev/release-device-claims";
/// On a NodeInventory: the UIDs of PersistentVolumes whose retained data is not needed any more.
pub const FORGET_RETAINED_DATA_ANNOTATION: &str = "quarry.dev/forget-retained-data";
/// On a LocalVolume: the UIDs of PersistentVolumes (separated by commas) whose retained data it takes over as it is.
pub const ADOPT_RETAINED_DATA_ANNOTATION: &str = "quarry.dev/adopt-retained-data";
/// On a LocalVolumeSet: transports of devices that are not local and may be claimed nevertheless, separated by commas.
pub const INCLUDE_NOT_LOCAL_ANNOTATION: &str = "quarry.dev/include-not-local";
/// On a StorageClass: how a released device is erased.
pub const WIPE_ANNOTATION: &str = "quarry.dev/wipe";
/// On a NodeInventory: the ID of the ledger that replaces the recorded one, which is lost.
pub const ACCEPT_LEDGER_ANNOTATION: &str = "quarry.dev/accept-ledger";
/// On a PersistentVolume created from a device claim: the round of the device claim.
pub const ROUND_ANNOTATION: &str = "quarry.dev/device-claim-round";
/// On a PersistentVolume created from a device claim: the identity of the device.
pub const IDENTITY_ANNOTATION: &str = "quarry.dev/device-identity";
/// On a PersistentVolume created from a device claim, until its device is wiped or released.
pub const PV_FINALIZER: &str = "quarry.dev/pv-protection";
/// On a LocalVolumeSet and a LocalVolume while it has device claims; the upstream name.
pub const OWNER_FINALIZER: &str = "storage.openshift.com/local-volume-protection";
/// The kernel's name of the device when its PersistentVolume was created; informative.
pub const LSO_DEVICE_NAME_ANNOTATION: &str = "storage.openshift.com/device-name";
/// The provisioner of a PersistentVolume. kube-controller-manager leaves the deletion of such a volume to it.
pub const PROVISIONED_BY_ANNOTATION: &str = "pv.kubernetes.io/provisioned-by";
/// The owner of a PersistentVolume: kind, namespace and name.
pub const PV_OWNER_LABELS: [&str; 3] = [
    "storage.openshift.com/owner-kind",
    "storage.openshift.com/owner-namespace",
    "storage.openshift.com/owner-name",
];
/// The same once more, on the PersistentVolumes of a LocalVolume.
pub const LV_OWNER_LABELS: [&str; 2] = [
    "storage.openshift.com/local-volume-owner-name",
    "storage.openshift.com/local-volume-owner-namespace",
];
/// The owner of a StorageClass: name, namespace and kind.
pub const CLASS_OWNER_LABELS: [&str; 3] = [
    "local.storage.openshift.io/owner-name",
    "local.storage.openshift.io/owner-namespace",
    "local.storage.openshift.io/owner-kind",
];
/// The directory of links to claimed devices, on each node.
pub const LINK_DIRECTORY: &str = "/mnt/local-storage";
/// Links of this boot, for devices without a persistent name of their own: it is empty after a boot.
pub const BOOT_LINK_DIRECTORY: &str = "/run/quarry/links";

/// On a BareMetalHost until Ironic does not know the machine any more; the upstream name.
pub const HOST_FINALIZER: &str = "baremetalhost.metal3.io";
/// On a HardwareData until its host is deleted; the upstream name.
pub const HARDWARE_DATA_FINALIZER: &str = "baremetalhost.metal3.io/hardwareData";
/// On the Secret with BMC credentials while a host uses it; the upstream name.
pub const HOST_SECRET_FINALIZER: &str = "baremetalhost.metal3.io/secret";
/// On Secrets that hosts use: key and value of the label by which they are watched; as upstream.
pub const HOST_SECRET_LABEL: (&str, &str) = ("environment.metal3.io", "baremetal");
/// On a BareMetalHost, with any value: it is not reconciled.
pub const PAUSED_ANNOTATION: &str = "baremetalhost.metal3.io/paused";
/// The value of the annotation that Cluster API's provider writes, and removes only when it is this one.
pub const PAUSED_BY_CAPM3: &str = "metal3.io/capm3";
/// On a BareMetalHost: Ironic does not manage the machine. Empty, or JSON with `deleteAction` and `force`.
pub const DETACHED_ANNOTATION: &str = "baremetalhost.metal3.io/detached";
/// On a BareMetalHost: its status as JSON, restored when it has none, such as after a move to another cluster.
pub const STATUS_ANNOTATION: &str = "baremetalhost.metal3.io/status";
/// On a BareMetalHost, with any value: its RAID volumes stay when it is deprovisioned or deleted.
pub const RETAIN_RAID_ANNOTATION: &str = "quarry.dev/retain-raid";
/// On a BareMetalHost: `disabled`, or empty to inspect an available host again.
pub const INSPECT_ANNOTATION: &str = "inspect.metal3.io";
/// The value of `INSPECT_ANNOTATION` that disables inspection.
pub const INSPECT_DISABLED: &str = "disabled";
/// On a BareMetalHost whose inspection was requested with `INSPECT_ANNOTATION`, until it ends: when Ironic ended the
/// inspection before it, or `none`. Written by the operator.
pub const INSPECTION_ANNOTATION: &str = "quarry.dev/inspection-after";
/// On a BareMetalHost that is not inspected: its hardware as JSON.
pub const HARDWARE_DETAILS_ANNOTATION: &str = "inspect.metal3.io/hardwaredetails";
/// On a BareMetalHost: power it off and on once. Empty, or JSON with `mode` and `force`.
pub const REBOOT_ANNOTATION: &str = "reboot.metal3.io";
/// Followed by a key: the host stays powered off while there is one of these.
pub const REBOOT_ANNOTATION_PREFIX: &str = "reboot.metal3.io/";
/// On a CRD: `clusterctl move` takes objects of this kind along.
pub const CLUSTERCTL_LABEL: &str = "clusterctl.cluster.x-k8s.io";
/// On a CRD: its objects are moved although no Cluster owns them.
pub const CLUSTERCTL_MOVE_LABEL: &str = "clusterctl.cluster.x-k8s.io/move";
/// On a CRD: as above, with all that its objects own.
pub const CLUSTERCTL_MOVE_HIERARCHY_LABEL: &str = "clusterctl.cluster.x-k8s.io/move-hierarchy";
/// The leader Lease of metal3's operator.
pub const METAL3_LEADER_LEASE: &str = "baremetal-operator";

/// The Ceph daemons of a cluster: objects, labels and annotations as upstream spells them, so that either operator can
/// take over.
pub mod ceph {
    /// On a PVC and what uses it: the name of the device set.
    pub const DEVICE_SET_LABEL: &str = "ceph.rook.io/DeviceSet";
    /// On a PVC: the index of its OSD in the set.
    pub const SET_INDEX_LABEL: &str = "ceph.rook.io/setIndex";
    /// On a PVC: `<set>-<template>-<index>`, with dashes for dots. PVCs of device sets are those that have it.
    pub const DEVICE_SET_PVC_ID_LABEL: &str = "ceph.rook.io/DeviceSetPVCId";
    /// On a PVC: the Ceph image with which it was created.
    pub const IMAGE_AT_CREATION_LABEL: &str = "ceph.rook.io/cephImageAtCreation";
    /// On a PVC of upstream: the image of its operator.
    pub const ROOK_IMAGE_AT_CREATION_LABEL: &str = "ceph.rook.io/rookImageAtCreation";
    /// On prepare Jobs and OSD Deployments: the data PVC.
    pub const PVC_LABEL: &str = "ceph.rook.io/pvc";
    /// On OSD Deployments: upstream does not change one with this label.
    pub const DO_NOT_RECONCILE_LABEL: &str = "ceph.rook.io/do-not-reconcile";
    /// On pods of a cluster: its name.
    pub const CLUSTER_LABEL: &str = "rook.io/cluster";
    /// On Deployments, Jobs and pods: the namespace of the cluster.
    pub const ROOK_CLUSTER_LABEL: &str = "rook_cluster";
    pub const APP_LABEL: &str = "app";
    /// The value of `app` of OSDs, and of the ConfigMaps with results of prepare Jobs.
    pub const OSD_APP: &str = "rook-ceph-osd";
    /// The value of `app` of prepare Jobs.
    pub const PREPARE_APP: &str = "rook-ceph-osd-prepare";
    /// The value of `app` of upstream's operator.
    pub const OPERATOR_APP: &str = "rook-ceph-operator";
    pub const OSD_ID_LABEL: &str = "ceph-osd-id";
    /// On OSDs: `true` or `false`.
    pub const PORTABLE_LABEL: &str = "portable";
    pub const DEVICE_CLASS_LABEL: &str = "device-class";
    pub const OSD_STORE_LABEL: &str = "osd-store";
    pub const ENCRYPTED_LABEL: &str = "encrypted";
    pub const FAILURE_DOMAIN_LABEL: &str = "failure-domain";
    /// Followed by a level of the CRUSH map.
    pub const TOPOLOGY_LABEL_PREFIX: &str = "topology-location-";
    /// On ConfigMaps with results: key and value of the label by which they are found.
    pub const STATUS_LABEL: (&str, &str) = ("status", "provisioning");
    /// On ConfigMaps with results: the data PVC.
    pub const NODE_LABEL: &str = "node";
    /// On a template and its data PVC: the CRUSH device class.
    pub const CRUSH_DEVICE_CLASS_ANNOTATION: &str = "crushDeviceClass";
    /// On a template and its data PVC: the CRUSH weight of a new OSD.
    pub const CRUSH_INITIAL_WEIGHT_ANNOTATION: &str = "crushInitialWeight";
    /// On a template and its data PVC: the primary affinity of a new OSD.
    pub const CRUSH_PRIMARY_AFFINITY_ANNOTATION: &str = "crushPrimaryAffinity";
    /// Labels of nodes that are levels of the CRUSH map: followed by chassis, rack, row, pdu, pod, room or datacenter.
    pub const NODE_TOPOLOGY_PREFIX: &str = "topology.rook.io/";
    /// The ConfigMap with the addresses of the mons.
    pub const MON_ENDPOINTS_CONFIG_MAP: &str = "rook-ceph-mon-endpoints";
    /// The Secret with fsid, user and key of the administrator.
    pub const MON_SECRET: &str = "rook-ceph-mon";
    /// The Secret with `mon_host`.
    pub const CONFIG_SECRET: &str = "rook-ceph-config";
    /// The Secret with the keyring of the administrator.
    pub const ADMIN_KEYRING_SECRET: &str = "rook-ceph-admin-keyring";
    /// The ConfigMap with text for ceph.conf.
    pub const CONFIG_OVERRIDE_CONFIG_MAP: &str = "rook-config-override";
    /// The condition of a CephCluster about its device sets.
    pub const DEVICE_SETS_READY: &str = "quarry.dev/DeviceSetsReady";
}

/// Kubernetes' rule for the names of most objects (DNS-1123 subdomain).
pub fn is_subdomain(name: &str) -> bool {
    let part_ok = |part: &str| {
        let inner = part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        inner && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(part_ok)
}

/// The PersistentVolume of a device: 160 bits of node and identity, whatever class it is in.
pub fn local_pv(node: &str, identity: &str) -> String {
    format!("local-pv-{}", &crate::node_job::hex_digest(&[node, identity])[..40])
}

/// The node of a LocalVolumeDiscoveryResult: the label of the specification, and the upstream one.
pub const DISCOVERY_NODE_LABELS: [&str; 2] =
    ["local.storage.openshift.io/discovery-node", "discovery-result-node"];

/// The LocalVolumeDiscoveryResult of `node`.
pub fn discovery_result(node: &str) -> String {
    format!("discovery-result-{}", &crate::node_job::hex_digest(&[node])[..32])
}

/// `text` as the value of a label: longer than 63 characters, it is shortened with a hash, never truncated.
pub fn label_value(text: &str) -> String {
    if text.len() <= 63 {
        return text.to_owned();
    }
    // Node names are ASCII; anything else is cut at a character boundary.
    let kept: String = text.chars().take_while(char::is_ascii).take(46).collect();
    format!("{kept}-{}", &crate::node_job::hex_digest(&[text])[..16])
}

/// The lease by which the agent of `node` shows its presence.
///
/// Node names are DNS subdomains of up to 253 characters, which is also a lease's limit: a longer
/// result is shortened with a hash, never cut.
pub fn agent_lease(node: &str) -> String {
    let plain = format!("quarry-agent-{node}");
    if plain.len() <= 253 {
        return plain;
    }
    format!("{}-{}", &plain[..220], &crate::node_job::hex_digest(&[node])[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_node_name_has_its_own_label_value() {
        let (a, b) = (label_value(&"a".repeat(253)), label_value(&format!("{}b", "a".repeat(252))));
        assert!(a.len() == 63 && b.len() == 63 && a != b);
        assert_eq!(label_value("n1"), "n1");
        assert_eq!(label_value(&"a".repeat(63)), "a".repeat(63));
        assert!(discovery_result(&"a".repeat(253)).len() < 63);
    }

    #[test]
    fn a_long_node_name_has_its_own_lease() {
        let a = agent_lease(&"a".repeat(253));
        let b = agent_lease(&format!("{}b", "a".repeat(252)));
        assert!(a.len() <= 253 && b.len() <= 253);
        assert_ne!(a, b);
        assert_eq!(agent_lease("n1"), "quarry-agent-n1");
    }
}
