//! What a failed request means, and whether the same request can succeed later.
//!
//! Ironic answers with few statuses and many sentences: the meaning is derived here once, from the
//! status and from fixed parts of Ironic's sentences, so that planners compare values. A 404 counts as
//! `NotFound` only in Ironic's own words: a proxy's 404 must not look like a deleted node.
//! Never prints a credential. Next to read: `secret.rs`, `error_tests.rs` (the answers of a real Ironic).

use crate::secret::without_credentials;
use crate::transport::{Response, TransportError};
use serde_json::Value;
use std::fmt;

/// Characters of a message that are kept; Ironic's can contain every disk of a machine.
const MAX_MESSAGE: usize = 1000;

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What was attempted: `create node ns~host with driver redfish`.
    pub attempt: String,
    pub meaning: Meaning,
    /// The cause, in Ironic's words where there are any; then the remedy, where one is known.
    pub message: String,
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// The node's state does not allow the request: observe it and plan again.
    WrongState,
    /// Ironic works on the node right now.
    Locked,
    /// The node is in maintenance, which must be cleared first.
    Maintenance,
    /// The node or port does not exist.
    NotFound,
    /// A name, MAC address or instance UUID is used by another object.
    Conflict,
    /// No response.
    Unreachable(Reach),
    /// Credentials are missing, wrong or not sufficient.
    Unauthorized,
    /// This Ironic does not have what was requested, or not in the negotiated API version.
    Unsupported,
    /// Ironic considers the request invalid.
    Refused,
    /// Ironic failed, or has no capacity.
    Failed,
    /// The response is not one of Ironic's: another service, or a proxy.
    Malformed,
}

/// How far a request came that got no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The host name has no address.
    Dns,
    /// No process listens there.
    ConnectionRefused,
    /// A time limit ended it.
    Timeout,
    /// No trust in one direction or the other.
    Tls,
    /// Connected, and cut off before the response was complete; or not routable.
    Broken,
}

impl Meaning {
    /// Whether the same request can succeed later without a change of the request, of settings or
    /// of the node.
    pub fn retryable(self) -> bool {
        match self {
            Self::Locked | Self::Unreachable(_) | Self::Failed | Self::Malformed => true,
            Self::WrongState
            | Self::Maintenance
            | Self::NotFound
            | Self::Conflict
            | Self::Unauthorized
            | Self::Unsupported
            | Self::Refused => false,
        }
    }

    /// The name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WrongState => "WrongState",
            Self::Locked => "Locked",
            Self::Maintenance => "Maintenance",
            Self::NotFound => "NotFound",
            Self::Conflict => "Conflict",
            Self::Unreachable(reach) => reach.as_str(),
            Self::Unauthorized => "Unauthorized",
            Self::Unsupported => "Unsupported",
            Self::Refused => "Refused",
            Self::Failed => "Failed",
            Self::Malformed => "Malformed",
        }
    }
}

impl Reach {
    /// The name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "UnreachableDns",
            Self::ConnectionRefused => "UnreachableConnectionRefused",
            Self::Timeout => "UnreachableTimeout",
            Self::Tls => "UnreachableTls",
            Self::Broken => "UnreachableBroken",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Dns => "check the host name in --ironic-url",
            Self::ConnectionRefused => "check that Ironic runs, and the port in --ironic-url",
            Self::Timeout | Self::Broken => "check that Ironic runs and can be reached",
            Self::Tls => "check --ironic-ca, --ironic-client-cert and Ironic's certificate",
        }
    }
}

impl Error {
    /// Whether the same request can succeed later; see [`Meaning::retryable`].
    pub fn retryable(&self) -> bool {
        self.meaning.retryable()
    }

    pub fn is_not_found(&self) -> bool {
        self.meaning == Meaning::NotFound
    }

    /// Whether the node is there and only its inventory is not. Both are a 404 with one of Ironic's
    /// sentences, so that the sentence decides.
    #[cfg(feature = "client")]
    pub(crate) fn is_missing_inventory(&self) -> bool {
        self.is_not_found() && self.message.starts_with("Node inventory record for node")
    }

    /// From a response with a status that is not a success.
    pub fn from_response(attempt: &str, response: &Response, secrets: &[String]) -> Self {
        let fault = parse_fault(&response.body);
        let meaning = decide_meaning(response.status, &fault);
        let text = without_credentials(fault.text(), secrets);
        let text = trimmed(&text);
        let text = if text.is_empty() { "no explanation given".to_owned() } else { text };
        let remedy = match meaning {
            Meaning::Unauthorized => "; check --ironic-auth",
            Meaning::Malformed => "; check that --ironic-url leads to Ironic's API",
            _ => "",
        };
        let message = format!("{text} (HTTP {}){remedy}", response.status);
        Self { attempt: attempt.to_owned(), meaning, message }
    }

