"""Tensors and queues shared between processes, without copies.

`Tensor`, `SharedTensor`, `CudaTensor` and `Queue` go wherever Python's `multiprocessing` pickles: arguments of processes
(`spawn`, `forkserver`), its queues and pipes, tasks and results of its pools.
"""

from collections.abc import Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self, final, overload

__version__: str
__all__: list[str]

class Closed(EOFError):
    """The queue is closed and empty, or every process at its other end has let go of it."""

class PeerDied(Closed):
    """Every process at the other end is gone, and at least one of them was killed or crashed."""

class _AnyTensor:
    """What every kind of tensor has."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str:
        """PyTorch's name of it, such as `float32`."""
    @property
    def nbytes(self) -> int: ...
    @property
    def is_shared(self) -> bool:
        """Whether others may write at the same time."""
    def __len__(self) -> int: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The same memory in another library: `torch.from_dlpack(tensor)`, `numpy.from_dlpack(tensor)`. What is on a
        device is ready there on the legacy default stream, or on `stream`.
        """
    def __dlpack_device__(self) -> tuple[int, int]: ...

class _HostTensor(_AnyTensor):
    """What tensors in the memory of the CPU have. `numpy.asarray` and `memoryview` see the same memory too."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...

@final
class Tensor(_HostTensor):
    """A tensor that nobody writes any more. Any number of processes may hold it.

    Arrays of it are read-only. PyTorch has no such tensors and lets you write: others would read what you write.
    """

@final
class TensorMut(_HostTensor):
    """A tensor that nobody else can see, to fill. Sending it moves it, and the receiver may go on writing.

    While a view of it exists (an array, a memoryview) it can be neither frozen (`BufferError`) nor sent (`TypeError`).
    """

    def freeze(self) -> Tensor:
        """Ends writing. This object is empty then."""
    def share(self) -> SharedTensor:
        """The tensor as one that several processes write at the same time. This object is empty then."""

@final
class SharedTensor(_HostTensor):
    """A tensor that any number of processes read and write at the same time: parameters in Hogwild training."""

@final
class CudaTensor(_AnyTensor):
    """A tensor in the memory of a CUDA device. Any number of processes read and write it at the same time.

    A library that takes it by `__dlpack__` (`torch.from_dlpack(tensor)`) or `__cuda_array_interface__` has the same
    memory, and waits on its stream for what the sender had queued. When the tensor is sent, its receivers wait for the
    streams with which it was taken; such a stream must not be destroyed while the process lives, as PyTorch's never are.
    Work on other streams is the program's to order, also before the last array that has the tensor is let go of.
    CuPy destroys its streams when they are collected: keep them.
    """

    @property
    def device(self) -> int:
        """The ordinal of its device in this process."""
    def is_written(self) -> bool:
        """Whether the device of the process that sent it has done the work that was queued for it before: always, for
        a tensor that was made here. Raises `RuntimeError` if it never will, because that process was killed."""
    def cpu(self) -> Tensor:
        """A copy in the memory of the CPU, behind what was queued on the streams with which it was taken here. Raises
        `RuntimeError` if the sender was killed before it had written it."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The same memory in another library, ready on the legacy default stream."""

@overload
def zeros(shape: int | Sequence[int], dtype: Any = "float32", device: Literal["cpu"] | None = None) -> TensorMut: ...
@overload
def zeros(shape: int | Sequence[int], dtype: Any = "float32", *, device: Any) -> Any:
    """A tensor of zeros in shared memory, to fill: a `CudaTensor` on a device. A dtype is PyTorch's name of it, or
    PyTorch's or NumPy's object; a device is `cpu`, `cuda` (the first one), `cuda:1`, its number, or PyTorch's object.
    """

@overload
def empty(shape: int | Sequence[int], dtype: Any = "float32", device: Literal["cpu"] | None = None) -> TensorMut: ...
@overload
def empty(shape: int | Sequence[int], dtype: Any = "float32", *, device: Any) -> Any:
    """As `zeros`, with unspecified contents."""

