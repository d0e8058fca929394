//! A message between machines: a head that says how long its parts are, then the parts.

use serde::{Deserialize, Serialize};
use tensorferry_storage::{
    Bundle, Contents, ExclusiveBlock, Heap, IncomingHandle, IncomingMessage, MAX_HANDLES, OutgoingHandle,
    OutgoingHandles, Payload, StorageError,
};

use crate::error::{ConnectionError, RecvError, SendErrorKind};
use crate::frames::{FrameReader, FrameWriter};

/// The longest head: 65,535 handles take less.
const MAX_HEAD_LEN_BYTES: usize = 1 << 20;

/// The most that a message has beside its tensors, in bytes. It is private memory of the receiver, which no
/// domain limits.
const MAX_PAYLOADS_LEN_BYTES: u64 = 1 << 30;

/// How much of a payload is read at once, so that a long one is not believed before it comes.
const PAYLOAD_STEP_BYTES: usize = 1 << 20;

/// What comes behind it, in this order: the payload, then what each handle stands for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    payload_len_bytes: u64,
    parts: Vec<Part>,
}

/// What a handle stands for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Part {
    /// A block that nobody writes, and its length.
    Frozen(u64),
    /// A block that the receiver alone has.
    Exclusive(u64),
    /// The payload of a bundle, and its frozen blocks.
    Bundle { payload_len_bytes: u64, blocks: Vec<u64> },
}

impl Part {
    /// The lengths of its blocks.
    fn blocks(&self) -> &[u64] {
        match self {
            Self::Frozen(len_bytes) | Self::Exclusive(len_bytes) => std::slice::from_ref(len_bytes),
            Self::Bundle { blocks, .. } => blocks,
        }
    }

    fn of(handle: &OutgoingHandle) -> Result<Self, SendErrorKind> {
        match handle.contents() {
            Contents::Frozen(bytes) => Ok(Self::Frozen(len_of(bytes)?)),
            Contents::Exclusive(bytes) => Ok(Self::Exclusive(len_of(bytes)?)),
            Contents::Bundle(bundle) => {
                let bytes = |index| bundle.bytes(index).map_err(|_| SHARED_IN_BUNDLE).and_then(len_of);
                let blocks = (0..bundle.n_blocks()).map(bytes).collect::<Result<_, _>>()?;
                Ok(Self::Bundle { payload_len_bytes: bundle.payload_len_bytes() as u64, blocks })
            }
            Contents::Shared => {
                Err(SendErrorKind::Local("a lock, or memory that is shared, sealed or of a device,"))
            }
            _ => Err(SendErrorKind::Local("a queue, or what is like one,")),
        }
    }
}

const SHARED_IN_BUNDLE: SendErrorKind = SendErrorKind::Local("a bundle of what several processes write");

/// The length of a block, which has bytes unless the process may not read them.
fn len_of(bytes: &[u8]) -> Result<u64, SendErrorKind> {
    if bytes.is_empty() {
        return Err(SendErrorKind::Local("memory that this process cannot read, since it was forked,"));
    }
    Ok(bytes.len() as u64)
}

/// Sends a message. Fails with [`SendErrorKind::Local`] before anything is sent.
pub(crate) fn write(
    writer: &mut FrameWriter,
    payload: &[u8],
    handles: &OutgoingHandles,
) -> Result<(), SendErrorKind> {
    let parts = handles.iter().map(Part::of).collect::<Result<Vec<_>, _>>()?;
    if n_blocks(&parts) > MAX_HANDLES {
        return Err(SendErrorKind::Local("a message of more than 65,535 tensors"));
    }
    let head = Head { payload_len_bytes: payload.len() as u64, parts };
    if head.payloads_len_bytes() > MAX_PAYLOADS_LEN_BYTES {
        return Err(SendErrorKind::Local("a message that takes more than 1 GiB beside its tensors"));
    }
    let head = postcard::to_stdvec(&head);
    let head = head.map_err(|_| SendErrorKind::Local("a message of this form"))?;
    writer.write(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes())?;
    writer.write(&head)?;
    writer.write(payload)?;
    for handle in handles {
        match handle.contents() {
            Contents::Frozen(bytes) | Contents::Exclusive(bytes) => writer.write(bytes)?,
            Contents::Bundle(bundle) => {
                writer.write(&bundle.payload())?;
                for index in 0..bundle.n_blocks() {
                    writer.write(bundle.bytes(index).map_err(|_| ConnectionError::Broken)?)?;
                }
            }
            // They have been refused.
            _ => return Err(ConnectionError::Broken.into()),
        }
    }
    Ok(writer.flush()?)
}