    pub fn from_transport(attempt: &str, error: &TransportError, secrets: &[String]) -> Self {
        let text = trimmed(&without_credentials(&error.message, secrets));
        let message = format!("{text}; {}", error.reach.remedy());
        Self { attempt: attempt.to_owned(), meaning: Meaning::Unreachable(error.reach), message }
    }

    /// A response that was a success and cannot be read.
    pub fn malformed(attempt: &str, cause: impl fmt::Display) -> Self {
        let message = format!("the response cannot be read: {}", trimmed(&cause.to_string()));
        Self { attempt: attempt.to_owned(), meaning: Meaning::Malformed, message }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to {}: {}", self.attempt, self.message)
    }
}

impl std::error::Error for Error {}

/// Where an explanation came from.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    /// One of Ironic's own sentences.
    Ironic(String),
    /// The web framework below Ironic: the path or version is unknown to it.
    Framework(String),
    /// The authentication in front of Ironic's API.
    Authentication(String),
    /// Anything else, as plain text.
    Other(String),
}

impl Fault {
    fn text(&self) -> &str {
        match self {
            Self::Ironic(text)
            | Self::Framework(text)
            | Self::Authentication(text)
            | Self::Other(text) => text,
        }
    }
}

/// `{"error_message": "<JSON text or object>"}` with `faultstring`, or with `title` and
/// `description`; `{"error": {"message"}}`; or another program's text.
fn parse_fault(body: &[u8]) -> Fault {
    let text = String::from_utf8_lossy(body);
    let Ok(outer) = serde_json::from_str::<Value>(&text) else {
        return Fault::Other(without_markup(&text));
    };
    if let Some(message) = outer["error"]["message"].as_str() {
        return Fault::Authentication(message.to_owned());
    }
    let inner = match &outer["error_message"] {
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(inner) => inner,
            Err(_) => return Fault::Ironic(without_markup(text)),
        },
        Value::Null => outer,
        other => other.clone(),
    };
    if let Some(text) = inner["faultstring"].as_str() {
        return Fault::Ironic(without_markup(text));
    }
    let field = |name: &str| inner[name].as_str().filter(|text| !text.is_empty());
    match field("description").or_else(|| field("title")) {
        Some(text) => Fault::Framework(without_markup(text)),
        None => Fault::Other(String::new()),
    }
}

fn decide_meaning(status: u16, fault: &Fault) -> Meaning {
    let text = fault.text();
    let has = |part: &str| text.contains(part);
    let wrong_state = has("while it is in state") || has("while it is in provision state");
    match (status, fault) {
        (401 | 403, _) => Meaning::Unauthorized,
        (404, Fault::Ironic(_)) => Meaning::NotFound,
        (404, Fault::Framework(_)) | (405 | 406, _) => Meaning::Unsupported,
        (404, Fault::Other(_) | Fault::Authentication(_)) => Meaning::Malformed,
        (409, _) if has("is locked by host") || has("state transition is in progress") => {
            Meaning::Locked
        }
        (400 | 409, _) if wrong_state => Meaning::WrongState,
        (409, _) => Meaning::Conflict,
        (400, _) if has("in maintenance mode") => Meaning::Maintenance,
        // The node of a new port.
        (400, _) if text.starts_with("Node ") && has("could not be found") => Meaning::NotFound,
        (408 | 429, _) | (500.., _) => Meaning::Failed,
        (400..=499, _) => Meaning::Refused,
        (0..=399, _) => Meaning::Malformed,
    }
}

/// The text of an HTML page; text without tags stays as it is.
fn without_markup(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if !lower.contains("<html") && !lower.contains("<body") && !lower.contains("<p>") {
        return text.to_owned();
    }
    let mut plain = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        plain.push_str(&rest[..start]);
        plain.push(' ');
        let tag = &rest[start..];
        let lower = tag.to_ascii_lowercase();
        let skipped = ["style", "script", "title"].into_iter().find_map(|name| {
            let end = format!("</{name}>");
            lower.starts_with(&format!("<{name}")).then(|| lower.find(&end)).flatten()
        });
        let from = skipped.unwrap_or(0);
        rest = match tag[from..].find('>') {
            Some(end) => &tag[from + end + 1..],
            None => "",
        };
    }
    plain.push_str(rest);
    plain.replace("&nbsp;", " ").replace("&#39;", "'").replace("&quot;", "\"")
}

/// One line, without a final period, cut at [`MAX_MESSAGE`] characters.
fn trimmed(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.trim_end_matches('.');
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
