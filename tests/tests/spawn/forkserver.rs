//! The fork server: what it leaves to its children, and what happens when it dies.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::libc::{SIGCONT, SIGSTOP};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tensorferry::listen::{ConnectError, attach, publish};
use tensorferry::spawn::{
    Cause, PreloadError, ProcessHandle, SpawnError, StartErrorKind, StartMethod, forkserver_preload, func,
    get_context,
};
use tensorferry::{Tensor, TensorMut};
use tensorferry_kit::{Leftovers, until};
use tensorferry_os::child::parent_pid;
use tensorferry_os::pidfd::PidFd;
use tensorferry_process::{Failure, Inherited, SIGKILL, Start};

use crate::support::{DEADLINE, Guest, Meeting, attend, exists};

tensorferry_process::entry! {
    static PRELOADED = "test.preloaded" => preloaded;
    static PRELOAD_FAILS = "test.preload-fails" => preload_fails;
    static PRELOAD_LEAVES_A_THREAD = "test.preload-leaves-a-thread" => preload_leaves_a_thread;
    static PRELOAD_LEAVES_AN_UNNAMED_THREAD = "test.preload-leaves-an-unnamed-thread" => preload_leaves_an_unnamed_thread;
    static PRELOAD_JOINS = "test.preload-joins" => preload_joins;
    static PRELOAD_STARTS = "test.preload-starts" => preload_starts;
    static FIRST = "test.first-of-server" => first;
    static SERVER_KILLED = "test.server-killed" => server_killed;
    static SERVER_STOPPED = "test.server-stopped" => server_stopped;
    static DIES_UNTOLD = "test.dies-untold" => dies_untold;
    static MANY_DIE_UNTOLD = "test.many-die-untold" => many_die_untold;
    static NO_ROOM_FOR_THE_ANSWER = "test.no-room-for-the-answer" => no_room_for_the_answer;
    static NO_ROOM_IN_THE_SERVER = "test.no-room-in-the-server" => no_room_in_the_server;
    static NOTHING_LEFT = "test.nothing-left" => nothing_left;
    static IGNORES_CHILDREN = "test.ignores-children" => ignores_children;
}

static TABLE: OnceLock<(u32, Vec<u64>)> = OnceLock::new();

#[func]
fn make_table(_rank: usize) {
    TABLE.set((std::process::id(), (0..1000).map(|n| n * n).collect())).unwrap();
}

#[func]
fn look_up(rank: usize) -> Result<(u64, u32), String> {
    let (pid, table) = TABLE.get().ok_or("nothing was preloaded")?;
    Ok((table[rank + 10], *pid))
}

#[func]
fn fails(_rank: usize) -> Result<(), String> {
    Err(String::from("no table today"))
}

#[func]
fn leaves_a_thread(_rank: usize) {
    let (named, wait) = std::sync::mpsc::channel();
    let work = move || {
        named.send(()).unwrap();
        std::thread::park();
    };
    std::thread::Builder::new().name("left behind".into()).spawn(work).unwrap();
    // A thread gives itself its name.
    wait.recv().unwrap();
}

#[func]
fn meet(rank: usize, meeting: String) {
    attend(&meeting, rank);
}

#[func]
fn pid(_rank: usize) -> Result<u32, String> {
    Ok(std::process::id())
}

#[func]
fn descriptors(_rank: usize) -> Result<Vec<String>, std::io::Error> {
    let links = std::fs::read_dir("/proc/self/fd")?;
    Ok(links
        .filter_map(|link| Some(std::fs::read_link(link.ok()?.path()).ok()?.display().to_string()))
        .collect())
}

/// The parent of a process, as the kernel has it.
fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

fn run(entry: &'static tensorferry_process::Entry, payload: String) {
    let mut child = Start::new(entry).payload(payload).start().unwrap();
    let exit = child.wait_timeout(DEADLINE).unwrap().expect("it did not end");
    assert!(exit.is_success(), "{exit:#}");
}

