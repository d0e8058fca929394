//! `cargo xtask test-gpu`: the CUDA tests and examples on a real driver, here or on a machine without Rust.
//!
//! Both ways are one: what is to be run is built, laid into a folder with a script, and the script is run,
//! here or there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use lexopt::prelude::*;
use serde_json::Value as Json;
use xshell::{Shell, cmd};

use crate::command_line::CommandLine;

const SCRIPT: &str = include_str!("test_gpu/run.sh");
/// Where everything lies that is run here.
const HERE: &str = "target/gpu";
/// Optimised, because it measures too, and without symbols, because it travels.
const PROFILE: &str = "pack";
/// All at once, so that cargo chooses the same features for every program.
const PACKAGES: &str = "-p tensorferry -p tensorferry-cuda-ipc -p tensorferry-tests -p tensorferry-benches \
     --features tensorferry/cudarc,tensorferry-cuda-ipc/cudarc";
/// What the bench starts to measure torch.
const PYTHON: &str = "benches/python/device_tensors.py";
/// What a machine is lent that has to be reached over a wire.
const MAX_BYTES: u64 = 64 << 20;
/// The software driver, for a rehearsal, by the name of a real one.
const SIMULATOR: &str = "sim/libcuda.so.1";

/// What runs, in this order: `test` is counted test by test, `example` counts as one; `tool` and `bench` are
/// started by the script.
const PROGRAMS: &[Program] = &[
    Program::new("tool", "tensorferry-tests", "child", "child", ""),
    Program::new("tool", "tensorferry-tests", "answers", "answers", ""),
    Program::new("test", "tensorferry-cuda-ipc", "tensorferry_cuda_ipc", "cuda-ipc", "120"),
    Program::new("test", "tensorferry-cuda-ipc", "hostile", "cuda-ipc-hostile", "120"),
    Program::new("test", "tensorferry-tests", "cuda", "cuda", "1200"),
    Program::new("example", "tensorferry-cuda-ipc", "devices", "devices", "60 --require"),
    Program::new("example", "tensorferry", "cuda_columns", "cuda_columns", "120 --rows 100000 --columns 4"),
    Program::new("example", "tensorferry", "cuda_replicas", "cuda_replicas", "120"),
    Program::new("example", "tensorferry", "cuda_ranks", "cuda_ranks", "120"),
    Program::new("bench", "tensorferry-benches", "cuda", "bench-cuda", ""),
];

/// One program of the pack.
struct Program {
    kind: &'static str,
    package: &'static str,
    target: &'static str,
    /// Its file.
    name: &'static str,
    /// The seconds that it may take, and its arguments.
    how: &'static str,
}

impl Program {
    const fn new(
        kind: &'static str,
        package: &'static str,
        target: &'static str,
        name: &'static str,
        how: &'static str,
    ) -> Self {
        Self { kind, package, target, name, how }
    }

    /// Whether cargo says that it has built it: a line of `--message-format=json`.
    fn is_built_by(&self, artifact: &Json) -> bool {
        let package = artifact["package_id"].as_str().unwrap_or_default();
        // `path+file:///here/tests#tensorferry-tests@0.1.0`, or without the name where it is the folder's.
        let of_package = package.contains(&format!("/{}#", self.package))
            || package.contains(&format!("#{}@", self.package));
        // Cargo counts benches as tests.
        let is_test = artifact["profile"]["test"].as_bool() == Some(true);
        of_package
            && artifact["target"]["name"] == self.target
            && is_test == matches!(self.kind, "test" | "bench")
            && artifact["executable"].is_string()
    }
}

/// What the user asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pack: Option<PathBuf>,
    is_simulated: bool,
    bench: bool,
    /// What goes to the script.
    passed_on: Vec<String>,
}

impl Options {
    pub(crate) fn parse(args: &mut lexopt::Parser) -> anyhow::Result<Self> {
        let mut options = Self::default();
        while let Some(arg) = args.next()? {
            match arg {
                Long("pack") => options.pack = Some(args.value()?.into()),
                Long("simulate") => {
                    options.is_simulated = true;
                    options.passed_on.push("--simulate".to_owned());
                }
                Long("bench") => {
                    options.bench = true;
                    options.passed_on.push("--bench".to_owned());
                }
                Long("check") => options.passed_on.push("--check".to_owned()),
                Long("out") => options.pass_on("--out", args)?,
                Long("jobs") => options.pass_on("--jobs", args)?,
                Long("python") => options.pass_on("--python", args)?,
                other => return Err(other.unexpected().into()),
            }
        }
        if options.pack.is_some() && !options.passed_on.is_empty() {
            bail!("`{}` is for run.sh, in the pack", options.passed_on[0]);
        }
        Ok(options)
    }

