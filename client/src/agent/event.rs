//! What an agent's duty hears and what it answers.
//!
//! Pulls and works have numbers, so that what one that was stopped came to is not taken for what another did.

use bytes::Bytes;
use selvedge_protocols::{
    Memory, Rejection,
    message::{Task, ToCoordinator},
    wire::{Partial, WireError},
};

use super::{
    Moment,
    assignment::Assignment,
    outcome::{Outcome, PackedUpdate},
};
use crate::Front;

/// What happened.
pub(super) enum Event {
    /// There is a connection, for the first time or again.
    Connected {
        /// Whether the coordinator has begun anew since the last.
        is_anew: bool,
    },
    /// The coordinator asks for something.
    Asked {
        assignment: Assignment,
        /// Whether the client keeps a front of its own, and needs none to be broadcast.
        front_is_kept: bool,
    },
    /// A pull has ended: with all of the broadcast, or before; what has come so far is in `partial`.
    Pulled {
        number: u64,
        partial: Partial,
        result: Result<Bytes, WireError>,
    },
    /// What was worked on is done, steps included, or cannot be; why not is for a person.
    Worked {
        number: u64,
        result: Result<Outcome, String>,
    },
    /// The steps that were being made have lost their connection: they can go on with the next one.
    Broken {
        number: u64,
        front: Box<Front>,
        error: WireError,
    },
    /// What was worked on has ended without a result.
    Panicked { number: u64 },
    /// The update of a round is the last that counts. After the rounds that are `resumable` the coordinator may begin anew.
    Accepted { round: u32, resumable: Vec<u32> },
    /// An answer was not taken in.
    Rejected { round: u32, reason: Rejection },
    /// The run is over.
    Finished,
}

/// What is to be done.
pub(super) enum Action {
    /// Pull the rest of a broadcast, and report [`Event::Pulled`].
    Pull { number: u64, partial: Partial },
    /// Stop pulling. What that came to need not be reported.
    StopPulling,
    /// Do what was asked with what was broadcast and what is kept, and report [`Event::Worked`].
    Work {
        number: u64,
        assignment: Assignment,
        broadcast: Bytes,
    },
    /// Make the steps of a round with a front of what was broadcast or is kept, and report [`Event::Worked`] or
    /// [`Event::Broken`].
    BeginSteps {
        number: u64,
        assignment: Assignment,
        broadcast: Bytes,
    },
    /// Go on with the steps of a round, and report as for those that begin.
    ResumeSteps { number: u64, front: Box<Front> },
    /// Stop the steps. What they came to need not be reported.
    StopSteps,
    /// Keep what training left, until it is known whether its update counts.
    Propose { round: u32, kept: Memory },
    /// What was proposed in this round is what is kept from now on, if that is the round; of what was kept before, only what a
    /// coordinator needs that begins anew.
    Accept { round: u32, resumable: Vec<u32> },
    /// Hold an update for the coordinator to fetch. There is none.
    Hold {
        round: u32,
        task: Task,
        update: PackedUpdate,
    },
    /// Offer the coordinator the update that is held.
    Offer,
    /// Hold the update no longer.
    LetGo,
    /// Say this to the coordinator.
    Say(ToCoordinator),
    /// Tell whoever watches.
    Tell(Moment),
    /// Give the connection up: it has failed.
    HangUp(WireError),
}
