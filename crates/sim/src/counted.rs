//! A value that counts how often it may have been changed: whoever has looked at it need not look again.

use std::ops::{Deref, DerefMut};

#[derive(Debug)]
pub struct Counted<T> {
    value: T,
    changes: u64,
}

impl<T> Counted<T> {
    pub fn new(value: T) -> Self {
        Counted { value, changes: 0 }
    }

    /// Equal at two moments: nobody has written to it between them.
    pub fn changes(counted: &Self) -> u64 {
        counted.changes
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Counted<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.changes += 1;
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whoever_could_write_counts() {
        let mut counted = Counted::new(vec![1]);
        assert_eq!((counted.len(), Counted::changes(&counted)), (1, 0));
        counted.push(2);
        *counted = vec![];
        assert_eq!((counted.len(), Counted::changes(&counted)), (0, 2));
    }
}
