//! The child that is killed.

use nix::sys::signal::{Signal, raise};
use serde::{Deserialize, Serialize};
use tensorferry::queue::{GetError, Lease, Queue};
use tensorferry::reduce::Parcel;
use tensorferry::storage::Heap;
use tensorferry::tensor::TensorMut;
use tensorferry_os::pidfd::PidFd;

use super::Operation;
use crate::tasks::Primitives;
use crate::{Context, Item, Task};

/// What the child calls itself in its items.
pub(super) const SUBJECT: u32 = 1;
/// More bytes than fit into a slot.
pub(super) const SPILLED_LEN_BYTES: usize = 300;

/// Does one operation under the eyes of a [`Stepper`](crate::Stepper). It says `warm` once it has used the
/// queue, hears `set` (for a membership of its own to leave: an admission), says `ready`, hears `go`, stops
/// itself, does the operation, and says how it ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Subject {
    /// What it does.
    pub operation: Operation,
    /// Where it puts and gets.
    pub queue: Queue<Item>,
    /// Where it puts and gets what can be one's alone.
    pub exclusive: Option<Queue<TensorMut<u64>>>,
    /// Locks and the like.
    pub primitives: Option<Primitives>,
}

/// What the operation works on.
#[derive(Default)]
struct Things {
    queue: Option<Queue<Item>>,
    exclusive: Option<Queue<TensorMut<u64>>>,
    primitives: Option<Primitives>,
    lease: Option<Lease<Item>>,
    items: Vec<Item>,
    tensors: Vec<TensorMut<u64>>,
    second: Option<Heap>,
    kept: Option<TensorMut<u64>>,
}

impl Task for Subject {
    const NAME: &'static str = "subject";

    fn run(self, context: &Context) {
        let Self { operation, queue, exclusive, primitives } = self;
        if !operation.is_first_use() {
            // What a process does once in its life is done before it is watched.
            queue.put(item(&context.heap, 0)).unwrap();
            while queue.get().unwrap().sender != SUBJECT {}
            if operation.leases() {
                queue.put(item(&context.heap, 0)).unwrap();
                queue.get_leased().unwrap().ack().unwrap().check();
            }
            if let Some(primitives) = &primitives {
                synchronize(operation, primitives);
                primitives.count.set(0);
            }
            if let Some(exclusive) = &exclusive {
                exclusive.put(TensorMut::zeros_in(&context.heap, [2]).unwrap()).unwrap();
                drop(exclusive.get().unwrap());
            }
        }
        context.say("warm");
        let set = context.hear().unwrap();
        let mut things = Things { queue: Some(queue), exclusive, primitives, ..Things::default() };
        things.prepare(operation, context, &set);
        context.say("ready");
        context.wait_for("go");
        raise(Signal::SIGSTOP).unwrap();
        let outcome = things.operate(operation, context);
        context.say(outcome);
        let _ = context.hear();
        things.items.iter().for_each(Item::check);
    }
}

fn item(heap: &Heap, sequence: u64) -> Item {
    Item::new(heap, SUBJECT, sequence, &[2, 3])
}

impl Things {
    fn queue(&self) -> &Queue<Item> {
        self.queue.as_ref().unwrap()
    }

    fn prepare(&mut self, operation: Operation, context: &Context, set: &str) {
        let heap = &context.heap;
        let length = length_of(operation);
        match operation {
            Operation::Put | Operation::PutToSleeper | Operation::Clone | Operation::DropOwn => {
                self.items.push(item(heap, 2));
            }
            Operation::PutExclusive => {
                let mut tensor = TensorMut::empty_in(heap, [2]).unwrap();
                tensor.as_mut_slice().copy_from_slice(&[SUBJECT.into(), 2]);
                self.tensors.push(tensor);
            }
            Operation::Ack | Operation::GiveBack => self.lease = Some(self.queue().get_leased().unwrap()),
            Operation::Parcel => self.items.push(item(heap, 2)),
            Operation::PutSpilled => self.items.push(item(heap, 2).with_note(SPILLED_LEN_BYTES)),
            Operation::PutBundle => self.items.push(item(heap, 2).bundled(heap)),
            Operation::Bundle => {
                // The first one of its size needs more.
                drop(item(heap, 2).bundled(heap));
                self.items.push(item(heap, 2));
            }
            Operation::DropOthers | Operation::DropOrphans | Operation::DropBundle => {
                self.items.push(self.queue().get().unwrap());
            }
            Operation::DropLarge => self.tensors.push(TensorMut::empty_in(heap, [length]).unwrap()),
            Operation::AllocateRecycled => drop(TensorMut::<u64>::empty_in(heap, [length]).unwrap()),
            Operation::LeaveDomain => {
                use std::os::fd::AsFd as _;
                let fd = heap.domain().as_fd().try_clone_to_owned().unwrap();
                let second = Heap::attach(fd, serde_json::from_str(set).unwrap()).unwrap();
                drop(TensorMut::<u64>::empty_in(&second, [2]).unwrap());
                self.second = Some(second);
            }
            _ => {}
        }
        // One message is on its way whatever happens; a sleeper would take it.
        if !operation.gets() && operation != Operation::PutToSleeper && !operation.is_first_use() {
            self.queue().put(item(heap, 1)).unwrap();
        }
    }

