//! Shared memory in arguments and values: by handle, without a copy, and longer than the process that made
//! it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tensorferry::queue::SoleSender;
use tensorferry::reduce::bytes_copied;
use tensorferry::spawn::{Options, SpawnError, StartErrorKind, func, start_processes};
use tensorferry::{Bundle, Queue, SharedTensor, Tensor, TensorMut};

use crate::support::{DEADLINE, Guest, Meeting, attend, for_every_method};

#[derive(Serialize, Deserialize)]
struct Model {
    weights: SharedTensor<f32>,
    label: String,
}

#[func]
fn add_rank(rank: usize, model: Model, times: u32) -> Result<String, String> {
    for _ in 0..times {
        model.weights.add_from(&[1.0, rank as f32]).map_err(|e| e.to_string())?;
    }
    Ok(format!("{}{rank}", model.label))
}

#[func]
fn ramp(rank: usize, len: usize) -> Result<Tensor<u64>, Box<dyn std::error::Error + Send + Sync>> {
    let mut tensor = TensorMut::zeros([len])?;
    for (n, element) in tensor.as_mut_slice().iter_mut().enumerate() {
        *element = (n + rank) as u64;
    }
    Ok(tensor.freeze())
}

#[func]
fn sum_and_alias(_rank: usize, a: Tensor<i32>, view: Tensor<i32>) -> Result<(i32, bool, u64), String> {
    Ok((a.iter().chain(view.iter()).sum(), a.shares_storage_with(&view), bytes_copied()))
}

#[func]
fn scaled(
    rank: usize,
    parameters: Bundle,
) -> Result<(Bundle, f32), Box<dyn std::error::Error + Send + Sync>> {
    let sum: f32 = parameters.entry("weight")?.as_slice::<f32>()?.iter().sum();
    parameters.shared_tensor::<u64>("calls")?.fetch_add([0], 1)?;
    let weight = parameters.tensor::<f32>("weight")?;
    let mut own = TensorMut::zeros([weight.n_elements()])?;
    for (to, from) in own.as_mut_slice().iter_mut().zip(weight.iter()) {
        *to = from * rank as f32;
    }
    Ok((Bundle::builder().add("weight", weight).add("scaled", own.freeze()).build()?, sum))
}

#[func]
fn double(_rank: usize, mut tensor: TensorMut<i64>) -> Result<TensorMut<i64>, String> {
    tensor.as_mut_slice().iter_mut().for_each(|element| *element *= 2);
    Ok(tensor)
}

#[func]
fn put_one(
    rank: usize,
    queue: Queue<(usize, Tensor<u8>)>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let tensor = TensorMut::full([100 * (rank + 1)], u8::try_from(rank)?)?.freeze();
    queue.put((rank, tensor))?;
    Ok(())
}

#[func]
fn hold(rank: usize, meeting: String, tensor: Tensor<u8>) -> Result<u8, String> {
    attend(&meeting, rank);
    tensor.get([5]).map_err(|e| e.to_string())
}

#[test]
fn what_cannot_be_started_gives_its_arguments_back_whole() {
    let (to, _from) = tensorferry::queue::spsc::<u8>(2).unwrap();
    let args = || (TensorMut::from_slice(&[1, 2, 3], [3]).unwrap(),);
    // The second parcel is refused after the first one was packed.
    let refused = start_processes(double, args(), 2).unwrap_err();
    assert_eq!(refused.into_args().0.as_slice(), [1, 2, 3]);
    // There is no such program, so nobody receives what was packed for it.
    let nowhere = Options::new().executable("/nonexistent");
    let refused = nowhere.start_processes(double, args(), 1).unwrap_err();
    assert!(matches!(refused.kind, StartErrorKind::Process { rank: 0, .. }), "{refused}");
    let (mut tensor,) = refused.into_args();
    assert_eq!(tensor.as_slice(), [1, 2, 3]);
    let refused = nowhere.start_processes(put_seven, (to,), 1).unwrap_err();
    let (mut to,) = refused.into_args();
    to.put(7).unwrap();
}

#[func]
fn put_seven(_: usize, mut to: SoleSender<u8>) -> Result<(), String> {
    to.put(7).map_err(|e| e.to_string())
}

#[test]
fn more_processes_than_a_domain_has_places_are_refused_before_the_first_starts() {
    let error = start_processes(nap, (), 63).unwrap_err();
    assert!(matches!(error.kind, StartErrorKind::TooMany { nprocs: 63, places: 63, .. }), "{error}");
    assert!(start_processes(nap, (), usize::MAX).is_err());
}

#[func]
fn nap(_: usize) {}

