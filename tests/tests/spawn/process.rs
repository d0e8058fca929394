//! One child at a time, started by entry name: what it is given, how it ends, and what its parent learns.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use tensorferry_os::leash;
use tensorferry_os::pidfd::PidFd;
use tensorferry_process::{
    Child, Ended, Entry, Exit, Failure, Inherited, OnDrop, ReportKind, SIGINT, Stage, Start, StartError,
};

use crate::support::{DEADLINE, exists, read_line, read_to_end, within_deadline};

tensorferry_process::entry! {
    static DESCRIBE = "test.describe" => describe;
    static FAIL = "test.fail" => fail;
    static WAIT = "test.wait" => wait_for_end_of_input;
    static NEST = "test.nest" => nest;
    static LEASH_UNDER_SIGNALS = "test.leash-under-signals" => leash_under_signals;
    static DROP_WITHOUT_DESCRIPTORS = "test.drop-without-descriptors" => drop_without_descriptors;
}

fn start(entry: &'static Entry, payload: &str) -> Child {
    Start::new(entry).payload(payload).start().unwrap()
}

fn exit(child: &mut Child) -> &Exit {
    child.wait_timeout(DEADLINE).unwrap().expect("the child did not end")
}

/// Tells what it was given: payload, name, what the kernel calls it, standard input, the mark, and the
/// arguments.
fn describe(inherited: &mut Inherited) -> Result<(), Failure> {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    let payload = String::from_utf8_lossy(inherited.payload());
    let text = format!(
        "{}|{}|{}|{}|{}|{:?}|{:?}",
        if payload.len() > 99 { payload.len().to_string() } else { payload.into_owned() },
        inherited.name(),
        std::fs::read_to_string("/proc/self/comm")?.trim(),
        input.len(),
        std::env::vars().filter(|(name, _)| name == "TENSORFERRY_CHILD").map(|(n, _)| n).collect::<String>(),
        std::env::var("RANK_COLOUR").ok(),
        std::env::args_os(),
    );
    inherited.taken();
    for fd in inherited.take_fds() {
        std::fs::File::from(fd).write_all(text.as_bytes())?;
    }
    Ok(())
}

#[derive(Debug)]
struct Outer(std::num::ParseIntError);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the count is wrong")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("second, in a destructor");
    }
}

#[inline(never)]
fn legitimate_panic() {
    panic!("legitimate panic");
}

/// Fails in the way that the payload names.
fn fail(inherited: &mut Inherited) -> Result<(), Failure> {
    match inherited.payload() {
        b"panic" => legitimate_panic(),
        b"error" => return Err(Outer("x".parse::<u8>().unwrap_err()).into()),
        b"refuse" => return Err(Failure::Refused(String::from("not today"))),
        b"abort" => std::process::abort(),
        b"exit 123" => std::process::exit(123),
        b"exit 0" => std::process::exit(0),
        b"panic twice" => {
            let _guard = PanicsWhenDropped;
            panic!("first, on purpose");
        }
        b"thread" => {
            let worker =
                std::thread::Builder::new().name("loader".into()).spawn(|| panic!("no such file")).unwrap();
            worker.join().expect("the loader failed");
        }
        b"caught" => drop(std::panic::catch_unwind(|| panic!("nobody minds"))),
        other => return Err(Failure::Refused(format!("unknown failure {other:?}"))),
    }
    Ok(())
}

/// Says that it runs, and returns when its input ends. It holds its output open until then.
fn wait_for_end_of_input(inherited: &mut Inherited) -> Result<(), Failure> {
    let mut fds = inherited.take_fds().into_iter().map(std::fs::File::from);
    let (mut input, mut output) = (fds.next().unwrap(), fds.next().unwrap());
    writeln!(output, "{}", std::process::id())?;
    input.read_to_end(&mut Vec::new())?;
    writeln!(output, "done")?;
    Ok(())
}

