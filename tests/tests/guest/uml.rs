//! User Mode Linux as a fixture: md, LVM, device-mapper, partitions, SCSI disks in memory, the
//! network.

use crate::{get, hello_server};
use quarry_tests::guest::{API_IN_GUEST, Image, MIB, Uml, until};

#[test]
fn uml_creates_raid_of_three_levels() {
    let disks: Vec<Image> = (0..8).map(|_| Image::raw(64 * MIB)).collect();
    let mut uml = Uml::boot("raid", &disks);
    let create = "mdadm --create --homehost=any --run";
    uml.run(&format!(
        "{create} /dev/md/mirror --level=1 --raid-devices=2 --assume-clean /dev/ubda /dev/ubdb"
    ));
    uml.run(&format!("{create} /dev/md/stripe --level=0 --raid-devices=2 /dev/ubdc /dev/ubdd"));
    uml.run(&format!(
        "{create} /dev/md/both --level=10 --raid-devices=4 --assume-clean /dev/ubd[efgh]"
    ));
    uml.until("the links exist", "ls /dev/disk/by-id", |names| {
        ["mirror", "stripe", "both"]
            .iter()
            .all(|name| names.contains(&format!("md-name-any:{name}")))
    });
    let mut levels: Vec<String> =
        uml.run("lsblk -nro TYPE | sort -u").lines().map(str::to_owned).collect();
    levels.retain(|kind| kind.starts_with("raid"));
    assert_eq!(levels, ["raid0", "raid1", "raid10"]);
    uml.run("mkfs.ext4 -q /dev/md/both && mount /dev/md/both /mnt && echo kept > /mnt/file && umount /mnt");
}

#[test]
fn uml_creates_and_suspends_lvm() {
    let mut uml = Uml::boot("lvm", &[Image::raw(64 * MIB), Image::raw(64 * MIB)]);
    uml.run("pvcreate -q /dev/ubda /dev/ubdb && vgcreate -q rocks /dev/ubda /dev/ubdb && lvcreate -q -y -n data -L 80M rocks");
    uml.until("the link exists", "ls /dev/disk/by-id", |names| names.contains("dm-uuid-LVM-"));
    assert_eq!(uml.run("lsblk -nro STATE /dev/rocks/data").trim(), "running");
    uml.run("dmsetup suspend rocks-data");
    assert_eq!(uml.run("lsblk -nro STATE /dev/dm-0").trim(), "suspended");
    uml.run("dmsetup resume rocks-data");
}

#[test]
fn uml_scans_partitions_and_supports_hot_plug() {
    let image = Image::raw(64 * MIB);
    quarry_tests::disk::run(
        "sgdisk",
        &["-n", "1:0:+16M", "-c", "1:first", "-n", "2:0:0", &image.path().to_string_lossy()],
    );
    let mut uml = Uml::boot("partitions", &[]);
    let name = uml.plug(&image);
    uml.until("the partitions exist", "ls /dev /dev/disk/by-partlabel", |names| {
        names.contains(&format!("{name}2")) && names.contains("first")
    });
    uml.unplug(&name);
    uml.until("the disk is removed", "lsblk -nro NAME", |names| !names.contains(&name));

    uml.scsi_debug(4, 16);
    // The vendor comes from the kernel, the WWN from udev, a moment later.
    uml.until("four disks exist", "lsblk -dnro NAME,VENDOR,WWN", |shown| {
        shown.lines().filter(|line| line.contains("ACME") && line.contains("0x")).count() == 4
    });
    uml.run("echo -1 > /sys/bus/pseudo/drivers/scsi_debug/add_host");
    uml.until("they are removed", "lsblk -dnro VENDOR", |shown| !shown.contains("ACME"));
}

#[test]
fn uml_reaches_only_the_api() {
    let server = hello_server();
    let mut uml = Uml::boot("network", &[]);
    uml.api_at(Some(server.port()));
    uml.until("the server responds", &get(API_IN_GUEST), |answer| answer.ends_with("hello"));
    let past = uml.exec(&get(&format!("10.0.2.2:{}", server.port())));
    assert!(past.stdout.is_empty(), "the host's other ports are out of reach: {past:?}");
    uml.api_at(None);
    assert_eq!(uml.exec(&get(API_IN_GUEST)).stdout, "", "cut off");
}

#[test]
fn dropped_uml_leaves_no_process() {
    let image = Image::raw(MIB);
    let uml = Uml::boot("dropped", std::slice::from_ref(&image));
    assert!(crate::processes_of(&image.path()) > 0, "it runs");
    drop(uml);
    until("all its processes have ended", || match crate::processes_of(&image.path()) {
        0 => Ok(()),
        left => Err(format!("{left} processes")),
    });
}
