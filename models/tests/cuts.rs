//! What each cut of a model costs, and which one is recommended.
#![allow(clippy::unwrap_used)]

use selvedge_models::{CutEncoding, CutSummary, ModelDescription, Preset, STEP, SplitStep};

/// A slow client, a server a hundred times as fast, and links between them without limit.
const STEP_WITHOUT_LINKS: SplitStep = SplitStep {
    speed: 1e9,
    server_speed: 1e11,
    uplink: f64::INFINITY,
    downlink: f64::INFINITY,
    latency: 0.0,
    batch: 10,
    clients: 1,
    encoding: CutEncoding::F32,
};

fn cuts(preset: Preset) -> Vec<CutSummary> {
    preset.describe(&[1, 28, 28], 10).cuts(10).unwrap()
}

/// The layers in front of the recommended cut when links carry so many bytes a second each way.
fn recommended(cuts: &[CutSummary], link: f64) -> usize {
    let step = SplitStep {
        uplink: link,
        downlink: link,
        ..STEP_WITHOUT_LINKS
    };
    step.recommended(cuts).unwrap().layers
}

#[test]
fn the_mcmahan_cnn_cut_after_its_first_block() {
    let cuts = cuts(Preset::McmahanCnn);
    assert_eq!(cuts.len(), 9);
    let convolution = 32 * 28 * 28 * (2 * 25 + 1);
    let cut = &cuts[2];
    assert_eq!((cut.layers, cut.place.as_str(), cut.kind), (3, "2", "max-pool2d"));
    assert_eq!(cut.front_parameters, 832);
    assert_eq!(cut.back_parameters, 1_663_370 - 832);
    // The convolution, an operation for each value of the ReLU, and the pool's windows of four values.
    assert_eq!(cut.front_operations, convolution + 32 * 28 * 28 + 32 * 14 * 14 * 4);
    assert_eq!(cut.values, 32 * 14 * 14);
    // Six values for each parameter, and what lies between the layers of ten examples and of their gradient.
    let between = 28 * 28 + 2 * 32 * 28 * 28 + 32 * 14 * 14;
    assert_eq!(cut.front_memory, 4 * (6 * 832 + 2 * 10 * between));
}

#[test]
fn front_and_back_are_the_whole() {
    for preset in [Preset::McmahanCnn, Preset::ResNet8, Preset::HeteroflCnn] {
        let description = preset.describe(&[1, 28, 28], 10);
        let whole = description.summary().unwrap();
        let cuts = description.cuts(1).unwrap();
        assert_eq!(cuts.len(), description.layers.len() - 1);
        for cut in cuts {
            assert_eq!(cut.front_parameters + cut.back_parameters, whole.parameters);
            assert_eq!(cut.front_operations + cut.back_operations, whole.operations);
            let (front, back) = description.cut(cut.layers).unwrap();
            let (front, back) = (front.summary().unwrap(), back.summary().unwrap());
            assert_eq!(
                (cut.front_parameters, cut.front_operations),
                (front.parameters, front.operations)
            );
            assert_eq!(
                (cut.back_parameters, cut.back_operations),
                (back.parameters, back.operations)
            );
            assert_eq!(cut.place, front.layers.last().unwrap().place);
            assert_eq!(cut.values, back.layers[0].input.iter().product::<usize>() as u64);
        }
    }
}

#[test]
fn a_part_that_is_cut_again_keeps_the_places_of_the_whole() {
    let (_, back) = Preset::McmahanCnn.describe(&[1, 28, 28], 10).cut(3).unwrap();
    let cuts = back.cuts(10).unwrap();
    assert_eq!((cuts[0].layers, cuts[0].place.as_str()), (1, "3"));
}

#[test]
fn a_step_takes_the_sum_of_its_terms() {
    let cut = CutSummary {
        layers: 1,
        place: "0".into(),
        kind: "dense",
        front_parameters: 1,
        back_parameters: 1,
        front_operations: 1_000,
        back_operations: 8_000,
        front_memory: 0,
        values: 100,
    };
    let step = SplitStep {
        speed: 1e4,
        server_speed: 1e6,
        uplink: 1e3,
        downlink: 4e3,
        latency: 0.5,
        batch: 2,
        clients: 5,
        encoding: CutEncoding::F32,
    };
    let (client, up, server, down) = (STEP * 0.2, 0.8, STEP * 0.08, 0.2);
    let near = |one: f64, other: f64| assert!((one - other).abs() < 1e-12, "{one} is not {other}");
    near(step.seconds(&cut), client + up + server + down + 1.0);
    let bf16 = SplitStep {
        encoding: CutEncoding::Bf16,
        ..step
    };
    near(bf16.seconds(&cut), client + up / 2.0 + server + down / 2.0 + 1.0);
    let int8 = SplitStep {
        encoding: CutEncoding::Int8,
        ..step
    };
    near(int8.seconds(&cut), client + 0.216 + server + 0.054 + 1.0);
}

#[test]
fn slower_links_move_the_cut_to_where_less_crosses() {
    let cuts = cuts(Preset::McmahanCnn);
    // Without limits the client does as little as it can.
    assert_eq!(recommended(&cuts, f64::INFINITY), 1);
    // The ReLU after the dense layer gives as many values, for more work.
    assert_eq!(recommended(&cuts, 1e5), 8);
    let mut crossing = u64::MAX;
    for link in [1e12, 1e9, 1e8, 3e7, 1e7, 1e6, 1e5, 1e4] {
        let values = cuts[recommended(&cuts, link) - 1].values;
        assert!(values <= crossing, "{values} values cross at {link} bytes/s");
        crossing = values;
    }
}

#[test]
fn a_busy_server_leaves_more_to_the_clients() {
    let cuts = cuts(Preset::McmahanCnn);
    let step = SplitStep {
        clients: 1_000,
        ..STEP_WITHOUT_LINKS
    };
    assert_eq!(step.recommended(&cuts).unwrap().layers, 9);
}

#[test]
fn a_front_that_learns_nothing_is_recommended_only_for_want_of_another() {
    let mlp = cuts(Preset::Mlp);
    assert_eq!(mlp[0].front_parameters, 0);
    let seconds = |cut: &CutSummary| STEP_WITHOUT_LINKS.seconds(cut);
    assert!(seconds(&mlp[0]) < seconds(&mlp[1]));
    assert_eq!(recommended(&mlp, f64::INFINITY), 2);
    assert_eq!(recommended(&cuts(Preset::LogisticRegression), f64::INFINITY), 1);
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
    let seconds = |cut: &CutSummary| STEP_WITHOUT_LINKS.seconds(cut);
    assert_eq!(seconds(&cuts[0]), seconds(&cuts[1]));
    assert_eq!(recommended(&cuts, f64::INFINITY), 1);
}

#[test]
fn a_model_of_one_layer_has_no_cuts() {
    let description: ModelDescription =
        toml::from_str("input = [4]\nlayers = [{ kind = 'dense', units = 2 }]").unwrap();
    assert_eq!(description.cuts(10).unwrap(), []);
    assert_eq!(STEP_WITHOUT_LINKS.recommended(&[]), None);
}
