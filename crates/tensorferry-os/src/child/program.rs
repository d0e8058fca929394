//! A program in a new process: clone3(2), then execve(2).
//!
//! posix_spawn(3), which the standard library calls, needs 120 system calls more where it resets the handled
//! signals one by one (glibc 2.36). clone3 resets them all (`CLONE_CLEAR_SIGHAND`, Linux 5.5). It also
//! returns a pidfd, so that there is no moment at which other code could have collected the child and its
//! number be another's.
//!
//! The child has the memory of this process until it executes the program, and the calling thread stands
//! still that long, as with vfork(2). So the child runs on the stack of that thread, below what is in use,
//! and nothing is copied.
//!
//! # Safety
//! Between the two calls the child is a second thread in this memory, of which neither Rust nor the C library
//! knows: it has the thread-local variables of the thread that stands still. [`Plan::carry_out`] therefore
//! makes system calls and nothing else: it takes no lock, allocates and frees nothing, and does not panic. No
//! signal handler runs in it, because it has none. Beside the error of the plan it writes `errno`, of which
//! the calling thread expects nothing after a system call, and its own frames.
#![expect(unsafe_code, reason = "a process that shares this memory until it executes a program")]

use std::convert::Infallible;
use std::ffi::{CStr, OsStr, c_char};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::libc;
use rustix::io::Errno;

use super::wait_and_reap;
use crate::descriptor::FIRST_OTHER;
use crate::pidfd::PidFd;
use crate::{Error, Result};

/// The exit code of a process that could not execute its program, as a shell has it.
const EXIT_CODE_NOT_EXECUTED: libc::c_long = 127;

/// Strings one behind the other, as execve(2) takes them.
#[derive(Debug)]
pub struct Strings {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Strings {
    /// No strings, with room for so many of the usual length.
    #[must_use]
    pub fn with_capacity(n_strings: usize) -> Self {
        const USUAL_LEN_BYTES: usize = 64;
        Self {
            bytes: Vec::with_capacity(n_strings.saturating_mul(USUAL_LEN_BYTES)),
            starts: Vec::with_capacity(n_strings),
        }
    }

    /// Adds the string that these parts are together.
    ///
    /// # Errors
    /// EINVAL if there is a zero byte in one of them.
    pub fn push(&mut self, parts: &[&OsStr]) -> Result<()> {
        if parts.iter().any(|part| part.as_encoded_bytes().contains(&0)) {
            return Err(Error::new("a string with a zero byte for execve", Errno::INVAL));
        }
        self.starts.push(self.bytes.len());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part.as_encoded_bytes()));
        self.bytes.push(0);
        Ok(())
    }

    /// The address of each string, and null at the end.
    fn pointers(&self) -> Vec<*const c_char> {
        let first = self.bytes.as_ptr();
        let each = self.starts.iter().map(|start| first.wrapping_add(*start).cast());
        each.chain([std::ptr::null()]).collect()
    }
}

/// A program about to be executed.
#[derive(Debug)]
pub struct Program<'a> {
    /// The file, which is not searched for. If it is relative, then to the working directory of the child.
    pub path: &'a CStr,
    /// The arguments, the name of the program first.
    pub arguments: Strings,
    /// Each variable as `NAME=VALUE`.
    pub environment: Strings,
    /// The working directory. That of this process by default.
    pub directory: Option<&'a CStr>,
    /// Standard input.
    pub stdin: BorrowedFd<'a>,
    /// Standard output. That of this process by default.
    pub stdout: Option<BorrowedFd<'a>>,
    /// Standard error. That of this process by default.
    pub stderr: Option<BorrowedFd<'a>>,
}

