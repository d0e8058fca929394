//! A process that attaches to what is published.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry::domain::Domain;
use tensorferry::listen::{ConnectError, attach_any, attach_timeout, attach_when_there, connect_timeout};
use tensorferry::queue::channel;
use tensorferry::reduce::bytes_copied;
use tensorferry::storage::Heap;
use tensorferry::tensor::{SharedTensor, Tensor};

use super::Shelf;
use crate::{Item, Link, RootTask};

/// What a program in Python publishes for an [`Attacher`].
#[derive(Debug, Serialize, Deserialize)]
struct Foreign {
    step: u32,
    weights: Tensor<f32>,
    hits: SharedTensor<i64>,
    names: (String, String),
}

/// Attaches to a shelf. Hears
///
/// - `attach SECONDS`, `await SECONDS` where it may not be there yet, and says `attached` or why not;
/// - `check`, and checks all that it has, and says the number of the last one;
/// - `drop`, and lets go of all;
/// - `cycles N`, and attaches, checks and lets go so often, and says the line;
/// - `threads N`, and attaches in so many threads at once, and says the line;
/// - `types`, and says what it hears when it takes the shelf for something else, or the publisher for a
///   listener: three lines;
/// - `half N`, and connects so often without going on, and says the line;
/// - `foreign`, and attaches to what a program in Python has published, writes 40 into it, and says what it
///   has so far; `kept`, and says only that; `wrong`, and says why that is no sequence of bytes;
/// - `number`, and says the number that is published at the address with `-next` behind it, or why not;
/// - `own`, and makes a domain of its own first, with a tensor in it; `compare`, and checks that this is
///   still its default one.
#[derive(Debug, Serialize, Deserialize)]
pub struct Attacher {
    /// Where.
    pub address: String,
}

/// Long enough for anything.
const PATIENCE: Duration = Duration::from_secs(60);

impl RootTask for Attacher {
    const NAME: &'static str = "attacher";

    fn run(self, link: &Link) {
        let mut kept = Kept::default();
        while let Ok(Some(line)) = link.hear_until(None) {
            let (verb, number) = line.split_once(' ').unwrap_or((&line, "0"));
            let said = match verb {
                "attach" | "await" => {
                    self.attach(&mut kept, verb, Duration::from_secs_f64(number.parse().unwrap()))
                }
                "foreign" | "kept" | "wrong" | "number" => self.take_foreign(&mut kept, verb),
                "types" => self.mistake_types(),
                _ => {
                    self.obey(&mut kept, verb, number.parse().unwrap());
                    if verb == "check" {
                        kept.shelves.last().unwrap().loose.sequence.to_string()
                    } else {
                        line
                    }
                }
            };
            said.lines().for_each(|line| link.say(line));
        }
    }
}

/// What it has.
#[derive(Debug, Default)]
struct Kept {
    shelves: Vec<Shelf>,
    foreign: Vec<Foreign>,
    streams: Vec<UnixStream>,
    own: Option<(u64, Item)>,
}

impl Attacher {
    fn shelf(&self) -> Shelf {
        attach_timeout(&self.address, PATIENCE).unwrap()
    }

    fn attach(&self, kept: &mut Kept, verb: &str, timeout: Duration) -> String {
        let attached = match verb {
            "await" => attach_when_there(&self.address, timeout),
            _ => attach_timeout(&self.address, timeout),
        };
        match attached {
            Ok(shelf) => {
                kept.shelves.push(shelf);
                "attached".to_owned()
            }
            Err(error) => error.to_string(),
        }
    }

    fn mistake_types(&self) -> String {
        let other = attach_timeout::<Item>(&self.address, PATIENCE).unwrap_err();
        assert!(matches!(other, ConnectError::WrongType { .. }));
        let any = attach_any::<Item>(&self.address, Some(PATIENCE)).unwrap_err();
        let connected = connect_timeout::<Item, Item>(&self.address, PATIENCE).unwrap_err();
        format!("{other}\n{any}\n{connected}")
    }

    fn take_foreign(&self, kept: &mut Kept, verb: &str) -> String {
        match verb {
            "wrong" => return attach_timeout::<Vec<u8>>(&self.address, PATIENCE).unwrap_err().to_string(),
            "number" => {
                let number = attach_timeout::<u8>(format!("{}-next", self.address), PATIENCE);
                return number.map_or_else(|error| error.to_string(), |number| number.to_string());
            }
            "foreign" => kept.foreign.push(attach_timeout(&self.address, PATIENCE).unwrap()),
            _ => {}
        }
        let said = kept.foreign.iter().map(|Foreign { step, weights, hits, names: (one, two) }| {
            hits.store([0], 40).unwrap();
            format!("{step} {one}{two} {:?}", weights.to_vec())
        });
        said.collect::<Vec<_>>().join("; ")
    }

    fn obey(&self, kept: &mut Kept, verb: &str, number: u32) {
        match verb {
            "check" => {
                for shelf in &kept.shelves {
                    shelf.check();
                }
                assert_eq!(bytes_copied(), 0);
            }
            "drop" => kept.shelves.clear(),
            "cycles" => {
                for _ in 0..number {
                    self.shelf().check();
                }
            }
            "threads" => std::thread::scope(|scope| {
                let threads: Vec<_> = (0..number).map(|_| scope.spawn(|| self.shelf().check())).collect();
                threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 1));
            }),
            "half" => kept.streams.extend((0..number).map(|_| {
                let address = SocketAddr::from_abstract_name(&self.address[1..]).unwrap();
                let mut stream = UnixStream::connect_addr(&address).unwrap();
                // A process that is in no domain.
                stream.write_all(b"TFLI\x01\0\0\0\x01\0\0\0\0").unwrap();
                stream
            })),
            "own" => {
                let small = Domain::builder().address_space_bytes(1 << 30).limit_bytes(64 << 20);
                Heap::create(small).unwrap().make_current().unwrap();
                let heap = Heap::current().unwrap();
                kept.own = Some((heap.domain().id(), Item::new(heap, 9, 9, &[100])));
            }
            _ => {
                let (id, item) = kept.own.as_ref().unwrap();
                item.check();
                assert_eq!(Heap::current().unwrap().domain().id(), *id);
                // What it makes lies where it did.
                drop(channel::<u8>(1).unwrap());
            }
        }
    }
}
