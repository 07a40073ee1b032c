//! Plans: which units each client trains, and how often each unit is trained.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;
use selvedge_models::Weights;
use selvedge_protocols::{
    CannotTrain, Card, Choice, ClientName, Description, Ranking, Requirements, Resources, Width,
    plan::{Dealer, Plan, Seat},
    plans::{Dealing, Full, Magnitude, Ordered, Pairing, Partitioned, Random, Rolling, Static},
};

fn seats(clients: impl IntoIterator<Item = usize>, width: f64) -> Vec<Seat> {
    let seat = |client| Seat {
        client: ClientName::numbered(client),
        width: Width(width),
    };
    clients.into_iter().map(seat).collect()
}

fn partitioned(blocks: u32, dealing: Dealing) -> Partitioned {
    Partitioned {
        blocks,
        dealing,
        pairing: Pairing::Redrawn,
    }
}

fn card(width: f64, version: u32, blocks: &[u32]) -> Card {
    Card {
        seed: 7,
        version,
        width: Width(width),
        blocks: blocks.to_vec(),
        cut: None,
    }
}

#[test]
fn static_and_ordered_keep_the_first_units() {
    for plan in [&Static {} as &dyn Plan, &Ordered {}] {
        assert_eq!(plan.units(&card(0.5, 9, &[]), &[4, 3]), [vec![0, 1], vec![0, 1]]);
        assert_eq!(plan.units(&card(0.01, 9, &[]), &[4, 3]), [vec![0], vec![0]]);
    }
}

#[test]
fn rolling_moves_its_window_on_by_one_unit_each_round_and_around_the_end() {
    let units = |round| Rolling {}.units(&card(0.5, round, &[]), &[4, 3]);
    assert_eq!(units(1), [vec![0, 1], vec![0, 1]]);
    assert_eq!(units(2), [vec![1, 2], vec![1, 2]]);
    assert_eq!(units(3), [vec![2, 3], vec![0, 2]]);
    assert_eq!(units(4), [vec![0, 3], vec![0, 1]]);
}

#[test]
fn random_draws_other_units_for_other_clients_and_rounds() {
    let units = |round, draw| Random {}.units(&card(0.25, round, &[draw]), &[100]);
    assert_eq!(units(1, 0), units(1, 0));
    assert_ne!(units(1, 0), units(1, 1));
    assert_ne!(units(1, 0), units(2, 0));
    assert_eq!(units(3, 1)[0].len(), 25);
}

#[test]
fn a_fixed_pairing_is_the_same_in_every_pass_and_a_redrawn_one_is_not() {
    let units = |pairing, pass| {
        let plan = Partitioned {
            pairing,
            ..partitioned(4, Dealing::Deck)
        };
        plan.units(&card(0.25, pass, &[1]), &[40, 40])
    };
    assert_eq!(units(Pairing::Fixed, 1), units(Pairing::Fixed, 2));
    assert!((2..6).any(|pass| units(Pairing::Redrawn, 1) != units(Pairing::Redrawn, pass)));
}

#[test]
fn a_latin_square_covers_all_blocks_in_every_round_of_its_clients() {
    let mut dealer = partitioned(4, Dealing::LatinSquare).dealer();
    for round in 1..9 {
        let cards = dealer.deal(7, round, &seats(0..8, 0.25));
        let mut blocks: Vec<u32> = cards.iter().flat_map(|card| card.blocks.clone()).collect();
        blocks.sort_unstable();
        assert_eq!(blocks, [0, 0, 1, 1, 2, 2, 3, 3]);
        dealer.settle(&[true; 8]);
    }
}

#[test]
fn the_same_block_for_all_goes_on_only_when_the_model_has_moved() {
    let mut dealer = partitioned(3, Dealing::SameForAll).dealer();
    let mut deal = |moved: bool| {
        let cards = dealer.deal(7, 1, &seats(0..2, 1.0 / 3.0));
        assert_eq!(cards[0], cards[1]);
        dealer.settle(&[moved, false]);
        cards[0].blocks[0]
    };
    let first = deal(false);
    assert_eq!(deal(true), first);
    let (second, third) = (deal(true), deal(true));
    let mut blocks = [first, second, third];
    blocks.sort_unstable();
    assert_eq!(blocks, [0, 1, 2]);
}

