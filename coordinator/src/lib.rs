//! Runs rounds: the round engine, evaluation, records, the QUIC server.
