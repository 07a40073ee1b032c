use super::*;

/// Loads `train` (and `test`) with the other settings given as TOML.
fn load(settings: &str, train: &str, test: Option<&str>) -> Result<TrainAndTest, String> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train.csv"), train).unwrap();
    let mut text = format!("train = \"train.csv\"\n{settings}\n");
    if let Some(test) = test {
        std::fs::write(folder.path().join("test.csv"), test).unwrap();
        text += "test = \"test.csv\"\n";
    }
    let tables: CsvTables = toml::from_str(&text).map_err(|error| error.to_string())?;
    let place = format!("{}/", folder.path().display());
    tables
        .load(folder.path())
        .map_err(|error| error.to_string().replace(&place, ""))
}

fn inputs(dataset: &Dataset) -> Vec<f32> {
    let mut inputs = Vec::new();
    dataset.gather_inputs(&(0..dataset.len() as u32).collect::<Vec<_>>(), &mut inputs);
    inputs
}

const PEOPLE: &str = "age, job, town, income\n30, nurse, b, high\n40, baker, a, low\n\n50, nurse, b, low\n";

#[test]
fn categories_become_one_hot_in_sorted_order_and_labels_classes() {
    let settings = "label = \"income\"\ncategorical = [\"job\"]\nignore = [\"town\"]";
    let TrainAndTest { train, test } = load(settings, PEOPLE, Some("age,job,town,income\n1,baker,c,low\n")).unwrap();
    assert_eq!(train.example_shape(), [3]);
    assert_eq!(inputs(&train), [30.0, 0.0, 1.0, 40.0, 1.0, 0.0, 50.0, 0.0, 1.0]);
    assert_eq!(
        *train.targets(),
        Targets::Classes {
            labels: vec![0, 1, 1],
            classes: 2
        }
    );
    let test = test.unwrap();
    assert_eq!(inputs(&test), [1.0, 1.0, 0.0]);
    assert_eq!(
        *test.targets(),
        Targets::Classes {
            labels: vec![1],
            classes: 2
        }
    );
}

#[test]
fn the_order_of_rows_does_not_change_the_numbers_of_categories() {
    let rows = ["1,x,10", "2,y,9", "3,z,10", "4,x,2"];
    let settings = "header = false\nlabel = 2\ncategorical = [1]";
    let forward = load(settings, &rows.join("\n"), None).unwrap().train;
    let backward = load(
        settings,
        &rows.iter().rev().copied().collect::<Vec<_>>().join("\n"),
        None,
    )
    .unwrap()
    .train;
    let Targets::Classes { labels, classes: 3 } = forward.targets() else {
        panic!("{:?}", forward.targets())
    };
    assert_eq!(labels, &[2, 1, 2, 0], "integers are ordered by value");
    let reversed: Vec<f32> = inputs(&backward).chunks(4).rev().flatten().copied().collect();
    assert_eq!(inputs(&forward), reversed);
}

#[test]
fn columns_can_be_given_by_index_and_groups_by_name() {
    let settings = "label = 3\ncategorical = [1]\ngroup = \"town\"";
    let train = load(settings, PEOPLE, None).unwrap().train;
    assert_eq!(train.example_shape(), [3]);
    let groups = train.groups().unwrap();
    assert_eq!(
        (groups.names.join(" "), groups.of_example.clone()),
        ("a b".into(), vec![1, 0, 1])
    );
}

#[test]
fn standardised_columns_have_mean_zero_and_deviation_one_as_measured_in_training() {
    let settings = "label = \"y\"\nstandardise = true\ncategorical = [\"c\"]";
    let split = load(
        settings,
        "a,same,c,y\n1,7,p,0\n3,7,p,1\n",
        Some("a,same,c,y\n5,8,p,0\n"),
    )
    .unwrap();
    assert_eq!(inputs(&split.train), [-1.0, 0.0, 1.0, 1.0, 0.0, 1.0]);
    assert_eq!(inputs(&split.test.unwrap()), [3.0, 1.0, 1.0]);
}

#[test]
fn several_label_columns_are_multi_label_or_values() {
    let table = "x,p,q\n1,0,1\n2,1,1\n";
    let train = load("label = [\"p\", \"q\"]\ntargets = \"multi-label\"", table, None)
        .unwrap()
        .train;
    assert_eq!(
        *train.targets(),
        Targets::MultiLabel {
            values: vec![0.0, 1.0, 1.0, 1.0],
            width: 2
        }
    );
    let train = load("label = \"q\"\ntargets = \"values\"", table, None).unwrap().train;
    assert_eq!(
        *train.targets(),
        Targets::Values {
            values: vec![1.0, 1.0],
            width: 1
        }
    );
}

