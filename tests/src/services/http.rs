//! One HTTP request with curl: a client that is not the one under test.

use serde_json::Value;
use std::process::Command;

/// An answer of any status. `body` is null when it is not JSON.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
    pub text: String,
}

impl Answer {
    /// The body of a success.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text);
        self.body
    }
}

/// Sends one request. `Err`: no answer, with curl's reason.
pub fn request(
    method: &str,
    url: &str,
    body: Option<&Value>,
    more: &[&str],
) -> Result<Answer, String> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60"]);
    command.args(["--user-agent", "lab-test", "--request", method]);
    command.args(["--write-out", "\n%{http_code}"]).args(more);
    if let Some(body) = body {
        command.args(["--header", "Content-Type: application/json", "--data", &body.to_string()]);
    }
    let output = command.arg(url).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let (text, status) = printed.rsplit_once('\n').expect("curl prints the status last");
    Ok(Answer {
        status: status.parse().expect(status),
        body: serde_json::from_str(text).unwrap_or_default(),
        text: text.to_owned(),
    })
}
