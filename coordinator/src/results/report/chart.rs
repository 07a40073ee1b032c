//! A line chart over the rounds, as SVG that takes its colours from the page, so that it is light or dark with it.

use std::fmt::Write;

use maud::{Markup, html};

use super::figures;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = HEIGHT - 40.0;

/// A line has no more points than a screen can show; of longer runs every n-th round is drawn, and the last.
const MOST_POINTS: usize = 400;

/// Up to this many points are marked by dots.
const MOST_DOTS: usize = 40;

/// Values beyond this are not drawn: they would take the scale beyond what a float holds.
const LARGEST: f64 = 1e300;

/// One chart.
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) scale: Scale,
    /// The last round of the run, up to which all charts of a report reach.
    pub(super) rounds: u32,
    pub(super) series: Vec<Series>,
}

/// One line.
pub(super) struct Series {
    name: String,
    points: Vec<(u32, f64)>,
}

/// What the values are.
#[derive(Clone, Copy)]
pub(super) enum Scale {
    /// Shares in [0, 1], shown in per cent.
    Percent,
    /// Bytes, from 0.
    Bytes,
    /// Whole numbers, from 0.
    Count,
    /// Plain numbers, from 0.
    Number,
}

impl Scale {
    fn text(self, value: f64) -> String {
        match self {
            Self::Percent => figures::percent(value),
            Self::Bytes => figures::bytes(value),
            Self::Count => figures::grouped(value as u64),
            Self::Number => figures::number(value),
        }
    }

    /// `value` with as many decimals as tell it from its neighbours `step` away.
    fn tick(self, value: f64, step: f64) -> String {
        let decimals = |step: f64| (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        match self {
            Self::Bytes | Self::Count => self.text(value),
            Self::Percent => format!("{:.*} %", decimals(step * 100.0), value * 100.0),
            Self::Number if value.abs() < 1e5 => format!("{value:.*}", decimals(step)),
            Self::Number => format!("{value:.1e}"),
        }
    }
}

impl Series {
    /// A line through the rounds that have a value.
    pub(super) fn new(name: impl Into<String>, points: impl Iterator<Item = (u32, Option<f64>)>) -> Self {
        let drawable = |value: &f64| value.abs() < LARGEST;
        let points = points
            .filter_map(|(round, value)| Some((round, value.filter(drawable)?)))
            .collect();
        let name = name.into();
        Self { name, points }
    }
}

impl Chart {
    /// The chart with its legend; nothing when there is nothing to draw.
    pub(super) fn to_html(&self) -> Markup {
        let drawn: Vec<_> = self
            .series
            .iter()
            .enumerate()
            .filter_map(|(index, series)| Some((index + 1, series, series.points.last()?.1)))
            .collect();
        if drawn.is_empty() {
            return html! {};
        }
        let label = drawn
            .iter()
            .map(|(_, series, last)| format!("{}, last {}", series.name, self.scale.text(*last)));
        let label = format!("{} by round: {}", self.title, label.collect::<Vec<_>>().join("; "));
        let ticks = self.ticks();
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        let step = (high - low) / (ticks.len() - 1).max(1) as f64;
        let y = |value: f64| BOTTOM - (value - low) / (high - low) * (BOTTOM - TOP);
        html! {
            figure.chart {
                figcaption {
                    h3 { (self.title) }
                    @for (index, series, last) in &drawn {
                        span.key { i class={ "swatch s" (index) } {} (series.name) " " b { (self.scale.text(*last)) } }
                    }
                }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(label) {
                    @for &tick in &ticks {
                        line.grid x1=(LEFT) x2=(RIGHT) y1=(place(y(tick))) y2=(place(y(tick))) {}
                        text.left x=(LEFT - 8.0) y=(place(y(tick) + 4.0)) { (self.scale.tick(tick, step)) }
                    }
                    @for round in round_ticks(self.rounds) {
                        text.middle x=(place(self.x(round))) y=(BOTTOM + 18.0) { (round) }
                    }
                    text.axis x=(place((LEFT + RIGHT) / 2.0)) y=(HEIGHT - 4.0) { "round" }
                    @for (index, series, _) in &drawn {
                        (self.line(*index, &thinned(&series.points), y))
                    }
                }
            }
        }
    }

    fn line(&self, index: usize, points: &[(u32, f64)], y: impl Fn(f64) -> f64) -> Markup {
        let mut path = String::new();
        for &(round, value) in points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            // Writing to a string cannot fail.
            let _ = write!(path, "{command}{} {}", place(self.x(round)), place(y(value)));
        }
        let class = if points.len() > MOST_DOTS { "unmarked" } else { "marked" };
        html! {
            g class={ "s" (index) } {
                path.line d=(path) {}
                @for &(round, value) in points {
                    circle class=(class) cx=(place(self.x(round))) cy=(place(y(value))) r="3" {
                        title { "round " (round) ": " (self.scale.text(value)) }
                    }
                }
            }
        }
    }

