//! The report: all about a run in one page of HTML that needs no network, no script and no other file.

mod chart;
mod figures;
mod label_histogram;
mod measured;
mod rounds_table;
mod split;
mod sub_models;

pub(super) use label_histogram::LabelHistogram;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use selvedge_models::Layout;
use selvedge_protocols::Description;
use serde::Serialize;

use self::chart::{Chart, Scale, Series};
use super::Summary;
use crate::{Outcome, RoundRecord, engine::UnitCounts};

/// What a report is made of.
pub(super) struct Report<'a> {
    pub(super) description: &'a Description,
    /// How many parameters the model has.
    pub(super) parameters: usize,
    pub(super) summary: &'a Summary,
    pub(super) records: &'a [RoundRecord],
    pub(super) histogram: Option<LabelHistogram<'a>>,
    /// Of a run with sub-models, how often each unit was trained.
    pub(super) units: Option<(&'a UnitCounts, &'a Layout)>,
}

/// Forbids the browser to fetch or run anything: names and reasons in the page come from files and peers.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

impl Report<'_> {
    /// The page. Everything that is put into it is escaped.
    pub(super) fn to_html(&self) -> String {
        let name = &self.description.name;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (name) " – Selvedge" }
                    style { (PreEscaped(include_str!("report.css"))) }
                }
                body {
                    header {
                        p.kind { "Selvedge run" }
                        h1 { (name) " " (self.outcome()) }
                        p { (self.subtitle()) }
                        p { (self.setting()) }
                    }
                    main {
                        (self.headline())
                        section { h2 { "Training" } (self.charts()) }
                        @if let Some((units, layout)) = self.units {
                            section {
                                h2 { "Sub-models" }
                                (sub_models::charts(self.records))
                                (sub_models::table(self.records))
                                (sub_models::histogram(units, layout))
                            }
                        }
                        @if self.description.split.is_some() {
                            section {
                                h2 { "Split learning" }
                                (split::charts(self.records))
                                (split::table(self.records))
                            }
                        }
                        @if let Some(measured) = measured::table(self.records) {
                            section { h2 { "Measured" } (measured) }
                        }
                        @if let Some(histogram) = &self.histogram {
                            section { h2 { "Partition" } (histogram.to_html()) }
                        }
                        section {
                            h2 { "Details" }
                            @if !self.records.is_empty() { (rounds_table::rounds(self.records)) }
                            (rounds_table::failures(self.records))
                            details {
                                summary { "Description" }
                                pre.scroll tabindex="0" { code { (self.description.to_toml()) } }
                            }
                        }
                    }
                    footer { "BLAKE3 of the weights " code { (self.summary.weights_blake3) } }
                }
            }
        };
        page.into_string()
    }

    fn outcome(&self) -> Markup {
        let (class, text) = match self.summary.outcome {
            Outcome::Completed => ("completed", "completed"),
            Outcome::Stopped => ("ended", "stopped"),
            Outcome::TooFewClients => ("ended", "ended: too few clients"),
        };
        html! { span class={ "outcome " (class) } { (text) } }
    }

    fn subtitle(&self) -> String {
        let description = self.description;
        format!(
            "{} clients, {} in a round; a model of {} parameters",
            description.clients,
            description.cohort_size(),
            figures::grouped(self.parameters as u64),
        )
    }

    /// What was run: data, partition, algorithm, seed, version.
    fn setting(&self) -> String {
        let description = self.description;
        format!(
            "{} on {}, dealt {}; seed {}; Selvedge {}",
            told(&description.algorithm, "kind"),
            told(&description.data, "source"),
            told(&description.partition, "kind"),
            description.seed.0,
            env!("CARGO_PKG_VERSION"),
        )
    }

    fn headline(&self) -> Markup {
        let summary = self.summary;
        let share = |share: Option<f64>| share.map_or_else(|| "–".into(), figures::percent);
        let figure = |label: &str, value: String| {
            html! { div { dt { (label) } dd { (value) } } }
        };
        html! {
            dl.headline {
                (figure("Test accuracy", share(summary.test_accuracy)))
                (figure("Best", share(summary.best_test_accuracy)))
                (figure("Rounds", format!("{} of {}", summary.rounds, self.description.rounds)))
                (figure("Time", figures::duration(summary.seconds)))
                (figure("Sent by clients", figures::bytes(summary.bytes_up as f64)))
                (figure("Sent to clients", figures::bytes(summary.bytes_down as f64)))
                @if let Some(bytes) = summary.peak_rss_bytes {
                    (figure("Peak memory", figures::bytes(bytes as f64)))
                }
            }
        }
    }

    fn charts(&self) -> Markup {
        let Some(last) = self.records.last() else {
            return html! { p { "No round was finished." } };
        };
        let chart = |title, scale, series| {
            Chart {
                title,
                scale,
                rounds: last.round,
                series,
            }
            .to_html()
        };
        html! {
            div.charts {
                (chart("Accuracy", Scale::Percent, vec![
                    self.series("test", |record| record.test_accuracy),
                    self.series("clients’ own", |record| record.clients_accuracy),
                    self.series("on training examples", |record| record.training_accuracy),
                ]))
                (chart("Loss", Scale::Number, vec![
                    self.series("test", |record| record.test_loss),
                    self.series("clients’ own", |record| record.clients_loss),
                    self.series("training", |record| record.train_loss),
                    self.series("new model on training examples", |record| record.training_loss),
                ]))
                (chart("Traffic so far", Scale::Bytes, vec![
                    self.running_sum("from clients", |record| record.bytes_up),
                    self.running_sum("to clients", |record| record.bytes_down),
                ]))
                (chart("Clients in the round", Scale::Count, vec![
                    self.series("selected", |record| Some(record.selected as f64)),
                    self.series("completed", |record| Some(record.completed as f64)),
                ]))
            }
        }
    }

    fn series(&self, name: &'static str, value: fn(&RoundRecord) -> Option<f64>) -> Series {
        Series::new(name, self.records.iter().map(|record| (record.round, value(record))))
    }

    fn running_sum(&self, name: &'static str, bytes: fn(&RoundRecord) -> u64) -> Series {
        let mut sum = 0.0;
        let sums = self.records.iter().map(|record| {
            sum += bytes(record) as f64;
            (record.round, Some(sum))
        });
        Series::new(name, sums)
    }
}

/// A part of the description in a few words: its kind, and its numbers by name.
fn told(part: &impl Serialize, kind: &str) -> String {
    let Ok(serde_json::Value::Object(mut keys)) = serde_json::to_value(part) else {
        return String::new();
    };
    let kind = keys.remove(kind).and_then(|kind| kind.as_str().map(String::from));
    let numbers = keys.iter().filter(|(_, value)| value.is_number());
    let numbers: Vec<_> = numbers.map(|(key, value)| format!("{key} {value}")).collect();
    match numbers.is_empty() {
        true => kind.unwrap_or_default(),
        false => format!("{} ({})", kind.unwrap_or_default(), numbers.join(", ")),
    }
}
