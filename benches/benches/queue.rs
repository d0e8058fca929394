//! A queue that carries handles against the same queue with the bytes in its messages, and against a Unix
//! socket.
//!
//! Each way does the same: the sender fills a buffer, the receiver, in another process, sums it up. The
//! buffers are used again, as a program that is in a hurry would do it. The receiver is started before the
//! clock, and the clock stops when the sum of all messages has come back.

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde::{Deserialize, Serialize};
use tensorferry::{GetError, ProcessContext, Queue, TensorMut, func, start_processes};
use tensorferry_benches::Bytes;

const SIZES_BYTES: [usize; 3] = [4 << 10, 1 << 20, 16 << 20];
const WORD_BYTES: usize = size_of::<u64>();
/// How many messages the sender may be ahead of the receiver.
const ROOM: usize = 4;

/// One message; after the last one of a measurement the receiver answers with the sum.
#[derive(Debug, Serialize, Deserialize)]
struct Message<Buffer> {
    buffer: Buffer,
    is_last: bool,
}

/// A way to another process, which sums up what comes.
trait Way: Sized {
    const NAME: &'static str;

    /// Starts the receiver.
    fn open(len_bytes: usize) -> anyhow::Result<Self>;

    /// Sends one message in which every word is `word`.
    fn send(&mut self, word: u64, is_last: bool) -> anyhow::Result<()>;

    /// The sum of all words since the last answer.
    fn answer(&mut self) -> anyhow::Result<u64>;

    /// Ends the receiver.
    fn close(self) -> anyhow::Result<()>;
}

fn fill(bytes: &mut [u8], word: u64) {
    bytes.chunks_exact_mut(WORD_BYTES).for_each(|place| place.copy_from_slice(&word.to_ne_bytes()));
}

fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
    words.fold(0, u64::wrapping_add)
}

/// Tensors by handle; the buffers come back through a queue of their own.
struct Handle {
    full: Queue<Message<TensorMut<u64>>>,
    empty: Queue<TensorMut<u64>>,
    sums: Queue<u64>,
    peer: ProcessContext<()>,
}

