//! Records conversations with Ironic, one exchange per line, for the simulated Ironic.
//!
//! UUIDs and times are numbered in the order of their first appearance, and credentials are hidden, so
//! that two recordings of the same conversation are equal. Changes nothing on the way through.
//! Next to read: `transport.rs`, `secret.rs`.

use crate::secret::{redacted, without_credentials};
use crate::transport::{Request, Response, SendFuture, Transport, TransportError};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A transport that also writes what passes. A line that cannot be written fails the request: a
/// recording with holes would make the simulated Ironic wrong.
pub struct Recorder<T> {
    inner: T,
    state: Mutex<State>,
}

struct State {
    out: Box<dyn Write + Send>,
    names: Names,
}

impl<T: Transport> Recorder<T> {
    /// Appends to a file, which is created if need be.
    #[expect(clippy::disallowed_methods, reason = "a recording of a test, not a file of a node")]
    pub fn append(inner: T, path: &Path) -> io::Result<Self> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self::new(inner, Box::new(file)))
    }

    pub fn new(inner: T, out: Box<dyn Write + Send>) -> Self {
        Self { inner, state: Mutex::new(State { out, names: Names::default() }) }
    }

    fn write(
        &self,
        request: &Request,
        result: &Result<Response, TransportError>,
    ) -> io::Result<()> {
        let secrets = request.secrets();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { out, names } = &mut *state;
        let body = request.body.as_ref().map(|body| names.value(&redacted(body)));
        let sent = json!({
            "method": request.method.as_str(),
            "path": names.text(&request.path),
            "version": request.version.map(|version| version.to_string()),
            "body": body,
        });
        let received = match result {
            Ok(response) => {
                let body = match serde_json::from_slice::<Value>(&response.body) {
                    Ok(body) => names.value(&cleaned(&redacted(&body), &secrets)),
                    Err(_) => {
                        let text = String::from_utf8_lossy(&response.body);
                        Value::String(names.text(&without_credentials(&text, &secrets)))
                    }
                };
                json!({"status": response.status, "body": body})
            }
            Err(error) => {
                let message = names.text(&without_credentials(&error.message, &secrets));
                json!({"unreachable": error.reach.as_str(), "message": message})
            }
        };
        let line = json!({"request": sent, "response": received});
        out.write_all(format!("{line}\n").as_bytes())?;
        out.flush()
    }
}

impl<T: Transport> Transport for Recorder<T> {
    fn send(&self, request: Request) -> SendFuture<'_> {
        Box::pin(async move {
            let result = self.inner.send(request.clone()).await;
            self.write(&request, &result).map_err(|error| TransportError {
                reach: crate::error::Reach::Broken,
                message: format!("failed to record the exchange: {error}"),
            })?;
            result
        })
    }
}

/// Texts without the credentials that Ironic quotes.
fn cleaned(value: &Value, secrets: &[String]) -> Value {
    match value {
        Value::String(text) => Value::String(without_credentials(text, secrets)),
        Value::Array(items) => items.iter().map(|item| cleaned(item, secrets)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields.map(|(key, field)| (key.clone(), cleaned(field, secrets))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Numbers for values that differ in every run.
#[derive(Default)]
struct Names {
    uuids: HashMap<String, usize>,
    times: HashMap<String, usize>,
}

impl Names {
    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, field)| (self.text(key), self.value(field))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn text(&mut self, text: &str) -> String {
        let bytes = text.as_bytes();
        let (mut result, mut at, mut copied) = (String::new(), 0, 0);
        while at < bytes.len() {
            let (length, name) = if let Some(length) = uuid_length(&bytes[at..]) {
                let next = self.uuids.len() + 1;
                let number = *self.uuids.entry(text[at..at + length].to_owned()).or_insert(next);
                (length, format!("00000000-0000-4000-8000-{number:012}"))
            } else if let Some(length) = time_length(&bytes[at..]) {
                let next = self.times.len() + 1;
                let number = *self.times.entry(text[at..at + length].to_owned()).or_insert(next);
                let (hour, minute, second) = (number / 3600 % 24, number / 60 % 60, number % 60);
                (length, format!("2026-01-01T{hour:02}:{minute:02}:{second:02}+00:00"))
            } else {
                at += 1;
                continue;
            };
            result.push_str(&text[copied..at]);
            result.push_str(&name);
            at += length;
            copied = at;
        }
        result.push_str(&text[copied..]);
        result
    }
}

/// Whether the bytes begin with this form: `x` is a hexadecimal digit, `9` a decimal one.
fn has_form(bytes: &[u8], form: &[u8]) -> bool {
    bytes.len() >= form.len()
        && form.iter().zip(bytes).all(|(form, byte)| match form {
            b'x' => byte.is_ascii_hexdigit(),
            b'9' => byte.is_ascii_digit(),
            other => other == byte,
        })
}

fn uuid_length(bytes: &[u8]) -> Option<usize> {
    let form = b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    has_form(bytes, form).then_some(form.len())
}

/// A time with its fraction and offset, as far as they are there.
fn time_length(bytes: &[u8]) -> Option<usize> {
    let form = b"9999-99-99T99:99:99";
    if !has_form(bytes, form) && !has_form(bytes, b"9999-99-99 99:99:99") {
        return None;
    }
    let mut length = form.len();
    if bytes.get(length) == Some(&b'.') {
        length += 1 + bytes[length + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    }
    for offset in [&b"+99:99"[..], b"-99:99", b"Z"] {
        if has_form(&bytes[length..], offset) {
            return Some(length + offset.len());
        }
    }
    Some(length)
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
