//! A child, as its parent sees it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use tensorferry_os::Result;
use tensorferry_os::child::{self as os, SIGKILL, SIGTERM};
use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket::{self, Interest};

use crate::Report;
use crate::children::ChildProcess;
use crate::error::ProtocolError;
use crate::exit::{Ended, Exit, Stage};
use crate::protocol::{Frame, FrameReader};
use crate::relay::{REPORT_TIMEOUT, Relay};

/// How many panics of a child are kept, in case one of them turns out to have ended it.
const MAX_PANICS: usize = 16;

/// How long after its start the messages of a child do not wake the caller: see [`wait_end`].
const FIRST_STEPS: Duration = Duration::from_millis(10);

/// How long a wait whose time is up still waits for a fork server to report a child that is dead: such a
/// server takes a moment to reap its children.
const REPORT_STEP: Duration = Duration::from_millis(10);

/// What dropping a [`Child`] does to a process that still runs. The child is also reaped, so no zombie
/// remains. The exception is a child that has changed its user, so that the kernel refuses SIGKILL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnDrop {
    /// Send SIGKILL. The child's unfinished work is lost.
    #[default]
    Kill,
    /// Wait until the child ends by itself.
    Wait,
}

/// A process that was started to run an entry.
///
/// The parent watches it through two descriptors. The pidfd becomes readable when the child dies, in whatever
/// way. The control socket carries the child's messages. Every wait includes the pidfd, so a silent child
/// cannot make the parent hang.
#[derive(Debug)]
pub struct Child {
    process: ChildProcess,
    /// Reports how the child ended, if it is not a child of this process in the kernel's view.
    relay: Option<Relay>,
    // `None` once the child has closed its end or has sent bytes that cannot be decoded.
    control: Option<OwnedFd>,
    reader: FrameReader,
    stage: Stage,
    report: Option<Report>,
    panics: Vec<Report>,
    garbled: Option<ProtocolError>,
    started_at: Duration,
    alive_at: Duration,
    exit: Option<Exit>,
    on_drop: OnDrop,
}

impl Child {
    /// A child that is killed when this value is dropped.
    pub(crate) fn new(process: ChildProcess, control: OwnedFd) -> Self {
        let now = os::monotonic_now();
        Self {
            process,
            relay: None,
            control: Some(control),
            reader: FrameReader::default(),
            stage: Stage::Started,
            report: None,
            panics: Vec::new(),
            garbled: None,
            started_at: now,
            alive_at: now,
            exit: None,
            on_drop: OnDrop::Kill,
        }
    }

    /// From now on, what is to become of it when this value is dropped.
    pub(crate) fn with_on_drop(mut self, on_drop: OnDrop) -> Self {
        self.on_drop = on_drop;
        self
    }

    /// Makes it a child of a fork server.
    pub(crate) fn relayed(mut self, relay: Relay) -> Self {
        self.relay = Some(relay);
        self
    }

    /// # Errors
    /// ECHILD in a process that was forked from the one that started the child: there the child is a sibling.
    fn check_is_mine(&self) -> Result<()> {
        if self.process.is_mine() {
            return Ok(());
        }
        let call =
            format!("watching or signalling process {}, which another process has started,", self.pid());
        Err(tensorferry_os::Error::new(call, std::io::Error::from_raw_os_error(os::ECHILD)))
    }

    /// Returns how the child ended, if it has, and reaps it. Waits for `patience` at most for a fork server
    /// to do so.
    fn look_for_end(&mut self, patience: Duration) -> Result<Option<Ended>> {
        match &mut self.relay {
            Some(relay) => relay.look(self.process.pidfd(), patience),
            None if self.process.pidfd().is_dead()? => os::reap(self.process.pidfd()),
            None => Ok(None),
        }
    }

    /// As [`Relay::awaited`].
    fn awaited_report(&self) -> Option<(BorrowedFd<'_>, Duration)> {
        self.relay.as_ref().filter(|_| self.exit.is_none())?.awaited()
    }

    pub(crate) fn control(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    /// Its name, as set when it was started.
    #[must_use]
    pub fn name(&self) -> &str {
        self.process.name()
    }

    /// Its rank, where one was set when it was started.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.process.rank()
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its pidfd, which is readable once the child has ended.
    #[must_use]
    pub fn pidfd(&self) -> &PidFd {
        self.process.pidfd()
    }

    /// The shared view of this child: its identity, whether it is alive, and signals.
    #[must_use]
    pub fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// How far the child has come, as of the last [`Child::update`] or wait.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// What the child has reported about its failure so far. The report may arrive some time before the child
    /// ends.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.exit.as_ref().map_or(self.report.as_ref(), |exit| exit.report.as_ref())
    }

    /// How the child ended, once [`Child::update`] or a wait has seen it.
    #[must_use]
    pub fn exit(&self) -> Option<&Exit> {
        self.exit.as_ref()
    }

