//! The partition table of a Block volume: one GPT partition whose GUID and name are the volume's UID.
//!
//! Only the primary table is believed. The last sector, where the backup would be, belongs to the user of a
//! Filesystem volume: what they write there must not make their volume look partitioned.

use gptman::{GPT, GPTHeader, GPTPartitionEntry};
use quarry_api::{node_job::hex_digest, quantity::Bytes};
use std::io::{Read, Seek, SeekFrom, Write};
use uuid::Uuid;

pub const SECTOR: u64 = 512;
/// The first partition begins here: what every tool aligns to.
const START: u64 = (1 << 20) / SECTOR;
/// Its length is a multiple of this, so that 4 KiB direct I/O reaches its very end.
const GRAIN: u64 = 4096 / SECTOR;
/// Below this hardly anything would be left for the partition.
pub const MINIMUM: Bytes = Bytes(2 << 20);
/// "Linux filesystem data".
const LINUX_DATA: Uuid = Uuid::from_u128(0x0FC63DAF_8483_4772_8E79_3D69D8477DE4);

/// Where our partition lies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// One-based, as in the table.
    pub number: i32,
    pub start: u64,
    pub length: u64,
}

/// Writes protective MBR, primary and backup table into a blank file. `size` is at least `MINIMUM`.
pub fn write(file: &mut (impl Read + Write + Seek), uid: Uuid) -> Result<(), gptman::Error> {
    let mut gpt = GPT::new_from(file, SECTOR, disk_guid(uid).to_bytes_le())?;
    let end = gpt.header.last_usable_lba + 1;
    let length = (end - START) / GRAIN * GRAIN;
    gpt[1] = GPTPartitionEntry {
        partition_type_guid: LINUX_DATA.to_bytes_le(),
        unique_partition_guid: uid.to_bytes_le(),
        starting_lba: START,
        ending_lba: START + length - 1,
        attribute_bits: 0,
        partition_name: uid.to_string().as_str().into(),
    };
    GPT::write_protective_mbr_into(file, SECTOR)?;
    gpt.write_into(file)?;
    Ok(())
}

/// Our partition, if the primary table is whole and holds it.
pub fn find(file: &mut (impl Read + Seek), uid: Uuid) -> Option<Partition> {
    file.seek(SeekFrom::Start(SECTOR)).ok()?;
    let header = GPTHeader::read_from(file).ok()?;
    // Numbers from the disk: refuse what we would never have written before they are used to read on.
    if header.number_of_partition_entries != 128
        || header.size_of_partition_entry != 128
        || header.partition_entry_lba != 2
    {
        return None;
    }
    let entries = header.read_partitions(file, SECTOR).ok()?;
    let wanted = uid.to_bytes_le();
    let (index, entry) = entries
        .iter()
        .enumerate()
        .find(|(_, entry)| entry.is_used() && entry.unique_partition_guid == wanted)?;
    let sectors = entry.size().ok()?;
    Some(Partition {
        number: i32::try_from(index + 1).ok()?,
        start: entry.starting_lba * SECTOR,
        length: sectors * SECTOR,
    })
}

/// Every disk needs a GUID of its own; derived, so that a rebuilt volume is the same to the byte.
fn disk_guid(uid: Uuid) -> Uuid {
    let digest = hex_digest(&["quarry disk GUID", &uid.to_string()]);
    let bits = u128::from_str_radix(&digest[..32], 16).unwrap_or_default();
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    const UID: Uuid = Uuid::from_u128(0x0b0f1f9e_3c1c_4a5e_8e0e_0123456789ab);

    fn table(size: usize) -> Cursor<Vec<u8>> {
        let mut file = Cursor::new(vec![0; size]);
        write(&mut file, UID).unwrap();
        file
    }

    #[test]
    fn one_aligned_partition_over_all_usable_space() {
        for size in [MINIMUM.0 as usize, (8 << 20) + 512, (8 << 20) + 77] {
            let mut file = table(size);
            let found = find(&mut file, UID).unwrap();
            assert_eq!((found.number, found.start), (1, 1 << 20));
            assert_eq!(found.length % 4096, 0);
            let unused = (size as u64 / 512 * 512) - found.start - found.length;
            assert!((33 * 512..33 * 512 + 4096).contains(&unused), "{unused} behind the partition");
        }
    }

    #[test]
    fn it_reads_back_with_name_type_and_guids() {
        let mut file = table(4 << 20);
        let gpt = GPT::read_from(&mut file, SECTOR).unwrap();
        assert_eq!(gpt[1].partition_name.as_str(), UID.to_string());
        assert_eq!(Uuid::from_bytes_le(gpt[1].unique_partition_guid), UID);
        assert_eq!(Uuid::from_bytes_le(gpt[1].partition_type_guid), LINUX_DATA);
        assert_ne!(gpt.header.disk_guid, gpt[1].unique_partition_guid);
        let bytes = file.into_inner();
        assert_eq!((bytes[450], &bytes[510..512]), (0xee, &[0x55, 0xaa][..]), "protective MBR");
        assert_eq!(&bytes[bytes.len() - 512..][..8], b"EFI PART", "backup");
    }

    #[test]
    fn the_same_volume_gives_the_same_bytes() {
        assert_eq!(table(4 << 20).into_inner(), table(4 << 20).into_inner());
    }

    #[test]
    fn a_backup_table_alone_counts_for_nothing() {
        let mut bytes = table(4 << 20).into_inner();
        bytes[512..1024].fill(0);
        assert_eq!(find(&mut Cursor::new(bytes), UID), None);
    }

    #[test]
    fn the_table_of_another_volume_is_not_ours() {
        assert_eq!(find(&mut table(4 << 20), Uuid::from_u128(1)), None);
        assert_eq!(find(&mut Cursor::new(vec![0u8; 100]), UID), None);
        let mut bytes = table(4 << 20).into_inner();
        bytes[512 + 80] = 0xff;
        assert_eq!(find(&mut Cursor::new(bytes), UID), None);
    }
}