for_every_method! {
    fn a_shared_tensor_is_the_same_in_every_process(method: Context) {
        let weights = SharedTensor::<f32>::zeros([2]).unwrap();
        let model = Model { weights: weights.clone(), label: String::from("m") };
        assert_eq!(method.spawn(add_rank, (model, 500), 3).unwrap(), ["m0", "m1", "m2"]);
        assert_eq!(weights.to_vec(), [1500.0, 1500.0]);
    }

    fn what_a_process_returns_outlives_it(method: Context) {
        let tensors = method.spawn(ramp, (100_000,), 3).unwrap();
        for (rank, tensor) in tensors.iter().enumerate() {
            assert!(tensor.is_shared());
            assert_eq!(tensor.get([99_999]).unwrap(), (99_999 + rank) as u64);
        }
        // The memory of a dead process is memory like any other, once its death has been dealt with.
        let mut last = tensors.into_iter().next_back().unwrap();
        let start = Instant::now();
        let mut again = loop {
            match last.try_into_mut() {
                Ok(tensor) => break tensor,
                Err(error) => last = error.into_tensor(),
            }
            assert!(start.elapsed() < DEADLINE, "the dead process still holds its tensor");
            std::thread::yield_now();
        };
        again.as_mut_slice()[0] = 7;
        assert_eq!(again.as_slice()[0..2], [7, 3]);
    }

    fn views_of_one_storage_arrive_as_such_and_nothing_is_copied_for_them(method: Context) {
        let whole = TensorMut::from_slice(&(0..1000).collect::<Vec<i32>>(), [1000]).unwrap().freeze();
        let view = whole.narrow(0, 990, 10).unwrap();
        let values = method.spawn(sum_and_alias, (whole, view), 2).unwrap();
        assert_eq!(values, [(499_500 + 9945, true, 0); 2]);
    }

    fn a_bundle_goes_to_every_process_and_comes_back_from_those_that_have_ended(method: Context) {
        let weight = TensorMut::from_slice(&[1.0_f32, 2.0, 3.0], [3]).unwrap().freeze();
        let calls = SharedTensor::<u64>::zeros([1]).unwrap();
        let parameters =
            Bundle::builder().add("weight", &weight).add("calls", &calls).build().unwrap();
        let copied = bytes_copied();
        let values = method.spawn(scaled, (parameters,), 3).unwrap();
        assert_eq!(bytes_copied(), copied);
        assert_eq!(calls.to_vec(), [3]);
        for (rank, (bundle, sum)) in values.iter().enumerate() {
            assert_eq!(*sum, 6.0);
            let scaled: Vec<_> = [1.0, 2.0, 3.0].map(|element| element * rank as f32).into();
            assert_eq!(bundle.entry("scaled").unwrap().as_slice::<f32>().unwrap(), scaled);
            assert!(bundle.tensor::<f32>("weight").unwrap().shares_storage_with(&weight));
        }
    }

    fn an_exclusive_tensor_cannot_go_to_two_processes(method: Context) {
        let tensor = TensorMut::<i64>::zeros([3]).unwrap();
        let error = method.spawn(double, (tensor,), 2).unwrap_err();
        assert!(matches!(error, SpawnError::Start(StartErrorKind::Arguments { rank: 1, .. })), "{error}");
        assert!(error.to_string().contains("freeze()"), "{error}");
    }

    fn tensors_through_a_queue_that_is_an_argument(method: Context) {
        let queue = Queue::new(4).unwrap();
        method.spawn(put_one, (queue.clone(),), 3).unwrap();
        let mut got: Vec<_> = (0..3).map(|_| queue.get().unwrap()).collect();
        got.sort_by_key(|(rank, _)| *rank);
        for (rank, tensor) in got {
            assert_eq!(tensor.n_elements(), 100 * (rank + 1));
            assert!(tensor.iter().all(|&element| usize::from(element) == rank));
        }
    }

    fn an_argument_stays_alive_for_its_process_when_the_parent_lets_go(method: Context) {
        let meeting = Meeting::new();
        let tensor = TensorMut::full([64], 9_u8).unwrap().freeze();
        let mut context = method.start_processes(hold, (meeting.name(), tensor), 2).unwrap();
        let guests = meeting.guests(2);
        // The parent has no handle of it any more. Memory of that size is asked for and overwritten.
        for _ in 0..100 {
            assert!(!context.join_timeout(Duration::ZERO).unwrap());
            drop([TensorMut::full([64], 0_u8).unwrap(), TensorMut::full([64], 1_u8).unwrap()]);
        }
        guests.iter().for_each(Guest::release);
        assert_eq!(context.into_values().unwrap(), [9, 9]);
    }
}
