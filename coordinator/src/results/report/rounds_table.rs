//! The rounds and what went wrong in them, as tables.

use maud::{Markup, html};

use super::figures;
use crate::{RoundRecord, results::summary::finite};

/// Longer tables show their last rows only.
const MOST_ROUNDS: usize = 1000;
const MOST_FAILURES: usize = 200;

/// Tables up to this many rows stand open.
const OPEN_ROWS: usize = 12;

/// All rounds, a row each.
pub(super) fn rounds(records: &[RoundRecord]) -> Markup {
    let shown = &records[records.len().saturating_sub(MOST_ROUNDS)..];
    let by_clients = records.iter().any(|record| record.clients_accuracy.is_some());
    let evaluated = |value: Option<f64>, text: fn(f64) -> String| finite(value).map_or_else(|| "–".into(), text);
    html! {
        details open[shown.len() <= OPEN_ROWS] {
            summary { "Rounds (" (records.len()) ")" }
            @if shown.len() < records.len() {
                p { "The last " (shown.len()) " are shown; all are in rounds.jsonl." }
            }
            div.scroll tabindex="0" role="region" aria-label="Rounds" {
                table {
                    thead { tr {
                        th scope="col" { "Round" }
                        th scope="col" { "Completed" }
                        th scope="col" { "Train loss" }
                        th scope="col" { "Test loss" }
                        th scope="col" { "Test accuracy" }
                        @if by_clients { th scope="col" { "Clients’ accuracy" } }
                        th scope="col" { "Up" }
                        th scope="col" { "Down" }
                        th scope="col" { "Time" }
                        th.text scope="col" { "Remarks" }
                    } }
                    tbody {
                        @for record in shown {
                            tr.unapplied[!record.applied] {
                                th scope="row" { (record.round) }
                                td { (record.completed) " of " (record.selected) }
                                td { (evaluated(record.train_loss, figures::number)) }
                                td { (evaluated(record.test_loss, figures::number)) }
                                td { (evaluated(record.test_accuracy, figures::percent)) }
                                @if by_clients { td { (evaluated(record.clients_accuracy, figures::percent)) } }
                                td { (figures::bytes(record.bytes_up as f64)) }
                                td { (figures::bytes(record.bytes_down as f64)) }
                                td { (figures::duration(record.seconds)) }
                                td.text { (remarks(record)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn remarks(record: &RoundRecord) -> Markup {
    html! {
        @for (reason, count) in &record.failed { span.tag.failed { (count) " × " (reason) } " " }
        @for (reason, count) in &record.evaluation_failed {
            span.tag.failed { (count) " × " (reason) " (evaluation)" } " "
        }
        @for (reason, count) in &record.stray { span.tag { (count) " × " (reason) } " " }
        @match &record.note {
            Some(note) => (note),
            None if !record.applied => "the model stays as it was",
            None => {},
        }
    }
}

/// The failures that are listed by name; nothing when there are none.
pub(super) fn failures(records: &[RoundRecord]) -> Markup {
    let all = || {
        records
            .iter()
            .flat_map(|record| record.failures.iter().map(move |failure| (record.round, failure)))
    };
    let listed = all().count();
    let counts =
        |record: &RoundRecord| -> usize { record.failed.values().chain(record.evaluation_failed.values()).sum() };
    let failed: usize = records.iter().map(counts).sum();
    if listed == 0 {
        return html! {};
    }
    let shown = listed.min(MOST_FAILURES);
    html! {
        details open[shown <= OPEN_ROWS] {
            summary { "Failures (" (failed.max(listed)) ")" }
            @if shown < failed { p { "The last " (shown) " that were recorded by name are shown." } }
            div.scroll tabindex="0" role="region" aria-label="Failures" {
                table {
                    thead { tr {
                        th scope="col" { "Round" }
                        th.text scope="col" { "Client" }
                        th.text scope="col" { "Reason" }
                    } }
                    tbody {
                        @for (round, failure) in all().skip(listed - shown) {
                            tr {
                                th scope="row" { (round) }
                                td.text { (failure.client) }
                                td.text { (failure.reason) }
                            }
                        }
                    }
                }
            }
        }
    }
}
