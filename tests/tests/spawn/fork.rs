//! Forks of a process: when they are refused, what the child has of its parent, and what it is not allowed.
//!
//! # Safety
//! These tests lend slices of shared memory only on the stack.
#![expect(unsafe_code, reason = "allows the start method fork")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tensorferry::queue::{GetError, Lease, Sender, SoleReceiver, SoleSender, mpsc, spsc};
use tensorferry::spawn::{OnDrop, ProcessHandle, SpawnError, StartMethod, func, get_context};
use tensorferry::sync::{Barrier, Event, Lock, LockGuard, Permit, RwLock, RwLockReadGuard, Semaphore};
use tensorferry::tensor::SealedTensor;
use tensorferry::{BoxedError, Bundle, Heap, Queue, SharedTensor, Tensor, TensorMut};
use tensorferry_process::{Failure, Inherited, Start};
use tensorferry_storage::{Contents, OutgoingHandle};

use crate::support::{DEADLINE, Guest, Meeting, attend, exists, read_to_end};

tensorferry_process::entry! {
    static THREADS = "test.fork-threads" => threads;
    static HAZARDOUS = "test.fork-hazardous" => hazardous;
    static INHERITS = "test.fork-inherits" => inherits;
    static ATTACHED = "test.fork-attached" => attached;
    static KEEPS = "test.fork-keeps" => keeps;
    static LOCKS = "test.fork-locks" => locks;
    static SISTERS = "test.fork-sisters" => sisters;
    static BUFFERED = "test.fork-buffered" => buffered;
    static LOCKED_OUTPUT = "test.fork-locked-output" => locked_output;
    static BUSY = "test.fork-busy" => busy;
    static KILLED = "test.fork-killed" => killed;
    static SEALING = "test.fork-sealing" => sealing;
    static ON_ITS_WAY = "test.fork-on-its-way" => on_its_way;
}

tensorferry_process::fork_hazard! {
    static HAZARD => hazard;
}

static IS_HAZARDOUS: AtomicBool = AtomicBool::new(false);

fn hazard() -> Option<String> {
    IS_HAZARDOUS.load(Ordering::SeqCst).then(|| String::from("it has a modem open"))
}

/// Allows the start method fork in this process and all that it starts.
pub(crate) fn allow() {
    // SAFETY: no test here keeps a slice of shared memory in a static or leaks one, names threads as parked,
    // or starts members of a domain by itself.
    unsafe { tensorferry::spawn::allow_fork() };
}

pub(crate) fn run(entry: &'static tensorferry_process::Entry, payload: &str) {
    allow();
    let mut child = Start::new(entry).payload(payload).start().unwrap();
    let exit = child.wait_timeout(DEADLINE).unwrap().expect("it did not end");
    assert!(exit.is_success(), "{exit:#}");
}

#[func]
pub(crate) fn pid(_rank: usize) -> Result<u32, String> {
    Ok(std::process::id())
}

#[func]
fn meet(rank: usize, meeting: String) {
    attend(&meeting, rank);
}

#[func]
fn spawn_from_a_thread(_rank: usize) -> Result<(), SpawnError> {
    std::thread::spawn(|| get_context(StartMethod::Spawn).spawn(pid, (), 1)).join().unwrap().map(drop)
}

fn refusal() -> String {
    get_context(StartMethod::Fork).spawn(pid, (), 1).unwrap_err().to_string()
}

