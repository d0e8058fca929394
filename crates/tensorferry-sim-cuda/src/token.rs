//! Tokens: the 64 bytes that name an allocation or an event to another process.

use crate::identity::Identity;
use crate::memory_file::MemoryFile;
use crate::{Answer, Status};

/// The size of `CUipcMemHandle`, `CUipcEventHandle` and `CUmemPoolPtrExportData`.
pub(crate) const TOKEN_BYTES: usize = 64;

const MAGIC: u32 = 0x5143_0001;

/// The kind of object that a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory = 1,
    Event = 2,
    PoolPointer = 3,
}

/// A file of another process, and a slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) owner: Identity,
    pub(crate) fd: i32,
    pub(crate) inode: u64,
    pub(crate) slot: u32,
    /// Which allocation in the slot: a later one has another number.
    pub(crate) generation: u64,
}

impl Token {
    pub(crate) fn new(owner: Identity, file: &MemoryFile, slot: u32, generation: u64) -> Self {
        Self { owner, fd: file.number(), inode: file.inode(), slot, generation }
    }

    pub(crate) fn to_bytes(self, kind: Kind) -> [u8; TOKEN_BYTES] {
        let mut bytes = [0; TOKEN_BYTES];
        let fields: [&[u8]; 9] = [
            &MAGIC.to_le_bytes(),
            &(kind as u32).to_le_bytes(),
            &self.owner.pid.to_le_bytes(),
            &self.owner.instance.to_le_bytes(),
            &self.owner.start_ticks.to_le_bytes(),
            &self.inode.to_le_bytes(),
            &self.generation.to_le_bytes(),
            &self.fd.to_le_bytes(),
            &self.slot.to_le_bytes(),
        ];
        let mut at = 0;
        for field in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }
        bytes
    }

    /// # Errors
    /// INVALID_VALUE if the bytes are no token of this kind.
    pub(crate) fn from_bytes(bytes: &[u8; TOKEN_BYTES], kind: Kind) -> Answer<Self> {
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if half(0) != MAGIC || half(4) != kind as u32 || bytes[48..].iter().any(|&byte| byte != 0) {
            return Err(Status::INVALID_VALUE);
        }
        let owner = Identity { pid: half(8), instance: half(12), start_ticks: word(16) };
        let fd = half(40).cast_signed();
        Ok(Self { owner, fd, inode: word(24), slot: half(44), generation: word(32) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_its_own_kind_only() {
        let owner = Identity { pid: 1, start_ticks: 2, instance: 3 };
        let token = Token { owner, fd: 4, inode: 5, slot: 6, generation: 7 };
        let bytes = token.to_bytes(Kind::Memory);
        assert_eq!(Token::from_bytes(&bytes, Kind::Memory), Ok(token));
        assert_eq!(Token::from_bytes(&bytes, Kind::Event), Err(Status::INVALID_VALUE));
        assert_eq!(Token::from_bytes(&[0; TOKEN_BYTES], Kind::Memory), Err(Status::INVALID_VALUE));
    }
}