/// Starts a child of its own that waits as above, from its main thread or from another, and waits for it.
fn nest(inherited: &mut Inherited) -> Result<(), Failure> {
    let fds = inherited.take_fds();
    let start = move || fds.into_iter().fold(Start::new(&WAIT), Start::fd).start().unwrap();
    let mut child = match inherited.payload() {
        b"main thread" => start(),
        _ => std::thread::spawn(start).join().unwrap(),
    };
    child.wait()?;
    Ok(())
}

struct Waiting {
    child: Child,
    // Dropping it is the end of the child's input.
    input: std::io::PipeWriter,
    output: std::io::PipeReader,
}

fn start_waiting(entry: &'static Entry, payload: &str) -> Waiting {
    let (theirs_in, input) = std::io::pipe().unwrap();
    let (output, theirs_out) = std::io::pipe().unwrap();
    let fds = [OwnedFd::from(theirs_in), OwnedFd::from(theirs_out)];
    let start = fds.into_iter().fold(Start::new(entry).payload(payload), Start::fd);
    Waiting { child: start.start().unwrap(), input, output }
}

#[test]
fn a_child_gets_its_payload_its_descriptors_and_its_name() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = Start::new(&DESCRIBE)
        .name("a rather long name")
        .payload("hello")
        .env("RANK_COLOUR", "green")
        .fd(writer.into())
        .start()
        .unwrap();
    let expected =
        format!("hello|a rather long name|a rather long n|0||Some(\"green\")|{:?}", std::env::args_os());
    assert_eq!(read_to_end(reader), expected);
    let exit = exit(&mut child);
    assert!(exit.is_success(), "{exit:#}");
    assert_eq!(exit.stage, Stage::Finished);
}

#[test]
fn a_payload_larger_than_the_socket_arrives_whole() {
    let (reader, writer) = std::io::pipe().unwrap();
    let payload = "x".repeat(9 << 20);
    let mut child = Start::new(&DESCRIBE).payload(payload).fd(writer.into()).start().unwrap();
    assert!(read_to_end(reader).starts_with("9437184|"));
    assert!(exit(&mut child).is_success());
}

#[test]
fn a_payload_made_from_the_childs_pidfd_names_it() {
    let (reader, writer) = std::io::pipe().unwrap();
    let start = Start::new(&DESCRIBE).fd(writer.into());
    let child = start.start_with(|child| Ok(child.pid().to_string().into_bytes())).unwrap();
    assert!(read_to_end(reader).starts_with(&format!("{}|", child.pid())));
}

#[test]
fn a_payload_that_cannot_be_made_leaves_no_process() {
    let (reader, writer) = std::io::pipe().unwrap();
    let start = Start::new(&DESCRIBE).on_drop(OnDrop::Wait).fd(writer.into());
    let error = start.start_with(|_| Err("no memory".into())).unwrap_err();
    assert!(error.to_string().contains("no memory"), "{error}");
    assert_eq!(read_to_end(reader), "", "the child must be gone without having run");
}

#[test]
fn a_start_whose_payload_panics_leaves_no_process() {
    let pid = within_deadline("the end of the start", || {
        let pid = std::cell::Cell::new(0);
        let start = Start::new(&WAIT).on_drop(OnDrop::Wait);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            start.start_with(|child| {
                pid.set(child.pid());
                std::panic::resume_unwind(Box::new("on purpose"))
            })
        }));
        assert!(panicked.is_err());
        pid.get()
    });
    assert!(!exists(pid));
}

#[test]
fn a_panic_is_reported_with_message_place_thread_and_stack() {
    let mut child = Start::new(&FAIL).payload("panic").env_remove("RUST_BACKTRACE").start().unwrap();
    let exit = exit(&mut child);
    assert_eq!((exit.ended, exit.stage), (Ended::Exited { code: 1 }, Stage::Raised));
    let report = exit.report.as_ref().unwrap();
    assert_eq!((report.kind, report.message.as_str()), (ReportKind::Panic, "legitimate panic"));
    let location = report.location.as_ref().unwrap();
    assert!(location.file.ends_with("process.rs"), "{location}");
    assert!(location.line > 1 && location.column > 1, "{location}");
    assert_eq!(report.thread, "main");
    let backtrace = report.backtrace.as_ref().unwrap();
    assert!(backtrace.contains("legitimate_panic"), "{backtrace}");
    assert!(!backtrace.contains("__tensorferry_entry"), "{backtrace}");
}

