//! Every failpoint of this crate, for the tests that kill the agent at each one.

/// In the order in which a prepare and a cleanup meet them.
pub const ALL: &[&str] = &[
    "ledger.intent.before",
    "ledger.torn",
    "ledger.intent.after",
    "make-draft.before",
    "make-draft.created",
    "make-draft.after",
    "format-draft.before",
    "format-draft.written",
    "format-draft.after",
    "publish-draft.before",
    "publish-draft.renamed",
    "publish-draft.after",
    "attach.before",
    "attach.configured",
    "attach.after",
    "add-partition.before",
    "add-partition.after",
    "make-link.before",
    "make-link.made",
    "make-link.after",
    "await-link.before",
    "await-link.after",
    "ledger.outcome.before",
    "ledger.outcome.after",
    "status.running.before",
    "status.running.after",
    "status.finished.before",
    "status.finished.after",
    "inventory.before",
    "inventory.after",
    "detach.before",
    "detach.partitions-deleted",
    "detach.cleared",
    "detach.after",
    "remove-link.before",
    "remove-link.after",
    "await-no-link.before",
    "await-no-link.after",
    "discard-draft.before",
    "discard-draft.after",
    "remove-file.before",
    "remove-file.after",
    // A claim is confirmed, and ends.
    "confirm.held",
    "claim-link.before",
    "claim-link.made",
    "claim-link.after",
    "confirm.linked",
    "confirm.recorded",
    "claim-unlink.before",
    "claim-unlink.after",
    // A wipe.
    "wipe.seen",
    "wipe.opened",
    "wipe.held",
    "wipe.before",
    "wipe.overwritten",
    "wipe.marked",
    "wipe.discarding",
    "wipe.zeroing",
    "wipe.erased",
    "wipe.synced",
    "wipe.proven",
];

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    fn walk(directory: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                let source = fs::read_to_string(&path).unwrap();
                found.extend(quarry_failpoint::names_in(&source).into_iter().map(str::to_owned));
            }
        }
    }

    #[test]
    fn none_is_forgotten_and_none_is_named_twice() {
        let mut found = Vec::new();
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
        found.sort();
        let mut listed: Vec<String> = super::ALL.iter().map(|name| (*name).to_owned()).collect();
        listed.sort();
        assert_eq!(found, listed);
    }
}
