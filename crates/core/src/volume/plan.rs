//! What to do about a Volume now, and what to report if the API server refuses it. Checked in `check.rs`.

use super::{Observed, Plan, deploy, finalize, status};
use jiff::Timestamp;

pub fn plan(seen: &Observed, now: Timestamp) -> Plan {
    let plan = if seen.volume.metadata.deletion_timestamp.is_some() {
        finalize::plan(seen, now)
    } else {
        deploy::plan(seen, now)
    };
    let refused = (!plan.steps.is_empty()).then(|| status::refused(seen));
    Plan { refused, ..plan }
}
