//! A process that runs the program `tensorferry`.

use std::io::{self, Write};

use nix::libc;
use serde::{Deserialize, Serialize};
use tensorferry_cli::{Outcome, run};

use super::program::become_somebody_else;
use crate::container::forbid;
use crate::{Child, Link, Loner, RootTask, not_here};

/// Says `well`, `something missing` or what is wrong with the arguments, and then what the program has
/// written, as a string of JSON. Before that, if it was asked to, says what the program has written each time
/// it has written a whole report: `shown` and a string of JSON. Says `not here: ` and why where it could
/// not come into its situation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CommandLine {
    arguments: Vec<String>,
    forbidden: Option<Forbidden>,
    is_of_somebody_else: bool,
    tells_what_is_shown: bool,
}

/// Begins the line in which a [`CommandLine`] says what the program has just written.
const SHOWN: &str = "shown ";

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

    /// Saying what it shows at once, for [`CommandLine::shown`].
    #[must_use]
    pub fn telling(self) -> Self {
        Self { tells_what_is_shown: true, ..self }
    }

    /// Waits for the next report of one that was started.
    #[must_use]
    #[track_caller]
    pub fn shown(child: &Child) -> String {
        let line = child.hear();
        let report = line.strip_prefix(SHOWN).unwrap_or_else(|| panic!("{line} instead of a report"));
        serde_json::from_str(report).unwrap()
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
        let outcome = loop {
            let line = child.hear();
            if !line.starts_with(SHOWN) {
                break line;
            }
        };
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
        let told = self.tells_what_is_shown.then_some(link);
        let mut screen = Screen { text: String::new(), shown: 0, told };
        match run(self.arguments, &mut screen, || None).unwrap() {
            Outcome::Well => link.say("well"),
            Outcome::SomethingMissing => link.say("something missing"),
            Outcome::Misused(why) => link.say(&serde_json::to_string(&why).unwrap()),
        }
        link.say(&serde_json::to_string(&screen.text).unwrap());
    }
}

/// Where the program writes to.
struct Screen<'a> {
    text: String,
    /// How much of it was told, in bytes.
    shown: usize,
    /// Who is told what was written.
    told: Option<&'a Link>,
}

impl Write for Screen<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.push_str(std::str::from_utf8(bytes).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(link) = self.told {
            link.say(&format!("{SHOWN}{}", serde_json::to_string(&self.text[self.shown..]).unwrap()));
            self.shown = self.text.len();
        }
        Ok(())
    }
}
