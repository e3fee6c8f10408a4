//! Identifiers that must not be confused with each other or with other text.
//!
//! Each is what the API object spells, unchanged: a newtype says what kind of name it is, not that the named object
//! exists. Next to read: `quarry_core::job`, which uses them.

use serde::{Deserialize, Serialize};
use std::{borrow::Borrow, fmt};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // A map by this name can be searched with text that was just read.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                $name(text)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name(text.to_owned())
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<String> for $name {
            fn eq(&self, other: &String) -> bool {
                self.0 == *other
            }
        }
    };
}

text_id!(
    /// `metadata.uid` of an object: another object of the same name has another.
    Uid
);
text_id!(
    /// The name of a Node.
    NodeName
);
text_id!(
    /// The name of a PersistentVolume.
    PvName
);
text_id!(
    /// The name of a NodeJob.
    JobName
);
text_id!(
    /// The stable name of a device, derived from its evidence (`wwn:5000c500...`).
    Identity
);

/// Counts the PersistentVolumes of a device claim: each needs its own confirmation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Round(pub i64);

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_spelled_as_its_text() {
        let id = Identity::from("wwn:1");
        assert_eq!(serde_json::to_string(&id).unwrap(), r#""wwn:1""#);
        assert_eq!(serde_json::from_str::<Identity>(r#""wwn:1""#).unwrap(), id);
        assert_eq!((id.to_string(), id == *"wwn:1"), ("wwn:1".to_owned(), true));
        assert_eq!(serde_json::to_string(&Round(3)).unwrap(), "3");
    }
}
