//! Checks that lower crates do not know what the crates above use them for.

use super::SourceFile;

/// Words that the code of a crate must not contain, in any case and as part of any name.
struct Rule {
    /// Folder of the crate's sources.
    folder: &'static str,
    words: &'static [&'static str],
    /// Beginning of the paths of files that may contain them.
    except: Option<&'static str>,
}

const RULES: [Rule; 2] = [
    Rule {
        folder: "crates/storage/store/src/",
        words: &["vnode", "volume", "location", "protection"],
        except: None,
    },
    Rule {
        folder: "crates/storage/store/src/",
        words: &["rocks"],
        except: Some("crates/storage/store/src/engines"),
    },
];

/// Returns a complaint for each line of code with a word that its crate must not know.
pub(crate) fn check(file: &SourceFile) -> Vec<String> {
    RULES.iter().filter(|rule| rule.holds_for(&file.path)).flat_map(|rule| rule.complaints(file)).collect()
}

impl Rule {
    fn holds_for(&self, path: &str) -> bool {
        path.starts_with(self.folder) && !self.except.is_some_and(|except| path.starts_with(except))
    }

    fn complaints(&self, file: &SourceFile) -> Vec<String> {
        let mut complaints = Vec::new();
        for (index, line) in file.lines.iter().enumerate() {
            let line = line.to_lowercase();
            if let Some(word) = self.words.iter().find(|word| line.contains(**word)) {
                let place = format!("{}:{}", file.path, index + 1);
                complaints.push(format!("{place} names `{word}`, which {} must not know", file.crate_name()));
            }
        }
        complaints
    }
}
