//! Starts this program again to run a function, passes it bytes and a descriptor, and reports how it ended.
//!
//! Expected output: two children, one that returns and one that panics. The panic's message, location and
//! backtrace arrive in the parent, and `main` runs once.

use std::io::{Read as _, Write as _};

use tensorferry_process::{Failure, Inherited, Start};

tensorferry_process::entry! {
    /// Writes a greeting to the descriptor that it is given.
    static GREET = "example.greet" => greet;
}

fn greet(inherited: &mut Inherited) -> Result<(), Failure> {
    let whom = String::from_utf8(inherited.payload().to_vec())?;
    assert!(!whom.is_empty(), "nobody to greet");
    let fd = inherited.take_fds().pop().ok_or_else(|| Failure::Refused(String::from("no descriptor")))?;
    std::fs::File::from(fd)
        .write_all(format!("hello, {whom}, from process {}", std::process::id()).as_bytes())?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout();
    for whom in ["world", ""] {
        let (mut reader, writer) = std::io::pipe()?;
        let mut child = Start::new(&GREET).payload(whom).fd(writer.into()).start()?;
        let mut text = String::new();
        reader.read_to_string(&mut text)?;
        let pid = child.pid();
        let exit = child.wait()?;
        writeln!(out, "process {pid} {exit:#}\n  it wrote: {text:?}")?;
    }
    Ok(())
}
