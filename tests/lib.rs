//! End-to-end scenarios, each named after what it shows.
