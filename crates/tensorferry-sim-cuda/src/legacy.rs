//! Legacy IPC: `cuIpcGetMemHandle` and its counterparts.

use std::sync::Arc;

use crate::address_space::Kind;
use crate::arena::Import;
use crate::driver::Driver;
use crate::token::{self, TOKEN_BYTES, Token};
use crate::{Answer, Status};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag and a mandatory one.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

impl Driver {
    fn check_ipc(&self) -> Answer {
        if self.settings.has_ipc && self.settings.has_legacy { Ok(()) } else { Err(Status::NOT_SUPPORTED) }
    }

    /// `cuIpcGetMemHandle`: an address inside an allocation names the whole allocation.
    pub(crate) fn ipc_get_mem_handle(&self, address: u64) -> Answer<[u8; TOKEN_BYTES]> {
        self.current()?;
        self.check_ipc()?;
        match &self.space().around(address).ok_or(Status::INVALID_VALUE)?.kind {
            Kind::Malloc { arena, slot } => {
                Ok(arena.token(self.identity, *slot)?.to_bytes(token::Kind::Memory))
            }
            // Memory of pools, mappings, and imported memory.
            _ => Err(Status::INVALID_VALUE),
        }
    }

    /// `cuIpcOpenMemHandle`. A second open has the same address and is counted.
    pub(crate) fn ipc_open_mem_handle(&self, handle: &[u8; TOKEN_BYTES], flags: u32) -> Answer<u64> {
        if flags != LAZY_ENABLE_PEER_ACCESS {
            return Err(Status::INVALID_VALUE);
        }
        self.check_ipc()?;
        self.current()?;
        let token = Token::from_bytes(handle, token::Kind::Memory)?;
        if token.owner == self.identity {
            return Err(Status::INVALID_CONTEXT);
        }
        for region in self.space().all_mut() {
            if let Kind::Ipc { import, n_opened } = &mut region.kind
                && import.token == token
                && !import.is_freed()
            {
                *n_opened += 1;
                return Ok(region.base);
            }
        }
        let import = Import::open(token, self.identity)?;
        if import.world() != self.settings.world {
            return Err(Status::INVALID_VALUE);
        }
        let device = self.ordinal_of(import.device())?;
        let (base, len_bytes, memory) = (import.address, import.len_bytes, Arc::clone(&import.payload));
        self.space().add(
            base,
            len_bytes,
            device,
            Kind::Ipc { import: Arc::new(import), n_opened: 1 },
            memory,
        );
        Ok(base)
    }

    /// `cuIpcCloseMemHandle`.
    pub(crate) fn ipc_close_mem_handle(&self, address: u64) -> Answer {
        self.ctx_synchronize()?;
        let mut space = self.space();
        let region = space.at_mut(address).ok_or(Status::INVALID_VALUE)?;
        let Kind::Ipc { n_opened, .. } = &mut region.kind else { return Err(Status::INVALID_VALUE) };
        *n_opened -= 1;
        if *n_opened == 0 {
            space.remove(address);
        }
        Ok(())
    }
}
