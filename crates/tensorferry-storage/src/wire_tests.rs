//! docs/WIRE.md and the code agree on every offset, bit and number.

#[path = "../../tensorferry-domain/src/wire_tests/table.rs"]
mod table;

use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_domain::{MAX_MEMBERS, Member};

use table::{check_bits, check_bytes, check_constants, check_mask, check_values};

use crate::class::{Class, LINE_BYTES, LINE_WORDS, N_CLASSES, SLAB_BLOCKS, SLAB_MAX_BYTES};
use crate::geometry::HEAD_FRACTION;
use crate::header::{Header, Kind, SUSPECT, SpanWord, head, line, slab};
use crate::message::{MAX_HANDLES, table as message_table};
use crate::monitor_words::{
    LastOwner, LockState, MAGIC as MONITOR_MAGIC, N_STATE_WORDS, Share, word as monitor,
};
use crate::record::{MAX_RECORDS, RECORD_WORDS, RecordState, RecordTag, word as record};
use crate::reference::{GENERATION_MASK, Grant, Reference, Role};
use crate::ring_layout::{MAGIC, MAX_SLOTS, word};
use crate::slot::{SLOT_WORDS, SlotLengths, SlotState, Tag, word as slot};

#[test]
fn numbers_of_an_extent() {
    check_constants(
        "Numbers of an extent",
        &[
            ("line", LINE_BYTES as u64),
            ("head fraction", HEAD_FRACTION as u64),
            ("slab blocks", SLAB_BLOCKS as u64),
            ("slab block at most", SLAB_MAX_BYTES as u64),
            ("classes", N_CLASSES as u64),
        ],
    );
    let sizes = [0, 7, 8, 9, 10, 11, 12, 31, 32, 131];
    let of = |index| Class::from_index(index).unwrap().size_bytes();
    let sizes = sizes.map(|index| (index as u64, of(index).to_string()));
    check_values("Size classes", &sizes.each_ref().map(|(index, size)| (*index, size.as_str())));
}

#[test]
fn words_of_lines() {
    check_bytes(
        "Head line of a run",
        LINE_BYTES,
        &[("lines_high_water", head::LINES_HIGH_WATER, 8), ("pages_high_water", head::PAGES_HIGH_WATER, 8)],
    );
    check_bytes("First line of a slab", LINE_BYTES, &[("line", slab::LINE, 8)]);
    check_bytes(
        "Span line and block header",
        LINE_BYTES,
        &[
            ("span", line::SPAN, 8),
            ("returned", line::RETURNED, 8),
            ("holders", line::HOLDERS, 8),
            ("kind", line::KIND, 8),
            ("len_bytes", line::LEN_BYTES, 8),
            ("populated_bytes", line::POPULATED_BYTES, 8),
            ("opened", line::OPENED, 8),
        ],
    );
}

#[test]
fn bits_of_a_span_word() {
    let span = |class, start_page| SpanWord { class: Class::from_index(class).unwrap(), start_page }.pack();
    let committed = span(0, 0);
    check_bits(
        "Span word",
        64,
        &[
            ("committed", committed),
            ("class", span(1, 0) ^ committed),
            ("start_page", span(0, 1) ^ committed),
        ],
    );
    check_mask("Span word", "start_page", span(0, (1 << 40) - 1) ^ committed);
}

#[test]
fn bits_of_a_kind_word() {
    let words = [const { AtomicU64::new(0) }; LINE_WORDS];
    let header = Header::new(&words);
    let kind_word = || words[line::KIND].load(Ordering::SeqCst);
    header.prepare(0);
    let generation = kind_word();
    header.set_kind(Kind::Ring);
    check_bits("Kind word", 64, &[("generation", generation), ("kind", kind_word() ^ generation)]);
    let number = |kind| {
        header.set_kind(kind);
        kind_word() >> 32
    };
    check_values(
        "Kinds of block",
        &[
            (number(Kind::Plain), "plain"),
            (number(Kind::Ring), "ring"),
            (number(Kind::Message), "message"),
            (number(Kind::Parcel), "parcel"),
            (number(Kind::Monitor), "monitor"),
            (number(Kind::Bundle), "bundle"),
        ],
    );
}

