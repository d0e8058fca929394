//! What both sides know and nobody else.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver as _, RingResolver};

/// The shortest secret, in bytes.
const MIN_SECRET_LEN_BYTES: usize = 16;

/// A secret that both sides of a connection have: Python's `authkey`.
///
/// Whoever has it can connect, and be connected to. It is not sent. Make it of random bytes (`openssl rand
/// -out key 32`), because a word that can be guessed is a key that can be guessed.
#[derive(Clone)]
pub struct Key([u8; Self::LEN_BYTES]);

/// Why there is no key.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The secret is shorter than 16 bytes.
    #[error("the secret has {0} bytes, and has to have {MIN_SECRET_LEN_BYTES} at least, random ones")]
    TooShort(usize),
    /// The file cannot be read.
    #[error("the key cannot be read from `{}`: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// This build has no such hash.
    #[error("SHA-256 is not there")]
    NoHash,
}

tensorferry_storage::debug_as_display!(KeyError);

impl Key {
    pub(crate) const LEN_BYTES: usize = 32;

    /// The key that is made of a secret of at least 16 bytes: its hash (SHA-256, FIPS 180-4).
    ///
    /// # Errors
    /// [`KeyError::TooShort`].
    pub fn new(secret: impl AsRef<[u8]>) -> Result<Self, KeyError> {
        let secret = secret.as_ref();
        if secret.len() < MIN_SECRET_LEN_BYTES {
            return Err(KeyError::TooShort(secret.len()));
        }
        let mut hash = RingResolver.resolve_hash(&HashChoice::SHA256).ok_or(KeyError::NoHash)?;
        hash.input(secret);
        let mut key = [0; Self::LEN_BYTES];
        hash.result(&mut key);
        Ok(Self(key))
    }

    /// The key that is made of the contents of a file, all bytes of it.
    ///
    /// # Errors
    /// [`KeyError::File`] when it cannot be read, [`KeyError::TooShort`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self, KeyError> {
        let path = path.as_ref();
        let secret = std::fs::read(path).map_err(|error| KeyError::File { path: path.to_owned(), error })?;
        Self::new(secret)
    }

    pub(crate) fn bytes(&self) -> &[u8; Self::LEN_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_hash_of_its_secret_and_is_not_shown() {
        let key = Key::new("a secret of 24 bytes....").unwrap();
        // As another implementation of SHA-256 has it.
        let start = [0x86, 0x5C, 0x05, 0x7C];
        assert_eq!(key.bytes()[..4], start);
        assert_eq!(format!("{key:?}"), "Key { .. }");
        assert!(matches!(Key::new("word").unwrap_err(), KeyError::TooShort(4)));
        let error = Key::read("/nowhere").unwrap_err();
        assert!(error.to_string().starts_with("the key cannot be read from `/nowhere`: "), "{error}");
    }
}
