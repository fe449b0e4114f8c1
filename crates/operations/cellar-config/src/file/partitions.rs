//! `[partitions]` and `[[partition]]`: the partitions of the server.

use super::Origin;
use super::reach::bucket_section;
use crate::Role;
use crate::files::Exposure;
use crate::partitions::{BucketSettings, PartitionSettings, Place};
use anyhow::{Result, bail};
use base::PartitionId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// `[partitions]`: the directories of partitions on local disks, by their letters.
pub(super) type LocalSection = BTreeMap<Spanned<String>, Spanned<PathBuf>>;

bucket_section! {
    /// `[[partition]]`: a partition in a bucket.
    BucketSection {
        name: Spanned<String>,
    }
}

/// Resolves both kinds, in the order of their letters.
pub(super) fn partitions(
    origin: &Origin<'_>,
    folder: &Path,
    local: LocalSection,
    buckets: Vec<BucketSection>,
    roles: &[Role],
    exposure: Exposure,
) -> Result<Vec<PartitionSettings>> {
    let (mut out, mut missing) = (Vec::new(), Vec::new());
    for (name, path) in local {
        let id = name.get_ref().parse().map_err(|error| origin.bad(&name, "partitions", error))?;
        let place = folder.join(path.get_ref());
        if !place.is_dir() {
            let what = format!(
                "there is no directory {}; a partition is only created in an existing one",
                place.display()
            );
            missing.push(origin.bad(&path, &format!("partitions.{}", name.get_ref()), what));
        }
        out.push(PartitionSettings { id, place: Place::Folder(place), key: None });
    }
    for section in buckets {
        let partition = section.resolve(origin, folder, exposure, &out)?;
        out.push(partition);
    }
    out.sort_by_key(|partition| partition.id);
    // With several partitions, a missing disk keeps only its own volumes offline.
    if missing.len() == out.len()
        && let Some(first) = missing.into_iter().next()
    {
        return Err(first);
    }
    if out.is_empty() && (roles.contains(&Role::Fs) || roles.contains(&Role::Vol)) {
        bail!(
            "{}: the roles fs and vol need a partition, like `[partitions]` with `a = \"/vicepa\"`",
            origin.path.display()
        );
    }
    Ok(out)
}

impl BucketSection {
    /// Returns the name, for messages about the section.
    pub(super) fn name(&self) -> &Spanned<String> {
        &self.name
    }

    /// Resolves the section; `earlier` are the partitions before it.
    fn resolve(
        self,
        origin: &Origin<'_>,
        folder: &Path,
        exposure: Exposure,
        earlier: &[PartitionSettings],
    ) -> Result<PartitionSettings> {
        let name = self.name.get_ref();
        let id: PartitionId =
            name.parse().map_err(|error| origin.bad(&self.name, "partition.name", error))?;
        let key = |of: &str| format!("partition.{}.{of}", id.letters());
        self.check_letter(origin, id, earlier)?;
        let settings = self.reach().resolve(origin, folder, exposure, &key)?;
        self.check_shared(origin, &settings, earlier, &key)?;
        Ok(PartitionSettings { id, place: Place::Bucket(Box::new(settings)), key: None })
    }

    /// Refuses the letter of another partition.
    fn check_letter(
        &self,
        origin: &Origin<'_>,
        id: PartitionId,
        earlier: &[PartitionSettings],
    ) -> Result<()> {
        let name = self.name.get_ref();
        if earlier.iter().any(|other| other.id == id) {
            let what = format!(
                "there are two partitions `{name}`; a letter is in `[partitions]` or in one `[[partition]]`"
            );
            return Err(origin.bad(&self.name, "partition.name", what));
        }
        Ok(())
    }

