//! `LedgerOps` on the machine: every record on disk before the call returns.

use super::LinuxNode;
use crate::{
    error::NodeError,
    ledger::{Ledger, Record},
    node_ops::LedgerOps,
};
use jiff::Timestamp;
use quarry_api::node_inventory::{DeviceClaim, RetainedData};
use quarry_core::job::{Intent, Outcome};
use quarry_failpoint::failpoint;
use std::sync::{MutexGuard, PoisonError};

impl LinuxNode {
    /// Durable when it returns; what the ledger already says is not repeated.
    pub(super) fn record_new(&self, records: Vec<Record>) -> Result<(), NodeError> {
        let mut ledger = self.ledger();
        let unrecorded = ledger.unrecorded(records);
        ledger.append_all(&unrecorded)
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerOps for LinuxNode {
    fn record_intent(&self, entry: &Intent) -> Result<(), NodeError> {
        failpoint!("ledger.intent.before");
        self.ledger().append(&Record::intent(Timestamp::now(), entry))?;
        failpoint!("ledger.intent.after");
        Ok(())
    }

    fn record_outcome(&self, entry: &Outcome) -> Result<(), NodeError> {
        failpoint!("ledger.outcome.before");
        self.ledger().append(&Record::outcome(Timestamp::now(), entry))?;
        failpoint!("ledger.outcome.after");
        Ok(())
    }

    fn record_retained(&self, retained: &[RetainedData]) -> Result<(), NodeError> {
        let now = Timestamp::now();
        self.record_new(retained.iter().map(|data| Record::retained(now, data)).collect())
    }

    fn record_released(&self, claims: &[DeviceClaim]) -> Result<(), NodeError> {
        let now = Timestamp::now();
        self.record_new(claims.iter().map(|claim| Record::released(now, claim)).collect())
    }

    fn outdated(&self, claims: &[DeviceClaim]) -> Result<Vec<Option<String>>, NodeError> {
        let ledger = self.ledger();
        Ok(claims.iter().map(|claim| ledger.history().outdated(claim)).collect())
    }

    fn ledger_id(&self) -> Result<String, NodeError> {
        Ok(self.ledger().id().to_owned())
    }
}
