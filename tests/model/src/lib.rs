//! The protocols as models; they are in `tests/model`. They are a package of their own because they need
//! nothing of the library, and are compiled for speed: they visit millions of states.