fn threads(_inherited: &mut Inherited) -> Result<(), Failure> {
    let context = get_context(StartMethod::Fork);
    // Ours stands still, whether it has come up before or not.
    for _ in 0..20 {
        assert_ne!(context.spawn(pid, (), 1)?, [std::process::id()]);
    }
    // So does the one that starts processes for other threads, and then it goes on.
    for _ in 0..10 {
        spawn_from_a_thread(0)?;
        assert_ne!(context.spawn(pid, (), 1)?, [std::process::id()]);
    }
    context.spawn(spawn_from_a_thread, (), 2)?;
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (named, name) = std::sync::mpsc::channel();
    let work = move || {
        named.send(()).unwrap();
        let _ = wait.recv();
    };
    let loader = std::thread::Builder::new().name("loader".into()).spawn(work)?;
    name.recv()?;
    let text = refusal();
    assert!(text.contains("`loader`") && !text.contains("`tensorferry`"), "{text}");
    drop(go);
    loader.join().unwrap();
    assert_eq!(context.spawn(pid, (), 2)?.len(), 2, "it has ended");
    let elsewhere = std::thread::spawn(refusal).join().unwrap();
    assert!(elsewhere.contains("other threads"), "{elsewhere}");
    Ok(())
}

#[test]
fn a_process_with_threads_is_refused_by_their_names() {
    run(&THREADS, "");
}

fn hazardous(_inherited: &mut Inherited) -> Result<(), Failure> {
    IS_HAZARDOUS.store(true, Ordering::SeqCst);
    let text = refusal();
    assert!(text.contains("it has a modem open") && text.contains("another start method"), "{text}");
    Ok(())
}

#[test]
fn a_process_whose_libraries_say_no_is_refused_with_their_reason() {
    run(&HAZARDOUS, "");
}

#[test]
fn another_program_cannot_be_forked() {
    let options = get_context(StartMethod::Fork).options().executable("/bin/true");
    let error = options.start_processes(pid, (), 1).unwrap_err();
    assert!(error.to_string().contains("/bin/true") && error.to_string().contains("spawn"), "{error}");
}

/// A tensor, and the number of the process that it comes from.
type Told = Queue<(u32, Tensor<u8>)>;

static FROZEN: Mutex<Option<Tensor<u8>>> = Mutex::new(None);
static SHARED: Mutex<Option<SharedTensor<f32>>> = Mutex::new(None);
static BUNDLE: Mutex<Option<Bundle>> = Mutex::new(None);
static EXCLUSIVE: Mutex<Option<TensorMut<u8>>> = Mutex::new(None);
static QUEUE: Mutex<Option<Told>> = Mutex::new(None);
static SOLE: Mutex<Option<(SoleSender<u8>, SoleReceiver<u8>)>> = Mutex::new(None);
static LEASE: Mutex<Option<Lease<u8>>> = Mutex::new(None);

fn taken<T>(from: &Mutex<Option<T>>) -> T {
    from.lock().unwrap().take().expect("nothing was inherited")
}

pub(crate) fn full(element: u8) -> Tensor<u8> {
    TensorMut::full([1000], element).unwrap().freeze()
}

/// Uses everything that it has of its parent.
#[func]
fn use_inherited(rank: usize, meeting: String) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let me = Heap::current()?.domain().me();
    attend(&meeting, rank);
    // By now the parent has dropped its handles and has overwritten whatever memory came free.
    let frozen = taken(&FROZEN);
    assert!(frozen.iter().all(|&element| element == 7));
    taken(&SHARED).add_from(&[1.0, 2.0])?;
    let bundle = taken(&BUNDLE);
    assert!(bundle.entry("eights")?.as_slice::<u8>()?.iter().all(|&element| element == 8));
    let eights = bundle.tensor::<u8>("eights")?;
    drop(bundle);
    assert!(eights.iter().all(|&element| element == 8));
    let queue = taken(&QUEUE);
    queue.put((std::process::id(), frozen.clone()))?;
    queue.put((std::process::id(), full(9)))?;
    // What can be in one process only has stayed with the parent.
    let mut exclusive = taken(&EXCLUSIVE);
    assert!(exclusive.as_mut_slice().is_empty());
    drop(exclusive);
    let (mut to, mut from) = taken(&SOLE);
    assert!(to.put_nowait(1).is_err() && from.get_nowait().is_err());
    assert!(taken(&LEASE).ack().is_err());
    Ok(format!("{me:?}"))
}

