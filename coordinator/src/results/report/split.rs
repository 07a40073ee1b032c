//! A run with models that are cut: how the back does with each client's front, and what the steps came to.

use maud::{Markup, html};
use selvedge_protocols::ClientName;

use super::{
    chart::{Chart, Scale, Series},
    figures,
};
use crate::{RoundRecord, StitchedRecord, results::summary::finite};

/// Clients whose fronts the table lists: the worst come first.
const LISTED: usize = 100;

/// The accuracy over the rounds with the fronts that clients keep: mean, least, and on their own classes.
pub(super) fn charts(records: &[RoundRecord]) -> Markup {
    let rounds = records.last().map_or(0, |record| record.round);
    let line = |name: &'static str, value: fn(&RoundRecord) -> Option<f64>| {
        Series::new(name, records.iter().map(|record| (record.round, value(record))))
    };
    let lines = vec![
        line("mean", |record| mean(&record.stitched, |one| one.accuracy)),
        line("least", |record| {
            record.stitched.iter().filter_map(|one| one.accuracy).reduce(f64::min)
        }),
        line("as clients’ own classes are", |record| {
            mean(&record.stitched, |one| one.own_accuracy)
        }),
    ];
    let counts = vec![
        line("made", |record| Some(record.steps.as_ref()?.made as f64)),
        line("missed by the clients, on the mean", |record| {
            let missed: u64 = record.steps.as_ref()?.missed.values().sum();
            Some(missed as f64 / record.selected.max(1) as f64)
        }),
    ];
    let times = vec![
        line("measured", |record| Some(1e3 * record.steps.as_ref()?.seconds?)),
        line("predicted", |record| {
            Some(1e3 * record.steps.as_ref()?.predicted_seconds?)
        }),
    ];
    let steps = || records.iter().filter_map(|record| record.steps.as_ref());
    let is_timed = steps().any(|steps| steps.seconds.is_some() || steps.predicted_seconds.is_some());
    let chart = |title, scale, series| {
        Chart {
            title,
            scale,
            rounds,
            series,
        }
        .to_html()
    };
    html! {
        div.charts {
            @if records.iter().any(|record| !record.stitched.is_empty()) {
                (chart("Accuracy with clients’ fronts", Scale::Percent, lines))
            }
            (chart("Steps of a round", Scale::Count, counts))
            @if is_timed {
                (chart("Milliseconds of a step", Scale::Number, times))
            }
        }
    }
}

fn mean(stitched: &[StitchedRecord], of: fn(&StitchedRecord) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = stitched.iter().filter_map(of).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The back with the front of each client, after the last round that was evaluated.
pub(super) fn table(records: &[RoundRecord]) -> Markup {
    let Some(record) = records.iter().rfind(|record| !record.stitched.is_empty()) else {
        return html! {};
    };
    let mut clients: Vec<&StitchedRecord> = record.stitched.iter().collect();
    let accuracy = |one: &StitchedRecord| one.accuracy.unwrap_or(0.0);
    clients.sort_by(|one, other| accuracy(one).total_cmp(&accuracy(other)));
    let led: u64 = records
        .iter()
        .filter_map(|record| record.steps.as_ref())
        .map(|steps| steps.led.values().sum::<u64>())
        .sum();
    let led_by = |client: &ClientName| -> u64 {
        let steps = records.iter().filter_map(|record| record.steps.as_ref());
        steps.filter_map(|steps| steps.led.get(client)).sum()
    };
    let share = |share: Option<f64>| finite(share).map_or_else(|| "–".into(), figures::percent);
    html! {
        div.scroll tabindex="0" {
            table {
                caption { "The back with each client’s front, after round " (record.round) }
                thead { tr {
                    th { "client" } th { "accuracy" } th { "balanced" } th { "as its own classes are" }
                    th { "always its most frequent class" }
                    @if led > 0 { th { "led, in all rounds" } }
                } }
                tbody {
                    @for client in clients.iter().take(LISTED) {
                        tr {
                            td { (client.client) }
                            td { (share(client.accuracy)) }
                            td { (share(client.balanced_accuracy)) }
                            td { (share(client.own_accuracy)) }
                            td { (share(client.majority)) }
                            @if led > 0 { td { (led_by(&client.client)) } }
                        }
                    }
                }
            }
            @if clients.len() > LISTED { p { "and " (clients.len() - LISTED) " more" } }
        }
    }
}
