//! File names on the command line, including `cell:VOLUME/PATH` for files in a cell.

use anyhow::{Result, bail};

/// A source or target of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A path in the local file system.
    Local(std::path::PathBuf),
    /// A path in the cell.
    Cell(CellPath),
}

/// A path from the root of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellPath {
    /// Name or ID of the volume.
    pub volume: String,
    /// Components below the volume's root directory.
    pub components: Vec<String>,
    /// Whether it ended in `/`.
    pub is_directory: bool,
}

impl Place {
    /// Parses `cell:VOLUME/PATH`, or any other text as a local path.
    pub fn parse(text: &str) -> Result<Place> {
        match text.strip_prefix("cell:") {
            Some(rest) => CellPath::parse(rest).map(Place::Cell),
            None => Ok(Place::Local(text.into())),
        }
    }
}

impl CellPath {
    /// Parses `VOLUME/PATH`.
    pub fn parse(text: &str) -> Result<CellPath> {
        let (volume, path) = text.split_once('/').unwrap_or((text, ""));
        if volume.is_empty() {
            bail!("`{text}` names no volume; write VOLUME/PATH, like root.cell/doc");
        }
        let components: Vec<String> =
            path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect();
        if components.iter().any(|part| part == "..") {
            bail!("`{text}` has `..`; write the path from the volume's root");
        }
        Ok(CellPath {
            volume: volume.into(),
            components,
            is_directory: text.ends_with('/') || path.is_empty(),
        })
    }

    /// Returns the path without its last component, and that component; `None` at the volume's root.
    pub fn split_last(&self) -> Option<(CellPath, &str)> {
        let (last, rest) = self.components.split_last()?;
        let parent = CellPath { volume: self.volume.clone(), components: rest.to_vec(), is_directory: true };
        Some((parent, last))
    }

    /// Returns the path extended by one component.
    #[must_use]
    pub fn join(&self, name: &str) -> CellPath {
        let mut path = self.clone();
        path.components.push(name.into());
        path.is_directory = false;
        path
    }
}

impl std::fmt::Display for CellPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cell:{}/{}", self.volume, self.components.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_distinguished() {
        assert_eq!(Place::parse("/tmp/x").unwrap(), Place::Local("/tmp/x".into()));
        let Place::Cell(path) = Place::parse("cell:root.cell//a/./b/").unwrap() else {
            panic!("a cell path")
        };
        assert_eq!((path.volume.as_str(), path.is_directory), ("root.cell", true));
        assert_eq!(path.components, ["a", "b"]);
        assert_eq!(path.split_last().unwrap().1, "b");
        assert!(Place::parse("cell:/x").is_err() && Place::parse("cell:v/../x").is_err());
        assert!(CellPath::parse("v").unwrap().is_directory);
    }
}
