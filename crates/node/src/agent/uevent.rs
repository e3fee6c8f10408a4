//! The kernel's own device events, from netlink: hints that a loop device changed.
//!
//! Group 1 (kernel), not group 2 (udev): the kernel's events reach a pod in its own network namespace as well, and
//! come without a udev daemon. Nothing is taken from an event but that it is time to look.

use crate::sys;
use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recv, socket_with, sockopt},
};
use std::io;
use tokio::io::unix::AsyncFd;

const KERNEL_GROUP: u32 = 1;

pub(super) struct Uevents {
    socket: AsyncFd<OwnedFd>,
}

impl Uevents {
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::KOBJECT_UEVENT))?;
        // A burst that overflows it is reported as one and answered by looking: best effort.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, 1 << 20);
        bind(&socket, &netlink::SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(Uevents { socket: sys::readable(socket)? })
    }

    /// Returns when a loop device changed, or events were lost.
    pub async fn changed(&self) -> io::Result<()> {
        loop {
            let mut ready = self.socket.readable().await?;
            let mut buffer = [0u8; 8192];
            let received = ready.try_io(|socket| recv(socket, &mut buffer, RecvFlags::empty()).map(|(read, _)| read).map_err(io::Error::from));
            match received {
                Ok(Ok(read)) if concerns_loops(&buffer[..read.min(buffer.len())]) => return Ok(()),
                Ok(Ok(_)) | Err(_) => {}
                Ok(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => return Ok(()),
                Ok(Err(error)) => return Err(error),
            }
        }
    }
}

// change@/devices/virtual/block/loop3\0ACTION=change\0...
fn concerns_loops(message: &[u8]) -> bool {
    let head = message.split(|byte| *byte == 0).next().unwrap_or_default();
    head.windows(b"/block/loop".len()).any(|window| window == b"/block/loop")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loop_devices_count() {
        assert!(concerns_loops(b"change@/devices/virtual/block/loop3\0ACTION=change\0"));
        assert!(concerns_loops(b"add@/devices/virtual/block/loop3/loop3p1\0"));
        assert!(!concerns_loops(b"add@/devices/virtual/net/lo\0DEVPATH=/block/loop3\0"));
        assert!(!concerns_loops(b""));
    }
}