#[test]
fn hands_of_several_blocks_never_repeat_one() {
    for dealing in [
        Dealing::Deck,
        Dealing::LatinSquare,
        Dealing::SameForAll,
        Dealing::WithReplacement,
    ] {
        let mut dealer = partitioned(4, dealing).dealer();
        for round in 1..20 {
            for card in dealer.deal(7, round, &seats(0..5, 0.75)) {
                let mut blocks = card.blocks.clone();
                blocks.sort_unstable();
                blocks.dedup();
                assert_eq!(blocks.len(), card.blocks.len(), "{dealing:?}");
                assert!((1..=3).contains(&blocks.len()));
            }
            dealer.settle(&[true; 5]);
        }
    }
}

/// Every plan at full width.
fn at_full_width() -> Vec<Choice<dyn Plan>> {
    let mut plans = vec![
        Choice::of(Full {}),
        Choice::of(Static {}),
        Choice::of(Ordered {}),
        Choice::of(Rolling {}),
        Choice::of(Random {}),
        Choice::of(Magnitude {}),
    ];
    for dealing in [
        Dealing::Deck,
        Dealing::LatinSquare,
        Dealing::SameForAll,
        Dealing::WithReplacement,
    ] {
        plans.push(Choice::of(partitioned(4, dealing)));
    }
    plans
}

#[test]
fn at_full_width_every_plan_keeps_every_unit() {
    let all: Vec<Vec<u32>> = vec![(0..9).collect(), (0..4).collect()];
    for plan in at_full_width() {
        let mut dealer = plan.dealer();
        for round in 1..6 {
            for card in dealer.deal(7, round, &seats(0..3, 1.0)) {
                assert_eq!(plan.units(&card, &[9, 4]), all, "{plan:?}");
            }
            dealer.settle(&[true, false, true]);
        }
    }
}

/// Runs rounds in which clients fail, and counts how often each unit was trained by cards of each pass.
struct Tally {
    plan: Partitioned,
    dealer: Box<dyn Dealer>,
    /// `[pass][group][unit]`.
    counts: Vec<Vec<Vec<u32>>>,
}

const GROUPS: [usize; 3] = [12, 7, 5];

impl Tally {
    fn new(blocks: u32, dealing: Dealing) -> Self {
        let plan = partitioned(blocks, dealing);
        Self {
            dealer: plan.dealer(),
            plan,
            counts: vec![],
        }
    }

    fn round(&mut self, round: u32, seats: &[Seat], fails: impl FnMut() -> bool) {
        let cards = self.dealer.deal(7, round, seats);
        let mut fails = fails;
        let trained: Vec<bool> = cards.iter().map(|_| !fails()).collect();
        for (card, _) in cards.iter().zip(&trained).filter(|(_, trained)| **trained) {
            let pass = card.version as usize;
            let empty = GROUPS.map(|units| vec![0; units]).to_vec();
            self.counts.resize(self.counts.len().max(pass + 1), empty);
            for (counts, units) in self.counts[pass].iter_mut().zip(self.plan.units(card, &GROUPS)) {
                units.into_iter().for_each(|unit| counts[unit as usize] += 1);
            }
        }
        self.dealer.settle(&trained);
    }

    /// How often all units were trained in a pass, if all equally often.
    fn times(&self, pass: usize) -> Option<u32> {
        let counts = self.counts.get(pass)?;
        let first = counts[0][0];
        counts.iter().flatten().all(|count| *count == first).then_some(first)
    }
}

