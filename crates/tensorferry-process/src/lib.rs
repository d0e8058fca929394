//! Re-execute this binary as a child, watch it by pidfd, and receive a structured exit report.