    /// Sends a signal. Does nothing if the child has ended.
    ///
    /// # Errors
    /// EPERM when the child has changed its user, EINVAL for an invalid signal number. ECHILD in a process
    /// that was forked from the one that started the child.
    pub fn send_signal(&self, signal: i32) -> Result<()> {
        self.check_is_mine()?;
        if self.exit.is_some() { Ok(()) } else { self.process.send_signal(signal) }
    }

    /// Sends SIGTERM, which asks the child to end.
    ///
    /// # Errors
    /// As [`Child::send_signal`].
    pub fn terminate(&self) -> Result<()> {
        self.send_signal(SIGTERM)
    }

    /// Sends SIGKILL, which ends the child.
    ///
    /// # Errors
    /// As [`Child::send_signal`].
    pub fn kill(&self) -> Result<()> {
        self.send_signal(SIGKILL)
    }

    /// Reads the child's messages and checks whether it has ended, without waiting. Returns true if anything
    /// is new.
    ///
    /// # Blocking
    /// Not while the child is alive. For a dead child of a fork server, until the server has reaped it, until
    /// two seconds after its death was first seen. After that [`Exit::ended`] is
    /// [`Ended::StatusUnavailable`].
    ///
    /// # Errors
    /// The kernel's error of poll(2), recvmsg(2) or waitid(2). ECHILD in a process that was forked from the
    /// one that started the child.
    pub fn update(&mut self) -> Result<bool> {
        self.update_within(REPORT_TIMEOUT)
    }

    /// As [`Child::update`], but waits for a fork server for at most `patience`.
    fn update_within(&mut self, patience: Duration) -> Result<bool> {
        if self.exit.is_some() {
            return Ok(false);
        }
        self.check_is_mine()?;
        // The order matters: when the parent sees the death, everything the child wrote before it is in the
        // socket.
        let now = os::monotonic_now();
        let ended = self.look_for_end(patience)?;
        let mut is_new = self.drain();
        if let Some(ended) = ended {
            let mut exit = Exit {
                ended,
                stage: self.stage,
                report: self.report.take(),
                alive_at: self.alive_at,
                garbled: self.garbled.take(),
            };
            exit.explain_abort(std::mem::take(&mut self.panics));
            self.exit = Some(exit);
            self.control = None;
            is_new = true;
        } else if self.awaited_report().is_none() {
            self.alive_at = now;
        }
        Ok(is_new)
    }

    /// Waits until the child has ended, and returns how. A second call returns the same answer at once.
    ///
    /// # Blocking
    /// In poll(2), until the child ends. A dead child of a fork server takes as long as with
    /// [`Child::update`].
    ///
    /// # Errors
    /// As [`Child::update`].
    pub fn wait(&mut self) -> Result<&Exit> {
        let exit = loop {
            if let Some(exit) = self.exit.take() {
                break exit;
            }
            wait_end(std::slice::from_mut(self), None)?;
        };
        Ok(self.exit.insert(exit))
    }

