//! What a soak says in the end.

use std::fmt;

use serde::Serialize;

use super::books::Account;
use super::recovery::Histogram;

/// Everything that was done and counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SoakReport {
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// How many children at a time.
    pub processes: usize,
    /// Where the random numbers started.
    pub seed: u64,
    /// Children that were started.
    pub spawned: u64,
    /// Children that were killed.
    pub killed: u64,
    /// Children that were stopped for a while.
    pub stopped: u64,
    /// Children that were asked to leave, or had nothing more to do.
    pub left: u64,
    /// What became of the messages.
    pub messages: Account,
    /// From SIGKILL to the slot being free again, where nobody was stopped meanwhile.
    pub recovery: Histogram,
    /// The same where somebody was: a stopped process delays the sweep that it has begun.
    pub recovery_while_stopped: Histogram,
    /// Open descriptors of the director, before and after.
    pub descriptors: [usize; 2],
    /// Mappings of domains in the director, before and after.
    pub mappings: [usize; 2],
    /// Extents of the domain that were ever used: after the first part, and in the end.
    pub extents_used: [usize; 2],
    /// Bytes of the domain's file that have memory when nobody holds anything: after the first part, and in
    /// the end.
    pub bytes_allocated: [u64; 2],
    /// Members beside the director in the end.
    pub slots_left: usize,
    /// Children of the director in the end.
    pub children_left: usize,
}

/// By how much the file may have grown since the first part: heads of extents and pages of headers stay.
const BYTES_SLACK: u64 = 2 << 20;

impl SoakReport {
    /// What is wrong; nothing when all is well.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut check = |is_right: bool, what: String| {
            if !is_right {
                complaints.push(what);
            }
        };
        check(self.messages.is_right(), format!("messages: {:?}", self.messages));
        check(self.descriptors[1] <= self.descriptors[0], format!("descriptors: {:?}", self.descriptors));
        check(self.mappings[1] <= self.mappings[0], format!("mappings: {:?}", self.mappings));
        let [before, after] = self.bytes_allocated;
        check(after <= before + BYTES_SLACK, format!("bytes of the domain: {before}, then {after}"));
        check(self.slots_left == 0, format!("{} process slots are not free", self.slots_left));
        check(self.children_left == 0, format!("{} children are left", self.children_left));
        complaints
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, processes, seed, spawned, killed, stopped, left, messages, .. } = self;
        writeln!(f, "{seconds:.1} s, {processes} children at a time, seed {seed}")?;
        writeln!(f, "children: {spawned} spawned, {killed} killed, {stopped} stopped, {left} left")?;
        let Account { put, came, doubled, died_with_taker, missing_without_note, killed_without_note } =
            messages;
        writeln!(f, "messages: {put} put, {came} came, {doubled} doubled")?;
        writeln!(f, "  {died_with_taker} died with their takers, by the takers' own notes")?;
        writeln!(f, "  {missing_without_note} missing without a note, of {killed_without_note} that may be")?;
        for (name, times) in [
            ("recovery", &self.recovery),
            ("recovery while others stood still", &self.recovery_while_stopped),
        ] {
            let Histogram { count, p50_us, p99_us, max_us, buckets } = times;
            writeln!(f, "{name}: {count} kills, p50 {p50_us} us, p99 {p99_us} us, max {max_us} us")?;
            for (below, n) in buckets {
                writeln!(f, "  below {below:>9} us {n:>7}")?;
            }
        }
        let pair = |name: &str, [before, after]: [u64; 2]| format!("{name} {before} then {after}");
        let wide = |[before, after]: [usize; 2]| [before as u64, after as u64];
        writeln!(
            f,
            "left: {}, {}, {}, {}, {} slots, {} children",
            pair("descriptors", wide(self.descriptors)),
            pair("mappings", wide(self.mappings)),
            pair("bytes", self.bytes_allocated),
            pair("extents", wide(self.extents_used)),
            self.slots_left,
            self.children_left
        )
    }
}
