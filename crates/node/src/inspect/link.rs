//! Where a persistent link leads.

use crate::{host::Host, sys::DevNumber};
use quarry_core::sparse::Link;
use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
};

/// What a link in /dev/disk leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leads {
    Nowhere,
    /// To a block device of this kernel name.
    To(String),
    /// To a name in /dev that is not there (any more), or is no block device.
    Dangling(String),
}

/// Follows the link as the node would: udev's links are relative, so this is right below any host root.
pub fn read(host: &Host, link: &str) -> Leads {
    let path = host.at(link);
    let Ok(target) = fs::read_link(&path) else { return Leads::Nowhere };
    let name =
        target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Ok(meta) = fs::metadata(&path) else { return Leads::Dangling(name) };
    if !meta.file_type().is_block_device() {
        return Leads::Dangling(name);
    }
    let number = DevNumber::from_stat(meta.rdev());
    let entry = host.at("sys/dev/block").join(format!("{}:{}", number.major, number.minor));
    match fs::read_link(entry)
        .ok()
        .and_then(|target| target.file_name().map(|name| name.to_string_lossy().into_owned()))
    {
        Some(kernel_name) => Leads::To(kernel_name),
        None => Leads::Dangling(name),
    }
}

impl From<Leads> for Link {
    fn from(leads: Leads) -> Self {
        match leads {
            Leads::Nowhere => Link::Absent,
            Leads::To(name) | Leads::Dangling(name) => Link::To(name),
        }
    }
}
