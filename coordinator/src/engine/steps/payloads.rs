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
        let pieces = &self.steppers[index].pieces;
        let rows = examples as usize;
        let known = self
            .batch
            .iter()
            .find(|contribution| contribution.at == index)
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
        let of_model = |error: ModelError| Rejection::WrongShape(error.to_string());
        match exchange {
            Exchange::Smashed | Exchange::Probe => {
                let shape = pieces.front.output().map_err(of_model)?;
                let targets = self.targets_bytes(rows).map_err(of_model)?;
                let targets = if exchange == Exchange::Probe { 0 } else { targets };
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
            Exchange::Head => {
                let shape = pieces.back.output().map_err(of_model)?;
                Ok(Sent::Gradient(read(self.split.gradients, payload, rows, &shape)?))
            }
            Exchange::Sketch | Exchange::Gradient => {
                let length = pieces.front_size().0;
                let length = match self.alignment() {
                    Some(alignment) if exchange == Exchange::Sketch => sketch_length(length, alignment.sketch),
                    _ => length,
                };
                read_values(StepEncoding::F32, payload, 1, length).map(Sent::Values)
            }
        }
    }

    /// Bytes of the targets of so many examples, where they are sent.
    fn targets_bytes(&self, rows: usize) -> Result<usize, ModelError> {
        if self.split.labels == Labels::UShape {
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
    if encoding.bytes(rows, row) != Some(bytes.len()) {
        return Err(wrong_size(bytes));
    }
    let values = encoding.read(bytes, rows, row);
    values.ok_or_else(|| Rejection::NotFinite("a step".into()))
}
