//! What the run's components have measured.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::figures;
use crate::RoundRecord;

/// Names beyond these are left out: a peer can report under any.
const MOST_NAMES: usize = 100;

/// A row for each name: of the round as a whole in the first and in the last round that it was measured in, and of the
/// clients the range over all rounds. Nothing where nothing was measured.
pub(super) fn table(records: &[RoundRecord]) -> Option<Markup> {
    let of_rounds = rows(records, |record| vec![&record.metrics]);
    let of_clients = rows(records, |record| record.client_metrics.values().collect());
    if of_rounds.is_empty() && of_clients.is_empty() {
        return None;
    }
    let range = |values: &[f64]| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{} to {}", figures::number(least), figures::number(most))
    };
    let end = |value: Option<&f64>| value.map_or_else(String::new, |value| figures::number(*value));
    Some(html! {
        div.scroll tabindex="0" role="region" aria-label="Measured" {
            table {
                thead { tr { th { "Name" } th { "First" } th { "Last" } th { "Range" } th { "Values" } } }
                tbody {
                    @for (name, values) in &of_rounds {
                        tr {
                            td { (name) }
                            td { (end(values.first())) }
                            td { (end(values.last())) }
                            td { (range(values)) }
                            td { (values.len()) }
                        }
                    }
                    @for (name, values) in &of_clients {
                        tr { td { (name) ", of clients" } td {} td {} td { (range(values)) } td { (values.len()) } }
                    }
                }
            }
        }
    })
}

/// All values of each name, in the order of the rounds.
fn rows<'a>(
    records: &'a [RoundRecord],
    metrics: impl Fn(&'a RoundRecord) -> Vec<&'a BTreeMap<String, f64>>,
) -> Vec<(&'a str, Vec<f64>)> {
    let measured: Vec<_> = records.iter().flat_map(&metrics).collect();
    let names: BTreeSet<&str> = measured
        .iter()
        .flat_map(|metrics| metrics.keys().map(String::as_str))
        .collect();
    let row = |name| {
        (
            name,
            measured
                .iter()
                .filter_map(|metrics| metrics.get(name).copied())
                .collect(),
        )
    };
    names.into_iter().take(MOST_NAMES).map(row).collect()
}
