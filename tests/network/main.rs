//! Federations over real QUIC on loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // What cannot go on must fail.

mod a_model_written_with_candle_is_known_by_its_name;
mod buffered_rounds_complete;
mod clients_go_back_with_a_coordinator_that_begins_anew;
mod federation;
mod hostile_peers_are_rejected_and_counted;
mod interruptions_are_said_and_leave_results;
mod killed_and_taken_up_again;
mod lost_connections_cost_no_more_than_a_round;
mod mistakes_are_named;
mod models_that_are_cut;
mod process;
mod processes_make_the_same_model_as_a_simulation;
mod relay;
mod the_final_model_can_be_kept;
mod the_network_makes_the_same_model_as_a_simulation;
mod who_is_turned_away;