    fn pass_on(&mut self, name: &str, args: &mut lexopt::Parser) -> anyhow::Result<()> {
        self.passed_on.extend([name.to_owned(), args.value()?.string()?]);
        Ok(())
    }
}

pub(crate) fn run(sh: &Shell, options: &Options) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &options.pack {
        pack(sh, folder)?;
        println!("on the machine with the GPU: {}/run.sh", folder.display());
        return Ok(ExitCode::SUCCESS);
    }
    // Before minutes of building.
    if !options.is_simulated && !has_gpu(sh)? {
        if options.bench {
            // Names the targets, none of which is measured.
            CommandLine::cargo("bench --quiet --profile dev -p tensorferry-benches --bench cuda").run(sh)?;
        }
        return Ok(ExitCode::FAILURE);
    }
    let folder = sh.current_dir().join(HERE);
    pack(sh, &folder)?;
    let (script, passed_on) = (folder.join("run.sh"), &options.passed_on);
    // Whatever it is that fails, the script has said so.
    let is_well = cmd!(sh, "{script} {passed_on...}").quiet().run().is_ok();
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether this machine has a driver and a device. Where it has none the program says why, in one line.
fn has_gpu(sh: &Shell) -> anyhow::Result<bool> {
    let line = CommandLine::cargo("run --quiet -p tensorferry-cuda-ipc --example devices -- --require");
    Ok(line.run(sh)?.success())
}

/// Builds everything and lays it into the folder.
fn pack(sh: &Shell, folder: &Path) -> anyhow::Result<()> {
    let artifacts = build(sh)?;
    let bin = folder.join("bin");
    for sub in [&bin, &folder.join("sim"), &folder.join("python")] {
        fs::create_dir_all(sub).with_context(|| format!("could not make {}", sub.display()))?;
    }
    let mut lines = String::new();
    for program in PROGRAMS {
        let artifact = artifacts.iter().find(|artifact| program.is_built_by(artifact));
        let from = artifact.and_then(|artifact| artifact["executable"].as_str());
        let from = from.with_context(|| format!("cargo did not build `{}`", program.target))?;
        copy(Path::new(from), &bin.join(program.name))?;
        lines += &format!("{} {} {}\n", program.kind, program.name, program.how);
    }
    copy(&sh.current_dir().join(PYTHON), &folder.join("python/device_tensors.py"))?;
    let simulator =
        artifacts.iter().find_map(simulator).context("cargo did not build the software driver")?;
    copy(Path::new(simulator), &folder.join(SIMULATOR))?;
    fs::write(folder.join("programs.txt"), lines)?;
    fs::write(folder.join("pack.txt"), description(sh, folder)?)?;
    let script = folder.join("run.sh");
    fs::write(&script, SCRIPT)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let len_bytes = len_bytes_of(folder)?;
    println!("{}: {} MiB", folder.display(), len_bytes.div_ceil(1 << 20));
    ensure!(len_bytes <= MAX_BYTES, "the pack is larger than {} MiB", MAX_BYTES >> 20);
    Ok(())
}

/// What cargo says that it has built, as JSON.
fn build(sh: &Shell) -> anyhow::Result<Vec<Json>> {
    let targets = |kinds: &[&str]| {
        let named = PROGRAMS.iter().filter(|program| kinds.contains(&program.kind));
        named.map(|program| format!(" {} {}", flag(program), program.target)).collect::<String>()
    };
    let how = format!("--profile {PROFILE} --message-format=json-render-diagnostics {PACKAGES}");
    let lines = [
        CommandLine::cargo(&format!("build {how}{}", targets(&["tool", "example", "bench"]))),
        CommandLine::cargo(&format!("test --no-run {how} --lib --test cuda --test hostile")),
    ];
    let mut artifacts = Vec::new();
    for line in lines {
        println!("{line}");
        let status = line.watch(sh, |stream, text| match serde_json::from_str::<Json>(text) {
            Ok(message) if message["reason"] == "compiler-artifact" => artifacts.push(message),
            Ok(_) => {}
            Err(_) => crate::command_line::pass_on(stream, text),
        })?;
        ensure!(status.success(), "`{line}` failed");
    }
    Ok(artifacts)
}

