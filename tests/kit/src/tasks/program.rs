//! An ordinary program of this library, in a place where the system allows it little.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use serde::{Deserialize, Serialize};
use tensorferry::domain::DomainError;
use tensorferry::queue::{GetError, PutErrorKind, Receiver, Sender, channel};
use tensorferry::spawn::{Process, ProcessHandle, func};
use tensorferry::storage::StorageError;
use tensorferry::tensor::{Tensor, TensorError, TensorMut};
use tensorferry::{Heap, Queue};

use crate::{Leftovers, Link, RootTask, container_filter, until};

/// A place to be in; the process brings itself there, and whom it starts is there too unless the variant says
/// otherwise.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Place {
    /// Where it is.
    Anywhere,
    /// `mlockall` of all that is and will be mapped (mlock(2)). Not inherited: each child does it too, after
    /// it has joined.
    LockedMemory,
    /// As another user than root, who may have so many threads (`RLIMIT_NPROC`, getrlimit(2)).
    FewThreads {
        /// All threads of all processes of that user.
        n_threads: u64,
    },
    /// Below a `/dev/shm` of its own.
    SharedMemoryFolder {
        /// Its size.
        len_bytes: u64,
        /// Whether nothing fits in any more.
        is_full: bool,
    },
    /// In this control group, which exists.
    ControlGroup {
        /// The folder of the group.
        folder: PathBuf,
    },
    /// Under a filter of system calls as of a container.
    Filtered,
}

