//! What is to be expected of a client's steps, by what it says about its device as it joins.

use std::time::Duration;

use selvedge_models::{Cut, CutSummary, ModelError, training_speed};
use selvedge_protocols::{
    ClientName, Description,
    description::Shares,
    split::{Equipment, StepTime},
};

/// How long the coordinator measures its own speed.
const MEASURED: Duration = Duration::from_millis(100);

/// What is to be expected of steps, and where models had better be cut.
pub(super) struct Advice {
    /// Where each client's model is cut.
    own: Shares<Option<Cut>>,
    cuts: Vec<CutSummary>,
    /// A step of a client with a device that is not known yet.
    step: StepTime,
    /// Whether the coordinator's own speed is known: the description's, or measured.
    is_measured: bool,
}

impl Advice {
    /// Of a run with models that are cut. The coordinator's speed is the description's, or else is measured when a client
    /// first says its own.
    pub(super) fn of(description: &Description) -> Result<Option<Self>, ModelError> {
        let Some(split) = &description.split else {
            return Ok(None);
        };
        let batch = description.training.batch_size;
        let clients = split.at_once(split.cut_of(description.cohort_size()));
        let devices = match split.devices {
            Some(devices) => devices,
            None => Equipment {
                speed: 1.0,
                server_speed: 1.0,
                up: None,
                down: None,
                delay: 0.0,
            },
        };
        Ok(Some(Self {
            own: description.cuts(),
            cuts: description.model.cuts(batch as u64)?,
            step: split.step_time(&description.model, devices, batch, clients)?,
            is_measured: split.devices.is_some(),
        }))
    }

    /// What is to be expected of a client that trains so many operations a second, so far away, in a sentence; nothing of
    /// one whose model is not cut, or that says what cannot be.
    pub(super) fn on(&mut self, client: &ClientName, speed: f64, round_trip: Duration) -> Option<String> {
        let own = self.own.of(client)?;
        if !(1.0..=1e18).contains(&speed) {
            return None;
        }
        if !self.is_measured {
            self.step.devices.server_speed = training_speed(MEASURED).ok()? / 1e9;
            self.is_measured = true;
        }
        let mut step = self.step.clone();
        step.devices.speed = speed / 1e9;
        step.devices.delay = round_trip.as_secs_f64() * 1e3 / 2.0;
        let took = |cut: &CutSummary| format!("{:.1} ms", step.seconds(cut) * 1e3);
        let own = self.cuts.iter().find(|cut| cut.layers == own.front as usize)?;
        let better = step.recommended(&self.cuts).filter(|cut| *cut != own);
        let better = better.map_or_else(String::new, |cut| {
            let layers = cut.layers;
            format!(
                " (for clients like this one {layers} layers would be better: {})",
                took(cut)
            )
        });
        let Equipment {
            speed,
            server_speed,
            delay,
            ..
        } = step.devices;
        Some(format!(
            "{client} trains {speed:.1} GFLOP/s, {delay:.1} ms away: with {server_speed:.1} GFLOP/s here, a step should take \
             {} with its model cut after {} layers{better}",
            took(own),
            own.layers
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_slow_client_far_away_it_is_said_what_its_steps_should_take() {
        let text = "rounds = 1
            clients = 2
            data = { source = 'fashion-mnist-small' }
            model = { preset = 'mcmahan-cnn' }
            training = { optimiser = { kind = 'sgd', learning_rate = 0.1 } }
            [split]
            method = { kind = 'parallel' }
            cut = 6
            devices = { speed = 5, server_speed = 50, up = 100, down = 100 }";
        let description = Description::parse(text, "test", &[]).unwrap();
        let mut advice = Advice::of(&description).unwrap().unwrap();
        let client = ClientName::new("client-1").unwrap();
        let said = advice.on(&client, 1e9, Duration::from_millis(40)).unwrap();
        assert!(
            said.starts_with("client-1 trains 1.0 GFLOP/s, 20.0 ms away: "),
            "{said}"
        );
        assert!(
            said.contains("cut after 6 layers (for clients like this one 3 layers"),
            "{said}"
        );
    }
}
