//! Values of others, whose code may panic.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Calls code of others. If it panics, returns the text.
pub(crate) fn catch<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let text = text_of(&*payload);
        // It is a value of others, too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(ManuallyDrop::new);
        text
    })
}

/// What is said of a message that made the code of others panic.
pub(crate) fn reading_has_panicked(text: &str) -> String {
    format!("reading it has panicked: {text}")
}

/// What is said of a value that made the code of others panic.
pub(crate) fn writing_has_panicked(text: &str) -> String {
    format!("writing it has panicked: {text}")
}

/// The text of a panic.
pub(crate) fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}

/// A value whose drop ends here if it panics. So where a step with one fails by a panic, it is known that it
/// was not its end that has failed.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    /// Empty once it was taken out.
    value: Option<T>,
}

impl<T> Guarded<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value: Some(value) }
    }

    /// `None` for none.
    pub(crate) fn into_inner(mut self) -> Option<T> {
        self.value.take()
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            let _ = catch(|| drop(value));
        }
    }
}

impl<T: Serialize> Serialize for Guarded<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_unit(),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Guarded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Loud;

    impl Drop for Loud {
        fn drop(&mut self) {
            panic!("not so loud");
        }
    }

    #[test]
    fn a_drop_that_panics_ends_where_it_is() {
        drop(Guarded::new(Loud));
        assert_eq!(catch(|| drop(Loud)).unwrap_err(), "not so loud");
        assert_eq!(catch(|| std::panic::panic_any(Loud)).unwrap_err(), "no text");
        assert_eq!(Guarded::new(7).into_inner(), Some(7));
    }
}
