//! Two programs meet at an address: `meet` listens, starts itself as `meet ADDRESS`, and sends it a queue.

#![expect(clippy::print_stdout, reason = "an example talks to people")]
#![expect(clippy::disallowed_methods, reason = "this is about processes that something else starts")]

use std::error::Error;
use std::process::Command;

use tensorferry_listen::{Listener, connect};
use tensorferry_queue::{Receiver, channel};

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = std::env::args_os().nth(1) {
        let mut connection = connect::<String, Receiver<String>>(address)?;
        for word in &connection.recv()? {
            connection.send(word.to_uppercase())?;
        }
        return Ok(());
    }
    // A name that is no file.
    let address = format!("@tensorferry-meet-{}", std::process::id());
    let listener = Listener::bind(&address)?;
    let mut other = Command::new(std::env::current_exe()?).arg(&address).spawn()?;
    let mut connection = listener.accept::<Receiver<String>, String>(4)?;
    // What a function that is started from here would have as an argument travels through the connection.
    let (words, theirs) = channel(4)?;
    connection.send(theirs)?;
    for word in ["without", "a", "copy"] {
        words.put(word.to_owned())?;
        println!("process {} says {}", other.id(), connection.recv()?);
    }
    drop(words);
    println!("it ended with {}", other.wait()?);
    Ok(())
}
