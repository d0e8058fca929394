//! Where and with what the table was measured.

use std::fs;

use serde_json::json;

use crate::programs::{Programs, command};

/// For programs.
pub(crate) fn facts(programs: &Programs) -> serde_json::Value {
    json!({
        "date": date(),
        "processor": processor(),
        "processors": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "caches": caches(),
        "memory_gib": memory_gib(),
        "kernel": kernel(),
        "rust": first_line("rustc", &["--version"]),
        "tensorferry": format!("{} {}", env!("CARGO_PKG_VERSION"), first_line("git", &["describe", "--always", "--dirty"])),
        "peers": peers(),
        "torch": programs.torch_versions(),
        "load": fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
    })
}

/// For people.
pub(crate) fn describe(programs: &Programs) -> Vec<String> {
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let mut lines = vec![
        format!("{}: {cpus} processors ({}), {} GiB, {}", date(), processor(), memory_gib(), caches()),
        format!("Linux {}, {}", kernel(), first_line("rustc", &["--version"])),
        format!("peers: {}", peers().join(", ")),
    ];
    lines.push(programs.torch_versions().unwrap_or_else(|| "torch: not measured".to_owned()));
    lines.extend(programs.notes());
    lines
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(|| "?".to_owned(), |(_, value)| value.trim().to_owned())
}

fn processor() -> String {
    let info = read("/proc/cpuinfo");
    format!(
        "{}, family {}, model {}",
        field(&info, "model name"),
        field(&info, "cpu family"),
        field(&info, "model\t")
    )
}

fn memory_gib() -> u64 {
    let kib: u64 = field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
    kib.div_ceil(1 << 20)
}

fn caches() -> String {
    let of = |index: usize| {
        let at = |name: &str| read(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}"));
        let (level, kind, size) = (at("level"), at("type"), at("size"));
        (kind.trim() != "Instruction" && !size.is_empty())
            .then(|| format!("L{} {}", level.trim(), size.trim()))
    };
    (0..5).filter_map(of).collect::<Vec<_>>().join(", ")
}

fn kernel() -> String {
    read("/proc/sys/kernel/osrelease").trim().to_owned()
}

/// The versions that the peers' lock file names.
fn peers() -> Vec<String> {
    let lock = include_str!("../peers/Cargo.lock");
    let lines: Vec<_> = lock.lines().collect();
    let version = |name: &str| {
        let at = lines.iter().position(|line| *line == format!("name = \"{name}\""))?;
        Some(format!("{name} {}", lines.get(at + 1)?.split('"').nth(1)?))
    };
    ["ipc-channel", "iceoryx2"].into_iter().filter_map(version).collect()
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = command(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("?").to_owned()
}

/// Today, in UTC.
fn date() -> String {
    first_line("date", &["-u", "+%Y-%m-%d"])
}
