//! The keys of one connection, and how often they were used.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use snow::StatelessTransportState;

use crate::error::ConnectionError;

/// What encryption adds to a frame.
pub(crate) const TAG_LEN_BYTES: usize = 16;

/// How many frames one key is used for, 64 GiB: far from where AES-GCM gets weaker (RFC 8446, section 5.5,
/// for frames of a quarter of that length: 24 million).
const FRAMES_PER_KEY: u64 = 1 << 20;

/// Encrypts the frames of one direction.
pub(crate) struct Sealing(Direction);

/// Decrypts those of the other.
pub(crate) struct Opening(Direction);

struct Direction {
    keys: Arc<RwLock<StatelessTransportState>>,
    /// The number of the next frame.
    nonce: u64,
    frames_per_key: u64,
}

/// Both directions of a connection.
pub(crate) fn both(keys: StatelessTransportState) -> (Sealing, Opening) {
    with_frames_per_key(keys, FRAMES_PER_KEY)
}

fn with_frames_per_key(keys: StatelessTransportState, frames_per_key: u64) -> (Sealing, Opening) {
    let keys = Arc::new(RwLock::new(keys));
    let direction = |keys| Direction { keys, nonce: 0, frames_per_key };
    (Sealing(direction(Arc::clone(&keys))), Opening(direction(keys)))
}

impl Direction {
    /// The number of the next frame, for which `rekey` has made a new key where it is time.
    fn next(&mut self, rekey: impl FnOnce(&mut StatelessTransportState)) -> u64 {
        let nonce = self.nonce;
        if nonce > 0 && nonce.is_multiple_of(self.frames_per_key) {
            rekey(&mut self.keys.write().unwrap_or_else(PoisonError::into_inner));
        }
        // Longer than any connection lasts; snow refuses the last number.
        self.nonce = nonce.saturating_add(1);
        nonce
    }
}

impl Sealing {
    /// Encrypts `plain` into `sealed`. Returns the length, which is `TAG_LEN_BYTES` more.
    pub(crate) fn seal(&mut self, plain: &[u8], sealed: &mut [u8]) -> Result<usize, ConnectionError> {
        let nonce = self.0.next(StatelessTransportState::rekey_outgoing);
        let keys = self.0.keys.read().unwrap_or_else(PoisonError::into_inner);
        let len = keys.write_message(nonce, plain, sealed);
        len.map_err(|_| ConnectionError::Nonsense("a frame that cannot be sealed"))
    }
}

impl Opening {
    /// Decrypts `sealed` into `plain`, which is `TAG_LEN_BYTES` shorter.
    pub(crate) fn open(&mut self, sealed: &[u8], plain: &mut [u8]) -> Result<(), ConnectionError> {
        let nonce = self.0.next(StatelessTransportState::rekey_incoming);
        let keys = self.0.keys.read().unwrap_or_else(PoisonError::into_inner);
        let opened = keys.read_message(nonce, sealed, plain);
        opened.map(drop).map_err(|_| ConnectionError::Forged)
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing").field("nonce", &self.0.nonce).finish_non_exhaustive()
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("nonce", &self.0.nonce).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use snow::Builder;

    use super::*;

    /// The two ends of a connection, of which each has so many frames for a key.
    fn ends(frames_per_key: [u64; 2]) -> [(Sealing, Opening); 2] {
        let builder = || Builder::new("Noise_NN_25519_AESGCM_SHA256".parse().unwrap());
        let (mut one, mut two) = (builder().build_initiator().unwrap(), builder().build_responder().unwrap());
        let mut message = [0; 100];
        let len = one.write_message(&[], &mut message).unwrap();
        two.read_message(&message[..len], &mut []).unwrap();
        let len = two.write_message(&[], &mut message).unwrap();
        one.read_message(&message[..len], &mut []).unwrap();
        let [of_one, of_two] = frames_per_key;
        [(one, of_one), (two, of_two)].map(|(state, frames_per_key)| {
            with_frames_per_key(state.into_stateless_transport_mode().unwrap(), frames_per_key)
        })
    }

    /// How many frames arrive, of so many in each direction.
    fn n_arrived(
        n: u8,
        [(mut seal, mut open_back), (mut seal_back, mut open)]: [(Sealing, Opening); 2],
    ) -> u8 {
        let arrives = |seal: &mut Sealing, open: &mut Opening, nth| {
            let (mut sealed, mut plain) = ([0; 1 + TAG_LEN_BYTES], [0]);
            seal.seal(&[nth], &mut sealed).unwrap();
            open.open(&sealed, &mut plain).is_ok_and(|()| plain == [nth])
        };
        (0..n)
            .take_while(|nth| {
                // Three there for one back, so that the directions change their keys by themselves.
                (0..3).all(|_| arrives(&mut seal, &mut open, *nth))
                    && arrives(&mut seal_back, &mut open_back, *nth)
            })
            .count()
            .try_into()
            .unwrap()
    }

    #[test]
    fn both_sides_change_the_key_of_a_direction_at_the_same_frame() {
        assert_eq!(n_arrived(20, ends([4, 4])), 20);
        // A side that does not do it understands nothing from there on.
        assert_eq!(n_arrived(20, ends([6, u64::MAX])), 2);
    }
}
