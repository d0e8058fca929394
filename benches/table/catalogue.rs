//! The rows and columns of the table.

use tensorferry_benches::{Ask, Row, Way};

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    Ferry,
    /// tensorferry's queue with the bytes in its payload.
    Payload,
    Socket,
    IpcChannel,
    Iceoryx2,
    TorchFd,
    TorchFs,
    Floor,
}

pub(crate) const COLUMNS: [Column; 8] = [
    Column::Ferry,
    Column::Payload,
    Column::Socket,
    Column::IpcChannel,
    Column::Iceoryx2,
    Column::TorchFd,
    Column::TorchFs,
    Column::Floor,
];

impl Column {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Ferry => "tensorferry",
            Self::Payload => "copying: the same queue",
            Self::Socket => "copying: Unix socket",
            Self::IpcChannel => "ipc-channel",
            Self::Iceoryx2 => "iceoryx2",
            Self::TorchFd => "torch fd",
            Self::TorchFs => "torch file_system",
            Self::Floor => "limit",
        }
    }
}

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// The figure that is compared; the unit is in its name.
    pub(crate) figure: &'static str,
    /// Other figures of tensorferry that the row shows.
    pub(crate) also: &'static [&'static str],
    pub(crate) ask: Ask,
    columns: Columns,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Columns {
    All,
    /// torch sends the same tensors again instead of fresh ones.
    TorchAgain,
    Ferry,
    /// tensorferry and the limit.
    FerryAndFloor,
    /// Those who can look all the time.
    Polling,
    /// Torch, and the limit that tensorferry's answer brings along.
    Spawn,
}

impl Entry {
    /// Whether a smaller figure is better.
    pub(crate) fn is_time(&self) -> bool {
        self.figure.ends_with("_us") || self.figure.ends_with("_ns")
    }

