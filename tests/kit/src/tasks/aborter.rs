//! A member that ends with a core dump.

use std::path::PathBuf;

use nix::sys::resource::{Resource, setrlimit};
use serde::{Deserialize, Serialize};
use tensorferry::tensor::{Tensor, TensorMut};

use crate::{Context, Task};

/// Says how many mappings of the domain's data it has and how many of them are left out of core dumps; waits
/// for a word, and aborts with core dumps on, in this folder.
#[derive(Debug, Serialize, Deserialize)]
pub struct Aborter {
    /// Where a core file goes, if the system writes any.
    pub folder: PathBuf,
    /// It holds this.
    pub tensor: Tensor<u64>,
}

impl Task for Aborter {
    const NAME: &'static str = "aborter";

    fn run(self, context: &Context) {
        // Two opened pieces at least: one that somebody else allocated, one of its own.
        let own = TensorMut::<u64>::zeros_in(&context.heap, [1 << 20]).unwrap();
        let layout = *context.heap.domain().layout();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let data = data_mappings(&smaps, layout.data_offset_bytes as u64);
        let n_left_out = data.iter().filter(|flags| flags.split(' ').any(|flag| flag == "dd")).count();
        context.say(data.len().to_string());
        context.say(n_left_out.to_string());
        let _ = context.hear();
        setrlimit(Resource::RLIMIT_CORE, u64::MAX, u64::MAX).unwrap();
        std::env::set_current_dir(&self.folder).unwrap();
        std::hint::black_box((&self.tensor, &own));
        std::process::abort();
    }
}

/// The flags of each mapping of a domain's file from `data_offset_bytes` on, from the text of /proc/PID/smaps
/// (proc_pid_smaps(5)).
fn data_mappings(smaps: &str, data_offset_bytes: u64) -> Vec<&str> {
    let mut is_data = false;
    let mut found = Vec::new();
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if !first.ends_with(':') {
            let offset = words.nth(1).and_then(|offset| u64::from_str_radix(offset, 16).ok());
            is_data = line.contains("memfd:tensorferry") && offset >= Some(data_offset_bytes);
        } else if let Some(flags) = line.strip_prefix("VmFlags: ").filter(|_| is_data) {
            found.push(flags);
        }
    }
    found
}
