use super::*;

fn write_idx(path: &Path, shape: &[u32], body: &[u8]) {
    let mut content = vec![0, 0, 8, shape.len() as u8];
    shape.iter().for_each(|size| content.extend(size.to_be_bytes()));
    content.extend(body);
    std::fs::write(path, content).unwrap();
}

fn load(text: &str, base: &Path) -> Result<TrainAndTest, String> {
    let source: Source = toml::from_str(text).map_err(|error| error.to_string())?;
    source
        .load(base)
        .map_err(|error| error.to_string().replace(&format!("{}/", base.display()), ""))
}

#[test]
fn idx_images_get_a_channel_and_labels_their_classes() {
    let folder = tempfile::tempdir().unwrap();
    write_idx(&folder.path().join("x"), &[2, 1, 2], &[0, 255, 255, 0]);
    write_idx(&folder.path().join("y"), &[2], &[3, 0]);
    let text = "source = \"idx\"\ntrain_images = \"x\"\ntrain_labels = \"y\"\n";
    let train = load(text, folder.path()).unwrap().train;
    assert_eq!(train.example_shape(), [1, 1, 2]);
    assert_eq!(
        *train.targets(),
        Targets::Classes {
            labels: vec![3, 0],
            classes: 4
        }
    );
    let error = load(&format!("{text}classes = 3"), folder.path()).unwrap_err();
    assert_eq!(
        error,
        "y: example 0 (counted from 0) has label 3, but there are 3 classes, 0 to 2"
    );
    let error = load(&format!("{text}test_images = \"x\""), folder.path()).unwrap_err();
    assert!(error.starts_with("`test_images` is alone"), "{error}");
    write_idx(&folder.path().join("y"), &[3], &[0, 0, 0]);
    assert_eq!(
        load(text, folder.path()).unwrap_err(),
        "y: targets for 3 examples, but inputs for 2"
    );
    write_idx(&folder.path().join("y"), &[2, 1], &[0, 0]);
    assert_eq!(
        load(text, folder.path()).unwrap_err(),
        "y: labels have one dimension, not [2, 1]"
    );
}

#[test]
fn a_well_known_set_that_is_missing_says_what_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let error = load("source = \"mnist\"", folder.path()).unwrap_err();
    let expected =
        "datasets/mnist/train-images-idx3-ubyte is missing; run `selvedge data fetch mnist --into datasets/mnist`";
    assert!(error.starts_with(expected), "{error}");
    let error = load("source = \"fashion-mnist\"\nfolder = \"elsewhere\"", folder.path()).unwrap_err();
    assert!(
        error.starts_with("elsewhere/train-images-idx3-ubyte is missing"),
        "{error}"
    );
}

