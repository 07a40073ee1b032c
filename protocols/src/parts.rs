//! The parts of a run's model: what a card stands for.

use std::sync::Arc;

use selvedge_models::{Coordinates, Entry, Layout, ModelDescription, ModelError, SubModel, Weights};

use crate::{
    Broadcast, Description, Memory, Purpose, Shape,
    plan::{Card, Width},
    split::{Cut, Pieces},
    update::{BUFFERS, PARAMETERS},
};

/// A run's model and its plan: from them, and a card, both sides make the same sub-model.
#[derive(Debug)]
pub struct Parts {
    description: Arc<Description>,
    layout: Arc<Layout>,
    groups: Vec<usize>,
    whole: Arc<Part>,
}

/// What a client is to train: a model of its own, and which values of the whole model it is made of.
#[derive(Clone, Debug)]
pub struct Part {
    /// The sub-model, an ordinary model.
    pub model: ModelDescription,
    /// Which of the whole's values travel for it: its own, but for personal ones and for those that lie on the other side of
    /// a cut.
    pub coordinates: SubModel,
    /// Where the values that travel lie, tensor by tensor.
    pub layout: Arc<Layout>,
    /// What of it stays with each client, if anything does.
    pub personal: Option<Arc<Personal>>,
    /// Of a part that is cut, what lies on which side: the client has the front, and the head if there is one, and
    /// `coordinates` are those of what it has.
    pub pieces: Option<Pieces>,
    /// Where a client draws another width in each step, the sub-models that it draws from: parts of this part.
    pub nested: Vec<Part>,
}

impl Parts {
    /// The parts of the model of a run.
    ///
    /// # Errors
    /// When the model is not in order.
    pub fn of(description: &Arc<Description>) -> Result<Self, ModelError> {
        let layout = Arc::new(description.model.layout()?);
        let coordinates = travelling(description, SubModel::whole(&layout));
        let personal = Personal::of(description, &layout);
        let whole = Part {
            model: description.model.clone(),
            coordinates: personal
                .as_ref()
                .map_or(coordinates, |personal| personal.travels.clone()),
            layout: layout.clone(),
            personal: personal.map(Arc::new),
            pieces: None,
            nested: Vec::new(),
        };
        Ok(Self {
            description: description.clone(),
            groups: layout.groups.iter().map(|group| group.units).collect(),
            layout,
            whole: Arc::new(whole),
        })
    }

    /// Where the values of the whole model lie.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// All of the model.
    pub fn whole(&self) -> &Arc<Part> {
        &self.whole
    }

    /// The units of each width group that a card keeps. Where the plan ranks units, they are ranks.
    fn units(&self, card: &Card) -> Vec<Vec<u32>> {
        self.description.plan().units(card, &self.groups)
    }

    /// What a card stands for. For a plan that ranks units, that is on the server's side [`ranked`](Self::ranked); a
    /// client does not know where the values of its sub-model lie in the whole, and does not need to.
    ///
    /// # Errors
    /// When the card's units are no sub-model of the model.
    pub fn part(&self, card: &Card) -> Result<Arc<Part>, ModelError> {
        self.ranked(card, None)
    }

    /// What a card stands for when units are ranked like this.
    ///
    /// # Errors
    /// As for [`part`](Self::part).
    pub fn ranked(&self, card: &Card, ranking: Option<&Ranking>) -> Result<Arc<Part>, ModelError> {
        let part = self.uncut(card, ranking)?;
        match card.cut {
            Some(cut) => part
                .cut(thinned_cut(&self.description.model, &part.model, cut))
                .map(Arc::new),
            None => Ok(part),
        }
    }

    /// What a card stands for before it is cut.
    fn uncut(&self, card: &Card, ranking: Option<&Ranking>) -> Result<Arc<Part>, ModelError> {
        if self.description.plan().trains_whole() {
            return Ok(self.whole.clone());
        }
        let units = self.units(card);
        let units = match ranking {
            Some(ranking) => ranking.units(units),
            None => units,
        };
        self.with_units(card, units)
    }

