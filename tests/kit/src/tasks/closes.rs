//! A child that takes its descriptors away from the library.

use std::fs::File;
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::close;
use serde::{Deserialize, Serialize};

use crate::{Context, Task};

/// Says `ready`, and when it is told anything, replaces each of its descriptors by `/dev/zero`. It ends when
/// its service thread has gone on for a while, or has ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Closes;

/// More than it has.
const N_DESCRIPTORS: i32 = 64;
const N_TURNS: u32 = 3;

impl Task for Closes {
    const NAME: &'static str = "closes";

    fn run(self, context: &Context) {
        context.say("ready");
        let _ = context.hear();
        for fd in 3..N_DESCRIPTORS {
            let _ = close(fd);
            // Always readable, nobody locks it, and it stays.
            let _ = File::open("/dev/zero").unwrap().into_raw_fd();
        }
        // What the service thread would do if nobody else were faster.
        context.heap.domain().sweep_dead();
        let n_turns = Arc::new(AtomicU32::new(0));
        let turns = Arc::clone(&n_turns);
        context.heap.domain().defer(move || turns.fetch_add(1, Ordering::SeqCst) == N_TURNS);
        let n_threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        while n_turns.load(Ordering::SeqCst) < N_TURNS && n_threads() > 1 {
            std::thread::yield_now();
        }
        // Nothing that believes in its descriptors is to be dropped.
        std::process::exit(0);
    }
}
