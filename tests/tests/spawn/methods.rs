//! What is the same for every start method: values, settings, tensors, and who outlives whom.

use std::io::Write as _;

use tensorferry::queue::SoleSender;
use tensorferry::spawn::{SpawnError, StartMethod, func};
use tensorferry::{Queue, SharedTensor, Tensor, TensorMut};

use crate::support::{Guest, Meeting, attend, exists, for_every_method, read_to_end};

#[func]
fn index(rank: usize, text: String) -> Result<(usize, u32, String), String> {
    Ok((rank, std::process::id(), format!("{text}{rank}")))
}

#[func]
fn double(_rank: usize, mut tensor: TensorMut<i64>) -> Result<TensorMut<i64>, String> {
    tensor.as_mut_slice().iter_mut().for_each(|element| *element *= 2);
    Ok(tensor)
}

#[func]
fn add_and_tell(
    rank: usize,
    total: SharedTensor<f32>,
    frozen: Tensor<u8>,
    told: Queue<(usize, Tensor<u8>)>,
) -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
    total.add_from(&[1.0, rank as f32])?;
    told.put((rank, TensorMut::full([100], u8::try_from(rank)?)?.freeze()))?;
    Ok(frozen.get([7])?)
}

#[func]
fn put_seven(_: usize, mut to: SoleSender<u8>) -> Result<(), String> {
    to.put(7).map_err(|e| e.to_string())
}

/// What it is called, where it runs, two variables, its nice value, its processors.
#[func]
fn describe(rank: usize, gone: String) -> Result<[String; 7], std::io::Error> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The 19th field; the 3rd is the first after the name (proc_pid_stat(5)).
    let nice = stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().to_owned();
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let comm = std::fs::read_to_string("/proc/self/comm")?.trim().to_owned();
    let dir = std::env::current_dir()?.display().to_string();
    writeln!(std::io::stdout(), "out of {rank}")?;
    writeln!(std::io::stderr(), "err of {rank}")?;
    let mut input = String::new();
    std::io::Read::read_to_string(&mut std::io::stdin(), &mut input)?;
    assert_eq!(input, "");
    Ok([comm, dir, variable("COLOUR"), variable("RANK"), variable(&gone), nice, allowed_cpus()])
}

/// `0-3,8`.
fn allowed_cpus() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

#[func]
fn leaf(rank: usize, meeting: String) {
    attend(&meeting, rank);
}

/// Starts two leaves of its own by the method that counts here, and waits for them.
#[func]
fn branch(rank: usize, meeting: String) -> Result<(), SpawnError> {
    let mut leaves = tensorferry::spawn::start_processes(leaf, (meeting.clone(),), 2)?;
    attend(&meeting, 10 + rank);
    leaves.join()?;
    Ok(())
}

/// A main process: a branch with two leaves, all by one method.
#[func]
fn trunk(_rank: usize, method: StartMethod, meeting: String) -> Result<(), SpawnError> {
    tensorferry::spawn::force_start_method(method);
    tensorferry::spawn::start_processes(branch, (meeting,), 1)?.join()?;
    Ok(())
}

#[func]
fn say_method(_rank: usize) -> Result<StartMethod, String> {
    Ok(tensorferry::spawn::get_start_method())
}

/// What a process finds as its default, started by one method from a process whose default is another one.
#[func]
fn default_of_a_process(
    _rank: usize,
    default: StartMethod,
    by: StartMethod,
) -> Result<StartMethod, SpawnError> {
    tensorferry::spawn::force_start_method(default);
    Ok(tensorferry::spawn::get_context(by).spawn(say_method, (), 1)?.remove(0))
}

