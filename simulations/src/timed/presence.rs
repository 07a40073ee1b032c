//! Virtual clients come and go.

use std::time::Duration;

use selvedge_protocols::ClientName;

use super::{TimedDriver, agenda::Due};

impl TimedDriver<'_> {
    /// All are there at first. When those go who come and go.
    pub(super) fn plan_presence(&mut self) {
        let description = &self.simulation.description;
        if !description
            .devices
            .as_ref()
            .is_some_and(|devices| devices.come_and_go())
        {
            return;
        }
        for client in (0..description.clients).map(ClientName::numbered) {
            if let Some(at) = self.times.devices.lifetime(&client) {
                self.agenda.add(at, Some(&client), Due::End);
            }
            self.plan_leaving(&client, 0);
        }
    }

    pub(super) fn plan_leaving(&mut self, client: &ClientName, cycle: u32) {
        if let Some((there, _)) = self.times.devices.stay(client, cycle) {
            self.plan(client, self.now + there, Due::Leaving { cycle });
        }
    }

    /// Plans that a client goes or comes, if it has not left for good by then.
    pub(super) fn plan(&mut self, client: &ClientName, at: Duration, due: Due) {
        if self.times.devices.lifetime(client).is_none_or(|end| at < end) {
            self.agenda.add(at, Some(client), due);
        }
    }

    /// A client goes: nothing comes of it while it is away. Its device goes on, and it keeps what it has.
    pub(super) fn leave(&mut self, client: &ClientName) {
        let now = self.now;
        let Some(assignment) = self.assignments.of(client) else {
            return;
        };
        if let Some(entry) = assignment.entry.take() {
            // What was on its way need not be sent twice.
            if assignment.inspector.take().is_some() {
                assignment.upload = assignment.upload.min(entry.0.saturating_sub(now));
            }
            self.agenda.cancel(&entry);
        }
    }
}
