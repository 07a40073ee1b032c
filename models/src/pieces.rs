//! What a cut leaves on each side.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{
    description::ModelDescription,
    error::ModelError,
    layout::{Entry, Layout},
    sub_model::SubModel,
    weights::Weights,
};

/// Where a client's model is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cut {
    /// How many layers the client has at the front.
    pub front: u32,
    /// How many it has at the end, so that its labels stay with it; 0 where they are sent.
    pub head: u32,
}

/// A model in pieces: on the client the front and, of a model in the shape of a U, the head; on the server what lies
/// between.
#[derive(Clone, Debug, PartialEq)]
pub struct Pieces {
    /// The first layers.
    pub front: ModelDescription,
    /// Those of the server.
    pub back: ModelDescription,
    /// The last layers, where the client has them.
    pub head: Option<ModelDescription>,
    /// How many parameters each of the three has.
    parameters: [usize; 3],
    /// How many buffers each of the three has.
    buffers: [usize; 3],
}

impl Pieces {
    /// A model cut in pieces.
    ///
    /// # Errors
    /// When a piece would have no layer.
    pub fn of(model: &ModelDescription, cut: Cut) -> Result<Self, ModelError> {
        let (front, rest) = model.cut(cut.front as usize)?;
        let (back, head) = match cut.head as usize {
            0 => (rest, None),
            head => {
                let (back, head) = rest.cut(rest.layers.len().saturating_sub(head))?;
                (back, Some(head))
            }
        };
        let mut sizes = [(0, 0); 3];
        for (size, piece) in sizes.iter_mut().zip([Some(&front), Some(&back), head.as_ref()]) {
            if let Some(piece) = piece {
                let layout = piece.layout()?;
                *size = (layout.parameter_count(), layout.buffer_count());
            }
        }
        Ok(Self {
            front,
            back,
            head,
            parameters: sizes.map(|(parameters, _)| parameters),
            buffers: sizes.map(|(_, buffers)| buffers),
        })
    }

    /// What of a model in these pieces the client has; `model` says where the model's own values lie.
    pub fn of_client(&self, model: &SubModel) -> SubModel {
        let both = |[front, back, head]: [usize; 3]| [0..front, front + back..front + back + head];
        pick(model, &both(self.parameters), &both(self.buffers))
    }

    /// What of it the server has.
    pub fn of_server(&self, model: &SubModel) -> SubModel {
        let middle = |[front, back, _]: [usize; 3]| front..front + back;
        pick(model, &[middle(self.parameters)], &[middle(self.buffers)])
    }

    /// The values of the whole from the client's and the server's; `None` when one of them has more or fewer than belong to it.
    pub fn join(&self, client: &Weights, server: &Weights) -> Option<Weights> {
        let join = |client: &[f32], server: &[f32], [front, back, head]: [usize; 3]| {
            let is_whole = client.len() == front + head && server.len() == back;
            let (front, head) = client.split_at_checked(front).filter(|_| is_whole)?;
            Some([front, server, head].concat())
        };
        Some(Weights {
            parameters: join(&client.parameters, &server.parameters, self.parameters)?,
            buffers: join(&client.buffers, &server.buffers, self.buffers)?,
        })
    }

    /// What of it lies on the server between this cut and the next, that of `next`, or the end.
    pub fn of_segment(&self, model: &SubModel, next: Option<&Self>) -> SubModel {
        let between = |own: [usize; 3], next: Option<[usize; 3]>| {
            let end = next.map_or(own[0] + own[1], |next| next[0]);
            own[0]..end
        };
        let parameters = between(self.parameters, next.map(|next| next.parameters));
        let buffers = between(self.buffers, next.map(|next| next.buffers));
        pick(model, &[parameters], &[buffers])
    }

    /// How many parameters, and how many buffers, the front has.
    pub fn front_size(&self) -> (usize, usize) {
        (self.parameters[0], self.buffers[0])
    }

    /// Where the client's values lie: the front's, then the head's.
    ///
    /// # Errors
    /// None for pieces that were made.
    pub fn client_layout(&self) -> Result<Layout, ModelError> {
        let mut layout = self.front.layout()?;
        let (parameters, buffers) = (layout.parameter_count(), layout.buffer_count());
        if let Some(head) = &self.head {
            let head = head.layout()?;
            let behind = |entries: Vec<Entry>, start: usize| {
                entries.into_iter().map(move |entry| Entry {
                    offset: entry.offset + start,
                    ..entry
                })
            };
            layout.parameters.extend(behind(head.parameters, parameters));
            layout.buffers.extend(behind(head.buffers, buffers));
        }
        // Units of a piece are fixed at the cut: there are no groups to speak of.
        layout.groups.clear();
        Ok(layout)
    }

    /// How many values the client has, running statistics with them.
    pub fn client_values(&self) -> usize {
        let [front, _, head] = self.parameters;
        let [front_buffers, _, head_buffers] = self.buffers;
        front + head + front_buffers + head_buffers
    }
}

fn pick(model: &SubModel, parameters: &[Range<usize>], buffers: &[Range<usize>]) -> SubModel {
    SubModel {
        units: model.units.clone(),
        parameters: model.parameters.pick(parameters),
        buffers: model.buffers.pick(buffers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dense, LayerDescription};

    #[test]
    fn a_whole_is_joined_from_what_belongs_to_each_side_and_from_nothing_else() {
        let dense = |units| LayerDescription::Dense(Dense { units, bias: false });
        let model = ModelDescription {
            input: vec![2],
            layers: vec![dense(1), dense(3), dense(2)],
            first_layer: 0,
        };
        let pieces = Pieces::of(&model, Cut { front: 1, head: 1 }).ok();
        let weights = |values: std::ops::Range<u8>| Weights {
            parameters: values.map(f32::from).collect(),
            buffers: vec![],
        };
        let join = |client, server| pieces.as_ref()?.join(&weights(client), &weights(server));
        let whole = join(0..8, 8..11).map(|whole| whole.parameters);
        let expected = [0.0, 1.0, 8.0, 9.0, 10.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        assert_eq!(whole.as_deref(), Some(expected.as_slice()));
        // A front that has stayed where it is, one that is too short, and a back that is too long.
        for (client, server) in [(0..0, 8..11), (0..7, 8..11), (0..8, 8..12)] {
            assert_eq!(join(client, server), None);
        }
    }
}
