//! Unwinds a copied stack to the functions that were active.

use crate::modules::{self, Loaded};
use crate::sys::Sample;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{MayAllocateDuringUnwind, Unwinder as _};

/// Maximum number of frames; deeper stacks are probably infinite recursion.
const FRAMES_MAX: usize = 256;

/// Marks missing frames, because the stack was deeper than what was copied, or a module has no unwinding
/// tables.
pub(crate) const CUT_OFF: u64 = 0;

/// Unwinds stacks of this process.
pub(crate) struct Unwinding {
    unwinder: UnwinderX86_64<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheX86_64<MayAllocateDuringUnwind>,
    loaded: Vec<Loaded>,
}

impl Unwinding {
    /// Creates an unwinder for the modules that are loaded now.
    pub(crate) fn new() -> Unwinding {
        let mut unwinder = UnwinderX86_64::new();
        let mut loaded = Vec::new();
        for (one, module) in modules::loaded() {
            unwinder.add_module(module);
            loaded.push(one);
        }
        Unwinding { unwinder, cache: CacheX86_64::new(), loaded }
    }

    /// Returns the loaded modules.
    pub(crate) fn loaded(&self) -> &[Loaded] {
        &self.loaded
    }

    /// Returns addresses within the active functions, the innermost first, with [`CUT_OFF`] last if the
    /// outermost was not found.
    pub(crate) fn frames(&mut self, sample: &Sample) -> Vec<u64> {
        let registers = UnwindRegsX86_64::new(sample.ip, sample.sp, sample.bp);
        let mut read = |address| sample.word(address).ok_or(());
        let mut frames = self.unwinder.iter_frames(sample.ip, registers, &mut self.cache, &mut read);
        let mut found = Vec::new();
        loop {
            match frames.next() {
                Ok(Some(frame)) if found.len() < FRAMES_MAX => found.push(frame.address_for_lookup()),
                Ok(None) => return found,
                Ok(Some(_)) | Err(_) => {
                    found.push(CUT_OFF);
                    return found;
                }
            }
        }
    }
}
