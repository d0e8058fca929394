//! Two programs meet at an address: `meet` listens, starts itself as `meet ADDRESS`, and sends a tensor.

#![expect(clippy::print_stdout, reason = "an example talks to people")]
#![expect(clippy::disallowed_methods, reason = "this is about processes that something else starts")]

use std::error::Error;
use std::process::Command;

use tensorferry_listen::{Listener, connect};
use tensorferry_tensor::{Tensor, TensorMut};

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = std::env::args_os().nth(1) {
        let mut connection = connect::<f32, Tensor<f32>>(address)?;
        while let Ok(tensor) = connection.recv() {
            connection.send(tensor.iter().sum())?;
        }
        return Ok(());
    }
    // A name that is no file.
    let address = format!("@tensorferry-meet-{}", std::process::id());
    let listener = Listener::bind(&address)?;
    let mut other = Command::new(std::env::current_exe()?).arg(&address).spawn()?;
    let mut connection = listener.accept::<Tensor<f32>, f32>(4)?;
    for step in 1..=3_u8 {
        connection.send(TensorMut::full([1 << 20], f32::from(step))?.freeze())?;
        println!("process {} says {}", other.id(), connection.recv()?);
    }
    drop(connection);
    println!("it ended with {}", other.wait()?);
    Ok(())
}
