//! The answers of a real Ironic (39.0.0, API version 1.109), with shortened identifiers, and what each
//! of them means.

use super::*;
use crate::transport::TransportError;
use serde_json::json;

fn response(status: u16, body: impl Into<Vec<u8>>) -> Response {
    Response { status, body: body.into() }
}

/// Ironic's own form: JSON in a text in JSON.
fn fault(status: u16, text: &str) -> Response {
    let inner = json!({"faultcode": "Client", "faultstring": text, "debuginfo": null});
    response(status, json!({"error_message": inner.to_string()}).to_string())
}

/// The form of the web framework below it.
fn framework(status: u16, title: &str, description: &str) -> Response {
    let inner = json!({"code": status, "title": title, "description": description});
    response(status, json!({"error_message": inner.to_string()}).to_string())
}

fn meaning(response: &Response) -> Meaning {
    Error::from_response("try", response, &[]).meaning
}

#[test]
fn answers_of_ironic_have_their_meaning() {
    use Meaning::*;
    let cases = [
        (
            400,
            "The requested action \"provide\" can not be performed on node \"N\" while it is in state \"enroll\".",
            WrongState,
        ),
        (
            400,
            "The requested action \"power on\" can not be performed on node \"N\" while it is in state \"cleaning\".",
            WrongState,
        ),
        (409, "Cannot update node \"N\" while it is in state \"inspecting\".", WrongState),
        (
            409,
            "Can not delete node \"N\" while it is in provision state \"clean wait\". Valid provision states to perform deletion are: \"('manageable', 'enroll')\", or set the node into maintenance mode",
            WrongState,
        ),
        (
            409,
            "Node N is locked by host lab, please retry after the current operation is completed.",
            Locked,
        ),
        (409, "Node N can not be updated while a state transition is in progress.", Locked),
        (
            400,
            "The cleaning operation can't be performed on node N because it's in maintenance mode.",
            Maintenance,
        ),
        (404, "Node N could not be found.", NotFound),
        (404, "Node inventory record for node 1 could not be found.", NotFound),
        (400, "Node N could not be found.", NotFound),
        (409, "A node with name ns~a already exists.", Conflict),
        (409, "A node with UUID N already exists.", Conflict),
        (409, "A port with MAC address 00:11:22:33:44:55 already exists.", Conflict),
        (
            409,
            "Instance I is already associated with a node, it cannot be associated with this other node N",
            Conflict,
        ),
        (409, "Node N is associated with instance I.", Conflict),
        (406, "Request not acceptable.", Unsupported),
        (
            400,
            "No valid host was found. Reason: No conductor service registered which supports driver nosuch for conductor group \"\".",
            Refused,
        ),
        (
            400,
            "Schema error for node: Additional properties are not allowed ('nosuch' was unexpected)",
            Refused,
        ),
        (400, "RAID config validation error: 'raid_level' is a required property", Refused),
        (
            400,
            "Could not find the following interface in the 'ironic.hardware.interfaces.raid' entrypoint: idrac-redfish.",
            Refused,
        ),
        (
            400,
            "Failed to validate deploy or power info for node N: Some parameters were missing. Missing are: ['instance_info.image_source']",
            Refused,
        ),
        (400, "timeout has to be positive integer", Refused),
        (
            500,
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            Failed,
        ),
        (
            503,
            "Requested action cannot be performed due to lack of free conductor workers.",
            Failed,
        ),
    ];
    for (status, text, expected) in cases {
        let error = Error::from_response("try", &fault(status, text), &[]);
        assert_eq!(error.meaning, expected, "{text}");
        let cause = text.trim_end_matches('.');
        assert!(error.message.starts_with(cause), "cause first: {}", error.message);
        assert!(error.message.contains(&format!("(HTTP {status})")), "{}", error.message);
    }
}

