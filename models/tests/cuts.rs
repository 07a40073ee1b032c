//! What each cut of a model costs.
#![allow(clippy::unwrap_used)]

use selvedge_models::{CutSummary, ModelDescription, Preset};

fn cuts(preset: Preset) -> Vec<CutSummary> {
    preset.describe(&[1, 28, 28], 10).cuts(10).unwrap()
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
fn a_model_of_one_layer_has_no_cuts() {
    let description: ModelDescription =
        toml::from_str("input = [4]\nlayers = [{ kind = 'dense', units = 2 }]").unwrap();
    assert_eq!(description.cuts(10).unwrap(), []);
}
