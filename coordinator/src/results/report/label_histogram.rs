//! How the examples are dealt: what each client holds, by class.

use maud::{Markup, html};
use selvedge_data::Holdings;

use super::{chart::place, figures};

/// Classes beyond the first so many are not drawn: their rows would be too narrow to see.
const MOST_CLASSES: usize = 100;

const LEFT: f64 = 64.0;
const PLOT_WIDTH: f64 = 880.0;
const BARS_TOP: f64 = 8.0;
const BARS_BOTTOM: f64 = 88.0;
const ROWS_TOP: f64 = 100.0;

/// How many examples of each class the first clients hold.
pub(crate) struct LabelHistogram<'a> {
    holdings: &'a Holdings,
    classes: usize,
}

impl<'a> LabelHistogram<'a> {
    /// `None` when there are no clients or no classes.
    pub(crate) fn new(holdings: &'a Holdings) -> Option<Self> {
        let classes = holdings.shown.iter().map(|client| client.labels.len()).max();
        let classes = classes.filter(|classes| *classes > 0)?;
        Some(Self { holdings, classes })
    }

    /// A column a client: above, a bar of all its examples; below, a cell a class, the darker the larger the class's
    /// share of the client's examples.
    pub(super) fn to_html(&self) -> Markup {
        let Holdings {
            clients,
            examples,
            fewest,
            most,
            shown,
            ..
        } = self.holdings;
        let drawn: Vec<&[u64]> = shown.iter().map(|client| client.labels.as_slice()).collect();
        let classes = self.classes.min(MOST_CLASSES);
        let largest = drawn.iter().map(|counts| total(counts)).max().unwrap_or(0).max(1) as f64;

        let column = (PLOT_WIDTH / drawn.len() as f64).min(56.0);
        let row = (240.0 / classes as f64).clamp(5.0, 18.0);
        let rows_bottom = ROWS_TOP + row * classes as f64;
        let width = (LEFT + column * drawn.len() as f64 + 8.0).max(576.0);
        let gap = (column * 0.12).min(2.0);
        let label_every = drawn.len().div_ceil(20).max(1);
        let class_every = (12.0 / row).ceil() as usize;
        let overview = format!(
            "{} examples, {} classes, {clients} clients that hold {} to {} examples each",
            figures::grouped(*examples as u64),
            self.classes,
            figures::grouped(*fewest as u64),
            figures::grouped(*most as u64),
        );
        html! {
            p { (overview) "."
                @if *clients > drawn.len() { " The first " (drawn.len()) " clients are shown." }
                @if self.classes > MOST_CLASSES { " The first " (MOST_CLASSES) " classes are shown." }
            }
            figure.histogram {
                svg viewBox={ "0 0 " (width) " " (rows_bottom + 40.0) } width=(width) role="img" aria-label={ "Label histogram: " (overview) } {
                    text.left x=(LEFT - 8.0) y=(BARS_TOP + 8.0) { (figures::grouped(largest as u64)) }
                    text.left x=(LEFT - 8.0) y=(BARS_BOTTOM) { "0" }
                    line.grid x1=(LEFT) x2=(LEFT + column * drawn.len() as f64) y1=(BARS_BOTTOM) y2=(BARS_BOTTOM) {}
                    @for class in (0..classes).step_by(class_every) {
                        text.left x=(LEFT - 8.0) y=(ROWS_TOP + row * (class as f64 + 0.5) + 4.0) { (class) }
                    }
                    @for (client, counts) in drawn.iter().enumerate() {
                        @let x = LEFT + column * client as f64;
                        @let height = total(counts) as f64 / largest * (BARS_BOTTOM - BARS_TOP);
                        g {
                            title { (described(client, counts)) }
                            rect.column x=(place(x)) y=(BARS_TOP) width=(place(column)) height=(rows_bottom - BARS_TOP) {}
                            rect.bar x=(place(x + gap / 2.0)) y=(place(BARS_BOTTOM - height)) width=(place(column - gap)) height=(place(height)) {}
                            @for (class, &count) in counts.iter().take(classes).enumerate().filter(|(_, count)| **count > 0) {
                                rect.cell x=(place(x + gap / 2.0)) y=(place(ROWS_TOP + row * class as f64 + 0.5))
                                    width=(place(column - gap)) height=(place(row - 1.0)) fill-opacity=(opacity(count, total(counts))) {}
                            }
                        }
                        @if client.is_multiple_of(label_every) {
                            text.middle x=(place(x + column / 2.0)) y=(rows_bottom + 16.0) { (client) }
                        }
                    }
                    text.axis x=(place(LEFT + column * drawn.len() as f64 / 2.0)) y=(rows_bottom + 34.0) { "client" }
                    text.axis transform={ "translate(14 " ((ROWS_TOP + rows_bottom) / 2.0) ") rotate(-90)" } { "class" }
                }
                (legend())
            }
        }
    }
}

