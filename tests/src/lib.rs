//! The tests of tensorferry.
