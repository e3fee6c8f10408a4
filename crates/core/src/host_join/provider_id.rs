//! The provider ID that Cluster API's metal3 provider gives to a Node.

const SCHEME: &str = "metal3://";

/// What `spec.providerID` of a Node names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderId<'a> {
    /// `metal3://NAMESPACE/HOST/MACHINE`
    Name { namespace: &'a str, name: &'a str },
    /// `metal3://UID`, the older form.
    Uid(&'a str),
}

impl<'a> ProviderId<'a> {
    /// `None`: of another provider, or malformed.
    pub fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.trim().strip_prefix(SCHEME)?.split('/').collect();
        match parts.as_slice() {
            parts if parts.iter().any(|part| part.is_empty()) => None,
            [uid] => Some(ProviderId::Uid(uid)),
            [namespace, name, _machine] => Some(ProviderId::Name { namespace, name }),
            _ => None,
        }
    }
}
