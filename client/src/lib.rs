//! Trains on a device: the agent, its kept state, the QUIC client.