proptest! {
    #[test]
    fn a_deck_trains_every_unit_once_in_each_pass_though_a_third_of_the_clients_fail(
        blocks in 1u32..6,
        cohort in 1usize..9,
        at_once in 1u32..3,
        failures in prop::collection::vec(0u8..3, 900),
    ) {
        let mut tally = Tally::new(blocks, Dealing::Deck);
        let mut failures = failures.into_iter();
        let width = f64::from(at_once.min(blocks)) / f64::from(blocks);
        for round in 1..40 {
            tally.round(round, &seats(0..cohort, width), || failures.next() == Some(0));
        }
        // Nobody fails any more, and those who train one block take what is left.
        for round in 40..60 {
            tally.round(round, &seats(0..cohort, 1.0 / f64::from(blocks)), || false);
        }
        let passes = tally.counts.len() - 1;
        prop_assert!(passes > 2);
        for pass in 1..passes {
            prop_assert_eq!(tally.times(pass), Some(1), "pass {} of {}", pass, passes);
        }
    }

    #[test]
    fn a_latin_square_trains_every_unit_equally_often_in_each_pass_though_a_third_of_the_clients_fail(
        blocks in 1u32..6,
        cohort in 1usize..9,
        at_once in 1u32..3,
        failures in prop::collection::vec(0u8..3, 600),
    ) {
        let mut tally = Tally::new(blocks, Dealing::LatinSquare);
        let mut failures = failures.into_iter();
        let width = f64::from(at_once.min(blocks)) / f64::from(blocks);
        for round in 1..60 {
            tally.round(round, &seats(0..cohort, width), || failures.next() == Some(0));
        }
        // A pass is over when everybody has been through it: each client trains each block once.
        let over = |pass: &usize| tally.times(*pass) == Some(cohort as u32);
        let passes = (1..tally.counts.len()).take_while(over).count();
        prop_assert!(passes >= 4, "{passes} passes");
        let later = (passes + 1..tally.counts.len()).filter(|pass| over(pass)).count();
        prop_assert_eq!(later, 0, "a pass is complete before one that came earlier");
    }
}

const DESCRIPTION: &str = r#"
    rounds = 1
    clients = 4
    data = { source = "fashion-mnist-small" }
    training = { optimiser = { kind = "sgd", learning_rate = 0.1 } }
    [model]
    input = [3]
    layers = [{ kind = "dense", units = 4, bias = false }, { kind = "relu" }, { kind = "dense", units = 2, bias = false }]
"#;

fn description(plan: &str) -> Arc<Description> {
    let set = [
        format!("sub_models.plan={plan}"),
        "sub_models.capacities=[{ width = 0.5, share = 1.0 }]".into(),
    ];
    let set: Vec<_> = set.iter().map(|text| text.parse().unwrap()).collect();
    Arc::new(Description::parse(DESCRIPTION, "test", &set).unwrap())
}

#[test]
fn magnitude_keeps_the_units_whose_parameters_are_largest() {
    let description = description("{ kind = 'magnitude' }");
    let parts = description.parts().unwrap();
    // Rows of three inputs for each of the four units, then two rows of four: units 1 and 3 are the large ones, the one
    // by what goes in, the other by what comes out.
    let mut parameters = vec![0.1; 12];
    parameters[3..6].fill(-2.0);
    parameters.extend([0.1, 0.1, 0.1, 3.0, 0.1, 0.1, 0.1, 0.1]);
    let weights = Weights {
        parameters,
        buffers: vec![],
    };
    let ranking = Ranking::of(&weights, parts.layout());
    let card = card(0.5, 0, &[]);
    let part = parts.ranked(&card, Some(&ranking)).unwrap();
    assert_eq!(part.coordinates.units, [[1, 3]]);
    // A client, which does not know the ranking, gets a model of the same size.
    assert_eq!(parts.part(&card).unwrap().model, part.model);
}