    /// As [`Child::wait`], for at most `timeout`. `None` means that the child still runs, or that its fork
    /// server has not reported yet how it ended.
    ///
    /// # Blocking
    /// In poll(2), until the child ends or `timeout` has passed. If a child of a fork server is dead by then,
    /// until the server has reported it, or 10 ms after the call began.
    ///
    /// # Errors
    /// As [`Child::update`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<&Exit>> {
        let deadline = Instant::now().checked_add(timeout);
        while self.exit.is_none() {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if !wait_end(std::slice::from_mut(self), left)? {
                break;
            }
        }
        Ok(self.exit.as_ref())
    }

    /// Reads all available frames. Closes the socket at the end of the stream and after an invalid frame. The
    /// pidfd stays.
    fn drain(&mut self) -> bool {
        let mut is_new = false;
        let mut chunk = [0; 8 << 10];
        while let Some(control) = &self.control {
            match socket::try_receive(control, &mut chunk, &mut Vec::new()) {
                Ok(None) => break,
                Ok(Some(0)) => {
                    let got_bytes = self.reader.pending_bytes();
                    if got_bytes > 0 {
                        let wanted_bytes = got_bytes + 1;
                        self.garbled = Some(ProtocolError::Ended { got_bytes, wanted_bytes });
                    }
                    self.control = None;
                }
                Ok(Some(n)) => {
                    self.reader.push(&chunk[..n]);
                    is_new |= self.read_frames();
                }
                // ECONNRESET: the child died before it had read the whole payload.
                Err(_) => self.control = None,
            }
        }
        is_new
    }

    fn read_frames(&mut self) -> bool {
        let mut is_new = false;
        loop {
            match self.reader.next_frame() {
                Ok(Some(frame)) => self.note(frame),
                Ok(None) => return is_new,
                Err(error) => {
                    self.garbled = Some(error);
                    self.control = None;
                    return true;
                }
            }
            is_new = true;
        }
    }

    fn note(&mut self, frame: Frame) {
        match frame {
            Frame::Entered => self.stage = self.stage.max(Stage::Entered),
            Frame::Taken => self.stage = self.stage.max(Stage::Taken),
            Frame::Finished => self.stage = self.stage.max(Stage::Finished),
            Frame::Panicked(report) => {
                if self.panics.len() < MAX_PANICS {
                    self.panics.push(report);
                }
            }
            Frame::Recovered => self.panics.clear(),
            Frame::Raised(report) => {
                self.stage = self.stage.max(Stage::Raised);
                self.report = Some(report);
            }
            Frame::Backtrace(text) => {
                if let Some(report) = self.report.as_mut().or(self.panics.last_mut()) {
                    report.backtrace = Some(text);
                }
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.exit.is_some() || self.check_is_mine().is_err() {
            return;
        }
        // `drop` cannot return errors. The kernel refuses neither the signal nor the wait to a parent that
        // holds the pidfd, unless the child has changed its user.
        let may_wait = match self.on_drop {
            OnDrop::Kill => self.process.kill().is_ok(),
            OnDrop::Wait => true,
        };
        match &self.relay {
            Some(relay) if may_wait && self.pidfd().wait_dead(None).is_ok() => relay.wait_collected(),
            None if may_wait => drop(os::wait_and_reap(self.pidfd())),
            _ => {}
        }
    }
}

/// Waits until one of the children sends a message or ends, for at most `timeout` (without limit if `None`),
/// and updates them all. Returns false when the time is up, or when all had ended before.
///
/// # Blocking
/// In poll(2), until a child sends a message or ends, or `timeout` has passed. If children of a fork server
/// are dead by then, until the server has reported them, or 10 ms after the call began.
///
/// # Errors
/// As [`Child::update`].
pub fn wait_any(children: &mut [Child], timeout: Option<Duration>) -> Result<bool> {
    wait(children, timeout, Duration::ZERO)
}

/// As [`wait_any`], but with a single child, messages in its first 10 ms do not wake the caller. They are
/// read when these are over, when the child ends, or at the next call after `timeout`. This avoids preempting
/// a short-lived child.
///
/// With several children every message wakes the caller. One child may fail because of another, and the
/// caller needs to know which children were alive when the first one failed.
///
/// # Blocking
/// As [`wait_any`], except for the messages above.
///
/// # Errors
/// As [`Child::update`].
pub fn wait_end(children: &mut [Child], timeout: Option<Duration>) -> Result<bool> {
    wait(children, timeout, first_steps(children))
}

/// How long after their start the messages of these children do not wake the caller.
fn first_steps(children: &[Child]) -> Duration {
    if children.len() == 1 { FIRST_STEPS } else { Duration::ZERO }
}

fn wait(children: &mut [Child], timeout: Option<Duration>, first_steps: Duration) -> Result<bool> {
    let begin = Instant::now();
    let deadline = timeout.and_then(|t| begin.checked_add(t));
    let mut is_new = false;
    loop {
        // None of these waits for a fork server, so that one that is stopped delays nobody beyond the
        // deadline, and the time that it has for each child passes for all of them at once.
        for child in &mut *children {
            is_new |= child.update_within(Duration::ZERO)?;
        }
        let report_left = children.iter().filter_map(Child::awaited_report).map(|(_, left)| left).min();
        let step_left = report_left.map_or(Duration::ZERO, |_| REPORT_STEP.saturating_sub(begin.elapsed()));
        let (waited, quiet_for) = waited(children, os::monotonic_now(), first_steps);
        if waited.is_empty() || (is_new && step_left.is_zero()) {
            return Ok(is_new);
        }
        let deadline = if is_new { Some(begin) } else { deadline };
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()).max(step_left));
        let wait = left.into_iter().chain(quiet_for).chain(report_left).min();
        let is_ready = socket::wait_ready(&waited, wait)?.contains(&true);
        if !is_ready && left.is_some() && wait == left {
            return Ok(is_new);
        }
    }
}

