//! The examples that a client has, and which of them it trains on.

use std::sync::Arc;

use selvedge_data::{DataError, Dataset};
use selvedge_protocols::{ClientName, Description, description::DescriptionError};

use crate::Examples;

/// Where a client's examples come from.
#[derive(Clone, Debug)]
pub enum Supply {
    /// They are the client's own, all of them.
    Own(Arc<Dataset>),
    /// A whole data set, of which the client takes the share that a simulation would deal to it: for trying a
    /// federation out on one machine. The number in the client's name says which.
    Dealt(Arc<Dataset>),
}

/// Why a client has nothing to train on.
#[derive(Debug, thiserror::Error)]
pub enum HoldingError {
    /// The examples do not go with the model or the loss.
    #[error(transparent)]
    Unfit(#[from] DescriptionError),
    /// The data set cannot be dealt as the description says.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The name has no number, or one that no client of this federation has.
    #[error(
        "{client} has no share: the {clients} clients that examples are dealt to are client-0 to client-{}",
        clients - 1
    )]
    NoShare {
        /// The client.
        client: ClientName,
        /// How many clients there are.
        clients: usize,
    },
}

/// What a client holds in a run.
#[derive(Clone, Debug)]
pub struct Holding {
    dataset: Arc<Dataset>,
    share: Vec<u32>,
    held_out: Vec<u32>,
}

impl Supply {
    /// What the client holds in a run of this description.
    ///
    /// # Errors
    /// When the examples do not go with the description, or the client has no share of them.
    pub fn holding(&self, description: &Description, client: &ClientName) -> Result<Holding, HoldingError> {
        let (Self::Own(dataset) | Self::Dealt(dataset)) = self;
        description.check_data(dataset, "this client's examples")?;
        let (dealt, number) = match self {
            Self::Own(_) => (description.leave_all(dataset, client)?, 0),
            Self::Dealt(_) => {
                let clients = description.clients;
                let number = client.number().filter(|&number| number < clients);
                let client = client.clone();
                let number = number.ok_or(HoldingError::NoShare { client, clients })?;
                (description.deal(dataset)?, number)
            }
        };
        Ok(Holding {
            dataset: dataset.clone(),
            share: dealt.shares.client(number).to_vec(),
            held_out: dealt.held_out.client(number).to_vec(),
        })
    }
}

impl Holding {
    /// What the client trains on.
    pub fn share(&self) -> Examples<'_> {
        Examples {
            dataset: &self.dataset,
            indices: &self.share,
        }
    }

    /// What the client evaluates on.
    pub fn held_out(&self) -> Examples<'_> {
        Examples {
            dataset: &self.dataset,
            indices: &self.held_out,
        }
    }
}
