//! Replaces everything that differs between two equal runs by names: times, ids, addresses, sizes.

use regex::Regex;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Replaces values that differ between runs, and numbers volume ids in order of appearance.
#[derive(Default)]
pub struct Normaliser {
    ids: HashMap<String, String>,
}

static RULES: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let rule = |pattern: &str, to| (Regex::new(pattern).expect("a valid pattern"), to);
    vec![
        rule(
            r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ 0-9]\d \d\d:\d\d:\d\d \d{4}",
            "DATE",
        ),
        rule(r"\b\d{1,2}/\d{1,2}/\d{2,4} \d\d:\d\d(:\d\d)?", "DATE"),
        rule(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b", "DATE"),
        // `vos -format` prints the seconds since 1970 before the date.
        rule(r"\b[12]\d{9}[ \t]+DATE\b", "SECONDS DATE"),
        rule(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{2}-?[0-9a-f]{2}-[0-9a-f]{12}", "UUID"),
        rule(r"\b10\.99\.0\.\d{1,3}\b", "ADDRESS"),
        rule(
            r"(free space on partition /vicep\w+:|Free space on partition /vicep\w+:) \d+ K blocks out of total \d+",
            "$1 N K blocks out of total N",
        ),
        rule(r"(The partition has) \d+ (blocks available out of) \d+", "$1 N $2 N"),
        // `fs diskfree`: the warning that the partition is full.
        rule(r"(?m)^(\S+ +\d+ +-?\d+ +-?\d+ +\d+%)<<[ \t]*<<WARNING[ \t]*$", "$1"),
        // `fs listquota`: how full the partition is, and the warning that it is.
        rule(r"(?m)^(\S+ +(?:no limit|[\d.]+[KMGT]?) +[\d.]+[KMGT]? +\d+%(?:<<)?) +\d+%(<<)?.*$", "$1 N%"),
    ]
});
static VOLUME_ID: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b5368\d{5}\b").expect("a valid pattern"));
static BLANKS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[ \t]+").expect("a valid pattern"));

impl Normaliser {
    /// Returns `text` with all such values replaced; `host` is the server's own name.
    pub fn apply(&mut self, text: &str, host: &str) -> String {
        let mut out = text.to_owned();
        for (pattern, to) in RULES.iter() {
            out = pattern.replace_all(&out, *to).into_owned();
        }
        let host = Regex::new(&format!(r"\b{host}(\.test\.example)?\b")).expect("a host name");
        out = host.replace_all(&out, "HOST").into_owned();
        out = VOLUME_ID.replace_all(&out, |found: &regex::Captures<'_>| self.name(&found[0])).into_owned();
        let lines: Vec<String> =
            out.lines().map(|line| BLANKS.replace_all(line.trim_end(), " ").into_owned()).collect();
        lines.join("\n").trim_end().to_owned()
    }

    fn name(&mut self, id: &str) -> String {
        let next = self.ids.len() + 1;
        self.ids.entry(id.to_owned()).or_insert_with(|| format!("VOLUME{next}")).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_left_out_whatever_blanks_follow_them() {
        let mut normaliser = Normaliser::default();
        for blank in [" ", "\t", "  \t"] {
            let line = format!("creationDate\t1795349244{blank}Sun Nov 22 12:07:24 2026\n");
            assert_eq!(normaliser.apply(&line, "fs"), "creationDate SECONDS DATE");
        }
        assert_eq!(normaliser.apply("maxquota\t1795349244", "fs"), "maxquota 1795349244");
    }

    #[test]
    fn sizes_of_the_partition_are_left_out_of_quotas() {
        let mut normaliser = Normaliser::default();
        let line = |partition: &str| format!("other       5000     3    0%     {partition}");
        for partition in ["62%  ", "98%<<\t<<WARNING"] {
            assert_eq!(normaliser.apply(&line(partition), "fs"), "other 5000 3 0% N%");
        }
        assert_eq!(
            normaliser.apply("root.cell    no limit   11    0%    88%  ", "fs"),
            "root.cell no limit 11 0% N%"
        );
    }

    #[test]
    fn full_partitions_are_no_warning() {
        let line = "other  264212084 231290705  32921379  98%<<\t<<WARNING\n";
        assert_eq!(Normaliser::default().apply(line, "fs"), "other 264212084 231290705 32921379 98%");
    }

    #[test]
    fn volumes_are_numbered_as_they_appear() {
        let mut normaliser = Normaliser::default();
        assert_eq!(normaliser.apply("536870915 536870912 536870915", "fs"), "VOLUME1 VOLUME2 VOLUME1");
        assert_eq!(normaliser.apply("536870912 on fs.test.example", "fs"), "VOLUME2 on HOST");
    }
}