impl Program<'_> {
    /// Executes it in a new process. There the signals that this process handles, and SIGPIPE, have their
    /// default action (signal(7)). Others stay ignored, and blocked are those that are blocked in this
    /// thread. Descriptors that are not close-on-exec are inherited.
    ///
    /// # Errors
    /// ENOSYS where there is no clone3(2), as in containers whose filter says so, and on processors for which
    /// this is not written; EINVAL before Linux 5.5; EMFILE when this process has no descriptor left, EAGAIN
    /// when it may have no more children; the kernel's errors of chdir(2) and execve(2). No process is left
    /// then, and none has executed anything.
    ///
    /// # Blocking
    /// Until the program is executed.
    pub fn execute(&self) -> Result<PidFd> {
        let (arguments, environment) = (self.arguments.pointers(), self.environment.pointers());
        let mut moved = [const { None }; 3];
        let [stdin, stdout, stderr] = &mut moved;
        let plan = Plan {
            path: self.path,
            arguments: &arguments,
            environment: &environment,
            directory: self.directory,
            stdin: off_standard_streams_in(stdin, self.stdin)?,
            stdout: self.stdout.map(|fd| off_standard_streams_in(stdout, fd)).transpose()?,
            stderr: self.stderr.map(|fd| off_standard_streams_in(stderr, fd)).transpose()?,
            error: AtomicI32::new(0),
        };
        let child = in_a_new_process(&plan)?;
        match plan.error.load(Ordering::Acquire) {
            0 => Ok(child),
            error => {
                // It ends at once. What it ended with says no more than the error.
                let _ = wait_and_reap(&child);
                Err(Error::new("dup2, chdir or execve", Errno::from_raw_os_error(error)))
            }
        }
    }
}

/// The same file under a number that is none of the standard streams, kept in `moved` if it is another one.
fn off_standard_streams_in<'a>(moved: &'a mut Option<OwnedFd>, fd: BorrowedFd<'a>) -> Result<BorrowedFd<'a>> {
    if fd.as_raw_fd() >= FIRST_OTHER {
        return Ok(fd);
    }
    let other = rustix::io::fcntl_dupfd_cloexec(fd, FIRST_OTHER)
        .map_err(|e| Error::new("fcntl(F_DUPFD_CLOEXEC)", e))?;
    Ok(OwnedFd::as_fd(moved.insert(other)))
}

/// What the child does, in memory that it only reads, but for the error.
struct Plan<'a> {
    path: &'a CStr,
    /// Both end with null, and all else points to strings that end with a zero byte.
    arguments: &'a [*const c_char],
    environment: &'a [*const c_char],
    directory: Option<&'a CStr>,
    /// None of the descriptors is 0, 1 or 2.
    stdin: BorrowedFd<'a>,
    stdout: Option<BorrowedFd<'a>>,
    stderr: Option<BorrowedFd<'a>>,
    /// The number of the error, if there was one.
    error: AtomicI32,
}

impl Plan<'_> {
    /// Becomes the program. See the module's text for what may stand here.
    fn carry_out(&self) -> std::result::Result<Infallible, Errno> {
        rustix::stdio::dup2_stdin(self.stdin)?;
        self.stdout.map_or(Ok(()), rustix::stdio::dup2_stdout)?;
        self.stderr.map_or(Ok(()), rustix::stdio::dup2_stderr)?;
        self.directory.map_or(Ok(()), rustix::process::chdir)?;
        // The C library's functions of these names may be somebody else's, which do more (`LD_PRELOAD`,
        // ld.so(8)).
        // SAFETY: the kernel reads an action of its own form and writes none. No handler and no flags are the
        // default action, and this process has a table of signals of its own.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                libc::c_long::from(libc::SIGPIPE),
                &raw const DEFAULT_ACTION,
                std::ptr::null::<u64>(),
                size_of::<u64>(),
            )
        };
        // SAFETY: the path and all strings end with a zero byte and both arrays with null. They live as long
        // as the plan, and nobody changes them.
        unsafe {
            libc::syscall(
                libc::SYS_execve,
                self.path.as_ptr(),
                self.arguments.as_ptr(),
                self.environment.as_ptr(),
            )
        };
        Err(Errno::from_raw_os_error(nix::errno::Errno::last_raw()))
    }
}

/// The kernel's `struct sigaction`: handler, flags, restorer, mask.
static DEFAULT_ACTION: [u64; 4] = [0; 4];

/// Where the child begins, and ends if it cannot execute the program.
extern "C" fn become_program(plan: &Plan<'_>) -> ! {
    let Err(error) = plan.carry_out();
    plan.error.store(error.raw_os_error(), Ordering::Release);
    loop {
        // SAFETY: it ends this process, and nothing of the other one. It does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, EXIT_CODE_NOT_EXECUTED) };
    }
}

/// Carries out the plan in a new process. Returns when that has executed its program or has ended.
fn in_a_new_process(plan: &Plan<'_>) -> Result<PidFd> {
    let (pid, pidfd) = clone3::as_vfork(plan).map_err(|error| Error::new("clone3", error))?;
    // One with the number of a standard stream is better than a child that nobody can watch.
    let is_elsewhere = pidfd.as_raw_fd() >= FIRST_OTHER;
    let moved = if is_elsewhere { None } else { rustix::io::fcntl_dupfd_cloexec(&pidfd, FIRST_OTHER).ok() };
    Ok(PidFd::from_fd(moved.unwrap_or(pidfd), pid))
}