/// Says goodbye: a head of no length.
pub(crate) fn write_goodbye(writer: &mut FrameWriter) -> Result<(), ConnectionError> {
    writer.write(&0_u32.to_le_bytes())?;
    writer.flush()
}

fn n_blocks(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.blocks().len().max(1)).fold(0, usize::saturating_add)
}

impl Head {
    /// Reads a head; `None` for a goodbye.
    pub(crate) fn read(reader: &mut FrameReader, max_bytes: u64) -> Result<Option<Self>, ConnectionError> {
        let mut len = [0; 4];
        reader.read(&mut len)?;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        if len == 0 {
            return Ok(None);
        }
        if len > MAX_HEAD_LEN_BYTES {
            return Err(ConnectionError::Nonsense("a long head"));
        }
        let mut head = vec![0; len];
        reader.read(&mut head)?;
        let head: Self =
            postcard::from_bytes(&head).map_err(|_| ConnectionError::Nonsense("a head that is none"))?;
        head.check(max_bytes)?;
        Ok(Some(head))
    }

    fn check(&self, max_bytes: u64) -> Result<(), ConnectionError> {
        if n_blocks(&self.parts) > MAX_HANDLES {
            return Err(ConnectionError::Nonsense("more than 65,535 blocks"));
        }
        let blocks = self.parts.iter().flat_map(|part| part.blocks().iter().copied());
        let len_bytes = blocks.fold(self.payloads_len_bytes(), u64::saturating_add);
        if len_bytes > max_bytes {
            return Err(ConnectionError::TooLong { len_bytes, max_bytes });
        }
        if self.payloads_len_bytes() > MAX_PAYLOADS_LEN_BYTES {
            return Err(ConnectionError::Nonsense("more than 1 GiB beside tensors"));
        }
        Ok(())
    }

    /// What is read into private memory.
    fn payloads_len_bytes(&self) -> u64 {
        let of_bundles = self.parts.iter().map(|part| match part {
            Part::Bundle { payload_len_bytes, .. } => *payload_len_bytes,
            _ => 0,
        });
        of_bundles.fold(self.payload_len_bytes, u64::saturating_add)
    }

    /// Memory for all blocks.
    pub(crate) fn allocate(&self, heap: &Heap) -> Result<Vec<ExclusiveBlock>, StorageError> {
        let lens = self.parts.iter().flat_map(Part::blocks);
        lens.map(|len_bytes| heap.allocate(usize::try_from(*len_bytes).unwrap_or(usize::MAX))).collect()
    }

    /// Reads the message behind the head into memory that was [allocated](Self::allocate) for it.
    pub(crate) fn read_message(
        &self,
        reader: &mut FrameReader,
        blocks: Vec<ExclusiveBlock>,
        heap: &Heap,
    ) -> Result<IncomingMessage, RecvError> {
        let payload = read_payload(reader, self.payload_len_bytes)?;
        let mut blocks = blocks.into_iter();
        let mut next = |reader: &mut FrameReader| -> Result<ExclusiveBlock, ConnectionError> {
            let mut block = blocks.next().ok_or(ConnectionError::Nonsense("more blocks than it has"))?;
            reader.read(block.bytes_mut())?;
            Ok(block)
        };
        let mut message = IncomingMessage { payload: Payload::from(&*payload), ..IncomingMessage::default() };
        // What cannot be had is said once all has been read, so that the next message begins where it does.
        let mut lacking = None;
        for part in &self.parts {
            message.handles.push(match part {
                Part::Frozen(_) => IncomingHandle::Frozen(next(reader)?.freeze()),
                Part::Exclusive(_) => IncomingHandle::exclusive(next(reader)?),
                Part::Bundle { payload_len_bytes, blocks } => {
                    let payload = read_payload(reader, *payload_len_bytes)?;
                    let frozen = blocks.iter().map(|_| Ok(next(reader)?.freeze()));
                    let frozen = frozen.collect::<Result<Vec<_>, ConnectionError>>()?;
                    let handles = frozen.iter().filter_map(OutgoingHandle::frozen).collect();
                    match Bundle::pack(heap, &payload, handles) {
                        Ok(bundle) => IncomingHandle::Bundle(bundle),
                        Err(error) => {
                            lacking.get_or_insert(error);
                            continue;
                        }
                    }
                }
            });
        }
        lacking.map_or(Ok(message), |error| Err(RecvError::Lost(error)))
    }
}