def tensor(array: Any, device: Any = None) -> Any:
    """A copy in shared memory of anything with `__dlpack__`: a `Tensor` of what is in the memory of the CPU, a
    `CudaTensor` of what is on a device. With `device`, what is in the memory of the CPU is copied there."""

def trim() -> int:
    """Gives memory of tensors that are gone, which is kept for the next ones, back to the system. Returns its bytes."""

def bytes_copied() -> int:
    """How many bytes this process has copied so far because they were not in the memory that they were sent to."""

@final
class Queue:
    """A bounded queue between processes, or one end of a channel. `put` and `get` are as in `queue.Queue`.

    A value is `None`, a bool, a number, a text, bytes, a tensor, a queue, or a list, tuple or dict of those. Tuples
    arrive as lists. Arrays of other libraries are copied into shared memory.
    """

    def __new__(cls, maxsize: int = 16) -> Self:
        """A queue with room for `maxsize` values, at least one: there are no unbounded ones."""
    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Raises `queue.Full`, `Closed`, `PeerDied`, `TypeError` for what cannot be sent."""
    def put_nowait(self, item: Any) -> None: ...
    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Raises `queue.Empty`, `Closed`, `PeerDied`, `ValueError` for what cannot be read."""
    def get_nowait(self) -> Any: ...
    async def put_async(self, item: Any) -> None:
        """As `put`, for a task of asyncio. The item is written once there is room; a task that is cancelled has put nothing."""
    async def get_async(self) -> Any:
        """As `get`, for a task of asyncio. A task that is cancelled has taken nothing."""
    async def get_leased_async(self) -> Lease:
        """As `get_leased`, for a task of asyncio."""
    def get_leased(self, block: bool = True, timeout: float | None = None) -> Lease:
        """A value that comes back unless its lease is acknowledged, so also when this process is killed.

        Raises what `get` raises, `TypeError` if the queue has no leases, and `RuntimeError` if this process has all of
        them.
        """
    def get_leased_nowait(self) -> Lease: ...
    def leases(self) -> Iterator[Lease]:
        """Leases until the queue is closed and nothing can come back to it, or all who put have let go of it. Raises
        `PeerDied` after a crash. It does not wait for what this process has leased itself."""
    def join(self, timeout: float | None = None) -> None:
        """Waits until everything that was put before this call is done: got, or, where it was leased, acknowledged.

        Raises `TimeoutError`, and `Closed` or `PeerDied` if something is left and nobody to do it. Who can itself get
        from the queue waits for ever then: join by the end that only puts.
        """
    def sender(self) -> Queue:
        """An end of it that only puts. Those who only get learn when all such ends are gone."""
    def receiver(self) -> Queue:
        """An end of it that only gets. Those who only put learn when all such ends are gone."""
    def qsize(self) -> int: ...
    def empty(self) -> bool: ...
    def full(self) -> bool: ...
    @property
    def maxsize(self) -> int: ...
    def close(self) -> None:
        """Lets nobody put any more, in any process. What is in the queue can still be got."""
    def __iter__(self) -> Iterator[Any]:
        """Values until the queue is closed, or all who put have let go of it. Raises `PeerDied` after a crash."""
    def __next__(self) -> Any: ...

def channel(maxsize: int = 16) -> tuple[Queue, Queue]:
    """A channel: its end that only puts, and the one that only gets. Each side learns when the other one is gone.

    A process that has both, or a whole `Queue`, could go on by itself, in another thread say. It is told all the same when
    the last other process has left, once each time.
    """

def channel_with_leases(maxsize: int = 16, max_leases: int = 8) -> tuple[Queue, Queue]:
    """As `channel`, for values that are leased (`get_leased`), up to `max_leases` at the same time in all processes.

    A value may be delivered more than once, so `put` refuses what is exclusive (`TensorMut`) with a `TypeError`.
    """