for_every_method! {
    fn values_come_in_order_from_processes_of_their_own(context: Context) {
        let values = context.spawn(index, (String::from("n"),), 4).unwrap();
        for (rank, (found, pid, text)) in values.iter().enumerate() {
            assert_eq!((*found, text), (rank, &format!("n{rank}")));
            assert_ne!(*pid, std::process::id());
        }
        assert!(context.spawn(index, (String::new(),), 0).unwrap().is_empty());
        let alone = context.process(index, (String::from("x"),)).start().unwrap();
        let pid = alone.pid();
        assert_eq!(alone.into_value().unwrap(), (0, pid, String::from("x0")));
    }

    fn dropping_a_context_leaves_no_process(context: Context) {
        let meeting = Meeting::new();
        let processes = context.start_processes(leaf, (meeting.name(),), 3).unwrap();
        let guests = meeting.guests(3);
        drop(processes);
        assert!(guests.iter().all(|guest| !exists(guest.pid)));
    }

    fn it_is_what_it_was_made_to_be(context: Context) {
        let cpus = allowed_cpus();
        let last: usize = cpus.rsplit([',', '-']).next().unwrap().parse().unwrap();
        let (out, to_out) = std::io::pipe().unwrap();
        let (err, to_err) = std::io::pipe().unwrap();
        let process = context
            .process(describe, (String::from("HOME"),))
            .name("painter")
            .current_dir("/proc")
            .env("COLOUR", "red")
            .env("COLOUR", "green")
            .env_remove("HOME")
            .nice(19)
            .cpus([last])
            .stdout(to_out)
            .stderr(to_err)
            .start()
            .unwrap();
        let rank = std::env::var("RANK").unwrap_or_default();
        assert_eq!(
            process.into_value().unwrap(),
            ["painter", "/proc", "green", &rank, "", "19", &last.to_string()]
        );
        assert_eq!((read_to_end(out), read_to_end(err)), ("out of 0\n".into(), "err of 0\n".into()));
        // Without settings: where this process is, and what it has.
        let dir = std::env::temp_dir().join(format!("tensorferry-made-{}-{context:?}", std::process::id()));
        let values = context.options().log_dir(&dir).spawn(describe, (String::from("PATH"),), 2).unwrap();
        let here = std::env::current_dir().unwrap().display().to_string();
        for (rank, value) in values.iter().enumerate() {
            assert_eq!(value[0], format!("describe {rank}"));
            assert_eq!((&value[1], &value[3]), (&here, &rank.to_string()));
            assert_eq!((&value[4], &value[6]), (&std::env::var("PATH").unwrap(), &cpus));
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    fn a_setting_that_is_refused_leaves_no_process(context: Context) {
        let text = || (String::from("n"),);
        let error = context.process(index, text()).current_dir("/no/such/folder").start().unwrap_err();
        assert!(error.to_string().contains("/no/such/folder"), "{error}");
        for (name, value) in [("=x", "1"), ("", "1"), ("a=b", "1"), ("a\0b", "1"), ("A", "1\0")] {
            let error = context.process(index, text()).env(name, value).start().unwrap_err();
            assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
            assert_eq!(error.into_args(), text());
        }
        let error = context.process(index, text()).cpus([9_999_999]).start().unwrap_err();
        assert!(error.to_string().contains("9999999"), "{error}");
        assert_eq!(context.process(index, text()).start().unwrap().into_value().unwrap().2, "n0");
    }

    fn tensors_go_and_come_by_handle(context: Context) {
        let total = SharedTensor::<f32>::zeros([2]).unwrap();
        let frozen = TensorMut::full([64], 9_u8).unwrap().freeze();
        let told = Queue::new(4).unwrap();
        let values = context.spawn(add_and_tell, (total.clone(), frozen, told.clone()), 3).unwrap();
        assert_eq!(values, [9, 9, 9]);
        assert_eq!(total.to_vec(), [3.0, 3.0]);
        for _ in 0..3 {
            let (rank, tensor) = told.get().unwrap();
            assert!(tensor.iter().all(|&element| usize::from(element) == rank));
        }
        let tensor = TensorMut::from_slice(&[1, 2, 3], [3]).unwrap();
        let mut doubled = context.spawn(double, (tensor,), 1).unwrap();
        assert_eq!(doubled[0].as_slice(), [2, 4, 6]);
        let (to, mut from) = tensorferry::queue::spsc::<u8>(2).unwrap();
        context.spawn(put_seven, (to,), 1).unwrap();
        assert_eq!(from.get().unwrap(), 7);
    }

    fn its_own_processes_are_started_by_the_same_method_and_none_outlives_it(context: Context) {
        for signal in [9, 15] {
            let meeting = Meeting::new();
            let trunk = get_context(StartMethod::Spawn).process(trunk, (context.start_method(), meeting.name()));
            let trunk = trunk.start().unwrap();
            let guests = meeting.guests(3);
            assert_eq!(guests.iter().map(|guest| guest.rank).collect::<Vec<_>>(), [0, 1, 10]);
            trunk.send_signal(signal).unwrap();
            guests.iter().for_each(Guest::wait_gone);
        }
        let meeting = Meeting::new();
        let branch = context.process(branch, (meeting.name(),)).start().unwrap();
        let guests = meeting.guests(3);
        branch.kill().unwrap();
        guests.iter().for_each(Guest::wait_gone);
    }

    fn the_default_of_the_parent_is_that_of_its_processes(context: Context) {
        for default in StartMethod::all() {
            let process = get_context(StartMethod::Spawn)
                .process(default_of_a_process, (default, context.start_method()))
                .start()
                .unwrap();
            assert_eq!(process.into_value().unwrap(), default);
        }
    }
}
