//! Arguments of `quarry osds` and `quarry osd`.
//!
//! Variables are upstream's where it has them, so that the pod of a prepare Job reads as there. What can be wrong in
//! an object is taken as text and judged by the command: its result must reach the termination message, and a refusal
//! of an argument would not.

use crate::output::Format;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct OsdsArgs {
    #[arg(short, long, value_enum, default_value_t = Format::Table, help = "Output format")]
    pub output: Format,
    /// Watch for changes after listing
    #[arg(short, long)]
    pub watch: bool,
    /// Namespace of the CephClusters [default: all namespaces]
    #[arg(short, long)]
    pub namespace: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum OsdCommand {
    /// Make an OSD of a blank device, or report the one that is on it (in the pod of a prepare Job)
    Prepare(Box<PrepareArgs>),
    /// Copy this binary and its libraries to a directory (in the init container of a prepare Job)
    Install {
        /// Directory, which exists
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct PrepareArgs {
    /// UUID of the OSD: the UID of the PVC of its data device
    #[arg(long, env = "ROOK_OSD_UUID", value_name = "UUID")]
    pub uuid: String,
    /// UUID of the cluster
    #[arg(long, env = "ROOK_FSID", value_name = "UUID")]
    pub fsid: String,
    /// Addresses of the monitors, as in ceph.conf
    #[arg(long, env = "ROOK_CEPH_MON_HOST", value_name = "ADDRESSES")]
    pub mon_host: String,
    /// Keyring of the user that registers OSDs
    #[arg(long, value_name = "FILE", default_value = "/etc/ceph/keyring-store/keyring")]
    pub keyring: PathBuf,
    /// Further settings for ceph.conf, from the ConfigMap rook-config-override [default: none]
    #[arg(long, value_name = "FILE")]
    pub config_override: Option<PathBuf>,
    /// Data device
    #[arg(long, value_name = "DEVICE", default_value = "/dev/rook/device0")]
    pub data: PathBuf,
    /// Device for metadata (block.db) [default: none]
    #[arg(long, value_name = "DEVICE")]
    pub metadata: Option<PathBuf>,
    /// Device for the write-ahead log (block.wal) [default: none]
    #[arg(long, value_name = "DEVICE")]
    pub wal: Option<PathBuf>,
    /// ID of a destroyed OSD that this one replaces [default: the next free ID]
    #[arg(long, value_name = "ID")]
    pub id: Option<u32>,
    /// CRUSH device class [default: by the kind of the device]
    #[arg(long, env = "ROOK_OSD_CRUSH_DEVICE_CLASS", value_name = "CLASS")]
    pub device_class: Option<String>,
    /// CRUSH root
    #[arg(long, env = "ROOK_CRUSHMAP_ROOT", value_name = "NAME", default_value = "default")]
    pub crush_root: String,
    /// CRUSH host [default: the node's name]
    #[arg(long, env = "ROOK_CRUSHMAP_HOSTNAME", value_name = "NAME")]
    pub crush_host: Option<String>,
    /// Node that this pod runs on
    #[arg(long, env = "NODE_NAME", value_name = "NAME", default_value = "")]
    pub node_name: String,
    /// PVC of the data device
    #[arg(long, env = "ROOK_PVC_NAME", value_name = "NAME", default_value = "")]
    pub pvc_name: String,
    /// Directory for temporary files
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ceph/osd/prepare")]
    pub work_dir: PathBuf,
    /// File for the result
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    pub termination_message: PathBuf,
}
