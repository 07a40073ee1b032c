//! `selvedge model show --cuts`: where a model can be cut, what each cut costs, and which one to take.

use std::{collections::BTreeSet, fmt::Write as _};

use clap::{Args, ValueEnum};
use selvedge_models::{CutSummary, ModelDescription, ModelError, STEP, grouped};
use selvedge_protocols::{
    Description,
    description::Split,
    split::{Equipment, StepEncoding, StepTime},
};

use super::model::BATCH;

#[derive(Args)]
pub(crate) struct Cuts {
    /// Show where the model can be cut for split learning, and what each cut costs
    #[arg(long)]
    cuts: bool,
    /// Predict the time of a step and mark the cut to take, for clients of this speed of training, in billions of
    /// floating-point operations a second [default: `split.devices` of the description, where it has that]
    #[arg(long, value_name = "GFLOPS", requires_all = ["cuts", "server_speed"], allow_negative_numbers = true)]
    #[arg(value_parser = above_zero)]
    speed: Option<f64>,
    /// The same for the server, which trains the backs of all clients
    #[arg(long, value_name = "GFLOPS", requires_all = ["cuts", "speed"], allow_negative_numbers = true)]
    #[arg(value_parser = above_zero)]
    server_speed: Option<f64>,
    /// Megabits a second from each client to the server [default: no limit]
    #[arg(long, value_name = "MBIT", requires_all = ["cuts", "speed"], allow_negative_numbers = true)]
    #[arg(value_parser = above_zero)]
    up: Option<f64>,
    /// Megabits a second from the server to each client [default: no limit]
    #[arg(long, value_name = "MBIT", requires_all = ["cuts", "speed"], allow_negative_numbers = true)]
    #[arg(value_parser = above_zero)]
    down: Option<f64>,
    /// Milliseconds that a message is on its way, beside those its bytes take
    #[arg(long, value_name = "MS", requires_all = ["cuts", "speed"], allow_negative_numbers = true)]
    #[arg(default_value = "0", value_parser = not_below_zero)]
    delay: f64,
    /// Examples in a client's batch [default: that of the description, where it has [split], else 10]
    #[arg(long, value_name = "N", requires = "cuts", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MOST))]
    batch: Option<u64>,
    /// Clients that take a step together [default: the description's cohort, where it has [split], else 1]
    #[arg(long, value_name = "N", requires = "cuts", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MOST))]
    split_clients: Option<u64>,
    /// How values are written as they cross the cut [default: as the description's [split] says, else f32]
    #[arg(long, requires = "cuts")]
    encoding: Option<Encoding>,
}

/// The most examples, and clients, that are reckoned with.
const MOST: u64 = 1_000_000;

#[derive(Clone, Copy, ValueEnum)]
enum Encoding {
    F32,
    Bf16,
    Int8,
}

/// The narrowest each column may be; the first two start at the left.
const WIDTHS: [usize; 7] = [6, 16, 10, 7, 10, 14, 12];

impl Cuts {
    pub(crate) fn are_wanted(&self) -> bool {
        self.cuts
    }

