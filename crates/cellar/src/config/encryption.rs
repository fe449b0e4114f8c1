//! Where the master keys of encrypted partitions come from.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use store::MasterKey;
use zeroize::Zeroizing;

/// Where a partition's master key comes from. It is read when the partition is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file with 32 bytes, or 64 hexadecimal digits.
    File(PathBuf),
    /// What a shell command prints: the same.
    Command(String),
}

impl fmt::Display for KeySource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => write!(out, "the key file {}", path.display()),
            KeySource::Command(command) => write!(out, "the key command `{command}`"),
        }
    }
}

impl KeySource {
    /// One of both.
    ///
    /// # Errors
    /// Says that it must be one.
    pub fn from_either(file: Option<PathBuf>, command: Option<String>) -> Result<KeySource> {
        match (file, command) {
            (Some(file), None) => Ok(KeySource::File(file)),
            (None, Some(command)) => Ok(KeySource::Command(command)),
            (None, None) => bail!("needs `key_file` or `key_command`"),
            (Some(_), Some(_)) => bail!("has both `key_file` and `key_command`; it needs one of them"),
        }
    }

    /// The key.
    ///
    /// # Errors
    /// What the system or the command says, or what a key is; never the key.
    pub fn load(&self) -> Result<MasterKey> {
        let bytes = match self {
            KeySource::File(path) => read(path),
            KeySource::Command(command) => ask(command),
        };
        let key = bytes.and_then(|bytes| Ok(MasterKey::parse(&bytes)?));
        key.with_context(|| format!("no master key from {self}"))
    }
}

fn read(path: &PathBuf) -> Result<Zeroizing<Vec<u8>>> {
    let bytes = Zeroizing::new(std::fs::read(path).context("cannot read it")?);
    let mode = std::fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), mode = format!("{:o}", mode & 0o777),
            "others than its owner may read this master key; `chmod 600` keeps it");
    }
    Ok(bytes)
}

fn ask(command: &str) -> Result<Zeroizing<Vec<u8>>> {
    let mut shell = Command::new("/bin/sh");
    let asked = shell.args(["-c", command]).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = asked.context("cannot start /bin/sh")?;
    let bytes = Zeroizing::new(output.stdout);
    if !output.status.success() {
        bail!("it ended with {}", output.status);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(source: &KeySource) -> String {
        format!("{:#}", source.load().unwrap_err())
    }

    #[test]
    fn keys_come_from_files_and_commands() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let source = KeySource::File(path.clone());
        assert!(error(&source).contains("cannot read it"));
        std::fs::write(&path, "11".repeat(32)).unwrap();
        source.load().unwrap();
        std::fs::write(&path, "secret").unwrap();
        assert!(error(&source).contains("openssl rand") && !error(&source).contains("secret"));
        KeySource::Command("printf '%064d' 7".into()).load().unwrap();
        assert!(error(&KeySource::Command("exit 3".into())).contains("exit status: 3"));
        assert!(error(&KeySource::Command("echo no".into())).contains("64 hexadecimal digits"));
    }
}