fn inherits(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let shared = SharedTensor::<f32>::zeros([2])?;
    let queue = Queue::new(8)?;
    let leased = Queue::<u8>::with_leases(2, 1)?;
    leased.put(5)?;
    let lease = leased.get_leased()?;
    *FROZEN.lock().unwrap() = Some(full(7));
    *SHARED.lock().unwrap() = Some(shared.clone());
    *BUNDLE.lock().unwrap() = Some(Bundle::new([("eights", full(8))])?);
    *EXCLUSIVE.lock().unwrap() = Some(TensorMut::full([1000], 3)?);
    *QUEUE.lock().unwrap() = Some(queue.clone());
    *SOLE.lock().unwrap() = Some(spsc(2)?);
    *LEASE.lock().unwrap() = Some(lease);
    let members = Heap::current()?.domain().members().len();
    let mut context = get_context(StartMethod::Fork).start_processes(use_inherited, (meeting.name(),), 2)?;
    let guests = meeting.guests(2);
    assert_eq!(Heap::current()?.domain().members().len(), members + 2);
    // The parent's handles go, and memory of that size is asked for and written.
    drop((taken(&FROZEN), taken(&BUNDLE)));
    Heap::current()?.collect();
    let mut kept = Vec::new();
    for element in 0..100 {
        kept.push(TensorMut::full([1000], element)?);
    }
    guests.iter().for_each(Guest::release);
    context.join_timeout(DEADLINE)?;
    let mut slots = context.into_values()?;
    slots.push(format!("{:?}", Heap::current()?.domain().me()));
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 3, "each is a member of its own");
    assert_eq!(shared.to_vec(), [2.0, 4.0]);
    for _ in 0..4 {
        let (_, tensor) = queue.get_timeout(DEADLINE)?;
        let first = tensor.get([0])?;
        assert!([7, 9].contains(&first) && tensor.iter().all(|&element| element == first));
    }
    // What stayed is as it was.
    assert!(taken(&EXCLUSIVE).as_mut_slice().iter().all(|&element| element == 3));
    let (mut to, mut from) = taken(&SOLE);
    to.put(4)?;
    assert_eq!(from.get()?, 4);
    assert_eq!(taken(&LEASE).ack()?, 5);
    Ok(())
}

#[test]
fn shared_tensors_and_queues_are_inherited_and_what_is_exclusive_stays() {
    run(&INHERITS, "");
}

static SENDER: Mutex<Option<Sender<u8>>> = Mutex::new(None);

#[func]
fn put_one(rank: usize, meeting: String) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    attend(&meeting, rank);
    taken(&SENDER).put(5)?;
    attend(&meeting, rank);
    Ok(())
}

/// The last sender is the one that a forked process has inherited.
fn attached(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let (sender, mut receiver) = mpsc::<u8>(2)?;
    *SENDER.lock().unwrap() = Some(sender);
    let mut context = get_context(StartMethod::Fork).start_processes(put_one, (meeting.name(),), 1)?;
    let guests = meeting.guests(1);
    drop(taken(&SENDER));
    assert!(matches!(receiver.get_nowait(), Err(GetError::Empty)), "there is a sender");
    guests[0].release();
    assert_eq!(receiver.get_timeout(DEADLINE)?, 5);
    let guests = meeting.guests(1);
    assert!(!matches!(receiver.get_nowait(), Ok(_) | Err(GetError::Empty)), "it has dropped its end");
    guests[0].release();
    context.join_timeout(DEADLINE)?;
    Ok(())
}

#[test]
fn an_inherited_end_of_a_queue_is_an_end_until_it_is_dropped() {
    run(&ATTACHED, "");
}

#[func]
fn stay(rank: usize, meeting: String) -> Result<(), String> {
    drop(taken(&FROZEN));
    attend(&meeting, rank);
    Ok(())
}

