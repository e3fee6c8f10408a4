//! libblkid, the library that knows what every format looks like: a thin hand-written binding.
//!
//! Values come back as the bytes that were on the device; who shows them makes them printable. One probe lives for
//! one call: nothing is kept, so calls from several threads do not meet.

use rustix::{
    fd::{AsFd, AsRawFd},
    io::Errno,
};
use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    io,
    ptr::NonNull,
};

/// What the library says of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    pub fs_type: Option<Vec<u8>>,
    pub uuid: Option<Vec<u8>>,
    pub label: Option<Vec<u8>>,
    pub table: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Nothing,
    One(Values),
    /// Several signatures, none of which may be preferred: all their types.
    Ambivalent(Vec<Vec<u8>>),
}

/// One line of a partition table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub number: u32,
    pub uuid: Option<Vec<u8>>,
    pub type_id: Option<Vec<u8>>,
    pub name: Option<Vec<u8>>,
}

#[repr(C)]
struct RawProbe(c_void);
#[repr(C)]
struct RawList(c_void);
#[repr(C)]
struct RawPartition(c_void);

#[link(name = "blkid")]
unsafe extern "C" {
    fn blkid_new_probe() -> *mut RawProbe;
    fn blkid_free_probe(probe: *mut RawProbe);
    fn blkid_reset_probe(probe: *mut RawProbe);
    fn blkid_probe_set_device(probe: *mut RawProbe, fd: c_int, offset: i64, size: i64) -> c_int;
    fn blkid_probe_set_sectorsize(probe: *mut RawProbe, size: c_uint) -> c_int;
    fn blkid_probe_enable_superblocks(probe: *mut RawProbe, enable: c_int) -> c_int;
    fn blkid_probe_set_superblocks_flags(probe: *mut RawProbe, flags: c_int) -> c_int;
    fn blkid_probe_filter_superblocks_type(
        probe: *mut RawProbe,
        flag: c_int,
        names: *mut *mut c_char,
    ) -> c_int;
    fn blkid_probe_enable_partitions(probe: *mut RawProbe, enable: c_int) -> c_int;
    fn blkid_probe_set_partitions_flags(probe: *mut RawProbe, flags: c_int) -> c_int;
    fn blkid_do_safeprobe(probe: *mut RawProbe) -> c_int;
    fn blkid_do_probe(probe: *mut RawProbe) -> c_int;
    fn blkid_probe_lookup_value(
        probe: *mut RawProbe,
        name: *const c_char,
        data: *mut *const c_char,
        length: *mut usize,
    ) -> c_int;
    fn blkid_probe_get_partitions(probe: *mut RawProbe) -> *mut RawList;
    fn blkid_partlist_numof_partitions(list: *mut RawList) -> c_int;
    fn blkid_partlist_get_partition(list: *mut RawList, index: c_int) -> *mut RawPartition;
    fn blkid_partition_get_partno(partition: *mut RawPartition) -> c_int;
    fn blkid_partition_get_uuid(partition: *mut RawPartition) -> *const c_char;
    fn blkid_partition_get_name(partition: *mut RawPartition) -> *const c_char;
    fn blkid_partition_get_type(partition: *mut RawPartition) -> c_int;
    fn blkid_partition_get_type_string(partition: *mut RawPartition) -> *const c_char;
}

// From blkid.h: BLKID_SUBLKS_LABEL | _UUID | _TYPE.
const LABEL_UUID_TYPE: c_int = 1 << 1 | 1 << 3 | 1 << 5;
// BLKID_SUBLKS_MAGIC, BLKID_PARTS_MAGIC: where a signature is.
const WITH_MAGIC: c_int = LABEL_UUID_TYPE | 1 << 9;
const TABLE_WITH_MAGIC: c_int = 1 << 3;
/// BLKID_FLTR_NOTIN
const ALL_BUT: c_int = 1;
/// No signature list of a real device is longer; a crafted one ends here.
const MOST: usize = 32;

/// Signatures and partition table of what `fd` is: a device, or a file that looks like it.
pub fn ask(fd: impl AsFd, size: u64, sector: u32) -> io::Result<Answer> {
    ask_without(fd, size, sector, None)
}

/// The same, without looking for one type that the caller knows not to be there.
pub fn ask_without(
    fd: impl AsFd,
    size: u64,
    sector: u32,
    without: Option<&CStr>,
) -> io::Result<Answer> {
    // By reference: the descriptor must stay open for as long as the probe lives.
    let probe = Probe::new(&fd, size, sector)?;
    if let Some(name) = without {
        let mut names = [name.as_ptr().cast_mut(), std::ptr::null_mut()];
        // SAFETY: a list of C strings that ends with null; the library reads it and keeps nothing of it. A refusal
        // leaves every type on.
        unsafe {
            blkid_probe_filter_superblocks_type(probe.0.as_ptr(), ALL_BUT, names.as_mut_ptr())
        };
    }
    // SAFETY: the probe is alive, and the library answers with a number.
    match unsafe { blkid_do_safeprobe(probe.0.as_ptr()) } {
        0 => Ok(match probe.values() {
            Values { fs_type: None, table: None, .. } => Answer::Nothing,
            values => Answer::One(values),
        }),
        1 => Ok(Answer::Nothing),
        -2 => probe.all().map(Answer::Ambivalent),
        _ => Err(last_error()),
    }
}

