//! Volumes in sparse files on the machine: what is seen of one, and which devices are theirs.

use super::LinuxNode;
use crate::{
    act::{self, attach::find_partition, volume_link},
    error::NodeError,
    host_root::{HostRoot, is_uid},
    inspect::{
        device_users, gpt,
        link_read::{self, LinkTarget},
        loops::{self, LoopAttachment},
    },
    node_ops::VolumeOps,
};
use quarry_api::{ids::Uid, quantity::Bytes};
use quarry_core::{
    device::{BackingFile, Facts},
    storage::sparse::{self, Link, Loop, Observed, Sparse, Step, User},
};
use std::{
    fs::{self, Metadata, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
};
use uuid::Uuid;

impl VolumeOps<Sparse> for LinuxNode {
    fn observe(&self, uid: &Uid) -> Result<Observed, NodeError> {
        self.observe_volume(uid.as_str(), true)
    }

    fn observe_shared(&self, uid: &Uid) -> Result<Observed, NodeError> {
        self.observe_volume(uid.as_str(), false)
    }

    fn apply(&self, uid: &Uid, step: &Step) -> Result<(), NodeError> {
        volume_id(uid.as_str())?;
        act::apply(&self.host, uid.as_str(), step)
    }

    fn known_volumes(&self) -> Result<Vec<Uid>, NodeError> {
        let directory = self.host.volumes();
        let attempt = || format!("listing {}", directory.display());
        let mut found = Vec::new();
        for entry in fs::read_dir(&directory).map_err(NodeError::io(attempt()))? {
            let name = entry.map_err(NodeError::io(attempt()))?.file_name();
            found.extend(name.into_string().ok().filter(|name| is_uid(name)));
        }
        let ledger = self.ledger();
        found.retain(|uid| ledger.knows(uid));
        found.sort();
        Ok(found.into_iter().map(Uid::from).collect())
    }
}

impl LinuxNode {
    fn observe_volume(&self, uid: &str, exclusive: bool) -> Result<Observed, NodeError> {
        let id = volume_id(uid)?;
        let host = &self.host;
        let in_ledger = self.ledger().knows(uid);
        let file = plain_file(host, uid)?;
        let partition = match &file {
            Some(_) => self.partition_of(uid, id)?,
            None => None,
        };
        let all = loops::scan(host)?;
        let mut attached = Vec::new();
        for over in all.iter().filter(|a| self.is_over(a, uid, file.as_ref(), in_ledger)) {
            let mut users = device_users::visible(host, &over.name, &all)?;
            // A user that is seen explains a failing exclusive open.
            if exclusive && users.is_empty() && device_users::hold(host, &over.name)?.is_none() {
                users.push(User::Exclusive);
            }
            let partition = partition.and_then(|wanted| kernel_partition(host, &over.name, wanted));
            attached.push(Loop { name: over.name.clone(), partition, users });
        }
        let link = self.link_of(uid, file.is_some(), partition.is_some());
        Ok(Observed {
            in_ledger,
            file: file.map(|meta| sparse::File {
                size: Bytes(meta.len()),
                partitioned: partition.is_some(),
            }),
            draft: fs::symlink_metadata(host.draft_file(uid)).is_ok(),
            loops: attached,
            link,
            udev: host.has_udev(),
        })
    }

    /// An unlinked file is known by its name alone, which counts only for a volume that we made.
    fn is_over(
        &self,
        attached: &LoopAttachment,
        uid: &str,
        file: Option<&Metadata>,
        in_ledger: bool,
    ) -> bool {
        match file {
            Some(meta) => attached.is_over(meta),
            None => {
                in_ledger
                    && attached.deleted
                    && loops::names_the_same(&attached.path, &self.host.volume_on_node(uid))
            }
        }
    }

    fn partition_of(&self, uid: &str, id: Uuid) -> Result<Option<gpt::Partition>, NodeError> {
        let path = self.host.volume_file(uid);
        let attempt = || format!("reading {}", path.display());
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(no_follow)
            .open(&path)
            .map_err(NodeError::io(attempt()))?;
        find_partition(&opened, id).map_err(NodeError::io(attempt()))
    }

    fn link_of(&self, uid: &str, file: bool, partitioned: bool) -> Link {
        let [by_uuid, by_partlabel] = volume_link::both(uid);
        if file {
            return link_read::read(&self.host, if partitioned { &by_partlabel } else { &by_uuid })
                .into();
        }
        // Without the file, a link to a device that works is not ours; one that leads nowhere is what we left.
        let remains = [by_uuid, by_partlabel].into_iter().find_map(|link| {
            match link_read::read(&self.host, &link) {
                LinkTarget::Dangling(name) => Some(Link::To(name)),
                LinkTarget::Nowhere | LinkTarget::To(_) => None,
            }
        });
        remains.unwrap_or_default()
    }

    /// The loops over a volume's file, each with the volume's link if it resolves to the published device.
    fn storage_of(
        &self,
        uid: &str,
        all: &[LoopAttachment],
    ) -> Result<Vec<(String, Option<String>)>, NodeError> {
        let Some(meta) = plain_file(&self.host, uid)? else { return Ok(Vec::new()) };
        let wanted = self.partition_of(uid, volume_id(uid)?)?;
        let mut found = Vec::new();
        for over in all.iter().filter(|attached| attached.is_over(&meta)) {
            let published = match wanted {
                Some(wanted) => {
                    kernel_partition(&self.host, &over.name, wanted).map(|(name, _)| name)
                }
                None => Some(over.name.clone()),
            };
            let link = published.and_then(|device| {
                let link = volume_link::of_device(uid, &device);
                (link_read::read(&self.host, &link) == LinkTarget::To(device)).then_some(link)
            });
            found.push((over.name.clone(), link));
        }
        Ok(found)
    }

    /// Marks the devices that are the storage of our volumes.
    pub(super) fn mark_volumes(&self, devices: &mut [Facts]) -> Result<(), NodeError> {
        let known = self.known_volumes()?;
        if known.is_empty() {
            return Ok(());
        }
        // By name first: reading the inode of a loop's file on a dead server would hang.
        let all = loops::scan_named(&self.host, |name| known.iter().any(|uid| *uid == *name))?;
        for uid in known {
            for (name, link) in self.storage_of(uid.as_str(), &all)? {
                if let Some(facts) = devices.iter_mut().find(|facts| facts.name == name) {
                    facts.volume_uid = Some(uid.to_string());
                    facts.link = link;
                    let file = facts.backing.take().and_then(|backing| backing.file);
                    facts.backing = Some(BackingFile {
                        path: self.host.volume_on_node(uid.as_str()).display().to_string(),
                        deleted: false,
                        file,
                    });
                }
            }
        }
        Ok(())
    }
}

fn volume_id(uid: &str) -> Result<Uuid, NodeError> {
    Uuid::parse_str(uid)
        .ok()
        .filter(|_| is_uid(uid))
        .ok_or_else(|| NodeError::NotAUid(uid.to_owned()))
}

/// The finished file; anything else under its name (a link, a directory) is an error, never followed.
fn plain_file(host: &HostRoot, uid: &str) -> Result<Option<Metadata>, NodeError> {
    let path = host.volume_file(uid);
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() => Ok(Some(meta)),
        Ok(_) => Err(NodeError::Malformed(format!(
            "{} is not a plain file: it is left alone; move it away",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(NodeError::io(format!("reading {}", path.display()))(error)),
    }
}

/// The kernel's partition at the place that the table names.
fn kernel_partition(
    host: &HostRoot,
    device: &str,
    wanted: gpt::Partition,
) -> Option<(String, Bytes)> {
    let name = loops::partitions(host, device)
        .into_iter()
        .find(|name| loops::partition_number(host, name) == Some(wanted.number))?;
    let size = loops::size(host, &name)?;
    (loops::start(host, &name) == Some(wanted.start) && size == wanted.length)
        .then_some((name, Bytes(size)))
}
