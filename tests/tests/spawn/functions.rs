//! Registered functions: arguments, values, and what cannot be called.

use serde::{Deserialize, Serialize};
use tensorferry::spawn::{Options, SpawnError, StartErrorKind, func, spawn, start_processes};

#[func]
fn nothing(_rank: usize) {}

#[func]
fn index(rank: usize) -> Result<(usize, u32), String> {
    Ok((rank, std::process::id()))
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Task {
    Idle,
    Scale { factors: Vec<f64>, label: Option<String> },
}

#[func]
#[expect(clippy::too_many_arguments, reason = "as many as there can be")]
fn all_arguments(
    rank: usize,
    a: u8,
    b: String,
    c: Vec<f32>,
    d: Option<bool>,
    e: (i64, char),
    f: [u16; 3],
    g: Task,
    h: std::collections::BTreeMap<String, u32>,
) -> Result<String, std::fmt::Error> {
    Ok(format!("{rank} {a} {b} {c:?} {d:?} {e:?} {f:?} {g:?} {h:?}"))
}

#[func]
fn task(rank: usize, task: Task) -> Result<Task, String> {
    match task {
        Task::Idle => Ok(Task::Idle),
        Task::Scale { factors, label } => {
            Ok(Task::Scale { factors: factors.iter().map(|f| f * (rank as f64)).collect(), label })
        }
    }
}

#[func]
fn environment(_rank: usize, names: Vec<String>) -> Result<Vec<Option<String>>, String> {
    Ok(names.iter().map(|name| std::env::var(name).ok()).collect())
}

fn not_registered(_rank: usize) {}

mod same_name {
    pub(crate) mod a {
        #[tensorferry::func]
        pub(crate) fn work(rank: usize) -> Result<String, String> {
            Ok(format!("a{rank}"))
        }
    }

    pub(crate) mod b {
        #[tensorferry::func]
        pub(crate) fn work(rank: usize) -> Result<String, String> {
            Ok(format!("b{rank}"))
        }
    }
}

/// Serialises nowhere.
#[derive(Clone, Debug)]
struct Stubborn;

impl Serialize for Stubborn {
    fn serialize<S: serde::Serializer>(&self, _serializer: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("this one stays here"))
    }
}

impl<'de> Deserialize<'de> for Stubborn {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Self)
    }
}

/// Serialises, and cannot be read again.
#[derive(Debug, Serialize)]
pub(crate) struct OneWay(pub(crate) u8);

impl<'de> Deserialize<'de> for OneWay {
    fn deserialize<D: serde::Deserializer<'de>>(_deserializer: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("no way back"))
    }
}

#[func]
fn take_stubborn(_rank: usize, _argument: Stubborn) {}

#[func]
fn take_one_way(_rank: usize, _argument: OneWay) {}

#[func]
fn give_stubborn(_rank: usize) -> Result<Stubborn, String> {
    Ok(Stubborn)
}

#[test]
fn the_index_comes_first_and_values_come_in_its_order() {
    let values = spawn(index, (), 4).unwrap();
    assert_eq!(values.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(values.iter().all(|(_, pid)| *pid != std::process::id()), "each runs in a process of its own");
    assert_eq!(spawn(nothing, (), 2).unwrap(), [(), ()]);
}

#[test]
fn no_process_is_fine() {
    assert!(spawn(index, (), 0).unwrap().is_empty());
    let mut context = start_processes(nothing, (), 0).unwrap();
    assert!(context.pids().is_empty());
    context.join().unwrap();
}

#[test]
fn up_to_eight_arguments_of_any_serde_type() {
    let map = std::collections::BTreeMap::from([(String::from("k"), 7)]);
    let args = (1, String::from("b"), vec![0.5], None, (-1, 'x'), [1, 2, 3], Task::Idle, map);
    let values = spawn(all_arguments, args, 2).unwrap();
    assert_eq!(values[1], "1 1 b [0.5] None (-1, 'x') [1, 2, 3] Idle {\"k\": 7}");
}

#[test]
fn each_process_has_its_own_clone_of_the_arguments() {
    let scale = |factor| Task::Scale { factors: vec![factor], label: Some(String::from("x")) };
    assert_eq!(spawn(task, (scale(2.5),), 3).unwrap(), [scale(0.0), scale(2.5), scale(5.0)]);
}

#[test]
fn functions_of_one_name_are_told_apart() {
    assert_eq!(spawn(same_name::a::work, (), 1).unwrap(), ["a0"]);
    assert_eq!(spawn(same_name::b::work, (), 1).unwrap(), ["b0"]);
}

#[test]
fn a_registered_function_stays_callable() {
    assert_eq!(same_name::a::work(9).unwrap(), "a9");
}

#[test]
fn what_is_registered_can_be_listed() {
    let found =
        tensorferry::spawn::registered().find(|f| f.name().ends_with("functions::environment")).unwrap();
    assert_eq!(found.arguments(), "(alloc::vec::Vec<alloc::string::String>,)");
}

#[test]
fn the_environment_is_set_for_all_or_for_one() {
    let names = ["ALL", "ONE", "HOME"].map(String::from).to_vec();
    let options = Options::new().env("ALL", "a").env_of(1, "ONE", "b").env_remove("HOME");
    let values = options.spawn(environment, (names,), 2).unwrap();
    let a = Some(String::from("a"));
    assert_eq!(values, [vec![a.clone(), None, None], vec![a, Some(String::from("b")), None]]);
}

#[test]
fn a_function_that_is_not_registered_is_refused_by_name() {
    let error = start_processes(not_registered, (), 1).unwrap_err();
    assert!(matches!(error.kind, StartErrorKind::NotRegistered { .. }));
    let text = error.to_string();
    assert!(text.contains("functions::not_registered") && text.contains("#[func]"), "{text}");
}

#[test]
fn a_closure_and_a_function_pointer_are_refused_with_what_to_do() {
    let text = start_processes(|_rank: usize| (), (), 1).unwrap_err().to_string();
    assert!(text.contains("a closure cannot be spawned"), "{text}");
    let text = start_processes(nothing as fn(usize), (), 1).unwrap_err().to_string();
    assert!(text.contains("pass the function itself"), "{text}");
}

#[test]
fn an_argument_that_cannot_be_sent_is_an_error_in_the_parent() {
    let error = start_processes(take_stubborn, (Stubborn,), 2).unwrap_err();
    assert!(matches!(error.kind, StartErrorKind::Arguments { rank: 0, .. }));
    let text = error.to_string();
    assert!(text.contains("functions::take_stubborn"), "{text}");
}

#[test]
fn an_argument_that_cannot_be_read_is_refused_in_the_child() {
    let SpawnError::Failed(errors) = spawn(take_one_way, (OneWay(1),), 1).unwrap_err() else { panic!() };
    let report = errors.root_cause().report().unwrap();
    assert_eq!(report.kind, tensorferry::spawn::ReportKind::Refused);
    assert!(report.message.starts_with("its arguments cannot be read"), "{report}");
}

#[test]
fn a_value_that_cannot_be_sent_is_a_failure_of_its_process() {
    let SpawnError::Failed(errors) = spawn(give_stubborn, (), 1).unwrap_err() else { panic!() };
    let report = errors.root_cause().report().unwrap();
    assert!(report.message.starts_with("its value cannot be sent"), "{report}");
}

#[test]
fn many_starts_at_once_from_many_threads() {
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(|| spawn(index, (), 3).unwrap().len())).collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 3));
}
