//! The programs that measure, and torch.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags};
use tensorferry_benches::{Answer, Ask, Row, Way, remove_files_of};
use tensorferry_os::pidfd::PidFd;

use crate::options::Options;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/table.py");
/// How long one torch measurement is: its messages are slow.
const TORCH_SECONDS: f64 = 0.3;
/// Who takes longer hangs.
const TORCH_DEADLINE_S: i64 = 60;

/// No measurement takes as long as this.
const DEADLINE: Duration = Duration::from_secs(120);

/// Everything that can be asked.
#[derive(Debug)]
pub(crate) struct Programs {
    peers: Result<PathBuf, String>,
    torch: Result<HashMap<&'static str, Torch>, String>,
    given_up: Vec<String>,
}

/// A Python that answers.
#[derive(Debug)]
struct Torch {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    versions: serde_json::Value,
}

#[expect(clippy::disallowed_methods, reason = "the programs that measure are no processes of tensorferry")]
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

impl Programs {
    pub(crate) fn start(options: &Options) -> anyhow::Result<Self> {
        let peers = match &options.peers {
            Some(path) if path.is_file() => Ok(path.clone()),
            Some(path) => Err(format!("there is no program {}", path.display())),
            None => Err("no --peers was given".to_owned()),
        };
        let torch = match &options.python {
            None => Err("no --python was given".to_owned()),
            Some(python) => {
                let start = |name| Ok((name, Torch::start(python, name)?));
                let both: anyhow::Result<_> =
                    ["file_descriptor", "file_system"].into_iter().map(start).collect();
                both.map_err(|error| format!("{error:#}"))
            }
        };
        Ok(Self { peers, torch, given_up: Vec::new() })
    }

    /// What is not measured, and why.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.given_up.clone();
        if let Err(why) = &self.peers {
            notes.push(format!("ipc-channel and iceoryx2 are not measured: {why}"));
        }
        if let Err(why) = &self.torch {
            notes.push(format!("torch is not measured: {why}"));
        }
        notes
    }

    /// The versions of torch and Python.
    pub(crate) fn torch_versions(&self) -> Option<String> {
        let torch = self.torch.as_ref().ok()?.values().next()?;
        let text = |field: &str| torch.versions[field].as_str().unwrap_or("?").to_owned();
        Some(format!("torch {} (Python {})", text("torch"), text("python")))
    }

    /// One measurement; `None` when its program is not here.
    pub(crate) fn ask(&mut self, ask: &Ask) -> anyhow::Result<Option<Answer>> {
        let strategy = match ask.way {
            Way::TorchFd | Way::TorchFdAgain => "file_descriptor",
            Way::TorchFs | Way::TorchFsAgain => "file_system",
            way => {
                let Some(program) = self.program(way) else { return Ok(None) };
                return run(&program, ask).map(Some);
            }
        };
        let Ok(torch) = &mut self.torch else { return Ok(None) };
        // Not started, or given up.
        let Some(answering) = torch.get_mut(strategy) else { return Ok(None) };
        match answering.ask(ask) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => {
                torch.remove(strategy);
                self.given_up.push(format!("torch with {strategy} was given up at {:?}: {error:#}", ask.row));
                Ok(None)
            }
        }
    }

    /// The program for a way that is none of torch's.
    pub(crate) fn program(&self, way: Way) -> Option<PathBuf> {
        match way {
            Way::Ferry | Way::Payload | Way::Socket => Some(env!("CARGO_BIN_EXE_ferry").into()),
            Way::Floor | Way::FloorLifo => Some(env!("CARGO_BIN_EXE_floor").into()),
            Way::IpcShm | Way::IpcBytes | Way::IcePoll | Way::IceEvent => self.peers.clone().ok(),
            Way::TorchFd | Way::TorchFs | Way::TorchFdAgain | Way::TorchFsAgain => None,
        }
    }
}

/// Runs a program for one measurement.
fn run(program: &Path, ask: &Ask) -> anyhow::Result<Answer> {
    let line = serde_json::to_string(ask)?;
    let mut child = command(program);
    child.arg(&line).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().context("a program does not start")?;
    let pid = child.id();
    if !PidFd::open(pid)?.wait_dead(Some(DEADLINE))? {
        child.kill()?;
        child.wait()?;
        remove_files_of(pid).context("what a peer has left cannot be removed")?;
        bail!("{} did not end within {DEADLINE:?} at {line}", program.display());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed at {line}: {}, {complaint}", program.display(), output.status);
    }
    let answer = String::from_utf8_lossy(&output.stdout);
    let last = answer.lines().last().with_context(|| format!("no answer to {line}"))?;
    serde_json::from_str(last).with_context(|| format!("an answer that is none to {line}: {last}"))
}

impl Torch {
    fn start(python: &Path, strategy: &str) -> anyhow::Result<Self> {
        let mut command = command(python);
        command.args([SCRIPT, strategy]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("`{}` does not start", python.display()))?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut torch = Self { child, stdin, stdout, versions: serde_json::Value::Null };
        torch.versions = serde_json::from_str(&torch.line()?)?;
        Ok(torch)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let deadline = rustix::event::Timespec { tv_sec: TORCH_DEADLINE_S, tv_nsec: 0 };
        let mut wanted = [PollFd::new(self.stdout.get_ref(), PollFlags::IN)];
        if rustix::event::poll(&mut wanted, Some(&deadline))? == 0 {
            bail!("torch did not answer within {TORCH_DEADLINE_S} s");
        }
        if self.stdout.read_line(&mut line)? == 0 {
            bail!("Python ended, or has no torch");
        }
        Ok(line)
    }

    fn ask(&mut self, ask: &Ask) -> anyhow::Result<Answer> {
        let seconds = if ask.row == Row::Asleep { ask.seconds } else { ask.seconds.min(TORCH_SECONDS) };
        let mut line = serde_json::to_vec(&Ask { seconds, ..ask.clone() })?;
        line.push(b'\n');
        self.stdin.write_all(&line)?;
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // Its own child ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