/// What a forked process has let go of, and what it had when it ended, is the parent's alone again.
fn keeps(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let tensor = full(7);
    *FROZEN.lock().unwrap() = Some(tensor.clone());
    let other = full(8);
    let mut context = get_context(StartMethod::Fork).start_processes(stay, (meeting.name(),), 1)?;
    let guests = meeting.guests(1);
    drop(taken(&FROZEN));
    // The parent's own handle here was copied too, and nobody there can drop it.
    let tensor = tensor.try_into_mut().unwrap_err().into_tensor();
    let other = other.try_into_mut().unwrap_err().into_tensor();
    guests[0].release();
    context.join_timeout(DEADLINE)?;
    assert_eq!(tensor.try_into_mut().unwrap().as_mut_slice()[0], 7);
    assert_eq!(other.try_into_mut().unwrap().as_mut_slice()[0], 8);
    Ok(())
}

#[test]
fn what_a_forked_process_had_is_free_when_it_has_ended() {
    run(&KEEPS, "");
}

/// A semaphore with two permits, and what the parent has taken of it and of two locks.
type Guards = (Semaphore, Permit, Lock, LockGuard, RwLock, RwLockReadGuard);

static GUARDS: Mutex<Option<Guards>> = Mutex::new(None);

/// Lets go of the copies, which changes nothing: a permit of its own is still taken, and the parent's too.
#[func]
fn let_go_of_copies(_rank: usize) -> Result<(), BoxedError> {
    let (semaphore, permit, lock, guard, rw_lock, reader) = taken(&GUARDS);
    let own = (semaphore.acquire()?, rw_lock.read()?);
    assert_eq!(semaphore.available_permits(), 0);
    drop((permit, guard, reader));
    assert_eq!(semaphore.available_permits(), 0);
    assert!(lock.try_lock().is_err_and(|error| error.is_locked()));
    drop(own);
    assert_eq!(semaphore.available_permits(), 1);
    assert!(rw_lock.try_write().is_err_and(|error| error.is_locked()));
    Ok(())
}

#[func]
fn pass(_rank: usize, barrier: Barrier) -> Result<(), BoxedError> {
    barrier.wait()?;
    Ok(())
}

/// What a parent has taken stays its own, and that a child ends with copies of handles is no death.
fn locks(_inherited: &mut Inherited) -> Result<(), Failure> {
    let (semaphore, lock, rw_lock) = (Semaphore::new(2)?, Lock::new()?, RwLock::new()?);
    let (event, barrier) = (Event::new()?, Barrier::new(2)?);
    let handles = (semaphore.clone(), lock.clone(), rw_lock.clone());
    let (permit, guard, reader) = (semaphore.acquire()?, lock.lock()?, rw_lock.read()?);
    *GUARDS.lock().unwrap() = Some((semaphore, permit, lock, guard, rw_lock, reader));
    let context = get_context(StartMethod::Fork);
    context.spawn(let_go_of_copies, (), 1)?;
    let (semaphore, lock, rw_lock) = handles;
    assert_eq!(semaphore.available_permits(), 1);
    assert!(lock.try_lock().is_err_and(|error| error.is_locked()));
    drop(taken(&GUARDS));
    assert_eq!(semaphore.available_permits(), 2);
    drop((lock.lock()?, rw_lock.write()?));
    for _ in 0..2 {
        context.spawn(pass, (barrier.clone(),), 2)?;
        assert_eq!(barrier.broken_by(), None);
    }
    assert!(event.wait_timeout(Duration::ZERO).is_err_and(|error| error.is_timed_out()));
    Ok(())
}

#[test]
fn copies_of_guards_are_nothing_to_a_forked_process_and_its_end_is_no_death() {
    run(&LOCKS, "");
}

static SISTER: Mutex<Option<ProcessHandle<()>>> = Mutex::new(None);

#[func]
fn touch_sister(_rank: usize) -> Result<String, String> {
    let mut sister = taken(&SISTER);
    let refused = sister.kill().unwrap_err().to_string();
    assert!(sister.is_alive().is_err() && sister.join().is_err());
    drop(sister);
    Ok(refused)
}

