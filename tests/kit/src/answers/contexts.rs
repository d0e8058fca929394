//! Contexts, forks, and plain memory.

use super::{Probe, all_say, ask, one, process, told};
use crate::wait::deadline;
use crate::{Machine, is_real, last_words};

/// What of the memory in use may be somebody else's, in MiB.
const SLACK_MIB: u64 = 64;

pub(super) const PROBES: &[Probe] = &[
    ("fork", || ask(&one(), "fork")),
    ("exit-handlers", || {
        let process = one();
        told(&process, &["ask-at-exit"]);
        process.say("exit");
        let is_dead = process.pidfd().wait_dead(Some(deadline())).unwrap();
        if is_dead { last_words::heard(&process.stderr()) } else { "it does not exit".to_owned() }
    }),
    ("free-foreign", || {
        let process = one();
        told(&process, &["alloc a 4194304", "create h 4194304 1", "reserve r 4194304", "map r 4194304 0 h"]);
        let inside = ask(&process, "free a+512");
        told(&process, &["free a"]);
        all_say([inside, ask(&process, "free a"), ask(&process, "free r")])
    }),
    ("context-none", || {
        let process = one();
        told(&process, &["no-context"]);
        let without = ask(&process, "alloc a 512");
        told(&process, &["context", "release-context", "release-context"]);
        format!("{without}; {}", ask(&process, "alloc a 512"))
    }),
    ("context-broken", || {
        let process = one();
        told(
            &process,
            &["create h 4194304 1", "reserve a 4194304", "map a 4194304 0 h", "access a 4194304 3"],
        );
        told(&process, &["hold", "queue-fill a 9", "unmap a 4194304", "run"]);
        let first = ask(&process, "synchronize");
        match all_say([first, ask(&process, "alloc b 512"), ask(&process, "event e 0")]) {
            one if one.contains("; ") => one,
            one if one.starts_with("CUDA_ERROR") => "the same error again".to_owned(),
            other => other,
        }
    }),
    ("context-release", || {
        let process = one();
        told(&process, &["release-context", "context"]);
        let used = || ask(&process, "used").parse::<u64>().unwrap();
        let before = used();
        told(&process, &["alloc a 268435456", "release-context", "context"]);
        if used() <= before + SLACK_MIB { "freed".to_owned() } else { "kept".to_owned() }
    }),
    ("out-of-memory", || {
        // The software driver has no limit unless it is given one.
        let process = process(&Machine::new(if is_real() { "" } else { "memory_mib=1024" }));
        let total_mib = ask(&process, "total").parse::<u64>().unwrap();
        ask(&process, &format!("alloc a {}", (4 * total_mib) << 20))
    }),
    ("host-register-twice", || {
        let process = one();
        told(&process, &["register 0 4096"]);
        let twice = ask(&process, "register 0 4096");
        told(&process, &["unregister"]);
        format!("{twice}; {}", ask(&process, "unregister"))
    }),
    ("host-register-page", || {
        let process = one();
        told(&process, &["register 0 512"]);
        ask(&process, "register 512 512")
    }),
];