fn flag(program: &Program) -> &'static str {
    match program.kind {
        "tool" => "--bin",
        "example" => "--example",
        "bench" => "--bench",
        _ => "--test",
    }
}

/// The shared library of the software driver.
fn simulator(artifact: &Json) -> Option<&str> {
    if artifact["target"]["name"] != "tensorferry_sim_cuda" {
        return None;
    }
    let mut files = artifact["filenames"].as_array()?.iter().filter_map(Json::as_str);
    files.find(|name| name.ends_with(std::env::consts::DLL_SUFFIX))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to)
        .with_context(|| format!("could not copy {} to {}", from.display(), to.display()))
        .map(|_| ())
}

/// What was packed, and what it needs of the machine.
fn description(sh: &Shell, folder: &Path) -> anyhow::Result<String> {
    let rust = cmd!(sh, "rustc --version").quiet().read()?;
    let commit = cmd!(sh, "git describe --always --dirty --abbrev=12").quiet().ignore_stderr().read();
    let mut text = format!("rust: {rust}\ncommit: {}\n", commit.unwrap_or_else(|_| "unknown".to_owned()));
    let programs: Vec<PathBuf> =
        PROGRAMS.iter().map(|program| folder.join("bin").join(program.name)).collect();
    // Without binutils the machine is believed to be new enough.
    if let Ok(symbols) = cmd!(sh, "objdump -T {programs...}").quiet().ignore_stderr().read()
        && let Some((major, minor)) = glibc_of(&symbols)
    {
        text += &format!("glibc: {major}.{minor}\n");
    }
    Ok(text)
}

/// The newest version of glibc that symbols are asked of.
fn glibc_of(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let version: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let mut numbers = version.split('.').map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    });
    versions.max()
}

