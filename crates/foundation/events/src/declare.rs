//! Declarations of figures, shared by the code that counts, displays and tests them.

use crate::{Histogram, Longest};

/// Kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Grows monotonically while the server runs.
    Counter,
    /// Current value.
    Gauge,
    /// Maximum since the server started.
    Highest,
    /// Maximum since the server started, from which the maximum of an interval can be derived.
    Longest,
    /// A distribution.
    Histogram,
}

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of the things that the name describes.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds; metrics convert them to seconds.
    Nanoseconds,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Name of the group, like `call`.
    pub of: &'static str,
    /// Name of the figure within the group, like `run`.
    pub name: &'static str,
    /// Description in one sentence.
    pub what: &'static str,
    /// Kind of figure.
    pub kind: Kind,
    /// Unit of the value.
    pub unit: Unit,
    /// Label of a figure that is a list; empty for a single number.
    pub label: &'static str,
    /// Values of the label.
    pub values: &'static [&'static str],
}

impl Declaration {
    /// Returns the stable name of the metric, including its unit.
    pub fn metric(&self) -> String {
        let unit = match self.unit {
            Unit::Count => "",
            Unit::Bytes => "_bytes",
            Unit::Nanoseconds => "_seconds",
        };
        let end = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("cellar_{}_{}{unit}{end}", self.of, self.name)
    }

    /// Returns the stable key in JSON: the name and the unit.
    pub fn key(&self) -> String {
        let unit = match self.unit {
            Unit::Count => "",
            Unit::Bytes => "_bytes",
            Unit::Nanoseconds => "_ns",
        };
        format!("{}{unit}", self.name)
    }
}