/// The lines of its partition table; none when there is no table.
pub fn table(fd: impl AsFd, size: u64, sector: u32) -> io::Result<Vec<Entry>> {
    // By reference: the descriptor must stay open for as long as the probe lives.
    let probe = Probe::new(&fd, size, sector)?;
    // SAFETY: the probe is alive; the list belongs to it and is read before it goes.
    let list = unsafe { blkid_probe_get_partitions(probe.0.as_ptr()) };
    if list.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: `list` is a list of the library, not null.
    let count = unsafe { blkid_partlist_numof_partitions(list) };
    let mut entries = Vec::new();
    for index in 0..count.max(0) {
        // SAFETY: the index is below the count that the library gave.
        let partition = unsafe { blkid_partlist_get_partition(list, index) };
        if partition.is_null() {
            continue;
        }
        // SAFETY: `partition` belongs to the list and is not null; strings live as long as the probe and are copied.
        entries.extend(unsafe {
            let type_id = copied(blkid_partition_get_type_string(partition)).or_else(|| {
                Some(format!("0x{:x}", blkid_partition_get_type(partition)).into_bytes())
            });
            let (uuid, name) = (
                copied(blkid_partition_get_uuid(partition)),
                copied(blkid_partition_get_name(partition)),
            );
            u32::try_from(blkid_partition_get_partno(partition)).ok().map(|number| Entry {
                number,
                uuid,
                type_id,
                name,
            })
        });
    }
    Ok(entries)
}

/// Where a signature is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub kind: Vec<u8>,
    /// Of its magic bytes; `None` for a format that is recognized by other means.
    pub at: Option<u64>,
}

/// Every signature and table that the library finds, one after another, with its place.
pub fn signatures(fd: impl AsFd, size: u64, sector: u32) -> io::Result<Vec<Signature>> {
    // By reference: the descriptor must stay open for as long as the probe lives.
    let probe = Probe::new(&fd, size, sector)?;
    let raw = probe.0.as_ptr();
    // SAFETY: the probe is alive.
    unsafe {
        blkid_probe_set_superblocks_flags(raw, WITH_MAGIC);
        blkid_probe_set_partitions_flags(raw, TABLE_WITH_MAGIC);
    }
    let mut found = Vec::new();
    for _ in 0..MOST {
        // SAFETY: the probe is alive.
        match unsafe { blkid_do_probe(raw) } {
            0 => {
                let place = |name: &CStr| {
                    probe.value(name).and_then(|bytes| String::from_utf8(bytes).ok()?.parse().ok())
                };
                let pairs = [
                    (probe.value(c"TYPE"), place(c"SBMAGIC_OFFSET")),
                    (probe.value(c"PTTYPE"), place(c"PTMAGIC_OFFSET")),
                ];
                found.extend(
                    pairs.into_iter().filter_map(|(kind, at)| Some(Signature { kind: kind?, at })),
                );
            }
            1 => break,
            _ => return Err(last_error()),
        }
    }
    Ok(found)
}

struct Probe(NonNull<RawProbe>);

impl Probe {
    fn new(fd: impl AsFd, size: u64, sector: u32) -> io::Result<Self> {
        // SAFETY: takes nothing; null means that there is no memory.
        let probe =
            Probe(NonNull::new(unsafe { blkid_new_probe() }).ok_or(io::ErrorKind::OutOfMemory)?);
        let raw = probe.0.as_ptr();
        let size = i64::try_from(size).map_err(|_| io::Error::from(Errno::OVERFLOW))?;
        // SAFETY: the descriptor is open for as long as the caller lends it, which is longer than the probe lives
        // in `ask` and `table`; the library does not close it.
        let set = unsafe {
            blkid_probe_enable_superblocks(raw, 1);
            blkid_probe_set_superblocks_flags(raw, LABEL_UUID_TYPE);
            blkid_probe_enable_partitions(raw, 1);
            blkid_probe_set_device(raw, fd.as_fd().as_raw_fd(), 0, size)
        };
        if set != 0 {
            return Err(last_error());
        }
        // SAFETY: the probe is alive.
        unsafe { blkid_probe_set_sectorsize(raw, sector) };
        Ok(probe)
    }

