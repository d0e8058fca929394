//! A process that tries to get into domains.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use tensorferry::domain::Admission;
use tensorferry::storage::Heap;

use crate::{Leftovers, Link, RootTask};

/// For each line with an admission and a descriptor beside it, tries to join, and says `joined` or why not.
/// What was refused must have left nothing in this process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stranger;

impl RootTask for Stranger {
    const NAME: &'static str = "stranger";

    fn run(self, link: &Link) {
        let mut joined = Vec::new();
        while let Ok(Some(line)) = link.hear_until(None) {
            let admission: Admission = serde_json::from_str(&line).unwrap();
            let fd: OwnedFd = link.take_fd().unwrap();
            let mut before = Leftovers::look();
            before.forget_descriptors(1);
            match Heap::attach(fd, admission) {
                Ok(heap) => {
                    joined.push(heap);
                    link.say("joined");
                }
                Err(error) => {
                    // The service thread of a domain that was joined opens what it needs whenever it needs
                    // it.
                    if joined.is_empty() {
                        before.wait_nothing_more();
                    }
                    link.say(&error.to_string());
                }
            }
        }
    }
}
