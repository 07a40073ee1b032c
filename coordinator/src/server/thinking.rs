//! The engine beside the network: while it takes something in that takes time (updates are folded, the model moves, backs run),
//! it is on a thread of its own, and whoever serves the network goes on.

use std::{collections::VecDeque, future::pending, panic::resume_unwind, time::Duration};

use selvedge_models::STEP;
use selvedge_protocols::Description;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::Instant,
};

use super::{HEARD, ServerError};
use crate::{Action, Engine, Event};

/// Floating-point operations that take about as long as it takes to wake a thread: where hearing takes fewer, the engine is not
/// lent.
const LONG: f64 = 1e6;

/// Floating-point operations in the time in which a value is folded: that goes at the speed of memory.
const OF_FOLDING: f64 = 8.0;

/// Whether what the engine hears in a run can take longer than lending it: a model is folded, or the layers behind the first cut
/// take a step on a batch.
fn takes_time(description: &Description) -> bool {
    let Ok(model) = description.model.summary() else {
        return true;
    };
    let front = description
        .split
        .as_ref()
        .and_then(|split| split.fronts().first().copied());
    let back = model
        .layers
        .iter()
        .skip(front.map_or(model.layers.len(), |front| front as usize));
    let forward: u64 = back.map(|layer| layer.operations).sum();
    let step = STEP * forward as f64 * description.training.batch_size as f64;
    step.max(OF_FOLDING * model.parameters as f64) >= LONG
}

/// The engine, and what has happened that it has not heard yet, each with its time: what came in time is not late because
/// the engine was busy.
pub(super) struct Thinking {
    began: Instant,
    events: VecDeque<(Duration, Event)>,
    at_rest: Option<Engine>,
    busy: Option<JoinHandle<(Engine, Vec<Action>)>>,
    round: u32,
    /// Whether what it hears can take longer than lending it.
    takes_time: bool,
}

impl Thinking {
    pub(super) fn new(engine: Engine, description: &Description) -> Self {
        Self {
            takes_time: takes_time(description),
            began: Instant::now(),
            events: VecDeque::new(),
            round: engine.round(),
            at_rest: Some(engine),
            busy: None,
        }
    }

    /// Something happened, now.
    pub(super) fn hear(&mut self, event: Event) {
        self.events.push_back((self.began.elapsed(), event));
    }

    /// Whether so much waits that clients should wait too.
    pub(super) fn is_full(&self) -> bool {
        self.events.len() >= HEARD
    }

    /// The engine, unless it is busy.
    pub(super) fn at_rest(&self) -> Option<&Engine> {
        self.at_rest.as_ref()
    }

    /// The last round that was begun, as far as is known.
    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// When time is over for something, unless the engine is busy or has something to hear before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let engine = self.at_rest().filter(|_| self.events.is_empty())?;
        Some(self.began + engine.next_deadline()?)
    }

    /// Lets the engine hear what has happened next, and gives what is to be done; waits as long as there is nothing. When this
    /// is dropped before its end, the next call goes on with it.
    ///
    /// # Errors
    /// When the runtime is going down.
    pub(super) async fn next(&mut self) -> Result<Vec<Action>, ServerError> {
        if let Some(engine) = self.at_rest.as_mut().filter(|_| !self.takes_time)
            && let Some((now, event)) = self.events.pop_front()
        {
            let actions = engine.handle(now, event);
            self.round = engine.round();
            return Ok(actions);
        }
        if self.at_rest.is_some()
            && let Some((now, event)) = self.events.pop_front()
            && let Some(mut engine) = self.at_rest.take()
        {
            self.busy = Some(spawn_blocking(move || {
                let actions = engine.handle(now, event);
                (engine, actions)
            }));
        }
        let Some(busy) = &mut self.busy else {
            return pending().await;
        };
        let heard = busy.await;
        self.busy = None;
        match heard {
            Ok((engine, actions)) => {
                self.round = engine.round();
                self.at_rest = Some(engine);
                Ok(actions)
            }
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Err(_) => Err(ServerError::ThreadEnded),
        }
    }
}
