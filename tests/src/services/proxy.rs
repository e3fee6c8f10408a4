//! A proxy before Ironic that holds writes, so that Quarry can be killed before and after each of them.
//!
//! Every write, known by its method, path and body, is held twice: when it comes first, Ironic does not get it; when it
//! comes again, Ironic gets it and its answer is held. From then on it passes. Reads always pass. Held means that Quarry
//! has no answer: the test kills it, and then releases the proxy. It answers nothing of its own.

use std::{
    collections::BTreeMap,
    io::{Read, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

#[derive(Clone, Debug)]
pub struct Held {
    /// Method and path.
    pub write: String,
    /// Whether Ironic has got it.
    pub forwarded: bool,
}

#[derive(Default)]
struct State {
    /// How often each write has come.
    writes: BTreeMap<String, usize>,
    held: Option<Held>,
    /// Every one so far.
    all: Vec<Held>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until the test has killed Quarry.
    fn hold(&self, write: &str, forwarded: bool) {
        let mut state = self.state();
        let held = Held { write: write.to_owned(), forwarded };
        state.all.push(held.clone());
        state.held = Some(held);
        drop(self.released.wait_while(state, |state| state.held.is_some()));
    }
}

pub struct Proxy {
    pub url: String,
    shared: Arc<Shared>,
}

impl Proxy {
    /// In front of `upstream`, a URL without a path. Runs until the process ends.
    pub fn start(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared::default());
        let (upstream, of_thread) =
            (upstream.trim_start_matches("http://").to_owned(), shared.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (upstream, shared) = (upstream.clone(), of_thread.clone());
                // A connection that breaks is Quarry's death.
                std::thread::spawn(move || serve(client, &upstream, &shared).ok());
            }
        });
        Proxy { url, shared }
    }

    /// A write that waits for Quarry's death. `None`: none does.
    pub fn held(&self) -> Option<Held> {
        self.shared.state().held.clone()
    }

    /// After the kill.
    pub fn release(&self) {
        self.shared.state().held = None;
        self.shared.released.notify_all();
    }

    /// Everything that was held, in this order.
    pub fn all(&self) -> Vec<Held> {
        self.shared.state().all.clone()
    }
}

/// One request per connection.
fn serve(mut client: TcpStream, upstream: &str, shared: &Shared) -> std::io::Result<()> {
    let Some((head, body)) = read_request(&mut client)? else { return Ok(()) };
    let line = head.lines().next().unwrap_or_default().to_owned();
    let write = line.rsplit_once(' ').map_or(line.as_str(), |(write, _)| write).to_owned();
    let mut came = 2;
    if !line.starts_with("GET ") {
        let key = format!("{write} {}", String::from_utf8_lossy(&body));
        let mut state = shared.state();
        let count = state.writes.entry(key).or_default();
        came = *count;
        *count += 1;
    }
    if came == 0 {
        shared.hold(&write, false);
        return Ok(());
    }
    let mut server = TcpStream::connect(upstream)?;
    let kept = head.lines().filter(|line| !line.to_lowercase().starts_with("connection:"));
    let head: Vec<&str> = kept.filter(|line| !line.is_empty()).collect();
    server.write_all(format!("{}\r\nConnection: close\r\n\r\n", head.join("\r\n")).as_bytes())?;
    server.write_all(&body)?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    if came == 1 {
        shared.hold(&write, true);
        return Ok(());
    }
    client.write_all(&answer)
}

/// `None`: the client has sent nothing.
fn read_request(client: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let (mut bytes, mut part) = (Vec::new(), [0; 8192]);
    let end = loop {
        let count = client.read(&mut part)?;
        if count == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&part[..count]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
    };
    let (head, mut body) =
        (String::from_utf8_lossy(&bytes[..end]).into_owned(), bytes[end + 4..].to_vec());
    let lengths = head.lines().filter_map(|line| line.split_once(':'));
    let length = lengths.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.map(|(_, value)| value.trim().parse::<usize>().unwrap()).sum();
    while body.len() < length {
        let count = client.read(&mut part)?;
        if count == 0 {
            return Ok(None);
        }
        body.extend_from_slice(&part[..count]);
    }
    Ok(Some((head, body)))
}
