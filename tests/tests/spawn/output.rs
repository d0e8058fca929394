//! What processes write: to files, line by line to their parent's outputs, whole even when they are killed.
#![expect(
    clippy::disallowed_methods,
    reason = "a process starts a program that is none of ours and outlives it"
)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "what processes print is what is tested")]

use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use tensorferry::TensorMut;
use tensorferry::spawn::{
    Cause, Context, Options, OutputError, SpawnError, StartErrorKind, StartMethod, Tee, func, get_context,
};
use tensorferry_kit::{in_fork, until};
use tensorferry_process::{Exit, Failure, Inherited, Start};

use crate::support::{DEADLINE, Meeting, attend, for_every_method, for_every_program, read_to_end, told};

tensorferry_process::entry! {
    static TEE = "test.output.tee" => tee;
    static UNREAD = "test.output.unread" => unread;
}

#[func]
fn write(rank: usize) -> Result<(), String> {
    println!("rank {rank} to stdout");
    eprintln!("rank {rank} to stderr");
    Ok(())
}

#[func]
fn write_and_stay(rank: usize, meeting: String) {
    print!("rank {rank} has begun\nand not ended");
    std::io::stdout().flush().unwrap();
    attend(&meeting, rank);
}

#[func]
fn write_much(_rank: usize, n_lines: usize) {
    for n in 0..n_lines {
        println!("{n:099}");
    }
}

#[func]
fn write_long_line(_rank: usize, len_bytes: usize) {
    print!("{}", "x".repeat(len_bytes));
}

/// Leaves a program behind that holds the outputs of this process until the test lets it go.
#[func]
fn leave_one_behind(rank: usize, meeting: String) -> Result<(), std::io::Error> {
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&meeting)?)?;
    let cat = Command::new("cat").stdin(OwnedFd::from(stream.try_clone()?)).spawn()?;
    writeln!(stream, "{rank} {}", cat.id())?;
    println!("the end");
    Ok(())
}

/// A parent that passes on what its two processes write.
fn tee(inherited: &mut Inherited) -> Result<(), Failure> {
    let (method, choice) = told(inherited);
    let (choice, dir) = match choice {
        "stdout" => (Tee::Stdout, None),
        "both" => (Tee::Both, None),
        dir => (Tee::Stderr, Some(PathBuf::from(dir))),
    };
    let mut options = get_context(method).options().name("train").tee(choice);
    if let Some(dir) = dir {
        options = options.log_dir(dir);
    }
    if refuses_to_tee(&options, method) {
        return Ok(());
    }
    options.spawn(write, (), 2)?;
    options.spawn(write_long_line, (100_000,), 1)?;
    assert_no_thread_left();
    Ok(())
}

/// A parent whose own output is full and that nobody reads.
fn unread(inherited: &mut Inherited) -> Result<(), Failure> {
    let (method, dir) = told(inherited);
    let options = get_context(method).options().log_dir(dir).tee(Tee::Stdout);
    if refuses_to_tee(&options, method) {
        return Ok(());
    }
    let mut context = options.start_processes(write, (), 2)?;
    context.join()?;
    assert_no_thread_left();
    Ok(())
}

/// What passes lines on is a thread, which would be in the way of a fork.
fn refuses_to_tee(options: &Options, method: StartMethod) -> bool {
    if method == StartMethod::Fork {
        let error = options.start_processes(write, (), 1).unwrap_err();
        assert!(matches!(error.kind, StartErrorKind::TeeWithFork), "{error}");
    }
    method == StartMethod::Fork
}

/// Options that pass lines on and keep them too; `None` where that is refused.
fn tee_to(folder: &Folder, method: Context) -> Option<Options> {
    let options = method.options().log_dir(&folder.0).tee(Tee::Stdout);
    (!refuses_to_tee(&options, method.start_method())).then_some(options)
}

