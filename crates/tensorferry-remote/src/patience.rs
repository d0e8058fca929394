//! How long another machine may be silent before it is given up.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tensorferry_os::tcp;

/// How long a machine may be silent, if nobody says otherwise.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// How often somebody who waits looks whether the other machine still answers.
const LOOKS_IN_SILENCE: u32 = 8;

/// How long the other machine may be silent.
///
/// The kernel probes a quiet connection. While something is under way it does not, so who waits looks for
/// itself: whoever writes, and whoever reads, for what was written before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { silence: SILENCE }
    }
}

impl Patience {
    /// Has `stream` be given up after so long a silence.
    pub(crate) fn set(stream: &TcpStream, silence: Duration) -> io::Result<Self> {
        tcp::give_up_after(stream, silence)?;
        let patience = Self { silence };
        stream.set_write_timeout(Some(patience.slice(None)))?;
        Ok(patience)
    }

    /// How long to wait at a time, of what is `left`. Never zero, which would be for ever.
    pub(crate) fn slice(self, left: Option<Duration>) -> Duration {
        let slice = self.silence / LOOKS_IN_SILENCE;
        left.map_or(slice, |left| left.min(slice)).max(Duration::from_micros(1))
    }

    /// Fails, as the kernel does that gives a machine up, when it has been silent for too long.
    pub(crate) fn check(self, stream: &TcpStream) -> io::Result<()> {
        if tcp::unanswered_for(stream)?.is_some_and(|silent| silent >= self.silence) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Writes all bytes, however slowly the other side reads, but with a deadline. Fails with
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when it is over.
    pub(crate) fn write_all(
        self,
        mut stream: &TcpStream,
        mut bytes: &[u8],
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some() {
                stream.set_write_timeout(Some(self.slice(left)))?;
            }
            match stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.check(stream)?;
                    if left.is_some_and(|left| left.is_zero()) {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
