//! Tensors that nobody can write any more, because the kernel forbids it.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::bytes;
use crate::dtype::DType;
use crate::element::Element;
use crate::error::{SealedError, TensorError};
use crate::frozen::Tensor;
use crate::layout::Layout;
use crate::sealed_socket::{self, Label};
use crate::sealed_storage::SealedStorage;
use crate::shape::Shape;
use crate::storage::FrozenStorage;

/// A tensor in a memory file of its own, which is sealed against writing and shrinking (`F_SEAL_WRITE`,
/// fcntl(2)). The kernel keeps its bytes as they are, whatever the processes do that have it.
///
/// A [`Tensor`] is not written while somebody has it because all processes follow the protocol. That is a
/// promise of the members. A sealed tensor needs no such promise: what [`as_slice`](Self::as_slice)
/// lends cannot change, also if the sender is hostile or has gone mad. So it may come from, and go to,
/// processes that are no members and are not trusted: through a Unix socket ([`SealedTensor::send_over`]), or
/// as a descriptor ([`SealedTensor::to_fd`], [`SealedTensor::from_fd`]).
///
/// It is for large things that live long, as the weights of a model: each one takes a file, and in each
/// process a descriptor and a mapping. It is made once and never written again; there is no way back. Its
/// memory does not count against the limit of a domain.
///
/// In a message it travels as a handle, like any tensor. The descriptor follows once for each receiver, from
/// the process that made the domain, which has to live until then; the sender need not.
///
/// # Blocking
/// The first message with it in a domain, and the first that a process receives, wait until that process has
/// answered: at most 20 s for each time that it is asked, whatever time-out the call has.
///
/// ```
/// use std::time::Duration;
/// use tensorferry_tensor::SealedTensor;
///
/// let fill = |elements: &mut [f32]| elements.copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// let weights = SealedTensor::build([2, 3], fill)?;
/// assert_eq!(weights.as_slice()[4], 5.0);
/// assert_eq!(weights.as_tensor().select(0, 1)?.to_vec(), [4.0, 5.0, 6.0]);
///
/// // To a process that is no member; it need not be trusted, nor trust this one.
/// let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
/// weights.send_over(&ours, Duration::from_secs(1))?;
/// let received = SealedTensor::<f32>::receive_over(&theirs, Duration::from_secs(1))?;
/// assert_eq!(received, weights);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SealedTensor<T> {
    storage: Arc<SealedStorage>,
    /// INVARIANT: all of `storage`'s first elements, in row-major order.
    tensor: Tensor<T>,
}

impl<T: Element> SealedTensor<T> {
    /// Makes a tensor that `fill` writes in place, and seals it. The elements are zero at first, in row-major
    /// order. Nothing is copied.
    ///
    /// # Errors
    /// [`TensorError::Layout`] for a shape that overflows; [`TensorError::Sealed`] when memory or descriptors
    /// run out.
    pub fn build(shape: impl Into<Shape>, fill: impl FnOnce(&mut [T])) -> Result<Self, TensorError> {
        let layout = Layout::contiguous(shape)?;
        let len_bytes = layout.n_elements() * size_of::<T>();
        let mut misaligned = None;
        let storage = SealedStorage::create(len_bytes, |bytes| match bytes::elements_mut(bytes) {
            Ok(elements) => fill(elements),
            // A mapping begins at a page.
            Err(error) => misaligned = Some(error),
        })?;
        misaligned.map_or_else(|| Ok(Self::over(storage, layout)), Err)
    }

