//! A request to another process and its answer: of a thread, of a task that awaits, of a task that leaves the
//! wait to a thread, and of many tasks at once.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails is of no use")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tensorferry::queue::{Receiver, Sender, channel};
use tensorferry::{BoxedError, Process, Tensor, TensorMut, func};
use tokio::runtime::{Builder, Runtime};

/// How many tasks wait at the same time.
const N_TASKS: usize = 64;

type Request = (u64, Tensor<f32>);

#[func]
fn answer(_rank: usize, requests: Receiver<Request>, answers: Sender<u64>) -> Result<(), BoxedError> {
    for (number, tensor) in &requests {
        answers.put(number + tensor.n_elements() as u64)?;
    }
    Ok(())
}

/// The two ends of a process that answers. It ends with the first of them.
fn other_side() -> (Sender<Request>, Receiver<u64>) {
    let (to, requests) = channel(N_TASKS).unwrap();
    let (answers, from) = channel(N_TASKS).unwrap();
    let process = Process::new(answer, (requests, answers)).start().unwrap();
    std::thread::spawn(move || process.into_value());
    (to, from)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn requests(criterion: &mut Criterion) {
    let tensor = TensorMut::<f32>::zeros([1]).unwrap().freeze();
    let mut group = criterion.benchmark_group("request and answer");
    group.sample_size(20);
    let (to, from) = other_side();
    group.bench_function("thread", |bencher| {
        bencher.iter(|| {
            to.put((1, tensor.clone())).unwrap();
            black_box(from.get().unwrap())
        });
    });
    group.bench_function("task, awaits", |bencher| {
        let runtime = runtime();
        bencher.iter(|| {
            runtime.block_on(async {
                to.put_async((1, tensor.clone())).await.unwrap();
                black_box(from.get_async().await.unwrap())
            })
        });
    });
    group.bench_function("task, spawn_blocking", |bencher| {
        let runtime = runtime();
        bencher.iter(|| {
            runtime.block_on(async {
                to.put((1, tensor.clone())).unwrap();
                let from = from.clone();
                black_box(tokio::task::spawn_blocking(move || from.get().unwrap()).await.unwrap())
            })
        });
    });
    group.throughput(Throughput::Elements(N_TASKS as u64));
    group.bench_function("64 tasks, await", |bencher| {
        let runtime = runtime();
        bencher.iter(|| {
            runtime.block_on(async {
                let asking = (0..N_TASKS).map(|_| {
                    let (to, from, tensor) = (to.clone(), from.clone(), tensor.clone());
                    tokio::spawn(async move {
                        to.put_async((1, tensor)).await.unwrap();
                        from.get_async().await.unwrap()
                    })
                });
                for task in asking.collect::<Vec<_>>() {
                    black_box(task.await.unwrap());
                }
            });
        });
    });
    group.finish();
}

criterion_group!(benches, requests);
criterion_main!(benches);
