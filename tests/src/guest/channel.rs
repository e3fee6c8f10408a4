//! Sends commands into a guest and reads their results, one line each (`scripts/guest.d/serve` is
//! the other end).

use super::PATIENCE;
use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

#[derive(Clone, Debug)]
pub struct Output {
    /// As a shell's `$?`; 137 when the command timed out.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    pub fn success(&self) -> bool {
        self.code == 0
    }
}

pub(super) struct Channel {
    reader: BufReader<UnixStream>,
    stream: UnixStream,
    next: u64,
}

impl Channel {
    pub fn new(stream: UnixStream) -> Self {
        Channel { reader: BufReader::new(stream.try_clone().unwrap()), stream, next: 1 }
    }

    /// Waits until the guest reports that it has booted.
    pub fn ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE * 2;
        // User Mode Linux prints lines about its host first.
        while self.line(deadline)?.trim() != "READY" {}
        Ok(())
    }

    pub fn exec(&mut self, command: &str, limit: Duration) -> Result<Output, String> {
        let id = self.next;
        self.next += 1;
        let line = format!("{id} {} {}\n", limit.as_secs().max(1), base64(command.as_bytes()));
        self.stream.write_all(line.as_bytes()).map_err(|error| format!("sending it: {error}"))?;
        // The guest itself ends the command at the limit; the extra time is for a guest that hangs.
        let deadline = Instant::now() + limit + Duration::from_secs(30);
        loop {
            let answer = self.line(deadline)?;
            let parts: Vec<&str> = answer.trim_end_matches(['\r', '\n']).split(' ').collect();
            // Skip the reply to an earlier command that timed out.
            if let [answered, code, stdout, stderr] = parts[..]
                && answered == id.to_string()
            {
                let text = |part| {
                    from_base64(part).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                };
                let code = code.parse().map_err(|_| format!("no exit code: {code:?}"))?;
                return Ok(Output { code, stdout: text(stdout)?, stderr: text(stderr)? });
            }
        }
    }

    fn line(&mut self, deadline: Instant) -> Result<String, String> {
        let mut line = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!(
                    "the guest does not answer; so far: {:?}",
                    String::from_utf8_lossy(&line)
                ));
            }
            self.stream.set_read_timeout(Some(left)).unwrap();
            match self.reader.read_until(b'\n', &mut line) {
                Ok(0) => return Err("the guest has ended".into()),
                Ok(_) if line.ends_with(b"\n") => {
                    return Ok(String::from_utf8_lossy(&line).into_owned());
                }
                Ok(_) => {}
                // The part read so far stays in `line`.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(format!("reading from the guest: {error}")),
            }
        }
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group =
            [chunk[0], chunk.get(1).copied().unwrap_or(0), chunk.get(2).copied().unwrap_or(0)];
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for position in 0..4 {
            let index = (bits >> (18 - 6 * position)) & 63;
            text.push(if position <= chunk.len() { ALPHABET[index as usize] as char } else { '=' });
        }
    }
    text
}

fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = ALPHABET
            .iter()
            .position(|known| *known == letter)
            .ok_or_else(|| format!("no base64: {text:?}"))?;
        bits = (bits << 6) | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Ok(bytes)
}
