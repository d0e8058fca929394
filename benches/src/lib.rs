//! The benches of tensorferry.