#[func]
fn receive_handles(
    _rank: usize,
    full: Queue<Message<TensorMut<u64>>>,
    empty: Queue<TensorMut<u64>>,
    sums: Queue<u64>,
) -> anyhow::Result<()> {
    let mut total = 0_u64;
    loop {
        match full.get() {
            Ok(Message { mut buffer, is_last }) => {
                total = buffer.as_slice().iter().fold(total, |total, word| total.wrapping_add(*word));
                empty.put(buffer)?;
                if is_last {
                    sums.put(std::mem::take(&mut total))?;
                }
            }
            Err(GetError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Way for Handle {
    const NAME: &'static str = "handle";

    fn open(len_bytes: usize) -> anyhow::Result<Self> {
        let (full, empty, sums) = (Queue::new(ROOM)?, Queue::new(ROOM)?, Queue::new(1)?);
        for _ in 0..ROOM {
            empty.put(TensorMut::zeros([len_bytes / WORD_BYTES])?)?;
        }
        let peer = start_processes(receive_handles, (full.clone(), empty.clone(), sums.clone()), 1)?;
        Ok(Self { full, empty, sums, peer })
    }

    fn send(&mut self, word: u64, is_last: bool) -> anyhow::Result<()> {
        let mut buffer = self.empty.get()?;
        buffer.as_mut_slice().fill(word);
        Ok(self.full.put(Message { buffer, is_last })?)
    }

    fn answer(&mut self) -> anyhow::Result<u64> {
        Ok(self.sums.get()?)
    }

    fn close(self) -> anyhow::Result<()> {
        self.full.close();
        self.peer.into_values()?;
        Ok(())
    }
}

/// The bytes themselves in the messages.
struct Payload {
    full: Queue<Message<Bytes<u8>>>,
    sums: Queue<u64>,
    peer: ProcessContext<()>,
    buffer: Arc<Vec<u8>>,
}

#[func]
fn receive_payloads(_rank: usize, full: Queue<Message<Bytes<u8>>>, sums: Queue<u64>) -> anyhow::Result<()> {
    let mut total = 0_u64;
    loop {
        match full.get() {
            Ok(Message { buffer: Bytes(bytes), is_last }) => {
                total = total.wrapping_add(sum(&bytes));
                if is_last {
                    sums.put(std::mem::take(&mut total))?;
                }
            }
            Err(GetError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Way for Payload {
    const NAME: &'static str = "payload";

    fn open(len_bytes: usize) -> anyhow::Result<Self> {
        let (full, sums) = (Queue::new(ROOM)?, Queue::new(1)?);
        let peer = start_processes(receive_payloads, (full.clone(), sums.clone()), 1)?;
        Ok(Self { full, sums, peer, buffer: Arc::new(vec![0; len_bytes]) })
    }

    fn send(&mut self, word: u64, is_last: bool) -> anyhow::Result<()> {
        fill(Arc::get_mut(&mut self.buffer).context("the last message is not sent")?, word);
        Ok(self.full.put(Message { buffer: Bytes(Arc::clone(&self.buffer)), is_last })?)
    }

    fn answer(&mut self) -> anyhow::Result<u64> {
        Ok(self.sums.get()?)
    }

    fn close(self) -> anyhow::Result<()> {
        self.full.close();
        self.peer.into_values()?;
        Ok(())
    }
}

/// A stream socket; the byte after the data says whether the message is the last one.
struct Socket {
    stream: UnixStream,
    peer: ProcessContext<()>,
    buffer: Vec<u8>,
}

#[func]
fn receive_from_socket(_rank: usize, name: String, len_bytes: usize) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let mut buffer = vec![0; len_bytes + 1];
    let mut total = 0_u64;
    loop {
        match stream.read_exact(&mut buffer) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        total = total.wrapping_add(sum(&buffer[..len_bytes]));
        if buffer[len_bytes] == 1 {
            stream.write_all(&std::mem::take(&mut total).to_ne_bytes())?;
        }
    }
}

impl Way for Socket {
    const NAME: &'static str = "socket";

    fn open(len_bytes: usize) -> anyhow::Result<Self> {
        let name = format!("tensorferry-bench-{}-{len_bytes}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let peer = start_processes(receive_from_socket, (name, len_bytes), 1)?;
        let (stream, _) = listener.accept().context("the receiver did not connect")?;
        Ok(Self { stream, peer, buffer: vec![0; len_bytes + 1] })
    }

    fn send(&mut self, word: u64, is_last: bool) -> anyhow::Result<()> {
        let (last, data) = self.buffer.split_last_mut().context("the buffer is empty")?;
        fill(data, word);
        *last = u8::from(is_last);
        Ok(self.stream.write_all(&self.buffer)?)
    }

    fn answer(&mut self) -> anyhow::Result<u64> {
        let mut answer = [0; WORD_BYTES];
        self.stream.read_exact(&mut answer)?;
        Ok(u64::from_ne_bytes(answer))
    }

    fn close(self) -> anyhow::Result<()> {
        drop(self.stream);
        self.peer.into_values()?;
        Ok(())
    }
}

/// How long so many messages take, and whether what arrived is what was sent.
fn measure(way: &mut impl Way, n_messages: u64, len_bytes: usize) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    for word in 1..=n_messages {
        way.send(word, word == n_messages)?;
    }
    let answer = way.answer()?;
    let elapsed = begin.elapsed();
    let sum_of_one_word_each = (1..=n_messages).fold(0, u64::wrapping_add);
    ensure!(
        answer == sum_of_one_word_each.wrapping_mul((len_bytes / WORD_BYTES) as u64),
        "{} messages of {len_bytes} bytes did not arrive as they were sent",
        n_messages
    );
    Ok(elapsed)
}

#[expect(clippy::expect_used, reason = "a bench that cannot measure has nothing to say")]
fn bench<W: Way>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue");
    group.sample_size(20);
    for len_bytes in SIZES_BYTES {
        let mut way = W::open(len_bytes).expect("the receiver did not start");
        group.throughput(Throughput::Bytes(len_bytes as u64));
        group.bench_function(BenchmarkId::new(W::NAME, len_bytes), |bencher| {
            bencher.iter_custom(|n_messages| {
                measure(&mut way, n_messages, len_bytes).expect("the messages were lost")
            });
        });
        way.close().expect("the receiver failed");
    }
    group.finish();
}

criterion_group!(benches, bench::<Handle>, bench::<Payload>, bench::<Socket>);
criterion_main!(benches);
