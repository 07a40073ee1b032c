//! `selvedge model show --cuts`: where a model can be cut, what each cut costs, and which one to take.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use selvedge_models::{CutSummary, ModelDescription, ModelError, grouped};
use selvedge_protocols::split::{Devices, StepEncoding, StepTime};

use super::model::BATCH;

#[derive(Args)]
pub(crate) struct Cuts {
    /// Show where the model can be cut for split learning, and what each cut costs
    #[arg(long)]
    cuts: bool,
    /// Predict the time of a step and mark the cut with the shortest, for clients of this speed of training, in
    /// billions of floating-point operations a second
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
    /// Examples in a client's batch
    #[arg(long, value_name = "N", requires = "cuts", allow_negative_numbers = true)]
    #[arg(default_value_t = BATCH, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
    /// Clients that take a step together
    #[arg(long, value_name = "N", requires_all = ["cuts", "speed"], allow_negative_numbers = true)]
    #[arg(default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    split_clients: u64,
    /// How values are written as they cross the cut
    #[arg(long, requires = "cuts", default_value = "f32")]
    encoding: Encoding,
}

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

    /// The cuts of a model as a table.
    pub(crate) fn table(&self, model: &ModelDescription) -> Result<String, ModelError> {
        let cuts = model.cuts(self.batch)?;
        if cuts.is_empty() {
            return Ok("cannot be cut: it has one layer".into());
        }
        let step = self.step();
        let recommended = step.and_then(|step| step.recommended(&cuts)).map(|cut| cut.layers);
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
            let time = step.map(|step| format!("{:.2}", step.seconds(cut) * 1e3));
            row(
                [
                    &cut.layers.to_string(),
                    &format!("{} {}", cut.place, cut.kind),
                    &grouped(cut.front_parameters as u64),
                    &format!("{:.1} %", share_of_work(cut)),
                    &format!("{:.1} MB", cut.front_memory as f64 / 1e6),
                    &grouped(self.encoding().bytes(1, cut.values as usize).unwrap_or(usize::MAX) as u64),
                    time.as_deref().unwrap_or_default(),
                ],
                if recommended == Some(cut.layers) {
                    "<- recommended"
                } else {
                    ""
                },
            );
        }
        let batch = self.batch;
        text += &format!(
            "the memory is for training the client's layers in batches of {batch} with plain SGD, beside the examples \
             and the program"
        );
        if step.is_some() {
            let clients = match self.split_clients {
                1 => "one client".into(),
                clients => format!("{clients} clients together"),
            };
            text += &format!("\na step is one batch of {batch}, for {clients}; its time is predicted, not measured");
        }
        Ok(text)
    }

    /// What a step's time depends on, when the speeds are given.
    fn step(&self) -> Option<StepTime> {
        Some(StepTime {
            devices: Devices {
                speed: self.speed?,
                server_speed: self.server_speed?,
                up: self.up,
                down: self.down,
                delay: self.delay,
            },
            batch: self.batch as usize,
            clients: self.split_clients as usize,
            smashed: self.encoding(),
            gradients: self.encoding(),
        })
    }

    fn encoding(&self) -> StepEncoding {
        match self.encoding {
            Encoding::F32 => StepEncoding::F32,
            Encoding::Bf16 => StepEncoding::Bf16,
            Encoding::Int8 => StepEncoding::Int8,
        }
    }
}

/// The client's share of the work, in percent; 0 where there is none.
fn share_of_work(cut: &CutSummary) -> f64 {
    let whole = cut.front_operations + cut.back_operations;
    100.0 * cut.front_operations as f64 / whole.max(1) as f64
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
