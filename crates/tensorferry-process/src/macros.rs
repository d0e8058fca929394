//! Registration of entries.

/// Registers functions that are called before this process is forked. Each returns a reason not to fork, or
/// `None`.
///
/// ```
/// tensorferry_process::fork_hazard! {
///     static MODEM => uses_the_modem;
/// }
///
/// fn uses_the_modem() -> Option<String> {
///     None
/// }
/// ```
#[macro_export]
macro_rules! fork_hazard {
    ($($visibility:vis static $NAME:ident => $hazard:path;)+) => {$(
        #[$crate::linkme::distributed_slice($crate::HAZARDS)]
        #[linkme(crate = $crate::linkme)]
        $visibility static $NAME: $crate::Hazard = $hazard;
    )+};
}

/// Registers functions that a child can be started with.
///
/// Each line makes a `static` of type [`Entry`](crate::Entry), under a name that must be unique in the
/// program.
///
/// ```
/// use tensorferry_process::{Failure, Inherited};
///
/// tensorferry_process::entry! {
///     /// Does nothing.
///     pub static IDLE = "example.idle" => idle;
/// }
///
/// fn idle(_inherited: &mut Inherited) -> Result<(), Failure> {
///     Ok(())
/// }
///
/// assert_eq!(IDLE.name(), "example.idle");
/// ```
#[macro_export]
macro_rules! entry {
    ($($(#[$attribute:meta])* $visibility:vis static $NAME:ident = $name:literal => $run:path;)+) => {$(
        $(#[$attribute])*
        #[$crate::linkme::distributed_slice($crate::entry::ENTRIES)]
        #[linkme(crate = $crate::linkme)]
        $visibility static $NAME: $crate::Entry = $crate::Entry::new($name, $run);
    )+};
}
