//! The states of a node: one table of names, used in both directions.
//!
//! Knows nothing about transitions; which state follows which is the planner's subject.
//! Next to read: `node.rs`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// An enum of Ironic's words that keeps words it does not know, so that a newer Ironic cannot make
/// a whole list unreadable.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $($variant,)+
            /// A word that this version does not know.
            Unknown(String),
        }

        impl $name {
            /// Every known value.
            pub const KNOWN: &[Self] = &[$(Self::$variant),+];

            /// Ironic's word.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Unknown(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => Self::Unknown(other.to_owned()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(|word| Self::from(word.as_str()))
            }
        }
    };
}

words! {
    /// `provision_state` of a node, and the goal in `target_provision_state`.
    ProvisionState {
        Enroll = "enroll",
        Verifying = "verifying",
        Manageable = "manageable",
        Available = "available",
        Active = "active",
        Deploy = "deploy",
        Deploying = "deploying",
        DeployWait = "wait call-back",
        DeployFailed = "deploy failed",
        DeployComplete = "deploy complete",
        DeployHold = "deploy hold",
        Deleting = "deleting",
        Deleted = "deleted",
        Undeploy = "undeploy",
        Cleaning = "cleaning",
        CleanWait = "clean wait",
        CleanFailed = "clean failed",
        CleanHold = "clean hold",
        Error = "error",
        Rebuild = "rebuild",
        Inspecting = "inspecting",
        InspectWait = "inspect wait",
        InspectFailed = "inspect failed",
        Adopting = "adopting",
        AdoptFailed = "adopt failed",
        Rescue = "rescue",
        Rescuing = "rescuing",
        RescueWait = "rescue wait",
        RescueFailed = "rescue failed",
        Unrescuing = "unrescuing",
        UnrescueFailed = "unrescue failed",
        Service = "service",
        Servicing = "servicing",
        ServiceWait = "service wait",
        ServiceFailed = "service failed",
        ServiceHold = "service hold",
    }
}

words! {
    /// `power_state` of a node, and the goal in `target_power_state`.
    PowerState {
        On = "power on",
        Off = "power off",
        Rebooting = "rebooting",
        SoftRebooting = "soft rebooting",
        SoftOff = "soft power off",
        Error = "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words_are_read_back() {
        for state in ProvisionState::KNOWN {
            assert_eq!(&ProvisionState::from(state.as_str()), state);
        }
        for state in PowerState::KNOWN {
            assert_eq!(&PowerState::from(state.as_str()), state);
        }
    }

    #[test]
    fn unknown_words_survive() {
        let state: ProvisionState = serde_json::from_str("\"polishing\"").unwrap();
        assert_eq!(state, ProvisionState::Unknown("polishing".to_owned()));
        assert_eq!(serde_json::to_string(&state).unwrap(), "\"polishing\"");
    }
}
