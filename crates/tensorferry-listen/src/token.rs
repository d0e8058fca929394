//! A text that stands for a value that is offered.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tensorferry_domain::Member;

/// What every token begins with, and the version of what follows.
const PREFIX: &str = "tf1";

/// Stands for a value that a process of this machine has [offered](crate::offer()), or for a domain to which
/// one has [invited](crate::invite()): some sixty letters, digits and hyphens, to be passed on by whatever
/// the programs talk through. serde writes and reads it as a string.
///
/// It is no secret and needs not be one: a process of another user can do nothing with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token {
    pub(crate) domain_id: u64,
    /// Who offers it.
    pub(crate) member: Member,
    /// The number of the parcel.
    pub(crate) parcel: u64,
    /// As of a queue: [`ANY_TYPE`](tensorferry_reduce::ANY_TYPE), or of the value's type.
    pub(crate) type_hash: u64,
}

impl Token {
    /// The parcel of a token by which nothing is taken. No parcel has this number.
    pub(crate) const NO_VALUE: u64 = 0;

    /// Where its process lets others into its domain. There is one such name for each user of a place in a
    /// domain.
    pub(crate) fn address(&self) -> String {
        let Member { slot, epoch } = self.member;
        format!("@tensorferry-offers-{:x}-{slot:x}-{epoch:x}", self.domain_id)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain_id, member: Member { slot, epoch }, parcel, type_hash } = self;
        write!(f, "{PREFIX}-{domain_id:x}-{slot:x}-{epoch:x}-{parcel:x}-{type_hash:x}")
    }
}

/// The text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no token of tensorferry, or one of another version: a token begins with {PREFIX:?} and has six parts"
)]
pub struct ParseTokenError;

impl FromStr for Token {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let mut parts = text.split('-');
        let [prefix, domain_id, slot, epoch, parcel, type_hash] =
            std::array::from_fn(|_| parts.next().unwrap_or_default());
        if prefix != PREFIX || parts.next().is_some() {
            return Err(ParseTokenError);
        }
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| ParseTokenError);
        let token = Self {
            domain_id: number(domain_id)?,
            member: Member {
                slot: number(slot)?.try_into().map_err(|_| ParseTokenError)?,
                epoch: number(epoch)?.try_into().map_err(|_| ParseTokenError)?,
            },
            parcel: number(parcel)?,
            type_hash: number(type_hash)?,
        };
        // Numbers can be written in several ways, tokens in one.
        if token.to_string() == text { Ok(token) } else { Err(ParseTokenError) }
    }
}

impl TryFrom<String> for Token {
    type Error = ParseTokenError;

    fn try_from(text: String) -> Result<Self, ParseTokenError> {
        text.parse()
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        token.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_token_is_read_as_it_was_written(
            domain_id: u64, slot: u8, epoch: u32, parcel: u64, type_hash: u64,
        ) {
            let token = Token { domain_id, member: Member { slot, epoch }, parcel, type_hash };
            let text = token.to_string();
            prop_assert_eq!(text.parse(), Ok(token));
            prop_assert!(text.len() <= 70 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
            // The kernel's limit of a name (unix(7)).
            prop_assert!(token.address().len() <= 108);
        }

        #[test]
        fn another_text_is_refused(text: String, insert in 0..40_usize) {
            prop_assert_eq!(text.parse::<Token>(), Err(ParseTokenError));
            let mut token = "tf1-123456789abcdef-3-1-fedcba987654321-1".to_owned();
            prop_assert!(token.parse::<Token>().is_ok());
            token.insert(insert, '+');
            prop_assert_eq!(token.parse::<Token>(), Err(ParseTokenError));
        }
    }

    #[test]
    fn a_token_is_written_in_one_way() {
        for text in [
            "",
            "tf1",
            "tf2-1-1-1-1-1",
            "tf1-01-1-1-1-1",
            "tf1-A-1-1-1-1",
            "tf1-1-1-1-1-1-1",
            "tf1-1-100-1-1-1",
        ] {
            assert_eq!(text.parse::<Token>(), Err(ParseTokenError), "{text}");
        }
    }
}
