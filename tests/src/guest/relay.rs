//! The guest's only network connection: a socket in the guest's directory, forwarded to a TCP
//! server on this machine's loopback.
//!
//! The guest's network ends at that socket, so a test cannot reach anything else. Without a server
//! every connection is closed immediately, as by a machine without a listener.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

#[derive(Default)]
struct State {
    port: Option<u16>,
    open: Vec<(UnixStream, TcpStream)>,
}

#[derive(Clone)]
pub(super) struct Relay(Arc<Mutex<State>>);

impl Relay {
    /// Listens until this process exits: a waiting thread costs nothing.
    pub fn listen(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let relay = Relay(Arc::default());
        let accepting = relay.clone();
        thread::spawn(move || {
            for inside in listener.incoming().flatten() {
                accepting.forward(inside);
            }
        });
        relay
    }

    /// Sets the target of new connections. Open connections are closed.
    pub fn to(&self, port: Option<u16>) {
        let mut state = self.state();
        state.port = port;
        for (inside, outside) in state.open.drain(..) {
            // The other side may have closed it already.
            let _ = inside.shutdown(Shutdown::Both);
            let _ = outside.shutdown(Shutdown::Both);
        }
    }

    fn forward(&self, inside: UnixStream) {
        let mut state = self.state();
        let Some(port) = state.port else { return };
        let Ok(outside) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
        state.open.push((inside.try_clone().unwrap(), outside.try_clone().unwrap()));
        let (from_inside, to_outside) = (inside.try_clone().unwrap(), outside.try_clone().unwrap());
        thread::spawn(move || {
            copy(from_inside, &to_outside);
            let _ = to_outside.shutdown(Shutdown::Write);
        });
        thread::spawn(move || {
            copy(outside, &inside);
            let _ = inside.shutdown(Shutdown::Both);
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends when either side closes.
fn copy(mut from: impl Read, mut to: impl Write) {
    let mut buffer = [0; 16384];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}