#[test]
fn answers_of_the_layers_below_have_their_meaning() {
    let version =
        "Version 1.999 was requested but the minor version is not supported by this service.";
    assert_eq!(meaning(&framework(406, "Not Acceptable", version)), Meaning::Unsupported);
    assert_eq!(meaning(&framework(404, "Not Found", "")), Meaning::Unsupported);
    let auth = json!({"error": {"message": "Incorrect username or password", "code": 401}});
    let error = Error::from_response("try", &response(401, auth.to_string()), &[]);
    assert_eq!(error.meaning, Meaning::Unauthorized);
    let expected = "Incorrect username or password (HTTP 401); check --ironic-auth";
    assert_eq!(error.message, expected);
}

/// A deleted node is registered again; another program's 404 must not look like one.
#[test]
fn a_404_of_another_program_is_not_a_missing_node() {
    let page = "<html><head><title>404</title></head><body><h1>Not Found</h1></body></html>";
    assert_eq!(meaning(&response(404, page)), Meaning::Malformed);
    assert_eq!(meaning(&response(404, "")), Meaning::Malformed);
    assert_eq!(meaning(&response(404, "{\"detail\": \"unknown\"}")), Meaning::Malformed);
    assert_eq!(meaning(&response(302, "")), Meaning::Malformed);
}

#[test]
fn a_page_of_a_proxy_becomes_a_line() {
    let page = "<!DOCTYPE html>\n<html><head><title>503</title><style>p { color: red }</style>\n\
        </head><body>\n<h1>Service Unavailable</h1><p>The server is\n busy.</p></body></html>";
    let error = Error::from_response("list the nodes of Ironic", &response(503, page), &[]);
    assert_eq!(error.meaning, Meaning::Failed);
    assert_eq!(
        error.to_string(),
        "failed to list the nodes of Ironic: Service Unavailable The server is busy (HTTP 503)"
    );
}

#[test]
fn a_text_as_error_message_is_taken_as_it_is() {
    let body = json!({"error_message": "plain words"}).to_string();
    let error = Error::from_response("try", &response(400, body), &[]);
    assert_eq!(error.message, "plain words (HTTP 400)");
    let body = json!({"error_message": {"faultstring": "an object"}}).to_string();
    let error = Error::from_response("try", &response(400, body), &[]);
    assert_eq!(error.message, "an object (HTTP 400)");
}

#[test]
fn quoted_credentials_are_removed() {
    let text =
        "Couldn't apply patch '{'op': 'add', 'path': '/driver_info/x/y', 'value': 'hunter22'}'";
    let secrets = ["hunter22".to_owned()];
    let error = Error::from_response("try", &fault(400, text), &secrets);
    assert!(!error.to_string().contains("hunter22"), "{error}");
    assert!(!format!("{error:?}").contains("hunter22"));
    let text =
        "Unable to log in to http://admin:hunter22@192.0.2.1/redfish with password: hunter22";
    let error = Error::from_response("try", &fault(500, text), &[]);
    assert!(!error.to_string().contains("hunter22"), "{error}");
    assert!(error.message.contains("192.0.2.1"), "{error}");
}

#[test]
fn long_messages_are_cut() {
    let error = Error::from_response("try", &fault(400, &"é ".repeat(5000)), &[]);
    assert!(error.message.chars().count() < MAX_MESSAGE + 20, "{}", error.message.len());
    assert!(error.message.contains("…"));
}

#[test]
fn an_unreachable_ironic_has_a_remedy() {
    for reach in [Reach::Dns, Reach::ConnectionRefused, Reach::Timeout, Reach::Tls, Reach::Broken] {
        let error = TransportError { reach, message: "it failed".to_owned() };
        let error = Error::from_transport("try", &error, &[]);
        assert!(error.retryable());
        assert!(error.message.starts_with("it failed; check"), "{error}");
        assert_eq!(error.meaning.as_str(), reach.as_str());
    }
}

#[test]
fn only_passing_causes_are_retryable() {
    for meaning in [Meaning::Locked, Meaning::Failed, Meaning::Malformed] {
        assert!(meaning.retryable(), "{meaning:?}");
    }
    for meaning in [
        Meaning::WrongState,
        Meaning::Maintenance,
        Meaning::NotFound,
        Meaning::Conflict,
        Meaning::Unauthorized,
        Meaning::Unsupported,
        Meaning::Refused,
    ] {
        assert!(!meaning.retryable(), "{meaning:?}");
    }
}
