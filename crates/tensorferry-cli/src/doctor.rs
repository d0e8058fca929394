//! `tensorferry doctor`: tries what the library needs, and says how to mend what does not work.
//!
//! What can be tried is tried, and not derived from a version: a filter of system calls (seccomp(2)) or a
//! container can forbid what the kernel has.

mod devices;
mod finding;
mod kernel;
mod memory;
mod processes;
mod processors;
mod remedy;

use std::io::Write;

use serde::Serialize;

use finding::{Finding, Verdict};

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    findings: Vec<Finding>,
}

/// Runs all checks and prints what they found. Returns whether nothing is missing.
pub(crate) fn run(json: bool, out: &mut impl Write) -> anyhow::Result<bool> {
    let mut findings = vec![kernel::version(), kernel::pages()];
    findings.extend(memory::check());
    let is_missing = |findings: &[Finding]| findings.iter().any(|found| found.verdict == Verdict::Missing);
    if is_missing(&findings) {
        // All of these need what is above.
        findings.extend(REST.map(|check| Finding::untried(check, "needs what is missing above")));
    } else {
        findings.extend(kernel::check());
        findings.push(processors::check());
        findings.extend(processes::check());
        findings.extend(devices::check());
    }
    let is_well = !is_missing(&findings);
    let report = Report { version: env!("CARGO_PKG_VERSION"), findings };
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(out, "{}", report.text(is_well))?;
    }
    Ok(is_well)
}

/// What is not tried where there is no shared memory.
const REST: [&str; 4] = ["waiting for several queues", "start methods", "meeting at an address", "CUDA"];

impl Report {
    fn text(&self, is_well: bool) -> String {
        let mut text = format!("tensorferry {}\n\n", self.version);
        let width = self.findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        for Finding { check, verdict, what, fix } in &self.findings {
            text.push_str(&format!("{verdict:<8} {check:<width$}  {what}\n"));
            if let Some(fix) = fix {
                text.push_str(&format!("{:<8} {:<width$}  -> {fix}\n", "", ""));
            }
        }
        let is_limited = self.findings.iter().any(|finding| finding.verdict == Verdict::Limited);
        text.push_str(match (is_well, is_limited) {
            (true, false) => "\nEverything that tensorferry needs works here.\n",
            (true, true) => "\nWhat tensorferry needs works here, some of it with limits.\n",
            (false, _) => "\nWhat is missing has to be mended before programs can run here.\n",
        });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_what_is_missing_with_its_remedy() {
        let findings = vec![
            Finding::works("kernel", "Linux 6.18"),
            Finding::missing("memory file", "memfd_create failed", "allow memfd_create"),
        ];
        let text = Report { version: "1", findings }.text(false);
        assert!(text.contains("works    kernel       Linux 6.18\n"), "{text}");
        assert!(text.contains("missing  memory file  memfd_create failed\n"), "{text}");
        assert!(text.contains("-> allow memfd_create\n"), "{text}");
    }
}
