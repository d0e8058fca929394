//! What a script of `benches/python` has measured.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::de::DeserializeOwned;

/// Runs a script and reads its last line of output, which is JSON.
///
/// # Errors
/// When this Python does not start, fails, or says something else.
#[expect(clippy::disallowed_methods, reason = "Python is no process of ours")]
pub fn ask_python<T: DeserializeOwned>(python: &OsStr, script: &OsStr, args: &[String]) -> anyhow::Result<T> {
    let shown = python.display();
    let output = Command::new(python).arg(script).args(args).output();
    let output = output.with_context(|| format!("`{shown}` does not start"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint.lines().last().unwrap_or("it does not say why");
    ensure!(output.status.success(), "`{shown}` failed ({}): {last}", output.status);
    let answer = String::from_utf8(output.stdout)?;
    Ok(serde_json::from_str(answer.lines().last().unwrap_or_default())?)
}