#[test]
fn bits_of_holders() {
    check_bits("Holder word", 64, &[("members", 1), ("suspect", SUSPECT)]);
}

#[test]
fn bits_of_a_reference() {
    let reference = |line: usize, generation, grant| {
        Reference { header_offset_bytes: line * LINE_BYTES, generation, grant }.pack()
    };
    let frozen = reference(0, 0, Grant::Frozen);
    check_bits(
        "Reference",
        64,
        &[
            ("grant", frozen),
            ("generation", reference(0, 1, Grant::Frozen) ^ frozen),
            ("line", reference(1, 0, Grant::Frozen) ^ frozen),
        ],
    );
    check_mask("Reference", "generation", reference(0, GENERATION_MASK, Grant::Frozen) ^ frozen);
    check_mask("Reference", "line", reference((1 << 34) - 1, 0, Grant::Frozen) ^ frozen);
    let ring = |sends, receives| Grant::Ring(Role { sends, receives });
    let grants = [
        (Grant::Frozen, "frozen"),
        (Grant::Shared, "shared"),
        (Grant::Exclusive, "exclusive"),
        (Grant::Message, "message"),
        (Grant::Bundle, "bundle"),
        (ring(false, false), "ring"),
        (ring(true, false), "ring_sends"),
        (ring(false, true), "ring_receives"),
        (ring(true, true), "ring_both"),
    ];
    check_values("Grants", &grants.map(|(grant, name)| (reference(0, 0, grant), name)));
}

#[test]
fn words_of_a_ring() {
    check_bytes(
        "Ring header",
        word::SLOTS * 8,
        &[
            ("magic", word::MAGIC, 8),
            ("n_slots", word::N_SLOTS, 8),
            ("type_hash", word::TYPE_HASH, 8),
            ("closed", word::CLOSED, 8),
            ("senders", word::SENDERS, 8),
            ("receivers", word::RECEIVERS, 8),
            ("sender_deaths", word::SENDER_DEATHS, 8),
            ("n_records", word::N_RECORDS, 8),
            ("tail", word::TAIL, 8),
            ("receiver_deaths", word::RECEIVER_DEATHS, 8),
            ("senders_gone", word::SENDERS_GONE, 8),
            ("receivers_gone", word::RECEIVERS_GONE, 8),
            ("lost", word::LOST, 8),
            ("head", word::HEAD, 8),
            ("returns", word::RETURNS, 8),
            ("not_empty", word::NOT_EMPTY, 4),
            ("not_full", word::NOT_FULL, 4),
        ],
    );
    check_constants(
        "Numbers of a ring",
        &[
            ("magic", MAGIC),
            ("slots", word::SLOTS as u64 * 8),
            ("slot", SLOT_WORDS as u64 * 8),
            ("slots at most", MAX_SLOTS as u64),
            ("record", RECORD_WORDS as u64 * 8),
            ("records at most", MAX_RECORDS as u64),
        ],
    );
}

#[test]
fn words_of_a_ring_slot() {
    let room = (SLOT_WORDS - slot::ROOM) * 8;
    check_bytes(
        "Ring slot",
        SLOT_WORDS * 8,
        &[("state", slot::STATE, 8), ("lengths", slot::LENGTHS, 8), ("room", slot::ROOM, room)],
    );
}

#[test]
fn bits_of_a_slot_state() {
    let first = SlotState::free(0);
    check_bits(
        "Slot state word",
        64,
        &[
            ("tag", SlotState { tag: Tag::Writing, ..first }.pack()),
            ("owner", SlotState { owner: 1, ..first }.pack()),
            ("lap", SlotState::free(1).pack()),
        ],
    );
    check_mask("Slot state word", "owner", SlotState { owner: u8::MAX, ..first }.pack());
    check_mask("Slot state word", "lap", SlotState::free((1 << 48) - 1).pack());
    let tags = [
        (Tag::Free, "free"),
        (Tag::Writing, "writing"),
        (Tag::Ready, "ready"),
        (Tag::Claimed, "claimed"),
        (Tag::Moved, "moved"),
    ];
    check_values("Tags", &tags.map(|(tag, name)| (SlotState { tag, ..first }.pack(), name)));
    let lengths = |payload_len_bytes, n_references| SlotLengths { payload_len_bytes, n_references }.pack();
    check_bits(
        "Slot lengths word",
        64,
        &[("n_references", lengths(0, 1)), ("payload_len_bytes", lengths(1, 0))],
    );
}

