//! How two sides come to know that both have the key, and what they are going to say.
//!
//! The Noise protocol (revision 34), pattern `NNpsk0`: each side has a key pair of this one connection, and
//! what they agree on depends on the key too. Both first messages are empty. Then each side says in a frame
//! who it is. Whoever was connected to lets nobody in before it has read such a frame: what comes before it
//! can be a recording of another connection.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::cipher;
use crate::error::{ConnectError, ConnectionError};
use crate::frames::{FrameReader, FrameWriter, MAX_FRAME_LEN_BYTES, fill};
use crate::key::Key;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// What both sides must have in common: this protocol and its version, and that numbers in tensors are
/// little-endian.
const PROLOGUE: &[u8] = b"tensorferry-remote 1 little-endian";

/// How long the other side may take to introduce itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The longest introduction. A name of a type has to fit.
const MAX_HELLO_LEN_BYTES: usize = 16 * 1024;

/// What a side says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The name of the type that it sends.
    pub(crate) sends: String,
    /// And of the one that it receives.
    pub(crate) receives: String,
}

/// Which side somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It has connected, and speaks first.
    Connects,
    /// It was connected to.
    Listens,
}

/// Introduces the two sides to each other, and returns what they say and hear from then on.
pub(crate) fn meet(
    stream: TcpStream,
    key: &Key,
    side: Side,
    (sends, receives): (&'static str, &'static str),
) -> Result<(FrameWriter, FrameReader), ConnectError> {
    let deadline = Instant::now() + PATIENCE;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (sealing, opening) = cipher::both(agree(&stream, key, side, deadline)?);
    let stream = Arc::new(stream);
    let mut writer = FrameWriter::new(Arc::clone(&stream), sealing);
    let mut reader = FrameReader::new(Arc::clone(&stream), opening);
    writer.set_deadline(Some(deadline));
    let hello = if side == Side::Connects {
        say(&mut writer, sends, receives)?;
        hear(&mut reader, deadline)?
    } else {
        let hello = hear(&mut reader, deadline)?;
        say(&mut writer, sends, receives)?;
        hello
    };
    // Both find it out.
    if hello.sends != receives {
        return Err(ConnectError::Type { sent: hello.sends, received: receives.to_owned() });
    }
    if hello.receives != sends {
        return Err(ConnectError::Type { sent: sends.to_owned(), received: hello.receives });
    }
    writer.set_deadline(None);
    Ok((writer, reader))
}

/// The exchange of keys.
fn agree(
    stream: &TcpStream,
    key: &Key,
    side: Side,
    deadline: Instant,
) -> Result<StatelessTransportState, ConnectError> {
    let builder = Builder::new(PATTERN.parse()?).prologue(PROLOGUE)?.psk(0, key.bytes())?;
    let mut state =
        if side == Side::Connects { builder.build_initiator()? } else { builder.build_responder()? };
    let mut buffer = vec![0; MAX_FRAME_LEN_BYTES];
    if side == Side::Connects {
        send(stream, &mut state, &mut buffer)?;
        receive(stream, &mut state, &mut buffer, deadline)?;
    } else {
        receive(stream, &mut state, &mut buffer, deadline)?;
        send(stream, &mut state, &mut buffer)?;
    }
    Ok(state.into_stateless_transport_mode()?)
}

fn send(mut stream: &TcpStream, state: &mut HandshakeState, buffer: &mut [u8]) -> Result<(), ConnectError> {
    let len = state.write_message(&[], buffer)?;
    let len_bytes = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    stream.write_all(&[&len_bytes, &buffer[..len]].concat())?;
    Ok(())
}

fn receive(
    stream: &TcpStream,
    state: &mut HandshakeState,
    buffer: &mut [u8],
    deadline: Instant,
) -> Result<(), ConnectError> {
    let heard = |error: io::Error| match error.kind() {
        // A side that finds that it has been sent nonsense goes without a word.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => ConnectError::Key,
        io::ErrorKind::WouldBlock => ConnectError::TimedOut(PATIENCE),
        _ => error.into(),
    };
    let mut len = [0; 2];
    fill(stream, &mut len, Some(deadline)).map_err(heard)?;
    let message = &mut buffer[..usize::from(u16::from_be_bytes(len))];
    fill(stream, message, Some(deadline)).map_err(heard)?;
    // With another key it cannot be read.
    state.read_message(message, &mut []).map_err(|_| ConnectError::Key)?;
    Ok(())
}

fn say(writer: &mut FrameWriter, sends: &str, receives: &str) -> Result<(), ConnectError> {
    let hello = postcard::to_stdvec(&Hello { sends: sends.to_owned(), receives: receives.to_owned() })
        .unwrap_or_default();
    let len = u32::try_from(hello.len()).unwrap_or(u32::MAX).to_le_bytes();
    let said = writer.write(&len).and_then(|()| writer.write(&hello)).and_then(|()| writer.flush());
    said.map_err(ConnectError::Connection)
}

fn hear(reader: &mut FrameReader, deadline: Instant) -> Result<Hello, ConnectError> {
    let refused = |error| match error {
        // With another key the other side has understood nothing, and gone.
        ConnectionError::Lost | ConnectionError::Forged => ConnectError::Key,
        ConnectionError::Stalled(_) => ConnectError::TimedOut(PATIENCE),
        error => ConnectError::Connection(error),
    };
    let mut len = [0; 4];
    reader.read_before(Some(deadline), &mut len).map_err(refused)?;
    let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
    if len > MAX_HELLO_LEN_BYTES {
        return Err(ConnectError::Connection(ConnectionError::Nonsense("a long introduction")));
    }
    let mut hello = vec![0; len];
    reader.read_before(Some(deadline), &mut hello).map_err(refused)?;
    let hello = postcard::from_bytes(&hello);
    hello.map_err(|_| ConnectError::Connection(ConnectionError::Nonsense("an introduction")))
}
