//! Emulated disks: their properties, and the image behind them.
//!
//! `Disk::nvme("SERIAL")` and the other constructors create disks of 64 MiB with QEMU's defaults;
//! the other methods change properties. A disk can be plugged into several guests in turn; its
//! image is removed with its last owner. SATA and SAS disks must be present at boot (`Qemu::boot`),
//! all others can be plugged at any time.

use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;

/// The content of a disk.
#[derive(Clone, Debug)]
pub struct Image {
    size: u64,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Raw(Arc<TempDir>),
    Qcow2(Arc<TempDir>),
    Zeroes,
}

impl Image {
    /// A sparse file of zeros. It keeps every write through a power failure, flushed or not, like a
    /// disk with a battery-backed cache.
    pub fn raw(size: u64) -> Self {
        let dir = dir();
        std::fs::File::create(dir.path().join("image")).unwrap().set_len(size).unwrap();
        Image { size, source: Source::Raw(Arc::new(dir)) }
    }

    /// Loses unflushed writes at a power failure.
    pub fn volatile(size: u64) -> Self {
        let dir = dir();
        let path = dir.path().join("image");
        let status = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "-o", "cluster_size=4k"])
            .arg(&path)
            .arg(size.to_string())
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "qemu-img failed to create {}",
            path.display()
        );
        Image { size, source: Source::Qcow2(Arc::new(dir)) }
    }

    /// Reads as zeros and discards writes; costs nothing, for many or large disks.
    pub fn zeroes(size: u64) -> Self {
        Image { size, source: Source::Zeroes }
    }

    /// The file, to write or read its bytes while no guest runs.
    pub fn path(&self) -> PathBuf {
        match &self.source {
            Source::Raw(dir) | Source::Qcow2(dir) => dir.path().join("image"),
            Source::Zeroes => panic!("an image of zeroes has no file"),
        }
    }

    /// The content of the whole disk, while no guest runs.
    pub fn contents(&self) -> Vec<u8> {
        let Source::Qcow2(dir) = &self.source else {
            return std::fs::read(self.path()).unwrap();
        };
        let plain = dir.path().join("plain");
        let status = Command::new("qemu-img")
            .args(["convert", "-f", "qcow2", "-O", "raw"])
            .args([self.path(), plain.clone()])
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "qemu-img failed to read {}",
            self.path().display()
        );
        std::fs::read(plain).unwrap()
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    fn node(&self, name: &str, read_only: bool) -> Value {
        // Locking is off because the second path of a multipath disk opens the same file.
        let file = |path: &Path| json!({"driver": "file", "filename": path, "locking": "off"});
        match &self.source {
            Source::Raw(_) => {
                json!({"driver": "raw", "node-name": name, "read-only": read_only, "discard": "unmap", "file": file(&self.path())})
            }
            Source::Qcow2(_) => {
                // The cache holds the whole table, so that none of it reaches the file before a
                // flush.
                json!({"driver": "qcow2", "node-name": name, "read-only": read_only, "l2-cache-size": 4 * MIB, "cache-clean-interval": 0, "file": file(&self.path())})
            }
            Source::Zeroes => {
                json!({"driver": "null-co", "node-name": name, "read-only": read_only, "size": self.size, "read-zeroes": true})
            }
        }
    }
}

