//! Disks that are plugged, grown, changed, swapped and unplugged while an agent runs in the guest,
//! with and without the API.

use crate::cluster::{Cluster, has, is_available};
use quarry_api::node_inventory::DeviceState;
use quarry_core::device::Reason;
use quarry_tests::guest::{Disk, MIB, Qemu, Uml};

fn scsi(serial: &str, wwn: u64) -> Disk {
    Disk::scsi(serial).vendor("ACME").model("DISK").wwn(wwn)
}

// invariant: 6
#[test]
fn inventory_and_discovery_follow_hot_plugged_disks() {
    let cluster = Cluster::start(&["hotplug"]);
    let mut guest = Qemu::restore("hotplug");
    cluster.start_agent(&mut guest, "1s");
    cluster.inventory(&guest, "exists, without disks", |status| {
        (status.boot_id.is_some() && status.devices.is_empty()).then_some(())
    });
    cluster.result("hotplug", "exists, without disks", <[_]>::is_empty);

    let (first, nvme, virtio, usb) = (
        scsi("HOTSCSI", 0x5000_c500_0000_0010),
        Disk::nvme("HOTNVME"),
        Disk::virtio("HOTVIRTIO"),
        Disk::usb("HOTUSB"),
    );
    guest.plug(&usb);
    for (disk, serial, identity, link) in [
        (&first, "HOTSCSI", "wwn:5000c50000000010", "wwn-0x5000c50000000010"),
        (&nvme, "HOTNVME", "serial:QEMU NVMe Ctrl:HOTNVME", "nvme-QEMU_NVMe_Ctrl_HOTNVME"),
        (&virtio, "HOTVIRTIO", "serial::HOTVIRTIO", "virtio-HOTVIRTIO"),
    ] {
        guest.plug(disk);
        let device = cluster.device(&guest, serial, "is Available, with its link", |device| {
            is_available(device) && device.device_id.is_some()
        });
        assert_eq!(device.identity.as_deref(), Some(identity));
        assert_eq!(device.device_id, Some(format!("/dev/disk/by-id/{link}")));
        // By name: a virtio disk whose serial appears late is reported before it has an identity.
        cluster.wait_event(
            "DeviceAppeared",
            &[&format!("{} (disk", device.name), "less than the settling time"],
        );
    }
    let stick = cluster.device(&guest, "HOTUSB", "exists, settled", |device| device.settled);
    assert_eq!(
        (stick.state, stick.transport.as_deref(), has(&stick, "Removable")),
        (DeviceState::NotAvailable, Some("usb"), true)
    );
    cluster.result("hotplug", "all four", |devices| {
        let has = |serial: &str, state| {
            devices.iter().any(|device| {
                device.serial == serial
                    && device.status.state == state
                    && !device.device_id.is_empty()
            })
        };
        devices.len() == 4
            && ["HOTSCSI", "HOTNVME", "HOTVIRTIO"]
                .iter()
                .all(|serial| has(serial, DeviceState::Available))
            && has("HOTUSB", DeviceState::NotAvailable)
    });

    for (disk, serial) in [(&first, "HOTSCSI"), (&virtio, "HOTVIRTIO")] {
        guest.resize(disk, 96 * MIB);
        cluster.device(&guest, serial, "has grown", |device| device.size == 96 << 20);
        cluster.result("hotplug", "one has grown", |devices| {
            devices.iter().any(|device| device.serial == serial && device.size.0 == 96 << 20)
        });
    }

    let name = cluster.device(&guest, "HOTSCSI", "is Available", is_available).name;
    guest.run(&format!("mkfs.ext4 -q /dev/{name}"));
    cluster.device(&guest, "HOTSCSI", "has a file system", |device| {
        device.fs_type.as_deref() == Some("ext4") && has(device, "Signature")
    });
    cluster
        .wait_event("DeviceVerdictChanged", &["wwn:5000c50000000010", "now NotAvailable", "ext4"]);
    guest.run(&format!("wipefs -qa /dev/{name}"));
    cluster.device(&guest, "HOTSCSI", "contains unrecognized data", |device| {
        device.fs_type.is_none() && !is_available(device)
    });

    for (disk, serial) in [(&nvme, "HOTNVME"), (&virtio, "HOTVIRTIO"), (&usb, "HOTUSB")] {
        guest.unplug(disk);
        cluster.wait_absent(&guest, serial);
        cluster.wait_event("DeviceDisappeared", &[serial]);
    }
    cluster.result("hotplug", "one is left", |devices| {
        devices.len() == 1 && devices[0].serial == "HOTSCSI"
    });

    swap_disk_under_the_same_name(&cluster, &mut guest, &first, &name);
    change_disks_without_the_api(&cluster, &mut guest);
}

