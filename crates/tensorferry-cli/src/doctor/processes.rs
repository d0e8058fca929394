//! Processes: each start method that needs no permission starts one and exchanges tensors with it.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tensorferry_listen::{Listener, connect_timeout};
use tensorferry_queue::{Connection, pipe};
use tensorferry_spawn::{BoxedError, StartMethod, func, get_context};
use tensorferry_tensor::{Tensor, TensorMut};

use super::finding::Finding;
use super::remedy;

/// No step takes longer where it works at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a process that does not answer has to say why.
const LAST_WORDS: Duration = Duration::from_secs(1);
const MESSAGES: u32 = 2_000;
const PROBE: [u32; 1024] = [7; 1024];

pub(super) fn check() -> Vec<Finding> {
    let mut findings = Vec::new();
    for method in [StartMethod::Spawn, StartMethod::Forkserver] {
        let check = format!("start method {method}");
        findings.push(match exchange(method) {
            Ok(Times { start, one_way }) => Finding::works(
                &check,
                format!("a process in {start:.1?}, a tensor there and back in 2 x {one_way:.2?}"),
            ),
            Err(error) => {
                let text = format!("{error:#}");
                let otherwise =
                    "allow clone, execve of this program, socketpair and SCM_RIGHTS (seccomp, noexec)";
                let fix = remedy::of(&text, otherwise);
                // Programs use it only where they ask for it.
                let is_optional = method == StartMethod::Forkserver;
                if is_optional {
                    Finding::limited(&check, text, fix)
                } else {
                    Finding::missing(&check, text, fix)
                }
            }
        });
    }
    let check = "meeting at an address";
    findings.push(match meet() {
        Ok(()) => Finding::works(check, "a socket without a file"),
        Err(error) => {
            let text = format!("{error:#}");
            let otherwise =
                "allow unix sockets and SO_PEERCRED; processes that are started from here do without";
            let fix = remedy::of(&text, otherwise);
            Finding::limited(check, text, fix)
        }
    });
    findings
}

struct Times {
    /// From the call that starts a process to the first message from it.
    start: Duration,
    /// Of one message, both sides busy.
    one_way: Duration,
}

/// Sends back whatever comes.
#[func]
fn echo(_rank: usize, mut other: Connection<Tensor<u32>, Tensor<u32>>) -> Result<(), BoxedError> {
    while let Ok(tensor) = other.recv() {
        other.send(tensor)?;
    }
    Ok(())
}

fn exchange(method: StartMethod) -> anyhow::Result<Times> {
    let (mut mine, theirs) = pipe(4)?;
    let mut tensor = TensorMut::empty([PROBE.len()])?;
    tensor.as_mut_slice().copy_from_slice(&PROBE);
    let tensor = tensor.freeze();
    let start = Instant::now();
    let mut child = get_context(method).start_processes(echo, (theirs,), 1)?;
    let mut there_and_back = || {
        mine.send_timeout(tensor.clone(), PATIENCE)?;
        anyhow::Ok(mine.recv_timeout(PATIENCE)?)
    };
    let first = match there_and_back() {
        Ok(first) => first,
        Err(error) => {
            // What it says itself, or how it ended, says more.
            child.join_timeout(LAST_WORDS)?;
            return Err(error.context("the process does not answer"));
        }
    };
    let started = start.elapsed();
    ensure!(first.as_slice()? == PROBE, "a tensor came back with other contents");
    let begin = Instant::now();
    for _ in 0..MESSAGES {
        there_and_back()?;
    }
    let one_way = begin.elapsed() / (2 * MESSAGES);
    drop(mine);
    ensure!(child.join_timeout(PATIENCE)?, "the process did not end in {PATIENCE:?}");
    Ok(Times { start: started, one_way })
}

fn meet() -> anyhow::Result<()> {
    let address = format!("@tensorferry-doctor-{}", std::process::id());
    let listener = Listener::bind(&address)?;
    let guest = std::thread::Builder::new().spawn(move || {
        let mut host = connect_timeout::<u32, u32>(&address, PATIENCE)?;
        anyhow::Ok(host.send_timeout(7, PATIENCE)?)
    })?;
    let mut connection = listener.accept_timeout::<u32, u32>(1, PATIENCE)?;
    let number = connection.recv_timeout(PATIENCE)?;
    guest.join().map_err(|_| anyhow::anyhow!("the guest panicked"))??;
    ensure!(number == 7, "{number} arrived where 7 was sent");
    Ok(())
}
