//! A virtual client is asked: when its device is through with it, and what a worker has to do.

use std::{sync::Arc, time::Duration};

use selvedge_coordinator::GlobalModel;
use selvedge_protocols::{Card, ClientName, LocalError, message::Task};

use super::{TimedDriver, agenda::Due, assignments::Assignment};
use crate::worker::Job;

impl TimedDriver<'_> {
    /// A client is asked. One that is asked the same again has come back.
    pub(super) fn ask(
        &mut self,
        client: ClientName,
        round: u32,
        task: Task,
        card: Card,
        model: Arc<GlobalModel>,
    ) -> Result<(), LocalError> {
        let (now, latency) = (self.now, self.times.devices.latency(&client));
        let due = match task {
            Task::Train | Task::Calibrate => Due::Offer,
            Task::Evaluate => Due::Delivery,
        };
        if let Some(known) = self.assignments.of(&client).filter(|known| known.is(round, task)) {
            let at = known.finished.max(now + latency) + latency;
            if known.entry.is_none() && !self.away.contains(&client) {
                known.entry = Some(self.agenda.add(at, Some(&client), due));
            }
            return Ok(());
        }
        self.forget(&client);
        let part = model.part(Some(&card))?;
        let took = self.times.of_task(self.simulation, &client, task, &part, &model)?;
        let kept = self.kept.get(&client).cloned().unwrap_or_default();
        let named = client.clone();
        let job = match task {
            Task::Train => Job::Train {
                client: named,
                round,
                card,
                model,
                kept,
            },
            Task::Calibrate => Job::Calibrate {
                client: named,
                round,
                card,
                model,
            },
            Task::Evaluate => Job::Evaluate {
                client: named,
                round,
                card,
                model,
                kept,
            },
        };
        // A device that is still at something else begins when it is through with that.
        let received = now + latency + took.download;
        let begun = self.busy.get(&client).map_or(received, |until| received.max(*until));
        let finished = begun + took.work;
        self.busy.insert(client.clone(), finished);
        let at = finished + latency;
        self.asked += 1;
        let mut assignment = Assignment::new(round, task, job);
        assignment.finished = finished;
        assignment.upload = took.upload;
        assignment.report = took.report;
        assignment.sections = took.sections;
        assignment.entry = Some(self.agenda.add(at, Some(&client), due));
        // What comes too late is most likely never asked for; if it is, it is computed then.
        let is_in_time = (at - now).as_secs_f64() <= self.simulation.description.cohort.deadline_seconds;
        // Where clients are asked one by one, their updates are fetched as they come, else in the order of their names.
        let is_by_time = self.simulation.description.buffer.is_some();
        let wanted = if is_by_time { at } else { Duration::ZERO };
        self.assignments.begin(client, assignment, is_in_time.then_some(wanted));
        Ok(())
    }
}
