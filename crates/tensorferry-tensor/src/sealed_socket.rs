//! Handing a sealed tensor to a process that is no member, by a Unix socket. docs/WIRE.md has the bytes. What
//! comes may be anything, at any pace.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use tensorferry_os::socket::{self, Interest};

use crate::dtype::DType;
use crate::error::SealedError;
use crate::layout::MAX_RANK;
use crate::shape::Shape;

/// What the message begins with: a name, and its version.
const MAGIC: [u8; 5] = *b"TFST\x01";
/// The name, a code of the dtype, the rank, and a byte to spare.
const HEAD_LEN_BYTES: usize = 8;
const DIM_LEN_BYTES: usize = 8;

/// What a sealed file is said to have in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

impl Label {
    fn to_bytes(&self) -> Vec<u8> {
        let rank = u8::try_from(self.shape.rank()).unwrap_or(u8::MAX);
        let mut bytes = MAGIC.to_vec();
        bytes.extend([self.dtype.code(), rank, 0]);
        bytes.extend(self.shape.iter().flat_map(|&dim| (dim as u64).to_le_bytes()));
        bytes
    }

    /// The dtype, and how many dimensions follow.
    fn read_head(head: &[u8; HEAD_LEN_BYTES]) -> Result<(DType, usize), SealedError> {
        let [name @ .., code, rank, _] = head;
        if *name != MAGIC {
            return Err(SealedError::NoTensor("it begins with something else"));
        }
        let dtype = DType::from_code(*code).ok_or(SealedError::NoTensor("its dtype is unknown here"))?;
        let rank = usize::from(*rank);
        if rank > MAX_RANK {
            return Err(SealedError::NoTensor("it has too many dimensions"));
        }
        Ok((dtype, rank))
    }

    fn read_shape(bytes: &[u8]) -> Result<Shape, SealedError> {
        let dim = |bytes: &[u8; DIM_LEN_BYTES]| usize::try_from(u64::from_le_bytes(*bytes)).ok();
        let dims: Option<Vec<usize>> = bytes.as_chunks().0.iter().map(dim).collect();
        Ok(Shape::from(dims.ok_or(SealedError::NoTensor("it is larger than this machine"))?))
    }
}

/// Sends a label, and a file beside it.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    label: &Label,
    file: BorrowedFd<'_>,
    timeout: Duration,
) -> Result<(), SealedError> {
    let deadline = Instant::now().checked_add(timeout);
    let bytes = label.to_bytes();
    let mut sent = 0;
    while sent < bytes.len() {
        let files = [file];
        let attached = if sent == 0 { &files[..] } else { &[] };
        match socket::try_send(socket, &bytes[sent..], attached)? {
            Some(n) => sent += n,
            None => wait(socket, Interest::Writable, deadline)?,
        }
    }
    Ok(())
}

/// Receives a label, and the file beside it.
pub(crate) fn receive(socket: BorrowedFd<'_>, timeout: Duration) -> Result<(Label, OwnedFd), SealedError> {
    let deadline = Instant::now().checked_add(timeout);
    let mut files = Vec::new();
    let mut head = [0; HEAD_LEN_BYTES];
    read_exact(socket, &mut head, &mut files, deadline)?;
    let (dtype, rank) = Label::read_head(&head)?;
    let mut dims = vec![0; rank * DIM_LEN_BYTES];
    read_exact(socket, &mut dims, &mut files, deadline)?;
    let shape = Label::read_shape(&dims)?;
    let file = files.pop().ok_or(SealedError::NoTensor("no descriptor came with it"))?;
    Ok((Label { dtype, shape }, file))
}

fn read_exact(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    files: &mut Vec<OwnedFd>,
    deadline: Option<Instant>,
) -> Result<(), SealedError> {
    let mut got = 0;
    while got < buffer.len() {
        match socket::try_receive(socket, &mut buffer[got..], files)? {
            Some(0) => return Err(SealedError::NoTensor("the other side has closed the socket")),
            Some(n) => got += n,
            None => wait(socket, Interest::Readable, deadline)?,
        }
        // Before there are more of them than this process may have.
        if files.len() > 1 {
            return Err(SealedError::NoTensor("more than one descriptor came with it"));
        }
    }
    Ok(())
}

fn wait(socket: BorrowedFd<'_>, interest: Interest, deadline: Option<Instant>) -> Result<(), SealedError> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let is_ready = socket::wait_ready(&[(socket.as_fd(), interest)], left)?;
    if is_ready.contains(&true) { Ok(()) } else { Err(SealedError::TimedOut) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_descriptor_comes_with_a_label_and_no_more() {
        let label = Label { dtype: DType::U8, shape: Shape::from([1]) };
        let (ours, theirs) = socket::pair().unwrap();
        socket::send_all(&theirs, &label.to_bytes(), &[ours.as_fd(), theirs.as_fd()]).unwrap();
        let error = receive(ours.as_fd(), Duration::from_secs(60)).unwrap_err();
        assert!(error.to_string().contains("more than one descriptor"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_label_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 8..600), named: bool) {
            if named {
                bytes[..5].copy_from_slice(&MAGIC);
            }
            let (ours, theirs) = socket::pair().unwrap();
            socket::send_all(&theirs, &bytes, &[ours.as_fd()]).unwrap();
            drop(theirs);
            if let Ok((label, _)) = receive(ours.as_fd(), Duration::from_secs(60)) {
                let mut again = label.to_bytes();
                again[7] = bytes[7];
                prop_assert_eq!(&again[..], &bytes[..again.len()]);
            }
        }
    }
}