    /// Refuses places that another partition uses.
    fn check_shared(
        &self,
        origin: &Origin<'_>,
        settings: &BucketSettings,
        earlier: &[PartitionSettings],
        key: &dyn Fn(&str) -> String,
    ) -> Result<()> {
        for other in earlier {
            let Some(bucket) = other.place.bucket() else { continue };
            let letters = other.id.letters();
            if bucket.address == settings.address && bucket.endpoint == settings.endpoint {
                let what = format!("the partition `{letters}` is there; each needs a prefix of its own");
                return Err(origin.bad(&self.bucket, &key("bucket"), what));
            }
            if let Some(cache) = self.cache.as_ref().filter(|_| bucket.cache == settings.cache) {
                let what = format!("the partition `{letters}` uses this folder; each needs one of its own");
                return Err(origin.bad(cache, &key("cache"), what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{load_lines, load_lines_in, refusal};
    use crate::partitions::CACHE_MB;
    use std::os::unix::fs::PermissionsExt as _;

    const BUCKET: &str = "[[partition]]\nname = \"b\"\nbucket = \"s3://cellar/b\"\n";

    #[test]
    fn both_kinds_stand_side_by_side() {
        let text = format!(
            "[partitions]\na = \"p\"\n{BUCKET}endpoint = \"https://s3.example.org\"\nregion = \"eu\"\n\
             cache = \"cache/b\"\ncache_mb = 100\nsize_mb = 2048\n\
             [[partition]]\nname = \"c\"\nbucket = \"file:///srv/shared\"\n\
             [encryption.b]\nkey_command = \"x\"\n"
        );
        let folder = tempfile::tempdir().unwrap();
        let settings = load_lines_in(folder.path(), &text).unwrap();
        let found: Vec<String> =
            settings.partitions.iter().map(|one| format!("{} {}", one.id.letters(), one.place)).collect();
        let local = folder.path().join("p").display().to_string();
        assert_eq!(found, [&format!("a {local}"), "b s3://cellar/b", "c file:///srv/shared"]);
        assert!(settings.partitions[1].key.is_some() && settings.partitions[2].key.is_none());
        let bucket = settings.partitions[1].place.bucket().unwrap();
        assert_eq!(bucket.cache.as_deref(), Some(&*folder.path().join("cache/b")));
        assert_eq!((bucket.cache_bytes, bucket.size_bytes), (100 << 20, Some(2 << 30)));
        assert_eq!(
            (bucket.endpoint.as_deref(), bucket.region.as_deref(), bucket.allow_http),
            (Some("https://s3.example.org"), Some("eu"), false)
        );
        assert!(bucket.at.to_string().ends_with("cellar.toml, line 8"), "{}", bucket.at);
        let shared = settings.partitions[2].place.bucket().unwrap();
        assert_eq!((shared.cache_bytes, shared.size_bytes, &shared.cache), (CACHE_MB << 20, None, &None));
    }

    #[test]
    fn a_server_with_buckets_only_needs_no_folder() {
        assert_eq!(load_lines(BUCKET).unwrap().partitions.len(), 1);
        // A missing local disk keeps only its own volumes offline.
        let settings = load_lines(&format!("[partitions]\na = \"absent\"\n{BUCKET}")).unwrap();
        assert_eq!(settings.partitions.len(), 2);
    }

    #[test]
    fn errors_have_line_and_key() {
        let with = |lines: &str| format!("{BUCKET}{lines}");
        for (lines, words) in [
            (
                format!("[partitions]\nb = \"p\"\n{BUCKET}"),
                ["line 7", "partition.name", "two partitions `b`"],
            ),
            (with("[[partition]]\nname = \"b\"\nbucket = \"s3://x\""), ["line 8", "partition.name", "`b`"]),
            (
                with("[[partition]]\nname = \"c\"\nbucket = \"s3://cellar/b\""),
                ["line 9", "partition.c.bucket", "`b`"],
            ),
            ("[[partition]]\nname = \"b\"".into(), ["line 4", "missing", "bucket"]),
            (
                "[[partition]]\nname = \"9\"\nbucket = \"s3://x\"".into(),
                ["line 5", "partition.name", "/vicepiv"],
            ),
            (
                "[[partition]]\nname = \"b\"\nbucket = \"http://x\"".into(),
                ["line 6", "partition.b.bucket", "file:///"],
            ),
            (with("colour = 1"), ["line 7", "colour", "`endpoint`"]),
            (
                with("endpoint = \"s3.example.org\""),
                ["line 7", "partition.b.endpoint", "https://s3.example.org"],
            ),
            (with("endpoint = \"http://127.0.0.1\""), ["line 7", "partition.b.endpoint", "allow_http"]),
            (with("endpoint = \"ftp://x\""), ["line 7", "partition.b.endpoint", "https://"]),
            (with("cache_mb = 1"), ["line 7", "partition.b.cache_mb", "64 to 16777216"]),
            (with("size_mb = 1"), ["line 7", "partition.b.size_mb", "1024 to 1099511627776"]),
            (with("ca_file = \"absent.pem\""), ["line 7", "partition.b.ca_file", "absent.pem"]),
            (with("ca_file = \"KeyFileExt\""), ["line 7", "partition.b.ca_file", "BEGIN CERTIFICATE"]),
            (with("credentials_file = \"absent\""), ["line 7", "partition.b.credentials_file", "absent"]),
            (
                with("cache = \"c\"\n[[partition]]\nname = \"c\"\nbucket = \"s3://x\"\ncache = \"c\""),
                ["line 11", "partition.c.cache", "`b`"],
            ),
            (
                "[[partition]]\nname = \"b\"\nbucket = \"file:///srv\"\nregion = \"eu\"".into(),
                ["line 7", "partition.b.region", "folder"],
            ),
            (with("[encryption.c]\nkey_file = \"k\""), ["line 7", "encryption", "no partition `c`"]),
        ] {
            let text = refusal(&lines);
            assert!(words.iter().all(|word| text.contains(word)), "{lines}: {text}");
        }
        let settings = load_lines(&with("endpoint = \"http://127.0.0.1:9000\"\nallow_http = true")).unwrap();
        assert!(settings.partitions[0].place.bucket().unwrap().allow_http);
    }

    #[test]
    fn credentials_are_nowhere() {
        for lines in [
            "[[partition]]\nname = \"b\"\nbucket = \"s3://key:s3cret@cellar/b\"",
            "[[partition]]\nname = \"b\"\nbucket = \"s3://x\"\nendpoint = \"https://key:s3cret@host\"",
            "[[partition]]\nname = \"b\"\nbucket = \"s3://x\"\nendpoint = \"https://host?key=s3cret\"",
        ] {
            let text = refusal(lines);
            assert!(text.contains("credentials") && !text.contains("s3cret"), "{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("aws");
        std::fs::write(&path, "aws_secret_access_key = s3cret").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let lines = format!("{BUCKET}credentials_file = \"aws\"\n");
        let text = format!("{:#}", load_lines_in(folder.path(), &lines).unwrap_err());
        assert!(text.contains("line 7") && text.contains("chmod 600") && !text.contains("s3cret"), "{text}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::remove_dir(folder.path().join("p")).unwrap();
        let settings = load_lines_in(folder.path(), &lines).unwrap();
        let bucket = settings.partitions[0].place.bucket().unwrap();
        assert!(bucket.credentials().unwrap().unwrap().starts_with(b"aws_secret"));
        assert!(!format!("{settings:?}").contains("s3cret"));
    }
}
