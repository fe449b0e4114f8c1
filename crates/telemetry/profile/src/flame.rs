//! Flame graphs.

use inferno::flamegraph::color::{BasicPalette, Palette};
use inferno::flamegraph::{self, Options};
use thiserror::Error;

/// Subject of a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Processor time: warm colours.
    Running,
    /// Waiting time: cold colours.
    Waiting,
}

/// Reason why there is no flame graph.
#[derive(Debug, Error)]
pub enum FlameError {
    /// There are no stacks.
    #[error("there are no stacks to draw: no thread ran or waited while the profile was taken")]
    Empty,
    /// The input is not in the folded format.
    #[error("the stacks cannot be drawn: {0}")]
    Malformed(String),
}

/// Renders folded stacks as a flame graph: an SVG that can be searched and zoomed in a browser.
pub fn svg(folded: &str, title: &str, flavour: Flavour) -> Result<String, FlameError> {
    if crate::folded::parse(folded).next().is_none() {
        return Err(FlameError::Empty);
    }
    let mut options = Options::default();
    title.clone_into(&mut options.title);
    "us".clone_into(&mut options.count_name);
    options.deterministic = true;
    options.colors = match flavour {
        Flavour::Running => Palette::Basic(BasicPalette::Hot),
        Flavour::Waiting => Palette::Basic(BasicPalette::Blue),
    };
    let mut drawn = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines(), &mut drawn)
        .map_err(|error| FlameError::Malformed(error.to_string()))?;
    String::from_utf8(drawn).map_err(|error| FlameError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flame_graph_has_its_functions_and_is_the_same_again() {
        let folded = "fs-work;rx::serve;<&str as a::B>::c 90\nfs-work;rx::serve 10\n";
        let drawn = svg(folded, "Cellar & <co>", Flavour::Running).unwrap();
        assert!(
            drawn.starts_with("<?xml") && drawn.contains("rx::serve") && drawn.contains("90.00%"),
            "{drawn}"
        );
        assert!(drawn.contains("&lt;&amp;str as a::B&gt;::c") && !drawn.contains("<co>"));
        assert_eq!(drawn, svg(folded, "Cellar & <co>", Flavour::Running).unwrap());
        for empty in ["", "\n", "no number\n"] {
            assert!(matches!(svg(empty, "t", Flavour::Waiting), Err(FlameError::Empty)), "{empty:?}");
        }
    }
}
