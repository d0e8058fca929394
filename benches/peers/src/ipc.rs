//! ipc-channel: a segment of shared memory for each message, or the bytes copied.

use anyhow::Context as _;
use ipc_channel::ipc::{
    self, IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcReceiver, IpcSender, IpcSharedMemory,
};
use serde::{Deserialize, Serialize};

use crate::{
    Answer, Ask, Far, Near, Other, Read, Received, Sink, Source, Way, fill, measure, read_of, serve,
};

#[derive(Serialize, Deserialize)]
enum Sender {
    Shm(IpcSender<(u64, IpcSharedMemory)>),
    Bytes(IpcBytesSender),
}

#[derive(Serialize, Deserialize)]
enum Receiver {
    Shm(IpcReceiver<(u64, IpcSharedMemory)>),
    Bytes(IpcBytesReceiver),
}

/// Bytes in front of the elements that are copied.
const STAMP_BYTES: usize = size_of::<u64>();

struct IpcSource {
    sender: Sender,
    size_bytes: usize,
    existing: IpcSharedMemory,
    buffer: Vec<u8>,
}

fn channel(ask: &Ask) -> anyhow::Result<(Sender, Receiver)> {
    Ok(if ask.way == Way::IpcShm {
        let (sender, receiver) = ipc::channel()?;
        (Sender::Shm(sender), Receiver::Shm(receiver))
    } else {
        let (sender, receiver) = ipc::bytes_channel()?;
        (Sender::Bytes(sender), Receiver::Bytes(receiver))
    })
}

impl IpcSource {
    fn new(ask: &Ask, sender: Sender) -> Self {
        let size_bytes = ask.n_elements() * size_of::<f32>();
        let buffer = vec![0; STAMP_BYTES + size_bytes];
        Self { sender, size_bytes, existing: IpcSharedMemory::from_byte(0, size_bytes), buffer }
    }
}

/// The elements of bytes that are aligned, which all that come from a mapping or an allocator are.
fn elements_of(bytes: &[u8]) -> anyhow::Result<&[f32]> {
    bytemuck::try_cast_slice(bytes).ok().context("the bytes are not aligned")
}

impl Source for IpcSource {
    fn send(&mut self, stamp: u64, value: Option<f32>) -> anyhow::Result<()> {
        match &self.sender {
            Sender::Shm(sender) => {
                let segment = match value {
                    None => self.existing.clone(),
                    // The one way to fill a segment in one pass is a byte; its bits as a number are
                    // `BYTE_VALUES`.
                    Some(value) => {
                        IpcSharedMemory::from_byte(if value == 1.0 { 1 } else { 2 }, self.size_bytes)
                    }
                };
                sender.send((stamp, segment))?;
            }
            Sender::Bytes(sender) => {
                let (head, elements) = self.buffer.split_at_mut(STAMP_BYTES);
                head.copy_from_slice(&stamp.to_ne_bytes());
                if let Some(value) = value {
                    fill(bytemuck::cast_slice_mut(elements), value);
                }
                sender.send(&self.buffer)?;
            }
        }
        Ok(())
    }
}

/// What four bytes of 1 and of 2 are as a number.
const BYTE_VALUES: [f32; 2] = [f32::from_bits(0x0101_0101), f32::from_bits(0x0202_0202)];

impl Sink for Receiver {
    fn receive(&mut self, read: Read) -> anyhow::Result<Received> {
        match self {
            Self::Shm(receiver) => {
                let (stamp, segment) = receiver.recv()?;
                let elements = elements_of(&segment)?;
                let total = read_of(elements, read);
                // In the terms of the others: the number that each byte stands for, as often as there are
                // elements.
                let of_one = |value: f32, wanted: f32| {
                    (elements[0] == value && total > 0.0).then_some(wanted * elements.len() as f32)
                };
                let total =
                    of_one(BYTE_VALUES[0], 1.0).or_else(|| of_one(BYTE_VALUES[1], 2.0)).unwrap_or(total);
                Ok(Received { stamp, total })
            }
            Self::Bytes(receiver) => {
                let bytes = receiver.recv()?;
                let (head, elements) = bytes.split_at(STAMP_BYTES);
                let stamp = u64::from_ne_bytes(head.try_into()?);
                Ok(Received { stamp, total: read_of(elements_of(elements)?, read) })
            }
        }
    }
}

pub(crate) fn far(ask: &Ask, name: String) -> anyhow::Result<()> {
    let (their_sender, receiver) = channel(ask)?;
    let (sender, their_receiver) = channel(ask)?;
    IpcSender::connect(name)?.send((their_sender, their_receiver))?;
    let control = (std::io::stdin(), std::io::stdout());
    serve(ask, &mut Far { source: IpcSource::new(ask, sender), sink: receiver, control })
}

pub(crate) fn near(ask: &Ask) -> anyhow::Result<Answer> {
    let (server, name) = IpcOneShotServer::<(Sender, Receiver)>::new()?;
    let control = Other::start(ask, &name)?;
    let (_, (sender, receiver)) = server.accept()?;
    measure(ask, &mut Near { source: IpcSource::new(ask, sender), sink: receiver, control })
}
