//! A value that counts how often it may have been changed: what has read it need not read it again.

use std::ops::{Deref, DerefMut};

#[derive(Debug)]
pub struct Versioned<T> {
    value: T,
    changes: u64,
}

impl<T> Versioned<T> {
    pub fn new(value: T) -> Self {
        Versioned { value, changes: 0 }
    }

    /// Equal at two moments: it was not written to between them.
    pub fn changes(counted: &Self) -> u64 {
        counted.changes
    }
}

impl<T> Deref for Versioned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Versioned<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.changes += 1;
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_count() {
        let mut counted = Versioned::new(vec![1]);
        assert_eq!((counted.len(), Versioned::changes(&counted)), (1, 0));
        counted.push(2);
        *counted = vec![];
        assert_eq!((counted.len(), Versioned::changes(&counted)), (0, 2));
    }
}
