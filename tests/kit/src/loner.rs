//! A child that makes a domain of its own, so that the test can kill it: the test process is no member.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry::domain::Admission;

use crate::task::{OPENED, Welcome, meet};
use crate::{Child, Limit, Link, Task};

/// What a child does that starts outside of any domain. The value is its arguments, without tensors.
pub trait RootTask: Serialize + DeserializeOwned {
    /// The sub-command of the child binary.
    const NAME: &'static str;

    /// Does it. A panic is a failure of the child.
    fn run(self, link: &Link);
}

/// Starts children that are not members of this process's domain.
#[derive(Clone, Copy, Debug)]
pub struct Loner;

impl Loner {
    /// Starts a child with this task.
    #[track_caller]
    #[must_use]
    pub fn start<T: RootTask>(task: &T, limits: &[(Limit, u64)]) -> Child {
        Self::start_with(task, limits, &[])
    }

    /// As [`Loner::start`], with these variables in the child's environment.
    #[track_caller]
    #[must_use]
    pub fn start_with<T: RootTask>(task: &T, limits: &[(Limit, u64)], variables: &[(&str, &OsStr)]) -> Child {
        let child = Child::start_with(T::NAME, variables);
        child.welcome(&Welcome { limits: limits.to_vec(), membership: None, halts: false }, &[]);
        child.say(serde_json::to_string(task).unwrap());
        child
    }

    /// As [`Loner::start`], with a descriptor beside the task.
    #[track_caller]
    #[must_use]
    pub fn start_with_fd<T: RootTask>(task: &T, fd: OwnedFd) -> Child {
        let child = Child::start(T::NAME);
        child.welcome(&Welcome { limits: Vec::new(), membership: None, halts: false }, &[]);
        child.say_with(&serde_json::to_string(task).unwrap(), &[fd.as_fd()]);
        child
    }

    /// Starts a child that joins the domain of `host`, which runs a task that answers `admit PID` with an
    /// admission and `pack` with the number of a parcel.
    #[track_caller]
    #[must_use]
    pub fn start_in<T: Task>(host: &Child) -> Child {
        Self::start_in_with_domain::<T>(host).0
    }

    /// As [`Loner::start_in`], with a descriptor of the domain's file.
    #[track_caller]
    #[must_use]
    pub fn start_in_with_domain<T: Task>(host: &Child) -> (Child, OwnedFd) {
        let (child, mut fds) = Self::start_in_with_fds::<T>(host, &[]);
        (child, fds.remove(0))
    }

    /// As [`Loner::start_in`], with these variables in the child's environment; with the descriptors that it
    /// was given.
    #[track_caller]
    #[must_use]
    pub fn start_in_with_fds<T: Task>(host: &Child, variables: &[(&str, &OsStr)]) -> (Child, Vec<OwnedFd>) {
        let mut child = Child::start_with(T::NAME, variables);
        host.say(format!("admit {}", child.pid()));
        let line = host.hear();
        let (admission, parcel): (Admission, u64) = serde_json::from_str(&line).unwrap();
        let fds: Vec<OwnedFd> = std::iter::from_fn(|| host.try_take_fd()).collect();
        child.member = Some(admission.member());
        let membership = Some((admission, parcel));
        let welcome = Welcome { limits: Vec::new(), membership, halts: false };
        child.welcome(&welcome, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
        child.expect(OPENED);
        (child, fds)
    }
}

/// Runs a root task in the child.
pub(crate) fn run_root_task<T: RootTask>() {
    let (link, _) = meet();
    let line = link.hear_until(None).unwrap().expect("the arguments follow the welcome");
    let task: T = serde_json::from_str(&line).unwrap();
    task.run(&link);
}
