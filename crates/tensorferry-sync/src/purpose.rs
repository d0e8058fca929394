//! What a monitor is used for. The numbers stand in its block, so that a handle of one kind refuses the
//! memory of another.

pub(crate) const LOCK: u64 = 1;
pub(crate) const EVENT: u64 = 2;
pub(crate) const SEMAPHORE: u64 = 3;
pub(crate) const BARRIER: u64 = 4;
pub(crate) const CONDITION: u64 = 5;
pub(crate) const RW_LOCK: u64 = 6;
pub(crate) const RLOCK: u64 = 7;

/// What a monitor is used for, by the number in its block; `None` for what this crate does not make.
#[doc(hidden)]
#[must_use]
pub fn name_of_purpose(number: u64) -> Option<&'static str> {
    Some(match number {
        LOCK => "lock",
        EVENT => "event",
        SEMAPHORE => "semaphore",
        BARRIER => "barrier",
        CONDITION => "condition",
        RW_LOCK => "rw_lock",
        RLOCK => "rlock",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_document() {
        const WIRE: &str = include_str!("../../../docs/WIRE.md");
        let table = WIRE.split("### Purposes").nth(1).and_then(|rest| rest.split("###").next());
        let rows: Vec<_> = table.into_iter().flat_map(str::lines).filter(|line| line.contains('`')).collect();
        let purposes = [LOCK, EVENT, SEMAPHORE, BARRIER, CONDITION, RW_LOCK, RLOCK];
        assert_eq!(rows.len(), purposes.len());
        for (row, number) in rows.iter().zip(purposes) {
            let name = name_of_purpose(number).unwrap();
            assert!(row.starts_with(&format!("| {number} | `{name}` |")), "{row}");
        }
        assert_eq!([0, 8].map(name_of_purpose), [None; 2]);
    }
}
