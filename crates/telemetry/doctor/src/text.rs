//! Numbers formatted for display.
#![allow(clippy::cast_precision_loss, reason = "people read three digits")]

/// Formats nanoseconds with three digits.
pub fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0 => return "-".to_owned(),
        1..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// Formats bytes in the largest unit that does not exceed them.
pub fn bytes(bytes: u64) -> String {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

/// Formats a part of a whole as a percentage; `-` if the whole is 0.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

/// Turns a text that starts with a lower-case letter and has no full stop into a sentence.
pub(crate) fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(rest).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let times = [0, 999, 1_000, 12_345, 123_456, 1_234_567, 9_999_999_999].map(time);
        assert_eq!(times, ["-", "999 ns", "1.00 us", "12.3 us", "123 us", "1.23 ms", "10.00 s"]);
    }

    #[test]
    fn sizes_and_shares_are_short() {
        let sizes = [1023, 1536, 5 << 20, 3 << 40].map(bytes);
        assert_eq!(sizes, ["1023 bytes", "1.5 KiB", "5.0 MiB", "3.0 TiB"]);
        assert_eq!([percent(1, 3), percent(0, 0)], ["33.3 %", "-"]);
        assert_eq!(sentence("run it"), "Run it.");
    }
}
