//! docs/WIRE.md and the code agree on what lies in shared memory.

#[path = "../../tensorferry-domain/src/wire_tests/table.rs"]
#[expect(dead_code, reason = "other crates have more kinds of table")]
mod table;

use crate::sealed_storage::ticket;

#[test]
fn a_ticket_is_that_of_the_document() {
    table::check_constants("Numbers of a ticket", &[("magic", ticket::MAGIC)]);
    let words = [("magic", ticket::AT_MAGIC, 8), ("len_bytes", ticket::AT_LEN_BYTES, 8)];
    table::check_bytes("Ticket", ticket::N_WORDS * 8, &words);
}
