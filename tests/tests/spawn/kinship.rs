//! Who is whose: this process, its parent, its children; names; daemonic processes; handles that are closed.

use std::time::Duration;

use tensorferry::spawn::{
    CloseErrorKind, OnDrop, SpawnError, StartMethod, active_children, cpu_count, current_process, func,
    get_context, parent_process,
};
use tensorferry_os::socket::{Interest, wait_ready};
use tensorferry_process::{Failure, Inherited, Start};

use crate::support::{
    DEADLINE, Meeting, attend, exists, for_every_method, for_every_program, told, within_deadline,
};

tensorferry_process::entry! {
    static ALONE = "test.alone-with-children" => alone_with_children;
}

/// Name, rank, whether it is the main process, whether it is daemonic, its own number and its parent's; its
/// parent's name.
type Told = (String, Option<usize>, bool, bool, u32, u32, String);

#[func]
fn tell(_rank: usize) -> Result<Told, String> {
    let me = current_process();
    let parent = parent_process().ok_or("no parent")?;
    if !parent.is_alive().map_err(|e| e.to_string())? {
        return Err(String::from("the parent is dead"));
    }
    if parent.join_timeout(Duration::ZERO).map_err(|e| e.to_string())? {
        return Err(String::from("the parent was waited for"));
    }
    let ready = wait_ready(&[(parent.sentinel(), Interest::Readable)], Some(Duration::ZERO));
    if ready.map_err(|e| e.to_string())? != [false] {
        return Err(String::from("the parent's sentinel is readable"));
    }
    Ok((
        me.name().to_owned(),
        me.rank(),
        me.is_main(),
        me.is_daemon(),
        me.pid(),
        parent.pid(),
        parent.name().to_owned(),
    ))
}

/// What two children without a name tell, and one that is named.
#[func]
fn tell_of_children(_rank: usize, method: StartMethod) -> Result<(Told, Vec<Told>), SpawnError> {
    let method = get_context(method);
    let first = method.process(tell, ()).start()?.into_value()?;
    let second = method.process(tell, ()).start()?.into_value()?;
    let named = method.process(tell, ()).name("named").start()?.into_value()?;
    Ok((tell(0).unwrap(), vec![first, second, named]))
}

#[func]
fn meet(rank: usize, meeting: String) {
    attend(&meeting, rank);
}

/// Tries to start a process in each way there is.
#[func]
fn try_to_start(_rank: usize, method: StartMethod) -> Result<(String, String), String> {
    let method = get_context(method);
    let alone = method.process(tell, ()).start().err().map(|error| error.to_string());
    let several = method.start_processes(tell, (), 2).err().map(|error| error.to_string());
    alone.zip(several).ok_or_else(|| String::from("it has started one"))
}

/// A process in which nobody else starts any: who its children are, while they live.
fn alone_with_children(inherited: &mut Inherited) -> Result<(), Failure> {
    let (start_method, meeting) = told(inherited);
    let (method, meeting) = (get_context(start_method), meeting.to_owned());
    assert!(active_children()?.is_empty());
    let mut context = method.options().name("worker").start_processes(meet, (meeting.clone(),), 2)?;
    let single = method.process(meet, (meeting.clone(),)).daemon();
    // From another thread, where nobody in this one has a handle; but a fork is made on the main thread.
    let single = match start_method {
        StartMethod::Fork => single.start()?,
        _ => std::thread::spawn(move || single.start()).join().unwrap()?,
    };
    let told = |child: &tensorferry::spawn::ChildProcess| {
        (child.name().to_owned(), child.pid(), child.rank(), child.is_daemon())
    };
    let active: Vec<_> = active_children()?.iter().map(told).collect();
    let pids = context.pids();
    assert_eq!(
        active,
        [
            (String::from("worker 0"), pids[0], Some(0), false),
            (String::from("worker 1"), pids[1], Some(1), false),
            (String::from("Process-3"), single.pid(), None, true),
        ]
    );
    assert_eq!(context.processes().iter().map(told).collect::<Vec<_>>(), active[..2]);

    // One of them is ended by somebody who has not started it, and who does not collect it.
    let second = active_children()?.remove(1);
    second.kill()?;
    assert!(second.join_timeout(DEADLINE)?);
    assert!(!second.is_alive()?);
    // A fork server collects its children itself.
    assert!(exists(second.pid()) || start_method == StartMethod::Forkserver);
    assert_eq!(active_children()?.len(), 2, "the dead are not active");
    context.set_grace_period(Duration::ZERO);
    assert!(context.join().is_err(), "its failure is told to whom it belongs");
    assert!(!exists(second.pid()));
    second.terminate()?;
    assert_eq!(active_children()?.iter().map(|child| child.pid()).collect::<Vec<_>>(), [single.pid()]);
    drop(single);
    assert!(active_children()?.is_empty());
    Ok(())
}

#[func]
fn count_processors(_rank: usize) -> Result<usize, String> {
    Ok(cpu_count())
}

