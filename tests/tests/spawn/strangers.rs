//! Processes that something else than this library has forked: what they are refused, and that they change
//! nothing.
//!
//! # Safety
//! Each test says what its child does.
#![expect(unsafe_code, reason = "forks")]

use std::io::Write as _;

use tensorferry::manager::{Manager, Served, StateError, serve};
use tensorferry::spawn::{StartMethod, get_context};
use tensorferry::sync::{Lock, RawArray, RawValue};
use tensorferry::{AnyTensor, Bundle, Domain, Heap, Queue, SharedTensor, Tensor};
use tensorferry_os::fork::{Forked, exit_at_once, fork_alone};
use tensorferry_os::pidfd::PidFd;
use tensorferry_process::{Ended, Failure, Inherited, Start};

use crate::fork::{full, pid, run};
use crate::support::{DEADLINE, read_to_end};

tensorferry_process::entry! {
    static FORKED_BY_OTHERS = "test.forked-by-others" => forked_by_others;
    static SERVES = "test.fork-serves" => serves;
    static OWN_SERVER = "test.fork-own-server" => own_server;
    static TELL_PARENT = "test.fork-tell-parent" => tell_parent;
}

/// What a process sees that something else has forked.
fn look_as_a_stranger(tensor: Tensor<u8>, shared: SharedTensor<f32>, queue: Queue<u8>, bundle: &Bundle) {
    let heap = Heap::current().unwrap();
    assert!(bundle.entry("sevens").unwrap().as_slice::<u8>().is_err());
    let text = heap.allocate(100).unwrap_err().to_string();
    assert!(text.contains("forked"), "{text}");
    let text = queue.put(1).unwrap_err().to_string();
    assert!(text.contains("forked"), "{text}");
    let text = queue.get_nowait().unwrap_err().to_string();
    assert!(text.contains("forked"), "{text}");
    assert!(get_context(StartMethod::Spawn).spawn(pid, (), 1).unwrap_err().to_string().contains("forked"));
    assert!(heap.domain().admit(&PidFd::of_self().unwrap()).is_err());
    assert!(!heap.domain().is_owning_process());
    heap.collect();
    heap.domain().sweep_dead();
    assert_eq!(heap.trim(), 0);
    // There is none of the memory here.
    let view = tensor.reshape([10, 100]).unwrap().transpose(0, 1).unwrap();
    assert!(tensor.to_vec().is_empty() && view.to_vec().is_empty() && tensor.as_slice().unwrap().is_empty());
    assert!(tensor.get([0]).is_err() && tensor.narrow(0, 0, 1).unwrap().item().is_err());
    assert_eq!(view.iter().len(), 0);
    assert!(format!("{view:?} {shared:?}").matches("not readable in this process").count() == 2);
    assert!(
        view.contiguous().is_err() && tensor.to_mut().is_err() && AnyTensor::from(view).to_bytes().is_empty()
    );
    assert!(
        shared.load([0]).is_err() && shared.store([0], 1.0).is_err() && shared.fetch_add([0], 1.0).is_err()
    );
    assert!(shared.write_from(&[1.0; 4]).is_err() && shared.add_from(&[1.0; 4]).is_err());
    assert!(shared.narrow(0, 1, 2).unwrap().to_vec().is_empty() && shared.read_into(&mut [0.0; 4]).is_err());
    shared.fill(1.0);
    // A domain of its own cannot be given what it cannot read.
    let own = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
    let passed_on = Queue::new_in(&own, 1).unwrap();
    assert!(passed_on.put(tensor.clone()).is_err());
    drop((passed_on, own));
    let copies = (tensor.clone(), shared.clone(), queue.clone());
    drop((copies, tensor, shared, queue));
}

/// Which is which is known without the memory, and nothing is written to any.
fn look_at_values_as_a_stranger(values: &[RawValue<u32>; 2], arrays: &[RawArray<u32>; 2], locks: &[Lock; 2]) {
    let [one, other] = values;
    assert!(one.ptr_eq(&one.clone()) && !one.ptr_eq(other));
    one.set(7);
    assert_eq!((one.get(), other.get(), one.fetch_add(1)), (0, 0, 0));
    let [one, other] = arrays;
    assert!(one.ptr_eq(&one.clone()) && !one.ptr_eq(other) && one.to_vec().is_empty());
    let [one, other] = locks;
    assert!(one.ptr_eq(&one.clone()) && !one.ptr_eq(other) && one.lock().is_err());
}

