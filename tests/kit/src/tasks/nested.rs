//! Members in a PID namespace of their own.

use std::fs;

use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};
use tensorferry::queue::Queue;
use tensorferry_os::pidfd::PidFd;

use crate::tasks::Puppet;
use crate::{Child, Context, Family, Item, Link, RootTask, Task, until, with_family};

/// Starts a [`Puppet`] with this queue, and passes on what it is told to do: `ask COMMAND`, answered by the
/// puppet's answer; `members`, the number of members.
#[derive(Debug, Serialize, Deserialize)]
pub struct Nested {
    /// The puppet's.
    pub queue: Queue<Item>,
}

impl Task for Nested {
    const NAME: &'static str = "nested";

    fn run(self, context: &Context) {
        let family = Family::of(&context.heap);
        let puppet = family.start(Puppet { queue: Some(self.queue), ..Puppet::default() });
        while let Some(line) = context.hear() {
            let answer = match line.strip_prefix("ask ") {
                Some(command) => puppet.ask(command),
                None => family.members().len().to_string(),
            };
            context.say(answer);
        }
        puppet.finish();
    }
}

/// Makes a domain, and members of it in a new PID namespace; kills some of them, and checks that everybody
/// else stays alive and gets its due. Says `done`, or `skipped` where it may not make a namespace.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unsharing;

impl RootTask for Unsharing {
    const NAME: &'static str = "unsharing";

    fn run(self, link: &Link) {
        with_family(|family| {
            // Its children are in the new namespace, this process stays where it is.
            if unshare(CloneFlags::CLONE_NEWPID).is_err() {
                link.say("skipped");
                return;
            }
            let queue: Queue<Item> = Queue::new_in(family.heap(), 4).unwrap();
            let member = || family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() });
            // The first one is the init of the namespace: everybody in it dies with it.
            let first = member();
            let nested = family.start(Nested { queue: queue.clone() });
            let other = member();
            assert_ne!(namespace_of(first.pid()), namespace_of(std::process::id()));
            both_ways(family, &queue, &[&first, &other], &nested);

            // Killed by one who sees its number, as any child.
            other.kill();
            family.wait_members(4);
            both_ways(family, &queue, &[&first], &nested);

            // Admitted by somebody in the namespace, who is stopped: only the lock tells us that it died.
            assert_eq!(tell(&nested, "ask put 7 0 1000"), "put");
            let puppet = grandchild(nested.pid());
            nested.stop();
            puppet.send_signal(nix::libc::SIGKILL).unwrap();
            family.wait_members(3);
            let item = queue.get_nowait().unwrap();
            item.check();
            assert_eq!(item.sender, 7);
            // A process that nobody has proved dead is not taken for dead.
            nested.go_on();
            assert_eq!(tell(&nested, "members"), "3");
            assert_eq!(family.heap().domain().sweeps(), 2);
            nested.kill();
            family.wait_members(2);
            first.finish();
        });
        link.say("done");
    }
}

/// Items go from everybody to everybody.
fn both_ways(family: &Family, queue: &Queue<Item>, children: &[&Child], nested: &Child) {
    for (sender, child) in (0..).zip(children) {
        queue.put(Item::new(family.heap(), sender, 0, &[500])).unwrap();
        assert_eq!(tell(nested, "ask get"), format!("got {sender}/0"));
        assert_eq!(child.ask(&format!("put {sender} 1 500")), "put");
        queue.get().unwrap().check();
        assert_eq!(tell(nested, &format!("ask put {sender} 2 500")), "put");
        assert_eq!(child.ask("get"), format!("got {sender}/2"));
    }
}

/// Tells the nested one something, and waits for its answer.
fn tell(nested: &Child, line: &str) -> String {
    nested.say(line);
    nested.hear()
}

fn namespace_of(pid: u32) -> std::path::PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap()
}

/// The one child of a process, by the number that it has here.
fn grandchild(parent: u32) -> PidFd {
    let mut found = None;
    until("the child of a child is found", || {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        found = children.ok().and_then(|children| children.split_whitespace().next()?.parse().ok());
        found.is_some()
    });
    PidFd::open(found.unwrap()).unwrap()
}