#[test]
fn cards_of_mixed_widths_never_repeat_a_block_in_a_pass_though_clients_fail() {
    for dealing in [Dealing::Deck, Dealing::LatinSquare] {
        let mut dealer = partitioned(4, dealing).dealer();
        let mut trained = std::collections::BTreeMap::new();
        let cohort: Vec<Seat> = [0.25, 0.75, 0.5, 1.0, 0.25]
            .into_iter()
            .enumerate()
            .map(|(client, width)| seats([client], width).remove(0))
            .collect();
        for round in 1..200u32 {
            let cards = dealer.deal(7, round, &cohort);
            let counted: Vec<bool> = (0..5)
                .map(|client| !(round * 7 + client * 5).is_multiple_of(3))
                .collect();
            for ((client, card), _) in cards.iter().enumerate().zip(&counted).filter(|(_, counted)| **counted) {
                for block in &card.blocks {
                    // A deck has each block once in a pass; a square, once for each client.
                    let client = if dealing == Dealing::Deck { 0 } else { client };
                    *trained.entry((client, card.version, *block)).or_insert(0) += 1;
                }
            }
            dealer.settle(&counted);
        }
        assert!(trained.len() > 100);
        assert!(trained.values().all(|times| *times == 1), "{dealing:?}");
    }
}

#[test]
fn beside_clients_of_one_block_those_of_several_get_as_many_as_they_can_train() {
    let mut dealer = partitioned(4, Dealing::Deck).dealer();
    let widths = [0.25, 1.0, 0.25, 0.5, 0.25, 0.25, 1.0, 0.25, 0.5];
    let cohort: Vec<Seat> = widths
        .into_iter()
        .enumerate()
        .map(|(client, width)| seats([client], width).remove(0))
        .collect();
    for round in 1..100 {
        for (card, width) in dealer.deal(7, round, &cohort).iter().zip(widths) {
            assert_eq!(card.blocks.len(), (4.0 * width) as usize, "round {round}");
        }
        dealer.settle(&[true; 9]);
    }
}

#[test]
fn a_device_gets_the_largest_width_that_it_can_train_within_a_round() {
    let description = description("{ kind = 'static' }");
    let set: Vec<_> = [
        "sub_models.capacities=[{ width = 0.5 }, { width = 1.0 }]",
        "cohort.deadline_seconds=2.0",
    ]
    .iter()
    .map(|text| text.parse().unwrap())
    .collect();
    let description = Arc::new(Description::parse(&description.to_toml(), "test", &set).unwrap());
    let requirements = Requirements::of(&description.parts().unwrap(), &description).unwrap();
    let width = |speed| {
        let examples = Some(1000);
        requirements.largest_width(&Resources {
            memory: None,
            speed,
            examples,
        })
    };
    assert_eq!(width(None), Ok(Width(1.0)));
    // Products of 3 x 4 and 4 x 2 and the activation, forward and twice as much backward, for each of 1000 examples.
    let whole = 3.0 * (2.0 * 12.0 + 4.0 + 2.0 * 8.0) * 1000.0;
    let half = 3.0 * (2.0 * 6.0 + 2.0 + 2.0 * 4.0) * 1000.0;
    assert_eq!(width(Some(whole / 2.0)), Ok(Width(1.0)));
    assert_eq!(width(Some(whole / 2.01)), Ok(Width(0.5)));
    assert_eq!(width(Some(half / 2.0)), Ok(Width(0.5)));
    for speed in [half / 2.01, 0.0, -1.0, f64::NAN] {
        assert!(
            matches!(width(Some(speed)), Err(CannotTrain::Time { width: Width(0.5), .. })),
            "{speed}"
        );
    }
}

proptest! {
    #[test]
    fn no_card_of_a_peer_breaks_a_plan_or_makes_it_large(
        seed in any::<u64>(),
        version in any::<u32>(),
        width in prop_oneof![any::<f64>(), 0.0f64..1.0],
        blocks in prop::collection::vec(prop_oneof![any::<u32>(), 0u32..3], 0..40),
    ) {
        for plan in ["{ kind = 'static' }", "{ kind = 'ordered' }", "{ kind = 'rolling' }", "{ kind = 'random' }",
            "{ kind = 'magnitude' }", "{ kind = 'partitioned', blocks = 2 }"] {
            let parts = description(plan).parts().unwrap();
            let card = Card { seed, version, width: Width(width), blocks: blocks.clone(), cut: None };
            if let Ok(part) = parts.part(&card) {
                prop_assert!(part.coordinates.parameters.count() <= 20);
            }
        }
    }
}