#[test]
fn given_classes_and_categories_keep_their_order_even_where_some_are_missing() {
    let settings =
        "label = \"y\"\nclasses = [\"no\", \"yes\"]\ncategorical = [{ column = \"c\", categories = [\"q\", \"p\"] }]";
    let train = load(settings, "c,y\np,yes\n", None).unwrap().train;
    assert_eq!(inputs(&train), [0.0, 1.0]);
    assert_eq!(
        *train.targets(),
        Targets::Classes {
            labels: vec![1],
            classes: 2
        }
    );
    let train = load("label = \"y\"\nclasses = 10", "c,y\n1,7\n", None).unwrap().train;
    assert_eq!(
        *train.targets(),
        Targets::Classes {
            labels: vec![7],
            classes: 10
        }
    );
}

#[test]
fn bad_tables_are_refused_with_file_line_and_column() {
    let cases = [
        (
            "label = \"y\"",
            "a,y\n1,0\n,1\n",
            "train.csv: line 3, column `a`: the cell is empty",
        ),
        (
            "label = \"y\"",
            "a,y\n1,0\n2, \n",
            "train.csv: line 3, column `y`: the cell is empty",
        ),
        (
            "label = \"y\"",
            "a,y\nred,0\n",
            "train.csv: line 2, column `a`: `red` is not a number; if the column holds",
        ),
        (
            "label = \"y\"",
            "a,y\nNaN,0\n",
            "train.csv: line 2, column `a`: `NaN` is not a finite number",
        ),
        (
            "label = \"y\"",
            "a,y\n1,0\n1\n",
            "train.csv: CSV error: record 2 (line: 3",
        ),
        (
            "label = \"y\"\nclasses = 2",
            "a,y\n1,2\n",
            "train.csv: line 2, column `y`: `2` is not among the classes",
        ),
        (
            "label = \"z\"",
            "a,y\n1,0\n",
            "train.csv: no column `z`; there are: a, y",
        ),
        ("label = 2", "a,y\n1,0\n", "train.csv: no column 2 (counted from 0)"),
        (
            "label = \"y\"\nignore = [\"y\"]",
            "a,y\n1,0\n",
            "train.csv: column `y` is given two roles",
        ),
        ("label = \"y\"", "y\n1\n", "train.csv: no column is left for the inputs"),
        ("label = \"y\"", "", "train.csv: the table is empty"),
        (
            "label = [\"a\", \"y\"]",
            "a,y,x\n1,0,1\n",
            "train.csv: `label` is 2 columns",
        ),
        (
            "label = \"y\"\ndelimiter = \"→\"",
            "a,y\n1,0\n",
            "train.csv: `delimiter` is →",
        ),
        (
            "label = \"y\"\nclasses = 9999999",
            "a,y\n1,0\n",
            "train.csv: `classes` is 9999999",
        ),
    ];
    for (settings, table, expected) in cases {
        let error = load(settings, table, None).unwrap_err();
        assert!(error.starts_with(expected), "{error}\nexpected: {expected}");
    }
}

#[test]
fn a_test_table_must_have_the_columns_categories_and_classes_of_training() {
    let settings = "label = \"y\"\ncategorical = [\"c\"]";
    let error = |test| load(settings, "c,y\np,0\nq,1\n", Some(test)).unwrap_err();
    assert!(error("y,c\n0,p\n").starts_with("test.csv: training and test examples differ: columns c, y against y, c"));
    assert_eq!(
        error("c,y\nr,0\n"),
        "test.csv: line 2, column `c`: `r` is not among the column's categories"
    );
    assert_eq!(
        error("c,y\np,2\n"),
        "test.csv: line 2, column `y`: `2` is not among the classes"
    );
}

#[test]
fn a_missing_table_and_an_unknown_key_are_named() {
    let tables: CsvTables = toml::from_str("train = \"absent.csv\"\nlabel = 0").unwrap();
    assert!(
        tables
            .load(Path::new("nowhere"))
            .unwrap_err()
            .to_string()
            .starts_with("nowhere/absent.csv: ")
    );
    assert!(
        load("label = 0\nlabels = 1", "a,y\n1,0\n", None)
            .unwrap_err()
            .contains("unknown field `labels`")
    );
}

#[test]
fn a_gzipped_table_is_read_and_a_bomb_is_not() {
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    let folder = tempfile::tempdir().unwrap();
    let load = |content: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        std::fs::write(folder.path().join("t.csv.gz"), encoder.finish().unwrap()).unwrap();
        toml::from_str::<CsvTables>("train = \"t.csv.gz\"\nlabel = 1")
            .unwrap()
            .load(folder.path())
    };
    assert_eq!(load(b"a,y\n1,0\n").unwrap().train.len(), 1);
    let bomb = [b"a,y\n", "1,0\n".repeat(1_000_000).as_bytes()].concat();
    assert!(
        load(&bomb)
            .unwrap_err()
            .to_string()
            .contains("more than 200 times its size")
    );
}
