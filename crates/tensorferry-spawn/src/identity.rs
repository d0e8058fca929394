//! Default names of processes: `Process-1`, and `Process-1:2` for the second child of the first child.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

/// The identity of this process, and how many processes it has started.
static LINEAGE: Mutex<Lineage> = Mutex::new(Lineage { own: Identity(Vec::new()), n_started: 0 });

#[derive(Debug)]
struct Lineage {
    own: Identity,
    n_started: u32,
}

/// The number, from 1, of each process on the path from the main process to this one. Empty for the main
/// process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Identity(Vec<u32>);

impl Identity {
    /// The identity of the next process that this one starts.
    pub(crate) fn next() -> Self {
        let mut lineage = LINEAGE.lock().unwrap_or_else(PoisonError::into_inner);
        lineage.n_started = lineage.n_started.saturating_add(1);
        let mut numbers = lineage.own.0.clone();
        numbers.push(lineage.n_started);
        Self(numbers)
    }

    /// Gives this process an identity. It has not started any process yet.
    pub(crate) fn adopt(self) {
        *LINEAGE.lock().unwrap_or_else(PoisonError::into_inner) = Lineage { own: self, n_started: 0 };
    }

    /// Its name, as in Python.
    pub(crate) fn name(&self) -> String {
        let mut name = String::from("Process");
        for (n, number) in self.0.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = write!(name, "{}{number}", if n == 0 { '-' } else { ':' });
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_number_of_each_generation() {
        assert_eq!(Identity(vec![7]).name(), "Process-7");
        assert_eq!(Identity(vec![1, 2, 3]).name(), "Process-1:2:3");
    }

    #[test]
    fn no_two_processes_have_one_identity() {
        assert_ne!(Identity::next(), Identity::next());
    }
}
