//! Traits for functions that can be spawned: those with an index and up to eight arguments, and their return
//! types.

use std::error::Error;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Any error that can be sent between threads. A spawned function that returns it can use `?` on errors of
/// any type.
///
/// ```
/// use tensorferry_queue::Queue;
/// use tensorferry_spawn::{BoxedError, func, spawn};
///
/// #[func]
/// fn parse(rank: usize, text: String, numbers: Queue<(usize, u32)>) -> Result<(), BoxedError> {
///     numbers.put((rank, text.parse()?))?;
///     Ok(())
/// }
///
/// let numbers = Queue::new(1)?;
/// spawn(parse, (String::from("7"), numbers.clone()), 1)?;
/// assert_eq!(numbers.get()?, (0, 7));
/// # Ok::<(), BoxedError>(())
/// ```
pub type BoxedError = Box<dyn Error + Send + Sync>;

/// The return types of spawned functions: `()`, or a `Result` whose value can be serialized and whose error
/// can be reported.
#[diagnostic::on_unimplemented(
    message = "a spawned function cannot return `{Self}`",
    note = "it returns `()` or `Result<T, E>`, where serde can read and write `T`, and `E` is an error type, `String` or \
            `anyhow::Error`"
)]
pub trait Outcome {
    /// The value that is sent back to the parent.
    type Value: Serialize + DeserializeOwned;

    /// The value, or the error that is reported.
    ///
    /// # Errors
    /// The function's own error.
    fn into_result(self) -> Result<Self::Value, BoxedError>;
}

impl Outcome for () {
    type Value = ();

    fn into_result(self) -> Result<(), BoxedError> {
        Ok(())
    }
}

impl<T, E> Outcome for Result<T, E>
where
    T: Serialize + DeserializeOwned,
    E: Into<BoxedError>,
{
    type Value = T;

    fn into_result(self) -> Result<T, BoxedError> {
        self.map_err(Into::into)
    }
}

/// A function that takes the index of its process and then `Args`, a tuple.
///
/// Implemented for every function and closure with such a signature. Only functions with the attribute
/// [`func`](crate::func) can be spawned. That is checked before a process is started.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function that can be spawned with `{Args}`",
    note = "it takes the index of its process, `usize`, then each element of the tuple by value; one argument is \
            written `(argument,)`, none `()`",
    note = "serde must be able to read and write every argument"
)]
pub trait Function<Args>: Copy + 'static {
    /// The value that is sent back to the parent.
    type Value: Serialize + DeserializeOwned;

    /// Calls the function.
    ///
    /// # Errors
    /// The function's own error.
    fn call(self, rank: usize, args: Args) -> Result<Self::Value, BoxedError>;
}

macro_rules! functions {
    ($(($($Type:ident $name:ident),*))+) => {$(
        impl<Callee, Return, $($Type),*> Function<($($Type,)*)> for Callee
        where
            Callee: Fn(usize, $($Type),*) -> Return + Copy + 'static,
            Return: Outcome,
            $($Type: Serialize + DeserializeOwned,)*
        {
            type Value = Return::Value;

            fn call(self, rank: usize, ($($name,)*): ($($Type,)*)) -> Result<Return::Value, BoxedError> {
                self(rank, $($name),*).into_result()
            }
        }
    )+};
}

functions! {
    ()
    (A a)
    (A a, B b)
    (A a, B b, C c)
    (A a, B b, C c, D d)
    (A a, B b, C c, D d, E e)
    (A a, B b, C c, D d, E e, F f)
    (A a, B b, C c, D d, E e, F f, G g)
    (A a, B b, C c, D d, E e, F f, G g, H h)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_rank: usize) {}

    fn sum(rank: usize, a: u8, b: Vec<u8>) -> Result<usize, String> {
        if a == 0 { Err(String::from("zero")) } else { Ok(rank + usize::from(a) + b.len()) }
    }

    /// Shows that the function alone determines the type of the value.
    fn called<F: Function<Args>, Args>(function: F, rank: usize, args: Args) -> Result<F::Value, BoxedError> {
        function.call(rank, args)
    }

    #[test]
    fn the_index_comes_first_and_the_tuple_is_spread() {
        called(nothing, 3, ()).unwrap();
        assert_eq!(called(sum, 3, (4, vec![0, 0])).unwrap(), 9);
        assert_eq!(called(sum, 3, (0, vec![])).unwrap_err().to_string(), "zero");
    }
}