/// That the thread which passes lines on is gone.
/// One that was joined may be listed for a moment more.
fn assert_no_thread_left() {
    let is_tee = |task: std::io::Result<fs::DirEntry>| {
        fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default().trim() == "tf-tee"
    };
    until("the thread that passes lines on is gone", || {
        !fs::read_dir("/proc/self/task").unwrap().any(is_tee)
    });
}

/// A folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tensorferry-output-{}-{n}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn read(&self, path: impl AsRef<Path>) -> String {
        fs::read_to_string(self.0.join(path)).unwrap()
    }

    /// Makes the standard output of process 0 a disk without room.
    fn fill_up(&self) {
        fs::create_dir(self.0.join("0")).unwrap();
        symlink("/dev/full", self.0.join("0/stdout.log")).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts a parent with outputs of its own, and returns what came out of them.
fn outputs_of(method: StartMethod, choice: &str) -> (String, String) {
    let (stdout, theirs_out) = std::io::pipe().unwrap();
    let (stderr, theirs_err) = std::io::pipe().unwrap();
    let start = Start::new(&TEE).payload(format!("{method} {choice}")).stdout(theirs_out).stderr(theirs_err);
    let mut parent = start.start().unwrap();
    let texts = (read_to_end(stdout), read_to_end(stderr));
    assert_succeeded(parent.wait_timeout(DEADLINE).unwrap());
    texts
}

fn assert_succeeded(exit: Option<&Exit>) {
    let exit = exit.expect("the parent did not end");
    assert!(exit.is_success(), "{exit:#}");
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().filter(|line| !line.contains('x')).collect();
    lines.sort_unstable();
    lines
}

/// Writes a line, and returns something.
#[func]
fn write_and_return(rank: usize) -> Result<TensorMut<u8>, String> {
    println!("rank {rank}");
    TensorMut::full([3], u8::try_from(rank).unwrap()).map_err(|e| e.to_string())
}

#[test]
fn a_file_that_cannot_be_made_is_an_error_before_a_process_exists() {
    let folder = Folder::new();
    fs::write(folder.0.join("file"), "").unwrap();
    let error = Options::new().log_dir(folder.0.join("file")).start_processes(write, (), 2).unwrap_err();
    assert!(matches!(error.kind, StartErrorKind::Output(OutputError::File { rank: 0, .. })), "{error}");
    assert!(error.to_string().contains("0/stdout.log"), "{error}");
}

#[test]
fn a_process_that_something_else_has_forked_waits_for_no_thread() {
    let meeting = Meeting::new();
    let context = Options::new().tee(Tee::Stdout).start_processes(write_and_stay, (meeting.name(),), 1);
    let (mut context, guests) = (Some(context.unwrap()), meeting.guests(1));
    let dropped = in_fork(|| {
        drop(context.take());
        1
    });
    assert_eq!(dropped, 1);
    guests[0].release();
    assert!(context.unwrap().join_timeout(DEADLINE).unwrap());
}

for_every_method! {
    fn each_process_writes_to_files_of_its_own_after_what_is_there(method: Context) {
        let folder = Folder::new();
        let options = method.options().log_dir(folder.0.join("a/b"));
        for _ in 0..2 {
            options.spawn(write, (), 2).unwrap();
        }
        for rank in 0..2 {
            for stream in ["stdout", "stderr"] {
                let line = format!("rank {rank} to {stream}\n");
                assert_eq!(folder.read(format!("a/b/{rank}/{stream}.log")), line.repeat(2));
            }
        }
    }

    fn what_a_killed_process_has_written_is_there(method: Context) {
        for tee in [Tee::Off, Tee::Stdout] {
            let (folder, meeting) = (Folder::new(), Meeting::new());
            let options = method.options().log_dir(&folder.0).tee(tee);
            if tee != Tee::Off && refuses_to_tee(&options, method.start_method()) {
                break;
            }
            let mut context = options.start_processes(write_and_stay, (meeting.name(),), 2).unwrap();
            let _guests = meeting.guests(2);
            context.send_signal(9).unwrap();
            assert!(matches!(context.join(), Err(SpawnError::Failed(_))));
            for rank in 0..2 {
                let expected = format!("rank {rank} has begun\nand not ended");
                assert_eq!(folder.read(format!("{rank}/stdout.log")), expected, "{tee:?}");
            }
        }
    }

    fn what_processes_of_a_dropped_context_have_written_is_there(method: Context) {
        let (folder, meeting) = (Folder::new(), Meeting::new());
        let options = tee_to(&folder, method).unwrap_or_else(|| method.options().log_dir(&folder.0));
        let context = options.start_processes(write_and_stay, (meeting.name(),), 1).unwrap();
        let _guests = meeting.guests(1);
        drop(context);
        assert_eq!(folder.read("0/stdout.log"), "rank 0 has begun\nand not ended");
    }

    fn much_output_arrives_whole(method: Context) {
        let folder = Folder::new();
        let options = tee_to(&folder, method).unwrap_or_else(|| method.options().log_dir(&folder.0));
        options.spawn(write_much, (5_000,), 1).unwrap();
        let expected: String = (0..5_000).map(|n| format!("{n:099}\n")).collect();
        assert!(folder.read("0/stdout.log") == expected, "500,000 bytes, in order");
    }

    fn who_still_holds_an_output_does_not_hold_up_the_end(method: Context) {
        let (folder, meeting) = (Folder::new(), Meeting::new());
        let options = tee_to(&folder, method).unwrap_or_else(|| method.options().log_dir(&folder.0));
        let mut context = options.start_processes(leave_one_behind, (meeting.name(),), 1).unwrap();
        let left_behind = meeting.guests(1);
        assert!(context.join_timeout(DEADLINE).unwrap());
        assert!(Path::new(&format!("/proc/{}", left_behind[0].pid)).exists(), "it still holds the pipe");
        assert_eq!(folder.read("0/stdout.log"), "the end\n");
    }

    fn a_full_disk_is_an_error_and_holds_nobody_up(method: Context) {
        let folder = Folder::new();
        folder.fill_up();
        let options = method.options().log_dir(&folder.0);
        if let Some(tee) = tee_to(&folder, method) {
            let mut context = tee.start_processes(write_much, (3_000,), 2).unwrap();
            for _ in 0..2 {
                let error = context.join().unwrap_err();
                let SpawnError::Output(OutputError::File { rank: 0, path, error: answer }) = &error else {
                    panic!("{error}")
                };
                assert_eq!(path, &folder.0.join("0/stdout.log"));
                assert_eq!(answer.kind(), std::io::ErrorKind::StorageFull);
            }
            assert_eq!(folder.read("1/stdout.log").len(), 300_000, "the other one's file is whole");
        }
        let SpawnError::Failed(errors) = options.spawn(write_much, (3_000,), 1).unwrap_err() else { panic!() };
        let Cause::Raised(report) = &errors.root_cause().cause else { panic!("{errors}") };
        assert!(report.message.contains("No space left on device"), "{report}");
    }

    fn a_full_disk_does_not_cost_the_values(method: Context) {
        let folder = Folder::new();
        folder.fill_up();
        let Some(options) = tee_to(&folder, method) else { return };
        let mut context = options.start_processes(write_and_return, (), 2).unwrap();
        assert!(matches!(context.join(), Err(SpawnError::Output(_))));
        let mut values = context.take_values().unwrap();
        assert_eq!(values.iter_mut().map(|value| value.as_slice()[2]).collect::<Vec<_>>(), [0, 1]);
        assert!(matches!(context.join(), Err(SpawnError::Output(_))), "its answer stays");
        let again = context.take_values().unwrap_err();
        assert!(matches!(again, SpawnError::Value { rank: 0, .. }), "{again}");
        // Without asking how it went before.
        let mut context = options.start_processes(write_and_return, (), 2).unwrap();
        assert_eq!(context.take_values().unwrap().len(), 2);
        let error = options.spawn(write_and_return, (), 2).unwrap_err();
        assert!(matches!(error, SpawnError::Output(_)), "{error}");
        // Nor that of a process by itself.
        let alone = Folder::new();
        symlink("/dev/full", alone.0.join("stdout.log")).unwrap();
        let process = method.process(write_and_return, ()).log_dir(&alone.0).tee(Tee::Stdout);
        let mut process = process.start().unwrap();
        assert!(matches!(process.join(), Err(SpawnError::Output(_))));
        assert_eq!(process.take_value().unwrap().as_slice().len(), 3);
        assert!(matches!(process.take_value().unwrap_err(), SpawnError::Value { rank: 0, .. }));
    }

    fn no_file_is_made_where_none_is_asked_for(method: Context) {
        let folder = Folder::new();
        let here = std::env::current_dir().unwrap();
        let names = |dir: &Path| fs::read_dir(dir).unwrap().count();
        let before = names(&here);
        let options = method.options().env("TMPDIR", &folder.0);
        let tee = options.clone().tee(Tee::Both);
        let options = if refuses_to_tee(&tee, method.start_method()) { options } else { tee };
        options.spawn(write, (), 1).unwrap();
        assert_eq!((names(&here), names(&folder.0)), (before, 0));
    }
}

for_every_program! {
    fn lines_are_passed_on_with_the_name_of_their_process(method: StartMethod) {
        let (stdout, stderr) = outputs_of(method, "both");
        if method == StartMethod::Fork {
            assert_eq!((stdout, stderr), (String::new(), String::new()));
            return;
        }
        assert_eq!(sorted(&stdout), ["[train 0] rank 0 to stdout", "[train 1] rank 1 to stdout"]);
        assert_eq!(sorted(&stderr), ["[train 0] rank 0 to stderr", "[train 1] rank 1 to stderr"]);
    }

    fn what_is_not_to_be_passed_on_goes_where_it_went(method: StartMethod) {
        if method == StartMethod::Fork {
            return;
        }
        let (stdout, stderr) = outputs_of(method, "stdout");
        assert_eq!(sorted(&stdout), ["[train 0] rank 0 to stdout", "[train 1] rank 1 to stdout"]);
        assert_eq!(sorted(&stderr), ["rank 0 to stderr", "rank 1 to stderr"]);
        let folder = Folder::new();
        let (stdout, stderr) = outputs_of(method, folder.0.to_str().unwrap());
        assert_eq!(stdout, "", "it is in the files");
        assert_eq!(sorted(&stderr), ["[train 0] rank 0 to stderr", "[train 1] rank 1 to stderr"]);
        assert_eq!(folder.read("1/stdout.log"), "rank 1 to stdout\n");
        assert_eq!(folder.read("1/stderr.log"), "rank 1 to stderr\n");
    }

    fn a_line_without_end_comes_in_pieces(method: StartMethod) {
        if method == StartMethod::Fork {
            return;
        }
        let (stdout, _) = outputs_of(method, "stdout");
        let pieces: Vec<_> = stdout.lines().filter_map(|line| line.strip_prefix("[train 0] x")).collect();
        assert_eq!(pieces.iter().map(|piece| 1 + piece.len()).sum::<usize>(), 100_000);
        assert!(pieces.iter().all(|piece| piece.len() < 32 << 10), "so much is kept at most");
    }

    fn an_output_that_nobody_reads_does_not_hold_up_the_end(method: StartMethod) {
        let folder = Folder::new();
        let (unread, mut full) = std::io::pipe().unwrap();
        // As much as a pipe holds (pipe(7)).
        full.write_all(&[b'.'; 64 << 10]).unwrap();
        let start = Start::new(&UNREAD).payload(format!("{method} {}", folder.0.display())).stdout(full);
        let mut parent = start.start().unwrap();
        assert_succeeded(parent.wait_timeout(DEADLINE).unwrap());
        if method != StartMethod::Fork {
            assert_eq!(folder.read("1/stdout.log"), "rank 1 to stdout\n");
        }
        assert!(!read_to_end(unread).contains("rank"));
    }
}
