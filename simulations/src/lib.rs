//! Whole federations in one process.