impl Place {
    /// Goes there. `Err` with the reason where this process may not.
    fn enter(&self) -> Result<(), String> {
        let because = |what: &str| {
            let what = what.to_owned();
            move |error: nix::Error| format!("{what}: {error}")
        };
        match self {
            Self::Anywhere => {}
            Self::LockedMemory => lock_memory().map_err(because("mlockall"))?,
            Self::FewThreads { n_threads } => become_somebody_else(*n_threads)?,
            Self::SharedMemoryFolder { len_bytes, is_full } => {
                unshare(CloneFlags::CLONE_NEWNS).map_err(because("unshare"))?;
                let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
                let none = None::<&str>;
                mount(none, "/", none, private, none).map_err(because("a private mount namespace"))?;
                let size = format!("size={len_bytes}");
                mount(Some("shm"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some(size.as_str()))
                    .map_err(because("mounting /dev/shm"))?;
                if *is_full {
                    fill(Path::new("/dev/shm"));
                }
            }
            Self::ControlGroup { folder } => {
                let procs = folder.join("cgroup.procs");
                fs::write(procs, std::process::id().to_string()).map_err(|error| error.to_string())?;
            }
            Self::Filtered => container_filter().map_err(|error| error.to_string())?,
        }
        Ok(())
    }
}

fn lock_memory() -> nix::Result<()> {
    mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
}

/// A user whom nobody else is: what others run must not count.
pub(super) fn become_somebody_else(n_threads: u64) -> Result<(), String> {
    let number = 100_000 + std::process::id();
    let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
    let change = || -> nix::Result<()> {
        setgroups(&[])?;
        setresgid(group, group, group)?;
        setresuid(user, user, user)?;
        // Another user's process loses this, and with it what it may see of itself in /proc.
        set_dumpable(true)?;
        setrlimit(Resource::RLIMIT_NPROC, n_threads, n_threads)
    };
    change().map_err(|error| format!("becoming another user: {error}"))?;
    // Lost with the change, too.
    tensorferry_os::child::die_with_parent().map_err(|error| error.to_string())
}

/// Fills the file system that this folder is of.
fn fill(folder: &Path) {
    let mut file = File::create(folder.join("filling")).unwrap();
    let chunk = vec![1; 1 << 16];
    let error = loop {
        if let Err(error) = file.write_all(&chunk) {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
}

/// Goes to a place, and does there what programs do: makes a domain, sends itself a message, starts a
/// process, exchanges tensors with it, kills it while somebody waits for it, waits until everything that it
/// had is back, and starts another.
///
/// Says `skipped: REASON` where it may not go there, else `there`, and then `done`, or `STEP: ERROR` for the
/// first step that fails.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Where it runs.
    pub place: Place,
    /// How large its tensors are.
    pub n_elements: usize,
}

impl RootTask for Program {
    const NAME: &'static str = "program";

    fn run(self, link: &Link) {
        if let Err(reason) = self.place.enter() {
            link.say(&format!("skipped: {reason}"));
            return;
        }
        link.say("there");
        let outcome = self.run_through();
        link.say(&outcome.map_or_else(|error| error, |()| String::from("done")).replace('\n', " "));
    }
}

/// What goes to and fro: numbers that follow from the first one.
type Numbers = Tensor<u64>;

fn numbers(first: u64, n_elements: usize) -> Result<Numbers, TensorError> {
    let mut tensor = TensorMut::empty([n_elements])?;
    tensor.as_mut_slice().iter_mut().zip(first..).for_each(|(element, number)| *element = number);
    Ok(tensor.freeze())
}

fn is_sound(tensor: &Numbers, first: u64) -> bool {
    tensor.iter().copied().eq(first..first + tensor.n_elements() as u64)
}

impl Program {
    /// `Err` with the step and the error.
    fn run_through(&self) -> Result<(), String> {
        let heap = Heap::current().map_err(step("domain"))?;
        self.alone().map_err(|error| format!("alone: {error}"))?;
        wait_blocks(heap, 0);

        // The other process alone can answer, so nobody waits for it in vain.
        let victim = self.begin("start")?;
        let Other { process, questions, answers } = &victim;
        let waiting = std::thread::scope(|scope| {
            let waiting = std::thread::Builder::new().spawn_scoped(scope, || answers.get().map(drop));
            let waiting = waiting.map_err(step("thread"));
            process.kill().map_err(step("kill"))?;
            waiting?.join().map_err(|_| String::from("get: it panicked"))
        })?;
        if !matches!(waiting, Err(GetError::PeerDied)) {
            return Err(format!("get: the death of the other side is {waiting:?}"));
        }
        until("the slot of the dead is free", || heap.domain().members().len() == 1);
        let nobody = questions.put(numbers(1, 1).map_err(step("allocate"))?).map_err(|refused| refused.kind);
        if !matches!(nobody, Err(PutErrorKind::PeerDied)) {
            return Err(format!("put: to the dead is {nobody:?}"));
        }
        drop(victim);
        wait_blocks(heap, 0);

        let before = Leftovers::look();
        let Other { process, questions, answers } = self.begin("restart")?;
        drop(questions);
        let n_answers = process.into_value().map_err(step("join"))?;
        if n_answers != 1 {
            return Err(format!("join: {n_answers} answers"));
        }
        drop(answers);
        wait_blocks(heap, 0);
        before.wait_nothing_more();
        Ok(())
    }

    /// Starts a process and has it answer once. `Err` with why it could not, from the process itself if it
    /// could say so.
    fn begin(&self, name: &'static str) -> Result<Other, String> {
        let locks = matches!(self.place, Place::LockedMemory);
        let (questions, to_answer) = channel(4).map_err(step("channel"))?;
        let (to_ask, answers) = channel(4).map_err(step("channel"))?;
        let process = Process::new(answer, (locks, to_answer, to_ask)).start().map_err(step(name))?;
        let mut other = Other { process, questions, answers };
        match self.ask(&other) {
            Ok(()) => Ok(other),
            Err(silence) => Err(other.process.join().map_err(step(name)).err().unwrap_or(silence)),
        }
    }

    /// Without another process: a message that fits into a slot, and one that does not.
    fn alone(&self) -> Result<(), Box<dyn Error>> {
        let queue: Queue<(Numbers, Vec<u8>)> = Queue::new(4)?;
        for len_bytes in [0, 10_000] {
            queue.put((numbers(5, self.n_elements)?, vec![1; len_bytes]))?;
        }
        for len_bytes in [0, 10_000] {
            let (tensor, bytes) = queue.get()?;
            assert!(is_sound(&tensor, 5) && bytes == vec![1; len_bytes]);
        }
        Ok(())
    }

    fn ask(&self, other: &Other) -> Result<(), String> {
        let tensor = numbers(7, self.n_elements).map_err(step("allocate"))?;
        let sum = tensor.iter().copied().fold(0, u64::wrapping_add);
        other.questions.put(tensor).map_err(|refused| format!("put: {}", refused.kind))?;
        let (counted, answer) = other.answers.get().map_err(step("get"))?;
        assert!(counted == sum && is_sound(&answer, 8));
        Ok(())
    }
}

/// A process that runs [`answer`].
struct Other {
    process: ProcessHandle<u64>,
    questions: Sender<Numbers>,
    answers: Receiver<(u64, Numbers)>,
}

/// Adds up what it is sent, and answers with the sum and with as many numbers of its own, until nobody asks
/// any more.
#[func]
fn answer(
    _rank: usize,
    locks: bool,
    questions: Receiver<Numbers>,
    answers: Sender<(u64, Numbers)>,
) -> Result<u64, Box<dyn Error + Send + Sync>> {
    if locks {
        lock_memory()?;
    }
    let mut n_answers = 0;
    for question in &questions {
        let sum = question.iter().copied().fold(0, u64::wrapping_add);
        let first = question.iter().next().copied().unwrap_or(0);
        answers.put((sum, numbers(first + 1, question.n_elements())?))?;
        n_answers += 1;
    }
    Ok(n_answers)
}

fn step<E: Error>(name: &'static str) -> impl Fn(E) -> String {
    move |error| {
        let mut text = format!("{name}: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            text += &format!(": {cause}");
            source = cause.source();
        }
        text
    }
}

fn wait_blocks(heap: &Heap, n_blocks: u64) {
    until("memory comes back", || {
        heap.collect();
        heap.stats().own.live_blocks == n_blocks
    });
}

/// Says what the limit of a domain with default settings is, allocates until the domain refuses, and says how
/// many bytes it had then: in a place where taking more than that would get it killed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FillDomain {
    /// Where it runs.
    pub place: Place,
}

impl RootTask for FillDomain {
    const NAME: &'static str = "fill-domain";

    fn run(self, link: &Link) {
        if let Err(reason) = self.place.enter() {
            link.say(&format!("skipped: {reason}"));
            return;
        }
        link.say("there");
        let heap = Heap::current().unwrap();
        link.say(&heap.domain().limit_bytes().to_string());
        let mut blocks = Vec::new();
        loop {
            match heap.allocate(1 << 20) {
                Ok(mut block) => {
                    block.bytes_mut().fill(1);
                    blocks.push(block);
                }
                Err(StorageError::Domain(DomainError::Limit { used_bytes, .. })) => {
                    link.say(&used_bytes.to_string());
                    break;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}