#[test]
fn no_stack_is_captured_where_the_environment_says_so() {
    let mut child = Start::new(&FAIL).payload("panic").env("RUST_BACKTRACE", "0").start().unwrap();
    let report = exit(&mut child).report.as_ref().unwrap();
    assert_eq!((report.message.as_str(), &report.backtrace), ("legitimate panic", &None));
}

#[test]
fn an_error_is_reported_with_its_chain() {
    let mut child = start(&FAIL, "error");
    let report = exit(&mut child).report.as_ref().unwrap();
    assert_eq!((report.kind, report.message.as_str()), (ReportKind::Error, "the count is wrong"));
    assert_eq!(report.chain, ["invalid digit found in string"]);
}

#[test]
fn a_refusal_is_told_from_a_failure() {
    let mut child = start(&FAIL, "refuse");
    let report = exit(&mut child).report.as_ref().unwrap();
    assert_eq!((report.kind, report.message.as_str()), (ReportKind::Refused, "not today"));
}

#[test]
fn exit_codes_and_signals_are_told() {
    for (how, text) in [
        ("exit 123", "exited with code 123 before its function returned"),
        ("exit 0", "exited with code 0 before its function returned"),
        ("abort", "terminated by signal SIGABRT"),
    ] {
        let mut child = start(&FAIL, how);
        let exit = exit(&mut child);
        assert!(!exit.is_success(), "{how}: {exit}");
        assert!(exit.to_string().starts_with(text), "{how}: {exit}");
        assert_eq!(exit.report, None, "{how}");
    }
}

#[test]
fn a_panic_that_aborts_is_reported_although_nothing_unwinds() {
    let mut child = start(&FAIL, "panic twice");
    let exit = exit(&mut child);
    assert!(matches!(exit.ended, Ended::Signaled { signal: 6, .. }), "{exit}");
    let report = exit.report.as_ref().unwrap();
    assert_eq!(report.kind, ReportKind::Panic);
    let whole = report.to_string();
    assert!(whole.contains("first, on purpose") && whole.contains("second, in a destructor"), "{whole}");
}

#[test]
fn a_panic_on_another_thread_is_the_cause_of_the_one_that_follows() {
    let mut child = start(&FAIL, "thread");
    let report = exit(&mut child).report.as_ref().unwrap();
    assert!(report.message.starts_with("the loader failed"), "{report}");
    assert!(report.chain[0].contains("thread 'loader' panicked at"), "{report}");
    assert!(report.chain[0].ends_with("no such file"), "{report}");
}

#[test]
fn a_panic_that_is_caught_is_no_failure() {
    let mut child = start(&FAIL, "caught");
    assert!(exit(&mut child).is_success());
}

#[test]
fn waiting_has_a_time_out_and_a_silent_child_is_no_reason_to_hang() {
    let Waiting { mut child, input, output } = start_waiting(&WAIT, "");
    assert_eq!(read_line(output.try_clone().unwrap()), child.pid().to_string());
    assert!(child.wait_timeout(Duration::from_millis(20)).unwrap().is_none());
    assert_eq!(child.stage(), Stage::Entered);
    // Stopped, it says nothing and does not die; SIGKILL ends it all the same.
    child.send_signal(19).unwrap();
    assert!(child.wait_timeout(Duration::from_millis(20)).unwrap().is_none());
    child.kill().unwrap();
    assert_eq!(exit(&mut child).ended, Ended::Signaled { signal: 9, core_dumped: false });
    assert!(!exists(child.pid()), "it must have been collected");
    drop(input);
}

