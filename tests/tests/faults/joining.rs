//! What is no domain, and who may not join.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use serde_json::Value;
use tensorferry::domain::{Admission, Domain};
use tensorferry_kit::tasks::{Puppet, Stranger};
use tensorferry_kit::{Child, Family, Loner, Scribbler, until, with_family};
use tensorferry_os::memfd;

/// Lets `stranger` try, and returns what it says.
#[track_caller]
fn try_join(stranger: &Child, fd: impl AsFd, admission: &Value) -> String {
    stranger.say_with(&admission.to_string(), &[fd.as_fd()]);
    stranger.hear()
}

fn admission_for(family: &Family, child: &Child) -> Value {
    serde_json::to_value(family.heap().domain().admit(child.pidfd()).unwrap()).unwrap()
}

/// A sealed memory file with the tables of `domain`, and one word of them changed.
fn copy_with(domain: &Domain, len_bytes: u64, offset_bytes: u64, word: u64) -> OwnedFd {
    let fd = memfd::create_sealed("tensorferry-copy", len_bytes).unwrap();
    let copy = Scribbler::over(fd.try_clone().unwrap());
    copy.set_bytes(0, &Scribbler::of(domain).bytes(0, 16 << 10));
    copy.set_word(offset_bytes, word);
    fd
}

#[test]
fn a_descriptor_that_is_no_domain_is_refused() {
    with_family(|family| {
        let stranger = Loner::start(&Stranger, &[]);
        let admission = admission_for(family, &stranger);
        let expect = |fd: OwnedFd, says: &str| {
            let said = try_join(&stranger, &fd, &admission);
            assert!(said.contains("no tensorferry domain") && said.contains(says), "{said}");
        };
        let (pipe, _other_end) = std::io::pipe().unwrap();
        expect(pipe.into(), "no sealed memory file");
        expect(File::open("/proc/self/exe").unwrap().into(), "no sealed memory file");
        expect(File::open("/dev/null").unwrap().into(), "no sealed memory file");
        let unsealed = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&unsealed, 1 << 30).unwrap();
        expect(unsealed, "no sealed memory file");
        expect(memfd::create_sealed("short", 4096).unwrap(), "4096 bytes are too few");
        expect(memfd::create_sealed("zeroes", 1 << 30).unwrap(), "it starts with 0x0000000000000000");
        // Nothing was changed by any of this.
        assert_eq!(try_join(&stranger, family.heap().domain(), &admission), "joined");
        stranger.finish();
    });
}

#[test]
fn a_header_that_claims_anything_else_is_refused() {
    with_family(|family| {
        let stranger = Loner::start(&Stranger, &[]);
        let admission = admission_for(family, &stranger);
        let domain = family.heap().domain();
        let file_len = domain.layout().file_len_bytes() as u64;
        let expect = |len_bytes: u64, offset_bytes: u64, word: u64, says: &str| {
            let said = try_join(&stranger, copy_with(domain, len_bytes, offset_bytes, word), &admission);
            assert!(said.contains(says), "word {word} at {offset_bytes}: {said}");
        };
        let real = Scribbler::of(domain);
        expect(file_len, 0, real.word(0) + 1, "it starts with");
        let ours = real.word(8);
        expect(file_len, 8, ours + 1, &format!("layout version {}, this library has {ours}", ours + 1));
        expect(file_len, 8, u64::MAX, "layout version 18446744073709551615");
        expect(file_len, 24, real.word(24) + 4096, "do not belong to");
        expect(file_len, 24, 0, "do not belong to");
        expect(file_len, 32, u64::MAX, "a data area of 18446744073709551615 bytes");
        expect(file_len, 32, real.word(32) / 2, "the layout needs");
        expect(file_len, 32, 0, "a data area of 0 bytes");
        expect(file_len, 40, 0, "do not belong to");
        expect(file_len, 40, real.word(40) * 2, "do not belong to");
        expect(file_len - 4096, 56, 0, "the layout needs");
        expect(file_len, 48, real.word(48) ^ 1, "it is for another domain");
        assert_eq!(try_join(&stranger, domain, &admission), "joined");
        stranger.finish();
    });
}

#[test]
fn an_admission_is_good_for_one_process_one_domain_and_one_time() {
    with_family(|family| {
        let domain = family.heap().domain();
        let strangers = [Loner::start(&Stranger, &[]), Loner::start(&Stranger, &[])];
        let admission = admission_for(family, &strangers[0]);
        assert!(try_join(&strangers[1], domain, &admission).contains("it is for another process"));
        let other = Domain::builder().address_space_bytes(64 << 20).create().unwrap();
        assert!(try_join(&strangers[0], &other, &admission).contains("it is for another domain"));
        drop(other);
        let changed = |key: &str, value: u64| {
            let mut changed = admission.clone();
            changed["member"][key] = value.into();
            changed
        };
        for slot in [63, 64, 255] {
            let said = try_join(&strangers[0], domain, &changed("slot", slot));
            assert!(said.contains("there is no such slot"), "{said}");
        }
        for slot in [0, 40] {
            let said = try_join(&strangers[0], domain, &changed("slot", slot));
            assert!(said.contains("not valid"), "{said}");
        }
        for epoch in [0, 2, u64::from(u32::MAX)] {
            let said = try_join(&strangers[0], domain, &changed("epoch", epoch));
            assert!(said.contains("it was used or given back"), "{said}");
        }
        assert_eq!(try_join(&strangers[0], domain, &admission), "joined");
        assert!(try_join(&strangers[0], domain, &admission).contains("it was used or given back"));
        assert_eq!(family.members().len(), 2);
        strangers.into_iter().for_each(Child::finish);
    });
}

#[test]
fn an_admission_that_was_given_back_is_refused_also_to_the_next_in_its_slot() {
    with_family(|family| {
        let dead = family.start(Puppet::default());
        let member = dead.member();
        dead.kill();
        family.wait_alone();
        let stranger = Loner::start(&Stranger, &[]);
        let admission: Admission = serde_json::from_value(admission_for(family, &stranger)).unwrap();
        assert_eq!(admission.member().slot, member.slot);
        let mut old = serde_json::to_value(admission).unwrap();
        old["member"]["epoch"] = member.epoch.into();
        let said = try_join(&stranger, family.heap().domain(), &old);
        assert!(said.contains("it was used or given back"), "{said}");
        until("the newcomer is known", || family.members().len() == 2);
        stranger.finish();
    });
}