#[cfg(target_arch = "x86_64")]
mod clone3 {
    use std::arch::asm;
    use std::os::fd::{FromRawFd as _, OwnedFd};

    use nix::libc::{self, c_long, clone_args};
    use rustix::io::Errno;

    use super::{Plan, become_program};

    /// Gives the child the default action for each signal that is handled (linux/sched.h). The constant of
    /// libc has 32 bits.
    const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;

    const FLAGS: u64 = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD) as u64 | CLONE_CLEAR_SIGHAND;

    /// Carries out the plan in a child that has this memory, while the calling thread stands still. Returns
    /// the child's number and pidfd.
    pub(super) fn as_vfork(plan: &Plan<'_>) -> Result<(u32, OwnedFd), Errno> {
        let mut pidfd: libc::c_int = -1;
        // SAFETY: the type consists of integers, for which zero stands for what is not asked for.
        let mut request: clone_args = unsafe { std::mem::zeroed() };
        request.flags = FLAGS;
        request.pidfd = (&raw mut pidfd).expose_provenance() as u64;
        request.exit_signal = libc::SIGCHLD as u64;
        let result: c_long;
        // SAFETY:
        // - To the calling thread this is a system call, which reads the request, writes the pidfd, and
        //   changes rax, rcx and r11. Nothing says that it leaves memory alone, or that the stack is not
        //   used: what is in use lies above the stack pointer, which is aligned for a call.
        // - The child returns from the system call with 0, with the registers of the calling thread, which
        //   stands still until the child has executed a program or ended (`CLONE_VFORK`). It goes on with
        //   `become_program`, writes below the stack pointer, where nothing is in use, and never comes back
        //   here. That function takes the plan in rdi, does not unwind, and does only what the module's text
        //   allows.
        unsafe {
            asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "xor ebp, ebp",
                "mov rdi, r12",
                "call {become_program}",
                "ud2",
                "2:",
                become_program = sym become_program,
                inlateout("rax") libc::SYS_clone3 => result,
                in("rdi") &raw const request,
                in("rsi") size_of::<clone_args>(),
                in("r12") std::ptr::from_ref(plan),
                out("rcx") _,
                out("r11") _,
            );
        }
        match u32::try_from(result) {
            // SAFETY: the kernel has written a new descriptor there, which nobody else knows.
            Ok(pid) => Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) })),
            Err(_) => Err(Errno::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EINVAL))),
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod clone3 {
    use std::os::fd::OwnedFd;

    use rustix::io::Errno;

    use super::Plan;

    /// Not written for this processor.
    pub(super) fn as_vfork(_plan: &Plan<'_>) -> Result<(u32, OwnedFd), Errno> {
        Err(Errno::NOSYS)
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use std::io::{Read as _, Write as _};

    use nix::sys::signal::{SigSet, Signal};

    use super::*;
    use crate::child::Ended;

    fn script(text: &str) -> Strings {
        let mut arguments = Strings::with_capacity(3);
        ["sh", "-c", text].into_iter().for_each(|text| arguments.push(&[OsStr::new(text)]).unwrap());
        arguments
    }

    /// What `/bin/sh` prints with this script, and how it ends.
    fn run(text: &str, change: impl FnOnce(&mut Program<'_>)) -> Result<(String, Ended)> {
        let (stdin, mut said) = std::io::pipe().unwrap();
        let (mut printed, stdout) = std::io::pipe().unwrap();
        said.write_all(b"spoken\n").unwrap();
        let mut program = Program {
            path: c"/bin/sh",
            arguments: script(text),
            environment: Strings::with_capacity(0),
            directory: None,
            stdin: stdin.as_fd(),
            stdout: Some(stdout.as_fd()),
            stderr: Some(stdout.as_fd()),
        };
        change(&mut program);
        let child = program.execute()?;
        drop(stdout);
        let mut text = String::new();
        printed.read_to_string(&mut text).unwrap();
        Ok((text, wait_and_reap(&child).unwrap()))
    }

    /// Whether there is a clone3, which the filter of a container may deny.
    fn has_clone3() -> bool {
        let denied = run("true", |_| ()).err().filter(Error::is_not_implemented);
        denied.inspect(|error| println!("skipped: {error}")).is_none()
    }

    #[test]
    fn a_program_has_its_arguments_environment_directory_and_streams() {
        if !has_clone3() {
            return;
        }
        let script = "read said; echo $COLOUR $said; pwd; echo not well >&2; exit 7";
        let ran = run(script, |program| {
            program.environment.push(&["COLOUR", "=", "dark red"].map(OsStr::new)).unwrap();
            program.directory = Some(c"/proc");
        });
        let (printed, ended) = ran.unwrap();
        assert_eq!(printed, "dark red spoken\n/proc\nnot well\n");
        assert_eq!(ended, Ended::Exited { code: 7 });
    }

    #[test]
    fn a_program_begins_with_the_signal_mask_of_its_thread_and_does_not_ignore_sigpipe() {
        if !has_clone3() {
            return;
        }
        let in_a_thread = std::thread::spawn(|| {
            SigSet::from(Signal::SIGUSR1).thread_block().unwrap();
            // Rust's runtime ignores SIGPIPE in this process.
            let (printed, _) = run("exec grep -E '^Sig(Blk|Ign):' /proc/self/status", |_| ()).unwrap();
            let [blocked, ignored] = ["SigBlk:", "SigIgn:"].map(|name| {
                let line = printed.lines().find_map(|line| line.strip_prefix(name));
                u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
            });
            let bit = |signal: Signal| 1_u64 << (signal as u32 - 1);
            assert_eq!(blocked & bit(Signal::SIGUSR1), bit(Signal::SIGUSR1), "{printed}");
            assert_eq!(blocked & bit(Signal::SIGUSR2), 0, "{printed}");
            assert_eq!(ignored & bit(Signal::SIGPIPE), 0, "{printed}");
        });
        in_a_thread.join().unwrap();
    }

    #[test]
    fn what_cannot_be_executed_is_an_error_and_leaves_no_process() {
        if !has_clone3() {
            return;
        }
        let in_a_thread = std::thread::spawn(|| {
            for change in [
                |program: &mut Program<'_>| program.path = c"/no/such/program",
                |program: &mut Program<'_>| program.directory = Some(c"/no/such/folder"),
            ] {
                let error = run("true", change).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(Errno::NOENT.raw_os_error()), "{error}");
            }
            assert_eq!(std::fs::read_to_string("/proc/thread-self/children").unwrap(), "");
        });
        in_a_thread.join().unwrap();
    }

    #[test]
    fn streams_may_have_the_numbers_of_standard_ones() {
        if !has_clone3() {
            return;
        }
        let in_a_table_of_its_own = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES).unwrap();
            [0, 1, 2].into_iter().for_each(|fd| nix::unistd::close(fd).unwrap());
            // Both are close-on-exec.
            let (mut printed, writer) = std::io::pipe().unwrap();
            assert_eq!((printed.as_raw_fd(), writer.as_raw_fd()), (0, 1));
            let program = Program {
                path: c"/bin/sh",
                arguments: script("echo well; echo not well >&2"),
                environment: Strings::with_capacity(0),
                directory: None,
                stdin: printed.as_fd(),
                stdout: Some(writer.as_fd()),
                stderr: Some(writer.as_fd()),
            };
            let child = program.execute().unwrap();
            drop(writer);
            let mut text = String::new();
            printed.read_to_string(&mut text).unwrap();
            assert_eq!(text, "well\nnot well\n");
            assert_eq!(wait_and_reap(&child).unwrap(), Ended::Exited { code: 0 });
        });
        in_a_table_of_its_own.join().unwrap();
    }

    #[test]
    fn threads_execute_programs_at_once() {
        if !has_clone3() {
            return;
        }
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for turn in 0..20 {
                        let name = format!("{thread} {turn}");
                        let told = run("echo $NAME", |program| {
                            program.environment.push(&["NAME=", &name].map(OsStr::new)).unwrap();
                        });
                        assert_eq!(told.unwrap().0, format!("{name}\n"));
                    }
                });
            }
        });
    }

    #[test]
    fn a_string_with_a_zero_byte_is_refused() {
        let mut strings = Strings::with_capacity(1);
        strings.push(&["a", "\0"].map(OsStr::new)).unwrap_err();
        assert_eq!(strings.pointers().len(), 1, "only the end");
    }
}
