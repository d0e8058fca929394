//! A child that has sealed tensors, and tries to change them.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use tensorferry::queue::Queue;
use tensorferry::tensor::SealedTensor;

use super::program::become_somebody_else;
use crate::{Context, DEADLINE, Link, RootTask, Task};

/// Does what each line says, and says how it went.
///
/// | line | answer |
/// | --- | --- |
/// | `put N` | `put` a tensor of so many elements, each its index, or the error |
/// | `get` | the sum of one that it has got, which it keeps, or the error |
/// | `lease` | as `get`, of a lease that it acknowledges |
/// | `attack` | `in vain`, once everything was tried to change the last one that it has; otherwise what it did |
/// | `pass` | `put` the last one that it has |
/// | `let_go` | `let go` of all |
#[derive(Debug, Serialize, Deserialize)]
pub struct SealedHolder {
    /// Where to put and where to get.
    pub queue: Queue<SealedTensor<u64>>,
}

impl Task for SealedHolder {
    const NAME: &'static str = "sealed_holder";

    fn run(self, context: &Context) {
        let mut held = Vec::new();
        while let Some(command) = context.hear() {
            let put = |tensor: SealedTensor<u64>| match self.queue.put(tensor) {
                Ok(()) => "put".to_owned(),
                Err(error) => error.to_string(),
            };
            let answer = match command.split_once(' ') {
                Some((_, n_elements)) => put(numbers(n_elements.parse().unwrap())),
                None if command == "get" => match self.queue.get() {
                    Ok(tensor) => {
                        let sum = tensor.as_slice().iter().sum::<u64>();
                        held.push(tensor);
                        sum.to_string()
                    }
                    Err(error) => error.to_string(),
                },
                None if command == "lease" => match self.queue.get_leased() {
                    Ok(lease) => {
                        held.push(lease.ack().unwrap());
                        "acknowledged".to_owned()
                    }
                    Err(error) => error.to_string(),
                },
                None if command == "attack" => attack(held.last().unwrap()),
                None if command == "pass" => put(held.last().unwrap().clone()),
                None => {
                    held.clear();
                    "let go".to_owned()
                }
            };
            context.say(&answer);
        }
    }
}

/// Takes a sealed tensor through the socket that it was given, and says its sum, whether it can be changed,
/// and who it is. Says `not here: ` and why where it cannot become another user.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SealedGuest {
    /// Whether it becomes another user first.
    pub is_somebody_else: bool,
}

impl RootTask for SealedGuest {
    const NAME: &'static str = "sealed_guest";

    fn run(self, link: &Link) {
        let socket = link.take_fd().expect("a socket came");
        if self.is_somebody_else
            && let Err(why) = become_somebody_else(nix::libc::RLIM_INFINITY)
        {
            link.say(&format!("not here: {why}"));
            return;
        }
        let tensor = SealedTensor::<u64>::receive_over(&socket, DEADLINE).unwrap();
        let sum = tensor.as_slice().iter().sum::<u64>();
        let shape = tensor.shape().to_vec();
        link.say(&format!("{sum} of {shape:?}, {}, as user {}", attack(&tensor), nix::unistd::getuid()));
    }
}

/// Elements that are their indexes.
fn numbers(n_elements: usize) -> SealedTensor<u64> {
    let fill = |elements: &mut [u64]| {
        for (number, element) in (0..).zip(elements) {
            *element = number;
        }
    };
    SealedTensor::build([n_elements], fill).unwrap()
}

fn attack(tensor: &SealedTensor<u64>) -> String {
    let file = File::from(tensor.to_fd().unwrap());
    // Through another descriptor of the same file, with more rights.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let reopened = File::options().read(true).write(true).open(path);
    for file in [Ok(file), reopened].into_iter().flatten() {
        if file.write_all_at(&[1], 0).is_ok() {
            return "written".to_owned();
        }
        if file.set_len(0).is_ok() {
            return "cut off".to_owned();
        }
        if fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096).is_ok() {
            return "punched".to_owned();
        }
    }
    "in vain".to_owned()
}
