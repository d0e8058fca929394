//! Children that have objects, and children that call them.

use serde::{Deserialize, Serialize};
use tensorferry::manager::{CallErrorKind, Dict, Manager, Proxy};
use tensorferry::queue::Queue;
use tensorferry::tensor::{Tensor, TensorMut};

use crate::container::forbid;
use crate::{Context, Task};

/// What is asked of the kept number.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Adds to it, and answers the sum.
    Add(u64),
    /// Adds the elements of a tensor to it, and answers the sum.
    AddAll(Tensor<u64>),
    /// Stops the process that has it, before it answers.
    Stop,
    /// From now on the kernel opens no more memory to the thread that has it, whose name is `refused` then.
    /// Answers 0 where the kernel cannot be told so.
    Refuse,
    /// Panics.
    Panic,
}

/// A number that somebody keeps.
pub type Number = Proxy<Request, u64>;

/// Named tensors that somebody keeps.
pub type Tensors = Dict<String, Tensor<u64>>;

/// Makes a number and a dictionary, puts them into its queue, says `here` and waits to be ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Keeper {
    /// Where the handles go.
    pub queue: Queue<(Number, Tensors)>,
}

impl Task for Keeper {
    const NAME: &'static str = "keeper";

    fn run(self, context: &Context) {
        let manager = Manager::new_in(&context.heap);
        let number = manager.serve(0_u64, add).unwrap();
        self.queue.put((number, manager.dict().unwrap())).unwrap();
        context.say("here");
        let _ = context.hear();
        manager.shutdown().unwrap();
    }
}

/// What a request does to a number.
pub fn add(total: &mut u64, request: Request) -> u64 {
    match request {
        Request::Add(number) => *total += number,
        Request::AddAll(tensor) => *total += tensor.iter().sum::<u64>(),
        Request::Stop => nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP).unwrap(),
        Request::Refuse => {
            if forbid(&[nix::libc::SYS_mprotect], nix::libc::ENOMEM).is_err() {
                return 0;
            }
            nix::sys::prctl::set_name(c"refused").unwrap();
            *total += 1;
        }
        Request::Panic => panic!("told to panic"),
    }
    *total
}

/// Does what each line says, and says how it went.
///
/// | line | answer |
/// | --- | --- |
/// | `add N` | the sum |
/// | `stop` | nothing before the process of the number goes on; then the sum |
/// | `insert KEY N` | `inserted` a tensor of so many ones |
/// | `get KEY`, `remove KEY` | its sum, or `none` |
///
/// or the error in one word: `Ended`, `OwnerDied`; others in full.
#[derive(Debug, Serialize, Deserialize)]
pub struct Asker {
    /// A number that somebody keeps.
    pub number: Number,
    /// Tensors that somebody keeps.
    pub tensors: Tensors,
}

impl Task for Asker {
    const NAME: &'static str = "asker";

    fn run(self, context: &Context) {
        while let Some(command) = context.hear() {
            context.say("on it");
            let answer = match command.split(' ').collect::<Vec<_>>()[..] {
                ["add", number] => self.call(Request::Add(number.parse().unwrap())),
                ["stop"] => self.call(Request::Stop),
                ["insert", key, n_elements] => {
                    let n_elements: usize = n_elements.parse().unwrap();
                    let tensor = TensorMut::ones_in(&context.heap, [n_elements]).unwrap().freeze();
                    let inserted = self.tensors.insert(key.to_owned(), tensor);
                    inserted.map(|_| "inserted".to_owned()).map_err(|error| error.kind)
                }
                ["get", key] => self.tensors.get(key).map(sum),
                ["remove", key] => self.tensors.remove(key).map(sum),
                _ => panic!("{command}"),
            };
            context.say(answer.unwrap_or_else(|error| match error {
                CallErrorKind::Ended => "Ended".to_owned(),
                CallErrorKind::OwnerDied { .. } => "OwnerDied".to_owned(),
                other => other.to_string(),
            }));
        }
    }
}

fn sum(tensor: Option<Tensor<u64>>) -> String {
    tensor.map_or("none".to_owned(), |tensor| tensor.iter().sum::<u64>().to_string())
}

impl Asker {
    fn call(&self, request: Request) -> Result<String, CallErrorKind> {
        Ok(self.number.call(request)?.to_string())
    }
}