    fn x(&self, round: u32) -> f64 {
        match self.rounds {
            0 | 1 => (LEFT + RIGHT) / 2.0,
            last => LEFT + f64::from(round.saturating_sub(1)) / f64::from(last - 1) * (RIGHT - LEFT),
        }
    }

    /// At least two round values, evenly spaced, that enclose all that is drawn.
    fn ticks(&self) -> Vec<f64> {
        let values = || {
            self.series
                .iter()
                .flat_map(|series| series.points.iter().map(|point| point.1))
        };
        let mut low = values().fold(f64::INFINITY, f64::min);
        let mut high = values().fold(f64::NEG_INFINITY, f64::max);
        if !matches!(self.scale, Scale::Percent) {
            low = low.min(0.0);
        }
        if high - low <= 1e-9 * high.abs().max(low.abs()) {
            let room = if high == 0.0 { 1.0 } else { high.abs() * 0.1 };
            (low, high) = (low - if low == 0.0 { 0.0 } else { room }, high + room);
        }
        if matches!(self.scale, Scale::Percent) {
            (low, high) = (low.max(0.0), high.min(1.0));
        }
        let mut step = round_step((high - low) / 4.0);
        if matches!(self.scale, Scale::Count) {
            step = step.max(1.0);
        }
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        // Four steps or so, by the choice of the step; the bound is for spans that floats hardly resolve.
        let count = ((last - first) as usize).clamp(1, 20);
        (0..=count).map(|index| (first + index as f64) * step).collect()
    }
}

/// The rounds that are named below a chart: the first, and those at even steps.
fn round_ticks(last: u32) -> Vec<u32> {
    let step = round_step(f64::from(last) / 6.0).max(1.0) as u32;
    let mut ticks: Vec<u32> = (1..=last / step).map(|index| index * step).collect();
    if step > 1 {
        ticks.insert(0, 1);
    }
    ticks
}

/// The smallest of 1, 2, 5, 10, 20, 50, … (and 0.5, 0.2, …) that is no less than `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

fn thinned(points: &[(u32, f64)]) -> Vec<(u32, f64)> {
    let step = points.len().div_ceil(MOST_POINTS).max(1);
    let last = points.len().saturating_sub(1);
    let kept = |index: &usize| index.is_multiple_of(step) || *index == last;
    (0..points.len()).filter(kept).map(|index| points[index]).collect()
}

/// A coordinate to a tenth of a unit.
pub(super) fn place(coordinate: f64) -> f64 {
    (coordinate * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(scale: Scale, values: &[f64]) -> Chart {
        let points = (1..).zip(values).map(|(round, &value)| (round, Some(value)));
        Chart {
            title: "t",
            scale,
            rounds: values.len() as u32,
            series: vec![Series::new("s", points)],
        }
    }

    #[test]
    fn ticks_enclose_all_values() {
        let cases: [&[f64]; 8] = [
            &[0.0],
            &[1.0],
            &[0.5, 0.5],
            &[0.981, 0.9902],
            &[1e-300, 2e-300],
            &[0.0, 9.9e299],
            &[-3.0, -1.0],
            &[2.5001, 2.5002],
        ];
        for values in cases {
            for scale in [Scale::Number, Scale::Bytes, Scale::Percent] {
                let values: Vec<_> = match scale {
                    Scale::Percent => values.iter().map(|value| value.clamp(0.0, 1.0)).collect(),
                    _ => values.to_vec(),
                };
                let ticks = chart(scale, &values).ticks();
                assert!((2..=11).contains(&ticks.len()), "{values:?} {ticks:?}");
                let slack = 1e-6 * (ticks[1] - ticks[0]);
                for value in values {
                    assert!(
                        ticks[0] - slack <= value && value <= ticks[ticks.len() - 1] + slack,
                        "{value} {ticks:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn steps_are_one_two_or_five() {
        assert_eq!([0.03, 0.2, 3.0, 6.0].map(round_step), [0.05, 0.2, 5.0, 10.0]);
        assert_eq!(round_ticks(1), [1]);
        assert_eq!(round_ticks(5), [1, 2, 3, 4, 5]);
        assert_eq!(round_ticks(30), [1, 5, 10, 15, 20, 25, 30]);
        assert!(round_ticks(0).is_empty());
    }

    #[test]
    fn a_long_line_is_thinned_and_keeps_its_ends() {
        let points: Vec<_> = (1..=5000).map(|round| (round, f64::from(round))).collect();
        let thinned = thinned(&points);
        assert!(thinned.len() <= MOST_POINTS + 1);
        assert_eq!((thinned[0], thinned[thinned.len() - 1]), (points[0], points[4999]));
    }

    #[test]
    fn what_is_no_number_is_not_drawn() {
        let html = chart(Scale::Number, &[1.0, f64::NAN, f64::INFINITY, 1e301, 2.0])
            .to_html()
            .into_string();
        assert!(!html.contains("NaN") && !html.contains("inf"));
        assert_eq!(html.matches("<circle").count(), 2);
        assert_eq!(chart(Scale::Number, &[f64::NAN]).to_html().into_string(), "");
    }
}
