//! A process that connects to a listener.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry::listen::{connect_timeout, connect_when_there};
use tensorferry::queue::Connection;

use super::name_of;
use crate::{Item, Link, RootTask};

/// Hears `connect SECONDS`, or `await SECONDS` for a listener that is not there yet, and says `connected` or
/// why not; `echo`, and sends back what it receives, or
/// says why it has received nothing; `drop`, and lets go of its last connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct Caller {
    /// Where the listener is.
    pub address: String,
}

impl RootTask for Caller {
    const NAME: &'static str = "caller";

    fn run(self, link: &Link) {
        let mut connections: Vec<Connection<Item>> = Vec::new();
        while let Ok(Some(line)) = link.hear_until(None) {
            match line.split_once(' ') {
                Some((verb @ ("connect" | "await"), seconds)) => {
                    let timeout = Duration::from_secs_f64(seconds.parse().unwrap());
                    let connected = match verb {
                        "await" => connect_when_there(&self.address, timeout),
                        _ => connect_timeout(&self.address, timeout),
                    };
                    match connected {
                        Ok(connection) => {
                            connections.push(connection);
                            link.say("connected");
                        }
                        Err(error) => link.say(&error.to_string()),
                    }
                }
                None if line == "echo" => {
                    let connection = connections.last_mut().unwrap();
                    match connection.recv() {
                        Ok(item) => {
                            item.check();
                            connection.send(item).unwrap();
                            link.say("echoed");
                        }
                        Err(error) => link.say(&name_of(&error)),
                    }
                }
                _ => {
                    drop(connections.pop().unwrap());
                    link.say("dropped");
                }
            }
        }
    }
}
