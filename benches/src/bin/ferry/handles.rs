//! Tensors by handle, as a user would send them: allocated in shared memory, frozen, put.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry::queue::{SoleReceiver, SoleSender, spsc_in};
use tensorferry::storage::Heap;
use tensorferry::{Bundle, ProcessContext, Queue, Tensor, TensorMut, func, start_processes};
use tensorferry_benches::{
    Answer, Ask, Control, Far, Near, Read, Received, Row, Sink, Source, fill, sum, touch,
};

/// A message: what travels beside it, and the tensor.
type One = (u64, Tensor<f32>);
/// A message of many tensors.
type Many = (u64, Vec<Tensor<f32>>);
/// The same with the tensors in a bundle.
type Bundled = (u64, Bundle);

/// Sends tensors. `T` is one of them or many.
struct Sender<T> {
    end: SoleSender<T>,
    n_elements: usize,
    existing: Vec<Tensor<f32>>,
    bundle: Bundle,
}

struct Receiver<T> {
    end: SoleReceiver<T>,
}

/// The queues of numbers: out of this side, and back.
pub(crate) type Numbered = (Queue<u64>, Queue<u64>);

/// Numbers between the two sides.
pub(crate) struct Numbers {
    pub(crate) out: Queue<u64>,
    pub(crate) back: Queue<u64>,
    /// Killed when this is dropped.
    pub(crate) _process: Option<ProcessContext<()>>,
}

impl Control for Numbers {
    fn tell(&mut self, number: u64) -> anyhow::Result<()> {
        Ok(self.out.put(number)?)
    }

    fn hear(&mut self) -> anyhow::Result<u64> {
        Ok(self.back.get()?)
    }
}

impl<T> Sender<T> {
    fn new(ask: &Ask, end: SoleSender<T>) -> anyhow::Result<Self> {
        let n_elements = ask.n_elements();
        let existing = (0..ask.count).map(|_| Ok(TensorMut::full([n_elements], 1.0)?.freeze()));
        let existing = existing.collect::<anyhow::Result<Vec<_>>>()?;
        let named = existing.iter().enumerate().map(|(index, tensor)| (format!("layer.{index}"), tensor));
        let bundle = Bundle::new(named)?;
        Ok(Self { end, n_elements, existing, bundle })
    }
}

impl<T> Receiver<T> {
    fn new(ask: &Ask, end: SoleReceiver<T>) -> Self {
        end.set_busy_poll(ask.polls.then_some(Duration::MAX));
        Self { end }
    }
}

impl Source for Sender<One> {
    fn send(&mut self, stamp: u64, value: Option<f32>) -> anyhow::Result<()> {
        let tensor = match value {
            None => self.existing[0].clone(),
            Some(value) => {
                let mut tensor = TensorMut::empty([self.n_elements])?;
                fill(tensor.as_mut_slice(), value);
                tensor.freeze()
            }
        };
        Ok(self.end.put((stamp, tensor))?)
    }
}

impl Source for Sender<Many> {
    fn send(&mut self, stamp: u64, _value: Option<f32>) -> anyhow::Result<()> {
        Ok(self.end.put((stamp, self.existing.clone()))?)
    }
}

impl Source for Sender<Bundled> {
    fn send(&mut self, stamp: u64, _value: Option<f32>) -> anyhow::Result<()> {
        Ok(self.end.put((stamp, self.bundle.clone()))?)
    }
}

fn read_of(tensor: &Tensor<f32>, read: Read) -> anyhow::Result<f32> {
    let elements = tensor.as_slice()?;
    Ok(if read == Read::Sum { sum(elements) } else { touch(elements) })
}

impl Sink for Receiver<One> {
    fn receive(&mut self, read: Read) -> anyhow::Result<Received> {
        let (stamp, tensor) = self.end.get()?;
        Ok(Received { stamp, total: read_of(&tensor, read)? })
    }
}