    fn with_units(&self, card: &Card, units: Vec<Vec<u32>>) -> Result<Arc<Part>, ModelError> {
        let coordinates = SubModel::new(&self.layout, units)?;
        if coordinates.parameters.is_all() && !self.description.plan().draws_widths() {
            return Ok(self.whole.clone());
        }
        let mut part = self.thinned(coordinates)?;
        if self.description.plan().draws_widths() {
            part.nested = self.nested(card, &part)?;
        }
        Ok(Arc::new(part))
    }

    /// The part that keeps as many units as `coordinates`, of whichever model they are.
    fn thinned(&self, coordinates: SubModel) -> Result<Part, ModelError> {
        let coordinates = travelling(&self.description, coordinates);
        let kept: Vec<usize> = coordinates.units.iter().map(Vec::len).collect();
        let scaler = self
            .description
            .sub_models
            .as_ref()
            .is_some_and(|sub_models| sub_models.scaler);
        let model = self.description.model.thinned(&kept, scaler)?;
        Ok(Part {
            layout: Arc::new(model.layout()?),
            model,
            coordinates,
            personal: None,
            pieces: None,
            nested: Vec::new(),
        })
    }

    /// The widths up to the card's, as parts of its part. The only width is the part itself, and no draw.
    fn nested(&self, card: &Card, part: &Part) -> Result<Vec<Part>, ModelError> {
        let widths = self.description.widths();
        let smaller: Vec<Width> = widths.into_iter().filter(|width| *width <= card.width).collect();
        if smaller.len() < 2 {
            return Ok(Vec::new());
        }
        let layout = part.model.layout()?;
        let inner = |width| {
            let units = self.units(&Card { width, ..card.clone() });
            self.thinned(SubModel::new(&layout, units)?)
        };
        smaller.into_iter().map(inner).collect()
    }
}

/// What of a sub-model travels: not its running statistics, where those are taken anew for each evaluation.
fn travelling(description: &Description, coordinates: SubModel) -> SubModel {
    match description.is_calibrated() {
        true => SubModel {
            buffers: Coordinates::none(coordinates.buffers.of()),
            ..coordinates
        },
        false => coordinates,
    }
}

/// The same cut of a model and of what it is when it is thinned: thinning can put scalers between the layers.
fn thinned_cut(model: &ModelDescription, thinned: &ModelDescription, cut: Cut) -> Cut {
    let after = |layers| model.layers_once_thinned(layers, thinned);
    let own_head = model.layers.len() - (cut.head as usize).min(model.layers.len());
    Cut {
        front: after(cut.front as usize) as u32,
        head: if cut.head == 0 {
            0
        } else {
            (thinned.layers.len() - after(own_head)) as u32
        },
    }
}

impl Part {
    /// What a client has of this part when it is cut.
    ///
    /// # Errors
    /// When a piece would have no layer.
    fn cut(&self, cut: Cut) -> Result<Self, ModelError> {
        let pieces = Pieces::of(&self.model, cut)?;
        Ok(Self {
            model: self.model.clone(),
            coordinates: pieces.of_client(&self.coordinates),
            layout: Arc::new(pieces.client_layout()?),
            personal: None,
            pieces: Some(pieces),
            nested: Vec::new(),
        })
    }

    /// What is broadcast to those who train this part.
    pub fn extract(&self, broadcast: &Arc<Broadcast>) -> Arc<Broadcast> {
        if self.coordinates.is_whole() {
            return broadcast.clone();
        }
        Arc::new(Broadcast {
            weights: Arc::new(self.coordinates.extract(&broadcast.weights)),
            vectors: broadcast.vectors.slice(&self.coordinates),
        })
    }
}

/// Under which name a client keeps what is personal.
const PERSONAL: &str = "personal";

/// What of a model stays with each client, and where in the client's model it lies.
#[derive(Clone, Debug)]
pub struct Personal {
    /// The places of what travels.
    pub travels: SubModel,
    /// The places of what stays.
    pub stays: SubModel,
    /// What stays, before anything is trained: the values that the run's model begins with.
    pub initial: Weights,
}