fn dir() -> TempDir {
    tempfile::Builder::new().prefix("quarry-image-").tempdir().unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bus {
    Nvme,
    Virtio,
    /// On one of the two virtio-scsi controllers.
    Scsi(u8),
    Sas,
    Sata,
    Usb,
}

#[derive(Clone, Debug)]
pub struct Disk {
    id: String,
    image: Image,
    bus: Bus,
    read_only: bool,
    properties: serde_json::Map<String, Value>,
}

impl Disk {
    fn new(bus: Bus, serial: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        let id = format!("disk{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let disk = Disk {
            id,
            image: Image::raw(64 * MIB),
            bus,
            read_only: false,
            properties: serde_json::Map::new(),
        };
        if serial.is_empty() { disk } else { disk.set("serial", serial) }
    }

    pub fn nvme(serial: &str) -> Self {
        Self::new(Bus::Nvme, serial)
    }

    /// virtio-blk; `""` means no serial.
    pub fn virtio(serial: &str) -> Self {
        Self::new(Bus::Virtio, serial)
    }

    /// On virtio-scsi.
    pub fn scsi(serial: &str) -> Self {
        Self::new(Bus::Scsi(0), serial)
    }

    /// SCSI behind an LSI SAS controller; at boot only.
    pub fn sas(serial: &str) -> Self {
        Self::new(Bus::Sas, serial)
    }

    /// On AHCI; at boot only.
    pub fn sata(serial: &str) -> Self {
        Self::new(Bus::Sata, serial)
    }

    /// A USB stick: removable.
    pub fn usb(serial: &str) -> Self {
        Self::new(Bus::Usb, serial).set("removable", true)
    }

    /// The same disk through another controller: same image, serial and WWN.
    pub fn second_path(&self) -> Self {
        assert_eq!(
            self.bus,
            Bus::Scsi(0),
            "only a SCSI disk on the first controller has a second path"
        );
        let other = Self::new(Bus::Scsi(1), "");
        Disk { id: other.id, bus: other.bus, ..self.clone() }
    }

    /// Sets any property of QEMU's device.
    pub fn set(mut self, property: &str, value: impl Into<Value>) -> Self {
        self.properties.insert(property.into(), value.into());
        self
    }

    pub fn vendor(self, vendor: &str) -> Self {
        self.set("vendor", vendor)
    }

    /// The model: at most 16 bytes for SCSI and SAS, 40 for SATA.
    pub fn model(self, model: &str) -> Self {
        let property = if self.bus == Bus::Sata { "model" } else { "product" };
        self.set(property, model)
    }

    pub fn wwn(self, wwn: u64) -> Self {
        self.set("wwn", wwn)
    }

    /// In revolutions per minute; 1 means a solid-state disk.
    pub fn rotation(self, rate: u16) -> Self {
        self.set("rotation_rate", rate)
    }

    /// Blocks of 4096 bytes, logical and physical.
    pub fn four_k(self) -> Self {
        self.set("logical_block_size", 4096).set("physical_block_size", 4096)
    }

    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    pub fn size(self, bytes: u64) -> Self {
        self.image(Image::raw(bytes))
    }

    pub fn image(mut self, image: Image) -> Self {
        self.image = image;
        self
    }

    /// The ID that `Qemu::unplug` and `Qemu::resize` use.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn serial(&self) -> Option<&str> {
        self.properties.get("serial")?.as_str()
    }

    /// Whether it can be plugged into a running guest.
    pub fn can_be_plugged(&self) -> bool {
        !matches!(self.bus, Bus::Sata | Bus::Sas)
    }

    pub fn bytes(&self) -> &Image {
        &self.image
    }

    pub(super) fn bus(&self) -> Bus {
        self.bus
    }

    /// Arguments for `blockdev-add`.
    pub(super) fn node(&self) -> Value {
        self.image.node(&self.node_name(), self.read_only)
    }

    pub(super) fn node_name(&self) -> String {
        format!("{}-node", self.id)
    }

    /// Arguments for `device_add`; `place` is the bus if there is a choice.
    pub(super) fn device(&self, place: &str) -> Value {
        let driver = match self.bus {
            Bus::Nvme => "nvme",
            Bus::Virtio => "virtio-blk-pci",
            Bus::Scsi(_) | Bus::Sas => "scsi-hd",
            Bus::Sata => "ide-hd",
            Bus::Usb => "usb-storage",
        };
        let mut device = self.properties.clone();
        device.extend([("driver".into(), driver.into()), ("id".into(), self.id.clone().into())]);
        device.extend([("drive".into(), self.node_name().into()), ("bus".into(), place.into())]);
        // Two paths to one image are two writers for QEMU.
        device.insert("share-rw".into(), true.into());
        Value::Object(device)
    }
}