fn read_payload(reader: &mut FrameReader, len_bytes: u64) -> Result<Vec<u8>, ConnectionError> {
    let too_long = |_| ConnectionError::Nonsense("a payload that no memory holds");
    let len_bytes = usize::try_from(len_bytes).map_err(|_| ConnectionError::Nonsense("a long payload"))?;
    let mut payload = Vec::new();
    while payload.len() < len_bytes {
        let start = payload.len();
        let step = PAYLOAD_STEP_BYTES.min(len_bytes - start);
        payload.try_reserve(step).map_err(too_long)?;
        payload.resize(start + step, 0);
        reader.read(&mut payload[start..])?;
    }
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(payload_len_bytes: u64, parts: Vec<Part>) -> Head {
        Head { payload_len_bytes, parts }
    }

    #[test]
    fn no_head_makes_anybody_believe_in_more_than_is_allowed() {
        let bundle = |blocks| Part::Bundle { payload_len_bytes: 1, blocks };
        for (head, len_bytes) in [
            (head(101, Vec::new()), 101),
            (head(1, vec![Part::Frozen(50), Part::Exclusive(50)]), 101),
            (head(0, vec![bundle(vec![50, 50])]), 101),
            (head(u64::MAX, vec![Part::Frozen(u64::MAX), bundle(vec![u64::MAX])]), u64::MAX),
        ] {
            let error = head.check(100).unwrap_err();
            assert!(
                matches!(error, ConnectionError::TooLong { len_bytes: found, .. } if found == len_bytes),
                "{error}"
            );
        }
        head(1, vec![Part::Frozen(49), bundle(vec![49])]).check(100).unwrap();
        let bundles = (0..3)
            .map(|_| Part::Bundle { payload_len_bytes: MAX_PAYLOADS_LEN_BYTES / 2, blocks: Vec::new() });
        for head in [head(MAX_PAYLOADS_LEN_BYTES + 1, Vec::new()), head(0, bundles.collect())] {
            let error = head.check(u64::MAX).unwrap_err();
            assert!(matches!(error, ConnectionError::Nonsense(_)), "{error}");
        }
        head(MAX_PAYLOADS_LEN_BYTES, vec![Part::Frozen(u64::MAX / 2)]).check(u64::MAX).unwrap();
        for parts in [
            (0..=MAX_HANDLES).map(|_| Part::Frozen(0)).collect(),
            vec![bundle(vec![0; MAX_HANDLES + 1])],
            (0..=MAX_HANDLES).map(|_| bundle(Vec::new())).collect(),
        ] {
            let error = head(0, parts).check(100).unwrap_err();
            assert!(matches!(error, ConnectionError::Nonsense(_)), "{error}");
        }
    }

    #[test]
    fn a_head_of_the_most_handles_is_short_enough() {
        let parts = (0..MAX_HANDLES).map(|_| Part::Exclusive(u64::MAX)).collect();
        assert!(postcard::to_stdvec(&head(u64::MAX, parts)).unwrap().len() <= MAX_HEAD_LEN_BYTES);
    }

    #[test]
    fn memory_that_no_heap_has_is_an_error() {
        let heap = Heap::current().unwrap();
        for len_bytes in [u64::MAX, 1 << 60] {
            assert!(head(0, vec![Part::Frozen(8), Part::Frozen(len_bytes)]).allocate(heap).is_err());
        }
    }
}
