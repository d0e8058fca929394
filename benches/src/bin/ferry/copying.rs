//! The bytes themselves: in the payload of tensorferry's queue, and through a Unix stream socket.

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;

use anyhow::Context as _;
use tensorferry::queue::{SoleReceiver, SoleSender, spsc_in};
use tensorferry::storage::Heap;
use tensorferry::{Queue, func, start_processes};
use tensorferry_benches::{
    Answer, Ask, Bytes, Far, Near, Read, Received, Sink, Source, Way, fill, sum, touch,
};

use crate::handles::{Numbered, Numbers};

/// What travels beside the bytes, and they.
type Message = (u64, Bytes<f32>);

struct PayloadSource {
    end: SoleSender<Message>,
    buffer: Arc<Vec<f32>>,
}

struct PayloadSink {
    end: SoleReceiver<Message>,
}

fn read_of(elements: &[f32], read: Read) -> f32 {
    if read == Read::Sum { sum(elements) } else { touch(elements) }
}

impl Source for PayloadSource {
    fn send(&mut self, stamp: u64, value: Option<f32>) -> anyhow::Result<()> {
        if let Some(value) = value {
            fill(Arc::get_mut(&mut self.buffer).context("the last message is not sent")?, value);
        }
        Ok(self.end.put((stamp, Bytes(Arc::clone(&self.buffer))))?)
    }
}

impl Sink for PayloadSink {
    fn receive(&mut self, read: Read) -> anyhow::Result<Received> {
        let (stamp, Bytes(elements)) = self.end.get()?;
        Ok(Received { stamp, total: read_of(&elements, read) })
    }
}

#[func]
fn far_payload(
    _rank: usize,
    ask: Ask,
    (out, back): Numbered,
    (source, sink): (SoleSender<Message>, SoleReceiver<Message>),
) -> anyhow::Result<()> {
    let source = PayloadSource { end: source, buffer: Arc::new(vec![1.0; ask.n_elements()]) };
    let control = Numbers { out, back, _process: None };
    tensorferry_benches::serve(&ask, &mut Far { source, sink: PayloadSink { end: sink }, control })
}

/// One direction of a stream socket: the stamp, then the elements.
struct SocketEnd {
    stream: UnixStream,
    buffer: Vec<f32>,
}

impl Source for SocketEnd {
    fn send(&mut self, stamp: u64, value: Option<f32>) -> anyhow::Result<()> {
        if let Some(value) = value {
            fill(&mut self.buffer, value);
        }
        // One call for small messages, as who is in a hurry does it: the stamp stands in front of the
        // elements.
        let (head, elements) = self.buffer.split_at_mut(HEAD_ELEMENTS);
        bytemuck::cast_slice_mut::<f32, u8>(head).copy_from_slice(&stamp.to_ne_bytes());
        debug_assert!(!elements.is_empty());
        Ok(self.stream.write_all(bytemuck::cast_slice(&self.buffer))?)
    }
}

const HEAD_ELEMENTS: usize = 2;

impl Sink for SocketEnd {
    fn receive(&mut self, read: Read) -> anyhow::Result<Received> {
        self.stream.read_exact(bytemuck::cast_slice_mut(&mut self.buffer))?;
        let (head, elements) = self.buffer.split_at(HEAD_ELEMENTS);
        let stamp = u64::from_ne_bytes(bytemuck::cast_slice::<f32, u8>(head).try_into()?);
        Ok(Received { stamp, total: read_of(elements, read) })
    }
}

#[func]
fn far_socket(_rank: usize, ask: Ask, (out, back): Numbered, name: String) -> anyhow::Result<()> {
    let connect = || anyhow::Ok(UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name)?)?);
    let end = |stream| SocketEnd { stream, buffer: vec![1.0; HEAD_ELEMENTS + ask.n_elements()] };
    let (sink, source) = (end(connect()?), end(connect()?));
    tensorferry_benches::serve(
        &ask,
        &mut Far { source, sink, control: Numbers { out, back, _process: None } },
    )
}

pub(crate) fn measure(ask: &Ask) -> anyhow::Result<Answer> {
    let (out, back) = (Queue::new(1)?, Queue::new(1)?);
    let numbers = (back.clone(), out.clone());
    if ask.way == Way::Payload {
        let heap = Heap::current()?;
        let (forth, their_sink) = spsc_in(heap, ask.depth)?;
        let (their_source, end) = spsc_in(heap, ask.depth)?;
        let process = start_processes(far_payload, (ask.clone(), numbers, (their_source, their_sink)), 1)?;
        let source = PayloadSource { end: forth, buffer: Arc::new(vec![1.0; ask.n_elements()]) };
        let control = Numbers { out, back, _process: Some(process) };
        return tensorferry_benches::measure(ask, &mut Near { source, sink: PayloadSink { end }, control });
    }
    let name = format!("tensorferry-bench-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let process = start_processes(far_socket, (ask.clone(), numbers, name), 1)?;
    let end = |stream| SocketEnd { stream, buffer: vec![1.0; HEAD_ELEMENTS + ask.n_elements()] };
    let (source, sink) = (end(listener.accept()?.0), end(listener.accept()?.0));
    let control = Numbers { out, back, _process: Some(process) };
    tensorferry_benches::measure(ask, &mut Near { source, sink, control })
}