    /// The ways that a column is the best of; none when it has no such row.
    pub(crate) fn ways(&self, column: Column) -> Vec<Way> {
        let is_asleep = self.ask.row == Row::Asleep;
        match (self.columns, column) {
            (_, Column::Ferry) => vec![Way::Ferry],
            (Columns::TorchAgain, Column::TorchFd) => vec![Way::TorchFdAgain],
            (Columns::TorchAgain, Column::TorchFs) => vec![Way::TorchFsAgain],
            (Columns::All | Columns::Spawn, Column::TorchFd) => vec![Way::TorchFd],
            (Columns::All | Columns::Spawn, Column::TorchFs) => vec![Way::TorchFs],
            (Columns::All | Columns::FerryAndFloor, Column::Floor) if self.ask.row == Row::Fresh => {
                vec![Way::Floor, Way::FloorLifo]
            }
            (Columns::All | Columns::FerryAndFloor | Columns::Polling, Column::Floor) => vec![Way::Floor],
            (Columns::All, Column::Payload) => vec![Way::Payload],
            (Columns::All, Column::Socket) => vec![Way::Socket],
            (Columns::All, Column::IpcChannel) => vec![Way::IpcShm, Way::IpcBytes],
            (Columns::All, Column::Iceoryx2) if is_asleep => vec![Way::IceEvent],
            (Columns::All | Columns::Polling, Column::Iceoryx2) => vec![Way::IcePoll],
            _ => Vec::new(),
        }
    }
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn entry(id: &'static str, title: &'static str, figure: &'static str, ask: Ask, columns: Columns) -> Entry {
    Entry { id, title, figure, also: &[], ask, columns }
}

fn latency(id: &'static str, title: &'static str, size_bytes: usize) -> Entry {
    let also = &["p50_us", "p99_us", "p999_us"];
    Entry { also, ..entry(id, title, "one_way_us", Ask::new(Row::Latency, size_bytes, 16), Columns::All) }
}

fn polling(mut entry: Entry) -> Entry {
    entry.ask.polls = true;
    entry.columns = Columns::Polling;
    entry
}

fn asleep(id: &'static str, title: &'static str, size_bytes: usize) -> Entry {
    let ask = Ask { seconds: 0.6, ..Ask::new(Row::Asleep, size_bytes, 16) };
    Entry { also: &["p99_us", "p999_us"], ..entry(id, title, "one_way_us", ask, Columns::All) }
}

fn fresh(id: &'static str, title: &'static str, size_bytes: usize, depth: usize) -> Entry {
    let also = &["gb_per_s", "faults_per_message"];
    Entry {
        also,
        ..entry(id, title, "messages_per_s", Ask::new(Row::Fresh, size_bytes, depth), Columns::All)
    }
}

fn pinned(mut entry: Entry) -> Entry {
    entry.ask.pinned = true;
    entry
}

fn torch_again(mut entry: Entry) -> Entry {
    entry.columns = Columns::TorchAgain;
    entry
}

/// All rows, in the order of the table.
pub(crate) fn rows() -> Vec<Entry> {
    let stream = |count| Ask { count, ..Ask::new(Row::Stream, 4, 16) };
    let pairs = |pairs| Ask { pairs, ..Ask::new(Row::Pairs, 4, 256) };
    let spawn = |count| Ask { count, ..Ask::new(Row::Spawn, 0, 1) };
    let live = |count| Ask { count, ..Ask::new(Row::Live, 64, 256) };
    let idle = |idle| Ask { idle, ..Ask::new(Row::Latency, 4, 16) };
    let each = &["shared_bytes", "private_bytes", "receiver_private_bytes", "descriptors"];
    let alive =
        |id, title, count| Entry { also: each, ..entry(id, title, "both_ns", live(count), Columns::Ferry) };
    vec![
        latency("latency-4", "an existing tensor of 4 B, one way, both busy", 4),
        latency("latency-1m", "an existing tensor of 1 MiB, one way, both busy", MIB),
        latency("latency-64m", "an existing tensor of 64 MiB, one way, both busy", 64 * MIB),
        polling(latency("latency-4-polling", "an existing tensor of 4 B, one way, both polling", 4)),
        polling(latency("latency-1m-polling", "an existing tensor of 1 MiB, one way, both polling", MIB)),
        polling(latency(
            "latency-64m-polling",
            "an existing tensor of 64 MiB, one way, both polling",
            64 * MIB,
        )),
        pinned(latency("latency-4-pinned", "an existing tensor of 4 B, one way, both busy, pinned", 4)),
        pinned(latency("latency-1m-pinned", "an existing tensor of 1 MiB, one way, both busy, pinned", MIB)),
        asleep("asleep-4", "an existing tensor of 4 B after 1 ms, receiver asleep", 4),
        pinned(asleep("asleep-4-pinned", "an existing tensor of 4 B after 1 ms, receiver asleep, pinned", 4)),
        asleep("asleep-1m", "an existing tensor of 1 MiB after 1 ms, receiver asleep", MIB),
        asleep("asleep-64m", "an existing tensor of 64 MiB after 1 ms, receiver asleep", 64 * MIB),
        entry(
            "stream-4",
            "messages with an existing tensor of 4 B",
            "messages_per_s",
            Ask::new(Row::Stream, 4, 256),
            Columns::All,
        ),
        fresh("fresh-4k", "fresh 4 KiB, written and summed", 4 * KIB, 64),
        fresh("fresh-64k", "fresh 64 KiB, written and summed", 64 * KIB, 16),
        fresh("fresh-1m", "fresh 1 MiB, written and summed", MIB, 4),
        fresh("fresh-16m", "fresh 16 MiB, written and summed", 16 * MIB, 2),
        pinned(fresh("fresh-1m-pinned", "fresh 1 MiB, written and summed, pinned", MIB, 4)),
        torch_again(fresh("again-4k", "as fresh 4 KiB; torch sends four tensors again", 4 * KIB, 64)),
        torch_again(fresh("again-1m", "as fresh 1 MiB; torch sends four tensors again", MIB, 4)),
        torch_again(fresh("again-16m", "as fresh 16 MiB; torch sends four tensors again", 16 * MIB, 2)),
        entry("one", "messages with 1 tensor", "messages_per_s", stream(1), Columns::FerryAndFloor),
        entry("hundred", "messages with 100 tensors", "messages_per_s", stream(100), Columns::FerryAndFloor),
        entry(
            "bundle",
            "messages with a bundle of 100 tensors",
            "messages_per_s",
            Ask { bundled: true, ..stream(100) },
            Columns::FerryAndFloor,
        ),
        entry("pairs-1", "1 producer, 1 consumer, one queue", "messages_per_s", pairs(1), Columns::Ferry),
        Entry {
            also: &["least_share"],
            ..entry(
                "pairs-2",
                "2 producers, 2 consumers, one queue",
                "messages_per_s",
                pairs(2),
                Columns::Ferry,
            )
        },
        entry("spawn-1", "1 process, spawn to join", "spawn_us", spawn(1), Columns::Spawn),
        entry("spawn-2", "2 processes, spawn to join", "spawn_us", spawn(2), Columns::Spawn),
        entry("spawn-4", "4 processes, spawn to join", "spawn_us", spawn(4), Columns::Spawn),
        alive("live-1", "1 live tensor of 64 B: allocate and receive", 1),
        alive("live-10k", "10,000 live tensors of 64 B: allocate and receive one", 10_000),
        alive("live-1m", "1,000,000 live tensors of 64 B: allocate and receive one", 1_000_000),
        entry(
            "members-2",
            "hand-over of 4 B between 2 members, alone",
            "one_way_us",
            idle(0),
            Columns::Ferry,
        ),
        entry("members-32", "the same beside 30 idle members", "one_way_us", idle(30), Columns::Ferry),
    ]
}
