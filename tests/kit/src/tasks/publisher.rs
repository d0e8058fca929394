//! A process that publishes values.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde::{Deserialize, Serialize};
use tensorferry::domain::Domain;
use tensorferry::listen::{Publication, publish};
use tensorferry::queue::{Receiver, channel_in};
use tensorferry::storage::Heap;
use tensorferry::tensor::{SharedTensor, TensorMut};

use crate::{Item, Leftovers, Link, RootTask};

/// Something to publish, with a part of each kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shelf {
    /// Tensors.
    pub loose: Item,
    /// Tensors in a bundle.
    pub bundled: Item,
    /// How often somebody has checked this.
    pub n_checks: SharedTensor<u64>,
    /// Has the number of the shelf.
    pub numbers: Receiver<u64>,
}

impl Shelf {
    /// One with this number, in `heap`.
    #[must_use]
    pub fn new(heap: &Heap, number: u64) -> Self {
        let n_checks = TensorMut::zeros_in(heap, [1]).unwrap().share();
        let (sender, numbers) = channel_in(heap, 2).unwrap();
        sender.put(number).unwrap();
        let bundled = Item::new(heap, 2, number, &[1000, 7]).bundled(heap);
        Self { loose: Item::new(heap, 1, number, &[5000, 0, 3]), bundled, n_checks, numbers }
    }

    /// Checks every byte, and says so in the tensor that all write. Returns the number.
    #[track_caller]
    pub fn check(&self) -> u64 {
        self.loose.check();
        self.bundled.check();
        assert_eq!(self.loose.sequence, self.bundled.sequence);
        self.n_checks.fetch_add([0], 1).unwrap();
        self.loose.sequence
    }
}

/// Publishes shelves. Hears
///
/// - `publish NUMBER`, `replace NUMBER`, `drop`, and says the same or why not;
/// - `counts`, and says how many have attached and were refused;
/// - `reason`, and says why somebody was refused last;
/// - `left`, and says how many descriptors and mappings it has, and blocks that somebody holds;
/// - `fill KEPT`, and uses up all descriptors but so many; `empty`, and gives them back;
/// - `exec`, and becomes another program, which ends when it hears nothing any more.
#[derive(Debug, Serialize, Deserialize)]
pub struct Publisher {
    /// Where.
    pub address: String,
}

impl RootTask for Publisher {
    const NAME: &'static str = "publisher";

    fn run(self, link: &Link) {
        let small = Domain::builder().address_space_bytes(1 << 30).limit_bytes(256 << 20);
        Heap::create(small).unwrap().make_current().unwrap();
        let heap = Heap::current().unwrap();
        let mut published: Option<Publication<Shelf>> = None;
        let mut files = Vec::new();
        while let Ok(Some(line)) = link.hear_until(None) {
            let (verb, number) = line.split_once(' ').unwrap_or((&line, "0"));
            let number: u64 = number.parse().unwrap();
            let now = published.as_ref();
            match verb {
                "publish" => match publish(&self.address, &Shelf::new(heap, number)) {
                    Ok(publication) => published = Some(publication),
                    Err(error) => {
                        link.say(&error.to_string());
                        continue;
                    }
                },
                "replace" => now.unwrap().replace(&Shelf::new(heap, number)).unwrap(),
                "drop" => drop(published.take().unwrap()),
                "counts" => {
                    link.say(&format!("{} {}", now.unwrap().n_attached(), now.unwrap().n_refused()));
                    continue;
                }
                "reason" => {
                    let reason = now.unwrap().last_refusal().map(|error| error.to_string());
                    link.say(reason.as_deref().unwrap_or("none"));
                    continue;
                }
                "left" => {
                    heap.collect();
                    let (left, blocks) = (Leftovers::look(), heap.stats().own.live_blocks);
                    link.say(&format!("{} {} {blocks}", left.n_descriptors(), left.n_mappings()));
                    continue;
                }
                "fill" => {
                    files.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
                    files.truncate(files.len() - usize::try_from(number).unwrap());
                }
                "empty" => files.clear(),
                _ => {
                    link.say("exec");
                    #[expect(clippy::disallowed_methods, reason = "this is about what exec leaves")]
                    let error = Command::new("cat").exec();
                    panic!("{error}");
                }
            }
            link.say(&line);
        }
    }
}
