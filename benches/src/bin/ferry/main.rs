//! Measures tensorferry, by handle and by copy, for `cargo xtask bench table`: one measurement, one line of
//! JSON.

mod copying;
mod handles;
mod live;
mod pairs;
mod spawning;

use anyhow::bail;
use tensorferry_benches::{Ask, Row, Way};

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some(spawning::EXIT) {
        return Ok(());
    }
    let ask = Ask::from_arguments()?;
    let answer = match (ask.way, ask.row) {
        (Way::Ferry, Row::Pairs) => pairs::measure(&ask),
        (Way::Ferry, Row::Spawn) => spawning::measure(&ask),
        (Way::Ferry, Row::Live) => live::measure(&ask),
        (Way::Ferry, Row::Latency | Row::Asleep | Row::Stream | Row::Fresh) => handles::measure(&ask),
        (Way::Payload | Way::Socket, Row::Latency | Row::Asleep | Row::Stream | Row::Fresh) => {
            copying::measure(&ask)
        }
        (way, row) => bail!("{way:?} has no row {row:?} here"),
    };
    answer?.print()
}
