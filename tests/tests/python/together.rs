//! A program in Rust and one in Python.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tensorferry::listen::{Listener, connect_any};
use tensorferry::queue::{GetError, Queue, Receiver, Sender, channel_in};
use tensorferry::reduce::bytes_copied;
use tensorferry::sync::Lock;
use tensorferry::{Bundle, Tensor, TensorMut};
use tensorferry_kit::{Child, DEADLINE, Family, uncounted, where_possible, with_family};

use crate::{address, program};

#[derive(Debug, Serialize, Deserialize)]
struct Batch {
    step: u32,
    images: Tensor<f32>,
    labels: Tensor<i64>,
    note: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Kind {
    Done { shape: (usize, usize) },
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    step: u32,
    total: f64,
    note: Option<String>,
    labels: Tensor<i64>,
    kind: Kind,
}

#[test]
fn batches_go_to_python_and_answers_come_back_without_a_copy() {
    where_possible(|| {
        with_family(|family| {
            let address = address();
            let child = program("consumer.py", &[&address, "wait"]);
            child.expect("connecting");
            child.wait_until_asleep();
            let listener = Listener::bind_in(family.heap(), &address).unwrap();
            let mut connection = listener.accept_timeout::<Batch, Answer>(2, DEADLINE).unwrap();
            child.expect("connected");
            let copied = bytes_copied();
            for step in 0..20_u8 {
                let mut images = TensorMut::empty_in(family.heap(), [4, 5]).unwrap();
                images.as_mut_slice().fill(f32::from(step));
                let labels = TensorMut::from_slice_in(family.heap(), &[1, 2, i64::from(step)], [3]).unwrap();
                let (images, labels) = (images.freeze(), labels.freeze());
                let note = (step % 2 == 0).then(|| format!("step {step}"));
                let batch = Batch { step: step.into(), images, labels: labels.clone(), note: note.clone() };
                connection.send(batch).unwrap();
                let answer = connection.recv().unwrap();
                assert_eq!((answer.step, answer.note), (u32::from(step), note));
                assert_eq!(answer.total.to_bits(), (20.0 * f64::from(step)).to_bits());
                assert_eq!(answer.labels, labels);
                assert!(!answer.labels.shares_storage_with(&labels));
                let Kind::Done { shape } = answer.kind;
                assert_eq!(shape, (4, 5));
            }
            assert_eq!(bytes_copied(), copied);
            drop(connection);
            child.expect("copied 0");
            child.finish();
        });
    });
}

#[test]
fn a_buffer_is_as_it_was_asked_for_or_is_not_lent() {
    /// Elements, strides in bytes, and what is lent.
    type Seen = (Vec<Vec<u8>>, Vec<isize>, [bool; 6]);
    where_possible(|| {
        with_family(|family| {
            let address = address();
            let listener = Listener::bind_in(family.heap(), &address).unwrap();
            let child = program("strided.py", &[&address]);
            let mut connection = listener.accept_timeout::<Tensor<u8>, Seen>(2, DEADLINE).unwrap();
            let whole = TensorMut::from_slice_in(family.heap(), &[1, 2, 3, 4], [2, 2]).unwrap().freeze();
            // Without strides, with a shape, with strides, in rows, in columns, side by side.
            for (tensor, elements, strides, lent) in [
                (whole.clone(), [[1, 2], [3, 4]], [2, 1], [true, true, true, true, false, true]),
                (
                    whole.transpose(0, 1).unwrap(),
                    [[1, 3], [2, 4]],
                    [1, 2],
                    [false, false, true, false, false, false],
                ),
                (
                    whole.narrow(0, 1, 1).unwrap().expand([2, 2]).unwrap(),
                    [[3, 4], [3, 4]],
                    [0, 1],
                    [false, false, true, false, false, false],
                ),
            ] {
                connection.send(tensor).unwrap();
                let seen = connection.recv().unwrap();
                assert_eq!(seen, (elements.map(Vec::from).to_vec(), strides.to_vec(), lent));
            }
            drop(connection);
            child.finish();
        });
    });
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Work {
    n: u64,
    data: Tensor<u8>,
}

type Found = (u64, Tensor<u8>);

/// A worker in Python with both ends, through which it may get and put.
fn worker(family: &Family) -> (Child, Sender<Work>, Receiver<Found>) {
    let address = address();
    let listener = Listener::bind_in(family.heap(), &address).unwrap();
    let child = program("worker.py", &[&address]);
    let mut connection = listener.accept_timeout::<(Receiver<Work>, Sender<Found>), ()>(1, DEADLINE).unwrap();
    let (tasks, todo) = channel_in(family.heap(), 3).unwrap();
    let (found, results) = channel_in(family.heap(), 3).unwrap();
    connection.send((todo, found)).unwrap();
    child.expect("tensorferry.Queue(maxsize=3, only to get) tensorferry.Queue(maxsize=3, only to put)");
    (child, tasks, results)
}

fn work(family: &Family, n: u64) -> Work {
    let data = TensorMut::from_slice_in(family.heap(), &[1, 2, 3], [3]).unwrap().freeze();
    Work { n, data }
}

#[test]
fn queues_travel_to_python_and_their_ends_are_told_to_both_sides() {
    where_possible(|| {
        with_family(|family| {
            let (child, tasks, results) = worker(family);
            child.say("get");
            child.expect("waiting");
            let sent = work(family, 41);
            let id = sent.data.storage_id();
            tasks.put(sent).unwrap();
            child.expect("put");
            let (n, data) = results.get().unwrap();
            assert_eq!((n, data.storage_id(), data.to_vec()), (42, id, vec![1, 2, 3]));
            // What is none of its values is an error of the receiver.
            child.say("wrong");
            child.expect("put");
            let error = results.get().unwrap_err();
            assert!(matches!(error, GetError::Decode(_)), "{error}");
            child.say("get");
            child.expect("waiting");
            drop(tasks);
            child.expect("Closed");
            child.finish();
            assert!(matches!(results.get(), Err(GetError::Disconnected)));
        });
    });
}

#[test]
fn a_killed_worker_in_python_is_told_and_what_it_held_comes_back() {
    where_possible(|| {
        with_family(|family| {
            let (child, tasks, results) = worker(family);
            child.say("hold");
            tasks.put(work(family, 1)).unwrap();
            child.expect("3");
            child.kill();
            assert!(matches!(results.get(), Err(GetError::PeerDied)));
            drop((tasks, results));
            // No block, member or descriptor is left: `with_family` looks.
        });
    });
}

#[test]
fn who_waits_in_python_hears_an_interrupt() {
    where_possible(|| {
        with_family(|family| {
            let (child, _tasks, _results) = worker(family);
            child.say("get");
            child.expect("waiting");
            child.wait_until_asleep();
            kill(Pid::from_raw(child.pid().try_into().unwrap()), Signal::SIGINT).unwrap();
            child.expect("KeyboardInterrupt");
            child.finish();
        });
    });
}

#[test]
fn bundles_are_dicts_and_what_python_has_no_class_for_is_refused() {
    where_possible(|| {
        with_family(|family| {
            let address = address();
            let listener = Listener::bind_in(family.heap(), &address).unwrap();
            let child = program("worker.py", &[&address]);
            let any = listener.accept_any(4, Some(DEADLINE)).unwrap();
            let (ends, _) = any.clone().into_ends::<(Receiver<u8>, Sender<u8>), ()>().unwrap();
            let queue = Queue::<u8>::new_in(family.heap(), 1).unwrap();
            ends.put((queue.receiver().unwrap(), queue.sender().unwrap())).unwrap();
            child.hear();
            let (locks, _) = any.clone().into_ends::<Vec<Lock>, ()>().unwrap();
            locks.put(vec![Lock::new_in(family.heap()).unwrap()]).unwrap();
            child.say("refused");
            let said = child.hear();
            assert!(said.contains("holds a lock, a sealed tensor or the like"), "{said}");
            let (bundles, _) = any.into_ends::<Bundle, ()>().unwrap();
            let weights = TensorMut::from_slice_in(family.heap(), &[1.0_f32, 2.0], [2]).unwrap().freeze();
            let bundle = Bundle::builder().add("weight", weights.clone()).add("bias", weights);
            bundles.put(bundle.build_in(family.heap()).unwrap()).unwrap();
            child.say("refused");
            let tensor = "tensorferry.Tensor(shape=(2,), dtype='float32')";
            child.expect(&format!("{{'weight': {tensor}, 'bias': {tensor}}}"));
            child.say("end");
            child.finish();
        });
    });
}

#[test]
fn a_host_in_python_is_connected_to_from_rust() {
    // This process is a member of that domain from here on.
    let run = || {
        let address = address();
        let child = program("host.py", &[&address]);
        child.expect("listening");
        // Python's domain is joined here.
        let (sender, receiver) = connect_any(&address, Some(DEADLINE))
            .unwrap()
            .into_ends::<Tensor<i32>, (Tensor<i32>, TensorMut<i32>)>()
            .unwrap();
        let sent = TensorMut::from_slice(&[1, -2, 3], [3]).unwrap().freeze();
        sender.put(sent.clone()).unwrap();
        let (same, mut doubled) = receiver.get().unwrap();
        assert_eq!(same.storage_id(), sent.storage_id());
        assert_eq!(doubled.as_slice(), [2, -4, 6]);
        // It is exclusive, and so it is this process's now.
        doubled.as_mut_slice()[0] = 5;
        drop((sender, receiver));
        child.expect("the connection is closed");
        child.finish();
    };
    where_possible(|| uncounted(run));
}
