//! Declarations of single events, shared by the code that counts them and the code that logs them.

use std::panic::Location;

/// Value of a field in a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// A text.
    Text(String),
    /// A number, in the unit that the field's name ends with.
    Number(u64),
    /// A number that may be negative.
    Code(i32),
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> FieldValue {
        FieldValue::Text(text.to_owned())
    }
}

impl From<String> for FieldValue {
    fn from(text: String) -> FieldValue {
        FieldValue::Text(text)
    }
}

impl From<u64> for FieldValue {
    fn from(number: u64) -> FieldValue {
        FieldValue::Number(number)
    }
}

impl From<i32> for FieldValue {
    fn from(code: i32) -> FieldValue {
        FieldValue::Code(code)
    }
}

/// File and line; empty if unknown.
impl From<Option<&'static Location<'static>>> for FieldValue {
    fn from(site: Option<&'static Location<'static>>) -> FieldValue {
        FieldValue::Text(site.map_or_else(String::new, |site| format!("{}:{}", site.file(), site.line())))
    }
}

/// One event, as declared by [`event!`](crate::event).
pub trait LoggedEvent {
    /// Kind of event.
    const EVENT: crate::Event;

    /// Names of its fields, with their units.
    const NAMES: &'static [&'static str];

    /// Returns the values of its fields, in the order of the names.
    fn values(&self) -> Vec<FieldValue>;

    /// Returns its duration in nanoseconds; `None` for an event without duration.
    fn took_ns(&self) -> Option<u64>;
}

