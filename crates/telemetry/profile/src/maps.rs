//! Memory mappings of this process (`/proc/self/maps`).

use std::ops::Range;

/// An executable part of the address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Address range.
    pub(crate) range: Range<u64>,
    /// Offset of its start in the file.
    pub(crate) offset: u64,
    /// Path of the file, or a name in brackets.
    pub(crate) path: String,
}

/// Returns the executable mappings that have a name.
pub(crate) fn executable(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(mapping).collect()
}

/// Parses a line like `7f00-7f10 r-xp 00001000 08:01 1234    /usr/lib/libc.so.6`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    if !fields.next()?.contains('x') {
        return None;
    }
    let offset = hex(fields.next()?)?;
    let path = fields.nth(2)?.trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let is_known = path.starts_with('/') || path == VDSO;
    is_known.then_some(Mapping { range: hex(start)?..hex(end)?, offset, path: path.to_owned() })
}

/// Name of the mapping with the functions that the kernel provides to every process, like `clock_gettime`.
pub(crate) const VDSO: &str = "[vdso]";

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_executable_mappings_are_used() {
        let maps = "\
55d0-55d8 r--p 00000000 08:01 42   /usr/bin/a b
55d8-55f0 r-xp 00008000 08:01 42   /usr/bin/a b
7f00-7f10 r-xp 00000000 00:00 0
7fff-8000 r-xp 00000000 00:00 0                          [vdso]
8000-8010 r-xp 00001000 08:01 43                         /lib/gone.so (deleted)
ffff-zzzz r-xp 00001000 08:01 43                         /lib/odd.so
";
        let of =
            |start, end, offset, path: &str| Mapping { range: start..end, offset, path: path.to_owned() };
        let expected = [
            of(0x55d8, 0x55f0, 0x8000, "/usr/bin/a b"),
            of(0x7fff, 0x8000, 0, VDSO),
            of(0x8000, 0x8010, 0x1000, "/lib/gone.so"),
        ];
        assert_eq!(executable(maps), expected);
    }
}
