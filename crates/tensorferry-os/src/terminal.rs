//! The size of a terminal.

use std::os::fd::AsFd;

/// How many rows and columns the terminal behind a descriptor has (`TIOCGWINSZ`, ioctl_tty(2)); `None` where
/// it is no terminal, or does not know.
#[must_use]
pub fn size(fd: impl AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(fd).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then(|| (size.ws_row.into(), size.ws_col.into()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pipe_has_no_size() {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert_eq!(super::size(read), None);
    }
}
