//! The questions about drivers (`tensorferry_sim_cuda::QUESTIONS`), put to whichever driver this run uses,
//! and the records of what drivers have answered.
//!
//! Each question has a *probe* here: processes that call the driver's functions as C does, and a text of what
//! they saw, in the words of the table. So the same program asks a real driver and the software driver, and
//! their answers can be compared.

mod contexts;
mod events;
mod legacy;
mod pools;
mod vmm;
mod words;

pub use legacy::consumer_killed;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};
use tensorferry_sim_cuda::{QUESTIONS, Question};

use crate::hardware::if_here;
use crate::{Machine, Process};

/// What one driver has answered. `docs/gpu` keeps those of real ones, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The name of device 0.
    pub card: String,
    /// What the driver says about itself.
    pub driver: String,
    /// When it was asked: year, month and day.
    pub date: String,
    /// By the name of the question.
    pub answers: BTreeMap<String, String>,
    /// Why a question was not asked there, by its name.
    pub not_asked: BTreeMap<String, String>,
}

type Probe = (&'static str, fn() -> String);

/// Questions that no probe puts, and why.
const NOT_ASKED: &[(&str, &str)] = &[
    ("device-lost", "no program can have a device fall off the bus"),
    ("event-limit", "a number, which is not worth using a machine's events up"),
    ("host-pageable", "what a copy still reads after its call is a matter of luck"),
    ("host-unregister-busy", "which copies are done by then is a matter of luck"),
    ("peer-twice", "one machine has no peers that reach each other and peers that do not"),
];

/// Where the software driver answers something else than real ones, and why it may: the question, what real
/// ones answer, the reason.
const KNOWN_DIFFERENCES: &[(&str, &str, &str)] = &[
    (
        "event-names",
        "1 names",
        "the software driver has nothing to clean up, and the library makes no events",
    ),
    ("event-destroyed", "ok; ok", "it is against the rules, and the software driver reports it"),
];

fn probes() -> impl Iterator<Item = Probe> {
    let all = [legacy::PROBES, vmm::PROBES, events::PROBES, pools::PROBES, words::PROBES, contexts::PROBES];
    all.into_iter().flatten().copied()
}

impl Record {
    /// Asks the driver of this run everything; tells of each answer. A probe that fails or hangs is an
    /// answer, too.
    #[must_use]
    pub fn of_this_machine(date: &str, mut tell: impl FnMut(&Question, &str)) -> Self {
        let about = process(&Machine::new(""));
        let (card, version) = (ask(&about, "card"), ask(&about, "version"));
        about.finish();
        // Its first line names the version of the kernel's part.
        let module = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        let module = module.lines().next().unwrap_or_default().trim().to_owned();
        let driver = format!("CUDA {version} {module}").trim().to_owned();
        let not_asked = NOT_ASKED.iter().map(|(id, why)| ((*id).to_owned(), (*why).to_owned())).collect();
        let mut record = Self { card, driver, date: date.to_owned(), answers: BTreeMap::new(), not_asked };
        for (id, probe) in probes() {
            let question = question(id).expect("a probe is for a question");
            match catch_unwind(AssertUnwindSafe(|| if_here(probe))) {
                Ok(Ok(answer)) => {
                    tell(question, &answer);
                    record.answers.insert(id.to_owned(), answer);
                }
                Ok(Err(needs)) => {
                    record.not_asked.insert(id.to_owned(), format!("needs {needs}"));
                }
                Err(payload) => {
                    let text = payload.downcast_ref::<String>().map_or("no reason", String::as_str);
                    let answer = format!("no answer: {}", text.lines().next().unwrap_or_default());
                    tell(question, &answer);
                    record.answers.insert(id.to_owned(), answer);
                }
            }
        }
        record
    }

    /// Where the software driver would answer something else, in words.
    #[must_use]
    pub fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (id, answer) in &self.answers {
            match question(id) {
                None => found.push(format!("{id}: there is no such question any more")),
                Some(question) if expected(question) != *answer && !is_known(id, answer) => {
                    found.push(format!(
                        "{id}, {}: {} ({}) says `{answer}`, the software driver `{}`",
                        question.asks,
                        self.card,
                        self.driver,
                        expected(question)
                    ))
                }
                Some(_) => {}
            }
        }
        let is_open = |id: &str| !self.answers.contains_key(id) && !self.not_asked.contains_key(id);
        let open = QUESTIONS.iter().filter(|question| is_open(question.id));
        found.extend(open.map(|question| format!("{}: was not asked on {}", question.id, self.card)));
        found
    }
}

fn question(id: &str) -> Option<&'static Question> {
    QUESTIONS.iter().find(|question| question.id == id)
}

fn is_known(id: &str, answer: &str) -> bool {
    KNOWN_DIFFERENCES.iter().any(|known| (known.0, known.1) == (id, answer))
}

/// What the software driver answers, as far as a program sees it: no other driver reports broken rules.
fn expected(question: &Question) -> String {
    question.answer.replace(", reported", "")
}

/// A process with a context.
fn process(machine: &Machine) -> Process {
    let process = machine.respondent(&[]);
    told(&process, &["context"]);
    process
}

/// Two processes with contexts, on one machine.
fn two() -> (Process, Process) {
    let machine = Machine::new("");
    (process(&machine), process(&machine))
}

fn one() -> Process {
    process(&Machine::new(""))
}

#[track_caller]
fn ask(process: &Process, line: &str) -> String {
    process.say(line);
    process.hear()
}

#[track_caller]
fn told(process: &Process, lines: &[&str]) {
    for line in lines {
        assert_eq!(ask(process, line), "ok", "{line}");
    }
}

/// The one word that all answers are, or all of them.
fn all_say<const N: usize>(answers: [String; N]) -> String {
    if answers.iter().all(|answer| *answer == answers[0]) { answers[0].clone() } else { answers.join("; ") }
}

/// Says a line with the descriptor that another process gives for another line.
#[track_caller]
fn with_fd(from: &Process, export: &str, to: &Process, import: &str) -> String {
    let answer = ask(from, export);
    assert!(["close-on-exec", "kept"].contains(&answer.as_str()), "{export}: {answer}");
    let fd = from.take_fd();
    to.say_with(import, &[fd.as_fd()]);
    to.hear()
}
