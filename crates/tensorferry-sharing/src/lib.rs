//! Strategies by which another process gets at a domain's memory.
