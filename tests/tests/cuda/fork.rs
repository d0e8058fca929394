//! The start method fork, before and after the driver was initialised, and from a process that has things of
//! others' drivers.
//!
//! # Safety
//! The process that is forked keeps no slice of shared memory.
#![expect(unsafe_code, reason = "allows the start method fork")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::error::Error;
use std::io::Read as _;

use tensorferry::queue::Queue;
use tensorferry::spawn::{StartMethod, func, get_context};
use tensorferry::storage::Heap;
use tensorferry_cuda_ipc::{CudaTensor, Driver, IpcEvent, Stream};
use tensorferry_kit::{DEADLINE, Machine, alone, uncounted, until, where_possible};
use tensorferry_process::{Entry, Failure, Inherited, Start};

tensorferry_process::entry! {
    static FORKS = "test.cuda-forks" => forks;
}

tensorferry_process::entry! {
    static FORKS_THE_FD_STORE = "test.cuda-forks-fd-store" => forks_the_fd_store;
}

tensorferry_process::entry! {
    static FORKS_A_RECEIVER = "test.cuda-forks-receiver" => forks_a_receiver;
}

#[func]
fn sum(_rank: usize) -> Result<u32, tensorferry_cuda_ipc::CudaError> {
    let context = Driver::load()?.device(0)?.retain_primary_context()?;
    let stream = Stream::create(&context)?;
    let tensor = CudaTensor::from_slice(&stream, &[1_u32, 2, 3], [3])
        .map_err(|_| tensorferry_cuda_ipc::CudaError::Released)?;
    let elements = tensor.to_vec(&stream).map_err(|_| tensorferry_cuda_ipc::CudaError::Released)?;
    Ok(elements.iter().sum())
}

fn forks(_inherited: &mut Inherited) -> Result<(), Failure> {
    // SAFETY: allow_fork wants that no slice of shared memory is kept where a forked process would use it,
    // and that no thread is named as parked which does not stand still: this process does neither.
    unsafe { tensorferry::spawn::allow_fork() };
    let forked = || get_context(StartMethod::Fork).spawn(sum, (), 2);
    // Before: each forked process has a driver of its own.
    assert_eq!(forked()?, [6, 6]);
    let driver = Driver::load()?;
    let text = forked().unwrap_err().to_string();
    assert!(text.contains("it has initialised the CUDA driver"), "{text}");
    assert!(text.contains("another start method"), "{text}");
    // Also when nobody has the driver any more, because it stays initialised.
    drop(driver);
    assert!(forked().unwrap_err().to_string().contains("it has initialised the CUDA driver"));
    // The others are for that.
    assert_eq!(get_context(StartMethod::Spawn).spawn(sum, (), 2)?, [6, 6]);
    assert_eq!(get_context(StartMethod::Forkserver).spawn(sum, (), 2)?, [6, 6]);
    Ok(())
}

/// Has the descriptor store keep one end of a pipe, and waits at the other one until nobody has it.
#[func]
fn store(_rank: usize, told: Queue<u32>, lets_go: Queue<u32>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let heap = Heap::current()?;
    let block = heap.allocate_zeroed(64)?.share();
    let (mut reader, writer) = std::io::pipe()?;
    heap.domain().store_fd(block.name(), writer.into())?;
    told.put(1)?;
    lets_go.get()?;
    drop(block);
    reader.read_to_end(&mut Vec::new())?;
    told.put(2)?;
    Ok(())
}

#[func]
fn wait_for(_rank: usize, end: Queue<u32>) -> Result<(), tensorferry::GetError> {
    end.get().map(|_| ())
}

fn forks_the_fd_store(_inherited: &mut Inherited) -> Result<(), Failure> {
    // SAFETY: as in `forks`.
    unsafe { tensorferry::spawn::allow_fork() };
    let queue = || Queue::<u32>::new(1);
    let (told, lets_go, end) = (queue()?, queue()?, queue()?);
    let mut storer =
        get_context(StartMethod::Spawn).process(store, (told.clone(), lets_go.clone())).start()?;
    assert_eq!(told.get()?, 1);
    let n_kept = || Heap::current().unwrap().domain().n_fds_kept();
    until("the descriptor store has it", || n_kept() == 1);
    let mut forked = get_context(StartMethod::Fork).process(wait_for, (end.clone(),)).start()?;
    lets_go.put(1)?;
    assert_eq!(told.get()?, 2, "the forked process keeps nothing");
    end.put(1)?;
    storer.join()?;
    forked.join()?;
    Ok(())
}

#[func]
fn make(
    _rank: usize,
    tensors: Queue<CudaTensor<u32>>,
    events: Queue<IpcEvent>,
    end: Queue<u32>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let stream = Stream::create(&Driver::load()?.device(0)?.retain_primary_context()?)?;
    let event = IpcEvent::create(stream.context())?;
    event.record(&stream)?;
    events.put(event)?;
    tensors.put(CudaTensor::from_slice(&stream, &[1, 2, 3], [3])?)?;
    end.get()?;
    Ok(())
}

fn forks_a_receiver(_inherited: &mut Inherited) -> Result<(), Failure> {
    // SAFETY: as in `forks`.
    unsafe { tensorferry::spawn::allow_fork() };
    let (tensors, events, end) = (Queue::new(1)?, Queue::new(1)?, Queue::new(1)?);
    let arguments = (tensors.clone(), events.clone(), end.clone());
    let mut maker = get_context(StartMethod::Spawn).process(make, arguments).start()?;
    // It passes on, or drops, what it has no driver for.
    let (event, tensor) = (events.get()?, tensors.get()?);
    drop(tensor.clone());
    assert_eq!(get_context(StartMethod::Fork).spawn(sum, (), 2)?, [6, 6]);
    drop((event, tensor));
    assert_eq!(get_context(StartMethod::Fork).spawn(sum, (), 2)?, [6, 6]);
    end.put(1)?;
    maker.join()?;
    until("nothing of it is held here", || Heap::current().unwrap().domain().n_fds_kept() == 0);
    Ok(())
}

tensorferry_process::entry! {
    static FIRST = "test.cuda-first" => first;
}

/// Does nothing. The first child of a process brings the pipe on which all of its children hang.
fn first(_inherited: &mut Inherited) -> Result<(), Failure> {
    Ok(())
}

fn run(machine: &Machine, entry: &'static Entry) {
    let mut start = Start::new(entry);
    for (name, value) in machine.environment() {
        start = start.env(name, value);
    }
    let mut child = start.start().unwrap();
    let exit = child.wait_timeout(DEADLINE).unwrap().expect("it did not end");
    assert!(exit.is_success(), "{exit:#}");
}

#[track_caller]
fn run_alone(entry: &'static Entry) {
    where_possible(|| {
        let machine = Machine::new("");
        uncounted(|| run(&machine, &FIRST));
        alone(|| run(&machine, entry));
    });
}

#[test]
fn a_process_forks_before_it_has_initialised_the_driver_and_is_refused_afterwards() {
    run_alone(&FORKS);
}

#[test]
fn a_process_that_was_forked_from_the_fd_store_keeps_no_descriptors() {
    run_alone(&FORKS_THE_FD_STORE);
}

#[test]
fn a_process_without_a_driver_that_has_received_device_tensors_forks_and_holds_nothing_when_they_are_gone() {
    run_alone(&FORKS_A_RECEIVER);
}