fn sisters(_inherited: &mut Inherited) -> Result<(), Failure> {
    for method in StartMethod::all() {
        let meeting = Meeting::new();
        let process = get_context(method).process(meet, (meeting.name(),)).on_drop(OnDrop::Kill).start()?;
        let guests = meeting.guests(1);
        *SISTER.lock().unwrap() = Some(process);
        let refused = get_context(StartMethod::Fork).spawn(touch_sister, (), 1)?.remove(0);
        assert!(refused.contains("another process has started"), "{refused}");
        let mut process = taken(&SISTER);
        assert!(process.is_alive()?);
        guests[0].release();
        process.join()?;
        assert!(!exists(process.pid()));
    }
    // A server is nobody's but its client's.
    let pids = get_context(StartMethod::Fork).spawn(start_two, (), 2)?;
    assert_ne!(pids[0], pids[1]);
    Ok(())
}

/// Starts processes by a server of its own, and tells who that is.
#[func]
fn start_two(_rank: usize) -> Result<u32, SpawnError> {
    let parents = get_context(StartMethod::Forkserver).spawn(parent, (), 2)?;
    assert_eq!(parents[0], parents[1]);
    Ok(parents[0])
}

#[func]
fn parent(_rank: usize) -> Result<u32, String> {
    Ok(tensorferry_os::child::parent_pid())
}

#[test]
fn the_processes_of_the_parent_are_none_of_its_childs() {
    run(&SISTERS, "");
}

#[func]
#[expect(clippy::print_stdout, reason = "what is buffered is what is tested")]
fn print_own(rank: usize) {
    print!("<{rank}>");
}

#[expect(clippy::print_stdout, reason = "what is buffered is what is tested")]
fn buffered(_inherited: &mut Inherited) -> Result<(), Failure> {
    print!("before ");
    get_context(StartMethod::Fork).spawn(print_own, (), 1)?;
    get_context(StartMethod::Fork).spawn(print_own, (), 1)?;
    print!(" after");
    Ok(())
}

#[test]
fn what_was_buffered_is_written_once() {
    allow();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = Start::new(&BUFFERED).stdout(writer).start().unwrap();
    assert_eq!(read_to_end(reader), "before <0><0> after");
    assert!(child.wait_timeout(DEADLINE).unwrap().unwrap().is_success());
}

/// Prints less than a line, and ends while another thread runs, which holds the lock of the output or does
/// not.
#[func]
#[expect(clippy::print_stdout, reason = "what is buffered is what is tested")]
fn print_beside_a_thread(rank: usize, is_locked: bool) {
    print!("<{rank}>");
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _held = is_locked.then(|| std::io::stdout().lock());
        tell.send(()).unwrap();
        loop {
            std::thread::park();
        }
    });
    told.recv().unwrap();
}

fn locked_output(_inherited: &mut Inherited) -> Result<(), Failure> {
    let context = get_context(StartMethod::Fork);
    for is_locked in [false, true] {
        let mut printing = context.start_processes(print_beside_a_thread, (is_locked,), 1)?;
        assert!(printing.join_timeout(DEADLINE)?, "a lock keeps it from ending");
    }
    Ok(())
}

#[test]
fn a_lock_of_its_output_keeps_no_forked_process_from_ending() {
    allow();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut child = Start::new(&LOCKED_OUTPUT).stdout(writer).start().unwrap();
    let exit = child.wait_timeout(2 * DEADLINE).unwrap().expect("it did not end");
    assert!(exit.is_success(), "{exit:#}");
    assert_eq!(read_to_end(reader), "<0>", "what nobody has locked is written");
}

/// Gets tensors and drops them, so that the memory of whoever sends them comes back all the time.
#[func]
fn give_back(_rank: usize, tensors: Queue<Tensor<u8>>) {
    while tensors.get().is_ok() {}
}

#[func]
fn allocate(rank: usize) -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
    let tensors: Result<Vec<_>, _> = (0..50).map(|n| TensorMut::full([n * 100 + 1], 1_u8)).collect();
    Ok(tensors?.iter_mut().map(|tensor| tensor.as_mut_slice()[0]).sum::<u8>() + u8::try_from(rank)?)
}

