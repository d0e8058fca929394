//! Processes for whose devices streams of this process wait.
//!
//! If such a process is killed, its device never writes what the streams wait for. A thread notices that, and
//! lets the streams go on ([`Semaphores::cut_short`]). Whoever waits for such a stream then is told that
//! its wait was cut short. The thread never calls the driver, many functions of which wait for all streams,
//! and so for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::semaphore::Semaphores;
use crate::tick::{TICK, next_tick};

/// What a stream of this process waits for.
struct Awaited {
    semaphores: Arc<dyn Semaphores>,
    index: usize,
    number: u64,
    /// Whose devices write the number.
    writer: u64,
    /// The stream's: set when its wait is cut short.
    cut_short: Arc<AtomicBool>,
}

struct Watch {
    awaited: Vec<Awaited>,
    has_thread: bool,
    is_stirred: bool,
    /// The thread will look by itself.
    is_ticking: bool,
}

static WATCH: Mutex<Watch> =
    Mutex::new(Watch { awaited: Vec::new(), has_thread: false, is_stirred: false, is_ticking: false });
static STIRRED: Condvar = Condvar::new();

/// Watches over a number that a stream is about to wait for, until it is written or its writer is gone.
/// Returns whether there is a thread to do so.
pub(crate) fn begin(
    semaphores: Arc<dyn Semaphores>,
    index: usize,
    number: u64,
    cut_short: &Arc<AtomicBool>,
) -> bool {
    let writer = semaphores.writer(index);
    let mut watch = lock();
    if !watch.has_thread {
        let named = std::thread::Builder::new().name("tensorferry-cuda-watch".to_owned());
        watch.has_thread = named.spawn(look_out).is_ok();
    }
    if !watch.has_thread {
        return false;
    }
    let is_same = |known: &&mut Awaited| {
        (known.index, known.writer) == (index, writer)
            && Arc::ptr_eq(&known.semaphores, &semaphores)
            && Arc::ptr_eq(&known.cut_short, cut_short)
    };
    match watch.awaited.iter_mut().find(is_same) {
        Some(known) => known.number = known.number.max(number),
        None => {
            let cut_short = Arc::clone(cut_short);
            watch.awaited.push(Awaited { semaphores, index, number, writer, cut_short });
        }
    }
    watch.is_stirred = true;
    let is_ticking = watch.is_ticking;
    drop(watch);
    if !is_ticking {
        STIRRED.notify_one();
    }
    true
}

/// Whether a wait of this stream was cut short since it was last asked.
pub(crate) fn was_cut_short(stream: &AtomicBool) -> bool {
    // Another process may have let the stream go on.
    let gone = lock().extract_over();
    drop(gone);
    stream.swap(false, Ordering::SeqCst)
}

fn lock() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look_out() {
    let mut tick = None;
    let mut watch = lock();
    loop {
        let gone = watch.extract_over();
        if !gone.is_empty() {
            // Dropping a handle on a block may take other locks.
            drop(watch);
            drop(gone);
            watch = lock();
            continue;
        }
        let is_stirred = std::mem::take(&mut watch.is_stirred);
        watch.is_ticking = !watch.awaited.is_empty();
        if watch.awaited.is_empty() {
            tick = None;
            watch = STIRRED.wait(watch).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let wait: Duration = next_tick(TICK, tick, is_stirred);
        tick = Some(wait);
        watch = STIRRED.wait_timeout(watch, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
}

impl Watch {
    fn extract_over(&mut self) -> Vec<Awaited> {
        self.awaited.extract_if(.., |awaited| awaited.is_over()).collect()
    }
}

impl Awaited {
    /// Whether no stream waits for it any more.
    fn is_over(&self) -> bool {
        let Self { semaphores, index, number, writer, cut_short } = self;
        if semaphores.is_reached(*index, *number) {
            return true;
        }
        if !semaphores.is_cut_short(*index, *number) && !semaphores.is_gone(*writer) {
            return false;
        }
        // The device may have written it meanwhile, for the last time.
        if !semaphores.is_reached(*index, *number) {
            // First, so that whoever has waited for the stream finds it.
            cut_short.store(true, Ordering::SeqCst);
            semaphores.cut_short(*index, *number);
        }
        true
    }
}