#[test]
fn a_dropped_child_is_killed_and_collected() {
    let Waiting { child, input, output } = start_waiting(&WAIT, "");
    let pid = child.pid();
    assert_eq!(read_line(output.try_clone().unwrap()), pid.to_string());
    drop(child);
    assert!(!exists(pid));
    assert_eq!(read_to_end(output), "", "it must not have come to its end");
    drop(input);
}

#[test]
fn a_dropped_child_is_waited_for_where_the_policy_says_so() {
    let (theirs_in, input) = std::io::pipe().unwrap();
    let (output, theirs_out) = std::io::pipe().unwrap();
    let start = Start::new(&WAIT).on_drop(OnDrop::Wait).fd(theirs_in.into()).fd(theirs_out.into());
    let child = start.start().unwrap();
    drop(input);
    within_deadline("the end of the child", move || drop(child));
    assert!(read_to_end(output).ends_with("done\n"));
}

/// Drops a child after it has given up the right to have descriptors, so that poll(2) refuses to wait for
/// one.
fn drop_without_descriptors(_inherited: &mut Inherited) -> Result<(), Failure> {
    let ((theirs_in, _input), (_output, theirs_out)) = (std::io::pipe()?, std::io::pipe()?);
    let child = Start::new(&WAIT).fd(theirs_in.into()).fd(theirs_out.into()).start()?;
    let pid = Pid::from_raw(i32::try_from(child.pid())?);
    setrlimit(Resource::RLIMIT_NOFILE, 0, 0)?;
    drop(child);
    assert_eq!(waitpid(pid, None), Err(Errno::ECHILD), "it is collected");
    Ok(())
}

#[test]
fn a_dropped_child_is_collected_also_where_nothing_may_be_polled() {
    let mut child = start(&DROP_WITHOUT_DESCRIPTORS, "");
    let exit = exit(&mut child);
    assert!(exit.is_success(), "{exit:?}");
}

#[test]
fn a_child_outlives_the_thread_that_started_it() {
    let Waiting { mut child, input, output } =
        std::thread::spawn(|| start_waiting(&WAIT, "")).join().unwrap();
    assert_eq!(read_line(output.try_clone().unwrap()), child.pid().to_string());
    // Were it tied to that thread, it would be dead by now or soon: the thread is gone, the process still
    // answers.
    assert!(child.wait_timeout(Duration::from_millis(50)).unwrap().is_none());
    drop(input);
    assert_eq!(read_to_end(output), "done\n");
    assert!(exit(&mut child).is_success());
}

#[test]
fn no_grandchild_outlives_its_parent() {
    for thread in ["main thread", "another thread"] {
        for signal in [9, 15] {
            let Waiting { mut child, input, output } = start_waiting(&NEST, thread);
            let grandchild: u32 = read_line(output.try_clone().unwrap()).parse().unwrap();
            assert_ne!(grandchild, child.pid());
            child.send_signal(signal).unwrap();
            // The grandchild is the last to hold the other end of the pipe.
            assert_eq!(read_to_end(output), "", "{thread}, signal {signal}");
            assert_eq!(exit(&mut child).ended, Ended::Signaled { signal, core_dumped: false });
            drop(input);
        }
    }
}

#[test]
fn a_parent_that_is_killed_at_any_moment_leaves_nothing() {
    // From before the parent has entered to after its child has: wherever the child is on its way, it must
    // notice.
    for moment in 0..60 {
        let Waiting { mut child, input, output } = start_waiting(&NEST, "another thread");
        child.wait_timeout(Duration::from_micros(moment * 50)).unwrap();
        child.kill().unwrap();
        let said = read_to_end(output);
        assert!(!said.contains("done"), "moment {moment}: {said}");
        drop(input);
    }
}

