//! A process that runs the program `tensorferry`.

use nix::libc;
use serde::{Deserialize, Serialize};
use tensorferry_cli::{Outcome, run};

use super::program::become_somebody_else;
use crate::container::forbid;
use crate::{Child, Link, Loner, RootTask, not_here};

/// Says `well`, `something missing` or what is wrong with the arguments, and then what the program has
/// written, as a string of JSON. Says `not here: ` and why where it could not come into its situation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CommandLine {
    arguments: Vec<String>,
    forbidden: Option<Forbidden>,
    is_of_somebody_else: bool,
}

/// A system call that a filter forbids.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Forbidden {
    /// memfd_create(2) fails with EPERM.
    MemoryFiles,
    /// futex_waitv(2) fails with ENOSYS.
    WaitingForSeveral,
    /// execve(2) fails with EPERM.
    Executing,
}

impl CommandLine {
    /// With these arguments.
    #[must_use]
    pub fn new(arguments: &[&str]) -> Self {
        Self { arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(), ..Self::default() }
    }

    /// Under a filter.
    #[must_use]
    pub fn without(self, call: Forbidden) -> Self {
        Self { forbidden: Some(call), ..self }
    }

    /// As another user.
    #[must_use]
    pub fn as_somebody_else(self) -> Self {
        Self { is_of_somebody_else: true, ..self }
    }

    /// Starts it, and waits for its end. Returns its outcome and what it has written. Ends the test where it
    /// could not come into its situation.
    #[must_use]
    #[track_caller]
    pub fn run(&self) -> (String, String) {
        Self::heard(Loner::start(self, &[]))
    }

    /// As [`CommandLine::run`], for one that was started.
    #[must_use]
    #[track_caller]
    pub fn heard(child: Child) -> (String, String) {
        let outcome = child.hear();
        if let Some(why) = outcome.strip_prefix("not here: ") {
            not_here(why.to_owned());
        }
        let text = serde_json::from_str(&child.hear()).unwrap();
        child.finish();
        (outcome, text)
    }

    fn enter(&self) -> Result<(), Box<dyn std::error::Error>> {
        if self.is_of_somebody_else {
            become_somebody_else(libc::RLIM_INFINITY)?;
        }
        match self.forbidden {
            None => Ok(()),
            Some(Forbidden::MemoryFiles) => forbid(&[libc::SYS_memfd_create], libc::EPERM),
            Some(Forbidden::WaitingForSeveral) => forbid(&[libc::SYS_futex_waitv], libc::ENOSYS),
            Some(Forbidden::Executing) => forbid(&[libc::SYS_execve, libc::SYS_execveat], libc::EPERM),
        }
    }
}

impl RootTask for CommandLine {
    const NAME: &'static str = "command_line";

    fn run(self, link: &Link) {
        if let Err(why) = self.enter() {
            link.say(&format!("not here: {why}"));
            return;
        }
        let mut text = Vec::new();
        match run(self.arguments, &mut text, || None).unwrap() {
            Outcome::Well => link.say("well"),
            Outcome::SomethingMissing => link.say("something missing"),
            Outcome::Misused(why) => link.say(&serde_json::to_string(&why).unwrap()),
        }
        link.say(&serde_json::to_string(&String::from_utf8(text).unwrap()).unwrap());
    }
}
