//! What is sent to Ironic and what comes back, and the trait of who carries it.
//!
//! A transport adds the credentials and the API version's header, and interprets nothing: a status
//! of 500 is a response. The simulator implements `Transport` too.
//! Next to read: `error.rs` (what a response means), `http.rs` (over sockets), `recorder.rs`.

use crate::error::Reach;
use crate::secret;
use serde_json::Value;
use std::fmt;
use std::pin::Pin;

/// Version of Ironic's API, negotiated once per client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Microversion {
    pub major: u32,
    pub minor: u32,
}

impl Microversion {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// `1.109`; None for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self::new(major.parse().ok()?, minor.parse().ok()?))
    }
}

impl fmt::Display for Microversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// One request. The body may contain credentials: Debug shows only its size.
#[derive(Clone, PartialEq)]
pub struct Request {
    pub method: Method,
    /// With the query, from `/v1` on.
    pub path: String,
    pub body: Option<Value>,
    /// None only for the question which versions there are.
    pub version: Option<Microversion>,
}

impl Request {
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::Get, path, None)
    }

    pub fn new(method: Method, path: impl Into<String>, body: Option<Value>) -> Self {
        Self { method, path: path.into(), body, version: None }
    }

    /// Credentials in the body. An answer that quotes one is cleaned before it is kept.
    pub fn secrets(&self) -> Vec<String> {
        self.body.as_ref().map(secret::secrets_of).unwrap_or_default()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method.as_str(), self.path)?;
        if let Some(version) = self.version {
            write!(f, " at {version}")?;
        }
        match &self.body {
            Some(body) => write!(f, " with {} bytes", body.to_string().len()),
            None => Ok(()),
        }
    }
}

/// One response, uninterpreted.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} bytes", self.status, self.body.len())
    }
}

/// No response. A change that was requested may have been made nevertheless: observe the node
/// before anything is requested again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    pub reach: Reach,
    /// Without credentials.
    pub message: String,
}

pub type SendFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response, TransportError>> + Send + 'a>>;

/// Carries requests to Ironic.
pub trait Transport: Send + Sync {
    fn send(&self, request: Request) -> SendFuture<'_>;
}

impl<T: Transport + ?Sized> Transport for std::sync::Arc<T> {
    fn send(&self, request: Request) -> SendFuture<'_> {
        (**self).send(request)
    }
}

/// Text as one part of a path, or as a value in a query.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_cannot_leave_its_part_of_the_path() {
        assert_eq!(encode("ns~host-1"), "ns~host-1");
        assert_eq!(encode("../a b?c=d&e"), "..%2Fa%20b%3Fc%3Dd%26e");
    }

    #[test]
    fn versions_compare_as_numbers() {
        let version = |text| Microversion::parse(text).unwrap();
        assert!(version("1.109") > version("1.89"));
        assert_eq!(version("1.109").to_string(), "1.109");
        assert_eq!(Microversion::parse("latest"), None);
        assert_eq!(Microversion::parse("1.x"), None);
    }

    #[test]
    fn debug_shows_no_body() {
        let body = json!({"driver_info": {"redfish_password": "hunter22"}});
        let request = Request::new(Method::Post, "/v1/nodes", Some(body));
        assert_eq!(request.secrets(), ["hunter22"]);
        assert!(!format!("{request:?}").contains("hunter22"), "{request:?}");
        let response = Response { status: 200, body: b"hunter22".to_vec() };
        assert!(!format!("{response:?}").contains("hunter22"));
    }
}
