//! One process by itself: what it is started with, how it is watched and ended, and what it returns.

use std::io::Write as _;
use std::time::Duration;

use tensorferry::BoxedError;
use tensorferry::spawn::{OnDrop, SpawnError, StartErrorKind, Tee, current_process, func};
use tensorferry_os::socket::{Interest, wait_ready};

use crate::support::{DEADLINE, Meeting, attend, exists, for_every_method, read_to_end, within_deadline};

#[func]
fn add(rank: usize, a: usize, b: usize) -> Result<usize, String> {
    if a == 0 { Err(String::from("nothing to add")) } else { Ok(rank + a + b) }
}

#[func]
fn meet(rank: usize, meeting: String) {
    attend(&meeting, rank);
    std::io::stdout().write_all(b"done").unwrap();
}

/// Meets the test again and again, and is alive all the while.
#[func]
fn meet_often(rank: usize, meeting: String, n_times: usize) {
    (0..n_times).for_each(|_| attend(&meeting, rank));
    std::io::stdout().write_all(b"done").unwrap();
}

#[func]
fn say_seed(_rank: usize) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    writeln!(std::io::stdout(), "{}", std::env::var("TENSORFERRY_SEED")?)?;
    writeln!(std::io::stderr(), "to stderr")?;
    Ok(())
}

#[func]
fn exit_with(_rank: usize, code: i32) {
    std::process::exit(code);
}

/// Its index as the function, this library and the environment have it; an error where it is asked for one.
#[func]
fn tell_rank(rank: usize, fails: bool) -> Result<(usize, Option<usize>, Option<String>), BoxedError> {
    if fails {
        return Err("asked to".into());
    }
    Ok((rank, current_process().rank(), std::env::var("RANK").ok()))
}

fn not_registered(_rank: usize, _text: String) {}

