//! Replaces tables in a document with those of a new run.
//!
//! A block is delimited by two lines, `<!-- bench NAME -->` and `<!-- /bench NAME -->`; the rest of the
//! document is left unchanged.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

/// Options of the replacement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RecordOptions {
    /// Name of the block
    block: String,
    /// Path of the document
    #[arg(long, default_value = "docs/lab/benchmarks.md")]
    file: PathBuf,
}

/// Prints its input as it arrives, and writes it to the block at the end.
pub(crate) fn run(options: &RecordOptions) -> Result<()> {
    let document = read(&options.file)?;
    // Checked before hours of measurements, not after them.
    replaced(&document, &options.block, "").with_context(|| options.file.display().to_string())?;
    let text = echo(&mut std::io::stdin().lock(), &mut std::io::stdout().lock())?;
    ensure!(!text.trim().is_empty(), "the input has no figures; {} is unchanged", options.file.display());
    let document = replaced(&read(&options.file)?, &options.block, &text)?;
    write(&options.file, &document)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Writes the file atomically.
fn write(file: &Path, document: &str) -> Result<()> {
    let new = file.with_extension("new");
    let written = fs::write(&new, document).and_then(|()| fs::rename(&new, file));
    written.with_context(|| format!("cannot write {}", file.display()))
}

fn echo(from: &mut impl BufRead, to: &mut impl Write) -> Result<String> {
    let (mut all, mut line) = (String::new(), String::new());
    while from.read_line(&mut line)? > 0 {
        to.write_all(line.as_bytes())?;
        to.flush()?;
        all.push_str(&line);
        line.clear();
    }
    Ok(all)
}

/// Returns the document with this text in a block.
fn replaced(document: &str, block: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- bench {block} -->\n"), format!("<!-- /bench {block} -->\n"));
    let Some((before, rest)) = document.split_once(&begin) else {
        bail!("no line {:?} after which to insert the figures", begin.trim());
    };
    let Some((_, behind)) = rest.split_once(&end) else {
        bail!("no line {:?} after {:?}", end.trim(), begin.trim());
    };
    Ok(format!("{before}{begin}\n{}\n\n{end}{behind}", text.trim_matches('\n')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# A\n\n<!-- bench one -->\n\nold\n\n<!-- /bench one -->\n\ntext\n\n<!-- bench two -->\n<!-- /bench two -->\nend\n";

    #[test]
    fn a_block_is_replaced_and_nothing_else() {
        let once = replaced(DOCUMENT, "one", "\n| new |\n|---|\n\n").unwrap();
        assert_eq!(once, DOCUMENT.replace("old", "| new |\n|---|"));
        assert_eq!(replaced(&once, "one", "old").unwrap(), DOCUMENT);
        let second = replaced(DOCUMENT, "two", "figures").unwrap();
        assert!(second.ends_with("<!-- bench two -->\n\nfigures\n\n<!-- /bench two -->\nend\n"), "{second}");
    }

    #[test]
    fn a_missing_line_is_named() {
        let error = replaced(DOCUMENT, "three", "x").unwrap_err().to_string();
        assert!(error.contains("<!-- bench three -->"), "{error}");
        let open = DOCUMENT.replace("<!-- /bench two -->\n", "");
        let error = replaced(&open, "two", "x").unwrap_err().to_string();
        assert!(error.contains("<!-- /bench two -->"), "{error}");
    }

    #[test]
    fn output_is_shown_completely() {
        let mut shown = Vec::new();
        let text = echo(&mut &b"one\n\ntwo"[..], &mut shown).unwrap();
        assert_eq!((text.as_str(), shown.as_slice()), ("one\n\ntwo", &b"one\n\ntwo"[..]));
    }
}
