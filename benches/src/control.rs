//! How the measuring side tells the other side what to do: numbers, outside of what is measured.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, bail};

use crate::Ask;

/// A line of numbers in both directions.
pub trait Control {
    /// Tells the other side a number.
    ///
    /// # Errors
    /// When it is gone.
    fn tell(&mut self, number: u64) -> anyhow::Result<()>;

    /// Waits for a number.
    ///
    /// # Errors
    /// When the other side is gone.
    fn hear(&mut self) -> anyhow::Result<u64>;
}

/// The other side: this program once more. Killed when dropped.
#[derive(Debug)]
pub struct Other {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Other {
    /// Starts it with the same measurement and one more argument, by which it finds this side.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(ask: &Ask, argument: &str) -> anyhow::Result<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the peers are measured without tensorferry's way of starting"
        )]
        let mut command = Command::new(std::env::current_exe()?);
        command.args([&serde_json::to_string(ask)?, argument]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("the other side did not start")?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = BufReader::new(child.stdout.take().context("no standard output")?);
        Ok(Self { child, stdin, stdout })
    }

    /// The argument with which this process was started as the other side; `None` in the measuring process.
    #[must_use]
    pub fn argument() -> Option<String> {
        std::env::args().nth(2)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Control for Other {
    fn tell(&mut self, number: u64) -> anyhow::Result<()> {
        Ok(self.stdin.write_all(&number.to_ne_bytes())?)
    }

    fn hear(&mut self) -> anyhow::Result<u64> {
        let mut bytes = [0; 8];
        if self.stdout.fill_buf()?.is_empty() {
            bail!("the other side ended: {:?}", self.child.wait()?);
        }
        self.stdout.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// The measuring side as the other side sees it: standard input and output.
impl Control for (std::io::Stdin, std::io::Stdout) {
    fn tell(&mut self, number: u64) -> anyhow::Result<()> {
        self.1.write_all(&number.to_ne_bytes())?;
        Ok(self.1.flush()?)
    }

    fn hear(&mut self) -> anyhow::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}
