//! What a client is sent of a model.

#![allow(clippy::unwrap_used)] // What cannot go on must fail.

use selvedge_protocols::Description;

const DESCRIPTION: &str = r#"
    rounds = 1
    clients = 1
    data = { source = "fashion-mnist-small" }
    training = { optimiser = { kind = "sgd", learning_rate = 0.1 } }
    algorithm = { kind = "fedper", personal = ["1", "2"] }
    [model]
    input = [4]
    layers = [
        { kind = "dense", units = 8 },
        { kind = "batch-norm" },
        { kind = "dense", units = 6 },
        { kind = "dense", units = 3 },
    ]
"#;

#[test]
fn with_personal_layers_what_travels_is_laid_out_without_them() {
    let description = Description::parse(DESCRIPTION, "test", &[]).unwrap();
    let parts = description.parts().unwrap();
    let part = parts.whole();
    let names: Vec<&str> = part
        .layout
        .parameters
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    assert_eq!(names, ["0.weight", "0.bias", "3.weight", "3.bias"]);
    assert_eq!(part.layout.parameter_count(), part.coordinates.parameters.count());
    assert_eq!(part.layout.buffer_count(), part.coordinates.buffers.count());

    // Each tensor is where extracting puts it.
    let whole = &part.personal.as_ref().unwrap().layout;
    let places: Vec<f32> = (0..whole.parameter_count()).map(|at| at as f32).collect();
    let travelling = part.coordinates.parameters.extract(&places);
    for tensor in &part.layout.parameters {
        let in_whole = whole.parameters.iter().find(|known| known.name == tensor.name).unwrap();
        assert_eq!(travelling[tensor.range()], places[in_whole.range()], "{}", tensor.name);
    }
}