    /// As [`SealedTensor::build`], with a function that can fail: one that reads a file, say.
    ///
    /// # Errors
    /// What `fill` answers, and what [`SealedTensor::build`] does.
    pub fn try_build<E: From<TensorError>>(
        shape: impl Into<Shape>,
        fill: impl FnOnce(&mut [T]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut filled = Ok(());
        let sealed = Self::build(shape, |elements| filled = fill(elements))?;
        filled.map(|()| sealed)
    }

    /// A sealed copy of these elements, in row-major order. The bytes are counted as copied.
    ///
    /// # Errors
    /// As [`SealedTensor::build`]; [`TensorError::Layout`] for a shape of another number of elements.
    pub fn from_slice(elements: &[T], shape: impl Into<Shape>) -> Result<Self, TensorError> {
        let layout = Layout::contiguous(shape)?;
        bytes::check_len(&layout, elements.len())?;
        let sealed = Self::build(layout.shape(), |to| to.copy_from_slice(elements))?;
        tensorferry_reduce::count_copied(size_of_val(elements));
        Ok(sealed)
    }

    /// A sealed copy of a tensor. The bytes are counted as copied.
    ///
    /// # Errors
    /// As [`SealedTensor::build`]; [`TensorError::Layout`] in a process that has no access to the tensor's
    /// memory (see [`Tensor::to_vec`]).
    pub fn from_tensor(tensor: &Tensor<T>) -> Result<Self, TensorError> {
        tensor.layout().check_fits(tensor.whole().len())?;
        let gather = |to: &mut [T]| bytes::gather(tensor.whole(), tensor.layout(), 1, to);
        let sealed = Self::build(tensor.shape(), gather)?;
        tensorferry_reduce::count_copied(size_of_val(sealed.as_slice()));
        Ok(sealed)
    }

    /// The tensor in a memory file that came from anybody. The file is checked: it has to be sealed against
    /// writing and shrinking, without holes, and long enough. Nothing is known about its elements, but that
    /// each is a valid one, as every pattern of bits is: type and shape have to be agreed on in another way.
    ///
    /// # Errors
    /// [`TensorError::Layout`] for a shape that overflows; [`SealedError::Os`] for a file that is not sealed
    /// so, [`SealedError::TooShort`].
    pub fn from_fd(fd: OwnedFd, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        let layout = Layout::contiguous(shape)?;
        Self::checked(SealedStorage::from_fd(fd)?, layout)
    }

    /// A descriptor of the file, for another process. Whoever has it can read the tensor, and nothing else.
    ///
    /// # Errors
    /// [`SealedError::Os`] when no descriptor is left.
    pub fn to_fd(&self) -> Result<OwnedFd, SealedError> {
        self.storage.to_fd()
    }

    /// Gives the tensor to a process that need not be a member, nor trusted, nor of the same user: through
    /// any Unix socket of type stream, whose other side calls [`SealedTensor::receive_over`]. Type and shape
    /// travel with the descriptor, at most 520 bytes.
    ///
    /// # Blocking
    /// While the socket has no room, for at most `timeout`.
    ///
    /// # Errors
    /// [`SealedError::TimedOut`], or the kernel's error of sendmsg(2).
    pub fn send_over(&self, socket: impl AsFd, timeout: Duration) -> Result<(), SealedError> {
        let label = Label { dtype: T::DTYPE, shape: self.shape().clone() };
        sealed_socket::send(socket.as_fd(), &label, self.storage.file(), timeout)
    }

    /// Takes a tensor that another process has [sent](SealedTensor::send_over), which need not be trusted:
    /// what it says is checked, as in [`SealedTensor::from_fd`], and it can make nobody wait for longer.
    /// After an error the socket is to be closed: what else comes through it makes no sense.
    ///
    /// # Blocking
    /// Until all of it has come, for at most `timeout`.
    ///
    /// # Errors
    /// [`SealedError::TimedOut`], [`SealedError::NoTensor`]; [`TensorError::DTypeMismatch`] for elements of
    /// another type; and as [`SealedTensor::from_fd`].
    pub fn receive_over(socket: impl AsFd, timeout: Duration) -> Result<Self, TensorError> {
        let (label, file) = sealed_socket::receive(socket.as_fd(), timeout)?;
        if label.dtype != T::DTYPE {
            return Err(TensorError::DTypeMismatch { expected: T::DTYPE, found: label.dtype });
        }
        Self::from_fd(file, label.shape)
    }

    /// As in [`SealedTensor::from_fd`].
    pub(crate) fn checked(storage: Arc<SealedStorage>, layout: Layout) -> Result<Self, TensorError> {
        let sealed = Self::over(storage, layout);
        let (n_elements, has) = (sealed.tensor.n_elements(), sealed.tensor.whole().len());
        if n_elements > has {
            let bytes = |n: usize| (n * size_of::<T>()) as u64;
            return Err(
                SealedError::TooShort { len_bytes: bytes(has), needed_bytes: bytes(n_elements) }.into()
            );
        }
        Ok(sealed)
    }

    fn over(storage: Arc<SealedStorage>, layout: Layout) -> Self {
        let tensor = Tensor::from_checked(FrozenStorage::over_private(storage.clone()), layout);
        Self { storage, tensor }
    }

    pub(crate) const fn storage(&self) -> &Arc<SealedStorage> {
        &self.storage
    }

    /// The elements, in row-major order.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        self.tensor.whole().get(..self.tensor.n_elements()).unwrap_or_default()
    }

