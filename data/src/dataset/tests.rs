use super::*;

fn classes(labels: &[u32], classes: usize) -> Targets {
    Targets::Classes {
        labels: labels.to_vec(),
        classes,
    }
}

#[test]
fn gathering_follows_the_indices_and_scales_bytes_to_one() {
    let bytes = Inputs::Bytes(vec![0, 255, 51, 102, 255, 0]);
    let dataset = Dataset::new(bytes, vec![1, 2], classes(&[2, 0, 1], 3)).unwrap();
    let (mut inputs, mut labels) = (vec![9.0; 3], vec![7]);
    dataset.gather_inputs(&[2, 0, 2], &mut inputs);
    dataset.gather_classes(&[2, 0, 2], &mut labels).unwrap();
    assert_eq!(inputs, [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    assert_eq!(labels, [1, 2, 1]);
    dataset.gather_inputs(&[], &mut inputs);
    assert!(inputs.is_empty());
}

#[test]
fn real_targets_are_gathered_by_rows_and_never_as_classes() {
    let targets = Targets::Values {
        values: vec![1.0, 2.0, 3.0, 4.0],
        width: 2,
    };
    let dataset = Dataset::new(Inputs::Floats(vec![0.5, 0.25]), vec![1], targets).unwrap();
    let mut values = Vec::new();
    dataset.gather_values(&[1, 0], &mut values).unwrap();
    assert_eq!(values, [3.0, 4.0, 1.0, 2.0]);
    assert!(matches!(
        dataset.gather_classes(&[0], &mut Vec::new()),
        Err(DataError::TargetsDiffer { .. })
    ));
}

#[test]
fn a_label_outside_the_classes_is_named_with_its_row() {
    let error = Dataset::new(Inputs::Bytes(vec![1, 2]), vec![1], classes(&[0, 3], 3)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "example 1 (counted from 0) has label 3, but there are 3 classes, 0 to 2"
    );
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let new = |inputs, shape, targets| Dataset::new(inputs, shape, targets).unwrap_err();
    let bytes = |count| Inputs::Bytes(vec![0; count]);
    assert!(matches!(
        new(bytes(3), vec![2], classes(&[0], 1)),
        DataError::NotWholeExamples { .. }
    ));
    assert!(matches!(
        new(bytes(3), vec![0], classes(&[0], 1)),
        DataError::NotWholeExamples { .. }
    ));
    assert!(matches!(
        new(bytes(3), vec![usize::MAX, 2], classes(&[], 1)),
        DataError::NotWholeExamples { .. }
    ));
    assert!(matches!(
        new(bytes(3), vec![1], classes(&[0], 1)),
        DataError::LengthsDiffer { .. }
    ));
    let nan = Inputs::Floats(vec![0.0, f32::NAN]);
    assert!(matches!(
        new(nan, vec![1], classes(&[0, 0], 1)),
        DataError::ValueOutsideRange { row: 1, .. }
    ));
    let above_one = Targets::MultiLabel {
        values: vec![1.5],
        width: 1,
    };
    assert!(matches!(
        new(bytes(1), vec![1], above_one),
        DataError::ValueOutsideRange { row: 0, .. }
    ));
}

#[test]
fn test_examples_of_another_shape_are_refused() {
    let of_shape = |shape: Vec<usize>| Dataset::new(Inputs::Bytes(vec![0; 4]), shape, classes(&[0], 1)).unwrap();
    let error = TrainAndTest::new(of_shape(vec![4]), Some(of_shape(vec![2, 2]))).unwrap_err();
    assert!(error.to_string().contains("[4] against [2, 2]"), "{error}");
}

#[test]
fn groups_are_numbered_by_sorted_name() {
    let names = ["b", "a", "b"].map(String::from);
    let groups = Groups::from_names(&names);
    assert_eq!(groups.names, ["a", "b"]);
    assert_eq!(groups.of_example, [1, 0, 1]);
}