    fn values(&self) -> Values {
        Values {
            fs_type: self.value(c"TYPE"),
            uuid: self.value(c"UUID"),
            label: self.value(c"LABEL"),
            table: self.value(c"PTTYPE"),
        }
    }

    fn value(&self, name: &CStr) -> Option<Vec<u8>> {
        let mut data: *const c_char = std::ptr::null();
        // SAFETY: the library sets `data` to a string of its own when it answers 0; it is copied at once.
        unsafe {
            if blkid_probe_lookup_value(
                self.0.as_ptr(),
                name.as_ptr(),
                &raw mut data,
                std::ptr::null_mut(),
            ) == 0
            {
                copied(data)
            } else {
                None
            }
        }
    }

    /// Every type that matches, one after another.
    fn all(&self) -> io::Result<Vec<Vec<u8>>> {
        // SAFETY: the probe is alive.
        unsafe { blkid_reset_probe(self.0.as_ptr()) };
        let mut types: Vec<Vec<u8>> = Vec::new();
        for _ in 0..MOST {
            // SAFETY: the probe is alive.
            match unsafe { blkid_do_probe(self.0.as_ptr()) } {
                0 => {
                    let found = self.values();
                    types.extend(
                        found
                            .fs_type
                            .into_iter()
                            .chain(found.table)
                            .filter(|found| !types.contains(found))
                            .collect::<Vec<_>>(),
                    );
                }
                1 => break,
                _ => return Err(last_error()),
            }
        }
        Ok(types)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: made by blkid_new_probe, freed once.
        unsafe { blkid_free_probe(self.0.as_ptr()) }
    }
}

/// # Safety
/// `text` is null or a C string.
unsafe fn copied(text: *const c_char) -> Option<Vec<u8>> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and a C string as the caller promises.
    Some(unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()).filter(|bytes| !bytes.is_empty())
}

fn last_error() -> io::Error {
    match io::Error::last_os_error() {
        // The library gave no reason.
        error if error.raw_os_error() == Some(0) => io::Error::other("libblkid could not read it"),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn file(size: u64, parts: &[(u64, &[u8])]) -> rustix::fd::OwnedFd {
        let fd = memfd_create("blkid-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, size).unwrap();
        for (offset, bytes) in parts {
            assert_eq!(rustix::io::pwrite(&fd, bytes, *offset).unwrap(), bytes.len());
        }
        fd
    }

    #[test]
    fn a_signature_a_table_both_and_nothing() {
        let size = 16 << 20;
        assert_eq!(ask(file(size, &[]), size, 512).unwrap(), Answer::Nothing);
        assert_eq!(ask(file(size, &[(5000, b"hello")]), size, 512).unwrap(), Answer::Nothing);
        let swap = [(4086, &b"SWAPSPACE2"[..]), (1024, &[1, 0, 0, 0, 0xff, 0x0f, 0, 0])];
        let Answer::One(values) = ask(file(size, &swap), size, 512).unwrap() else { panic!() };
        assert_eq!(values.fs_type.as_deref(), Some(&b"swap"[..]));
        // A second signature that contradicts the first: both are reported.
        let both = [swap[0], swap[1], (65600, &b"_BHRfS_M"[..])];
        assert!(matches!(
            ask(file(size, &both), size, 512).unwrap(),
            Answer::One(_) | Answer::Ambivalent(_)
        ));
    }

    #[test]
    fn signatures_are_reported_with_their_offset() {
        let size = 16 << 20;
        assert_eq!(signatures(file(size, &[]), size, 512).unwrap(), []);
        let swap = [(4086, &b"SWAPSPACE2"[..]), (1024, &[1, 0, 0, 0, 0xff, 0x0f, 0, 0])];
        let found = signatures(file(size, &swap), size, 512).unwrap();
        assert_eq!(found, [Signature { kind: b"swap".to_vec(), at: Some(4086) }]);
    }

    #[test]
    fn the_lines_of_a_table() {
        let mut image = std::io::Cursor::new(vec![0; 4 << 20]);
        let uid = uuid::Uuid::from_u128(0x0b0f1f9e_3c1c_4a5e_8e0e_0123456789ab);
        crate::inspect::gpt::write(&mut image, uid).unwrap();
        let image = image.into_inner();
        let fd = file(image.len() as u64, &[(0, &image)]);
        let entries = table(&fd, image.len() as u64, 512).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(
            (entries[0].number, entries[0].uuid.as_deref()),
            (1, Some(uid.to_string().as_bytes()))
        );
        assert_eq!(
            entries[0].type_id.as_deref(),
            Some(&b"0fc63daf-8483-4772-8e79-3d69d8477de4"[..])
        );
        assert_eq!(entries[0].name.as_deref(), Some(uid.to_string().as_bytes()));
        assert_eq!(table(file(1 << 20, &[]), 1 << 20, 512).unwrap(), []);
    }
}
