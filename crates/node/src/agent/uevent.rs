//! The kernel's own device events, from netlink: which block devices came, went or changed.
//!
//! Group 1 (kernel), not group 2 (udev): the kernel's events reach a pod in its own network namespace as well, and
//! come without a udev daemon. Nothing is taken from an event but the name of a device to read.

use crate::sys;
use rustix::{
    fd::OwnedFd,
    net::{
        AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recv, socket_with,
        sockopt,
    },
};
use std::io;
use tokio::io::{Interest, unix::AsyncFd};

const KERNEL_GROUP: u32 = 1;

pub struct Uevents {
    socket: AsyncFd<OwnedFd>,
}

/// What there is to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelEvent {
    /// A block device, by kernel name.
    Device(String),
    /// More came than we could take: anything may have changed.
    Lost,
}

impl Uevents {
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            flags,
            Some(netlink::KOBJECT_UEVENT),
        )?;
        // A burst that overflows it is reported as one and answered by looking: best effort.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, 1 << 20);
        bind(&socket, &netlink::SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(Uevents { socket: sys::wait_for(socket, Interest::READABLE)? })
    }

    pub async fn next(&self) -> io::Result<KernelEvent> {
        loop {
            let mut ready = self.socket.readable().await?;
            let mut buffer = [0u8; 8192];
            let received = ready.try_io(|socket| {
                recv(socket, &mut buffer, RecvFlags::empty())
                    .map(|(read, _)| read)
                    .map_err(io::Error::from)
            });
            match received {
                Ok(Ok(read)) => {
                    if let Some(name) = parse_uevent(&buffer[..read.min(buffer.len())]) {
                        return Ok(KernelEvent::Device(name));
                    }
                }
                Err(_) => {}
                Ok(Err(error))
                    if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) =>
                {
                    return Ok(KernelEvent::Lost);
                }
                Ok(Err(error)) => return Err(error),
            }
        }
    }
}

/// The kernel name of the block device that an event is about.
///
/// `change@/devices/virtual/block/loop3\0ACTION=change\0…\0SUBSYSTEM=block\0…`
pub fn parse_uevent(message: &[u8]) -> Option<String> {
    let mut fields = message.split(|byte| *byte == 0);
    let path = fields.next()?.splitn(2, |byte| *byte == b'@').nth(1)?;
    if !fields.any(|field| field == b"SUBSYSTEM=block") {
        return None;
    }
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    // The kernel writes a slash in a device's name as an exclamation mark, in sysfs as well.
    std::str::from_utf8(name).ok().filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_block_devices_count() {
        let block = |head: &str| {
            parse_uevent(
                format!("{head}\0ACTION=change\0DEVPATH=/x\0SUBSYSTEM=block\0MAJOR=7\0").as_bytes(),
            )
        };
        assert_eq!(block("change@/devices/virtual/block/loop3").as_deref(), Some("loop3"));
        assert_eq!(block("add@/devices/virtual/block/loop3/loop3p1").as_deref(), Some("loop3p1"));
        assert_eq!(block("add@/devices/x/block/cciss!c0d0").as_deref(), Some("cciss!c0d0"));
        assert_eq!(parse_uevent(b"add@/devices/virtual/net/lo\0SUBSYSTEM=net\0"), None);
        for bad in
            [&b""[..], b"libudev\0\xfe\xed", b"@\0SUBSYSTEM=block", b"add@/a/\xff\0SUBSYSTEM=block"]
        {
            assert_eq!(parse_uevent(bad), None);
        }
    }
}
