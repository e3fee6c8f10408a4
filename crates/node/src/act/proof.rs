//! After mkfs: is what it left the file system that was asked for, finished, under the volume's UUID?
//!
//! The exit code is mkfs's word; this is the disk's. Options are checked before (`core::mkfs_options`), but a
//! file system that no pod can mount must not be published, whatever an option did.

use crate::error::NodeError;
use quarry_api::node_job::FsType;
use std::{fs::File, os::unix::fs::FileExt};
use uuid::Uuid;

pub fn check(draft: &File, fs: FsType, id: Uuid) -> Result<(), NodeError> {
    let mut head = [0; 4096];
    draft.read_exact_at(&mut head, 0).map_err(NodeError::io("reading back the new file system"))?;
    let proven = match fs {
        FsType::Ext4 => is_ext4(&head, id),
        FsType::Xfs => is_xfs(&head, id),
    };
    if proven {
        return Ok(());
    }
    Err(NodeError::Malformed(format!(
        "mkfs.{0} ended without an error, but there is no finished {0} of this volume: check mkfsOptions of the StorageClass",
        fs.as_str()
    )))
}

/// The superblock at 1 KiB: magic, UUID, extents (which tell ext4 from ext2 and ext3), and not a journal device.
fn is_ext4(head: &[u8], id: Uuid) -> bool {
    const EXTENTS: u32 = 0x40;
    const JOURNAL_DEVICE: u32 = 0x8;
    let block = &head[1024..2048];
    let incompatible = u32::from_le_bytes([block[0x60], block[0x61], block[0x62], block[0x63]]);
    block[0x38..0x3a] == [0x53, 0xef]
        && block[0x68..0x78] == *id.as_bytes()
        && incompatible & EXTENTS != 0
        && incompatible & JOURNAL_DEVICE == 0
}

/// The superblock at 0: magic, UUID, and `inprogress` cleared, which mkfs.xfs does last.
fn is_xfs(head: &[u8], id: Uuid) -> bool {
    head[..4] == *b"XFSB" && head[32..48] == *id.as_bytes() && head[126] == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xfs(id: Uuid) -> Vec<u8> {
        let mut head = vec![0; 4096];
        head[..4].copy_from_slice(b"XFSB");
        head[32..48].copy_from_slice(id.as_bytes());
        head
    }

    #[test]
    fn an_unfinished_or_unknown_xfs_is_not_proven() {
        let id = Uuid::from_u128(7);
        assert!(is_xfs(&xfs(id), id));
        assert!(!is_xfs(&xfs(id), Uuid::from_u128(8)));
        let mut unfinished = xfs(id);
        unfinished[126] = 1;
        assert!(!is_xfs(&unfinished, id));
        assert!(!is_xfs(&[0; 4096], Uuid::nil()));
    }

    #[test]
    fn a_journal_device_or_ext2_is_not_an_ext4() {
        let id = Uuid::from_u128(7);
        let ext = |incompatible: u32| {
            let mut head = vec![0; 4096];
            head[1024 + 0x38] = 0x53;
            head[1024 + 0x39] = 0xef;
            head[1024 + 0x68..1024 + 0x78].copy_from_slice(id.as_bytes());
            head[1024 + 0x60..1024 + 0x64].copy_from_slice(&incompatible.to_le_bytes());
            head
        };
        assert!(is_ext4(&ext(0x242), id));
        assert!(!is_ext4(&ext(0x2), id), "ext2 has no extents");
        assert!(!is_ext4(&ext(0x48), id), "a journal device");
        assert!(!is_ext4(&[0; 4096], Uuid::nil()));
    }
}