/// Returns the descriptors to wait for, and for how long the wait is restricted. It waits only for the end of
/// children that are younger than `first_steps`.
fn waited(
    children: &[Child],
    now: Duration,
    first_steps: Duration,
) -> (Vec<(BorrowedFd<'_>, Interest)>, Option<Duration>) {
    let quiet_for =
        |child: &Child| (child.started_at + first_steps).checked_sub(now).filter(|quiet| !quiet.is_zero());
    let living = || children.iter().filter(|child| child.exit.is_none());
    let waited = living().flat_map(|child| watched(child, quiet_for(child).is_some())).collect();
    (waited, living().filter_map(quiet_for).min())
}

/// The descriptors that show that a child has ended and, unless it is quiet, that it has sent a message. For
/// a dead one, the descriptor on which its fork server reports how it ended.
fn watched(child: &Child, is_quiet: bool) -> impl Iterator<Item = (BorrowedFd<'_>, Interest)> {
    let report = child.awaited_report().map(|(report, _)| report);
    // A child that has finished sends nothing more. Its socket closes just before it ends, which is not news.
    let control = child.control().filter(|_| report.is_none() && !is_quiet && child.stage < Stage::Finished);
    std::iter::once(report.unwrap_or(child.pidfd().as_fd())).chain(control).map(|fd| (fd, Interest::Readable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::Identity;

    /// A child without a process of its own: its pidfd is that of this process, so the caller must mark it as
    /// ended before dropping it.
    fn child() -> (Child, OwnedFd) {
        let (ours, theirs) = socket::pair().unwrap();
        let pidfd = PidFd::of_self().unwrap();
        let identity =
            Identity { name: String::from("test"), rank: None, is_daemon: false, is_helper: false };
        let process = ChildProcess::new(identity, pidfd);
        (Child::new(process, ours).with_on_drop(OnDrop::Wait), theirs)
    }

    fn put_away(mut child: Child) {
        let ended = Ended::Lost;
        let stage = child.stage;
        child.exit = Some(Exit {
            ended,
            stage,
            report: None,
            alive_at: Duration::ZERO,
            garbled: child.garbled.take(),
        });
    }

    #[test]
    fn what_a_child_says_moves_it_forward_and_never_back() {
        let (mut child, theirs) = child();
        let panic = Report::new(crate::ReportKind::Panic, "boom");
        let frames = [Frame::Taken, Frame::Entered, Frame::Raised(panic), Frame::Backtrace("stack".into())];
        for (frame, stage) in frames.iter().zip([Stage::Taken, Stage::Taken, Stage::Raised, Stage::Raised]) {
            socket::send_all(&theirs, &frame.encode().unwrap(), &[]).unwrap();
            assert!(child.update().unwrap());
            assert_eq!(child.stage(), stage);
        }
        assert_eq!(child.report().unwrap().backtrace.as_deref(), Some("stack"));
        assert!(!child.update().unwrap(), "nothing new");
        put_away(child);
    }

    #[test]
    fn in_its_first_steps_only_the_end_of_a_child_is_waited_for_and_nothing_is_lost() {
        let (mut child, theirs) = child();
        let one = std::slice::from_mut(&mut child);
        let (begin, second) = (one[0].started_at, Duration::from_secs(1));
        let waited_at = |one: &[Child], now| {
            let (waited, quiet_for) = waited(one, now, 2 * second);
            (waited.len(), quiet_for)
        };
        assert_eq!(waited_at(one, begin), (1, Some(2 * second)));
        assert_eq!(waited_at(one, begin + second), (1, Some(second)));
        assert_eq!(waited_at(one, begin + 2 * second), (2, None));
        assert!(!wait(one, Some(Duration::ZERO), second).unwrap(), "the time-out counts");
        std::thread::scope(|scope| {
            let frame = Frame::Entered.encode().unwrap();
            scope.spawn(move || socket::send_all(&theirs, &frame, &[]).unwrap());
            assert!(wait_end(one, None).unwrap());
        });
        assert_eq!(child.stage(), Stage::Entered);
        put_away(child);
    }

    #[test]
    fn of_several_children_each_wakes_from_the_beginning() {
        let (children, _ends): (Vec<Child>, Vec<OwnedFd>) = (0..2).map(|_| child()).unzip();
        assert_eq!(first_steps(&children[..1]), FIRST_STEPS);
        assert_eq!(waited(&children, children[1].started_at, first_steps(&children)).0.len(), 4);
        children.into_iter().for_each(put_away);
    }

    #[test]
    fn what_cannot_be_read_closes_the_socket_and_nothing_else() {
        for bytes in [&b"\xff\xff\xff\xff"[..], b"\x01\0\0\0\x63", b"\x02\0\0\0\0\0"] {
            let (mut child, theirs) = child();
            socket::send_all(&theirs, bytes, &[]).unwrap();
            assert!(child.update().unwrap());
            assert!(child.garbled.is_some() && child.control.is_none());
            assert!(child.wait_timeout(Duration::ZERO).unwrap().is_none(), "its process lives");
            put_away(child);
        }
    }

    #[test]
    fn half_a_frame_before_the_end_is_told() {
        let (mut child, theirs) = child();
        socket::send_all(&theirs, b"\x09\0\0\0\x01", &[]).unwrap();
        drop(theirs);
        child.update().unwrap();
        assert!(matches!(child.garbled, Some(ProtocolError::Ended { got_bytes: 5, .. })));
        put_away(child);
    }
}
