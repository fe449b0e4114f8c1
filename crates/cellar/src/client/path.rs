//! Names of files in a cell on the command line: `cell:VOLUME/PATH`.

use anyhow::{Result, bail};

/// A place that can be copied from or to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the local file system.
    Local(std::path::PathBuf),
    /// In the cell.
    Cell(CellPath),
}

/// A path from the root of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellPath {
    /// Volume, by name or number.
    pub volume: String,
    /// Components below the volume's root directory.
    pub components: Vec<String>,
    /// Whether it ended in `/`.
    pub is_directory: bool,
}

impl Place {
    /// `cell:VOLUME/PATH`, or anything else for a local path.
    pub fn parse(text: &str) -> Result<Place> {
        match text.strip_prefix("cell:") {
            Some(rest) => CellPath::parse(rest).map(Place::Cell),
            None => Ok(Place::Local(text.into())),
        }
    }
}

impl CellPath {
    /// `VOLUME/PATH`.
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

    /// The last component and the path before it; `None` at the volume's root.
    pub fn split_last(&self) -> Option<(CellPath, &str)> {
        let (last, rest) = self.components.split_last()?;
        let parent = CellPath { volume: self.volume.clone(), components: rest.to_vec(), is_directory: true };
        Some((parent, last))
    }

    /// The path with one more component.
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
    fn places_are_told_apart() {
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
