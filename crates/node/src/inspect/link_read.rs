//! Where a persistent link leads.

use crate::{host_root::HostRoot, sys::DevNumber};
use quarry_core::storage::sparse::Link;
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
};

/// What a link in /dev/disk leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    Nowhere,
    /// To a block device of this kernel name.
    To(String),
    /// To a name in /dev that is not there (any more), or is no block device.
    Dangling(String),
}

/// Follows the link as the node would: udev's links are relative, so this is right below any host root.
pub fn read(host: &HostRoot, link: &str) -> LinkTarget {
    let path = host.at(link);
    let Ok(target) = fs::read_link(&path) else { return LinkTarget::Nowhere };
    let name =
        target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Ok(meta) = fs::metadata(&path) else { return LinkTarget::Dangling(name) };
    if !meta.file_type().is_block_device() {
        return LinkTarget::Dangling(name);
    }
    let number = DevNumber::from_stat(meta.rdev());
    let entry = host.at("sys/dev/block").join(format!("{}:{}", number.major, number.minor));
    match fs::read_link(entry)
        .ok()
        .and_then(|target| target.file_name().map(|name| name.to_string_lossy().into_owned()))
    {
        Some(kernel_name) => LinkTarget::To(kernel_name),
        None => LinkTarget::Dangling(name),
    }
}

impl From<LinkTarget> for Link {
    fn from(leads: LinkTarget) -> Self {
        match leads {
            LinkTarget::Nowhere => Link::Absent,
            LinkTarget::To(name) | LinkTarget::Dangling(name) => Link::To(name),
        }
    }
}
