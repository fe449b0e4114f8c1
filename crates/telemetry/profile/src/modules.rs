//! The program and its loaded libraries: their addresses, and the data to unwind their frames.

use crate::maps::{self, Mapping, VDSO};
use crate::sys;
use framehop::{ExplicitModuleSectionInfo, Module};
use object::elf::PF_X;
use object::{Object, ObjectSection, ObjectSegment, ReadCache, ReadRef, SegmentFlags};
use std::fs::{self, File};
use std::ops::Range;

const PAGE: u64 = 4096;

/// Maximum size of the kernel's mapping, which has a few pages.
const VDSO_BYTES_MAX: u64 = 32 << 10;

/// The running program, even if its file was replaced in the meantime.
const OWN: &str = "/proc/self/exe";

/// A program or library of this process.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// Path of the file, if it can be opened.
    pub(crate) file: Option<String>,
    /// Name for display.
    pub(crate) name: String,
    /// Address range of its code.
    pub(crate) range: Range<u64>,
    /// Difference between addresses in memory and in the file.
    pub(crate) bias: u64,
}

/// Returns the loaded modules with their unwinding data. Modules that cannot be read are omitted; stacks end
/// at their frames.
pub(crate) fn loaded() -> Vec<(Loaded, Module<Vec<u8>>)> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let own = fs::read_link(OWN).ok().map(|path| path.to_string_lossy().into_owned());
    let own = own.as_deref().map(|path| path.strip_suffix(" (deleted)").unwrap_or(path));
    let mut all: Vec<(Loaded, Module<Vec<u8>>)> = Vec::new();
    for mapping in maps::executable(&maps) {
        let module = match mapping.path.as_str() {
            VDSO => vdso(&mapping),
            path if Some(path) == own => of_file(&mapping, OWN),
            path => of_file(&mapping, path),
        };
        all.extend(module);
    }
    all
}

fn of_file(mapping: &Mapping, path: &str) -> Option<(Loaded, Module<Vec<u8>>)> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&cache).ok()?;
    of_object(mapping, Some(path.to_owned()), &object)
}

fn vdso(mapping: &Mapping) -> Option<(Loaded, Module<Vec<u8>>)> {
    let length = mapping.range.end.checked_sub(mapping.range.start)?.min(VDSO_BYTES_MAX);
    let mut bytes = vec![0; length as usize];
    let got = sys::copy_memory(mapping.range.start, &mut bytes);
    bytes.truncate(got);
    of_object(mapping, None, &object::File::parse(&bytes[..]).ok()?)
}

fn of_object<'d, R: ReadRef<'d>>(
    mapping: &Mapping,
    file: Option<String>,
    object: &object::File<'d, R>,
) -> Option<(Loaded, Module<Vec<u8>>)> {
    let bias = bias(mapping, object)?;
    let range_of = |name: &str| {
        let section = object.section_by_name(name)?;
        Some(section.address()..section.address().checked_add(section.size())?)
    };
    let data_of = |name: &str| Some(object.section_by_name(name)?.uncompressed_data().ok()?.into_owned());
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range_of(".text"),
        got_svma: range_of(".got"),
        eh_frame_svma: range_of(".eh_frame"),
        eh_frame: data_of(".eh_frame"),
        eh_frame_hdr_svma: range_of(".eh_frame_hdr"),
        eh_frame_hdr: data_of(".eh_frame_hdr"),
        ..ExplicitModuleSectionInfo::default()
    };
    let name = mapping.path.rsplit('/').next().unwrap_or_default().to_owned();
    let module = Module::new(name.clone(), mapping.range.clone(), bias, sections);
    Some((Loaded { file, name, range: mapping.range.clone(), bias }, module))
}

/// Computes the load bias from the executable segment mapped there. Another segment may share its first page
/// in the file.
fn bias<'d, R: ReadRef<'d>>(mapping: &Mapping, object: &object::File<'d, R>) -> Option<u64> {
    let begin = |value: u64| value - value % PAGE;
    let segment = object.segments().find(|segment| {
        let (offset, length) = segment.file_range();
        let is_code = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X.0 != 0);
        is_code && begin(offset) <= mapping.offset && mapping.offset < offset.saturating_add(length)
    })?;
    let moved = mapping.offset - begin(segment.file_range().0);
    mapping.range.start.checked_sub(begin(segment.address()).checked_add(moved)?)
}