fn preloaded(_inherited: &mut Inherited) -> Result<(), Failure> {
    forkserver_preload(make_table)?;
    let context = get_context(StartMethod::Forkserver);
    let values = context.spawn(look_up, (), 3)?;
    let server = values[0].1;
    assert_eq!(values, [(100, server), (121, server), (144, server)]);
    assert_ne!(server, std::process::id());
    assert_eq!(parent_of(server), std::process::id());
    // Once, in one server, whoever asks.
    let again = std::thread::spawn(move || context.spawn(look_up, (), 1).unwrap()).join().unwrap();
    assert_eq!(again, [(100, server)]);
    assert!(matches!(forkserver_preload(make_table), Err(PreloadError::Running(_))));
    // Neither here nor in a spawned process.
    assert!(TABLE.get().is_none());
    assert!(get_context(StartMethod::Spawn).spawn(look_up, (), 1).is_err());
    Ok(())
}

#[test]
fn what_is_preloaded_is_there_in_every_process_and_was_made_once() {
    run(&PRELOADED, String::new());
}

fn start_error() -> String {
    get_context(StartMethod::Forkserver).spawn(pid, (), 1).unwrap_err().to_string()
}

fn preload_fails(_inherited: &mut Inherited) -> Result<(), Failure> {
    forkserver_preload(fails)?;
    for _ in 0..2 {
        let text = start_error();
        assert!(text.contains("fork server") && text.contains("no table today"), "{text}");
    }
    Ok(())
}

#[test]
fn a_preload_that_fails_is_an_error_of_the_start() {
    run(&PRELOAD_FAILS, String::new());
}

#[func]
fn leaves_an_unnamed_thread(_rank: usize) {
    std::thread::spawn(std::thread::park);
}

fn preload_leaves_an_unnamed_thread(_inherited: &mut Inherited) -> Result<(), Failure> {
    forkserver_preload(leaves_an_unnamed_thread)?;
    let text = start_error();
    assert!(text.contains("one without a name of its own") && !text.contains("`forkserver`"), "{text}");
    Ok(())
}

#[test]
fn a_thread_without_a_name_is_not_told_by_that_of_the_server() {
    run(&PRELOAD_LEAVES_AN_UNNAMED_THREAD, String::new());
}

fn preload_leaves_a_thread(_inherited: &mut Inherited) -> Result<(), Failure> {
    forkserver_preload(leaves_a_thread)?;
    let text = start_error();
    assert!(text.contains("threads") && text.contains("left behind"), "{text}");
    Ok(())
}

#[test]
fn a_preload_that_leaves_a_thread_is_refused_by_its_name() {
    run(&PRELOAD_LEAVES_A_THREAD, String::new());
}

/// Where the process publishes whose server takes it.
fn address_of(pid: u32) -> String {
    format!("@tensorferry-test-preload-{pid}")
}

/// Joins the domain of the server's client, for which it needs no thread.
#[func]
fn takes_a_tensor(_rank: usize) -> Result<(), ConnectError> {
    static TAKEN: OnceLock<Tensor<u8>> = OnceLock::new();
    let taken = attach(address_of(parent_pid()))?;
    TAKEN.get_or_init(|| taken);
    Ok(())
}

fn preload_joins(_inherited: &mut Inherited) -> Result<(), Failure> {
    let _published = publish(address_of(std::process::id()), &TensorMut::<u8>::zeros([64])?.freeze())?;
    forkserver_preload(takes_a_tensor)?;
    let text = start_error();
    assert!(text.contains("has joined a domain"), "{text}");
    Ok(())
}

/// Its children would have the slices that it was lent, and nobody would keep the memory for them.
#[test]
fn a_server_that_has_joined_a_domain_is_refused_though_it_has_one_thread() {
    run(&PRELOAD_JOINS, String::new());
}

/// Does nothing, but whoever starts it has children from then on.
fn first(_inherited: &mut Inherited) -> Result<(), Failure> {
    Ok(())
}

#[func]
fn starts_a_process(_rank: usize) -> Result<(), tensorferry_process::StartError> {
    Start::new(&FIRST).start()?.wait().map_err(Into::into).map(|_| ())
}

/// Starts two of its own, one by each method that works in any process, and waits for them.
#[func]
fn meet_with_two(rank: usize, meeting: String) -> Result<(), SpawnError> {
    let start = |method| get_context(method).start_processes(meet, (meeting.clone(),), 1);
    let _spawned = start(StartMethod::Spawn)?;
    let _forked = start(StartMethod::Forkserver)?;
    attend(&meeting, rank + 10);
    Ok(())
}

