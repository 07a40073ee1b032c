//! Whether what a client has sent can be its part of an exchange.

use candle_core::{Device, Tensor};
use selvedge_models::{Loss, ModelError};
use selvedge_protocols::{
    Rejection,
    description::Labels,
    split::{
        Exchange, StepEncoding,
        leader::sketch_length,
        targets::{self, Received},
    },
};

use super::{Sent, Stage, Steps, backs::Contribution};

impl Steps {
    /// Checks what a client has sent.
    pub(super) fn check(
        &self,
        index: usize,
        step: u32,
        exchange: Exchange,
        examples: u32,
        payload: &[u8],
    ) -> Result<Sent, Rejection> {
        // One that was late catches up by being there with its smashed data while others still are awaited.
        let is_back =
            self.steppers[index].is_behind && exchange == Exchange::Smashed && !self.sent.contains_key(&index);
        let is_due = self.awaited.contains(&index) || is_back;
        if step != self.step || self.stage != Stage::Exchange(exchange) || !is_due {
            let is_second =
                step == self.step && self.stage == Stage::Exchange(exchange) && self.sent.contains_key(&index);
            return Err(match is_second {
                true => Rejection::Duplicate,
                false => Rejection::WrongStep { step, now: self.step },
            });
        }
        self.check_size(index, step, exchange, examples, payload)?;
        let rows = examples as usize;
        let shape = self.shape(index, exchange).map_err(of_model)?;
        match exchange {
            Exchange::Smashed | Exchange::Probe => {
                let targets = self.targets_bytes(exchange, rows).map_err(of_model)?;
                let (targets, smashed) = payload.split_at_checked(targets).ok_or_else(|| wrong_size(payload))?;
                let smashed = read(self.split.smashed, smashed, rows, &shape)?;
                let targets = match targets.is_empty() {
                    true => None,
                    false => Some(self.read_targets(targets).map_err(of_model)?.ok_or_else(|| {
                        Rejection::NotFinite("the targets, or one of them is no class of the model".into())
                    })?),
                };
                Ok(Sent::Smashed(smashed, targets))
            }
            Exchange::Head => Ok(Sent::Gradient(read(self.split.gradients, payload, rows, &shape)?)),
            Exchange::Sketch | Exchange::Gradient => {
                let length = shape.iter().product();
                read_values(StepEncoding::F32, payload, 1, length).map(Sent::Values)
            }
        }
    }

    /// Checks that a payload is of as many examples as the client may send in this step, and as long as that takes.
    pub(super) fn check_size(
        &self,
        index: usize,
        step: u32,
        exchange: Exchange,
        examples: u32,
        payload: &[u8],
    ) -> Result<(), Rejection> {
        let rows = examples as usize;
        let known = self
            .batch
            .iter()
            .find(|contribution| contribution.at == index && step == self.step)
            .map(Contribution::rows);
        let largest = match (known, self.sizes.get(index)) {
            (Some(rows), _) => rows,
            (None, Some(sizes)) => sizes.get(step as usize - 1).map_or(0, |size| *size as usize),
            (None, None) => self.description.training.batch_size,
        };
        let is_exact = known.is_some() || !self.sizes.is_empty();
        if rows == 0 || rows > largest || (is_exact && rows != largest) {
            return Err(Rejection::WrongShape(format!(
                "{rows} examples; {largest} are the most"
            )));
        }
        let row = self.shape(index, exchange).map_err(of_model)?.iter().product();
        let targets = self.targets_bytes(exchange, rows).map_err(of_model)?;
        let values = match exchange {
            Exchange::Smashed | Exchange::Probe => self.split.smashed.bytes(rows, row),
            Exchange::Head => self.split.gradients.bytes(rows, row),
            Exchange::Sketch | Exchange::Gradient => StepEncoding::F32.bytes(1, row),
        };
        match values.and_then(|values| values.checked_add(targets)) == Some(payload.len()) {
            true => Ok(()),
            false => Err(wrong_size(payload)),
        }
    }

    /// The shape of what a client sends in an exchange: of an example, or of all there is.
    fn shape(&self, index: usize, exchange: Exchange) -> Result<Vec<usize>, ModelError> {
        let pieces = &self.steppers[index].pieces;
        let parameters = pieces.front_size().0;
        match (exchange, self.alignment()) {
            (Exchange::Smashed | Exchange::Probe, _) => pieces.front.output(),
            (Exchange::Head, _) => pieces.back.output(),
            (Exchange::Sketch, Some(alignment)) => Ok(vec![sketch_length(parameters, alignment.sketch)]),
            (Exchange::Sketch | Exchange::Gradient, _) => Ok(vec![parameters]),
        }
    }

    /// Bytes of the targets of so many examples, where they are sent.
    fn targets_bytes(&self, exchange: Exchange, rows: usize) -> Result<usize, ModelError> {
        if self.split.labels == Labels::UShape || exchange != Exchange::Smashed {
            return Ok(0);
        }
        let outputs: usize = self.description.model.output()?.iter().product();
        Ok(4 * rows
            * match self.description.training.loss {
                Loss::CrossEntropy => 1,
                Loss::BinaryCrossEntropy | Loss::MeanSquaredError => outputs,
            })
    }

    fn read_targets(&self, bytes: &[u8]) -> Result<Option<Received>, ModelError> {
        let outputs: usize = self.description.model.output()?.iter().product();
        Ok(match self.description.training.loss {
            Loss::CrossEntropy => targets::read_classes(bytes, outputs),
            Loss::BinaryCrossEntropy | Loss::MeanSquaredError => targets::read_values(bytes),
        })
    }
}

/// The greatest value that can be of a step: products of two such are still finite.
const LARGEST: f32 = 1e15;

fn of_model(error: ModelError) -> Rejection {
    Rejection::WrongShape(error.to_string())
}

fn wrong_size(payload: &[u8]) -> Rejection {
    Rejection::WrongSize(format!("{} bytes of a step", payload.len()))
}

/// Reads rows of one shape.
fn read(encoding: StepEncoding, bytes: &[u8], rows: usize, shape: &[usize]) -> Result<Tensor, Rejection> {
    let values = read_values(encoding, bytes, rows, shape.iter().product())?;
    let shape = [&[rows], shape].concat();
    Tensor::from_vec(values, shape, &Device::Cpu).map_err(|error| Rejection::WrongShape(error.to_string()))
}

fn read_values(encoding: StepEncoding, bytes: &[u8], rows: usize, row: usize) -> Result<Vec<f32>, Rejection> {
    let values = encoding.read(bytes, rows, row);
    let values = values.ok_or_else(|| Rejection::NotFinite("a step".into()))?;
    match values.iter().all(|value| value.abs() <= LARGEST) {
        true => Ok(values),
        false => Err(Rejection::TooLarge(LARGEST)),
    }
}