#[test]
fn what_this_library_has_not_started_is_a_main_process() {
    let me = current_process();
    assert_eq!((me.name(), me.rank(), me.is_main()), ("MainProcess", None, true));
    assert!(parent_process().is_none());
}

for_every_method! {
    fn a_child_knows_itself_and_its_parent(method: Context) {
        let told = method.options().name("worker").spawn(tell, (), 2).unwrap();
        for (rank, (name, rank_told, is_main, is_daemon, _, parent, parent_name)) in told.into_iter().enumerate()
        {
            assert_eq!((name, rank_told), (format!("worker {rank}"), Some(rank)));
            assert!(!is_main && !is_daemon);
            assert_eq!((parent, parent_name.as_str()), (std::process::id(), current_process().name()));
        }
    }

    fn a_process_without_a_name_is_called_by_its_number_in_each_generation(method: Context) {
        let (me, children) = method.process(tell_of_children, (method.start_method(),)).start().unwrap().into_value().unwrap();
        let number = me.0.strip_prefix("Process-").unwrap();
        assert!(number.rsplit(':').next().unwrap().parse::<u32>().unwrap() >= 1, "{number}");
        let names: Vec<_> = children.iter().map(|child| child.0.as_str()).collect();
        assert_eq!(names, [&format!("Process-{number}:1"), &format!("Process-{number}:2"), "named"]);
        for child in &children {
            assert_eq!((child.1, child.5, &child.6), (None, me.4, &me.0));
        }
    }

    fn a_daemonic_process_starts_no_other(method: Context) {
        let told = method.options().name("worker").daemon().spawn(tell, (), 1).unwrap().remove(0);
        assert!(told.3);
        let process = method.process(try_to_start, (method.start_method(),)).name("helper").daemon().start().unwrap();
        assert!(process.is_daemon());
        let (alone, several) = process.into_value().unwrap();
        for refused in [alone, several] {
            assert!(refused.contains("`helper`") && refused.contains("daemonic"), "{refused}");
        }
        // The same function in a process that is not.
        let error = method.process(try_to_start, (method.start_method(),)).start().unwrap().into_value().unwrap_err();
        assert!(error.to_string().contains("it has started one"), "{error}");
    }

    fn a_daemonic_process_is_never_waited_for(method: Context) {
        let meeting = Meeting::new();
        let process = method.process(meet, (meeting.name(),)).daemon().on_drop(OnDrop::Wait).start().unwrap();
        let (_guests, pid) = (meeting.guests(1), process.pid());
        within_deadline("the end of the process", move || drop(process));
        assert!(!exists(pid));
        let context = method.options().daemon().on_drop(OnDrop::Wait).start_processes(meet, (meeting.name(),), 2);
        let (context, guests) = (context.unwrap(), meeting.guests(2));
        within_deadline("the end of the processes", move || drop(context));
        assert!(guests.iter().all(|guest| !exists(guest.pid)));
    }

    fn a_handle_is_closed_when_its_process_has_ended_and_comes_back_when_not(method: Context) {
        let meeting = Meeting::new();
        let process = method.process(meet, (meeting.name(),)).name("busy").start().unwrap();
        let guests = meeting.guests(1);
        let refused = process.close().unwrap_err();
        assert!(matches!(refused.kind, CloseErrorKind::Running), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("`busy`") && text.contains("still runs"), "{text}");
        let mut process = refused.handle;
        assert!(process.is_alive().unwrap(), "a refusal does nothing to it");
        guests[0].release();
        guests[0].wait_gone();
        let pid = process.pid();
        process.join().unwrap();
        process.close().unwrap();
        assert!(!exists(pid));
        // That it failed is no reason to keep it.
        let process = method.process(tell_of_children, (method.start_method(),)).name("x").daemon().start().unwrap();
        process.kill().unwrap();
        assert!(wait_ready(&[(process.sentinel(), Interest::Readable)], Some(DEADLINE)).unwrap()[0]);
        let pid = process.pid();
        process.close().unwrap();
        assert!(!exists(pid), "closing collects it");
    }

    fn there_are_as_many_processors_as_this_process_may_use(method: Context) {
        assert_eq!(cpu_count(), std::thread::available_parallelism().unwrap().get());
        let cpus = std::fs::read_to_string("/proc/self/status").unwrap();
        let cpus = cpus.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        let last: usize = cpus.rsplit([',', '-']).next().unwrap().parse().unwrap();
        let counted = method.options().cpus([last]).spawn(count_processors, (), 1).unwrap();
        assert_eq!(counted, [1], "those that it may run on");
        assert_eq!(method.spawn(count_processors, (), 1).unwrap(), [cpu_count()]);
    }
}

for_every_program! {
    fn active_children_are_those_that_run_whoever_has_started_them(method: StartMethod) {
        let meeting = Meeting::new();
        let mut child = Start::new(&ALONE).payload(format!("{method} {}", meeting.name())).start().unwrap();
        let exit = child.wait_timeout(DEADLINE).unwrap().expect("it did not end");
        assert!(exit.is_success(), "{exit:#}");
    }
}