    /// The length of each dimension.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        self.tensor.shape()
    }

    /// The number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The data type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        T::DTYPE
    }

    /// The number of elements; 1 for a scalar.
    #[must_use]
    pub fn n_elements(&self) -> usize {
        self.tensor.n_elements()
    }

    /// A view of it as an ordinary tensor, with all that those have: views of parts, iterators, arrays. It
    /// copies nothing and keeps the memory. To send it on, send this sealed tensor: an ordinary one counts as
    /// [private](Tensor::from_vec), and is copied into the domain to be sent.
    #[must_use]
    pub const fn as_tensor(&self) -> &Tensor<T> {
        &self.tensor
    }
}

/// Two tensors are equal if their shapes and elements are.
impl<T: Element> PartialEq for SealedTensor<T> {
    fn eq(&self, other: &Self) -> bool {
        self.tensor == other.tensor
    }
}

/// As for [`Tensor`].
impl<T: Element> fmt::Debug for SealedTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::listing::write_slice(f, "SealedTensor", self.tensor.layout(), self.tensor.whole())
    }
}

impl<T: Element> AsRef<[T]> for SealedTensor<T> {
    fn as_ref(&self) -> &[T] {
        self.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::dtype::DType;
    use crate::exclusive::TensorMut;

    #[test]
    fn a_view_is_sealed_in_row_major_order() {
        let tensor = Tensor::from_vec((0..6).collect::<Vec<i32>>(), [2, 3]).unwrap();
        let sealed = SealedTensor::from_tensor(&tensor.transpose(0, 1).unwrap()).unwrap();
        assert_eq!((sealed.shape(), sealed.as_slice()), (&Shape::from([3, 2]), &[0, 3, 1, 4, 2, 5][..]));
        assert!(sealed.as_tensor().shares_storage_with(&sealed.clone().as_tensor().narrow(0, 1, 2).unwrap()));
        assert_eq!(format!("{sealed:?}"), "SealedTensor<i32>[3, 2] [[0, 3], [1, 4], [2, 5]]");
    }

    #[test]
    fn a_file_that_is_too_short_or_not_sealed_is_refused() {
        let sealed = SealedTensor::from_slice(&[1_u64, 2, 3], [3]).unwrap();
        let fd = || sealed.to_fd().unwrap();
        assert_eq!(SealedTensor::<u64>::from_fd(fd(), [2]).unwrap().as_slice(), [1, 2]);
        let error = SealedTensor::<u64>::from_fd(fd(), [4]).unwrap_err();
        let TensorError::Sealed(SealedError::TooShort { len_bytes: 24, needed_bytes: 32 }) = error else {
            panic!("{error}");
        };
        assert!(SealedTensor::<u64>::from_fd(fd(), [usize::MAX, 2]).is_err());
        let heap = tensorferry_storage::Heap::current().unwrap();
        let of_a_domain = heap.domain().as_fd().try_clone_to_owned().unwrap();
        let error = SealedTensor::<u8>::from_fd(of_a_domain, [1]).unwrap_err();
        assert!(matches!(error, TensorError::Sealed(SealedError::Os(_))), "{error}");
    }

    #[test]
    fn nothing_and_one_element_are_sealed_too() {
        let none = SealedTensor::<f32>::build([0, 3], |elements| assert!(elements.is_empty())).unwrap();
        assert_eq!((none.as_slice(), none.n_elements()), (&[][..], 0));
        let one = SealedTensor::from_slice(&[7_u8], Shape::scalar()).unwrap();
        assert_eq!(one.as_tensor().item().unwrap(), 7);
        assert_eq!(one.as_tensor().dtype(), DType::U8);
        assert!(SealedTensor::from_slice(&[7_u8], [2]).is_err());
    }

    #[test]
    fn an_ordinary_tensor_of_it_is_private_and_copied_to_be_written() {
        let sealed = SealedTensor::from_slice(&[1_u8, 2], [2]).unwrap();
        assert!(!sealed.as_tensor().is_shared());
        let refused = sealed.as_tensor().clone().try_into_mut().unwrap_err();
        let mut copy: TensorMut<u8> = refused.into_tensor().to_mut().unwrap();
        copy.as_mut_slice()[0] = 9;
        assert_eq!(sealed.as_slice(), [1, 2]);
        assert_eq!(sealed.as_tensor().clone().into_vec(), [1, 2]);
    }

    #[test]
    fn a_socket_carries_type_and_shape_and_nobody_waits_longer_than_said() {
        const LONG: Duration = Duration::from_secs(60);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sealed = SealedTensor::from_slice(&[1_i16, 2, 3, 4, 5, 6], [3, 1, 2]).unwrap();
        let none = SealedTensor::<i16>::build([0, 7], |_| {}).unwrap();
        for tensor in [&sealed, &none, &sealed] {
            tensor.send_over(&ours, LONG).unwrap();
            assert_eq!(&SealedTensor::<i16>::receive_over(&theirs, LONG).unwrap(), tensor);
        }
        sealed.send_over(&ours, LONG).unwrap();
        let error = SealedTensor::<u8>::receive_over(&theirs, LONG).unwrap_err();
        assert!(matches!(error, TensorError::DTypeMismatch { found: DType::I16, .. }), "{error}");
        let receive = |timeout| match SealedTensor::<i16>::receive_over(&theirs, timeout) {
            Err(TensorError::Sealed(error)) => error,
            other => panic!("{other:?}"),
        };
        assert!(matches!(receive(Duration::from_millis(1)), SealedError::TimedOut));
        (&ours).write_all(b"TFST").unwrap();
        assert!(matches!(receive(Duration::from_millis(1)), SealedError::TimedOut), "half of a head");
        (&ours).write_all(b"GET / HTTP").unwrap();
        assert!(matches!(receive(LONG), SealedError::NoTensor("it begins with something else")));
        drop(ours);
        assert!(matches!(receive(LONG), SealedError::NoTensor(_)));
        let (ours, theirs) = UnixStream::pair().unwrap();
        while sealed.send_over(&ours, Duration::ZERO).is_ok() {}
        assert!(matches!(sealed.send_over(&ours, Duration::ZERO), Err(SealedError::TimedOut)));
        drop(theirs);
        assert!(matches!(sealed.send_over(&ours, LONG), Err(SealedError::Os(_))));
    }

    #[test]
    fn what_a_socket_says_is_held_against_the_file() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sealed = SealedTensor::from_slice(&[1_u8, 2], [2]).unwrap();
        let label = |dims: &[usize]| Label { dtype: DType::U8, shape: Shape::from(dims.to_vec()) };
        let timeout = Duration::from_secs(60);
        for dims in [&[3][..], &[usize::MAX, usize::MAX], &[1 << 40]] {
            sealed_socket::send(ours.as_fd(), &label(dims), sealed.storage.file(), timeout).unwrap();
            assert!(SealedTensor::<u8>::receive_over(&theirs, timeout).is_err(), "{dims:?}");
        }
        // No descriptor, and one that is no file.
        (&ours).write_all(b"TFST\x01\x02\x00\x00").unwrap();
        let error = SealedTensor::<u8>::receive_over(&theirs, timeout).unwrap_err();
        assert!(error.to_string().contains("no descriptor"), "{error}");
        sealed_socket::send(ours.as_fd(), &label(&[1]), ours.as_fd(), timeout).unwrap();
        assert!(SealedTensor::<u8>::receive_over(&theirs, timeout).is_err());
    }

    #[test]
    fn a_function_that_fails_has_its_error() {
        let failed = SealedTensor::<u8>::try_build([4], |elements| {
            elements.fill(1);
            Err(Box::<dyn std::error::Error>::from("torn"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "torn");
        let made = SealedTensor::<u8>::try_build([2], |elements| {
            elements.fill(3);
            Ok::<_, TensorError>(())
        });
        assert_eq!(made.unwrap().as_slice(), [3, 3]);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let error = SealedTensor::<u8>::build([1 << 50], |_| unreachable!()).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
    }
}
