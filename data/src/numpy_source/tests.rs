use super::*;

fn write_npy(path: &Path, type_code: &str, shape: &str, body: &[u8]) {
    let header = format!("{{'descr': '{type_code}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let content = [
        b"\x93NUMPY\x01\x00",
        &(header.len() as u16).to_le_bytes()[..],
        header.as_bytes(),
        body,
    ]
    .concat();
    std::fs::write(path, content).unwrap();
}

/// A folder with byte images `x.npy`, labels `y.npy`, values `v.npy`, and groups `g.npy` for two examples.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_npy(&at("x.npy"), "|u1", "(2, 1, 2, 2)", &[0, 51, 102, 255, 0, 0, 255, 255]);
    write_npy(&at("y.npy"), "<i8", "(2,)", &[4_i64, 2].map(i64::to_le_bytes).concat());
    write_npy(
        &at("v.npy"),
        "<f8",
        "(2, 2)",
        &[0.5_f64, 1.0, 0.0, 1.0].map(f64::to_le_bytes).concat(),
    );
    write_npy(&at("g.npy"), "<i4", "(2,)", &[12_i32, 7].map(i32::to_le_bytes).concat());
    write_npy(&at("negative.npy"), "|i1", "(2,)", &[0, 255]);
    write_npy(&at("three.npy"), "|u1", "(3,)", &[0, 0, 0]);
    write_npy(
        &at("nan.npy"),
        "<f4",
        "(2,)",
        &[f32::NAN, 1.0].map(f32::to_le_bytes).concat(),
    );
    folder
}

fn load(settings: &str) -> Result<TrainAndTest, String> {
    let folder = folder();
    let arrays: NumpyArrays = toml::from_str(settings).map_err(|error| error.to_string())?;
    let place = format!("{}/", folder.path().display());
    arrays
        .load(folder.path())
        .map_err(|error| error.to_string().replace(&place, ""))
}

#[test]
fn byte_images_with_classes_and_groups_are_loaded() {
    let settings = "train_inputs = \"x.npy\"\ntrain_targets = \"y.npy\"\ngroup = \"g.npy\"\n\
                    test_inputs = \"x.npy\"\ntest_targets = \"y.npy\"";
    let TrainAndTest { train, test } = load(settings).unwrap();
    assert_eq!(train.example_shape(), [1, 2, 2]);
    let mut inputs = Vec::new();
    train.gather_inputs(&[0], &mut inputs);
    assert_eq!(inputs, [0.0, 0.2, 0.4, 1.0]);
    assert_eq!(
        *train.targets(),
        Targets::Classes {
            labels: vec![4, 2],
            classes: 5
        }
    );
    let groups = train.groups().unwrap();
    assert_eq!(
        (groups.names.join(" "), groups.of_example.clone()),
        ("7 12".into(), vec![1, 0])
    );
    assert_eq!(test.unwrap().len(), 2);
}

#[test]
fn rows_of_floats_are_multi_label_targets_or_values() {
    let settings = "train_inputs = \"y.npy\"\ntrain_targets = \"v.npy\"\ntargets = ";
    let train = load(&format!("{settings}\"multi-label\"")).unwrap().train;
    assert_eq!(train.example_shape(), [1]);
    assert_eq!(
        *train.targets(),
        Targets::MultiLabel {
            values: vec![0.5, 1.0, 0.0, 1.0],
            width: 2
        }
    );
    let train = load(&format!("{settings}\"values\"")).unwrap().train;
    assert_eq!(train.targets().kind(), "values");
}

#[test]
fn bad_arrays_are_refused_with_their_file() {
    let cases = [
        ("\"x.npy\"", "\"v.npy\"", "v.npy: class labels are integers, not floats"),
        (
            "\"x.npy\"",
            "\"negative.npy\"",
            "negative.npy: example 1 (counted from 0) has label -1",
        ),
        (
            "\"x.npy\"",
            "\"three.npy\"",
            "three.npy: targets for 3 examples, but inputs for 2",
        ),
        (
            "\"x.npy\"",
            "\"y.npy\"\nclasses = 4",
            "y.npy: example 0 (counted from 0) has label 4, but there are 4",
        ),
        ("\"x.npy\"", "\"absent.npy\"", "absent.npy: "),
        (
            "\"x.npy\"",
            "\"y.npy\"\ngroup = \"v.npy\"",
            "v.npy: groups are integers, not floats",
        ),
        (
            "\"x.npy\"",
            "\"y.npy\"\ntest_inputs = \"x.npy\"",
            "`test_inputs` is alone",
        ),
        (
            "\"nan.npy\"",
            "\"y.npy\"",
            "nan.npy: example 0 (counted from 0) has input NaN",
        ),
        (
            "{ file = \"x.npy\", array = \"a\" }",
            "\"y.npy\"",
            "x.npy: not a sound .npz archive",
        ),
    ];
    for (inputs, targets, expected) in cases {
        let error = load(&format!("train_inputs = {inputs}\ntrain_targets = {targets}")).unwrap_err();
        assert!(error.starts_with(expected), "{error}\nexpected: {expected}");
    }
}
