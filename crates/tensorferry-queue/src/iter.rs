//! Getting until there is nothing more to come.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_storage::{Company, Patience};

use crate::GetError;
use crate::typed::Typed;

/// Blocks for each value and ends with the first error, which it keeps.
pub struct Iter<'a, T> {
    typed: &'a Typed<T>,
    company: Company,
    end: Option<GetError>,
}

impl<'a, T> Iter<'a, T> {
    pub(crate) fn new(typed: &'a Typed<T>, company: Company) -> Self {
        Self { typed, company, end: None }
    }

    /// Why the iteration ended: closed, disconnected, a peer's death, or a message that could not be decoded. `None`
    /// while it has not.
    #[must_use]
    pub fn end(&self) -> Option<&GetError> {
        self.end.as_ref()
    }
}

impl<T: Serialize + DeserializeOwned> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.end.is_some() {
            return None;
        }
        match self.typed.get(self.company, Patience::Forever) {
            Ok(value) => Some(value),
            Err(error) => {
                self.end = Some(error);
                None
            }
        }
    }
}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("end", &self.end).finish_non_exhaustive()
    }
}
