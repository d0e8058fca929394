//! What the tests of this area share: reading with a deadline, and meeting other processes.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, mpsc};
use std::time::Duration;

use tensorferry::spawn::StartMethod;
use tensorferry_os::pidfd::PidFd;
use tensorferry_process::Inherited;

/// Longer than anything here takes on a slow machine; reaching it is a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Reads to the end of a stream, which for a pipe is when the last process that could write to it is gone.
pub(crate) fn read_to_end(mut stream: impl Read + Send + 'static) -> String {
    within_deadline("the end of a stream", move || {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    })
}

/// Reads one line, and nothing of what follows it.
pub(crate) fn read_line(mut stream: impl Read + Send + 'static) -> String {
    within_deadline("a line", move || {
        let (mut line, mut byte) = (String::new(), [0]);
        while stream.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            line.push(char::from(byte[0]));
        }
        line
    })
}

/// Runs `work` on another thread and panics when it takes longer than [`DEADLINE`].
pub(crate) fn within_deadline<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || drop(done.send(work())));
    let value =
        finished.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("{what} did not come within {DEADLINE:?}"));
    // Gone for good, so that this process can be forked.
    thread.join().unwrap();
    value
}

/// Makes of each function, which takes a context, one test for each start method.
///
/// A process that forks has one thread, which a test has not: there, a spawned process does what the test
/// does.
macro_rules! for_every_method {
    ($($(#[$attribute:meta])* fn $name:ident($context:ident: Context) $body:block)+) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;
            use tensorferry::spawn::{Context, StartMethod, func, get_context};

            fn body($context: Context) $body

            #[func]
            fn in_a_process(_rank: usize, method: StartMethod) {
                body(get_context(method));
            }

            #[test]
            fn spawn() {
                body(get_context(StartMethod::Spawn));
            }

            #[test]
            fn forkserver() {
                body(get_context(StartMethod::Forkserver));
            }

            #[test]
            fn fork() {
                crate::fork::allow();
                get_context(StartMethod::Spawn).spawn(in_a_process, (StartMethod::Fork,), 1).unwrap();
            }
        }
    )+};
}

pub(crate) use for_every_method;

/// Makes of each function one test for each start method that a program uses. The function only directs the
/// program.
macro_rules! for_every_program {
    ($($(#[$attribute:meta])* fn $name:ident($method:ident: StartMethod) $body:block)+) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;
            use tensorferry::spawn::StartMethod;

            fn body($method: StartMethod) $body

            #[test]
            fn spawn() {
                body(StartMethod::Spawn);
            }

            #[test]
            fn forkserver() {
                body(StartMethod::Forkserver);
            }

            #[test]
            fn fork() {
                crate::fork::allow();
                body(StartMethod::Fork);
            }
        }
    )+};
}

pub(crate) use for_every_program;

/// What a program is told: the method that it is to use, and something else, as text.
pub(crate) fn told(inherited: &Inherited) -> (StartMethod, &str) {
    let text = std::str::from_utf8(inherited.payload()).unwrap();
    let (method, rest) = text.split_once(' ').unwrap();
    (method.parse().unwrap(), rest)
}

/// Whether a process with this number exists; a zombie counts.
pub(crate) fn exists(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// A place where processes of one test meet: a socket in the abstract namespace, which leaves nothing behind.
///
/// Only a few are held at once, because all tests of this binary share one domain, and it has room for 63
/// processes.
pub(crate) struct Meeting {
    listener: UnixListener,
    name: String,
    _seat: Seat,
}

struct Seat;

static SEATS_TAKEN: Mutex<usize> = Mutex::new(0);
static SEAT_GIVEN_BACK: Condvar = Condvar::new();

impl Seat {
    fn take() -> Self {
        let taken = SEATS_TAKEN.lock().unwrap();
        let (mut taken, waited) =
            SEAT_GIVEN_BACK.wait_timeout_while(taken, DEADLINE * 5, |taken| *taken >= 6).unwrap();
        assert!(!waited.timed_out(), "no meeting has ended");
        *taken += 1;
        Self
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *SEATS_TAKEN.lock().unwrap() -= 1;
        SEAT_GIVEN_BACK.notify_one();
    }
}

/// One process at a meeting, as the test sees it.
pub(crate) struct Guest {
    pub(crate) rank: usize,
    pub(crate) pid: u32,
    stream: UnixStream,
}

impl Meeting {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("tensorferry-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self { listener: UnixListener::bind_addr(&address).unwrap(), name, _seat: Seat::take() }
    }

    /// What a process needs to come, as an argument.
    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    /// Waits for so many processes, and sorts them by index.
    pub(crate) fn guests(&self, n: usize) -> Vec<Guest> {
        let listener = self.listener.try_clone().unwrap();
        let mut guests = within_deadline("a meeting", move || {
            (0..n).map(|_| Guest::new(listener.accept().unwrap().0)).collect::<Vec<_>>()
        });
        guests.sort_by_key(|guest| guest.rank);
        guests
    }
}

impl Guest {
    fn new(stream: UnixStream) -> Self {
        let line = read_line(stream.try_clone().unwrap());
        let (rank, pid) = line.split_once(' ').unwrap();
        Self { rank: rank.parse().unwrap(), pid: pid.parse().unwrap(), stream }
    }

    /// Lets the process go on.
    pub(crate) fn release(&self) {
        (&self.stream).write_all(b"!").unwrap();
    }

    /// Waits until the process is gone with all its threads, collected or not. It keeps its end of the stream
    /// until it dies, and is dead a moment after that.
    pub(crate) fn wait_gone(&self) {
        read_to_end(self.stream.try_clone().unwrap());
        // An error means that it has been collected.
        if let Ok(pidfd) = PidFd::open(self.pid) {
            assert!(pidfd.wait_dead(Some(DEADLINE)).unwrap());
        }
    }
}

/// Goes to a meeting from another process, and stays until that process ends. Returns once the test lets it
/// go on.
pub(crate) fn attend(meeting: &str, rank: usize) {
    attend_prepared(meeting, rank, || ());
}

/// As [`attend`]; `prepare` is done before the others see this process, and needs no descriptors any more.
pub(crate) fn attend_prepared(meeting: &str, rank: usize, prepare: impl FnOnce()) {
    let address = SocketAddr::from_abstract_name(meeting).unwrap();
    let mut stream = UnixStream::connect_addr(&address).unwrap();
    let mut released = [0];
    let stay = stream.try_clone().unwrap();
    KEPT.lock().unwrap().push(stay);
    prepare();
    writeln!(stream, "{rank} {}", std::process::id()).unwrap();
    // The end of the stream is no release: the test is gone, and so will this process be.
    if stream.read_exact(&mut released).is_err() {
        std::process::exit(99);
    }
}

static KEPT: Mutex<Vec<UnixStream>> = Mutex::new(Vec::new());
