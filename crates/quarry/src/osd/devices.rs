//! The devices of an OSD as they are now: opened, read, and translated for `quarry_ceph::judge`.

use super::{Failure, tools};
use crate::cli::PrepareArgs;
use quarry_ceph::{
    Content, Device, Role,
    command::show_label,
    judge::{Access, LABEL_COPIES, LABEL_MAGIC},
    label::parse_label,
    result::Reason,
};
use quarry_core::device;
use quarry_node::{NodeError, block_device::BlockDevice};
use std::path::Path;

/// libblkid's name of BlueStore.
const BLUESTORE: &str = "ceph_bluestore";

/// Descriptors that keep other processes away, until mkfs opens the devices itself.
pub struct OpenDevices {
    pub data: Device,
    /// Metadata and wal.
    pub others: Vec<Device>,
    held: Vec<BlockDevice>,
}

impl OpenDevices {
    pub fn open(args: &PrepareArgs) -> Result<Self, Failure> {
        let (held, data) = open(Role::Data, &args.data)?;
        let mut held = vec![held];
        let mut others = Vec::new();
        for (role, path) in [(Role::Metadata, &args.metadata), (Role::Wal, &args.wal)] {
            let Some(path) = path else { continue };
            let (descriptor, device) = open(role, path)?;
            if held.iter().any(|other| other.is_same_as(&descriptor)) {
                return Err(Failure::new(
                    Reason::InvalidInput,
                    format!(
                        "{role} device {} is also used in another role; give each role its own PVC",
                        path.display()
                    ),
                ));
            }
            held.push(descriptor);
            others.push(device);
        }
        Ok(Self { data, others, held })
    }

    pub fn all(&self) -> impl Iterator<Item = &Device> {
        std::iter::once(&self.data).chain(&self.others)
    }

    /// Right before mkfs, which opens them exclusively.
    pub fn close(&mut self) {
        self.held.clear();
    }
}

fn open(role: Role, path: &Path) -> Result<(BlockDevice, Device), Failure> {
    let unreadable = |error: NodeError| {
        let problem = format!(
            "{role} device {}: {}; check the PVC and the user of the pod",
            path.display(),
            error.message()
        );
        Failure::new(Reason::DeviceUnreadable, problem)
    };
    let Some(shown) = path.to_str() else {
        let problem = format!("{role} device {}: the path is not valid UTF-8", path.display());
        return Err(Failure::new(Reason::InvalidInput, problem));
    };
    let device = BlockDevice::open(path).map_err(unreadable)?;
    let access = if !device.is_exclusive() {
        Access::Busy
    } else if device.is_read_only().map_err(unreadable)? {
        Access::ReadOnly
    } else if !device.may_write() {
        Access::NotPermitted
    } else {
        Access::Free
    };
    let content = content(shown, &device)?;
    let (path, size) = (shown.to_owned(), device.size());
    Ok((device, Device { role, path, size, access, content }))
}

fn content(path: &str, device: &BlockDevice) -> Result<Content, Failure> {
    let content = match device.content() {
        Ok(content) => content,
        Err(error) => return Ok(Content::Unreadable(error.message())),
    };
    if let device::Content::Found(found) = &content
        && found.fs_type.as_deref() == Some(BLUESTORE)
    {
        return read_label(path);
    }
    Ok(match describe(&content) {
        Some(other) => other,
        None => match label_copy(device) {
            Ok(None) => Content::Blank,
            Ok(Some(offset)) => Content::Other(format!(
                "a copy of a BlueStore label at {} GiB, left by an OSD whose beginning was erased",
                offset >> 30
            )),
            Err(error) => Content::Unreadable(error.message()),
        },
    })
}

/// `None`: blank, as far as libblkid, head and tail say.
fn describe(content: &device::Content) -> Option<Content> {
    Some(match content {
        device::Content::Blank => return None,
        device::Content::Found(found) => {
            let label = found.label.as_deref().map(|label| format!(" {label:?}"));
            let kind = match (&found.fs_type, &found.table) {
                (Some(kind), _) => kind.as_str(),
                (None, Some(table)) => &format!("a partition table ({table})"),
                (None, None) => "an unnamed signature",
            };
            Content::Other(format!("{kind}{}", label.unwrap_or_default()))
        }
        device::Content::UnknownData => Content::Other("unrecognized data".into()),
        device::Content::Unreadable(cause) => Content::Unreadable(cause.clone()),
        device::Content::NotPermitted => Content::Unreadable("permission denied".into()),
        device::Content::NoMedium => Content::Unreadable("it has no medium".into()),
        device::Content::Unread | device::Content::TimedOut => {
            Content::Unreadable("it did not respond".into())
        }
    })
}

fn label_copy(device: &BlockDevice) -> Result<Option<u64>, NodeError> {
    for offset in LABEL_COPIES {
        if device.has_at(offset, LABEL_MAGIC)? {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

/// A label that cannot be read is data like any other.
pub fn read_label(path: &str) -> Result<Content, Failure> {
    let output = tools::run(&show_label(path))?;
    if output.code != Some(0) {
        return Ok(Content::Other(format!(
            "a BlueStore label that ceph-bluestore-tool cannot read ({})",
            output.said
        )));
    }
    Ok(match parse_label(path, &output.stdout) {
        Ok(label) => Content::Label(label),
        Err(error) => Content::Other(format!("a BlueStore label that is not understood ({error})")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_core::device::Found;

    #[test]
    fn content_is_described_for_people() {
        let found = |fs_type: Option<&str>, table: Option<&str>, label: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let (fs_type, table, label) = (text(fs_type), text(table), text(label));
            describe(&device::Content::Found(Found { fs_type, table, label, ..Found::default() }))
        };
        let other = |text: &str| Some(Content::Other(text.to_owned()));
        assert_eq!(found(Some("ext4"), None, Some("home")), other("ext4 \"home\""));
        assert_eq!(found(None, Some("gpt"), None), other("a partition table (gpt)"));
        assert_eq!(describe(&device::Content::UnknownData), other("unrecognized data"));
        assert_eq!(describe(&device::Content::Blank), None);
    }
}
