//! A client and a server that pass values through a filter, and what filters have in common.

use proptest::prelude::*;
use selvedge_models::{Layout, OptimiserDescription};
use selvedge_words::{ClientName, Seed};

use super::*;

/// A client and a server in one round of a run.
pub(super) struct Bench {
    layout: Layout,
    optimiser: OptimiserDescription,
    client: ClientName,
    pub(super) memory: Vectors,
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            optimiser: toml::from_str("kind = 'sgd'\nlearning_rate = 0.1").unwrap(),
            client: ClientName::numbered(0),
            memory: Vectors::new(),
        }
    }
}

impl Bench {
    fn occasion(&self) -> Occasion<'_> {
        Occasion {
            seed: Seed(1),
            round: 1,
            rounds: 1,
            clients: 1,
            cohort: 1,
            client: Some(&self.client),
            layout: &self.layout,
            optimiser: &self.optimiser,
        }
    }

    pub(super) fn client(&mut self, filter: &dyn Filter, values: Vec<f32>, reference: Reference<'_>) -> Values {
        let (mut memory, mut metrics) = (std::mem::take(&mut self.memory), Metrics::default());
        let context = &mut self.occasion().context("filters.0", &mut metrics);
        let sent = filter.client(Values::F32(values), reference, &mut memory, context);
        self.memory = memory;
        sent
    }

    pub(super) fn server(
        &self,
        filter: &dyn Filter,
        values: Values,
        reference: Reference<'_>,
        lengthened: f64,
    ) -> Result<Values, Rejection> {
        let mut metrics = Metrics::default();
        let context = &mut self.occasion().context("filters.0", &mut metrics);
        filter.server(values, reference, lengthened, context)
    }
}

pub(super) fn f32s(values: Values) -> Vec<f32> {
    match values {
        Values::F32(values) => values,
        other => panic!("{other:?}"),
    }
}

#[test]
fn top_k_sends_the_largest_and_remembers_the_others_until_they_are_large() {
    let top_k = TopK { share: 0.25 };
    let mut bench = Bench::default();
    let mut round = |change: [f32; 4]| {
        let sent = bench.client(&top_k, change.to_vec(), Reference::Zeros(4));
        assert_eq!(sent.len() as u64, top_k.encoded(4));
        f32s(bench.server(&top_k, sent, Reference::Zeros(4), 0.0).unwrap())
    };
    assert_eq!(round([1.0, -3.0, 0.5, 2.0]), [0.0, -3.0, 0.0, 0.0]);
    assert_eq!(round([1.5, 0.0, 0.0, 0.0]), [2.5, 0.0, 0.0, 0.0]);
    assert_eq!(round([0.0; 4]), [0.0, 0.0, 0.0, 2.0]);
    assert_eq!(round([0.0; 4]), [0.0, 0.0, 0.5, 0.0]);
    assert_eq!(round([0.0; 4]), [0.0; 4]);
}

#[test]
fn sparse_values_that_cannot_be_are_rejected() {
    let top_k = TopK { share: 0.5 };
    let server = |places: [u32; 2]| {
        let bytes = places.map(u32::to_le_bytes).into_iter().chain([[0; 4]; 2]).flatten();
        Bench::default().server(&top_k, Values::Bytes(bytes.collect()), Reference::Zeros(4), 0.0)
    };
    assert!(server([1, 3]).is_ok());
    for places in [[1, 1], [3, 1], [0, 4], [u32::MAX, u32::MAX]] {
        assert!(server(places).is_err(), "{places:?}");
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_with_top_k_only_late(changes in prop::collection::vec(prop::array::uniform6(-8i8..8), 1..12)) {
        // Small integers: sums are exact.
        let top_k = TopK { share: 0.4 };
        let mut bench = Bench::default();
        let (mut sent, mut made) = ([0.0; 6], [0.0; 6]);
        for change in changes {
            let change = change.map(f32::from);
            made.iter_mut().zip(change).for_each(|(sum, change)| *sum += change);
            let values = bench.client(&top_k, change.to_vec(), Reference::Zeros(6));
            let back = f32s(bench.server(&top_k, values, Reference::Zeros(6), 0.0).unwrap());
            sent.iter_mut().zip(back).for_each(|(sum, back)| *sum += back);
        }
        let unsent = bench.memory.get("unsent").unwrap();
        for ((sent, unsent), made) in sent.iter().zip(unsent).zip(made) {
            prop_assert_eq!(sent + unsent, made);
        }
    }
}