fn preload_starts(inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = std::str::from_utf8(inherited.payload())?.to_owned();
    forkserver_preload(starts_a_process)?;
    let context = get_context(StartMethod::Forkserver);
    let mut started = context.start_processes(meet_with_two, (meeting.clone(),), 1)?;
    assert!(started.join().is_err(), "it was killed");
    // This process and its server live on, so that nothing ends because they do.
    attend(&meeting, 20);
    Ok(())
}

#[test]
fn the_children_of_a_forked_process_end_with_it_though_its_server_had_children_before() {
    let meeting = Meeting::new();
    let mut main = Start::new(&PRELOAD_STARTS).payload(meeting.name()).start().unwrap();
    let guests = meeting.guests(3);
    let (leaves, middle) = guests.split_at(2);
    PidFd::open(middle[0].pid).unwrap().send_signal(SIGKILL).unwrap();
    leaves.iter().for_each(Guest::wait_gone);
    meeting.guests(1)[0].release();
    let exit = main.wait_timeout(DEADLINE).unwrap().expect("it did not end");
    assert!(exit.is_success(), "{exit:#}");
}

#[test]
fn what_is_not_registered_cannot_be_preloaded() {
    let text = forkserver_preload(|_rank: usize| ()).unwrap_err().to_string();
    assert!(text.contains("closure"), "{text}");
}

/// A process that has come to the meeting, and its server.
struct Started {
    process: ProcessHandle<()>,
    guest: Guest,
    server: PidFd,
}

impl Started {
    fn new(meeting: &Meeting) -> Self {
        let process = get_context(StartMethod::Forkserver).process(meet, (meeting.name(),)).start().unwrap();
        let guest = meeting.guests(1).remove(0);
        assert_eq!(guest.pid, process.pid());
        let server = parent_of(process.pid());
        assert_eq!(parent_of(server), std::process::id());
        Self { process, guest, server: PidFd::open(server).unwrap() }
    }
}

fn server_killed(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let Started { mut process, guest, server } = Started::new(&meeting);
    server.send_signal(9)?;
    assert!(server.wait_dead(Some(DEADLINE))?);
    // Its child lives on and is watched.
    assert!(process.is_alive()?);
    assert!(!process.join_timeout(Duration::from_millis(20))?);
    // The next start begins a new server.
    let other = Started::new(&meeting);
    assert_ne!(other.server.pid(), server.pid());
    assert!(process.is_alive()?);
    guest.release();
    process.join()?;
    assert_eq!(process.exit_code()?, None, "it has told that it finished, and its exit code is unknown");

    let Started { mut process, server, guest: _guest } = other;
    server.send_signal(9)?;
    assert!(server.wait_dead(Some(DEADLINE))?);
    process.kill()?;
    let SpawnError::Failed(errors) = process.join().unwrap_err() else { panic!("it failed") };
    assert_eq!(errors.root_cause().cause, Cause::StatusUnavailable);
    assert!(errors.to_string().contains("its fork server was killed"), "{errors}");
    assert_eq!(process.exit_code()?, None);
    Ok(())
}

#[test]
fn a_killed_server_is_replaced_and_its_children_are_still_watched() {
    run(&SERVER_KILLED, String::new());
}

/// A start that the server does not answer, because it is stopped, and then killed.
fn server_stopped(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let Started { process, server, guest: _guest } = Started::new(&meeting);
    server.send_signal(19)?;
    let (tell, tid) = std::sync::mpsc::channel();
    let starting = std::thread::spawn(move || {
        tell.send(tensorferry_os::fork::thread_id()).unwrap();
        get_context(StartMethod::Forkserver).process(pid, ()).start().map(drop)
    });
    wait_asleep_in_poll(tid.recv()?);
    server.send_signal(9)?;
    let error = starting.join().unwrap().unwrap_err();
    let StartErrorKind::Process { rank: 0, .. } = error.kind else { panic!("{error}") };
    assert!(error.to_string().contains("SIGKILL"), "{error}");
    assert_ne!(get_context(StartMethod::Forkserver).spawn(pid, (), 1)?, [process.pid()]);
    Ok(())
}

/// Processes whose server is stopped: that they are dead is known, and nobody waits for more.
fn dies_untold(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let Started { mut process, server, guest } = Started::new(&meeting);
    let mut well = get_context(StartMethod::Forkserver).process(pid, ()).start()?;
    server.send_signal(SIGSTOP)?;
    process.kill()?;
    guest.wait_gone();
    let SpawnError::Failed(errors) = process.join().unwrap_err() else { panic!("it failed") };
    assert_eq!(errors.root_cause().cause, Cause::StatusUnavailable);
    // One that has told that it finished has succeeded, whatever its exit code would have been.
    well.join()?;
    server.send_signal(SIGCONT)?;
    assert_eq!(get_context(StartMethod::Forkserver).spawn(pid, (), 1)?.len(), 1, "all is well again");
    wait_children_of(&server, 0);
    Ok(())
}

