//! A connection to another machine: tensors through it, beside their bytes through a bare connection of TCP,
//! over the loopback of this machine.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails is of no use")]

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tensorferry::remote::{Connection, Key, Listener, connect};
use tensorferry::{Tensor, TensorMut};

/// The lengths of the tensors, in bytes.
const LENS: [usize; 3] = [4 << 10, 1 << 20, 16 << 20];

/// How many messages are answered together.
const ANSWERED: u64 = 8;

/// The time that `n` messages take, answers included. `send` sends one, and `answer` waits for an answer.
fn time(n: u64, mut send: impl FnMut(), mut answer: impl FnMut()) -> Duration {
    let begin = Instant::now();
    // Only whole groups are answered, so the last one may be longer.
    let n = n.next_multiple_of(ANSWERED);
    for nth in 1..=n {
        send();
        if nth % ANSWERED == 0 {
            answer();
        }
    }
    begin.elapsed()
}

fn remote(len_bytes: usize) -> (Connection<Tensor<u8>, ()>, Tensor<u8>) {
    let key = Key::new("a secret that is long enough").unwrap();
    let listener = Listener::bind("127.0.0.1:0", &key).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut there: Connection<(), Tensor<u8>> = listener.accept().unwrap();
        for nth in 1.. {
            let Ok(tensor) = there.recv() else { break };
            assert_eq!(tensor.n_elements(), len_bytes);
            if nth % ANSWERED == 0 {
                there.send(()).unwrap();
            }
        }
    });
    (connect(address, &key).unwrap(), TensorMut::full([len_bytes], 7).unwrap().freeze())
}

fn bare(len_bytes: usize) -> (TcpStream, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut there, _) = listener.accept().unwrap();
        for nth in 1.. {
            let mut bytes = vec![0; len_bytes];
            if there.read_exact(&mut bytes).is_err() {
                break;
            }
            black_box(bytes);
            if nth % ANSWERED == 0 {
                there.write_all(&[0]).unwrap();
            }
        }
    });
    let here = TcpStream::connect(address).unwrap();
    here.set_nodelay(true).unwrap();
    (here, vec![7; len_bytes])
}

fn streams(criterion: &mut Criterion) {
    for len_bytes in LENS {
        let mut group = criterion.benchmark_group(format!("{len_bytes} bytes"));
        group.throughput(Throughput::Bytes(len_bytes as u64)).sample_size(20);
        let (connection, tensor) = remote(len_bytes);
        let (mut sender, mut receiver) = connection.split();
        group.bench_function("remote", |bencher| {
            bencher.iter_custom(|n| {
                let send = || sender.send(tensor.clone()).unwrap();
                time(n, send, || receiver.recv().unwrap())
            });
        });
        let (stream, bytes) = bare(len_bytes);
        group.bench_function("bare TCP, not encrypted", |bencher| {
            bencher.iter_custom(|n| {
                let send = || (&stream).write_all(&bytes).unwrap();
                time(n, send, || (&stream).read_exact(&mut [0]).unwrap())
            });
        });
        group.finish();
    }
}

criterion_group!(benches, streams);
criterion_main!(benches);
