//! Figures as people read them.

/// The space between a figure and its unit, at which no line breaks.
const SPACE: char = '\u{a0}';

/// `0.9123` as `91.23 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2}{SPACE}%", share * 100.0)
}

/// Four significant digits or so: `0.04321`, `2.457`, `1.2e9`.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        small if small < 1e-3 => format!("{value:.2e}"),
        small if small < 0.1 => format!("{value:.5}"),
        middle if middle < 10.0 => format!("{value:.3}"),
        large if large < 1e5 => format!("{value:.1}"),
        _ => format!("{value:.2e}"),
    }
}

/// `66_523_600` as `66.5 MB`.
pub(super) fn bytes(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let power = (bytes.max(1.0).log10() / 3.0).floor().min(5.0);
    let value = bytes / 1e3f64.powf(power);
    let decimals = usize::from(value < 100.0 && value.fract() >= 0.05);
    format!("{value:.decimals$}{SPACE}{}", units[power as usize])
}

/// `4.2 s`, `3 min 07 s`, `2 h 05 min`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..60 => format!("{seconds:.1}{SPACE}s"),
        60..3600 => format!("{}{SPACE}min {:02}{SPACE}s", whole / 60, whole % 60),
        _ => format!("{}{SPACE}h {:02}{SPACE}min", whole / 3600, whole / 60 % 60),
    }
}

/// `1663370` as `1 663 370`.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(SPACE);
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_carry_their_units() {
        let plain = |text: String| text.replace(SPACE, " ");
        assert_eq!(plain(percent(0.9123)), "91.23 %");
        assert_eq!(plain(bytes(0.0)), "0 B");
        assert_eq!(plain(bytes(999.0)), "999 B");
        assert_eq!(plain(bytes(2_500_000.0)), "2.5 MB");
        assert_eq!(plain(bytes(2_000_000.0)), "2 MB");
        assert_eq!(plain(bytes(u64::MAX as f64)), "18447 PB");
        assert_eq!(plain(duration(4.21)), "4.2 s");
        assert_eq!(plain(duration(187.9)), "3 min 07 s");
        assert_eq!(plain(duration(7500.0)), "2 h 05 min");
        assert_eq!(plain(grouped(1_663_370)), "1 663 370");
        assert_eq!(plain(grouped(42)), "42");
        assert_eq!(number(2.4567), "2.457");
        assert_eq!(number(1e300), "1.00e300");
    }
}