/// Value of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// One number for each value of the label.
    List(&'a [u64]),
    /// A maximum.
    Longest(&'a Longest),
    /// A distribution.
    Histogram(&'a Histogram),
}

impl Value<'_> {
    /// Returns the value as a list of numbers, to send it to another process.
    pub fn numbers(&self) -> Vec<u64> {
        match self {
            Value::Number(number) => vec![*number],
            Value::List(numbers) => numbers.to_vec(),
            Value::Longest(longest) => longest.numbers(),
            Value::Histogram(histogram) => {
                let buckets = histogram.buckets().flat_map(|(index, count)| [index as u64, count]);
                [histogram.sum(), histogram.max()].into_iter().chain(buckets).collect()
            }
        }
    }
}

/// Conversion from the [`Value::numbers`] of another process. Missing numbers count as 0.
pub trait FromNumbers {
    /// Builds the value from these numbers.
    fn from_numbers(numbers: &[u64]) -> Self;
}

impl FromNumbers for u64 {
    fn from_numbers(numbers: &[u64]) -> u64 {
        numbers.first().copied().unwrap_or(0)
    }
}

impl<const N: usize> FromNumbers for [u64; N] {
    fn from_numbers(numbers: &[u64]) -> [u64; N] {
        std::array::from_fn(|index| numbers.get(index).copied().unwrap_or(0))
    }
}

impl FromNumbers for Longest {
    fn from_numbers(numbers: &[u64]) -> Longest {
        Longest::from_numbers(numbers)
    }
}

impl FromNumbers for Histogram {
    fn from_numbers(numbers: &[u64]) -> Histogram {
        let (head, buckets) = numbers.split_at(numbers.len().min(2));
        let [sum, max] = FromNumbers::from_numbers(head);
        let buckets = buckets.chunks_exact(2).map(|pair| (pair[0] as usize, pair[1]));
        Histogram::from_buckets(sum, max, buckets)
    }
}

/// A group of figures, as declared by [`figures!`](crate::figures).
pub trait Declared {
    /// Declarations in order.
    const DECLARATIONS: &'static [Declaration];

    /// Returns the values, in the order of the declarations.
    fn values(&self) -> Vec<Value<'_>>;

    /// Builds the figures from another process's numbers for each name; figures without numbers are 0.
    fn from_numbers(numbers: impl Fn(&str) -> Vec<u64>) -> Self;
}

/// Declares a group of figures. Generates a structure of them that can be summed and compared with its
/// earlier states ([`Figures`](crate::Figures)) and displayed ([`Declared`]).
///
/// Each line is `name: kind unit`, where the kind is one of `counter`, `gauge`, `highest`, `longest`,
/// `histogram` or `counters(label, values)`, and the unit one of `Count`, `Bytes`, `Nanoseconds`. The
/// documentation of a line is also the metric's help text; `weight` names the figure by which rows of tables
/// are ordered.
#[macro_export]
macro_rules! figures {
    (
        $(#[doc = $about:literal])+
        $name:ident of $of:literal, weight $weight:ident {
            $($(#[doc = $what:literal])+ $field:ident: $kind:ident $(($label:literal, $values:expr))? $unit:ident,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $what])+ pub $field: $crate::figures!(@type $kind $(, $values)?),)+
        }

        impl $crate::Declared for $name {
            const DECLARATIONS: &'static [$crate::Declaration] = &[
                $($crate::Declaration {
                    of: $of,
                    name: stringify!($field),
                    what: concat!($($what),+),
                    kind: $crate::figures!(@kind $kind),
                    unit: $crate::Unit::$unit,
                    label: $crate::figures!(@label $($label)?),
                    values: $crate::figures!(@values $(&$values)?),
                },)+
            ];

            fn values(&self) -> Vec<$crate::Value<'_>> {
                vec![$($crate::figures!(@value $kind, &self.$field),)+]
            }

            fn from_numbers(numbers: impl Fn(&str) -> Vec<u64>) -> Self {
                $name { $($field: $crate::FromNumbers::from_numbers(&numbers(stringify!($field))),)+ }
            }
        }

        impl $crate::Figures for $name {
            fn add(&mut self, other: &Self) {
                $($crate::figures!(@add $kind, self.$field, other.$field);)+
            }

            fn since(&self, before: &Self) -> Option<Self> {
                // Unused if all figures are gauges.
                let _ = before;
                Some($name { $($field: $crate::figures!(@since $kind, self.$field, before.$field),)+ })
            }

            fn weight(&self) -> u64 {
                self.$weight
            }
        }
    };
    (@type histogram) => { $crate::Histogram };
    (@type longest) => { $crate::Longest };
    (@type counters, $values:expr) => { [u64; $values.len()] };
    (@type $kind:ident) => { u64 };
    (@kind counter) => { $crate::Kind::Counter };
    (@kind counters) => { $crate::Kind::Counter };
    (@kind gauge) => { $crate::Kind::Gauge };
    (@kind highest) => { $crate::Kind::Highest };
    (@kind longest) => { $crate::Kind::Longest };
    (@kind histogram) => { $crate::Kind::Histogram };
    (@label) => { "" };
    (@label $label:literal) => { $label };
    (@values) => { &[] };
    (@values $values:expr) => { $values };
    (@value histogram, $value:expr) => { $crate::Value::Histogram($value) };
    (@value longest, $value:expr) => { $crate::Value::Longest($value) };
    (@value counters, $value:expr) => { $crate::Value::List($value) };
    (@value $kind:ident, $value:expr) => { $crate::Value::Number(*$value) };
    (@add highest, $own:expr, $other:expr) => { $own = $own.max($other) };
    (@add histogram, $own:expr, $other:expr) => { $own.merge(&$other) };
    (@add longest, $own:expr, $other:expr) => { $own.add(&$other) };
    (@add counters, $own:expr, $other:expr) => {
        $own.iter_mut().zip($other).for_each(|(own, other)| *own = own.saturating_add(other))
    };
    (@add $kind:ident, $own:expr, $other:expr) => { $own = $own.saturating_add($other) };
    (@since counter, $now:expr, $before:expr) => { $now.checked_sub($before)? };
    (@since counters, $now:expr, $before:expr) => {{
        let mut news = $now;
        for (news, before) in news.iter_mut().zip($before) {
            *news = news.checked_sub(before)?;
        }
        news
    }};
    (@since histogram, $now:expr, $before:expr) => { $now.since(&$before) };
    (@since longest, $now:expr, $before:expr) => { $now.since(&$before) };
    (@since $kind:ident, $now:expr, $before:expr) => { $now };
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro makes what it declares public")]
mod tests {
    use super::*;
    use crate::Figures;

    const SIDES: [&str; 2] = ["left", "right"];

    figures! {
        /// Figures of a test.
        Sample of "sample", weight hits {
            /// Times hit.
            hits: counter Count,
            /// Bytes by side.
            bytes: counters("side", SIDES) Bytes,
            /// Things there.
            now: gauge Count,
            /// The longest wait.
            wait_max: highest Nanoseconds,
            /// Waits.
            wait: histogram Nanoseconds,
        }
    }

    fn sample(hits: u64) -> Sample {
        let mut wait = Histogram::default();
        (0..hits).for_each(|value| wait.record(value));
        Sample { hits, bytes: [hits, 2 * hits], now: hits, wait_max: hits, wait }
    }

    #[test]
    fn the_declaration_makes_names_and_values() {
        let names: Vec<String> = Sample::DECLARATIONS.iter().map(Declaration::metric).collect();
        let expected = [
            "cellar_sample_hits_total",
            "cellar_sample_bytes_bytes_total",
            "cellar_sample_now",
            "cellar_sample_wait_max_seconds",
            "cellar_sample_wait_seconds",
        ];
        assert_eq!(names, expected);
        assert_eq!((Sample::DECLARATIONS[1].label, Sample::DECLARATIONS[1].values), ("side", &SIDES[..]));
        assert_eq!(Sample::DECLARATIONS[0].what, " Times hit.");
        assert!(matches!(
            sample(3).values()[..],
            [Value::Number(3), Value::List([3, 6]), Value::Number(3), Value::Number(3), Value::Histogram(_)]
        ));
    }

    #[test]
    fn figures_survive_a_transfer_between_processes() {
        let reported = sample(9);
        let numbers = |name: &str| {
            let place = Sample::DECLARATIONS.iter().position(|of| of.name == name).unwrap();
            reported.values()[place].numbers()
        };
        assert_eq!(Sample::from_numbers(numbers), reported);
        assert_eq!(Sample::from_numbers(|_| vec![]), Sample::default());
        assert_eq!(Sample::from_numbers(|_| vec![1, 2, 3]).wait.count(), 0, "half a bucket");
    }

    #[test]
    fn states_are_added_and_compared() {
        let (before, mut now) = (sample(2), sample(2));
        now.add(&sample(5));
        assert_eq!((now.hits, now.bytes, now.now, now.wait_max, now.wait.count()), (7, [7, 14], 7, 5, 7));
        let news = now.since(&before).unwrap();
        assert_eq!((news.hits, news.bytes, news.now, news.wait.count()), (5, [5, 10], 7, 5));
        assert_eq!(before.since(&now), None);
        assert_eq!(now.weight(), 7);
    }
}
