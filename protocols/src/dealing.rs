//! Who holds which examples: the one rule for simulations and for clients on the network.

use selvedge_data::{DataError, Dataset, Partition, PartitionDescription};
use selvedge_words::{ClientName, Purpose};

use crate::Description;

/// Examples dealt to clients.
#[derive(Clone, Debug)]
pub struct Dealt {
    /// All that each client holds.
    pub all: Partition,
    /// What each client trains on.
    pub shares: Partition,
    /// What each client holds out for its own evaluation.
    pub held_out: Partition,
}

impl Description {
    /// Deals `dataset` to the federation's clients by `[partition]`; the client at position i is `client-i`.
    ///
    /// # Errors
    /// When the data set lacks the classes or groups that the partition needs.
    pub fn deal(&self, dataset: &Dataset) -> Result<Dealt, DataError> {
        let mut random = self.seed.stream(Purpose::Partition);
        self.hold_out(self.partition.deal(dataset, self.clients, &mut random)?)
    }

    /// Sets a part of what each client holds aside for its own evaluation.
    ///
    /// # Errors
    /// None that a checked description can meet.
    pub fn hold_out(&self, all: Partition) -> Result<Dealt, DataError> {
        let mut random = self.seed.stream(Purpose::Holdout);
        let (shares, held_out) = all.split_holdout(self.evaluation.holdout, &mut random)?;
        Ok(Dealt { all, shares, held_out })
    }

    /// Leaves all of `dataset` to one client, whose own data it is; what it holds out depends on its name, not on who
    /// else is there.
    ///
    /// # Errors
    /// None that a checked description can meet.
    pub fn leave_all(&self, dataset: &Dataset, client: &ClientName) -> Result<Dealt, DataError> {
        let mut random = self.seed.client_stream(Purpose::Holdout, 0, client);
        let all = PartitionDescription::Iid {}.deal(dataset, 1, &mut random)?;
        let (shares, held_out) = all.split_holdout(self.evaluation.holdout, &mut random)?;
        Ok(Dealt { all, shares, held_out })
    }
}
