//! Processes that die.
