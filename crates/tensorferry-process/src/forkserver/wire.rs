//! The protocol between a fork server and its client.
//!
//! The client sends *requests* over one stream socket: a little-endian `u64` length and then postcard, with
//! descriptors attached to the first byte. Each request brings a socket of its own, which preserves message
//! boundaries (`SOCK_SEQPACKET`). Over it the server sends *words* about the one child: that it was started,
//! with its pidfd, and how it ended.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use serde::{Deserialize, Serialize};
use tensorferry_os::socket;

use crate::error::ProtocolError;
use crate::exit::Ended;
use crate::protocol::{PAYLOAD_PREFIX_LEN_BYTES, decode, payload_len_bytes, payload_prefix};

/// Longest word, in bytes.
const MAX_WORD_LEN_BYTES: usize = 4 << 10;

/// Longest reason. In UTF-8 it fits into a word.
const MAX_REASON_LEN_CHARS: usize = MAX_WORD_LEN_BYTES / 4 - 16;

/// A child that the client requests.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The nonce of the hello, which is already in the child's control socket.
    pub(crate) nonce: String,
    pub(crate) environment: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) nice: Option<i32>,
    pub(crate) cpus: Option<Vec<usize>>,
}

/// The descriptors attached to a request, in this order.
#[derive(Debug)]
pub(crate) struct Descriptors<T> {
    /// The child's end of its control socket.
    pub(crate) control: T,
    /// The server's end of the socket for words.
    pub(crate) words: T,
    pub(crate) stdout: T,
    pub(crate) stderr: T,
    pub(crate) current_dir: T,
}

/// How many there are.
const N_DESCRIPTORS: usize = 5;

impl<T> Descriptors<T> {
    fn from_list(list: Vec<T>) -> Result<Self, ProtocolError> {
        let got = list.len();
        let all: Result<[T; N_DESCRIPTORS], _> = list.try_into();
        let sent = u32::try_from(N_DESCRIPTORS).unwrap_or(u32::MAX);
        let [control, words, stdout, stderr, current_dir] =
            all.map_err(|_| ProtocolError::Descriptors { sent, got })?;
        Ok(Self { control, words, stdout, stderr, current_dir })
    }
}

/// A message of a server about one child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It exists. Its pidfd is attached to this word.
    Started {
        /// Its process ID as the server sees it.
        pid: u32,
    },
    /// It could not be started.
    Refused {
        /// The reason, for people.
        reason: String,
    },
    /// It has ended and was reaped.
    Ended(Status),
}

/// [`Ended`] in a form that can be serialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Status {
    Exited { code: i32 },
    Signaled { signal: i32, core_dumped: bool },
    Lost,
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        match status {
            Status::Exited { code } => Self::Exited { code },
            Status::Signaled { signal, core_dumped } => Self::Signaled { signal, core_dumped },
            Status::Lost => Self::Lost,
        }
    }
}

impl From<Ended> for Status {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Exited { code } => Self::Exited { code },
            Ended::Signaled { signal, core_dumped } => Self::Signaled { signal, core_dumped },
            Ended::Lost | Ended::StatusUnavailable => Self::Lost,
        }
    }
}

impl Request {
    /// A request with the environment of this process, changed as the list says.
    pub(crate) fn new(nonce: String, changes: &[(OsString, Option<OsString>)]) -> Self {
        let changed = |name: &OsString| changes.iter().any(|(changed, _)| changed == name);
        let kept = std::env::vars_os().filter(|(name, _)| !changed(name));
        // The last change of a name wins.
        let set = changes.iter().enumerate().filter_map(|(at, (name, value))| {
            let is_last = changes[at + 1..].iter().all(|(later, _)| later != name);
            is_last.then(|| Some((name.clone(), value.clone()?)))?
        });
        let environment = kept.chain(set).map(|(name, value)| (name.into_vec(), value.into_vec()));
        Self { nonce, environment: environment.collect(), nice: None, cpus: None }
    }

