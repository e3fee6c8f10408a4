//! User Mode Linux: a whole kernel as an ordinary process, booted in two seconds.
//!
//! It has md, device-mapper, LVM, the partition scan and scsi_debug, but no hardware: its disks are
//! named ubda, ubdb, … and have no serial and no model. Its root is the initramfs tree on the host,
//! mounted read-only. `plug` and `unplug` use its management console, a datagram socket.

use super::{
    Guest, Image, PATIENCE, SHARE_IN_GUEST, channel::Channel, kit, logs, process::Process,
    relay::Relay,
};
use std::{
    ffi::OsString,
    fs,
    ops::{Deref, DerefMut},
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixDatagram, UnixStream},
        },
    },
    sync::atomic::{AtomicUsize, Ordering},
};

pub struct Uml {
    guest: Guest,
    // Kept while the guest uses them.
    disks: Vec<Option<Image>>,
}

impl Deref for Uml {
    type Target = Guest;
    fn deref(&self) -> &Guest {
        &self.guest
    }
}

impl DerefMut for Uml {
    fn deref_mut(&mut self) -> &mut Guest {
        &mut self.guest
    }
}

impl Uml {
    /// A guest with these disks (from `Image::raw`): ubda, ubdb, …
    pub fn boot(name: &str, disks: &[Image]) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(1);
        let log = logs().join(format!("{name}.uml{}.log", COUNT.fetch_add(1, Ordering::Relaxed)));
        let dir = tempfile::Builder::new().prefix("quarry-guest-").tempdir().unwrap();
        let path = dir.path().to_string_lossy().into_owned();
        fs::create_dir(dir.path().join("share")).unwrap();
        let kit = kit().to_string_lossy();
        // UML runs one program without arguments.
        let slirp = dir.path().join("slirp");
        fs::write(&slirp, format!("#!/bin/sh\nexec '{kit}/slirp' 'host addr 10.0.2.2'\n")).unwrap();
        fs::set_permissions(&slirp, fs::Permissions::from_mode(0o755)).unwrap();

        let mut arguments: Vec<OsString> = [
            "--net",
            "--mount-proc",
            "--pid",
            "--fork",
            "--kill-child",
            &format!("{kit}/root/usr/lib/quarry/uml"),
            &format!("{kit}/linux.uml"),
        ]
        .map(Into::into)
        .to_vec();
        let mut add = |argument: String| arguments.push(argument.into());
        for (index, disk) in disks.iter().enumerate() {
            add(format!("{}={}", ubd(index), disk.path().display()));
        }
        add(format!("rootflags={kit}/root"));
        add(format!("uml_dir={path}/uml/"));
        add(format!("eth0=slirp,,{path}/slirp"));
        for argument in
            "mem=512M umid=guest root=/dev/root rootfstype=hostfs ro init=/init ssl0=fd:1,fd:1 ssl=null con0=null,fd:2 con1=null,fd:2 con=null quiet panic=-1"
                .split(' ')
        {
            add(argument.into());
        }
        let relay = Relay::listen(&dir.path().join("api"));
        // Its first serial line: the socket is its standard output, which it also reads from.
        let (ours, theirs) = UnixStream::pair().unwrap();
        let process = Process::start(
            "unshare",
            &arguments,
            dir.path(),
            &log,
            Some(OwnedFd::from(theirs).into()),
        );
        let guest =
            Guest { process, channel: Channel::new(ours), relay, name: name.to_owned(), dir };
        let mut uml = Uml { guest, disks: disks.iter().cloned().map(Some).collect() };
        if let Err(why) = uml.guest.channel.ready() {
            panic!("{name} does not boot: {why}\n{}", uml.guest.process.last_output());
        }
        uml.guest.set_identity(&format!("mount -t hostfs -o '{path}/share' none {SHARE_IN_GUEST}"));
        uml
    }

    /// Plugs in a disk; returns its name in the guest.
    #[track_caller]
    pub fn plug(&mut self, image: &Image) -> String {
        // Without a disk at boot, the kernel has assigned ubda to a file that does not exist.
        let free = |index: &usize| self.disks.get(*index).is_none_or(Option::is_none);
        let index = (1..16).find(free).expect("User Mode Linux has 16 disks");
        let name = ubd(index);
        self.console(&format!("config {name}={}", image.path().display()))
            .unwrap_or_else(|why| panic!("plugging {name}: {why}"));
        self.disks.resize(self.disks.len().max(index + 1), None);
        self.disks[index] = Some(image.clone());
        name
    }

    /// Unplugs a disk. Refused while a process in the guest, such as udev, has it open, so it is
    /// retried.
    #[track_caller]
    pub fn unplug(&mut self, name: &str) {
        super::until(&format!("{name} is unplugged"), || self.console(&format!("remove {name}")));
        for index in 0..self.disks.len() {
            if ubd(index) == name {
                self.disks[index] = None;
            }
        }
    }

    /// Loads `scsi_debug`: SCSI disks in memory, with serial and WWN, of `mib` MiB each.
    #[track_caller]
    pub fn scsi_debug(&mut self, count: usize, mib: u64) {
        self.run(&format!("modprobe scsi_debug dev_size_mb={mib} num_tgts={count} per_host_store=1 inq_vendor=ACME inq_product=DEBUG"));
    }

    /// Sends one request to the management console; see `mconsole.h` in the kernel source.
    fn console(&self, command: &str) -> Result<String, String> {
        let fail = |what: &str, error: std::io::Error| format!("{what} the console: {error}");
        let socket = UnixDatagram::bind(
            self.dir.path().join(format!("console-{}", uuid::Uuid::new_v4().simple())),
        )
        .map_err(|error| fail("binding", error))?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(|error| fail("preparing", error))?;
        let mut request = [0xcafe_babe_u32, 2, u32::try_from(command.len()).unwrap_or(0)]
            .map(u32::to_ne_bytes)
            .concat();
        request.extend(command.as_bytes());
        request.resize(12 + 512, 0);
        socket
            .send_to(&request, self.dir.path().join("uml/guest/mconsole"))
            .map_err(|error| fail("asking", error))?;
        let mut text = String::new();
        loop {
            let mut reply = [0; 2048];
            let count = socket.recv(&mut reply).map_err(|error| fail("reading from", error))?;
            let word = |at: usize| {
                u32::from_ne_bytes([reply[at], reply[at + 1], reply[at + 2], reply[at + 3]])
            };
            let (failed, more, length) = (word(0) != 0, word(4) != 0, word(8) as usize);
            text += &String::from_utf8_lossy(&reply[12..(12 + length).min(count)]);
            if !more {
                let text = text.trim_end_matches('\0').to_owned();
                return if failed { Err(text) } else { Ok(text) };
            }
        }
    }
}

fn ubd(index: usize) -> String {
    let letter =
        u8::try_from(index).ok().filter(|index| *index < 16).expect("User Mode Linux has 16 disks")
            + b'a';
    format!("ubd{}", letter as char)
}
