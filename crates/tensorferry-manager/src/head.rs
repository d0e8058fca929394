//! What comes before a request in its message.

/// The length of a head in bytes: `link:64 | kind:8`.
pub(crate) const HEAD_LEN_BYTES: usize = 9;

/// What the message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The end of a channel follows, through which the link is answered.
    Open,
    /// A request follows, which is answered.
    Call,
    /// A request follows, which nobody waits for.
    Tell,
    /// The link is not used any more.
    Close,
}

/// Of which link a message is, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) link: u64,
    pub(crate) kind: Kind,
}

impl Head {
    pub(crate) fn to_bytes(self) -> [u8; HEAD_LEN_BYTES] {
        let kind = match self.kind {
            Kind::Open => 0,
            Kind::Call => 1,
            Kind::Tell => 2,
            Kind::Close => 3,
        };
        let [a, b, c, d, e, f, g, h] = self.link.to_le_bytes();
        [a, b, c, d, e, f, g, h, kind]
    }

    /// `None` for a payload that is no message to an object.
    pub(crate) fn read(payload: &[u8]) -> Option<Self> {
        let (link, rest) = payload.split_first_chunk()?;
        let kind = match rest.first()? {
            0 => Kind::Open,
            1 => Kind::Call,
            2 => Kind::Tell,
            3 => Kind::Close,
            _ => return None,
        };
        Some(Self { link: u64::from_le_bytes(*link), kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_their_bytes_and_nothing_else_is_one() {
        for kind in [Kind::Open, Kind::Call, Kind::Tell, Kind::Close] {
            let head = Head { link: 0x0123_4567_89ab_cdef, kind };
            assert_eq!(Head::read(&head.to_bytes()), Some(head));
        }
        assert_eq!([&[][..], &[0; 8], &[0, 0, 0, 0, 0, 0, 0, 0, 4]].map(Head::read), [None; 3]);
    }
}
