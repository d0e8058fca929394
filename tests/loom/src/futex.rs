//! A futex as a lock and a condition: the kernel compares the word and goes to sleep under a lock of the
//! word's queue.

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use crate::atomic::{AtomicU32, may_go_on};

/// Who sleeps at which word.
#[derive(Debug, Default)]
struct Sleepers {
    tickets: Vec<(usize, u64)>,
    n_tickets: u64,
}

/// Where those sleep who wait for a change of any word of one model.
#[derive(Debug)]
struct Queue {
    sleepers: Mutex<Sleepers>,
    woken: Condvar,
}

loom::lazy_static! {
    static ref QUEUE: Queue = Queue { sleepers: Mutex::new(Sleepers::default()), woken: Condvar::new() };
}

fn key(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word).addr()
}

/// Sleeps unless the word is another than `expected`. Never for a limited time.
///
/// # Errors
/// None.
pub fn wait(word: &AtomicU32, expected: u32, _timeout: Option<Duration>) -> io::Result<()> {
    if !may_go_on() {
        return Ok(());
    }
    let mut sleepers = QUEUE.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
    if word.peek() != expected {
        return Ok(());
    }
    let ticket = (key(word), sleepers.n_tickets);
    sleepers.n_tickets += 1;
    sleepers.tickets.push(ticket);
    while sleepers.tickets.contains(&ticket) {
        sleepers = QUEUE.woken.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
    }
    Ok(())
}

/// The same as the library's.
pub const MAX_WORDS: usize = 128;

/// Whether [`wait_any`] works: it does.
#[must_use]
pub fn can_wait_any() -> bool {
    true
}

/// Sleeps unless one of the words is another than what stands beside it.
///
/// # Errors
/// None.
pub fn wait_any(words: &[(&AtomicU32, u32)], _timeout: Option<Duration>) -> Result<(), crate::Error> {
    if !may_go_on() {
        return Ok(());
    }
    let mut sleepers = QUEUE.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
    if words.iter().any(|(word, expected)| word.peek() != *expected) {
        return Ok(());
    }
    let number = sleepers.n_tickets;
    sleepers.n_tickets += 1;
    sleepers.tickets.extend(words.iter().map(|(word, _)| (key(word), number)));
    while sleepers.tickets.iter().filter(|(_, of)| *of == number).count() == words.len() {
        sleepers = QUEUE.woken.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
    }
    sleepers.tickets.retain(|(_, of)| *of != number);
    Ok(())
}

/// Wakes everybody who sleeps at this word; says how many that were.
///
/// # Errors
/// None.
pub fn wake_all(word: &AtomicU32) -> io::Result<usize> {
    if !may_go_on() {
        return Ok(0);
    }
    let mut sleepers = QUEUE.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
    let before = sleepers.tickets.len();
    sleepers.tickets.retain(|(at, _)| *at != key(word));
    let n_woken = before - sleepers.tickets.len();
    QUEUE.woken.notify_all();
    Ok(n_woken)
}
