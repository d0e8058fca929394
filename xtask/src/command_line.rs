//! One call of cargo, or of what it has built: a line that can be shown, repeated by hand, run, and watched
//! while it runs.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use xshell::{Shell, cmd};

/// A watched call that takes longer than this hangs: the longest of them, the tests, took up to ten minutes.
pub(crate) const HANGS_AFTER: Duration = Duration::from_secs(15 * 60);

/// What cargo tells the programs that it runs of their package. It is not passed on: the build script of ring
/// runs again when one of them differs, and everything above ring would be built twice, here and by hand.
const OF_OUR_OWN_PACKAGE: &[&str] = &[
    "CARGO_MANIFEST_DIR",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// One call of a program: its arguments, and the environment that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    program: String,
    env: Vec<(&'static str, String)>,
    args: Vec<String>,
}

/// Which of its two outputs a watched call wrote a line to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl CommandLine {
    /// A call of cargo: a line of arguments, separated by white space, without the word `cargo`.
    pub(crate) fn cargo(line: &str) -> CommandLine {
        CommandLine::program("cargo").args(line.split_whitespace())
    }

    /// A call of the program at this path, without arguments.
    pub(crate) fn program(path: impl Into<String>) -> CommandLine {
        CommandLine { program: path.into(), env: Vec::new(), args: Vec::new() }
    }

    /// The same call with these arguments added.
    pub(crate) fn args<I>(mut self, args: I) -> CommandLine
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// The same call with this variable set.
    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> CommandLine {
        self.env.push((name, value.into()));
        self
    }

    /// Runs the call with the outputs of this process.
    pub(crate) fn run(&self, sh: &Shell) -> anyhow::Result<ExitStatus> {
        self.command(sh).status().with_context(|| format!("could not start `{self}`"))
    }

    /// Runs the call and gives every line that it writes to `on_line`, in the order in which the lines
    /// arrive. After [`HANGS_AFTER`] the call is killed, with what it has started, and that is the error.
    pub(crate) fn watch(&self, sh: &Shell, on_line: impl FnMut(Stream, &str)) -> anyhow::Result<ExitStatus> {
        self.watch_for(sh, HANGS_AFTER, on_line)
    }

    fn watch_for(
        &self,
        sh: &Shell,
        limit: Duration,
        mut on_line: impl FnMut(Stream, &str),
    ) -> anyhow::Result<ExitStatus> {
        let mut command = self.command(sh);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("could not start `{self}`"))?;

        let (to_us, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            forward(Stream::Stdout, stdout, to_us.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            forward(Stream::Stderr, stderr, to_us);
        }
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let received =
                if left.is_zero() { Err(RecvTimeoutError::Timeout) } else { lines.recv_timeout(left) };
            match received {
                Ok((stream, line)) => on_line(stream, &line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    kill_with_descendants(sh, child.id());
                    child.kill().with_context(|| format!("could not kill `{self}`"))?;
                    child.wait().with_context(|| format!("could not wait for `{self}`"))?;
                    bail!(
                        "`{self}`, or a process that it left behind, still ran after {} s",
                        limit.as_secs()
                    );
                }
            }
        }
        child.wait().with_context(|| format!("could not wait for `{self}`"))
    }

    fn command(&self, sh: &Shell) -> Command {
        let mut cmd = sh.cmd(&self.program).args(&self.args);
        for name in OF_OUR_OWN_PACKAGE {
            cmd = cmd.env_remove(name);
        }
        for (name, value) in &self.env {
            cmd = cmd.env(name, value);
        }
        cmd.into()
    }
}

/// Kills a process and those that are found below it: a test runner's tests would go on without it.
fn kill_with_descendants(sh: &Shell, pid: u32) {
    let (mut pids, mut n_seen) = (vec![pid.to_string()], 0);
    while let Some(parent) = pids.get(n_seen).cloned() {
        n_seen += 1;
        // It starts no others from here on.
        let _ = cmd!(sh, "kill -STOP {parent}").quiet().ignore_status().ignore_stderr().run();
        let Ok(threads) = std::fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for thread in threads.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            pids.extend(children.split_whitespace().map(str::to_owned));
        }
    }
    // Some may have ended meanwhile.
    let _ = cmd!(sh, "kill -KILL {pids...}").quiet().ignore_status().ignore_stderr().run();
}

/// Shows a line on the output that it came from.
pub(crate) fn pass_on(stream: Stream, line: &str) {
    match stream {
        Stream::Stdout => println!("{line}"),
        Stream::Stderr => eprintln!("{line}"),
    }
}

fn forward(stream: Stream, output: impl Read + Send + 'static, to: mpsc::Sender<(Stream, String)>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(output);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|len_bytes| len_bytes > 0) {
            let line = String::from_utf8_lossy(&bytes);
            if to.send((stream, line.trim_end_matches(['\r', '\n']).to_owned())).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

impl fmt::Display for CommandLine {
    /// The line as it is typed into a shell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_as_it_is_typed() {
        let line = CommandLine::cargo("doc --no-deps").env("RUSTDOCFLAGS", "-D warnings").args(["it's"]);
        assert_eq!(line.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'it'\''s'");
    }

    #[test]
    fn what_cargo_tells_of_this_package_is_not_passed_on() {
        // This is so of the test runner's cargo, as of `cargo run`.
        assert_eq!(std::env::var("CARGO_PKG_NAME").unwrap(), env!("CARGO_PKG_NAME"));
        let command = CommandLine::cargo("build").command(&Shell::new().unwrap());
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).collect();
        for name in OF_OUR_OWN_PACKAGE {
            assert!(removed.contains(&(name.as_ref(), None)), "{name}: {removed:?}");
        }
    }

    #[test]
    fn a_watched_call_gives_its_lines_and_its_status() {
        let sh = Shell::new().unwrap();
        let mut seen = Vec::new();
        let status =
            CommandLine::cargo("--version").watch(&sh, |stream, line| seen.push((stream, line.to_owned())));
        assert!(status.unwrap().success());
        assert!(seen.iter().any(|(s, line)| *s == Stream::Stdout && line.starts_with("cargo ")), "{seen:?}");

        let mut complaint = String::new();
        let status = CommandLine::cargo("no-such-command").watch(&sh, |_, line| complaint.push_str(line));
        assert!(!status.unwrap().success());
        assert!(complaint.contains("no-such-command"), "{complaint}");
    }

    #[test]
    fn what_a_call_has_started_is_killed_with_it() {
        let sh = Shell::new().unwrap();
        // The shell's child has its output, which ends when all who have it are gone.
        let line = CommandLine::program("sh").args(["-c", "sleep 600 & echo $!; wait"]);
        let mut pid = None;
        line.watch_for(&sh, Duration::from_secs(10), |_, line| pid = Some(line.to_owned())).unwrap_err();
        let status = format!("/proc/{}/stat", pid.unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        // Gone, or a zombie that nobody has collected yet.
        while std::fs::read_to_string(&status).is_ok_and(|status| !status.contains(") Z ")) {
            assert!(Instant::now() < deadline, "it still runs");
            thread::yield_now();
        }
    }

    #[test]
    fn a_call_that_hangs_is_killed_and_named() {
        let sh = Shell::new().unwrap();
        let error = CommandLine::cargo("--version").watch_for(&sh, Duration::ZERO, |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("cargo --version"), "{error}");
    }
}
