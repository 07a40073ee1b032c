//! Smashed data that come before their step: one that has no part in a step, or was left out of it, is ahead of the others.

use selvedge_protocols::{Rejection, split::Exchange};

use super::{Action, Steps};

/// What a client has sent before its time.
pub(super) struct Early {
    pub(super) step: u32,
    examples: u32,
    payload: Vec<u8>,
}

impl Steps {
    /// A client has sent its smashed data of a step to come: they are kept, if they can be.
    pub(super) fn came_early(
        &mut self,
        index: usize,
        step: u32,
        examples: u32,
        payload: &[u8],
        actions: &mut Vec<Action>,
    ) {
        if let Err(reason) = self.check_size(index, step, Exchange::Smashed, examples, payload) {
            self.lose(&reason);
            return self.skip(index, actions);
        }
        let payload = payload.to_vec();
        let early = Early {
            step,
            examples,
            payload,
        };
        // The one that it goes on with counts.
        let before = self.early.insert(index, early);
        if before.is_some_and(|before| before.step == step) {
            self.lose(&Rejection::Duplicate);
        }
    }

    /// Takes in what has come early for the step that is opened now.
    pub(super) fn take_early(&mut self, actions: &mut Vec<Action>) {
        // While nobody is awaited, what has come for the step that is next is what opens it.
        let is_due = |index: &usize, early: &Early| {
            early.step < self.step || (early.step == self.step && self.awaited.contains(index))
        };
        let indices: Vec<usize> = self
            .early
            .iter()
            .filter(|(index, early)| is_due(index, early))
            .map(|(index, _)| *index)
            .collect();
        for index in indices {
            if let Some(early) = self.early.remove(&index)
                && early.step == self.step
                && self.awaited.contains(&index)
            {
                self.sent(
                    index,
                    early.step,
                    Exchange::Smashed,
                    early.examples,
                    &early.payload,
                    actions,
                );
            }
        }
    }
}
