use proptest::prelude::*;
use rand::SeedableRng;

use super::*;
use crate::{Groups, Inputs, Targets};

fn generator(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn labelled(labels: Vec<u32>, classes: usize) -> Dataset {
    let inputs = Inputs::Bytes(vec![0; labels.len()]);
    Dataset::new(inputs, vec![1], Targets::Classes { labels, classes }).unwrap()
}

/// `each` examples of each of `classes` classes, in turn.
fn balanced(each: usize, classes: usize) -> Dataset {
    labelled(
        (0..each * classes).map(|example| (example % classes) as u32).collect(),
        classes,
    )
}

fn sizes(partition: &Partition) -> Vec<usize> {
    (0..partition.clients())
        .map(|client| partition.client(client).len())
        .collect()
}

fn label_histogram(partition: &Partition, dataset: &Dataset) -> Vec<Vec<u64>> {
    let clients = 0..partition.clients();
    clients
        .map(|client| partition.client_histogram(client, dataset).unwrap())
        .collect()
}

fn classes_held(partition: &Partition, dataset: &Dataset) -> Vec<usize> {
    let held = |counts: &Vec<u64>| counts.iter().filter(|&&count| count > 0).count();
    label_histogram(partition, dataset).iter().map(held).collect()
}

fn all_dealt_once(partition: &Partition, examples: usize) -> bool {
    let mut dealt: Vec<u32> = (0..partition.clients())
        .flat_map(|client| partition.client(client))
        .copied()
        .collect();
    dealt.sort_unstable();
    dealt == (0..examples as u32).collect::<Vec<_>>()
}

fn any_description() -> impl Strategy<Value = PartitionDescription> {
    prop_oneof![
        Just(PartitionDescription::Iid {}),
        (-6.0..6.0_f64).prop_map(|exponent| PartitionDescription::Dirichlet {
            alpha: 10_f64.powf(exponent)
        }),
        prop_oneof![1..8_usize, 1..65536_usize].prop_map(|per_client| PartitionDescription::Shards { per_client }),
        (prop_oneof![0.0..3.0, 0.0..100.0_f64], proptest::option::of(1..9_usize)).prop_map(
            |(exponent, classes_per_client)| PartitionDescription::PowerLaw {
                exponent,
                classes_per_client
            }
        ),
    ]
}

proptest! {
    #[test]
    fn every_example_is_dealt_exactly_once(
        description in any_description(),
        labels in prop::collection::vec(0..7_u32, 0..300),
        clients in prop_oneof![1..20_usize, 1..1000_usize],
        seed: u64,
    ) {
        let dataset = labelled(labels, 7);
        let partition = description.deal(&dataset, clients, &mut generator(seed)).unwrap();
        prop_assert_eq!(partition.clients(), clients);
        prop_assert!(all_dealt_once(&partition, dataset.len()));
        let again = description.deal(&dataset, clients, &mut generator(seed)).unwrap();
        prop_assert_eq!(partition, again);
    }

    #[test]
    fn a_natural_partition_gives_each_group_its_own_examples(groups in prop::collection::vec(0..9_u32, 1..100)) {
        let names: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let groups = Groups::from_names(&names);
        let count = groups.names.len();
        let dataset = labelled(vec![0; names.len()], 1).with_groups(groups.clone()).unwrap();
        let partition = PartitionDescription::Natural {}.deal(&dataset, count, &mut generator(0)).unwrap();
        prop_assert!(all_dealt_once(&partition, dataset.len()));
        for client in 0..count {
            prop_assert!(partition.client(client).iter().all(|&example| names[example as usize] == groups.names[client]));
        }
    }

    #[test]
    fn a_holdout_and_the_rest_are_the_whole(
        examples in 0..200_usize, clients in 1..50_usize, fraction in 0.0..1.0_f64, seed: u64,
    ) {
        let whole = PartitionDescription::Iid {}.deal(&balanced(examples, 1), clients, &mut generator(seed)).unwrap();
        let (kept, held_out) = whole.split_holdout(fraction, &mut generator(seed)).unwrap();
        for client in 0..clients {
            let mut both = [kept.client(client), held_out.client(client)].concat();
            both.sort_unstable();
            prop_assert_eq!(both, whole.client(client));
            prop_assert_eq!(held_out.client(client).len(), (whole.client(client).len() as f64 * fraction) as usize);
            prop_assert!(whole.client(client).is_empty() || !kept.client(client).is_empty());
        }
    }

    #[test]
    fn iid_sizes_differ_by_at_most_one(examples in 0..500_usize, clients in 1..600_usize, seed: u64) {
        let partition = PartitionDescription::Iid {}.deal(&balanced(examples, 1), clients, &mut generator(seed)).unwrap();
        let sizes = sizes(&partition);
        prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
    }
}

#[test]
fn a_small_alpha_gives_each_class_to_one_client_and_a_large_one_makes_clients_alike() {
    let dataset = balanced(1000, 10);
    let deal = |alpha| {
        PartitionDescription::Dirichlet { alpha }
            .deal(&dataset, 20, &mut generator(3))
            .unwrap()
    };
    let few = deal(1e-6);
    assert_eq!(
        classes_held(&few, &dataset).iter().sum::<usize>(),
        10,
        "each class has one holder"
    );
    let histogram = label_histogram(&deal(1e6), &dataset);
    assert!(
        histogram.iter().flatten().all(|&count| (48..=52).contains(&count)),
        "{histogram:?}"
    );
}

#[test]
fn dirichlet_shares_have_the_mean_and_variance_of_their_distribution() {
    // Share of one of 4 clients ~ Beta(a, 3a): mean 1/4, variance 3 / (16 (4a + 1)); here a = 0.5, variance 1/16.
    let (classes, each) = (2000, 100);
    let dataset = balanced(each, classes);
    let partition = PartitionDescription::Dirichlet { alpha: 0.5 }
        .deal(&dataset, 4, &mut generator(1))
        .unwrap();
    for counts in label_histogram(&partition, &dataset) {
        let shares = counts.iter().map(|&count| count as f64 / each as f64);
        let mean = shares.clone().sum::<f64>() / classes as f64;
        let variance = shares.map(|share| (share - mean).powi(2)).sum::<f64>() / classes as f64;
        assert!((mean - 0.25).abs() < 0.03, "{mean}");
        assert!((variance - 0.0625).abs() < 0.01, "{variance}");
    }
}

#[test]
fn scarce_examples_of_several_classes_do_not_fall_on_the_same_clients() {
    let dataset = balanced(10, 10);
    let description = PartitionDescription::Dirichlet { alpha: 1e6 };
    let partition = description.deal(&dataset, 1000, &mut generator(5)).unwrap();
    let holders = sizes(&partition).iter().filter(|&&size| size > 0).count();
    assert!(holders > 80, "{holders} of 1000 clients hold the 100 examples");
}

#[test]
fn two_shards_a_client_are_at_most_a_few_classes_and_equal_sizes() {
    let dataset = balanced(600, 10);
    let description = PartitionDescription::Shards { per_client: 2 };
    let partition = description.deal(&dataset, 100, &mut generator(1)).unwrap();
    assert!(sizes(&partition).iter().all(|&size| size == 60));
    assert!(
        classes_held(&partition, &dataset).iter().all(|&held| held <= 2),
        "shards divide the classes here"
    );
}

#[test]
fn power_law_sizes_follow_the_law_whoever_has_which_rank() {
    let dataset = balanced(6_000, 2);
    let description = PartitionDescription::PowerLaw {
        exponent: 1.0,
        classes_per_client: None,
    };
    let mut sizes = sizes(&description.deal(&dataset, 50, &mut generator(2)).unwrap());
    let sum: f64 = (1..=50).map(|rank| 1.0 / f64::from(rank)).sum();
    assert!(!sizes.is_sorted_by(|a, b| a >= b), "ranks are drawn");
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    for (rank, &size) in sizes.iter().enumerate() {
        let share = 12_000.0 / (rank as f64 + 1.0) / sum;
        assert!(
            (size as f64 - share).abs() < 1.0,
            "rank {rank}: {size} for a share of {share}"
        );
    }
}

#[test]
fn a_flat_power_law_is_even() {
    let description = PartitionDescription::PowerLaw {
        exponent: 0.0,
        classes_per_client: None,
    };
    let sizes = sizes(&description.deal(&balanced(10, 10), 7, &mut generator(2)).unwrap());
    assert!(sizes.iter().all(|size| (14..=15).contains(size)), "{sizes:?}");
}

#[test]
fn classes_per_client_are_what_each_client_holds() {
    let dataset = balanced(5_000, 10);
    let description = PartitionDescription::PowerLaw {
        exponent: 1.2,
        classes_per_client: Some(2),
    };
    let partition = description.deal(&dataset, 200, &mut generator(2)).unwrap();
    assert!(classes_held(&partition, &dataset).iter().all(|&held| held == 2));
}

#[test]
fn a_million_clients_take_four_bytes_each_beside_their_examples() {
    let dataset = balanced(100_000, 10);
    let partition = PartitionDescription::Iid {}
        .deal(&dataset, 1_000_000, &mut generator(0))
        .unwrap();
    assert_eq!(partition.offsets.capacity(), 1_000_001);
    assert_eq!(partition.indices.capacity(), 1_000_000);
    assert!(sizes(&partition).iter().all(|&size| size == 1));
}

#[test]
fn the_same_seed_deals_the_same_on_every_machine() {
    let dataset = balanced(4, 3);
    let deal = |description: PartitionDescription| {
        let partition = description.deal(&dataset, 3, &mut generator(42)).unwrap();
        (0..3)
            .map(|client| partition.client(client).to_vec())
            .collect::<Vec<_>>()
    };
    let power_law = PartitionDescription::PowerLaw {
        exponent: 1.0,
        classes_per_client: Some(2),
    };
    assert_eq!(
        deal(PartitionDescription::Iid {}),
        [vec![0, 3, 4, 7], vec![1, 6, 8, 10], vec![2, 5, 9, 11]]
    );
    let shards = PartitionDescription::Shards { per_client: 2 };
    assert_eq!(deal(shards), [vec![1, 4, 6, 9], vec![2, 5, 8, 11], vec![0, 3, 7, 10]]);
    let dirichlet = PartitionDescription::Dirichlet { alpha: 0.5 };
    assert_eq!(
        deal(dirichlet),
        [vec![0, 3, 5, 9, 10], vec![1, 4, 6, 7], vec![2, 8, 11]]
    );
    assert_eq!(
        deal(power_law),
        [vec![9, 11], vec![2, 4, 5, 8], vec![0, 1, 3, 6, 7, 10]]
    );
}

#[test]
fn parameters_out_of_range_name_the_key() {
    let dataset = balanced(1, 1);
    let refuse = |description: PartitionDescription, clients| {
        description
            .deal(&dataset, clients, &mut generator(0))
            .unwrap_err()
            .to_string()
    };
    for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7] {
        assert!(refuse(PartitionDescription::Dirichlet { alpha }, 1).starts_with("`alpha` is"));
    }
    assert!(refuse(PartitionDescription::Shards { per_client: 0 }, 1).starts_with("`per_client` is 0"));
    let power_law = |exponent, classes_per_client| PartitionDescription::PowerLaw {
        exponent,
        classes_per_client,
    };
    assert!(refuse(power_law(-0.1, None), 1).starts_with("`exponent` is -0.1"));
    assert!(refuse(power_law(1.0, Some(0)), 1).starts_with("`classes_per_client` is 0"));
    assert!(refuse(PartitionDescription::Iid {}, 0).starts_with("`clients` is 0"));
    assert!(refuse(PartitionDescription::Natural {}, 1).contains("needs a column of groups"));
    let whole = PartitionDescription::Iid {}
        .deal(&dataset, 1, &mut generator(0))
        .unwrap();
    assert!(
        whole
            .split_holdout(1.0, &mut generator(0))
            .unwrap_err()
            .to_string()
            .starts_with("`holdout` is 1")
    );
}

