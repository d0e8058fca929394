//! Tests that docs/WIRE.md says what the code does.

mod table;

use table::{check_bits, check_bytes, check_constants, check_mask, check_values};
use tensorferry_os::mapping::PAGE_BYTES;

use crate::layout::{
    DEFAULT_DATA_LEN_BYTES, EXTENT_ENTRY_LEN_BYTES, EXTENT_TABLE_OFFSET_BYTES, MAGIC, MAX_MEMBERS,
    PROCESS_TABLE_OFFSET_BYTES, SLOT_LEN_BYTES, VERSION, extent, header, slot, suspicions,
};
use crate::member::State;
use crate::wait::{EPOCH, SLEEPERS};
use crate::{ExtentOwner, Layout, Member, Phase};

#[test]
fn numbers_of_the_file() {
    let smallest = Layout::smallest();
    let largest = Layout::with_data_len(DEFAULT_DATA_LEN_BYTES);
    check_constants(
        "Numbers of the file",
        &[
            ("magic", MAGIC),
            ("version", VERSION),
            ("page", PAGE_BYTES as u64),
            ("process table", PROCESS_TABLE_OFFSET_BYTES as u64),
            ("process slot", SLOT_LEN_BYTES as u64),
            ("members at most", MAX_MEMBERS as u64),
            ("extent table", EXTENT_TABLE_OFFSET_BYTES as u64),
            ("extent entry", EXTENT_ENTRY_LEN_BYTES as u64),
            ("extents at most", largest.n_extents as u64),
            ("extent at least", smallest.extent_len_bytes as u64),
            ("data at least", smallest.data_len_bytes as u64),
            ("data at most", largest.data_len_bytes as u64),
        ],
    );
}

#[test]
fn words_of_the_header() {
    check_bytes(
        "Domain header",
        header::N_WORDS * 8,
        &[
            ("magic", header::MAGIC, 8),
            ("version", header::VERSION, 8),
            ("file_len_bytes", header::FILE_LEN_BYTES, 8),
            ("data_offset_bytes", header::DATA_OFFSET_BYTES, 8),
            ("data_len_bytes", header::DATA_LEN_BYTES, 8),
            ("extent_len_bytes", header::EXTENT_LEN_BYTES, 8),
            ("domain_id", header::DOMAIN_ID, 8),
            ("limit_bytes", header::LIMIT_BYTES, 8),
            ("extents_high_water", header::EXTENTS_HIGH_WATER, 8),
            ("sweeps", header::SWEEPS, 8),
            ("suspicions", header::SUSPICIONS, 8),
            ("scans_left", header::SCANS_LEFT, 8),
            ("scans_left_done", header::SCANS_LEFT_DONE, 8),
        ],
    );
}

#[test]
fn words_of_a_process_slot() {
    check_bytes(
        "Process slot",
        slot::N_WORDS * 8,
        &[
            ("state", slot::STATE, 8),
            ("pid", slot::PID, 8),
            ("inode", slot::INODE, 8),
            ("start_ticks", slot::START_TICKS, 8),
            ("returns", slot::RETURNS, 8),
            ("live_blocks", slot::BLOCKS_LIVE, 8),
            ("live_bytes", slot::BYTES_LIVE, 8),
            ("cached_bytes", slot::BYTES_CACHED, 8),
            ("scans_wanted", slot::SCANS_WANTED, 8),
            ("scans_done", slot::SCANS_DONE, 8),
            ("ended", slot::ENDED, 8),
        ],
    );
}

#[test]
fn bits_of_suspicions() {
    let fields = [("may have marks", suspicions::MAY_HAVE_MARKS), ("count", suspicions::ONE)];
    check_bits("Suspicions word", 64, &fields);
}

#[test]
fn bits_of_a_process_state() {
    let nobody = State { epoch: 0, author: 0, phase: Phase::Free };
    let one = |state: State| state.pack() ^ nobody.pack();
    check_bits(
        "Process state word",
        64,
        &[
            ("phase", one(State { phase: Phase::Admitting, ..nobody })),
            ("author", one(State { author: 1, ..nobody })),
            ("epoch", one(State { epoch: 1, ..nobody })),
        ],
    );
    check_mask("Process state word", "author", one(State { author: u8::MAX, ..nobody }));
    check_mask("Process state word", "epoch", one(State { epoch: u32::MAX, ..nobody }));
    let phases = [
        (Phase::Free, "free"),
        (Phase::Admitting, "admitting"),
        (Phase::Live, "live"),
        (Phase::Dead, "dead"),
        (Phase::Invited, "invited"),
    ];
    check_values("Phases", &phases.map(|(phase, name)| (State { phase, ..nobody }.pack(), name)));
}

#[test]
fn words_of_an_extent_entry() {
    check_bytes(
        "Extent entry",
        extent::N_WORDS * 8,
        &[
            ("owner", extent::OWNER, 8),
            ("populated_bytes", extent::POPULATED_BYTES, 8),
            ("returns", extent::RETURNS, 8),
            ("run_len", extent::RUN_LEN, 8),
        ],
    );
}

#[test]
fn bits_of_an_extent_owner() {
    let owner = |slot, epoch| ExtentOwner::Member(Member { slot, epoch }).pack();
    let kind = owner(0, 0);
    check_bits(
        "Extent owner word",
        64,
        &[("kind", kind), ("slot", owner(1, 0) ^ kind), ("epoch", owner(0, 1) ^ kind)],
    );
    check_mask("Extent owner word", "slot", owner(u8::MAX, 0) ^ kind);
    check_mask("Extent owner word", "epoch", owner(0, u32::MAX) ^ kind);
    check_values(
        "Kinds of extent owner",
        &[
            (ExtentOwner::Nobody.pack(), "nobody"),
            (kind, "member"),
            (ExtentOwner::Continuation.pack(), "continuation"),
        ],
    );
}

#[test]
fn bits_of_a_wait_word() {
    check_bits("Wait word", 32, &[("sleepers", u64::from(SLEEPERS)), ("epoch", u64::from(EPOCH))]);
}