/// Forks while the service thread is at work: memory comes back, and messages are pinned and let go of.
fn busy(_inherited: &mut Inherited) -> Result<(), Failure> {
    let tensors = Queue::new(64)?;
    let mut receivers = get_context(StartMethod::Spawn).start_processes(give_back, (tensors.clone(),), 1)?;
    for n in 0..40_u8 {
        for element in 0..50 {
            tensors.put(full(element))?;
        }
        Heap::current()?.domain().wake_service();
        assert_eq!(get_context(StartMethod::Fork).spawn(allocate, (), 2)?, [50, 51], "fork {n}");
    }
    tensors.close();
    receivers.join_timeout(DEADLINE)?;
    Ok(())
}

#[test]
fn a_fork_while_the_service_thread_is_at_work_goes_well() {
    run(&BUSY, "");
}

/// A process with a forked child, both of them members of the domain of whoever looks.
#[func]
fn fork_one(rank: usize, meeting: String) -> Result<(), SpawnError> {
    let mut child = get_context(StartMethod::Fork).start_processes(meet, (meeting.clone(),), 1)?;
    attend(&meeting, 10 + rank);
    child.join()?;
    Ok(())
}

fn killed(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let process = get_context(StartMethod::Spawn).process(fork_one, (meeting.name(),)).start()?;
    let guests = meeting.guests(2);
    let domain = Heap::current()?.domain().clone();
    assert_eq!(domain.members().len(), 3);
    process.kill()?;
    guests.iter().for_each(Guest::wait_gone);
    drop(process);
    let start = std::time::Instant::now();
    while domain.members().len() > 1 {
        assert!(start.elapsed() < DEADLINE, "{:?}", domain.members());
        domain.sweep_dead();
    }
    Ok(())
}

#[test]
fn a_killed_parent_takes_its_forked_child_along_and_both_places_come_free() {
    run(&KILLED, "");
}

/// The kernel seals no file that a process has mapped for writing, and a forked process has the mappings of
/// its parent.
fn sealing(_inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = Meeting::new();
    let mut forked = None;
    let tensor = SealedTensor::<u8>::build([1 << 20], |elements| {
        let context = get_context(StartMethod::Fork);
        let context = context.start_processes(meet, (meeting.name(),), 1).unwrap();
        forked = Some((context, meeting.guests(1)));
        elements.fill(3);
    })?;
    let (mut context, guests) = forked.expect("the tensor was filled");
    assert!(tensor.as_slice().iter().all(|&element| element == 3));
    guests[0].release();
    assert!(context.join_timeout(DEADLINE)?);
    Ok(())
}

#[test]
fn a_process_that_was_forked_while_a_tensor_was_filled_is_not_in_the_way_of_its_seal() {
    run(&SEALING, "");
}

static HANDLE: Mutex<Option<OutgoingHandle>> = Mutex::new(None);

/// Looks at what its parent was about to send.
#[func]
fn look_at_copy(_rank: usize) -> Result<usize, String> {
    let copy = HANDLE.lock().unwrap().take().unwrap();
    let Contents::Exclusive(bytes) = copy.contents() else { return Err("another kind".to_owned()) };
    Ok(bytes.len())
}

fn on_its_way(_inherited: &mut Inherited) -> Result<(), Failure> {
    let mut block = Heap::current()?.allocate_zeroed(100)?;
    *HANDLE.lock().unwrap() = OutgoingHandle::exclusive(&block);
    assert_eq!(get_context(StartMethod::Fork).spawn(look_at_copy, (), 1)?, [0]);
    let handle = HANDLE.lock().unwrap().take().unwrap();
    assert!(matches!(handle.contents(), Contents::Exclusive(bytes) if bytes.len() == 100));
    handle.take_back();
    block.bytes_mut().fill(1);
    Ok(())
}

#[test]
fn a_forked_process_reads_no_exclusive_memory_that_its_parent_was_about_to_send() {
    run(&ON_ITS_WAY, "");
}