impl Sink for Receiver<Many> {
    fn receive(&mut self, read: Read) -> anyhow::Result<Received> {
        let (stamp, tensors) = self.end.get()?;
        let total = tensors.iter().map(|tensor| read_of(tensor, read)).sum::<anyhow::Result<f32>>()?;
        Ok(Received { stamp, total })
    }
}

impl Sink for Receiver<Bundled> {
    fn receive(&mut self, _read: Read) -> anyhow::Result<Received> {
        let (stamp, bundle) = self.end.get()?;
        let total = bundle.iter().map(|entry| Ok(touch(entry.as_slice()?))).sum::<anyhow::Result<f32>>()?;
        Ok(Received { stamp, total })
    }
}

#[func]
fn far_one(
    _rank: usize,
    ask: Ask,
    numbers: Numbered,
    ends: (SoleSender<One>, SoleReceiver<One>),
) -> anyhow::Result<()> {
    serve(&ask, numbers, ends)
}

#[func]
fn far_many(
    _rank: usize,
    ask: Ask,
    numbers: Numbered,
    ends: (SoleSender<Many>, SoleReceiver<Many>),
) -> anyhow::Result<()> {
    serve(&ask, numbers, ends)
}

#[func]
fn far_bundled(
    _rank: usize,
    ask: Ask,
    numbers: Numbered,
    ends: (SoleSender<Bundled>, SoleReceiver<Bundled>),
) -> anyhow::Result<()> {
    serve(&ask, numbers, ends)
}

fn serve<T: Serialize + DeserializeOwned>(
    ask: &Ask,
    (out, back): Numbered,
    (source, sink): (SoleSender<T>, SoleReceiver<T>),
) -> anyhow::Result<()>
where
    Sender<T>: Source,
    Receiver<T>: Sink,
{
    let source = Sender::new(ask, source)?;
    let sink = Receiver::new(ask, sink);
    let control = Numbers { out, back, _process: None };
    tensorferry_benches::serve(ask, &mut Far { source, sink, control })
}

/// Does nothing, as a member of the domain, until the queue is closed.
#[func]
fn idle(_rank: usize, ready: Queue<u64>, end: Queue<u64>) -> anyhow::Result<()> {
    ready.put(0)?;
    drop(end.get());
    Ok(())
}

/// Members that do nothing, until this is dropped.
pub(crate) fn idlers(n_members: usize) -> anyhow::Result<Option<ProcessContext<()>>> {
    if n_members == 0 {
        return Ok(None);
    }
    let (ready, end) = (Queue::new(n_members)?, Queue::new(1)?);
    let idlers = start_processes(idle, (ready.clone(), end), n_members)?;
    for _ in 0..n_members {
        ready.get()?;
    }
    Ok(Some(idlers))
}

pub(crate) fn measure(ask: &Ask) -> anyhow::Result<Answer> {
    let _idlers = idlers(ask.idle)?;
    match ask.count {
        _ if ask.bundled => measure_with(ask, far_bundled),
        1 => measure_with(ask, far_one),
        _ => measure_with(ask, far_many),
    }
}

fn measure_with<T, F>(ask: &Ask, far: F) -> anyhow::Result<Answer>
where
    T: Serialize + DeserializeOwned + 'static,
    F: tensorferry::spawn::Function<(Ask, Numbered, (SoleSender<T>, SoleReceiver<T>)), Value = ()>,
    Sender<T>: Source,
    Receiver<T>: Sink,
{
    let heap = Heap::current()?;
    let (forth, their_sink) = spsc_in(heap, ask.depth)?;
    let (their_source, back) = spsc_in(heap, ask.depth)?;
    let (out, their_back) = (Queue::new(1)?, Queue::new(1)?);
    let arguments = (ask.clone(), (their_back.clone(), out.clone()), (their_source, their_sink));
    let process = start_processes(far, arguments, 1)?;
    let control = Numbers { out, back: their_back, _process: Some(process) };
    let mut near = Near { source: Sender::new(ask, forth)?, sink: Receiver::new(ask, back), control };
    debug_assert_ne!(ask.row, Row::Pairs);
    tensorferry_benches::measure(ask, &mut near)
}