impl Personal {
    fn of(description: &Description, layout: &Layout) -> Option<Self> {
        let layers = description.algorithm.personal_layers();
        let is_personal = |tensor: &Entry| layers.iter().any(|layer| is_in(layer, tensor));
        if !layout.parameters.iter().chain(&layout.buffers).any(is_personal) {
            return None;
        }
        let pick = |of: &Coordinates, tensors: &[Entry], personal: bool| {
            let tensors = tensors.iter().filter(|tensor| is_personal(tensor) == personal);
            of.pick(&tensors.map(Entry::range).collect::<Vec<_>>())
        };
        let whole = SubModel::whole(layout);
        let places = |personal| SubModel {
            units: whole.units.clone(),
            parameters: pick(&whole.parameters, &layout.parameters, personal),
            buffers: pick(&whole.buffers, &layout.buffers, personal),
        };
        let stays = places(true);
        let initial = Weights::drawn(layout, &mut description.seed.stream(Purpose::Initialisation));
        Some(Self {
            travels: places(false),
            initial: stays.extract(&initial),
            stays,
        })
    }

    /// A client's whole model: what was broadcast, and what it has kept of its own, or else that of the beginning.
    pub fn completed(&self, broadcast: &Broadcast, memory: &Memory) -> Broadcast {
        let (travels, stays) = (&self.travels, &self.stays);
        let kept = |name, initial: &Vec<f32>| {
            let kept = memory.of(PERSONAL).and_then(|kept| kept.get(name));
            kept.filter(|kept| kept.len() == initial.len())
                .map_or_else(|| initial.clone(), <[f32]>::to_vec)
        };
        let own = Weights {
            parameters: kept(PARAMETERS, &self.initial.parameters),
            buffers: kept(BUFFERS, &self.initial.buffers),
        };
        let mut whole = Weights {
            parameters: vec![0.0; travels.parameters.of()],
            buffers: vec![0.0; travels.buffers.of()],
        };
        travels.merge(&broadcast.weights, &mut whole);
        stays.merge(&own, &mut whole);
        Broadcast {
            weights: Arc::new(whole),
            vectors: broadcast.vectors.clone(),
        }
    }

    /// Keeps what stays of a client's whole model, and leaves what travels of it.
    pub fn keep(&self, whole: &mut Weights, memory: &mut Memory) {
        let Weights { parameters, buffers } = self.stays.extract(whole);
        let kept = memory.of_mut(PERSONAL);
        for (name, values) in [(PARAMETERS, parameters), (BUFFERS, buffers)] {
            if !values.is_empty() {
                kept.insert(name, Shape::Free(values.len()), values);
            }
        }
        *whole = self.travels.extract(whole);
    }
}

/// Whether a tensor belongs to the layer at a place.
pub(crate) fn is_in(layer: &str, tensor: &Entry) -> bool {
    let rest = tensor.name.strip_prefix(layer);
    rest.is_some_and(|rest| rest.starts_with('.'))
}

/// The units of each width group, the one with the largest norm first.
#[derive(Clone, Debug)]
pub struct Ranking(Vec<Vec<u32>>);

impl Ranking {
    /// Ranks the units of a model by the Euclidean norm of their parameters; of equals, the first comes first.
    pub fn of(weights: &Weights, layout: &Layout) -> Self {
        let rank = |norms: Vec<f64>| {
            let mut units: Vec<u32> = (0..norms.len() as u32).collect();
            let norm = |unit: u32| norms[unit as usize];
            units.sort_by(|&one, &other| norm(other).total_cmp(&norm(one)));
            units
        };
        Self(
            layout
                .squares_of_units(&weights.parameters)
                .into_iter()
                .map(rank)
                .collect(),
        )
    }

    /// The units that have these ranks.
    fn units(&self, ranks: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        let of_group = |(ranks, units): (Vec<u32>, &Vec<u32>)| {
            let unit = |rank: u32| units.get(rank as usize).copied();
            let mut kept: Vec<u32> = ranks.into_iter().filter_map(unit).collect();
            kept.sort_unstable();
            kept
        };
        ranks.into_iter().zip(&self.0).map(of_group).collect()
    }
}
