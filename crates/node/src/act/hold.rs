//! A device that is held: opened exclusively, and then verified while no other process can mount or claim it.
//!
//! `Held<Verified>` is what erasing a device takes. It can be made here alone, from a descriptor that is the
//! device that was scanned while the descriptor was open (invariant 2). Neither a path nor a name can take its place.

use crate::{
    error::NodeError,
    host_root::HostRoot,
    sys::{self, DevNumber},
};
use quarry_api::{NodeInventorySpec, node_inventory::DeviceClaim};
use quarry_core::{
    device::{Facts, GroupedDevice},
    device_claim::confirm::{Expected, find, verify},
};
use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags},
    io::Errno,
};
use std::marker::PhantomData;

/// Not verified yet.
#[derive(Debug)]
pub struct Opened;

/// Identity, size, content and users were as they must be, while it was held.
#[derive(Debug)]
pub struct Verified;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenPurpose {
    /// Closing a writable descriptor would make udev probe the device once more.
    Reading,
    Writing,
}

#[derive(Debug)]
pub struct Held<S> {
    device: OwnedFd,
    name: String,
    number: DevNumber,
    diskseq: Option<u64>,
    size: u64,
    state: PhantomData<S>,
}

impl<S> Held<S> {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Held<Opened> {
    /// Takes the device that has this name now; whether it is the one that is meant is for `verify` to say.
    pub fn open(host: &HostRoot, name: &str, purpose: OpenPurpose) -> Result<Self, NodeError> {
        let path = host.dev(name);
        let access = match purpose {
            OpenPurpose::Reading => OFlags::RDONLY,
            OpenPurpose::Writing => OFlags::RDWR,
        };
        let attempt = || format!("opening {} exclusively", path.display());
        let device = match rustix::fs::open(
            &path,
            access | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            Ok(device) => device,
            Err(Errno::BUSY) => {
                return Err(NodeError::InUse {
                    device: name.to_owned(),
                    users: "mounted or opened exclusively by another process".into(),
                });
            }
            Err(error) => return Err(NodeError::io(attempt())(error)),
        };
        let stat = rustix::fs::fstat(&device).map_err(NodeError::io(attempt()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return Err(NodeError::Refused(format!("/dev/{name} is not a block device")));
        }
        let size = sys::block_size(&device).map_err(NodeError::io(attempt()))?;
        let diskseq = sys::disk_sequence(&device).ok();
        Ok(Held {
            number: DevNumber::from_stat(stat.st_rdev),
            diskseq,
            size,
            device,
            name: name.to_owned(),
            state: PhantomData,
        })
    }

    /// `known` was read while this was held. `Err` says why not, for people.
    pub fn verify(
        self,
        claim: &DeviceClaim,
        expected: Expected,
        known: &[GroupedDevice],
        spec: &NodeInventorySpec,
    ) -> Result<Held<Verified>, String> {
        let facts = &find(claim, known)?.facts;
        if !self.is(facts) {
            return Err(format!(
                "{} is another device now than the one that was opened",
                facts.name
            ));
        }
        verify(claim, expected, known, spec)?;
        let Held { device, name, number, diskseq, size, state: _ } = self;
        Ok(Held { device, name, number, diskseq, size, state: PhantomData })
    }

    /// Whether what was seen is what is held: the number alone may be another disk's by now.
    fn is(&self, facts: &Facts) -> bool {
        let same_disk = facts.diskseq.is_none() || facts.diskseq == self.diskseq;
        DevNumber::parse(&facts.number) == Some(self.number) && same_disk && facts.size == self.size
    }
}

impl Held<Verified> {
    pub fn device(&self) -> &OwnedFd {
        &self.device
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is still the disk that was verified.
    pub fn is_still_there(&self) -> bool {
        self.is_as_it_was(sys::disk_sequence(&self.device).ok(), sys::block_size(&self.device).ok())
    }

    fn is_as_it_was(&self, diskseq: Option<u64>, size: Option<u64>) -> bool {
        diskseq == self.diskseq && size == Some(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_api::node_inventory::Evidence;
    use quarry_core::device::{Content, group};
    use rustix::fs::{MemfdFlags, memfd_create};

    fn held<S>(diskseq: Option<u64>) -> Held<S> {
        let device = memfd_create("held-test", MemfdFlags::CLOEXEC).unwrap();
        Held {
            device,
            name: "sda".into(),
            number: DevNumber { major: 8, minor: 0 },
            diskseq,
            size: 4096,
            state: PhantomData,
        }
    }

    fn facts() -> Facts {
        let evidence =
            vec![Evidence { source: "sysfs:wwid".into(), value: "naa.5000c50000000001".into() }];
        Facts {
            name: "sda".into(),
            number: "8:0".into(),
            kind: "disk".into(),
            size: 4096,
            diskseq: Some(7),
            evidence,
            content: Content::Blank,
            ..Facts::default()
        }
    }

    #[test]
    fn what_is_held_is_what_was_seen_by_number_sequence_and_size() {
        let is = |diskseq: Option<u64>, facts: &Facts| held::<Opened>(diskseq).is(facts);
        assert!(is(Some(7), &facts()));
        assert!(
            is(Some(7), &Facts { diskseq: None, ..facts() }),
            "an older kernel has no sequence"
        );
        assert!(
            !is(Some(8), &facts()) && !is(None, &facts()),
            "another disk under the same number"
        );
        assert!(!is(Some(7), &Facts { number: "8:16".into(), ..facts() }));
        assert!(!is(Some(7), &Facts { size: 8192, ..facts() }));
    }

    #[test]
    fn only_the_very_device_is_verified() {
        let claim = DeviceClaim {
            identity: "wwn:5000c50000000001".into(),
            size: 4096,
            ..DeviceClaim::default()
        };
        let verify = |diskseq: Option<u64>| {
            held::<Opened>(diskseq).verify(
                &claim,
                Expected::Blank,
                &group(&[facts()], None, None, &[]),
                &NodeInventorySpec::default(),
            )
        };
        let verified = verify(Some(7)).unwrap();
        assert_eq!((verified.name(), verified.size()), ("sda", 4096));
        assert_eq!(
            verify(Some(8)).unwrap_err(),
            "sda is another device now than the one that was opened"
        );
    }

    #[test]
    fn a_disk_of_another_sequence_or_size_is_not_as_it_was() {
        let held = held::<Verified>(Some(7));
        assert!(held.is_as_it_was(Some(7), Some(4096)));
        for (diskseq, size) in [
            (Some(8), Some(4096)),
            (None, Some(4096)),
            (Some(7), Some(8192)),
            (Some(7), None),
            (Some(8), Some(8192)),
        ] {
            assert!(!held.is_as_it_was(diskseq, size), "{diskseq:?} {size:?}");
        }
    }

    #[test]
    fn what_is_no_block_device_is_not_held_and_no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/plain"), "").unwrap();
        std::os::unix::fs::symlink("plain", root.path().join("dev/link")).unwrap();
        let host = HostRoot::view(root.path()).unwrap();
        let open = |name: &str| {
            Held::open(&host, name, OpenPurpose::Reading).map(drop).unwrap_err().message()
        };
        assert_eq!(open("plain"), "/dev/plain is not a block device");
        assert!(open("link").starts_with("opening "), "{}", open("link"));
    }
}