    /// The cuts of a model as a table. What flags leave open is as in the description, if it has [split].
    pub(crate) fn table(&self, model: &ModelDescription, description: &Description) -> Result<String, ModelError> {
        let split = description.split.as_ref();
        let batch = self.batch.unwrap_or(match split {
            Some(_) => description.training.batch_size as u64,
            None => BATCH,
        });
        let cuts = model.cuts(batch)?;
        if cuts.is_empty() {
            return Ok("cannot be cut: it has one layer".into());
        }
        let own = split.map_or_else(BTreeSet::new, Split::fronts);
        let clients = self.split_clients.unwrap_or(match split {
            Some(split) => split.at_once(split.cut_of(description.cohort_size())).max(1) as u64,
            None => 1,
        });
        let step = self.step(model, split, batch as usize, clients as usize)?;
        let encoding = match (self.encoding, split) {
            (Some(encoding), _) => encoding.into(),
            (None, Some(split)) => split.smashed,
            (None, None) => StepEncoding::F32,
        };
        // In a U-shape the last layers are the client's too, and their input crosses a second cut.
        let head = split.and_then(|split| split.head_cut(&cuts));
        let head_memory = head.map(|head| model.cut(head.layers)?.1.training_memory(0, batch.saturating_mul(2)));
        let head_memory = head_memory.transpose()?.unwrap_or(0);
        let head_of = |value: fn(&CutSummary) -> u64| head.map_or(0, value);
        let is_possible = |cut: &CutSummary| head.is_none_or(|head| cut.layers < head.layers);
        let recommended = step
            .as_ref()
            .and_then(|step| step.recommended(&cuts))
            .map(|cut| cut.layers);
        let mut text = String::new();
        let mut row = |cells: [&str; 7], mark: &str| {
            let mut line = String::new();
            for (index, (cell, width)) in cells.into_iter().zip(WIDTHS).enumerate() {
                // Writing to a string cannot fail.
                let _ = match index {
                    0 | 1 => write!(line, "{cell:<width$} "),
                    _ => write!(line, "{cell:>width$}  "),
                };
            }
            line.push_str(mark);
            text.push_str(line.trim_end());
            text.push('\n');
        };
        row(["", "", "client's", "client's", "client's", "bytes/example", ""], "");
        let time = if step.is_some() { "ms/step" } else { "" };
        row(
            ["cut", "last layer", "parameters", "work", "memory", "each way", time],
            "",
        );
        for cut in &cuts {
            if !is_possible(cut) {
                break;
            }
            let possible = step.as_ref().filter(|step| step.is_possible(cut));
            let time = possible.map(|step| milliseconds(step.seconds(cut)));
            let values = cut.values + head_of(|head| head.values);
            let is_recommended = recommended == Some(cut.layers);
            let mark = match (is_recommended, own.contains(&(cut.layers as u32))) {
                (true, true) => "<- recommended, and the description's",
                (true, false) => "<- recommended",
                (false, true) => "<- the description's",
                (false, false) => "",
            };
            row(
                [
                    &cut.layers.to_string(),
                    &format!("{} {}", cut.place, cut.kind),
                    &grouped(cut.front_parameters as u64 + head_of(|head| head.back_parameters as u64)),
                    &format!("{:.1} %", share_of_work(cut, head_of(|head| head.back_operations))),
                    &megabytes(cut.front_memory + head_memory),
                    &grouped(encoding.bytes(1, values as usize).unwrap_or(usize::MAX) as u64),
                    time.as_deref().unwrap_or_default(),
                ],
                mark,
            );
        }
        let whole = model.summary()?;
        // Nothing is sent in a step.
        let alone = |step: &StepTime| STEP * whole.operations as f64 * batch as f64 / (1e9 * step.devices.speed);
        let time = step.as_ref().map(|step| milliseconds(alone(step)));
        row(
            [
                "none",
                "",
                &grouped(whole.parameters as u64),
                "100.0 %",
                &megabytes(model.training_memory(0, batch.saturating_mul(2))?),
                "0",
                time.as_deref().unwrap_or_default(),
            ],
            "",
        );
        text += &format!(
            "the memory is for training the client's layers in batches of {batch} with plain SGD, beside the examples \
             and the program"
        );
        if step.is_some() {
            let clients = match clients {
                1 => "one client".into(),
                clients => format!("{clients} clients together"),
            };
            text += &format!("\na step is one batch of {batch}, for {clients}; its time is predicted, not measured");
        }
        if let Some(step) = &step
            && step
                .recommended(&cuts)
                .is_some_and(|cut| alone(step) < step.seconds(cut))
        {
            text += "\nno cut makes a step as short as training the whole model on the client does";
        }
        if let Some(head) = head {
            let layers = model.layers.len() - head.layers;
            text += &format!(
                "\nwhat is the client's includes the last {layers} of the layers: the model has the shape of a U"
            );
        }
        Ok(text)
    }

    /// What a step's time depends on, when the speeds are known.
    fn step(
        &self,
        model: &ModelDescription,
        split: Option<&Split>,
        batch: usize,
        clients: usize,
    ) -> Result<Option<StepTime>, ModelError> {
        let given = self
            .speed
            .zip(self.server_speed)
            .map(|(speed, server_speed)| Equipment {
                speed,
                server_speed,
                up: self.up,
                down: self.down,
                delay: self.delay,
            });
        let Some(devices) = given.or(split.and_then(|split| split.devices)) else {
            return Ok(None);
        };
        let mut step = match split {
            Some(split) => split.step_time(model, devices, batch, clients)?,
            None => StepTime::new(devices, batch, clients),
        };
        if let Some(encoding) = self.encoding {
            (step.smashed, step.gradients) = (encoding.into(), encoding.into());
        }
        Ok(Some(step))
    }
}

impl From<Encoding> for StepEncoding {
    fn from(encoding: Encoding) -> Self {
        match encoding {
            Encoding::F32 => Self::F32,
            Encoding::Bf16 => Self::Bf16,
            Encoding::Int8 => Self::Int8,
        }
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2}", seconds * 1e3)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// The client's share of the work, in percent, with a head of so many operations; 0 where there is none.
fn share_of_work(cut: &CutSummary, head: u64) -> f64 {
    let whole = cut.front_operations + cut.back_operations;
    100.0 * (cut.front_operations + head) as f64 / whole.max(1) as f64
}

/// Reads a number above 0.
fn above_zero(text: &str) -> Result<f64, String> {
    match number(text)? {
        number if number > 0.0 => Ok(number),
        _ => Err("it must be above 0".into()),
    }
}

/// Reads a number that is 0 or above.
fn not_below_zero(text: &str) -> Result<f64, String> {
    match number(text)? {
        number if number >= 0.0 => Ok(number),
        _ => Err("it must be 0 or above".into()),
    }
}

/// Reads a finite number.
fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "it is not a number".to_string())?;
    match number.is_finite() {
        true => Ok(number),
        false => Err("it is not a finite number".into()),
    }
}
