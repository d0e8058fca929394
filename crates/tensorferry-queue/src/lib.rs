//! A bounded queue between processes that carries handles instead of bytes.
