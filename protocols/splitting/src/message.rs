//! What both sides say in the steps of a round of split learning. Each message can have a payload, raw bytes after it.
//!
//! A client enters with [`FromClient::Enter`] and is told with [`FromServer::Go`] at which step it begins. In each step it
//! goes through the [exchanges](Exchange) of the method: it sends, and is answered. Messages carry their step, so that the
//! order in which clients are heard never matters.

use serde::{Deserialize, Serialize};

/// What is exchanged in a step, in this order; which of them a step has, the description says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Exchange {
    /// The client sends smashed data (and labels, where they are sent). It is answered with the cut gradient, or, where
    /// the head is its own, with the input of the head.
    Smashed,
    /// The client sends the gradient at the input of its head, and is answered with the cut gradient.
    Head,
    /// The client sends a sketch of its front's gradient. It is answered with whether it leads.
    Sketch,
    /// Those who lead send their front's gradient. All are answered with the leader gradient, or with nothing as long as
    /// there is none.
    Gradient,
    /// The client sends the smashed data of the same batch for parameters a little aside, and is answered with the cut
    /// gradient of that; the back moves by what came before.
    Probe,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromClient {
    /// It is ready for the steps of a round.
    Enter {
        /// The round.
        round: u32,
        /// How many examples it trains on.
        examples: u64,
    },
    /// Its part of an exchange; the payload holds the values.
    Send {
        /// The round.
        round: u32,
        /// The step, counted from 1.
        step: u32,
        /// The exchange.
        exchange: Exchange,
        /// How many examples the payload is of.
        examples: u32,
    },
}

/// What the coordinator says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromServer {
    /// The client is to begin with this step. The payload, where clients take turns, is the front that the one before has
    /// left.
    Go {
        /// The round.
        round: u32,
        /// The step.
        step: u32,
        /// Of the steps from the first on, how many examples the client is to contribute to each; `None` where that is its
        /// own affair.
        sizes: Option<Vec<u32>>,
    },
    /// The answer to an exchange.
    Answer {
        /// The round.
        round: u32,
        /// The step.
        step: u32,
        /// The exchange.
        exchange: Exchange,
    },
    /// The step went on without the client.
    Skipped {
        /// The round.
        round: u32,
        /// The step that it is to go on with.
        step: u32,
    },
}