@final
class Lease:
    """A value that this process works on. If the process dies before `ack`, another one gets the value.

    `with lease:` acknowledges when the block ends, and gives the value back when the block raises. A lease that nobody
    refers to any more gives it back too; one that an exception's traceback refers to, or a cycle, does so later.
    """

    @property
    def value(self) -> Any:
        """Raises `ValueError` once it was given back."""
    @property
    def deliveries(self) -> int:
        """How often it has been delivered, this time included: more than 1 after a death, or when it was given back."""
    def ack(self) -> Any:
        """Nobody gets the value again. Returns it. Raises `ValueError` if the lease has ended before."""
    def give_back(self) -> None:
        """The next one gets the value. Raises `ValueError` if the lease has ended before."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None: ...

@final
class Lost:
    """In the place of a tensor or queue that `multiprocessing` has brought, but that could not be received: its process was
    killed, or had waited for ten seconds at its end; or this one could not become a member.

    Whatever is done with it raises the `ConnectionError` that says why. It is not raised where the pickle is read, because
    a pool of `multiprocessing` would wait for ever then.
    """

@final
class Connection:
    """One end of a connection between two processes."""

    def send(self, value: Any, timeout: float | None = None) -> None: ...
    def recv(self, timeout: float | None = None) -> Any:
        """Raises `Closed` (an `EOFError`), `PeerDied`, `queue.Empty` when nothing came in time."""
    async def send_async(self, value: Any) -> None:
        """As `send`, for a task of asyncio."""
    async def recv_async(self) -> Any:
        """As `recv`, for a task of asyncio. A task that is cancelled has taken nothing."""
    def poll(self, timeout: float | None = 0.0) -> bool:
        """Whether a value is there, or the other end is gone."""
    def close(self) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None: ...

def connect(address: str | PathLike[str], timeout: float | None = None, wait: bool = False) -> Connection:
    """Connects to a listener: a path, or a name after `@`. Raises `OSError` (`ConnectionRefusedError` or `FileNotFoundError` when nobody listens), `TimeoutError`.

    With `wait`, a listener that is not there yet is waited for, until `timeout` at most. Connect before anything else is made: tensors and queues of this process lie in the listener's memory then. Those
    that were made before lie elsewhere: frozen tensors are copied when they are sent, everything else is refused.
    """

@final
class Listener:
    """An address at which processes connect: a path, or a name after `@`, which is no file."""

    def __new__(cls, address: str | PathLike[str]) -> Self: ...
    def accept(self, maxsize: int = 16, timeout: float | None = None) -> Connection:
        """Raises `TimeoutError`, and `OSError` when somebody was refused; then it can be called again."""
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None: ...

def offer(value: Any) -> str:
    """Offers a value to one other process of this user, whichever takes it first. Returns a text, the token by which that
    one takes it. The value is offered until then, or until this process ends. Raises `TypeError` when it cannot be sent.
    """

def take(token: str, timeout: float | None = None) -> Any:
    """Takes the value that is offered by this token. Raises `ConnectionError` when it was taken before or is offered no
    more, and `TimeoutError`. What was said of `connect` about the memory of this process is true of this too."""

@final
class Publication:
    """A value that is published at an address, until this is closed or its process ends."""

    def replace(self, value: Any) -> None:
        """Publishes another value in the place of this one. Whoever has attached before keeps what it has."""
    @property
    def n_attached(self) -> int:
        """How often a process has attached so far."""
    @property
    def n_refused(self) -> int:
        """How often somebody was refused so far."""
    @property
    def last_refusal(self) -> str | None:
        """Why nobody was let in the last time that this happened."""
    def close(self) -> None:
        """Ends the publication: the address is free, and whoever has attached keeps what it has."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None: ...

def publish(address: str | PathLike[str], value: Any) -> Publication:
    """Publishes a value at an address, a path or a name after `@`, where any program of this user can `attach` to it.

    It is published as it is now: a tensor is the same memory in all programs, everything else is a copy. Raises
    `OSError` when the address is in use, and `TypeError` when the value cannot be sent, or only once: `freeze` or
    `share` a `TensorMut`.
    """

def attach(address: str | PathLike[str], timeout: float | None = None, wait: bool = False) -> Any:
    """Takes the value that is published at an address. Raises `OSError` (`ConnectionRefusedError` or `FileNotFoundError`
    when nothing is published there), `TimeoutError`.

    With `wait`, one that is not published yet is waited for, until `timeout` at most. What was said of `connect` about
    the memory of this process is true of this too.
    """
