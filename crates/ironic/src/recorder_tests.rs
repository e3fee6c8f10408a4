//! Tests: two recordings of one conversation are equal, complete and free of credentials.

use super::*;
use crate::error::Reach;
use crate::transport::Method;
use std::sync::Arc;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Fixed(Result<Response, TransportError>);

impl Transport for Fixed {
    fn send(&self, _request: Request) -> SendFuture<'_> {
        Box::pin(async { self.0.clone() })
    }
}

async fn record(request: Request, answer: Result<Response, TransportError>) -> Value {
    let buffer = Buffer::default();
    let recorder = Recorder::new(Fixed(answer.clone()), Box::new(buffer.clone()));
    assert_eq!(recorder.send(request).await, answer, "what passes is not changed");
    let bytes = buffer.0.lock().unwrap().clone();
    assert_eq!(bytes.last(), Some(&b'\n'));
    serde_json::from_slice(&bytes).unwrap()
}

fn ok(body: &Value) -> Result<Response, TransportError> {
    Ok(Response { status: 200, body: body.to_string().into_bytes() })
}

#[tokio::test]
async fn uuids_and_times_are_numbered() {
    let (one, two) =
        ("1be26c0b-03f2-4d2e-ae87-c02d7f33c123", "9F0c6a4e-5f3b-4d57-8a8b-000000000abc");
    let body = json!({
        "uuid": one, "text": format!("node {two} of {one}, é"),
        "at": "2026-11-17T23:03:07.817779+00:00", "again": "2026-11-17T23:03:07.817779+00:00",
        "later": "2026-11-17 23:04:00.5", "zulu": "2026-11-17T23:05:00Z", "plain": "2026-11-17",
    });
    let line = record(Request::get(format!("/v1/nodes/{one}")), ok(&body)).await;
    let first = "00000000-0000-4000-8000-000000000001";
    let second = "00000000-0000-4000-8000-000000000002";
    assert_eq!(line["request"]["path"], format!("/v1/nodes/{first}"));
    let found = &line["response"]["body"];
    assert_eq!(found["uuid"], first);
    assert_eq!(found["text"], format!("node {second} of {first}, é"));
    assert_eq!(found["at"], found["again"]);
    for field in ["at", "zulu", "later"] {
        let time = found[field].as_str().unwrap();
        assert!(time.starts_with("2026-01-01T00:00:0"), "{field}: {time}");
        time.parse::<jiff::Timestamp>().unwrap();
    }
    assert_ne!(found["at"], found["later"]);
    assert_eq!(found["plain"], "2026-11-17");
}

#[tokio::test]
async fn credentials_are_not_recorded() {
    let sent = json!([{"op": "add", "path": "/driver_info/ipmi_password", "value": "hunter22"}]);
    let inner = json!({"faultstring": "value 'hunter22' of http://u:hunter22@h"}).to_string();
    let answer = ok(&json!({"error_message": inner, "agent_token": "hunter22", "token": null}));
    let line = record(Request::new(Method::Patch, "/v1/nodes/a", Some(sent)), answer).await;
    assert!(!line.to_string().contains("hunter22"), "{line}");
    let inner = line["response"]["body"]["error_message"].as_str().unwrap();
    serde_json::from_str::<Value>(inner).expect("still the JSON text that it was");
    assert_eq!(line["request"]["body"][0]["path"], "/driver_info/ipmi_password");
}

#[tokio::test]
async fn failures_and_pages_are_recorded_too() {
    let error = TransportError { reach: Reach::Timeout, message: "no response".to_owned() };
    let line = record(Request::get("/v1"), Err(error)).await;
    assert_eq!(line["response"]["unreachable"], "UnreachableTimeout");
    let page = Ok(Response { status: 502, body: b"<html>busy</html>".to_vec() });
    let line = record(Request::get("/v1"), page).await;
    assert_eq!(line["response"]["body"], "<html>busy</html>");
}
