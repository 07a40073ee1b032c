//! A run with models that are cut: how the back does with each client's front, and what the steps came to.

use maud::{Markup, html};

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
    let line = |name: &'static str, value: fn(&[StitchedRecord]) -> Option<f64>| {
        let points = records.iter().map(|record| (record.round, value(&record.stitched)));
        Series::new(name, points)
    };
    let least = |stitched: &[StitchedRecord]| stitched.iter().map(|stitched| stitched.accuracy).reduce(f64::min);
    let mean = |stitched: &[StitchedRecord], of: fn(&StitchedRecord) -> Option<f64>| {
        let values: Vec<f64> = stitched.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let lines = vec![
        Series::new(
            "mean",
            records
                .iter()
                .map(|record| (record.round, mean(&record.stitched, |one| Some(one.accuracy)))),
        ),
        line("least", least),
        Series::new(
            "as clients’ own classes are",
            records
                .iter()
                .map(|record| (record.round, mean(&record.stitched, |one| one.own_accuracy))),
        ),
    ];
    let steps = |record: &RoundRecord| Some(record.steps.as_ref()?.made as f64);
    let lost = |record: &RoundRecord| Some(record.steps.as_ref()?.lost.values().sum::<usize>() as f64);
    let counts = vec![
        Series::new("made", records.iter().map(|record| (record.round, steps(record)))),
        Series::new("parts lost", records.iter().map(|record| (record.round, lost(record)))),
    ];
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
        }
    }
}

/// The back with the front of each client, after the last round that was evaluated.
pub(super) fn table(records: &[RoundRecord]) -> Markup {
    let Some(record) = records.iter().rfind(|record| !record.stitched.is_empty()) else {
        return html! {};
    };
    let mut clients: Vec<&StitchedRecord> = record.stitched.iter().collect();
    clients.sort_by(|one, other| one.accuracy.total_cmp(&other.accuracy));
    let share = |share: Option<f64>| finite(share).map_or_else(|| "–".into(), figures::percent);
    html! {
        div.scroll tabindex="0" {
            table {
                caption { "The back with each client’s front, after round " (record.round) }
                thead { tr {
                    th { "client" } th { "accuracy" } th { "balanced" } th { "as its own classes are" }
                    th { "always its most frequent class" }
                } }
                tbody {
                    @for client in clients.iter().take(LISTED) {
                        tr {
                            td { (client.client) }
                            td { (share(Some(client.accuracy))) }
                            td { (share(client.balanced_accuracy)) }
                            td { (share(client.own_accuracy)) }
                            td { (share(client.majority)) }
                        }
                    }
                }
            }
            @if clients.len() > LISTED { p { "and " (clients.len() - LISTED) " more" } }
        }
    }
}