#[test]
fn a_stopped_server_keeps_nobody_waiting_for_the_end_of_its_children() {
    run(&DIES_UNTOLD, String::new());
}

/// Several processes die while their server is stopped. The time of a join that ends then is kept, so that it
/// has not lost how they ended.
fn many_die_untold(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let Started { process: _process, server, guest: _guest } = Started::new(&meeting);
    let mut context = get_context(StartMethod::Forkserver).start_processes(meet, (meeting.name(),), 4)?;
    let guests = meeting.guests(4);
    server.send_signal(SIGSTOP)?;
    context.kill()?;
    guests.iter().for_each(Guest::wait_gone);
    for timeout in [Duration::ZERO, Duration::from_millis(20)] {
        assert!(!context.join_timeout(timeout)?, "nobody knows how they ended");
    }
    server.send_signal(SIGCONT)?;
    let SpawnError::Failed(errors) = context.join().unwrap_err() else { panic!("they failed") };
    assert_eq!(errors.failures().len(), 4, "{errors}");
    let killed = Cause::Signaled { signal: SIGKILL, core_dumped: false };
    assert!(errors.failures().iter().all(|error| error.cause == killed), "{errors}");
    Ok(())
}

#[test]
fn a_stopped_server_makes_no_wait_longer_than_its_time_out() {
    run(&MANY_DIE_UNTOLD, String::new());
}

/// Nothing can be opened here when the server answers.
fn no_room_for_the_answer(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let Started { process: _process, server, guest: _guest } = Started::new(&meeting);
    server.send_signal(SIGSTOP)?;
    let (tell, tid) = std::sync::mpsc::channel();
    let starting = std::thread::spawn(move || {
        tell.send(tensorferry_os::fork::thread_id()).unwrap();
        get_context(StartMethod::Forkserver).process(pid, ()).start().map(drop)
    });
    wait_asleep_in_poll(tid.recv()?);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, 0, hard)?;
    server.send_signal(SIGCONT)?;
    let error = starting.join().unwrap().unwrap_err();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
    let text = error.to_string();
    assert!(text.contains("RLIMIT_NOFILE") && !text.contains("fork server"), "{text}");
    // The child that was forked for it is gone and collected, and the server is the same.
    wait_children_of(&server, 1);
    let again = Started::new(&meeting);
    assert_eq!(again.server.pid(), server.pid());
    Ok(())
}

#[test]
fn a_client_without_descriptors_is_told_that_it_has_none() {
    run(&NO_ROOM_FOR_THE_ANSWER, String::new());
}

/// The server can take a request, and cannot open the pidfd of what it forks.
fn no_room_in_the_server(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let Started { process: _process, server, guest: _guest } = Started::new(&meeting);
    let number = rustix::process::Pid::from_raw(server.pid().cast_signed());
    let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // It has said that the first child runs, and closes the descriptors of that request only then.
    until("the server sleeps until the next request", || stat_of(server.pid(), 0).as_deref() == Some("S"));
    // Room for the five that ride on a request.
    let used: Vec<u64> = std::fs::read_dir(format!("/proc/{}/fd", server.pid()))?
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    let room = |limit: &u64| limit - used.iter().filter(|fd| *fd < limit).count() as u64;
    let limit = (0..).find(|limit| room(limit) == 5).unwrap();
    let cramped = rustix::process::Rlimit { current: Some(limit), maximum: before.maximum };
    rustix::process::prlimit(number, rustix::process::Resource::Nofile, cramped)?;
    let error = get_context(StartMethod::Forkserver).process(meet, (meeting.name(),)).start().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("has not started the child") && text.contains("pidfd_open"), "{text}");
    wait_children_of(&server, 1);
    rustix::process::prlimit(number, rustix::process::Resource::Nofile, before)?;
    let again = Started::new(&meeting);
    assert_eq!(again.server.pid(), server.pid());
    Ok(())
}

#[test]
fn a_server_that_cannot_watch_what_it_forked_kills_it_and_says_so() {
    run(&NO_ROOM_IN_THE_SERVER, String::new());
}

