//! Reading what a Ceph command printed. Unknown fields are ignored; what is missing is named.

use serde::de::DeserializeOwned;

/// Output of a command that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reading the output of `{command}`: {problem}")]
pub struct ParseError {
    pub command: &'static str,
    pub problem: String,
}

impl ParseError {
    pub fn new(command: &'static str, problem: impl Into<String>) -> Self {
        Self { command, problem: problem.into() }
    }
}

/// Ceph prints an empty line before its JSON. The error never quotes the output: it may contain a key.
pub(crate) fn parse_json<T: DeserializeOwned>(
    command: &'static str,
    output: &[u8],
) -> Result<T, ParseError> {
    if output.iter().all(u8::is_ascii_whitespace) {
        return Err(ParseError::new(command, "it printed nothing"));
    }
    serde_json::from_slice(output).map_err(|error| {
        let place = format!("line {} column {}", error.line(), error.column());
        let problem = match error.classify() {
            // Only names of fields and types of JSON; values are not quoted.
            serde_json::error::Category::Data => hide_values(&error.to_string()),
            _ => format!("no valid JSON at {place}"),
        };
        ParseError::new(command, problem)
    })
}

/// serde quotes a wrong value in double quotes and the names of fields in backticks. From the first double quote to
/// the last: the value may contain some.
fn hide_values(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(first), Some(last)) if first < last => {
            format!("{}\"…\"{}", &message[..first], &message[last + 1..])
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Sample {
        #[expect(dead_code, reason = "only its type matters")]
        number: u32,
    }

    #[test]
    fn errors_name_the_command_and_the_field() {
        let error = |text: &str| parse_json::<Sample>("ceph x", text.as_bytes()).unwrap_err();
        assert_eq!(
            error("\n{}").to_string(),
            "reading the output of `ceph x`: missing field `number` at line 2 column 2"
        );
        assert_eq!(error("\n").to_string(), "reading the output of `ceph x`: it printed nothing");
        assert_eq!(
            error("Error").to_string(),
            "reading the output of `ceph x`: no valid JSON at line 1 column 1"
        );
    }

    #[test]
    fn errors_never_quote_a_value() {
        let error = parse_json::<Sample>("ceph x", br#"{"number": "AQ\"== secret"}"#).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(error.to_string().contains("expected u32"), "{error}");
    }
}
