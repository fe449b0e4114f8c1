//! Sources of master keys for encrypted partitions.

use crate::files::{Exposure, read_secret};
use anyhow::{Context, Result, bail};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use store::MasterKey;
use zeroize::Zeroizing;

/// Source of a partition's master key, which is read when the partition is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file with 32 bytes or 64 hexadecimal digits, and what to do if other users can access it.
    File(PathBuf, Exposure),
    /// A shell command that prints 32 bytes or 64 hexadecimal digits.
    Command(String),
}

impl fmt::Display for KeySource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path, _) => write!(out, "the key file {}", path.display()),
            // The command's arguments may contain a secret.
            KeySource::Command(_) => write!(out, "the key command"),
        }
    }
}

impl KeySource {
    /// Builds a source from either a file or a command.
    ///
    /// # Errors
    /// If not exactly one is given.
    pub fn from_either(
        file: Option<PathBuf>,
        command: Option<String>,
        exposure: Exposure,
    ) -> Result<KeySource> {
        match (file, command) {
            (Some(file), None) => Ok(KeySource::File(file, exposure)),
            (None, Some(command)) => Ok(KeySource::Command(command)),
            (None, None) => bail!("needs `key_file` or `key_command`"),
            (Some(_), Some(_)) => bail!("has both `key_file` and `key_command`; it needs one of them"),
        }
    }

    /// Loads the key.
    ///
    /// # Errors
    /// The system's error, the command's exit status, or the format of a key; never the key, the command or
    /// its output.
    pub fn load(&self) -> Result<MasterKey> {
        let bytes = match self {
            KeySource::File(path, exposure) => read(path, *exposure),
            KeySource::Command(command) => ask(command),
        };
        let key = bytes.and_then(|bytes| Ok(MasterKey::parse(&bytes)?));
        key.with_context(|| format!("no master key from {self}"))
    }
}

fn read(path: &Path, exposure: Exposure) -> Result<Zeroizing<Vec<u8>>> {
    let (bytes, mending) = read_secret(path, exposure)?;
    if let Some(mending) = mending {
        tracing::warn!("{mending}");
    }
    Ok(bytes)
}

fn ask(command: &str) -> Result<Zeroizing<Vec<u8>>> {
    let mut shell = Command::new("/bin/sh");
    let asked = shell.args(["-c", command]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = asked.context("cannot start /bin/sh")?;
    let bytes = Zeroizing::new(output.stdout);
    if !output.status.success() {
        bail!("it exited with {}; run it manually to see its output", output.status);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn error(source: &KeySource) -> String {
        format!("{:#}", source.load().unwrap_err())
    }

    #[test]
    fn keys_come_from_files_and_commands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let source = KeySource::File(path.clone(), Exposure::Refused);
        assert!(error(&source).contains("cannot read the file"));
        crate::files::replace(&path, "11".repeat(32).as_bytes()).unwrap();
        source.load().unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(error(&source).contains("(mode 640): run `chmod 600 "));
        KeySource::File(path.clone(), Exposure::Allowed).load().unwrap();
        std::fs::remove_file(&path).unwrap();
        crate::files::replace(&path, b"secret").unwrap();
        assert!(error(&source).contains("openssl rand") && !error(&source).contains("secret"));
        KeySource::Command("printf '%064d' 7".into()).load().unwrap();
        assert!(error(&KeySource::Command("exit 3".into())).contains("exit status: 3"));
        assert!(error(&KeySource::Command("echo no".into())).contains("64 hexadecimal digits"));
    }

    #[test]
    fn a_failing_command_is_not_printed() {
        for command in ["exit 3 # token=s3cret", "echo s3cret; exit 1", "echo s3cret"] {
            let source = KeySource::Command(command.into());
            assert!(!error(&source).contains("s3cret") && !source.to_string().contains("s3cret"));
        }
    }
}
