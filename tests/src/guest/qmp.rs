//! QEMU's control socket: one command at a time; events are queued until a caller reads them.

use super::PATIENCE;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::net::UnixStream,
    time::Instant,
};

pub(super) struct Qmp {
    reader: BufReader<UnixStream>,
    stream: UnixStream,
    line: Vec<u8>,
    events: Vec<Value>,
}

impl Qmp {
    pub fn new(stream: UnixStream) -> Self {
        let mut qmp = Qmp {
            reader: BufReader::new(stream.try_clone().unwrap()),
            stream,
            line: Vec::new(),
            events: Vec::new(),
        };
        qmp.next("its greeting").expect("QEMU sends a greeting to every client");
        qmp.call("qmp_capabilities", json!({}));
        qmp
    }

    #[track_caller]
    pub fn call(&mut self, command: &str, arguments: Value) -> Value {
        self.try_call(command, &arguments)
            .unwrap_or_else(|why| panic!("QMP {command} {arguments}: {why}"))
    }

    pub fn try_call(&mut self, command: &str, arguments: &Value) -> Result<Value, String> {
        let line = json!({"execute": command, "arguments": arguments}).to_string() + "\n";
        self.stream.write_all(line.as_bytes()).map_err(|error| error.to_string())?;
        loop {
            let mut answer = self.next(command)?;
            if answer.get("event").is_some() {
                self.events.push(answer);
            } else if answer.get("error").is_some() {
                return Err(answer["error"]["desc"]
                    .as_str()
                    .unwrap_or("error without a description")
                    .to_owned());
            } else {
                return Ok(answer["return"].take());
            }
        }
    }

    /// Waits for an event; events queued earlier count.
    #[track_caller]
    pub fn event(&mut self, name: &str, matches: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(index) = self
                .events
                .iter()
                .position(|event| event["event"] == name && matches(&event["data"]))
            {
                return self.events.swap_remove(index);
            }
            match self.next(name) {
                Ok(event) => self.events.push(event),
                Err(why) => panic!("QMP event {name}: {why}; other events: {:?}", self.events),
            }
        }
    }

    fn next(&mut self, what: &str) -> Result<Value, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("no reply within {PATIENCE:?} to {what}"));
            }
            self.stream.set_read_timeout(Some(left)).unwrap();
            match self.reader.read_until(b'\n', &mut self.line) {
                Ok(0) => return Err("QEMU has exited".into()),
                Ok(_) if self.line.ends_with(b"\n") => {
                    let line = std::mem::take(&mut self.line);
                    return serde_json::from_slice(&line).map_err(|error| error.to_string());
                }
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}
