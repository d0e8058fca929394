//! The table of functions, and how parent and child agree on one of them.
//!
//! The linker collects the entries that [`func`](crate::func) makes. The parent finds a function by its type,
//! which is unique even if two functions have the same name. It sends the function's place in the table, its
//! name, and the names of its types. The child may be another build of the program. So it uses that place
//! only if the names agree, and searches for the names otherwise. No address is sent.

use std::any::TypeId;

use serde::{Deserialize, Serialize};
use tensorferry_process::Failure;

use crate::call::Call;
use crate::error::{Refusal, StartErrorKind};
use crate::function::Function;
use crate::task::{Task, TaskFailure};

/// Name and types of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    type_id: TypeId,
    name: &'static str,
    arguments: &'static str,
    value: &'static str,
}

impl Signature {
    /// The signature of a function that takes `Args`.
    #[must_use]
    pub fn of<F: Function<Args>, Args>(_function: &F) -> Self {
        Self {
            type_id: TypeId::of::<F>(),
            name: std::any::type_name::<F>(),
            arguments: std::any::type_name::<Args>(),
            value: std::any::type_name::<F::Value>(),
        }
    }

    /// The function's path, as in `my_program::workers::train`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The types of its arguments after the index, as a tuple.
    #[must_use]
    pub fn arguments(&self) -> &'static str {
        self.arguments
    }

    /// The type of the value that it returns to the parent.
    #[must_use]
    pub fn value(&self) -> &'static str {
        self.value
    }
}

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub struct Registered {
    signature: fn() -> Signature,
    run: fn(Call<'_>) -> Result<(), Failure>,
    run_task: fn(Task<'_>) -> Result<(), TaskFailure>,
}

impl Registered {
    /// An entry; made by [`func`](crate::func).
    #[must_use]
    pub const fn new(
        signature: fn() -> Signature,
        run: fn(Call<'_>) -> Result<(), Failure>,
        run_task: fn(Task<'_>) -> Result<(), TaskFailure>,
    ) -> Self {
        Self { signature, run, run_task }
    }

    pub(crate) fn signature(&self) -> Signature {
        (self.signature)()
    }

    /// Reads the arguments, calls the function, and sends the value.
    pub(crate) fn run(&self, call: Call<'_>) -> Result<(), Failure> {
        (self.run)(call)
    }

    /// As [`Registered::run`], for a worker that goes on afterwards.
    pub(crate) fn run_task(&self, task: Task<'_>) -> Result<(), TaskFailure> {
        (self.run_task)(task)
    }
}

/// Every registered function of this program.
#[linkme::distributed_slice]
pub static FUNCTIONS: [Registered];

/// The functions of this program that can be spawned. The linker drops a function in a crate of which nothing
/// else is used, so it is not among them.
pub fn registered() -> impl Iterator<Item = Signature> {
    FUNCTIONS.iter().map(Registered::signature)
}

/// Identifies a function to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    place: u32,
    name: String,
    arguments: String,
    value: String,
}

impl Key {
    /// The function's path.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The function's name without its path.
    pub(crate) fn last_name(&self) -> &str {
        self.name.rsplit("::").next().unwrap_or(&self.name)
    }
}

/// The key of a function of this program.
pub(crate) fn find<F: Function<Args>, Args>(function: &F) -> Result<Key, StartErrorKind> {
    let (place, wanted) = place_of(function)?;
    Ok(Key {
        place,
        name: wanted.name.to_owned(),
        arguments: wanted.arguments.to_owned(),
        value: wanted.value.to_owned(),
    })
}

/// The place of a function in the table of this program.
pub(crate) fn place_of<F: Function<Args>, Args>(function: &F) -> Result<(u32, Signature), StartErrorKind> {
    let wanted = Signature::of::<F, Args>(function);
    // Compares whole signatures: a function can be called with one tuple of types only.
    let place = registered().position(|signature| signature == wanted);
    match place.and_then(|place| u32::try_from(place).ok()) {
        Some(place) => Ok((place, wanted)),
        None => Err(StartErrorKind::NotRegistered { function: wanted.name, hint: hint(wanted.name) }),
    }
}

/// What to do about a function that is not registered.
fn hint(name: &str) -> &'static str {
    if name.ends_with("{{closure}}") {
        "a closure cannot be spawned: write a function with `#[func]` and pass what the closure captures as arguments"
    } else if name.starts_with("fn(") {
        "a function pointer does not say which function it is: pass the function itself"
    } else {
        "put `#[func]` on it; if it has it, see that the crate it stands in is linked: use anything else of it"
    }
}

/// The function that another process identifies by `key`.
pub(crate) fn resolve(key: &Key) -> Result<&'static Registered, Refusal> {
    resolve_in(&FUNCTIONS, key)
}

fn resolve_in<'a>(functions: &'a [Registered], key: &Key) -> Result<&'a Registered, Refusal> {
    let is_meant = |function: &&Registered| {
        let signature = (function.signature)();
        signature.name == key.name && signature.arguments == key.arguments && signature.value == key.value
    };
    let at_place = usize::try_from(key.place).ok().and_then(|place| functions.get(place));
    if let Some(function) = at_place.filter(is_meant).or_else(|| functions.iter().find(is_meant)) {
        return Ok(function);
    }
    let mut signatures = functions.iter().map(|function| (function.signature)());
    Err(match signatures.find(|signature| signature.name == key.name) {
        Some(here) => Refusal::OtherTypes {
            function: key.name.clone(),
            wanted: format!("{} -> {}", key.arguments, key.value),
            here: format!("{} -> {}", here.arguments, here.value),
        },
        None => Refusal::Unknown {
            function: key.name.clone(),
            known: functions.iter().map(|function| (function.signature)().name).collect(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(_rank: usize, _count: u32) {}

    fn other(_rank: usize, _text: String) -> Result<u8, String> {
        Ok(1)
    }

    const TABLE: [Registered; 2] = [
        Registered::new(|| Signature::of::<_, (u32,)>(&work), |_| Ok(()), |_| Ok(())),
        Registered::new(|| Signature::of::<_, (String,)>(&other), |_| Ok(()), |_| Ok(())),
    ];

    fn key(place: u32, signature: Signature) -> Key {
        let Signature { name, arguments, value, .. } = signature;
        Key { place, name: name.into(), arguments: arguments.into(), value: value.into() }
    }

    #[test]
    fn a_function_is_found_at_its_place_and_elsewhere_by_its_names() {
        for place in [0, 1, 77] {
            let found = resolve_in(&TABLE, &key(place, Signature::of(&other))).unwrap();
            assert_eq!((found.signature)().name, Signature::of(&other).name);
        }
    }

    #[test]
    fn other_types_are_refused_with_both_names() {
        let asked = Key { arguments: String::from("(f64,)"), ..key(0, Signature::of(&work)) };
        let text = resolve_in(&TABLE, &asked).unwrap_err().to_string();
        assert!(text.contains("work"), "{text}");
        assert!(text.contains("(f64,) -> ()") && text.contains("(u32,) -> ()"), "{text}");
    }

    #[test]
    fn an_unknown_function_is_refused_with_those_there_are() {
        let asked = Key { name: String::from("elsewhere::work"), ..key(0, Signature::of(&work)) };
        let text = resolve_in(&TABLE, &asked).unwrap_err().to_string();
        assert!(text.contains("elsewhere::work") && text.contains("tests::other"), "{text}");
    }

    #[test]
    fn what_is_not_registered_is_refused_with_what_to_do() {
        let text = find(&work).unwrap_err().to_string();
        assert!(text.contains("tests::work") && text.contains("#[func]"), "{text}");
        let text = find(&|_rank: usize| ()).unwrap_err().to_string();
        assert!(text.contains("a closure cannot be spawned"), "{text}");
        let text = find(&(work as fn(usize, u32))).unwrap_err().to_string();
        assert!(text.contains("pass the function itself"), "{text}");
    }
}
