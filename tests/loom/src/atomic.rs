//! The atomics that the files of the library get here: loom's, with two additions. A thread can be killed
//! before any of its accesses, and an ordering can be weakened.
//!
//! A killed thread unwinds to `until_killed`. What is dropped on the way finds shared memory gone: its
//! accesses do nothing.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
pub use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};

use loom::cell::UnsafeCell;
use loom::sync::atomic as looms;

/// One access that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Which.
    pub what: What,
    /// The name of the library's file that makes it.
    pub file: &'static str,
    /// The function of the library that makes it.
    pub function: &'static str,
    /// What is written; 0 for loads and fences.
    pub new: u64,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and writes at once.
    Change,
    /// Does neither.
    Fence,
}

/// Says which accesses become relaxed, and which fences are left out.
pub type Weakening = fn(&Access) -> bool;

#[derive(Debug)]
struct Killed;

loom::thread_local! {
    /// How many accesses this thread has left; `None` is no end.
    static ACCESSES_LEFT: Cell<Option<usize>> = Cell::new(None);
    static IS_DEAD: Cell<bool> = Cell::new(false);
    static LOAD_HAS_TO_BE_SEQ_CST: Cell<bool> = Cell::new(false);
}

thread_local! {
    static WEAKENING: Cell<Option<Weakening>> = const { Cell::new(None) };
    static FUNCTIONS: RefCell<HashMap<(&'static str, u32), &'static str>> = RefCell::new(HashMap::new());
}

/// The files whose functions a [`Weakening`] can name.
const SOURCES: &[(&str, &str)] = &[
    ("header.rs", include_str!("../../../crates/tensorferry-storage/src/header.rs")),
    ("lease.rs", include_str!("../../../crates/tensorferry-storage/src/lease.rs")),
    ("ending.rs", include_str!("../../../crates/tensorferry-storage/src/ring/ending.rs")),
    ("join.rs", include_str!("../../../crates/tensorferry-storage/src/ring/join.rs")),
    ("put.rs", include_str!("../../../crates/tensorferry-storage/src/ring/put.rs")),
    ("take.rs", include_str!("../../../crates/tensorferry-storage/src/ring/take.rs")),
    ("monitor_words.rs", include_str!("../../../crates/tensorferry-storage/src/monitor_words.rs")),
    ("pins.rs", include_str!("../../../crates/tensorferry-storage/src/pins.rs")),
    ("record.rs", include_str!("../../../crates/tensorferry-storage/src/record.rs")),
    ("ring.rs", include_str!("../../../crates/tensorferry-storage/src/ring.rs")),
    ("ring_layout.rs", include_str!("../../../crates/tensorferry-storage/src/ring_layout.rs")),
    ("slot.rs", include_str!("../../../crates/tensorferry-storage/src/slot.rs")),
    ("sweep_ring.rs", include_str!("../../../crates/tensorferry-storage/src/sweep_ring.rs")),
    ("wait.rs", include_str!("../../../crates/tensorferry-domain/src/wait.rs")),
    ("wait_any.rs", include_str!("../../../crates/tensorferry-domain/src/wait_any.rs")),
    ("heap.rs", include_str!("heap.rs")),
];

/// From here on, for whatever this operating system thread explores.
pub(crate) fn weaken(weakening: Option<Weakening>) {
    WEAKENING.set(weakening);
}

/// Runs `work` and kills it before the access after the next `n_accesses`. `None` when it was killed.
pub(crate) fn until_killed<R>(n_accesses: usize, work: impl FnOnce() -> R) -> Option<R> {
    ACCESSES_LEFT.with(|left| left.set(Some(n_accesses)));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    ACCESSES_LEFT.with(|left| left.set(None));
    match outcome {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Killed>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// Comes before each access of this thread to shared memory. False when it is dead.
pub(crate) fn may_go_on() -> bool {
    if IS_DEAD.with(Cell::get) {
        return false;
    }
    match ACCESSES_LEFT.with(Cell::get) {
        None => true,
        Some(0) => {
            IS_DEAD.with(|dead| dead.set(true));
            resume_unwind(Box::new(Killed))
        }
        Some(n) => {
            ACCESSES_LEFT.with(|left| left.set(Some(n - 1)));
            true
        }
    }
}

fn file_name(at: &'static Location<'static>) -> &'static str {
    at.file().rsplit('/').next().unwrap_or("")
}

/// The function around a line of a file of the library.
fn function_at(at: &'static Location<'static>) -> &'static str {
    FUNCTIONS.with_borrow_mut(|functions| {
        *functions.entry((at.file(), at.line())).or_insert_with(|| {
            let name = file_name(at);
            let source = SOURCES.iter().find(|(file, _)| *file == name).map(|(_, text)| text);
            // Otherwise a weakening that names one of its functions would weaken nothing.
            let is_of_library = at.file().contains("crates/tensorferry-");
            assert!(source.is_some() || !is_of_library, "{name} is missing in the list of sources");
            let source = source.copied().unwrap_or("");
            let line = usize::try_from(at.line()).unwrap_or(0);
            let before = source.lines().take(line).collect::<Vec<_>>();
            let head = before.into_iter().rev().find_map(|line| line.split_once("fn "));
            head.map_or("", |(_, rest)| rest.split(['(', '<']).next().unwrap_or(""))
        })
    })
}

#[track_caller]
fn is_weak(what: What, new: u64) -> bool {
    let at = Location::caller();
    WEAKENING
        .get()
        .is_some_and(|weak| weak(&Access { what, file: file_name(at), function: function_at(at), new }))
}

#[track_caller]
fn or_relaxed(what: What, new: u64, ordering: Ordering) -> Ordering {
    let after_change = what == What::Load && LOAD_HAS_TO_BE_SEQ_CST.with(|it_has| it_has.replace(false));
    let is_step = what == What::Change && function_at(Location::caller()) == "replace";
    assert!(ordering == Ordering::SeqCst || !(after_change || is_step), "{what:?} is {ordering:?}");
    if is_weak(what, new) { Ordering::Relaxed } else { ordering }
}

/// As the standard library's.
#[track_caller]
pub fn fence(ordering: Ordering) {
    if may_go_on() && !is_weak(What::Fence, 0) {
        looms::fence(ordering);
    }
}

/// Nothing in the library, whose accesses around it are sequentially consistent. loom takes those for weaker
/// than they are, so here is a fence; that they are what they have to be is asserted: the next load of this
/// thread, and every step of a slot.
#[track_caller]
pub fn change_before_load() {
    LOAD_HAS_TO_BE_SEQ_CST.with(|it_has| it_has.set(true));
    fence(Ordering::SeqCst);
}

/// Nothing that anybody could see.
pub(crate) fn prefetch_to_write(_word: &AtomicU64) {}

pub(crate) fn prefetch_address_to_write(_address: usize) {}

/// Tells loom about accesses that must not race. The lock is never waited for: no other thread runs while it
/// is held.
#[derive(Debug)]
pub(crate) struct Guard(Mutex<UnsafeCell<()>>);

impl Guard {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(UnsafeCell::new(())))
    }

    pub(crate) fn read(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).with(|_| ());
    }

    pub(crate) fn write(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).with_mut(|_| ());
    }
}

