//! What `tensorferry doctor` says where something is missing.

use serde_json::Value;
use tensorferry_kit::tasks::{CommandLine, Forbidden};
use tensorferry_kit::{Limit, Loner, Machine, alone, where_possible};

/// What the doctor has found, and its outcome.
struct Findings {
    outcome: String,
    all: Value,
}

impl Findings {
    fn of((outcome, text): (String, String)) -> Self {
        let all = serde_json::from_str::<Value>(&text).unwrap()["findings"].take();
        Self { outcome, all }
    }

    fn under(limit: (Limit, u64)) -> Self {
        let child = Loner::start(&CommandLine::new(&["doctor", "--json"]), &[limit]);
        Self::of(CommandLine::heard(child))
    }

    fn without(call: Forbidden) -> Self {
        Self::of(CommandLine::new(&["doctor", "--json"]).without(call).run())
    }

    /// The verdict, what was found and what to do, of a check whose name begins so.
    #[track_caller]
    fn get(&self, check: &str) -> [&str; 3] {
        let findings = self.all.as_array().unwrap();
        let finding = findings.iter().find(|finding| finding["check"].as_str().unwrap().starts_with(check));
        let finding = finding.unwrap_or_else(|| panic!("no check {check} in {}", self.all));
        ["verdict", "what", "fix"].map(|key| finding[key].as_str().unwrap_or_default())
    }
}

#[test]
fn all_is_well_here_and_nothing_is_left() {
    alone(|| {
        let findings = Findings::of(CommandLine::new(&["doctor", "--json"]).run());
        assert_eq!(findings.outcome, "well", "{}", findings.all);
        for check in
            ["memory file", "fresh memory", "start method spawn", "start method forkserver", "meeting"]
        {
            assert_eq!(findings.get(check)[0], "works", "{}", findings.all);
        }
    });
}

#[test]
fn a_limit_of_address_space_is_told_with_its_remedy() {
    let findings = Findings::under((Limit::AddressSpace, 4 << 30));
    assert_eq!(findings.outcome, "well");
    let [verdict, what, fix] = findings.get("address space");
    assert_eq!(verdict, "limited");
    assert!(what.contains("GiB") && fix.contains("ulimit -v"), "{what} {fix}");
    let findings = Findings::under((Limit::AddressSpace, 32 << 20));
    assert_eq!(findings.outcome, "something missing");
    let [verdict, what, fix] = findings.get("memory file");
    assert!(verdict == "missing" && what.contains("RLIMIT_AS") && fix.contains("ulimit"), "{what} {fix}");
}

#[test]
fn few_descriptors_are_told() {
    let findings = Findings::under((Limit::OpenFiles, 30));
    let [verdict, what, fix] = findings.get("descriptors");
    assert_eq!(verdict, "limited");
    assert!(what.contains("30") && fix.contains("ulimit -n"), "{what} {fix}");
    // Where they are not enough for something, that is what is said of it.
    let findings = Findings::under((Limit::OpenFiles, 14));
    let failed = findings.all.as_array().unwrap().iter();
    let failed = failed.filter(|finding| finding["what"].as_str().unwrap().contains("os error 24"));
    let fixes = failed.map(|finding| finding["fix"].as_str().unwrap_or_default()).collect::<Vec<_>>();
    assert!(!fixes.is_empty() && fixes.iter().all(|fix| fix.contains("ulimit -n")), "{}", findings.all);
}

#[test]
fn calls_that_a_filter_forbids_are_named() {
    where_possible(|| {
        let findings = Findings::without(Forbidden::MemoryFiles);
        assert_eq!(findings.outcome, "something missing");
        let [verdict, what, _] = findings.get("memory file");
        assert!(verdict == "missing" && what.contains("memfd_create"), "{what}");
        assert_eq!(findings.get("start methods")[0], "untried");
        assert!(findings.get("memory file")[2].contains("seccomp"));

        let findings = Findings::without(Forbidden::WaitingForSeveral);
        assert_eq!(findings.outcome, "well", "{}", findings.all);
        let [verdict, what, fix] = findings.get("waiting for several");
        assert!(
            verdict == "limited" && what.contains("futex_waitv") && fix.contains("5.16"),
            "{what}, {fix}"
        );

        let findings = Findings::without(Forbidden::Executing);
        assert_eq!(findings.outcome, "something missing");
        let [verdict, what, fix] = findings.get("start method spawn");
        assert!(verdict == "missing" && fix.contains("execve"), "{what}, {fix}");
        assert_eq!(findings.get("memory file")[0], "works");
    });
}

#[test]
fn a_tensor_of_each_device_is_read_by_another_process() {
    where_possible(|| {
        let machine = Machine::new("devices=2");
        let findings = Findings::of(CommandLine::heard(machine.command_line(&["doctor", "--json"])));
        assert_eq!(findings.outcome, "well", "{}", findings.all);
        let of_devices = findings.all.as_array().unwrap().iter();
        let of_devices = of_devices.filter(|finding| finding["check"].as_str().unwrap().contains("GPU-"));
        let devices = of_devices.collect::<Vec<_>>();
        assert_eq!(devices.len(), 2, "{}", findings.all);
        for finding in devices {
            assert_eq!(finding["verdict"], "works", "{finding}");
            assert!(finding["what"].as_str().unwrap().contains("vmm"), "{finding}");
        }
    });
}
