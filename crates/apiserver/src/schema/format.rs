//! Owns the string formats that kube-apiserver checks in CRD schemas. Unknown formats are ignored,
//! as upstream.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

pub fn holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => jiff::Timestamp::from_str(text).is_ok(),
        "date" => jiff::civil::Date::from_str(text).is_ok(),
        "ipv4" => Ipv4Addr::from_str(text).is_ok(),
        "ipv6" => Ipv6Addr::from_str(text).is_ok(),
        "cidr" => is_cidr(text),
        "uuid" | "uuid4" => is_uuid(text),
        "byte" => is_base64(text),
        "mac" => is_mac(text),
        "hostname" => is_hostname(text),
        "email" => {
            text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
        }
        "uri" => text.split_once(':').is_some_and(|(scheme, _)| !scheme.is_empty()),
        "duration" => is_duration(text),
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    (Ipv4Addr::from_str(address).is_ok() && bits <= 32)
        || (Ipv6Addr::from_str(address).is_ok() && bits <= 128)
}

fn is_uuid(text: &str) -> bool {
    let hex = text.chars().filter(char::is_ascii_hexdigit).count();
    let dashes = text.chars().filter(|c| *c == '-').count();
    hex == 32 && (dashes == 0 || dashes == 4) && hex + dashes == text.len()
}

fn is_base64(text: &str) -> bool {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains(':') { ':' } else { '-' };
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts.iter().all(|p| p.len() == 2 && p.chars().all(|c| c.is_ascii_hexdigit()))
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 255 && text.trim_end_matches('.').split('.').all(label)
}

/// A Go duration: `1h30m`, `-2.5s`, `0`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if digits == 0 || rest[..digits].parse::<f64>().is_err() {
            return false;
        }
        rest = &rest[digits..];
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h"].iter().find(|unit| {
            rest.starts_with(**unit)
                && !rest[unit.len()..].starts_with(|c: char| c.is_ascii_alphabetic())
        }) else {
            return false;
        };
        rest = &rest[unit.len()..];
    }
    true
}
