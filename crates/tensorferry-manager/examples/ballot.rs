//! An object of one's own that threads, or processes, call: it counts votes, each voter once.

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::collections::{BTreeMap, HashSet};
use std::error::Error;

use serde::{Deserialize, Serialize};
use tensorferry_manager::serve;

#[derive(Default)]
struct Ballot {
    voters: HashSet<u32>,
    votes: BTreeMap<String, u32>,
}

#[derive(Serialize, Deserialize)]
struct Vote {
    voter: u32,
    choice: String,
}

impl Ballot {
    fn cast(&mut self, vote: Vote) -> Result<u32, String> {
        if !self.voters.insert(vote.voter) {
            return Err(format!("{} has voted already", vote.voter));
        }
        let count = self.votes.entry(vote.choice).or_default();
        *count += 1;
        Ok(*count)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let ballot = serve(Ballot::default(), Ballot::cast)?;
    std::thread::scope(|scope| {
        for voter in 0..10 {
            // Another process would get this with its arguments.
            let proxy = ballot.proxy().clone();
            let choice = if voter % 3 == 0 { "tabs" } else { "spaces" }.to_owned();
            scope.spawn(move || proxy.call(Vote { voter, choice }));
        }
    });
    let twice = ballot.proxy().call(Vote { voter: 7, choice: "tabs".to_owned() })?;
    println!("voting twice: {twice:?}");
    println!("{:?}", ballot.into_state()?.votes);
    Ok(())
}
