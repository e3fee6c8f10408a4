//! The annotation `quarry.dev/accept-identity` of a NodeInventory: identities that an administrator accepts.
//!
//! Identities are separated by commas. An identity that contains a comma (a model or a path may) must be the only one.

/// Whether the annotation's text names this identity.
pub fn accepts(annotation: &str, identity: &str) -> bool {
    accepted_identities(annotation).iter().any(|one| one == identity)
}

/// Everything that the annotation's text may mean: the whole of it, and each part between commas.
pub fn accepted_identities(annotation: &str) -> Vec<String> {
    let whole = annotation.trim();
    let parts =
        whole.split(',').map(str::trim).filter(|part| whole.contains(',') && !part.is_empty());
    Some(whole)
        .filter(|whole| !whole.is_empty())
        .into_iter()
        .chain(parts)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_accepted_alone_or_in_a_list() {
        for (annotation, identity, accepted) in [
            ("wwn:1", "wwn:1", true),
            (" wwn:1 ", "wwn:1", true),
            ("wwn:9, serial:m:2", "serial:m:2", true),
            ("wwn:9,serial:m:2", "serial:m", false),
            ("serial:ACME, Inc. X1:S2", "serial:ACME, Inc. X1:S2", true),
            ("file:/d/a,b.img#1#2.3", "file:/d/a,b.img#1#2.3", true),
            ("wwn:1, file:/d/a,b.img#1#2.3", "file:/d/a,b.img#1#2.3", false),
            ("", "", false),
            (",", "", false),
        ] {
            assert_eq!(accepts(annotation, identity), accepted, "{annotation:?} {identity:?}");
        }
    }
}