    /// Sends it. Blocks while the socket is full.
    pub(crate) fn send(&self, to: &OwnedFd, fds: &Descriptors<BorrowedFd<'_>>) -> Result<(), ProtocolError> {
        let body = postcard::to_stdvec(self).map_err(|error| ProtocolError::Malformed {
            what: "request",
            len_bytes: 0,
            error: error.into(),
        })?;
        let mut bytes = payload_prefix(body.len())?.to_vec();
        bytes.extend_from_slice(&body);
        let fds = [fds.control, fds.words, fds.stdout, fds.stderr, fds.current_dir];
        Ok(socket::send_all(to, &bytes, &fds)?)
    }

    /// Waits for the next request; `None` when the client is gone.
    pub(crate) fn receive(from: &OwnedFd) -> Result<Option<(Self, Descriptors<OwnedFd>)>, ProtocolError> {
        let mut fds = Vec::new();
        let mut prefix = [0; PAYLOAD_PREFIX_LEN_BYTES];
        if !fill(from, &mut prefix, &mut fds)? {
            return Ok(None);
        }
        let mut body = vec![0; payload_len_bytes(prefix)?];
        if !fill(from, &mut body, &mut fds)? {
            return Ok(None);
        }
        Ok(Some((decode("request", &body)?, Descriptors::from_list(fds)?)))
    }

    /// The environment in the types of the standard library.
    pub(crate) fn take_environment(&mut self) -> impl Iterator<Item = (OsString, OsString)> + use<> {
        let environment = std::mem::take(&mut self.environment).into_iter();
        environment.map(|(name, value)| (OsString::from_vec(name), OsString::from_vec(value)))
    }
}

/// Waits until the buffer is full. Returns false at the end of the stream, even in the middle of a buffer.
fn fill(from: &OwnedFd, buffer: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<bool, ProtocolError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match socket::receive(from, &mut buffer[filled..], fds)? {
            0 => return Ok(false),
            n => filled += n,
        }
    }
    Ok(true)
}

/// Sends a word, cut so that it fits. Does not block.
///
/// # Errors
/// EPIPE or ECONNRESET when the other end is closed. ETOOMANYREFS when too many descriptors are in flight.
/// ENOBUFS and ENOMEM. EAGAIN when the socket is full. Nothing was sent in these cases.
pub(crate) fn say(to: &OwnedFd, word: &Word, pidfd: Option<BorrowedFd<'_>>) -> Result<(), ProtocolError> {
    let cut = match word {
        Word::Refused { reason } => {
            Some(Word::Refused { reason: reason.chars().take(MAX_REASON_LEN_CHARS).collect() })
        }
        Word::Started { .. } | Word::Ended(_) => None,
    };
    let bytes = postcard::to_stdvec(cut.as_ref().unwrap_or(word))
        .map_err(|error| ProtocolError::Malformed { what: "word", len_bytes: 0, error: error.into() })?;
    match socket::try_send(to, &bytes, pidfd.as_slice())? {
        Some(_) => Ok(()),
        None => {
            Err(tensorferry_os::Error::new("sendmsg of a word", std::io::Error::from(ErrorKind::WouldBlock))
                .into())
        }
    }
}

/// The next word, if it has arrived. Does not block.
///
/// # Errors
/// [`ProtocolError::Ended`] at the end of the stream.
pub(crate) fn hear(from: impl AsFd) -> Result<Option<Word>, ProtocolError> {
    hear_with(from, &mut Vec::new())
}

/// As [`hear`], with the descriptor that is attached to the word.
pub(crate) fn hear_with(from: impl AsFd, fds: &mut Vec<OwnedFd>) -> Result<Option<Word>, ProtocolError> {
    let mut buffer = [0; MAX_WORD_LEN_BYTES];
    match socket::try_receive(from, &mut buffer, fds)? {
        None => Ok(None),
        Some(0) => Err(ProtocolError::Ended { got_bytes: 0, wanted_bytes: 1 }),
        Some(n) => decode("word", &buffer[..n]).map(Some),
    }
}

