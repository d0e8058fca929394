//! The protocols as models; they are in `tests/model`. They are a package of their own so that they, and
//! nothing else, are compiled for speed: they visit millions of states.
