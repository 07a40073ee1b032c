//! How long a step of split learning is predicted to take, and which cut is recommended.
#![allow(clippy::unwrap_used)]

use selvedge_models::{CutSummary, ModelDescription, Preset, STEP};
use selvedge_protocols::{
    Description,
    split::{Alignment, Equipment, StepEncoding, StepTime, alignment::Towards},
};

/// A slow client, a server a hundred times as fast, and links between them without limit.
fn without_links() -> StepTime {
    let devices = Equipment {
        speed: 1.0,
        server_speed: 100.0,
        up: None,
        down: None,
        delay: 0.0,
    };
    StepTime::new(devices, 10, 1)
}

fn cuts(preset: Preset) -> Vec<CutSummary> {
    preset.describe(&[1, 28, 28], 10).cuts(10).unwrap()
}

/// How many layers the recommended cut leaves to the client when links carry so many megabits a second each way.
fn recommended(cuts: &[CutSummary], link: Option<f64>) -> usize {
    let devices = Equipment {
        up: link,
        down: link,
        ..without_links().devices
    };
    let step = StepTime {
        devices,
        ..without_links()
    };
    step.recommended(cuts).unwrap().layers
}

#[test]
fn a_step_takes_the_sum_of_its_terms() {
    let cut = CutSummary {
        layers: 1,
        place: "0".into(),
        kind: "dense",
        front_parameters: 1,
        back_parameters: 1,
        front_operations: 1_000_000,
        back_operations: 8_000_000,
        front_memory: 0,
        values: 100_000,
    };
    let devices = Equipment {
        speed: 0.01,
        server_speed: 1.0,
        up: Some(8.0),
        down: Some(32.0),
        delay: 500.0,
    };
    let step = StepTime::new(devices, 2, 5);
    let (client, up, server, down) = (STEP * 0.2, 0.8, STEP * 0.08, 0.2);
    let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} is not {other}");
    near(step.seconds(&cut), client + up + server + down + 1.0);
    let narrow = StepTime {
        smashed: StepEncoding::Bf16,
        gradients: StepEncoding::Int8,
        ..step.clone()
    };
    near(narrow.seconds(&cut), client + up / 2.0 + server + 0.050004 + 1.0);

    // A head of a sixteenth of the back's work, and a fourth of the values.
    let head = CutSummary {
        back_operations: 500_000,
        values: 25_000,
        ..cut.clone()
    };
    let u_shape = StepTime {
        head: Some(head),
        ..step.clone()
    };
    let (client_u, server_u) = (client + STEP * 0.1, server * 15.0 / 16.0);
    near(
        u_shape.seconds(&cut),
        client_u + 1.25 * up + server_u + 1.25 * down + 2.0,
    );

    // φ = 0.5: a forward of all five batches, then a step of a half and of five halves.
    let aggregated = StepTime {
        server_work: 5.0 + 3.0 * 3.0,
        ..step.clone()
    };
    near(
        aggregated.seconds(&cut),
        client + up + 14.0 / 15.0 * server + down + 1.0,
    );

    // A front of one parameter: its sketch and its gradient are 4 bytes each.
    let aligned = |alignment| StepTime {
        alignment: Some(alignment),
        ..step.clone()
    };
    let leading = (8.0 * 8.0 / 8e6 + 4.0 * 8.0 / 32e6 + 2.0) / 5.0;
    let alone = client + up + server + down + 1.0;
    near(aligned(Alignment::default()).seconds(&cut), alone + leading);
    let regularised = Alignment {
        towards: Towards::Regulariser { distance: 0.01 },
        ..Alignment::default()
    };
    near(aligned(regularised).seconds(&cut), 2.0 * alone + leading);
}

#[test]
fn slower_links_move_the_cut_to_where_less_crosses() {
    let cuts = cuts(Preset::McmahanCnn);
    // Without limits the client does as little as it can, but for pooling, which costs it little and sends a fourth.
    assert_eq!(recommended(&cuts, None), 3);
    // The ReLU after the dense layer gives as many values, for more work.
    assert_eq!(recommended(&cuts, Some(0.8)), 8);
    let mut crossing = u64::MAX;
    for link in [1e7, 8e3, 8e2, 240.0, 80.0, 8.0, 0.8, 0.08] {
        let values = cuts[recommended(&cuts, Some(link)) - 1].values;
        assert!(values <= crossing, "{values} values cross at {link} Mbit/s");
        crossing = values;
    }
}

#[test]
fn a_busy_server_leaves_more_to_the_clients() {
    let cuts = cuts(Preset::McmahanCnn);
    let step = StepTime::new(without_links().devices, 10, 1_000);
    assert_eq!(step.recommended(&cuts).unwrap().layers, 8);
}

#[test]
fn a_front_that_learns_nothing_is_recommended_only_for_want_of_another() {
    let mlp = cuts(Preset::Mlp);
    assert_eq!(mlp[0].front_parameters, 0);
    let seconds = |cut: &CutSummary| without_links().seconds(cut);
    assert!(seconds(&mlp[0]) < seconds(&mlp[1]));
    assert_eq!(recommended(&mlp, None), 2);
    assert_eq!(recommended(&cuts(Preset::LogisticRegression), None), 1);
}

#[test]
fn of_equal_cuts_the_one_with_fewer_front_layers_is_recommended() {
    let description: ModelDescription = toml::from_str(
        "input = [2, 3, 3]
        layers = [
            { kind = 'conv2d', channels = 1, kernel = 3 },
            { kind = 'flatten' },
            { kind = 'dense', units = 2 },
        ]",
    )
    .unwrap();
    let cuts = description.cuts(1).unwrap();
    let seconds = |cut: &CutSummary| without_links().seconds(cut);
    assert_eq!(seconds(&cuts[0]), seconds(&cuts[1]));
    assert_eq!(recommended(&cuts, None), 1);
}

#[test]
fn what_is_recommended_leaves_the_server_something_to_train() {
    for labels in ["sent", "u-shape"] {
        for link in [1e4, 10.0, 0.1] {
            let description = |cut: usize| {
                let text = format!(
                    "rounds = 1
                    clients = 2
                    data = {{ source = 'fashion-mnist-small' }}
                    model = {{ preset = 'mcmahan-cnn' }}
                    training = {{ optimiser = {{ kind = 'sgd', learning_rate = 0.1 }} }}
                    [split]
                    method = {{ kind = 'parallel' }}
                    labels = '{labels}'
                    cut = {cut}
                    devices = {{ speed = 1, server_speed = 100, up = {link}, down = {link} }}"
                );
                Description::parse(&text, "test", &[])
            };
            let any = description(1).unwrap();
            let split = any.split.unwrap();
            let step = split.step_time(&any.model, split.devices.unwrap(), 10, 2).unwrap();
            for cut in any.model.cuts(10).unwrap() {
                assert_eq!(
                    step.is_possible(&cut),
                    description(cut.layers).is_ok(),
                    "{labels}, {cut:?}"
                );
            }
            let recommended = step.recommended(&any.model.cuts(10).unwrap()).unwrap().layers;
            assert!(description(recommended).is_ok(), "{labels}, {link}");
        }
    }
}

#[test]
fn without_cuts_none_is_recommended() {
    assert_eq!(without_links().recommended(&[]), None);
}
