//! Waiting for the kernel or for udev: short polls up to a deadline, on the worker's own thread.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Polls until `look` answers `Some`; `None` when the time is up. Looks at least once, and once more at the end.
pub fn until<T, E>(
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_micros(500);
    loop {
        let late = Instant::now() >= end;
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if late {
            return Ok(None);
        }
        thread::sleep(pause);
        // What comes soon is met soon; what takes long does not cost a core.
        pause = (pause * 3 / 2).min(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_already_is_found_without_time() {
        let found: Result<_, ()> = until(Duration::ZERO, || Ok(Some(1)));
        assert_eq!(found, Ok(Some(1)));
        let missing: Result<Option<()>, ()> = until(Duration::from_millis(2), || Ok(None));
        assert_eq!(missing, Ok(None));
    }
}
