//! `durability = "always" | "close" | "interval:MS"`.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;
use volume::Durability;

/// Range of milliseconds in `interval:MS`.
const INTERVAL_MS: RangeInclusive<u64> = 10..=60_000;

/// Maximum delay of stored data with `close`.
const CLOSE_PERIOD: Duration = Duration::from_secs(1);

/// When an acknowledged change must be on disk; docs/design/store.md describes what a crash can lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurabilityPolicy {
    /// Changes that wait for the disk.
    pub durability: Durability,
    /// Maximum delay of the other changes; `None` if there are no others.
    pub period: Option<Duration>,
}

impl DurabilityPolicy {
    /// Every change waits for the disk.
    pub const ALWAYS: DurabilityPolicy = DurabilityPolicy { durability: Durability::Always, period: None };

    /// Parses the setting.
    ///
    /// # Errors
    /// Describes the error and the valid values.
    pub fn parse(text: &str) -> Result<DurabilityPolicy, String> {
        if let Some(number) = text.strip_prefix("interval:") {
            return interval(number);
        }
        match text {
            "always" => Ok(DurabilityPolicy::ALWAYS),
            "close" => Ok(DurabilityPolicy { durability: Durability::Close, period: Some(CLOSE_PERIOD) }),
            _ => Err(format!(
                "`{text}` is not known; valid are \"always\", \"close\", and \"interval:MS\" like \"interval:500\""
            )),
        }
    }
}

/// Formats the setting as [`DurabilityPolicy::parse`] takes it.
impl fmt::Display for DurabilityPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.durability {
            Durability::Always => f.write_str("always"),
            Durability::Close => f.write_str("close"),
            Durability::Interval => {
                write!(f, "interval:{}", self.period.unwrap_or_default().as_millis())
            }
        }
    }
}

fn interval(number: &str) -> Result<DurabilityPolicy, String> {
    let (least, most) = (INTERVAL_MS.start(), INTERVAL_MS.end());
    let number = number.parse().ok().filter(|number| INTERVAL_MS.contains(number));
    let ms = number
        .ok_or_else(|| format!("the interval is not a number within {least} to {most} milliseconds"))?;
    Ok(DurabilityPolicy { durability: Durability::Interval, period: Some(Duration::from_millis(ms)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused_with_valid_ones() {
        for (text, durability, ms) in [
            ("always", Durability::Always, None),
            ("close", Durability::Close, Some(1000)),
            ("interval:10", Durability::Interval, Some(10)),
            ("interval:60000", Durability::Interval, Some(60_000)),
        ] {
            let expected = DurabilityPolicy { durability, period: ms.map(Duration::from_millis) };
            assert_eq!(DurabilityPolicy::parse(text), Ok(expected), "{text}");
            assert_eq!(expected.to_string(), text);
        }
        for text in ["", "Always", "interval", "interval:500ms", "interval:-1"] {
            assert!(DurabilityPolicy::parse(text).is_err(), "{text}");
        }
        for text in ["interval:9", "interval:60001", "interval:99999999999999999999", "interval:"] {
            assert!(DurabilityPolicy::parse(text).unwrap_err().contains("10 to 60000"), "{text}");
        }
    }
}