#[test]
fn a_well_known_set_is_found_plain_or_gzipped() {
    use std::io::Write;

    let base = tempfile::tempdir().unwrap();
    let folder = base.path().join("datasets/mnist");
    std::fs::create_dir_all(&folder).unwrap();
    write_idx(&folder.join("train-images-idx3-ubyte"), &[1, 2, 2], &[1, 2, 3, 4]);
    write_idx(&folder.join("train-labels-idx1-ubyte"), &[1], &[9]);
    write_idx(&folder.join("t10k-images-idx3-ubyte"), &[1, 2, 2], &[1, 2, 3, 4]);
    let packed = std::fs::File::create(folder.join("t10k-labels-idx1-ubyte.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    packed.write_all(&[0, 0, 8, 1, 0, 0, 0, 1, 5]).unwrap();
    packed.finish().unwrap();
    let split = load("source = \"mnist\"", base.path()).unwrap();
    assert_eq!(
        *split.train.targets(),
        Targets::Classes {
            labels: vec![9],
            classes: 10
        }
    );
    assert_eq!(
        *split.test.unwrap().targets(),
        Targets::Classes {
            labels: vec![5],
            classes: 10
        }
    );
}

#[test]
fn unknown_keys_and_sources_are_errors() {
    let error = |text| load(text, Path::new("")).unwrap_err();
    assert!(error("source = \"mnits\"").contains("unknown variant `mnits`"));
    assert!(error("source = \"mnist\"\nfoldr = \"a\"").contains("unknown field `foldr`"));
    assert!(error("source = \"fashion-mnist-small\"\nfolder = \"a\"").contains("unknown field `folder`"));
    assert!(error("source = \"csv\"\ntrain = \"a\"\nlabel = 1\nlabels = 1").contains("unknown field `labels`"));
}

#[test]
fn every_source_survives_being_written_and_read_again() {
    let texts = [
        "source = \"fashion-mnist-small\"",
        "source = \"mnist\"\nfolder = \"a\"",
        "source = \"idx\"\ntrain_images = \"a\"\ntrain_labels = \"b\"\nclasses = 3",
        "source = \"csv\"\ntrain = \"a\"\nlabel = \"y\"\nclasses = [\"n\"]\ncategorical = [1, { column = \"c\", categories = [] }]",
        "source = \"numpy\"\ntrain_inputs = \"x\"\ntrain_targets = { file = \"a\", array = \"y\" }",
    ];
    for text in texts {
        let source: Source = toml::from_str(text).unwrap();
        assert_eq!(
            toml::from_str::<Source>(&toml::to_string(&source).unwrap()).unwrap(),
            source
        );
    }
}

#[cfg(not(feature = "built-in"))]
#[test]
fn the_built_in_set_is_refused_where_it_is_not_built_in() {
    let error = load("source = \"fashion-mnist-small\"", Path::new("")).unwrap_err();
    assert!(error.contains("does not carry the built-in data set"), "{error}");
}

#[cfg(feature = "built-in")]
#[test]
fn the_built_in_set_is_what_it_says() {
    let TrainAndTest { train, test } = load("source = \"fashion-mnist-small\"", Path::new("")).unwrap();
    let test = test.unwrap();
    assert_eq!(
        (train.len(), test.len(), train.example_shape()),
        (10_000, 2_000, &[1, 28, 28][..])
    );
    let Targets::Classes { labels, classes: 10 } = train.targets() else {
        panic!("{:?}", train.targets().kind())
    };
    assert_eq!(labels[..8], [9, 0, 0, 3, 0, 2, 7, 2]);
    let mut inputs = Vec::new();
    test.gather_inputs(&[0], &mut inputs);
    assert_eq!(
        inputs.iter().map(|&value| (value * 255.0).round() as u64).sum::<u64>(),
        33456
    );
}

#[test]
fn the_test_examples_alone_are_those_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path();
    for name in ["x", "xt"] {
        write_idx(&base.join(name), &[2, 1, 2], &[0, 255, 255, 0]);
    }
    for name in ["y", "yt"] {
        write_idx(&base.join(name), &[2], &[1, 0]);
    }
    std::fs::write(base.join("train.csv"), "a,b,label\n1,red,no\n2,blue,yes\n").unwrap();
    std::fs::write(base.join("test.csv"), "a,b,label\n3,blue,yes\n").unwrap();
    let idx = "source = \"idx\"\ntrain_images = \"x\"\ntrain_labels = \"y\"\n";
    let csv = "source = \"csv\"\ntrain = \"train.csv\"\ntest = \"test.csv\"\nlabel = \"label\"\n";
    let given = "classes = [\"no\", \"yes\"]\ncategorical = [{ column = \"b\", categories = [\"blue\", \"red\"] }]\n";
    for part in ["train", "t10k"] {
        write_idx(
            &base.join(format!("{part}-images-idx3-ubyte")),
            &[2, 1, 2],
            &[0, 255, 255, 0],
        );
        write_idx(&base.join(format!("{part}-labels-idx1-ubyte")), &[2], &[9, 0]);
    }
    let needs_none = [
        "source = \"mnist\"\nfolder = \".\"".into(),
        idx.to_owned(),
        format!("{idx}test_images = \"xt\"\ntest_labels = \"yt\"\n"),
        format!("{csv}{given}"),
        "source = \"fashion-mnist-small\"".into(),
    ];
    let needs_train = format!("{csv}categorical = [\"b\"]\n");
    let source = |text: &str| toml::from_str::<Source>(text).unwrap();
    let tests: Vec<_> = needs_none
        .iter()
        .chain([&needs_train])
        .map(|text| source(text).load(base).unwrap().test)
        .collect();
    assert_eq!(source(&needs_train).load_test(base).unwrap(), tests[5]);
    for train in [
        "x",
        "y",
        "train.csv",
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
    ] {
        std::fs::remove_file(base.join(train)).unwrap();
    }
    for (text, test) in needs_none.iter().zip(&tests) {
        assert_eq!(source(text).load_test(base).unwrap(), *test, "{text}");
    }
    assert!(source(&needs_train).load_test(base).is_err());
}
