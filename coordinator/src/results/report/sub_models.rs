//! A run with sub-models: what each width came to, and how often each unit was trained.

use maud::{Markup, html};
use selvedge_models::Layout;
use selvedge_protocols::Width;

use super::{
    chart::{Chart, Scale, Series, place},
    figures,
};
use crate::{RoundRecord, engine::UnitCounts, record::WidthRecord, results::summary::finite};

/// Widths that a chart draws.
const MOST_LINES: usize = 6;

/// Groups whose units are drawn.
const MOST_GROUPS: usize = 64;

/// Bars of a histogram; of larger groups each bar is the mean of neighbours.
const MOST_BARS: usize = 256;

const LEFT: f64 = 64.0;
const PLOT_WIDTH: f64 = 820.0;
const BAR_HEIGHT: f64 = 44.0;
const ROW_HEIGHT: f64 = 74.0;

/// The widths of a run, largest first.
fn widths(records: &[RoundRecord]) -> Vec<Width> {
    let mut widths: Vec<_> = records
        .iter()
        .flat_map(|record| &record.widths)
        .map(|noted| noted.width)
        .collect();
    widths.sort_unstable_by(|one, other| other.cmp(one));
    widths.dedup();
    widths
}

fn of(record: &RoundRecord, width: Width) -> Option<&WidthRecord> {
    record.widths.iter().find(|noted| noted.width == width)
}

/// Accuracy and loss by width; nothing in a run without sub-models.
pub(super) fn charts(records: &[RoundRecord]) -> Markup {
    let lines = |value: fn(&WidthRecord) -> Option<f64>| {
        let line = |width: Width| {
            let points = records
                .iter()
                .map(|record| (record.round, of(record, width).and_then(value)));
            Series::new(format!("width {width}"), points)
        };
        widths(records).into_iter().take(MOST_LINES).map(line).collect()
    };
    let chart = |title, scale, series| {
        let rounds = records.last().map_or(0, |record| record.round);
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
            (chart("Accuracy of sub-models", Scale::Percent, lines(|noted| noted.test_accuracy)))
            (chart("Training loss by width", Scale::Number, lines(|noted| noted.train_loss)))
        }
    }
}

/// What the widths came to, a row each.
pub(super) fn table(records: &[RoundRecord]) -> Markup {
    let evaluated = |value: Option<f64>, text: fn(f64) -> String| finite(value).map_or_else(|| "–".into(), text);
    let last = |width, value: fn(&WidthRecord) -> Option<f64>| {
        records.iter().rev().find_map(|record| value(of(record, width)?))
    };
    let sum = |width, value: fn(&WidthRecord) -> u64| -> u64 {
        records.iter().filter_map(|record| of(record, width)).map(value).sum()
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label="Widths" {
            table {
                thead { tr {
                    th scope="col" { "Width" }
                    th scope="col" { "Updates" }
                    th scope="col" { "Train loss" }
                    th scope="col" { "Test loss" }
                    th scope="col" { "Test accuracy" }
                    th scope="col" { "Up" }
                    th scope="col" { "Down" }
                } }
                tbody {
                    @for width in widths(records) {
                        tr {
                            th scope="row" { (width) }
                            td { (sum(width, |noted| noted.completed as u64)) " of " (sum(width, |noted| noted.selected as u64)) }
                            td { (evaluated(last(width, |noted| noted.train_loss), figures::number)) }
                            td { (evaluated(last(width, |noted| noted.test_loss), figures::number)) }
                            td { (evaluated(last(width, |noted| noted.test_accuracy), figures::percent)) }
                            td { (figures::bytes(sum(width, |noted| noted.bytes_up) as f64)) }
                            td { (figures::bytes(sum(width, |noted| noted.bytes_down) as f64)) }
                        }
                    }
                }
            }
        }
    }
}

/// A bar for each unit of each width group: in how many updates it was trained.
pub(super) fn histogram(units: &UnitCounts, layout: &Layout) -> Markup {
    let groups: Vec<_> = layout
        .groups
        .iter()
        .zip(&units.0)
        .filter(|(_, counts)| !counts.is_empty())
        .collect();
    let most = groups
        .iter()
        .flat_map(|(_, counts)| counts.iter())
        .copied()
        .max()
        .unwrap_or(0)
        .max(1);
    let drawn = &groups[..groups.len().min(MOST_GROUPS)];
    let height = ROW_HEIGHT * drawn.len() as f64;
    html! {
        p { "In how many updates each unit was trained."
            @if drawn.len() < groups.len() { " The first " (drawn.len()) " width groups are shown; all are in units.json." }
        }
        figure.histogram {
            svg viewBox={ "0 0 " (LEFT + PLOT_WIDTH + 8.0) " " (height) } width=(LEFT + PLOT_WIDTH + 8.0) role="img" aria-label="How often each unit was trained" {
                @for (row, (group, counts)) in drawn.iter().enumerate() {
                    @let top = ROW_HEIGHT * row as f64 + 20.0;
                    @let each = counts.len().div_ceil(MOST_BARS);
                    @let width = PLOT_WIDTH / counts.len().div_ceil(each) as f64;
                    text.start x=(LEFT) y=(top - 6.0) { (described(&group.place, counts)) }
                    text.left x=(LEFT - 8.0) y=(top + 8.0) { (figures::grouped(most)) }
                    text.left x=(LEFT - 8.0) y=(top + BAR_HEIGHT) { "0" }
                    line.grid x1=(LEFT) x2=(LEFT + PLOT_WIDTH) y1=(top + BAR_HEIGHT) y2=(top + BAR_HEIGHT) {}
                    @for (bar, counts) in counts.chunks(each).enumerate() {
                        @let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
                        @let bar_height = mean / most as f64 * BAR_HEIGHT;
                        rect.bar x=(place(LEFT + width * bar as f64)) y=(place(top + BAR_HEIGHT - bar_height))
                            width=(place((width * 0.88).max(width - 2.0))) height=(place(bar_height)) {}
                    }
                }
            }
        }
    }
}

fn described(place: &str, counts: &[u64]) -> String {
    let (fewest, most) = (
        counts.iter().min().copied().unwrap_or(0),
        counts.iter().max().copied().unwrap_or(0),
    );
    let times = match fewest == most {
        true => figures::grouped(most),
        false => format!("{} to {}", figures::grouped(fewest), figures::grouped(most)),
    };
    format!(
        "layer {place}: {} units, updates that trained each: {times}",
        counts.len()
    )
}