/// Waits until a server has so many children, zombies included.
fn wait_children_of(server: &PidFd, n: usize) {
    let is_child = |entry: &std::fs::DirEntry| {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        pid.and_then(|pid| stat_of(pid, 1)?.parse().ok()) == Some(server.pid())
    };
    until("the server has collected its children", || {
        std::fs::read_dir("/proc").unwrap().flatten().filter(is_child).count() == n
    });
}

/// A field of proc_pid_stat(5), counted from the state on; `None` for a process that is gone.
fn stat_of(pid: u32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(field).map(str::to_owned)
}

/// Waits until a thread of this process waits for descriptors: it has sent its request.
fn wait_asleep_in_poll(tid: u32) {
    let path = format!("/proc/self/task/{tid}/syscall");
    let is_poll = |call: &str| ["7", "271", "73"].contains(&call.split(' ').next().unwrap_or_default());
    let start = Instant::now();
    while !is_poll(&std::fs::read_to_string(&path).unwrap()) {
        assert!(start.elapsed() < DEADLINE, "it does not wait");
        std::thread::yield_now();
    }
}

#[test]
fn a_start_in_progress_is_told_that_the_server_was_killed() {
    run(&SERVER_STOPPED, String::new());
}

fn nothing_left(_inherited: &mut Inherited) -> Result<(), Failure> {
    // What stays is there after the first time: the server, the domain and what is open of it.
    start_and_end()?;
    let before = Leftovers::look();
    start_and_end()?;
    let start = Instant::now();
    loop {
        // More of the domain may be open now than before, so its mappings are not compared.
        let now = Leftovers::look();
        if now.n_descriptors() <= before.n_descriptors() && now.n_children() <= before.n_children() {
            return Ok(());
        }
        assert!(start.elapsed() < DEADLINE, "before: {before:?}\nafter: {now:?}");
        std::thread::yield_now();
    }
}

fn start_and_end() -> Result<(), Failure> {
    let context = get_context(StartMethod::Forkserver);
    for _ in 0..20 {
        context.spawn(pid, (), 3)?;
    }
    let meeting = Meeting::new();
    let processes = context.start_processes(meet, (meeting.name(),), 3)?;
    let guests = meeting.guests(3);
    // A forked process has what a spawned one has, and nothing of its brothers and its server.
    let kinds = |method: StartMethod| {
        let found = get_context(method).spawn(descriptors, (), 1).map(|mut found| found.remove(0));
        let count = |what: &str, found: &[String]| found.iter().filter(|l| l.starts_with(what)).count();
        found.map(|found| [count("pipe:", &found), count("socket:", &found)])
    };
    assert_eq!(kinds(StartMethod::Forkserver)?, kinds(StartMethod::Spawn)?);
    drop(processes);
    assert!(guests.iter().all(|guest| !exists(guest.pid)));
    Ok(())
}

#[test]
fn no_descriptor_and_no_process_is_left_by_any_start() {
    run(&NOTHING_LEFT, String::new());
}

/// A program that was executed with SIGCHLD ignored, as by some shells and supervisors.
fn ignores_children(_inherited: &mut Inherited) -> Result<(), Failure> {
    let mut process =
        get_context(StartMethod::Forkserver).process(meet, (String::from("nobody is there"),)).start()?;
    assert!(process.join().is_err());
    assert_eq!(process.exit_code()?, Some(1));
    Ok(())
}

#[test]
fn exit_codes_are_known_where_the_server_was_executed_with_sigchld_ignored() {
    run(&IGNORES_CHILDREN, String::new());
}

#[test]
fn another_program_cannot_be_started_by_a_server() {
    let options = get_context(StartMethod::Forkserver).options().executable("/bin/true");
    let error = options.start_processes(pid, (), 1).unwrap_err();
    assert!(error.to_string().contains("/bin/true") && error.to_string().contains("spawn"), "{error}");
}

#[test]
fn a_ctrl_c_for_its_clients_leaves_the_server_alone_and_ends_its_children() {
    let meeting = Meeting::new();
    let Started { mut process, server, guest: _guest } = Started::new(&meeting);
    server.send_signal(2).unwrap();
    process.interrupt().unwrap();
    assert!(process.join().is_err());
    assert_eq!(process.exit_code().unwrap(), Some(-2));
    assert!(!server.is_dead().unwrap());
}