    fn operate(&mut self, operation: Operation, context: &Context) -> &'static str {
        match operation {
            Operation::Put | Operation::PutSpilled | Operation::PutBundle | Operation::PutToSleeper => {
                let item = self.items.pop().unwrap();
                self.queue().put(item).unwrap();
                return "put";
            }
            Operation::Get | Operation::GetSpilled | Operation::GetBundle => {
                self.items.push(self.queue().get().unwrap());
                return "got";
            }
            Operation::GetStandingStill => match self.queue().get_nowait() {
                Ok(item) => {
                    item.check();
                    self.items.push(item);
                    return "got";
                }
                Err(GetError::Empty) => return "found nothing",
                Err(error) => panic!("{error}"),
            },
            Operation::PutExclusive => {
                let tensor = self.tensors.pop().unwrap();
                self.exclusive.as_ref().unwrap().put(tensor).unwrap();
                return "put";
            }
            Operation::GetExclusive => {
                self.tensors.push(self.exclusive.as_ref().unwrap().get().unwrap());
                return "got";
            }
            Operation::Lease | Operation::LeaseAgain => {
                self.lease = Some(self.queue().get_leased().unwrap());
                return "leased";
            }
            Operation::Ack => self.items.push(self.lease.take().unwrap().ack().unwrap()),
            Operation::GiveBack => self.lease.take().unwrap().give_back(),
            Operation::Bundle => {
                let item = self.items.pop().unwrap().bundled(&context.heap);
                drop(item);
            }
            Operation::DropBundle => {
                let item = self.items.pop().unwrap().unbundled();
                drop(item);
            }
            Operation::Parcel => assert!(Parcel::pack(&context.heap, &self.items).unwrap().take_back()),
            Operation::Clone => drop((self.items.clone(), self.queue().clone())),
            Operation::DropOwn | Operation::DropOthers | Operation::DropOrphans => self.items.clear(),
            Operation::DropLarge => self.tensors.clear(),
            Operation::AllocateFirst
            | Operation::AllocateAdopting
            | Operation::AllocateSlab
            | Operation::AllocateRecycled
            | Operation::AllocateLarge => {
                self.kept = Some(TensorMut::empty_in(&context.heap, [length_of(operation)]).unwrap());
            }
            Operation::Admit => {
                let me = PidFd::of_self().unwrap();
                let _never_used = context.heap.domain().admit(&me).unwrap();
            }
            Operation::Lock | Operation::Acquire | Operation::Read | Operation::Write => {
                synchronize(operation, self.primitives.as_ref().unwrap());
            }
            Operation::LeaveQueue => self.queue = None,
            Operation::LeaveDomain => self.second = None,
            Operation::Join | Operation::Sweep => {}
        }
        "done"
    }
}

fn synchronize(operation: Operation, primitives: &Primitives) {
    match operation {
        Operation::Lock => {
            let _guard = primitives.lock.lock().unwrap();
            primitives.count.set(primitives.count.get() + 1);
        }
        Operation::Acquire => drop(primitives.semaphore.acquire().unwrap()),
        Operation::Read => drop(primitives.rw_lock.read().unwrap()),
        Operation::Write => drop(primitives.rw_lock.write().unwrap()),
        _ => {}
    }
}

/// How many elements of eight bytes.
fn length_of(operation: Operation) -> usize {
    match operation {
        // A size class that nothing else here uses.
        Operation::AllocateSlab => 100,
        // Beyond the largest slab.
        Operation::AllocateLarge | Operation::DropLarge => 8_000,
        _ => 2,
    }
}
