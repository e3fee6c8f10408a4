//! What a job does now, for people: written by its runner, read by what announces it.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressState {
    pub message: Cow<'static, str>,
    /// Only of what takes long.
    pub percent: Option<i32>,
}

impl Default for ProgressState {
    fn default() -> Self {
        ProgressState { message: Cow::Borrowed("observing the node"), percent: None }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<Mutex<ProgressState>>);

impl Progress {
    pub fn get(&self) -> ProgressState {
        self.lock().clone()
    }

    pub fn set(&self, message: impl Into<Cow<'static, str>>) {
        *self.lock() = ProgressState { message: message.into(), percent: None };
    }

    /// How much of `all` is done; the words stay. Never 100 before the end: what follows may still fail.
    pub fn advance(&self, done: u64, all: u64) {
        let percent = (u128::from(done) * 100).checked_div(u128::from(all)).unwrap_or(0).min(99);
        self.lock().percent = i32::try_from(percent).ok();
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_of_the_work_and_never_all_of_it() {
        let progress = Progress::default();
        progress.set("zeroing sdb");
        for (done, all, percent) in [(0, 0, 0), (1, 3, 33), (u64::MAX, u64::MAX, 99)] {
            progress.advance(done, all);
            assert_eq!(
                progress.get(),
                ProgressState { message: "zeroing sdb".into(), percent: Some(percent) }
            );
        }
        progress.set("reading it back");
        assert_eq!(progress.get().percent, None);
    }
}
