//! The UUID of an OSD or of a cluster (`fsid`), in the one spelling in which two of them can be compared.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Lower case, with hyphens. Never the nil UUID: Ceph writes that for "none".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Uuid(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a UUID; write it as 8-4-4-4-12 hexadecimal digits, such as 0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab"
)]
pub struct UuidError(String);

const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

impl Uuid {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        let groups: Vec<&str> = text.split('-').collect();
        let hexadecimal = groups.iter().all(|group| group.bytes().all(|b| b.is_ascii_hexdigit()));
        let lengths = groups.iter().map(|group| group.len()).eq(GROUPS);
        let nil = text.bytes().all(|byte| byte == b'0' || byte == b'-');
        if hexadecimal && lengths && !nil {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(UuidError(text.chars().take(64).collect()))
        }
    }
}

impl TryFrom<String> for Uuid {
    type Error = UuidError;

    fn try_from(text: String) -> Result<Self, UuidError> {
        text.parse()
    }
}

impl From<Uuid> for String {
    fn from(uuid: Uuid) -> Self {
        uuid.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_does_not_matter() {
        let lower: Uuid = "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab".parse().unwrap();
        assert_eq!("0B0F1F9E-3C1C-4A5E-8E0E-0123456789AB".parse(), Ok(lower));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "0b0f1f9e3c1c4a5e8e0e0123456789ab",
            "0b0f1f9e-3c1c-4a5e-8e0e-0123456789a",
            "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ag",
            "0b0f1f9e-3c1c-4a5e-8e0e-0123456789ab\n",
            "00000000-0000-0000-0000-000000000000",
        ] {
            assert!(text.parse::<Uuid>().is_err(), "{text:?}");
        }
    }
}