/// Decodes a request from arbitrary bytes, as a fork server does, and returns how many variables the child
/// would have. For fuzzing.
///
/// # Errors
/// Why the server would end.
#[doc(hidden)]
pub fn read_request(body: &[u8]) -> Result<usize, ProtocolError> {
    decode("request", body).map(|mut request: Request| request.take_environment().count())
}

/// Decodes a word from arbitrary bytes, as a client does, and returns it as text. For fuzzing.
///
/// # Errors
/// Why the client would treat the server as dead.
#[doc(hidden)]
pub fn read_word(word: &[u8]) -> Result<String, ProtocolError> {
    decode("word", word).map(|word: Word| format!("{word:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(changes: &[(&str, Option<&str>)]) -> Vec<(OsString, OsString)> {
        let changes: Vec<_> = changes.iter().map(|(n, v)| ((*n).into(), v.map(Into::into))).collect();
        Request::new(String::new(), &changes).take_environment().collect()
    }

    #[test]
    fn the_last_change_of_a_variable_counts_and_the_rest_is_ours() {
        let found =
            environment(&[("TF_A", Some("1")), ("TF_A", Some("2")), ("TF_B", Some("3")), ("TF_B", None)]);
        assert!(found.contains(&("TF_A".into(), "2".into())));
        assert!(found.iter().all(|(name, _)| name != "TF_B"));
        assert_eq!(found.iter().filter(|(name, _)| name == "TF_A").count(), 1);
        let ours = std::env::vars_os().filter(|(name, _)| name != "TF_A" && name != "TF_B").count();
        assert_eq!(found.len(), ours + 1);
    }

    #[test]
    fn a_request_arrives_with_its_descriptors() {
        let (client, server) = socket::pair().unwrap();
        let fds = Descriptors {
            control: client.as_fd(),
            words: client.as_fd(),
            stdout: client.as_fd(),
            stderr: client.as_fd(),
            current_dir: client.as_fd(),
        };
        let mut request = Request::new("n".repeat(32), &[]);
        request.cpus = Some(vec![7]);
        request.send(&client, &fds).unwrap();
        let (got, _fds) = Request::receive(&server).unwrap().unwrap();
        assert_eq!((got.nonce, got.cpus), (request.nonce, request.cpus));
    }

    #[test]
    fn a_word_is_cut_and_one_that_cannot_be_said_is_an_error() {
        let (ours, theirs) = socket::message_pair().unwrap();
        let long = Word::Refused { reason: "ü€".repeat(3000) };
        say(&theirs, &long, None).unwrap();
        let Some(Word::Refused { reason }) = hear(&ours).unwrap() else { panic!("another word") };
        assert!(reason.starts_with("ü€") && reason.len() < MAX_WORD_LEN_BYTES);
        let full = loop {
            if let Err(error) = say(&theirs, &Word::Started { pid: 7 }, None) {
                break error;
            }
        };
        assert!(matches!(&full, ProtocolError::Os(e) if e.kind() == ErrorKind::WouldBlock), "{full}");
        drop(ours);
        let gone = say(&theirs, &Word::Started { pid: 7 }, None).unwrap_err();
        let is_gone = |kind| matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
        assert!(matches!(&gone, ProtocolError::Os(e) if is_gone(e.kind())), "{gone}");
    }

    #[test]
    fn words_come_whole_and_their_end_is_an_error() {
        let (ours, theirs) = socket::message_pair().unwrap();
        assert_eq!(hear(&ours).unwrap(), None);
        let words =
            [Word::Started { pid: 7 }, Word::Ended(Status::Signaled { signal: 9, core_dumped: true })];
        words.iter().for_each(|word| say(&theirs, word, None).unwrap());
        drop(theirs);
        for word in words {
            assert_eq!(hear(&ours).unwrap(), Some(word));
        }
        assert!(hear(&ours).is_err());
    }
}