fn legend() -> Markup {
    html! {
        figcaption {
            "Bars: examples a client holds. Cells: a class’s share of them, "
            @for percent in [1, 10, 50, 100] {
                span.key {
                    svg.swatch viewBox="0 0 12 12" aria-hidden="true" { rect.cell width="12" height="12" fill-opacity=(opacity(percent, 100)) {} }
                    (percent) " %"
                }
            }
        }
    }
}

fn total(counts: &[u64]) -> u64 {
    counts.iter().copied().fold(0, u64::saturating_add)
}

/// By the square root of the share, so that a tenth and a hundredth can be told from nothing.
fn opacity(count: u64, total: u64) -> f64 {
    let share = count as f64 / total.max(1) as f64;
    ((0.06 + 0.94 * share.sqrt()) * 100.0).round() / 100.0
}

fn described(client: usize, counts: &[u64]) -> String {
    let classes = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let classes: Vec<_> = classes
        .map(|(class, count)| format!("{count} of class {class}"))
        .collect();
    format!("client {client}: {} examples\n{}", total(counts), classes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_data::ClientHolding;

    fn holdings(clients: usize, counts: &[&[u64]]) -> Holdings {
        let shown = counts.iter().enumerate().map(|(client, labels)| ClientHolding {
            client,
            group: None,
            examples: labels.iter().sum::<u64>() as usize,
            labels: labels.to_vec(),
        });
        Holdings {
            clients,
            examples: 7,
            empty_clients: 0,
            fewest: 1,
            median: 1,
            most: 4,
            shown: shown.collect(),
        }
    }

    #[test]
    fn a_histogram_without_clients_or_classes_is_none() {
        assert!(LabelHistogram::new(&holdings(0, &[])).is_none());
        assert!(LabelHistogram::new(&holdings(2, &[&[], &[]])).is_none());
    }

    #[test]
    fn a_cell_is_drawn_for_each_class_that_a_client_holds() {
        let holdings = holdings(3, &[&[3, 0, 1], &[0], &[]]);
        let html = LabelHistogram::new(&holdings).unwrap().to_html().into_string();
        assert_eq!(html.matches(r#"<rect class="bar""#).count(), 3);
        // Two of the histogram and four of the legend.
        assert_eq!(html.matches(r#"<rect class="cell""#).count(), 2 + 4);
        assert!(html.contains("client 0: 4 examples\n3 of class 0, 1 of class 2"));
        assert!(!html.contains("NaN"));
    }

    #[test]
    fn only_the_first_clients_and_classes_are_drawn_and_the_report_says_so() {
        let row: &[u64] = &[1; 150];
        let holdings = holdings(101, &[row; 100]);
        let html = LabelHistogram::new(&holdings).unwrap().to_html().into_string();
        assert_eq!(html.matches(r#"<rect class="bar""#).count(), 100);
        assert_eq!(html.matches(r#"<rect class="cell""#).count(), 100 * 100 + 4);
        assert!(html.contains("The first 100 clients are shown") && html.contains("The first 100 classes are shown"));
    }
}
