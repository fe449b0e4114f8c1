//! Partitions in buckets; here the bucket is a folder.

mod support;

use support::place::{Place, cellar};

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_partition_in_a_bucket_is_refused_with_the_line() {
    let place = Place::new("[[partition]]\nname = \"b\"\nbucket = \"file:///srv\"\n");
    let text = std::fs::read_to_string(&place.config).unwrap();
    let line = 1 + text.lines().position(|line| line.starts_with("bucket")).unwrap();
    for command in [&["config", "check"][..], &["serve"]] {
        let output = place.output(command);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(&format!("line {line}")), "{error}");
        assert!(error.contains("does not serve partitions in buckets"), "{error}");
    }
}

#[cfg(not(feature = "bucket"))]
#[test]
fn a_program_without_the_feature_names_it() {
    let output = cellar(&["bucket", "probe", "file:///srv"]).output().unwrap();
    assert!(output.status.code() == Some(1) && stderr(&output).contains("cargo feature `bucket`"));
}

#[cfg(feature = "bucket")]
mod with {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_folder_is_probed() {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("file://{}", folder.path().display());
        let output = cellar(&["bucket", "probe", &address, "--json"]).output().unwrap();
        let probed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&probed["bucket"], &probed["usable"]), (&json!(address), &json!(true)));
        let names: Vec<_> =
            probed["operations"].as_array().unwrap().iter().map(|one| &one["operation"]).collect();
        assert_eq!(names.len(), 9);
        assert!(names.contains(&&json!("replace-race")), "{names:?}");
        let said = support::place::printed(&mut cellar(&["bucket", "probe", &address]));
        assert!(said.contains("REQUIRES") && said.contains("can hold a partition"), "{said}");
        for (wrong, words) in [
            ("file:///absent/folder", "/absent/folder"),
            ("ftp://x", "valid are `s3://"),
            ("s3://key:s3cret@x", "must not contain credentials"),
        ] {
            let output = cellar(&["bucket", "probe", wrong]).output().unwrap();
            let error = stderr(&output);
            assert!(output.status.code() == Some(1) && error.contains(words), "{wrong}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
