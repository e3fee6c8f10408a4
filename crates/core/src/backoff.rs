//! How long to wait after a failure, and after the next one.

use jiff::SignedDuration;
use std::time::Duration;

/// Doubles from `first` to `longest`. Nothing is remembered here: the caller knows how often it failed, or for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Backoff { first, longest }
    }

    /// After this many failures in a row, the last one included.
    pub fn after_failures(self, failures: u32) -> Duration {
        let doubled = 2u32.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(doubled).min(self.longest)
    }

    /// After this attempt has failed: the first is 1, as objects count them.
    pub fn after_attempt(self, attempt: i32) -> SignedDuration {
        let delay = self.after_failures(u32::try_from(attempt).unwrap_or_default());
        SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX)
    }

    /// After failing for this long: for a caller that knows since when, and counts nothing.
    pub fn after(self, waited: Duration) -> Duration {
        (waited / 2).clamp(self.first, self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

    #[test]
    fn a_delay_doubles_up_to_its_limit() {
        let delays: Vec<u64> = (0..9).map(|n| BACKOFF.after_failures(n).as_secs()).collect();
        assert_eq!(delays, [1, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(BACKOFF.after_failures(u32::MAX), BACKOFF.longest);
        let attempts = [i32::MIN, 0, 1, 2, 6, i32::MAX];
        let delays = attempts.map(|attempt| BACKOFF.after_attempt(attempt).as_secs());
        assert_eq!(delays, [1, 1, 1, 2, 30, 30]);
    }

    #[test]
    fn a_delay_grows_with_the_time_of_failing() {
        for (waited, delay) in [(0, 1), (1, 1), (10, 5), (50, 25), (1000, 30)] {
            assert_eq!(BACKOFF.after(Duration::from_secs(waited)), Duration::from_secs(delay));
        }
    }
}