fn len_bytes_of(folder: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.metadata()?;
        sum += if kind.is_dir() { len_bytes_of(&entry.path())? } else { kind.len() };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use std::process::Output;

    use super::*;

    fn parsed(args: &[&str]) -> anyhow::Result<Options> {
        Options::parse(&mut lexopt::Parser::from_args(args))
    }

    #[test]
    fn what_the_script_is_for_is_passed_on() {
        let options = parsed(&["--simulate", "--bench", "--check", "--python", "python3"]).unwrap();
        assert!(options.is_simulated && options.bench && options.pack.is_none());
        assert_eq!(options.passed_on, ["--simulate", "--bench", "--check", "--python", "python3"]);
        assert!(parsed(&["--pack", "folder", "--check"]).unwrap_err().to_string().contains("run.sh"));
        assert!(parsed(&["--gpu"]).is_err());
    }

    #[test]
    fn an_artifact_is_known_by_package_target_and_kind() {
        let artifact = |package: &str, name: &str, test: bool| {
            serde_json::json!({ "package_id": package, "target": { "name": name }, "profile": { "test": test },
                "executable": "/target/cuda" })
        };
        let cuda = PROGRAMS.iter().find(|program| program.name == "cuda").unwrap();
        let id = "path+file:///w/tests#tensorferry-tests@0.1.0";
        assert!(cuda.is_built_by(&artifact(id, "cuda", true)));
        assert!(!cuda.is_built_by(&artifact(id, "cuda", false)));
        assert!(!cuda.is_built_by(&artifact(id, "child", true)));
        assert!(!cuda.is_built_by(&artifact(
            "path+file:///w/benches#tensorferry-benches@0.1.0",
            "cuda",
            true
        )));
    }

    #[test]
    fn the_newest_version_of_a_symbol_counts() {
        let symbols = "(GLIBC_2.2.5) read\n (GLIBC_2.34) pthread_create\n(GLIBC_2.9) pipe2 (GLIBC_PRIVATE) x";
        assert_eq!(glibc_of(symbols), Some((2, 34)));
        assert_eq!(glibc_of("nothing"), None);
    }

    /// What `run.sh` says about a pack of shell scripts that behave like programs.
    fn output_of(test: &str, example: &str) -> Output {
        let sh = Shell::new().unwrap();
        let folder = sh.create_temp_dir().unwrap();
        let program = |name: &str, text: &str| {
            let path = folder.path().join(name);
            sh.write_file(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        program("bin/devices", "echo a device");
        program(
            "bin/cuda",
            &format!(
                "if [ \"$1\" = --list ]; then printf 'a: test\\nb: test\\nc: test\\n'; exit; fi\n{test}"
            ),
        );
        program("bin/shown", example);
        sh.write_file(folder.path().join("programs.txt"), "test cuda 2\nexample shown 2 --rows 7\n").unwrap();
        sh.write_file(folder.path().join("pack.txt"), "rust: none\n").unwrap();
        program("path/nvidia-smi", "echo smi was asked \"$@\"");
        let path = format!("{}:{}", folder.path().join("path").display(), std::env::var("PATH").unwrap());
        let script = program("run.sh", SCRIPT);
        let line = cmd!(sh, "{script}").env("CUDA_VISIBLE_DEVICES", "").env("PATH", path);
        line.quiet().ignore_status().output().unwrap()
    }

    /// Its last lines, and whether it succeeded.
    fn ran(test: &str, example: &str) -> (Vec<String>, bool) {
        let output = output_of(test, example);
        let text = String::from_utf8(output.stdout).unwrap();
        let after = text.split("packed with rust: none\n").nth(1).unwrap();
        (after.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(), output.status.success())
    }

    const RESULT: &str = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";

    #[test]
    fn the_script_counts_what_ran() {
        let (lines, is_well) = ran(&format!("echo '{RESULT}'"), "[ \"$*\" = '--rows 7' ]");
        let expected =
            ["cuda: 3 of 3 ran, 0 failed; 0 more need the software driver", "shown: ran", "gpu: 4 of 4 ran"];
        assert_eq!(
            (lines.iter().map(String::as_str).collect::<Vec<_>>(), is_well),
            (expected.to_vec(), true)
        );
    }

    #[test]
    fn the_script_does_not_count_what_could_not_run() {
        let said = "---- a stdout ----\nNOT RUN: needs the software driver\nNOT RUN: needs the software driver\n\
                    ---- b stdout ----\nNOT RUN: needs 2 devices";
        let (lines, is_well) = ran(&format!("echo '{said}'\necho '{RESULT}'"), "true");
        assert!(
            lines.contains(&"cuda: 1 of 2 ran, 0 failed; 1 more need the software driver".to_owned()),
            "{lines:?}"
        );
        assert!(lines.contains(&"  not run: b needs 2 devices".to_owned()), "{lines:?}");
        assert_eq!((lines.last().unwrap().as_str(), is_well), ("gpu: 2 of 3 ran", true));
    }

    #[test]
    fn the_script_fails_where_something_failed_or_was_killed() {
        // What a child says stands between the name and the outcome.
        let failing = "printf 'test b ... said\\nFAILED\\n\\nfailures:\\n\\n---- b stdout ----\\n    no name\\n\\n'\n\
                       printf 'failures:\\n    b\\n\\n'\n\
                       echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored'\nexit 101";
        let (lines, is_well) = ran(failing, "true");
        assert!(lines.contains(&"  FAILED: b".to_owned()), "{lines:?}");
        assert_eq!((lines.last().unwrap().as_str(), is_well), ("gpu: 4 of 4 ran, 1 FAILED", false));
        let (lines, is_well) = ran("exec sleep 60", "exit 3");
        assert!(lines.contains(&"shown: FAILED with status 3".to_owned()), "{lines:?}");
        assert!(lines.contains(&"  cuda was killed after 2 s".to_owned()), "{lines:?}");
        assert_eq!((lines.last().unwrap().as_str(), is_well), ("gpu: 1 of 4 ran, 4 FAILED", false));
    }

    #[test]
    fn the_script_counts_what_a_test_binary_had_come_by_when_it_was_killed() {
        let begun = "echo 'test a ... ok'\necho 'test b ... FAILED'\nprintf 'test c ... '\nexec sleep 60";
        let (lines, is_well) = ran(begun, "true");
        assert!(
            lines.contains(&"cuda: 2 of 3 ran, 2 failed; 0 more need the software driver".to_owned()),
            "{lines:?}"
        );
        assert!(lines.contains(&"  FAILED: b".to_owned()), "{lines:?}");
        assert!(lines.contains(&"  cuda was killed after 2 s".to_owned()), "{lines:?}");
        assert_eq!((lines.last().unwrap().as_str(), is_well), ("gpu: 3 of 4 ran, 2 FAILED", false));
    }

    #[test]
    fn the_script_records_how_the_card_is_set() {
        let output = output_of("true", "true");
        let text = String::from_utf8(output.stdout).unwrap();
        for what in ["driver_version", "compute_mode", "persistence_mode", "mig.mode.current"] {
            let is_asked = |line: &str| line.starts_with("smi was asked --query-gpu=") && line.contains(what);
            assert!(text.lines().any(is_asked), "{what}: {text}");
        }
    }
}
