//! The parts of a run's model: what a card stands for.

use std::sync::Arc;

use selvedge_learning::{
    Broadcast, Memory, Shape,
    update::{BUFFERS, PARAMETERS},
};
use selvedge_models::{Coordinates, Cut, Entry, Layout, ModelDescription, ModelError, Pieces, SubModel, Weights};
use selvedge_words::{Choice, Purpose, Seed};

use crate::plan::{Card, Plan, Width};

/// A run's model and its plan: from them, and a card, both sides make the same sub-model.
#[derive(Debug)]
pub struct Parts {
    model: ModelDescription,
    division: Division,
    layout: Arc<Layout>,
    groups: Vec<usize>,
    whole: Arc<Part>,
}

/// How a run's model is divided.
#[derive(Clone, Debug)]
pub struct Division {
    /// Which sub-models there are.
    pub plan: Choice<dyn Plan>,
    /// The widths at which clients train, largest first.
    pub widths: Vec<Width>,
    /// Whether the outputs of a thinned layer are divided by the share of its units that is kept.
    pub scaler: bool,
    /// Whether running statistics travel with the model.
    pub statistics_travel: bool,
    /// The places of the layers that stay with each client.
    pub personal_layers: Vec<String>,
    /// The run's seed, from which the first values of what stays are drawn.
    pub seed: Seed,
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
    /// The parts of a model that is divided like this.
    ///
    /// # Errors
    /// When the model is not in order.
    pub fn of(model: ModelDescription, division: Division) -> Result<Self, ModelError> {
        let layout = Arc::new(model.layout()?);
        let coordinates = division.travelling(SubModel::whole(&layout));
        let personal = Personal::of(&division, &layout);
        let whole = Part {
            model: model.clone(),
            coordinates: personal
                .as_ref()
                .map_or(coordinates, |personal| personal.travels.clone()),
            layout: match &personal {
                Some(_) => Arc::new(layout.only(|tensor| !division.is_personal(tensor))),
                None => layout.clone(),
            },
            personal: personal.map(Arc::new),
            pieces: None,
            nested: Vec::new(),
        };
        Ok(Self {
            model,
            division,
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
        self.division.plan.units(card, &self.groups)
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
            Some(cut) => part.cut(thinned_cut(&self.model, &part.model, cut)).map(Arc::new),
            None => Ok(part),
        }
    }

    /// What a card stands for before it is cut.
    fn uncut(&self, card: &Card, ranking: Option<&Ranking>) -> Result<Arc<Part>, ModelError> {
        if self.division.plan.trains_whole() {
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
        if coordinates.parameters.is_all() && !self.division.plan.draws_widths() {
            return Ok(self.whole.clone());
        }
        let mut part = self.thinned(coordinates)?;
        if self.division.plan.draws_widths() {
            part.nested = self.nested(card, &part)?;
        }
        Ok(Arc::new(part))
    }

    /// The part that keeps as many units as `coordinates`, of whichever model they are.
    fn thinned(&self, coordinates: SubModel) -> Result<Part, ModelError> {
        let coordinates = self.division.travelling(coordinates);
        let kept: Vec<usize> = coordinates.units.iter().map(Vec::len).collect();
        let model = self.model.thinned(&kept, self.division.scaler)?;
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
        let widths = self.division.widths.iter().copied();
        let smaller: Vec<Width> = widths.filter(|width| *width <= card.width).collect();
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

impl Division {
    /// Whether a tensor stays with each client.
    fn is_personal(&self, tensor: &Entry) -> bool {
        self.personal_layers.iter().any(|layer| tensor.is_of_layer(layer))
    }

    /// What of a sub-model travels.
    fn travelling(&self, coordinates: SubModel) -> SubModel {
        match self.statistics_travel {
            true => coordinates,
            false => SubModel {
                buffers: Coordinates::none(coordinates.buffers.of()),
                ..coordinates
            },
        }
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
            precision: broadcast.precision,
        })
    }
}

/// Under which name a client keeps what is personal.
const PERSONAL: &str = "personal";

/// What of a model stays with each client, and where in the client's model it lies.
#[derive(Clone, Debug)]
pub struct Personal {
    /// Where the values of the client's whole model lie, tensor by tensor.
    pub layout: Arc<Layout>,
    /// The places of what travels.
    pub travels: SubModel,
    /// The places of what stays.
    pub stays: SubModel,
    /// What stays, before anything is trained: the values that the run's model begins with.
    pub initial: Weights,
}

impl Personal {
    fn of(division: &Division, layout: &Arc<Layout>) -> Option<Self> {
        let is_personal = |tensor: &Entry| division.is_personal(tensor);
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
        let initial = Weights::drawn(layout, &mut division.seed.stream(Purpose::Initialisation));
        Some(Self {
            layout: layout.clone(),
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
            precision: broadcast.precision,
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