/// Unplugged and replaced immediately: the kernel reuses the name.
fn swap_disk_under_the_same_name(cluster: &Cluster, guest: &mut Qemu, first: &Disk, name: &str) {
    let before = cluster.device(guest, "HOTSCSI", "exists", |_| true);
    let second = scsi("SWAPPED", 0x5000_c500_0000_0011);
    guest.unplug(first);
    guest.plug(&second);
    let after = cluster.device(guest, "SWAPPED", "is Available", is_available);
    assert_eq!(
        (after.name.as_str(), after.identity.as_deref()),
        (name, Some("wwn:5000c50000000011"))
    );
    assert_ne!(after.diskseq, before.diskseq);
    assert!(after.reasons.is_empty(), "it is another disk, not a changed one: {:?}", after.reasons);
    cluster.wait_event("DeviceAppeared", &["wwn:5000c50000000011", Reason::TooNew.row().text]);
    cluster.wait_event("DeviceDisappeared", &["wwn:5000c50000000010"]);
    cluster.wait_absent(guest, "HOTSCSI");
}

/// One disk unplugged, one plugged, one written to.
fn change_disks_without_the_api(cluster: &Cluster, guest: &mut Qemu) {
    let (pulled, plugged) = (Disk::nvme("PULLED"), Disk::nvme("PLUGGED"));
    guest.plug(&pulled);
    cluster.device(guest, "PULLED", "is Available", is_available);
    guest.api_at(None);
    guest.unplug(&pulled);
    guest.plug(&plugged);
    guest.until("the kernel has both changes", "ls /dev/disk/by-id", |names| {
        names.contains("PLUGGED") && !names.contains("PULLED")
    });
    guest.run("mkfs.ext4 -q /dev/disk/by-id/wwn-0x5000c50000000011");
    cluster.rejoin(guest);
    cluster.wait_absent(guest, "PULLED");
    cluster.device(guest, "PLUGGED", "is Available", is_available);
    cluster.device(guest, "SWAPPED", "has a file system", |device| {
        device.fs_type.as_deref() == Some("ext4")
    });
    cluster.wait_event("DeviceDisappeared", &["PULLED"]);
    cluster.result("hotplug", "has caught up", |devices| {
        devices.len() == 2
            && devices.iter().all(|device| {
                (device.serial == "PLUGGED") == (device.status.state == DeviceState::Available)
            })
    });
}

#[test]
fn disks_plugged_together_get_separate_events() {
    let cluster = Cluster::start(&["together"]);
    let mut uml = Uml::boot("together", &[]);
    cluster.start_agent(&mut uml, "1s");
    cluster.inventory(&uml, "exists", |status| status.boot_id.clone());
    uml.scsi_debug(3, 16);
    cluster.inventory(&uml, "all three", |status| {
        (status.devices.iter().filter(|device| device.vendor.as_deref() == Some("ACME")).count()
            == 3)
            .then_some(())
    });
    for identity in ["wwn:33333330000007d0", "wwn:3333333000000bb8", "wwn:3333333000000fa0"] {
        cluster.wait_event("DeviceAppeared", &[identity]);
    }
}