macro_rules! atomic {
    ($name:ident, $number:ty) => {
        /// As the standard library's, as far as the library uses it.
        #[derive(Debug)]
        pub struct $name {
            word: OnceLock<looms::$name>,
            first: $number,
            /// Of a word that only one thread may use while it is written.
            guard: Option<Guard>,
            /// Zero for ever, and no access.
            is_padding: bool,
        }

        impl $name {
            /// A word that loom gets to know when it is first used, or by [`Self::show`].
            #[must_use]
            pub const fn new(first: $number) -> Self {
                Self { word: OnceLock::new(), first, guard: None, is_padding: false }
            }

            /// Makes the word known to loom, before others use it.
            pub fn show(&self) {
                self.word();
            }

            fn word(&self) -> &looms::$name {
                self.word.get_or_init(|| looms::$name::new(self.first))
            }

            /// As the standard library's.
            #[track_caller]
            #[must_use]
            pub fn load(&self, ordering: Ordering) -> $number {
                if self.is_padding || !may_go_on() {
                    return 0;
                }
                if let Some(guard) = &self.guard {
                    guard.read();
                }
                self.word().load(or_relaxed(What::Load, 0, ordering))
            }

            /// As the standard library's.
            #[track_caller]
            pub fn store(&self, value: $number, ordering: Ordering) {
                if !self.is_padding && may_go_on() {
                    if let Some(guard) = &self.guard {
                        guard.write();
                    }
                    self.word().store(value, or_relaxed(What::Store, value.into(), ordering));
                }
            }

            /// As the standard library's.
            #[track_caller]
            pub fn swap(&self, value: $number, ordering: Ordering) -> $number {
                if !may_go_on() {
                    return 0;
                }
                self.word().swap(value, or_relaxed(What::Change, value.into(), ordering))
            }

            /// As the standard library's.
            #[track_caller]
            pub fn fetch_add(&self, value: $number, ordering: Ordering) -> $number {
                if !may_go_on() {
                    return 0;
                }
                self.word().fetch_add(value, or_relaxed(What::Change, value.into(), ordering))
            }

            /// As the standard library's.
            #[track_caller]
            pub fn fetch_or(&self, value: $number, ordering: Ordering) -> $number {
                if !may_go_on() {
                    return 0;
                }
                self.word().fetch_or(value, or_relaxed(What::Change, value.into(), ordering))
            }

            /// As the standard library's.
            #[track_caller]
            pub fn fetch_and(&self, value: $number, ordering: Ordering) -> $number {
                if !may_go_on() {
                    return 0;
                }
                self.word().fetch_and(value, or_relaxed(What::Change, value.into(), ordering))
            }

            /// As the standard library's.
            ///
            /// # Errors
            /// What stood there instead.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                from: $number,
                to: $number,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$number, $number> {
                if !may_go_on() {
                    return Ok(from);
                }
                self.word().compare_exchange(from, to, or_relaxed(What::Change, to.into(), success), failure)
            }

            /// As the standard library's; loom's never fails without reason.
            ///
            /// # Errors
            /// What stood there instead.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                from: $number,
                to: $number,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$number, $number> {
                self.compare_exchange(from, to, success, failure)
            }

            /// As the standard library's: a load, then compare-and-swaps.
            ///
            /// # Errors
            /// What stands there, when `next` wants no change.
            #[track_caller]
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut next: impl FnMut($number) -> Option<$number>,
            ) -> Result<$number, $number> {
                let mut seen = self.load(failure);
                while let Some(to) = next(seen) {
                    match self.compare_exchange(seen, to, success, failure) {
                        Ok(seen) => return Ok(seen),
                        Err(now) => seen = now,
                    }
                }
                Err(seen)
            }
        }
    };
}

impl AtomicU32 {
    /// The value, as the kernel sees it.
    pub(crate) fn peek(&self) -> u32 {
        self.word().load(Ordering::Relaxed)
    }
}

impl AtomicU64 {
    /// A word with the rules of plain memory: loom fails when a write of it races with anything.
    pub(crate) fn plain() -> Self {
        Self { guard: Some(Guard::new()), ..Self::new(0) }
    }

    /// A word that is copied along and never used: loom's work grows with the words that it knows.
    pub(crate) fn padding() -> Self {
        Self { is_padding: true, ..Self::new(0) }
    }
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);
