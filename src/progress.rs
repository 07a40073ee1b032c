//! What a person sees of a run: a bar on a terminal, a line each round elsewhere.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, IsTerminal, Write as _},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use selvedge_coordinator::{Progress, RoundRecord};

/// Shows the progress of a run on standard error.
pub(crate) struct Display {
    bar: Option<ProgressBar>,
    rounds: u32,
    quiet: bool,
    /// The most clients that were there since the run began to wait for more.
    waiting: Option<usize>,
}

impl Display {
    pub(crate) fn new(rounds: u32, quiet: bool) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {prefix}{msg} ({eta} left)")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::with_draw_target(Some(rounds.into()), ProgressDrawTarget::stderr()).with_style(style)
        });
        Self {
            bar,
            rounds,
            quiet,
            waiting: None,
        }
    }

    pub(crate) fn show(&mut self, progress: &Progress<'_>) {
        match (progress, &self.bar) {
            _ if self.quiet => {}
            (Progress::Record { record, .. }, Some(bar)) => {
                self.waiting = None;
                bar.set_position(record.round.into());
                bar.set_prefix("");
                bar.set_message(describe(record));
            }
            (Progress::Record { record, .. }, None) => {
                self.waiting = None;
                self.say(&format!("round {}/{}: {}", record.round, self.rounds, describe(record)));
            }
            // Comings and goings of one client are not news.
            (Progress::Waiting { clients, .. }, _) if self.waiting.is_some_and(|most| *clients <= most) => {}
            (Progress::Waiting { clients, needed }, _) => {
                self.waiting = Some(*clients);
                self.say(&format!("waiting for clients: {clients} of {needed} have joined"));
            }
            (Progress::Notice(notice), _) => self.say(notice),
            (Progress::Round { answered, asked, .. }, Some(bar)) => {
                bar.set_prefix(format!("[{answered}/{asked} clients] "));
            }
            (Progress::Round { .. }, None) | (Progress::Snapshot { .. } | Progress::Ended { .. }, _) => {}
        }
    }

    /// A line, above the bar if there is one.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.println(line),
            None => drop(writeln!(io::stderr(), "{line}")),
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows on a terminal how much of a file has come.
pub(crate) struct Bytes(Option<ProgressBar>);

impl Bytes {
    pub(crate) fn new() -> Self {
        Self(io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {msg} {bytes}/{total_bytes}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()).with_style(style)
        }))
    }

    pub(crate) fn show(&self, file: &str, bytes: u64, of: u64) {
        if let Self(Some(bar)) = self {
            bar.set_length(of);
            bar.set_position(bytes);
            bar.set_message(file.to_owned());
        }
    }

    pub(crate) fn finish(&self) {
        if let Self(Some(bar)) = self {
            bar.finish_and_clear();
        }
    }
}

fn describe(record: &RoundRecord) -> String {
    let mut line = format!("{} of {} clients", record.completed, record.selected);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(line, ", {name} {value}");
        }
    };
    add("train loss", record.train_loss.map(|loss| format!("{loss:.4}")));
    add("test loss", record.test_loss.map(|loss| format!("{loss:.4}")));
    add(
        "test accuracy",
        record.test_accuracy.map(|accuracy| format!("{accuracy:.4}")),
    );
    let by_width: Vec<_> = record
        .widths
        .iter()
        .filter_map(|noted| Some(format!("{}: {:.4}", noted.width, noted.test_accuracy?)))
        .collect();
    add("by width", (!by_width.is_empty()).then(|| by_width.join(" ")));
    add(
        "clients' accuracy",
        record.clients_accuracy.map(|accuracy| format!("{accuracy:.4}")),
    );
    let counted = |failed: &BTreeMap<String, usize>| {
        let failed: Vec<_> = failed
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        (!failed.is_empty()).then(|| failed.join(", "))
    };
    add("failed:", counted(&record.failed));
    add("failed to evaluate:", counted(&record.evaluation_failed));
    add("note:", record.note.clone());
    let seconds = record.seconds;
    add(
        "in",
        Some(match seconds < 1.0 {
            true => format!("{:.0} ms", 1e3 * seconds),
            false => format!("{seconds:.1} s"),
        }),
    );
    line
}