#[test]
fn a_child_can_start_children_and_wait_for_them() {
    let Waiting { mut child, input, output } = start_waiting(&NEST, "another thread");
    drop(input);
    assert!(read_to_end(output).ends_with("done\n"));
    assert!(exit(&mut child).is_success());
}

#[test]
fn many_children_at_once_are_all_told_apart() {
    let mut children: Vec<Child> =
        (0..12).map(|n| start(&FAIL, if n % 3 == 0 { "error" } else { "exit 123" })).collect();
    while children.iter().any(|child| child.exit().is_none()) {
        assert!(tensorferry_process::wait_any(&mut children, Some(DEADLINE)).unwrap(), "nothing happened");
    }
    assert!(!tensorferry_process::wait_any(&mut children, None).unwrap(), "all have ended");
    for (n, child) in children.iter().enumerate() {
        let code = if n % 3 == 0 { 1 } else { 123 };
        assert_eq!(child.exit().unwrap().ended, Ended::Exited { code });
    }
}

#[test]
fn what_cannot_be_sent_is_an_error_before_a_process_exists() {
    let (fd, _) = std::io::pipe().unwrap();
    let start = (0..252).fold(Start::new(&DESCRIBE), |s, _| s.fd(fd.try_clone().unwrap().into()));
    let error = start.start().unwrap_err();
    assert!(matches!(error, StartError::TooManyDescriptors { n_fds: 252, limit: 251 }), "{error}");
    let error = Start::new(&DESCRIBE).payload(vec![0; (16 << 20) + 1]).start().unwrap_err();
    assert!(error.to_string().contains("16777217 bytes is over the limit"), "{error}");
    let error = Start::new(&DESCRIBE).name("x".repeat(1 << 20)).start().unwrap_err();
    assert!(matches!(error, StartError::Message(_)), "{error}");
    let error = Start::new(&DESCRIBE).executable("/no/such/program").start().unwrap_err();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}

#[test]
fn as_many_descriptors_as_go_are_passed() {
    let (reader, writer) = std::io::pipe().unwrap();
    let start = (0..251).fold(Start::new(&DESCRIBE), |s, _| s.fd(writer.try_clone().unwrap().into()));
    let mut child = start.start().unwrap();
    drop(writer);
    assert_eq!(read_to_end(reader).matches("|test.describe|").count(), 251);
    assert!(exit(&mut child).is_success());
}

#[test]
fn an_executable_that_does_not_link_this_library_never_enters() {
    let mut child = Start::new(&DESCRIBE).executable("/bin/true").start().unwrap();
    let exit = exit(&mut child);
    assert!(!exit.is_success());
    assert_eq!(
        exit.to_string(),
        "exited with code 0 before it began its work, as a program does that was not built with tensorferry"
    );
}

/// Puts this process on a leash again and again while signals come that it handles.
fn leash_under_signals(_inherited: &mut Inherited) -> Result<(), Failure> {
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    ctrlc::set_handler(|| {
        HANDLED.fetch_add(1, Ordering::SeqCst);
    })?;
    let (_holder, reader) = leash::pair()?;
    let me = PidFd::of_self()?;
    let (keep_on, ended) = mpsc::channel::<()>();
    let interrupting = std::thread::spawn(move || {
        while ended.try_recv() == Err(TryRecvError::Empty) {
            me.send_signal(SIGINT)?;
        }
        Ok::<_, tensorferry_os::Error>(())
    });
    // Of a hundred signals, one comes at the wrong moment.
    while HANDLED.load(Ordering::SeqCst) < 2_000 {
        let armed = leash::Leash::arm(&reader);
        assert!(matches!(armed, Ok(Some(_))), "{armed:?}");
    }
    drop(keep_on);
    Ok(interrupting.join().unwrap()?)
}

#[test]
fn signals_do_not_keep_a_process_from_its_leash() {
    let mut child = start(&LEASH_UNDER_SIGNALS, "");
    let exit = exit(&mut child);
    assert!(exit.is_success(), "{exit:#}");
}