/// Declares an event. Generates a structure for it, the fields of its log line ([`Happened`]) and, for
/// `counted by Figures.number`, a method that counts it: `number`, if given, grows by one, and fields that
/// are added or recorded go to the figure of the same name.
///
/// Each line is `name: use unit`. The use is `adds` for an amount to add to a counter, `records` for a value
/// of a histogram (`records(unless other)`: only if that field is 0), `chooses(list)` for the index of a
/// counter in a list that grows by one, or `shows` for a field that is only logged. Units are those of
/// figures and, for fields that are shown, also `Name` (a text from a closed set), `Text`, `Site` (a source
/// location), `Code`, `Outcome` and `Age` (nanoseconds that are not part of the event's duration).
#[macro_export]
macro_rules! event {
    (
        $(#[doc = $about:literal])+
        $name:ident is $which:ident $(, counted by $figures:ident $(.$each:ident)?)? {
            $($(#[doc = $what:literal])+ $field:ident: $use:ident $(($($how:ident)+))? $unit:ident,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $what])+ pub $field: $crate::event!(@type $unit),)+
        }

        impl $crate::LoggedEvent for $name {
            const EVENT: $crate::Event = $crate::Event::$which;
            const NAMES: &'static [&'static str] = &[$($crate::event!(@name $unit, $field)),+];

            fn values(&self) -> Vec<$crate::FieldValue> {
                vec![$($crate::event!(@reported $unit, self.$field).into()),+]
            }

            fn took_ns(&self) -> Option<u64> {
                let times: &[u64] = $crate::event!(@times self [] $($unit $field)+);
                times.iter().copied().reduce(u64::saturating_add)
            }
        }

        $crate::event!(@counted $name [$($figures $(.$each)?)?] $($use ($($($how)+)?) $field)+);
    };
    (@type Name) => { &'static str };
    (@type Text) => { String };
    (@type Site) => { Option<&'static std::panic::Location<'static>> };
    (@type Code) => { i32 };
    (@type Outcome) => { $crate::catalogue::Outcome };
    (@type $unit:ident) => { u64 };
    (@reported Text, $value:expr) => { $value.clone() };
    (@reported Outcome, $value:expr) => { $crate::catalogue::OUTCOMES[$value as usize] };
    (@reported $unit:ident, $value:expr) => { $value };
    (@name Bytes, $field:ident) => { concat!(stringify!($field), "_bytes") };
    (@name Nanoseconds, $field:ident) => { concat!(stringify!($field), "_ns") };
    (@name Age, $field:ident) => { concat!(stringify!($field), "_ns") };
    (@name $unit:ident, $field:ident) => { stringify!($field) };
    (@times $self:ident [$($times:tt)*]) => { &[$($times)*] };
    (@times $self:ident [$($times:tt)*] Nanoseconds $field:ident $($rest:tt)*) => {
        $crate::event!(@times $self [$($times)* $self.$field,] $($rest)*)
    };
    (@times $self:ident [$($times:tt)*] $unit:ident $field:ident $($rest:tt)*) => {
        $crate::event!(@times $self [$($times)*] $($rest)*)
    };
    (@counted $name:ident [] $($rest:tt)*) => {};
    (@counted $name:ident [$figures:ident $(.$each:ident)?] $($use:ident ($($how:ident)*) $field:ident)+) => {
        impl $figures {
            /// Counts one event.
            #[inline]
            pub fn count(&mut self, event: &$name) {
                $(self.$each += 1;)?
                $($crate::event!(@count $use ($($how)*), self, event, $field);)+
            }
        }
    };
    (@count shows (), $figures:expr, $event:expr, $field:ident) => {};
    (@count adds (), $figures:expr, $event:expr, $field:ident) => { $figures.$field += $event.$field };
    (@count chooses ($list:ident), $figures:expr, $event:expr, $field:ident) => {
        $figures.$list[$event.$field as usize] += 1
    };
    (@count records (), $figures:expr, $event:expr, $field:ident) => { $figures.$field.record($event.$field) };
    (@count records (unless $other:ident), $figures:expr, $event:expr, $field:ident) => {
        if $event.$other == 0 {
            $figures.$field.record($event.$field);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{
        CacheAction, CacheCounts, CallEnded, CallFigures, CallbackSent, DiskAccess, DiskFigures, LockFigures,
        LockWait, Outcome, PacketResent,
    };
    use crate::{Declared, EVENTS, Event};

    /// Fields that exist both in lines and in figures have the same name and unit, so that adding up lines
    /// yields the figures.
    #[test]
    fn lines_match_the_counters() {
        fn counted<E: LoggedEvent, F: Declared>(not_counted: &[&str]) {
            let unit = |of: &crate::Declaration| match of.unit {
                crate::Unit::Count => of.name.to_owned(),
                crate::Unit::Bytes => format!("{}_bytes", of.name),
                crate::Unit::Nanoseconds => format!("{}_ns", of.name),
            };
            let figures: Vec<String> = F::DECLARATIONS.iter().map(unit).collect();
            for name in E::NAMES {
                assert_eq!(figures.iter().any(|of| of == name), !not_counted.contains(name), "{name}");
            }
        }
        counted::<CallEnded, CallFigures>(&["service", "procedure", "volume", "outcome", "code"]);
        counted::<DiskAccess, DiskFigures>(&["access"]);
        counted::<LockWait, LockFigures>(&["lock", "holder"]);
        counted::<CacheAction, CacheCounts>(&["cache", "freed_bytes", "age_ns"]);
    }

    #[test]
    fn events_are_counted_and_logged_as_declared() {
        let access = DiskAccess { access: "write", failed: 1, buffered: 0, moved: 4096, time: 7000 };
        let mut figures = DiskFigures::default();
        figures.count(&access);
        figures.count(&DiskAccess { failed: 0, ..access.clone() });
        assert_eq!((figures.accesses, figures.failed, figures.moved), (2, 1, 8192));
        assert_eq!((figures.time.count(), figures.time.sum()), (2, 14_000));
        assert_eq!(DiskAccess::NAMES, ["access", "failed", "buffered", "moved_bytes", "time_ns"]);
        let reported = [
            FieldValue::from("write"),
            FieldValue::Number(1),
            FieldValue::Number(0),
            FieldValue::Number(4096),
            FieldValue::Number(7000),
        ];
        assert_eq!(access.values(), reported);
        assert_eq!(access.took_ns(), Some(7000));
    }

    #[test]
    fn calls_are_counted_by_outcome_and_by_wait() {
        let call = CallEnded {
            service: "AFS",
            procedure: "FetchStatus",
            volume: 7,
            outcome: Outcome::Missing,
            code: 2,
            fast_path: 1,
            received: 16,
            sent: 4,
            wait: 0,
            run: 900,
        };
        let mut figures = CallFigures::default();
        figures.count(&call);
        assert_eq!((figures.wait.count(), figures.fast_path, figures.run.sum()), (0, 1, 900));
        figures.count(&CallEnded { outcome: Outcome::Good, code: 0, fast_path: 0, wait: 50, ..call.clone() });
        assert_eq!((figures.calls, figures.received, figures.sent), (2, 32, 8));
        assert_eq!((figures.wait.count(), figures.wait.sum()), (1, 50));
        let of = |outcome: Outcome| figures.outcomes[outcome as usize];
        assert_eq!([of(Outcome::Missing), of(Outcome::Good), of(Outcome::Fault)], [1, 1, 0]);
        assert_eq!(call.values()[3], FieldValue::from("missing"));
    }

    #[test]
    fn evictions_are_counted_by_kind() {
        let nothing =
            CacheAction { cache: "chunks", misses: 0, evictions: 0, purged: 0, freed: 70, age: 9000 };
        let mut counts = CacheCounts::default();
        counts.count(&CacheAction { evictions: 1, ..nothing.clone() });
        counts.count(&CacheAction { purged: 5, ..nothing.clone() });
        assert_eq!((counts.misses, counts.evictions, counts.purged), (0, 1, 5));
        assert_eq!(counts, CacheCounts { evictions: 1, purged: 5, ..CacheCounts::default() });
        assert_eq!(nothing.took_ns(), None, "to have been there took nobody's time");
    }

    #[test]
    fn durations_include_waits() {
        let resent = PacketResent { connection: 1, call: 2, sequence: 3, sent: 1444 };
        assert_eq!((resent.took_ns(), EVENTS[PacketResent::EVENT as usize]), (None, "packet"));
        let sent = CallbackSent { client: "10.0.0.1:7001".into(), outcome: "delivered", time: 5 };
        assert_eq!((sent.took_ns(), CallbackSent::EVENT), (Some(5), Event::Callback));
        let wait = LockWait { lock: "volume", holder: Some(Location::caller()), wait: 9 };
        assert!(
            matches!(&wait.values()[1], FieldValue::Text(site) if site.contains("event.rs:")),
            "{wait:?}"
        );
    }
}
