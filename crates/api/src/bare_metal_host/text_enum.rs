//! Enumerations that are strings on the wire and that a newer version may extend.
//!
//! Owns: the macro `text_enum`. An unknown string becomes `Other`: one object with a value of a newer version must not
//! make the list of all hosts unreadable. Next to read: `values.rs`.

/// Declares an enumeration with its strings. `listed` puts the strings into the schema; `unlisted` leaves the field
/// open, as upstream does where it has no list.
macro_rules! text_enum {
    (
        $(#[$meta:meta])*
        $kind:ident $name:ident {
            $($(#[$doc:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
            /// A value that this version does not know; kept as it is.
            Other(String),
        }

        impl $name {
            /// Every value that this version knows.
            pub const ALL: &'static [&'static str] = &[$($text),+];

            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => $name::$variant,)+
                    other => $name::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                Ok($name::from(text.as_ref()))
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                text_enum!(@$kind $name)
            }
            fn inline_schema() -> bool {
                true
            }
        }
    };
    (@listed $name:ident) => {
        schemars::json_schema!({"type": "string", "enum": $name::ALL})
    };
    (@unlisted $name:ident) => {
        schemars::json_schema!({"type": "string"})
    };
}

pub(crate) use text_enum;