#[test]
fn a_natural_partition_over_another_number_of_clients_says_how_many_groups_there_are() {
    let groups = Groups::from_names(&["a".into(), "b".into()]);
    let dataset = balanced(2, 1).with_groups(groups).unwrap();
    let error = PartitionDescription::Natural {}
        .deal(&dataset, 5, &mut generator(0))
        .unwrap_err()
        .to_string();
    assert!(error.contains("there are 2 groups, but 5 clients"), "{error}");
}

#[test]
fn label_skew_needs_classes() {
    let targets = Targets::Values {
        values: vec![0.5],
        width: 1,
    };
    let dataset = Dataset::new(Inputs::Bytes(vec![0]), vec![1], targets).unwrap();
    for description in [
        PartitionDescription::Dirichlet { alpha: 1.0 },
        PartitionDescription::Shards { per_client: 1 },
    ] {
        let error = description
            .deal(&dataset, 1, &mut generator(0))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("needs classes, but the data set's targets are values"),
            "{error}"
        );
    }
    let description = PartitionDescription::PowerLaw {
        exponent: 1.0,
        classes_per_client: None,
    };
    assert!(description.deal(&dataset, 1, &mut generator(0)).is_ok());
}

#[test]
fn unknown_keys_of_a_partition_are_errors() {
    let read = |text| toml::from_str::<PartitionDescription>(text);
    assert_eq!(
        read("kind = \"dirichlet\"\nalpha = 0.5").unwrap(),
        PartitionDescription::Dirichlet { alpha: 0.5 }
    );
    assert!(
        read("kind = \"iid\"\nalpha = 0.5")
            .unwrap_err()
            .to_string()
            .contains("alpha")
    );
    assert!(
        read("kind = \"dirichlet\"\nalfa = 0.5")
            .unwrap_err()
            .to_string()
            .contains("alfa")
    );
}