#[test]
fn words_and_states_of_a_record() {
    check_bytes(
        "Ring record",
        RECORD_WORDS * 8,
        &[
            ("state", record::STATE, 8),
            ("position", record::POSITION, 8),
            ("lengths", record::LENGTHS, 8),
            ("room", record::ROOM, (SLOT_WORDS - slot::ROOM) * 8),
        ],
    );
    let first = RecordState { serial: 0, deliveries: 0, owner: 0, tag: RecordTag::Free };
    check_bits(
        "Record state word",
        64,
        &[
            ("tag", RecordState { tag: RecordTag::Filling, ..first }.pack()),
            ("owner", RecordState { owner: 1, ..first }.pack()),
            ("deliveries", RecordState { deliveries: 1, ..first }.pack()),
            ("serial", RecordState { serial: 1, ..first }.pack()),
        ],
    );
    check_mask("Record state word", "owner", RecordState { owner: u8::MAX, ..first }.pack());
    check_mask("Record state word", "deliveries", RecordState { deliveries: u16::MAX, ..first }.pack());
    check_mask("Record state word", "serial", RecordState { serial: u32::MAX, ..first }.pack());
    let tags = [
        (RecordTag::Free, "free"),
        (RecordTag::Filling, "filling"),
        (RecordTag::Leased, "leased"),
        (RecordTag::Waiting, "waiting"),
        (RecordTag::Taking, "taking"),
    ];
    check_values("Record tags", &tags.map(|(tag, name)| (RecordState { tag, ..first }.pack(), name)));
}

#[test]
fn words_of_a_monitor() {
    check_bytes(
        "Monitor",
        monitor::N_WORDS * 8,
        &[
            ("magic", monitor::MAGIC, 8),
            ("purpose", monitor::PURPOSE, 8),
            ("lock", monitor::LOCK, 8),
            ("deaths", monitor::DEATHS, 8),
            ("state", monitor::STATE, N_STATE_WORDS * 8),
            ("unlocked", monitor::UNLOCKED, 4),
            ("changed", monitor::CHANGED, 4),
            ("shares", monitor::SHARES, MAX_MEMBERS * 8),
        ],
    );
    check_constants("Numbers of a monitor", &[("magic", MONITOR_MAGIC)]);
    let held = |slot, epoch| LockState::Held(Member { slot, epoch }).pack();
    let first = held(0, 0);
    check_bits(
        "Lock word",
        64,
        &[("tag", first), ("slot", held(1, 0) ^ first), ("epoch", held(0, 1) ^ first)],
    );
    check_mask("Lock word", "slot", held(u8::MAX, 0) ^ first);
    check_mask("Lock word", "epoch", held(0, u32::MAX) ^ first);
    check_values(
        "Lock tags",
        &[
            (LockState::Free(LastOwner::Released).pack(), "free"),
            (first, "held"),
            (LockState::Free(LastOwner::Died).pack(), "died"),
            (LockState::Free(LastOwner::Panicked).pack(), "panicked"),
        ],
    );
    let share = |epoch, count| Share { epoch, count }.pack();
    check_bits("Share word", 64, &[("count", share(0, 1)), ("epoch", share(1, 0))]);
    check_mask("Share word", "count", share(0, u32::MAX));
    check_mask("Share word", "epoch", share(u32::MAX, 0));
}

#[test]
fn words_of_a_message_block() {
    check_bytes(
        "Message table",
        message_table::ROOM * 8,
        &[
            ("n_references", message_table::N_REFERENCES, 8),
            ("payload_len_bytes", message_table::PAYLOAD_LEN_BYTES, 8),
        ],
    );
    check_constants("Numbers of a message", &[("references at most", MAX_HANDLES as u64)]);
}