for_every_method! {
    fn a_value_comes_back_and_a_failure_too(method: Context) {
        assert_eq!(method.process(add, (1, 2)).start().unwrap().into_value().unwrap(), 3);
        let mut process = method.process(add, (0, 2)).name("adder").start().unwrap();
        for _ in 0..2 {
            let SpawnError::Failed(errors) = process.join().unwrap_err() else { panic!("it failed") };
            let cause = errors.root_cause();
            assert_eq!((cause.name.as_str(), cause.pid), ("adder", process.pid()));
            assert_eq!(cause.report().unwrap().message, "nothing to add");
        }
        assert_eq!(process.exit_code().unwrap(), Some(1));
    }

    fn a_process_by_itself_can_have_a_rank(method: Context) {
        let told = method.process(tell_rank, (false,)).rank(3).start().unwrap().into_value().unwrap();
        assert_eq!(told, (3, Some(3), Some(String::from("3"))));
        let told = method.process(tell_rank, (false,)).rank(3).env("RANK", "x").start().unwrap().into_value();
        assert_eq!(told.unwrap(), (3, Some(3), Some(String::from("x"))));
        let told = method.process(tell_rank, (false,)).env_remove("RANK").start().unwrap().into_value();
        assert_eq!(told.unwrap(), (0, None, None));

        let mut process = method.process(tell_rank, (true,)).rank(3).start().unwrap();
        let SpawnError::Failed(errors) = process.join().unwrap_err() else { panic!("it failed") };
        assert_eq!(errors.root_cause().rank, 3);
        assert!(errors.to_string().starts_with("process 3 (`"), "{errors}");

        let too_large = method.process(tell_rank, (false,)).rank(usize::MAX).start().unwrap_err();
        assert!(matches!(too_large.into(), StartErrorKind::Process { rank: usize::MAX, .. }));
    }

    fn it_is_watched_until_it_ends(method: Context) {
        let meeting = Meeting::new();
        let mut process = method.process(meet, (meeting.name(),)).start().unwrap();
        let guests = meeting.guests(1);
        assert_eq!(process.pid(), guests[0].pid);
        assert!(process.is_alive().unwrap());
        assert_eq!(process.exit_code().unwrap(), None);
        assert!(!process.join_timeout(Duration::ZERO).unwrap());
        let ready = |process: &tensorferry::spawn::ProcessHandle<()>, timeout| {
            wait_ready(&[(process.sentinel(), Interest::Readable)], Some(timeout)).unwrap()
        };
        assert_eq!(ready(&process, Duration::ZERO), [false]);
        guests[0].release();
        assert_eq!(ready(&process, DEADLINE), [true]);
        assert!(!process.is_alive().unwrap());
        assert_eq!(process.exit_code().unwrap(), Some(0));
        assert!(process.join_timeout(Duration::ZERO).unwrap());
        process.join().unwrap();
        process.kill().unwrap();
    }

    fn it_is_ended_by_each_signal_and_says_which(method: Context) {
        for signal in [15, 9, 2] {
            let meeting = Meeting::new();
            let mut process = method.process(meet, (meeting.name(),)).rank(3).start().unwrap();
            let _guests = meeting.guests(1);
            let refused = process.send_signal(-1).unwrap_err();
            assert!(matches!(refused, SpawnError::Signal { rank: 3, signal: -1, .. }), "{refused}");
            match signal {
                15 => process.terminate(),
                9 => process.kill(),
                _ => process.interrupt(),
            }
            .unwrap();
            let error = process.join().unwrap_err();
            assert!(matches!(error, SpawnError::Failed(_)), "{error}");
            assert_eq!(process.exit_code().unwrap(), Some(-signal));
            assert!(!exists(process.pid()), "it must have been collected");
        }
        let mut process = method.process(exit_with, (123,)).start().unwrap();
        assert!(process.join().is_err());
        assert_eq!(process.exit_code().unwrap(), Some(123));
    }

    fn what_it_writes_is_kept_beside_a_redirected_output_and_it_has_a_seed(method: Context) {
        let dir = std::env::temp_dir().join(format!("tensorferry-alone-{}-{method:?}", std::process::id()));
        let (reader, writer) = std::io::pipe().unwrap();
        let process = method.process(say_seed, ()).name("writer").seed(7).log_dir(&dir).stderr(writer);
        process.start().unwrap().into_value().unwrap();
        let seed = tensorferry::spawn::rank_seed(7, 0).to_string();
        assert_eq!(std::fs::read_to_string(dir.join("stdout.log")).unwrap(), format!("{seed}\n"));
        assert_eq!(read_to_end(reader), "to stderr\n");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "what goes elsewhere is not kept");
        let teed = method.process(say_seed, ()).name("writer").seed(7).log_dir(&dir).tee(Tee::Both).start();
        if method.start_method() == StartMethod::Fork {
            assert!(matches!(teed.unwrap_err().kind, StartErrorKind::TeeWithFork));
        } else {
            teed.unwrap().into_value().unwrap();
            assert_eq!(std::fs::read_to_string(dir.join("stdout.log")).unwrap(), format!("{seed}\n{seed}\n"));
            assert_eq!(std::fs::read_to_string(dir.join("stderr.log")).unwrap(), "to stderr\n");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    fn dropping_its_handle_kills_it(method: Context) {
        let meeting = Meeting::new();
        let (reader, writer) = std::io::pipe().unwrap();
        let process = method.process(meet_often, (meeting.name(), 1)).stdout(writer).start().unwrap();
        let (_guests, pid) = (meeting.guests(1), process.pid());
        within_deadline("the end of the process", move || drop(process));
        assert!(!exists(pid));
        assert_eq!(read_to_end(reader), "");
    }

    fn dropping_its_handle_waits_for_it_where_the_policy_says_so(method: Context) {
        const N_TIMES: usize = 50;
        let meeting = Meeting::new();
        let (reader, writer) = std::io::pipe().unwrap();
        let process = method.process(meet_often, (meeting.name(), N_TIMES)).on_drop(OnDrop::Wait).stdout(writer);
        let process = process.start().unwrap();
        let (mut guests, pid) = (meeting.guests(1), process.pid());
        let dropping = std::thread::spawn(move || drop(process));
        for _ in 1..N_TIMES {
            guests[0].release();
            guests = meeting.guests(1);
        }
        assert!(exists(pid) && !dropping.is_finished(), "it is waited for");
        guests[0].release();
        within_deadline("the end of the process", move || dropping.join().unwrap());
        assert!(!exists(pid));
        assert_eq!(read_to_end(reader), "done");
    }

    fn a_process_that_cannot_be_started_gives_its_arguments_back(method: Context) {
        let text = || (String::from("mine"),);
        let error = method.process(not_registered, text()).start().unwrap_err();
        assert!(matches!(error.kind, StartErrorKind::NotRegistered { .. }), "{error}");
        assert_eq!(error.into_args(), text());
        let error = method.process(meet, text()).current_dir("/no/such/folder").start().unwrap_err();
        assert!(error.to_string().contains("/no/such/folder"), "{error}");
        assert_eq!(error.into_args(), text());
        let error = method.process(meet, text()).cpus([]).on_drop(OnDrop::Wait).start().unwrap_err();
        assert!(error.to_string().contains("sched_setaffinity"), "{error}");
        assert_eq!(error.into_args(), text());
        let error = method.process(meet, text()).cpus([9_999_999]).start().unwrap_err();
        assert!(error.to_string().contains("9999999"), "{error}");
    }
}
