//! What a child does, and how it comes to do it.

use nix::sys::signal::{Signal, raise};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tensorferry::domain::{Admission, DomainFds};
use tensorferry::reduce::Parcel;
use tensorferry::storage::Heap;
use tensorferry_os::child as os;

use crate::{Limit, Link};

/// Something that a child process can do. The value is its arguments; queues and tensors in it travel by
/// handle.
pub trait Task: Serialize + DeserializeOwned {
    /// The sub-command of the child binary.
    const NAME: &'static str;

    /// Does it. A panic is a failure of the child.
    fn run(self, context: &Context);
}

/// What a child has besides its arguments.
#[derive(Debug)]
pub struct Context {
    /// The heap that the child joined.
    pub heap: Heap,
    /// The link to the test.
    pub link: Link,
}

impl Context {
    /// Tells the test something.
    pub fn say(&self, line: impl AsRef<str>) {
        self.link.say(line.as_ref());
    }

    /// Waits for the test to say something; `None` when it does not want anything any more.
    #[must_use]
    pub fn hear(&self) -> Option<String> {
        self.link.hear_until(None).ok().flatten()
    }

    /// Waits for the test to say exactly this.
    pub fn wait_for(&self, line: &str) {
        assert_eq!(self.hear().as_deref(), Some(line));
    }
}

/// The first line that a child hears.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// Limits that it sets for itself first.
    pub(crate) limits: Vec<(Limit, u64)>,
    /// What it needs to join the domain whose descriptor comes beside the line, and where its task lies.
    pub(crate) membership: Option<(Admission, u64)>,
    /// Whether it stops itself before it joins.
    pub(crate) halts: bool,
}

/// What a child says once it has its task.
pub(crate) const OPENED: &str = "opened";

/// Takes the link from standard input and hears the welcome.
pub(crate) fn meet() -> (Link, Welcome) {
    os::die_with_parent().unwrap();
    let link = Link::over(os::take_stdin().unwrap());
    let line = link.hear_until(None).unwrap().expect("the test says welcome first");
    let welcome: Welcome = serde_json::from_str(&line).unwrap();
    for &(limit, value) in &welcome.limits {
        limit.set(value);
    }
    (link, welcome)
}

/// Joins the domain, opens the task and runs it.
pub(crate) fn run_task<T: Task>() {
    let (link, welcome) = meet();
    let fds = DomainFds::from_message(std::iter::from_fn(|| link.take_fd()).collect());
    let fds = fds.expect("a domain comes with the welcome");
    let (admission, parcel) = welcome.membership.expect("an admission comes with the welcome");
    if welcome.halts {
        raise(Signal::SIGSTOP).unwrap();
    }
    let heap = Heap::join(fds, admission).unwrap();
    // Tests have this process look after others while it does nothing else, and stop its thread.
    heap.domain().wake_service();
    let task: T = Parcel::open(&heap, parcel).unwrap();
    link.say(OPENED);
    task.run(&Context { heap, link });
}

/// The whole of the child binary: runs the task that its first argument names.
pub fn run_child() {
    let name = std::env::args().nth(1).expect("the first argument names a task");
    assert!(crate::tasks::run_by_name(&name), "no task is called {name}");
}