fn forked_by_others(_inherited: &mut Inherited) -> Result<(), Failure> {
    let (tensor, shared, queue) = (full(7), SharedTensor::<f32>::zeros([4])?, Queue::<u8>::new(4)?);
    let bundle = Bundle::new([("sevens", full(7))])?;
    let entry = bundle.entry("sevens")?;
    queue.put(3)?;
    let values = [RawValue::new(1_u32)?, RawValue::new(2_u32)?];
    let arrays = [RawArray::new(&[1_u32])?, RawArray::new(&[2_u32])?];
    let locks = [Lock::new()?, Lock::new()?];
    // A mark for the parts of the library that are not parked, so that what a stranger meets is as bad as can
    // be.
    let threads = tensorferry_os::fork::other_threads()?;
    let parked: Vec<_> = threads.iter().map(|thread| thread.tid).collect();
    // SAFETY: it lends no slice across the fork. The threads are not parked, so the child could meet a lock
    // that nobody opens; what is tested does without.
    let pid = match unsafe { fork_alone(&parked) }? {
        Forked::Child => {
            let look = std::panic::AssertUnwindSafe(|| {
                // Looked up before the fork.
                let text = entry.as_slice::<u8>().unwrap_err().to_string();
                assert!(text.contains("forked"), "{text}");
                look_at_values_as_a_stranger(&values, &arrays, &locks);
                look_as_a_stranger(tensor, shared, queue, &bundle);
            });
            exit_at_once(if std::panic::catch_unwind(look).is_ok() { 7 } else { 1 });
        }
        Forked::Parent { pid } => PidFd::open(pid)?,
    };
    assert!(pid.wait_dead(Some(DEADLINE))?, "it must not wait for anything");
    assert_eq!(tensorferry_os::child::reap(&pid)?, Some(Ended::Exited { code: 7 }));
    // Here nothing has changed.
    assert_eq!(queue.get()?, 3);
    assert_eq!(Heap::current()?.domain().members().len(), 1);
    assert_eq!(tensor.try_into_mut().unwrap().as_mut_slice()[999], 7);
    shared.add_from(&[1.0; 4])?;
    assert_eq!(shared.to_vec(), [1.0; 4]);
    assert_eq!((values[0].get(), values[1].get()), (1, 2));
    Ok(())
}

#[test]
fn a_process_that_others_have_forked_is_refused_everything_and_changes_nothing() {
    run(&FORKED_BY_OTHERS, "");
}

/// Lets go of objects that another process serves.
fn end_as_a_stranger(dropped: Served<u32, u32, u32>, asked: Served<u32, u32, u32>, manager: Manager) {
    let proxy = asked.proxy().clone();
    drop((dropped, manager));
    assert!(matches!(asked.into_state(), Err(StateError::WithinItself)));
    assert!(proxy.call(1).unwrap_err().to_string().contains("forked"));
}

fn serves(_inherited: &mut Inherited) -> Result<(), Failure> {
    let add = |total: &mut u32, number| {
        *total += number;
        *total
    };
    let (one, other, manager) = (serve(0, add)?, serve(0, add)?, Manager::new()?);
    let list = manager.list_of([1])?;
    assert_eq!((one.proxy().call(1)?, other.proxy().call(2)?, list.len()?), (1, 2, 1));
    let threads = tensorferry_os::fork::other_threads()?;
    let parked: Vec<_> = threads.iter().map(|thread| thread.tid).collect();
    // SAFETY: it lends no slice across the fork. The threads are not parked, so the child could meet a lock
    // that nobody opens: they wait for requests, with none held.
    let pid = match unsafe { fork_alone(&parked) }? {
        Forked::Child => {
            let end = std::panic::AssertUnwindSafe(|| end_as_a_stranger(one, other, manager));
            exit_at_once(if std::panic::catch_unwind(end).is_ok() { 7 } else { 1 });
        }
        Forked::Parent { pid } => PidFd::open(pid)?,
    };
    let has_ended = pid.wait_dead(Some(DEADLINE / 2))?;
    if !has_ended {
        pid.send_signal(tensorferry_process::SIGKILL)?;
        pid.wait_dead(Some(DEADLINE))?;
    }
    assert!(has_ended, "it waits for a thread that it does not have");
    assert_eq!(tensorferry_os::child::reap(&pid)?, Some(Ended::Exited { code: 7 }));
    // Here nothing has changed.
    assert_eq!((one.proxy().call(1)?, other.proxy().call(1)?, list.pop()?), (2, 3, Some(1)));
    assert_eq!((one.into_state()?, other.into_state()?), (2, 3));
    manager.shutdown()?;
    Ok(())
}

#[test]
fn a_process_that_others_have_forked_ends_none_of_the_objects_that_its_parent_serves() {
    run(&SERVES, "");
}

/// Writes who has started it.
fn tell_parent(inherited: &mut Inherited) -> Result<(), Failure> {
    let fd = inherited.take_fds().remove(0);
    write!(std::fs::File::from(fd), "{}", tensorferry_os::child::parent_pid())?;
    Ok(())
}

/// The fork server of this process, which one of its children tells.
fn server() -> Result<u32, Failure> {
    let (reader, writer) = std::io::pipe()?;
    let mut child = Start::new(&TELL_PARENT).method(StartMethod::Forkserver).fd(writer.into()).start()?;
    let told = read_to_end(reader);
    let exit = child.wait_timeout(DEADLINE)?.expect("it did not end");
    assert!(exit.is_success(), "{exit:#}");
    Ok(told.parse()?)
}

fn own_server(_inherited: &mut Inherited) -> Result<(), Failure> {
    let ours = server()?;
    // SAFETY: no thread is named as parked, and there is no shared memory in this process.
    let pid = match unsafe { fork_alone(&[]) }? {
        Forked::Child => {
            let theirs = std::panic::catch_unwind(|| server().unwrap());
            exit_at_once(if theirs.is_ok_and(|theirs| theirs != ours) { 7 } else { 1 });
        }
        Forked::Parent { pid } => PidFd::open(pid)?,
    };
    assert!(pid.wait_dead(Some(DEADLINE))?);
    assert_eq!(tensorferry_os::child::reap(&pid)?, Some(Ended::Exited { code: 7 }));
    assert_eq!(server()?, ours);
    Ok(())
}

#[test]
fn a_process_that_others_have_forked_has_a_fork_server_of_its_own() {
    run(&OWN_SERVER, "");
}
