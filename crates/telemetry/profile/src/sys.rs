//! The only module of the crate with `unsafe` code: a timer for each thread, the handler of its signal, and
//! copying memory that may not be mapped.
//!
//! The handler may do very little, since it interrupts a thread anywhere, even in the middle of an
//! allocation: it reads atomics, writes to a preallocated slot that no other code uses while it is marked,
//! makes one system call that is async-signal-safe (`process_vm_readv` keeps no state and takes no lock of
//! the process), and preserves `errno`. It takes no lock, does not allocate or unwind, and cannot panic.
#![allow(
    unsafe_code,
    reason = "signals and timers have no safe wrapper; see the module's text and each block's"
)]

use std::cell::UnsafeCell;
use std::io;
use std::mem::zeroed;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Number of bytes of a stack that are copied. Deeper stacks are truncated and marked so.
const STACK_BYTES: usize = 32 << 10;

/// Maximum number of samples that wait to be collected.
const SLOTS: usize = 256;

/// Number of slots that the handler tries before it drops the sample.
const TRIES: usize = 16;

const PAGE: u64 = 4096;

/// Number of pieces of one copy: one per page, since the system call copies only whole pieces.
const PIECES: usize = STACK_BYTES / PAGE as usize + 1;

const FREE: u8 = 0;
const WRITING: u8 = 1;
const READY: u8 = 2;
const READING: u8 = 3;

/// State of an interrupted thread.
pub(crate) struct Sample {
    /// Thread id.
    pub(crate) thread: i32,
    /// Periods since the last interruption: more than one if the system was late.
    pub(crate) periods: u32,
    /// Instruction pointer.
    pub(crate) ip: u64,
    /// Stack pointer.
    pub(crate) sp: u64,
    /// Frame pointer, if the code maintains one.
    pub(crate) bp: u64,
    length: usize,
    stack: Box<[u8]>,
}

impl Sample {
    /// Returns the word at this address of the stack, if it was copied.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.sp)?).ok()?;
        let bytes = self.stack[..self.length].get(at..at.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

struct Slot {
    state: AtomicU8,
    sample: UnsafeCell<Sample>,
}

// SAFETY: a sample is accessed only by the thread that has moved its slot's state from FREE to WRITING (a
// handler) or from READY to READING (the collector), which only one thread can do, and which gives it back
// with a release store that the next one acquires.
unsafe impl Sync for Slot {}

struct Slots {
    all: Box<[Slot]>,
    next: AtomicUsize,
    lost: AtomicU64,
}

/// Created by the first profile and never freed: a handler may run late.
static ALL: OnceLock<Slots> = OnceLock::new();

static IS_ON: AtomicBool = AtomicBool::new(false);

fn all() -> &'static Slots {
    let slot = || Slot {
        state: AtomicU8::new(FREE),
        sample: UnsafeCell::new(Sample {
            thread: 0,
            periods: 1,
            ip: 0,
            sp: 0,
            bp: 0,
            length: 0,
            stack: vec![0; STACK_BYTES].into_boxed_slice(),
        }),
    };
    ALL.get_or_init(|| Slots {
        all: (0..SLOTS).map(|_| slot()).collect(),
        next: AtomicUsize::new(0),
        lost: AtomicU64::new(0),
    })
}

impl Slots {
    /// Claims a slot for the sample of a handler, which covers `periods` periods.
    fn claim(&self, periods: u32) -> Option<&Slot> {
        for _ in 0..TRIES {
            let slot = &self.all[self.next.fetch_add(1, Ordering::Relaxed) % SLOTS];
            let state = &slot.state;
            if state.compare_exchange(FREE, WRITING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(slot);
            }
        }
        self.lost.fetch_add(periods.into(), Ordering::Relaxed);
        None
    }
}

/// Samples are taken while this value exists. The caller ensures that there is only one.
pub(crate) struct Sampling(&'static Slots);

impl Sampling {
    /// Enables sampling in handlers.
    ///
    /// # Errors
    /// This processor is not supported, or one of the two required system calls fails.
    pub(crate) fn start() -> io::Result<Sampling> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux on x86-64 is supported"));
        }
        let mut probe = [0; 8];
        if copy_memory(ptr::from_ref(&SLOTS) as u64, &mut probe) != probe.len() {
            return Err(io::Error::other(
                "process_vm_readv is not allowed for this process (a seccomp filter may forbid it)",
            ));
        }
        let all = all();
        all.lost.store(0, Ordering::Relaxed);
        install()?;
        IS_ON.store(true, Ordering::SeqCst);
        Ok(Sampling(all))
    }

    /// Calls `show` with each sample taken since the last call.
    pub(crate) fn collect(&self, mut show: impl FnMut(&Sample)) {
        for slot in &self.0.all {
            let state = &slot.state;
            if state.compare_exchange(READY, READING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // SAFETY: the state is READING by this exchange, so no other thread accesses the sample.
                show(unsafe { &*slot.sample.get() });
                state.store(FREE, Ordering::Release);
            }
        }
    }

    /// Returns the number of periods whose samples were lost for lack of a slot.
    pub(crate) fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        IS_ON.store(false, Ordering::SeqCst);
        // The last samples must not end up in the next profile.
        self.collect(|_| ());
    }
}

/// A timer that interrupts a thread each time it has run for a period.
pub(crate) struct ThreadTimer(libc::timer_t);

impl ThreadTimer {
    /// Creates a timer for a thread of this process. Its first period is shortened to `phase` 1024ths, so
    /// that threads are not in step.
    pub(crate) fn start(thread: i32, period: Duration, phase: u32) -> io::Result<ThreadTimer> {
        // SAFETY: all-zero bytes are a valid value of this plain structure.
        let mut event: libc::sigevent = unsafe { zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_notify_thread_id = thread;
        event.sigev_value = libc::sigval { sival_ptr: thread as usize as *mut libc::c_void };
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: both pointers are to local variables of the types that the call expects.
        if unsafe { libc::timer_create(processor_clock(thread), &raw mut event, &raw mut timer) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = ThreadTimer(timer);
        let first = (period / 1024 * (phase % 1024 + 1)).max(Duration::from_nanos(1));
        let times = libc::itimerspec { it_interval: time(period), it_value: time(first) };
        // SAFETY: the timer was just created, the structure is a local variable, and no old value is
        // requested.
        if unsafe { libc::timer_settime(timer.0, 0, &raw const times, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(timer)
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: the timer was created by `start` and is deleted only here. If its thread has ended, the
        // call may fail, and nothing depends on it.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Returns the clock that counts a thread's running time. Its number is computed as in the kernel's
/// `posix-timers.h` (CPUCLOCK_PERTHREAD and CPUCLOCK_SCHED).
fn processor_clock(thread: i32) -> libc::clockid_t {
    (!thread << 3) | 6
}

fn time(span: Duration) -> libc::timespec {
    libc::timespec { tv_sec: span.as_secs() as libc::time_t, tv_nsec: span.subsec_nanos().into() }
}

/// Copies memory of this process from an address; returns the number of bytes copied, in whole pages from the
/// start. Never faults, whatever the address.
pub(crate) fn copy_memory(address: u64, buffer: &mut [u8]) -> usize {
    let mut pieces = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PIECES];
    let (mut count, mut from, mut left) = (0, address, buffer.len() as u64);
    while left > 0 && count < PIECES {
        let length = left.min(PAGE - from % PAGE);
        pieces[count] = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: length as usize };
        let Some(next) = from.checked_add(length) else { break };
        (count, from, left) = (count + 1, next, left - length);
    }
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`, which is borrowed for writing, and
    // reads the other addresses like those of another process: unmapped ones fail with EFAULT.
    let got = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            &raw const local,
            1,
            pieces.as_ptr(),
            count as libc::c_ulong,
            0,
        )
    };
    usize::try_from(got).unwrap_or(0)
}

/// Installs the handler, permanently: SIGPROF's default action ends the process, and a signal may arrive
/// late.
fn install() -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid value of this plain structure.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the structure is a local variable, the handler has the type that SA_SIGINFO requires and does
    // only what handlers may (see the module's documentation), and no old value is requested.
    let done = unsafe { libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel's data for a timer's signal (siginfo_t with `_timer` of asm-generic/siginfo.h), including the
/// fields that libc's type does not expose.
#[repr(C)]
struct TimerInfo {
    /// Signal number, error, code, and padding.
    _common: [libc::c_int; 4],
    _timer: libc::c_int,
    /// Periods that ended before the signal was delivered, or between two checks of the clock.
    overrun: libc::c_int,
}

/// Handles SIGPROF. See the module's documentation for what is allowed here.
extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if !IS_ON.load(Ordering::Relaxed) || info.is_null() || context.is_null() {
        return;
    }
    // SAFETY: with SA_SIGINFO the kernel passes a valid pointer. A signal sent by a process is not a timer's.
    if unsafe { (*info).si_code } != libc::SI_TIMER {
        return;
    }
    // SAFETY: the signal is a timer's, for which the kernel uses this layout.
    let overrun = unsafe { (*info.cast::<TimerInfo>()).overrun };
    let periods = u32::try_from(overrun).unwrap_or(0).saturating_add(1);
    let Some(slot) = ALL.get().and_then(|slots| slots.claim(periods)) else { return };
    // SAFETY: errno is a variable of this thread; its address is always valid.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the state is WRITING by this thread's claim, so no other thread accesses the sample.
    let sample = unsafe { &mut *slot.sample.get() };
    // SAFETY: with SA_SIGINFO the kernel passes valid pointers to a siginfo_t, whose value was set by the
    // timer, and to a ucontext_t.
    let (thread, context) =
        unsafe { ((*info).si_value().sival_ptr as usize as i32, &*context.cast::<libc::ucontext_t>()) };
    sample.thread = thread;
    sample.periods = periods;
    registers(context, sample);
    sample.length = copy_memory(sample.sp, &mut sample.stack);
    slot.state.store(READY, Ordering::Release);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t, sample: &mut Sample) {
    let of = |number: libc::c_int| context.uc_mcontext.gregs[number as usize] as u64;
    (sample.ip, sample.sp, sample.bp) = (of(libc::REG_RIP), of(libc::REG_RSP), of(libc::REG_RBP));
}

#[cfg(not(target_arch = "x86_64"))]
fn registers(_: &libc::ucontext_t, sample: &mut Sample) {
    (sample.ip, sample.sp, sample.bp) = (0, 0, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Returns the running time of this thread.
    fn ran() -> Duration {
        let mut time: libc::timespec = unsafe { zeroed() };
        // SAFETY: the structure is a local variable.
        let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        assert_eq!(done, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Blocks or unblocks SIGPROF for this thread.
    fn hold_back(how: libc::c_int) {
        // SAFETY: the set is a local variable, and no old one is requested.
        let done = unsafe {
            let mut set: libc::sigset_t = zeroed();
            libc::sigaddset(&raw mut set, libc::SIGPROF);
            libc::pthread_sigmask(how, &raw const set, ptr::null_mut())
        };
        assert_eq!(done, 0);
    }

    /// Simulates a system that is too late to interrupt a thread.
    #[test]
    fn periods_missed_while_the_signal_was_blocked_are_counted() {
        let _one = crate::tests::alone();
        let period = Duration::from_millis(10);
        let sampling = Sampling::start().unwrap();
        // SAFETY: a call without arguments that cannot fail.
        let thread = unsafe { libc::gettid() };
        let begun = ran();
        let timer = ThreadTimer::start(thread, period, 1023).unwrap();
        hold_back(libc::SIG_BLOCK);
        while black_box(ran().saturating_sub(begun)) < 20 * period + period / 2 {}
        hold_back(libc::SIG_UNBLOCK);
        drop(timer);
        let most = (ran().saturating_sub(begun).as_nanos() / period.as_nanos()) as u32;
        let (mut samples, mut periods) = (0, 0);
        sampling.collect(|sample| {
            samples += u32::from(sample.thread == thread);
            periods += if sample.thread == thread { sample.periods } else { 0 };
        });
        assert!((20..=most).contains(&periods), "{periods} periods, at most {most} ended, {samples} samples");
        // Periods that ended before SIGPROF was blocked, and the blocked signal.
        assert!(samples <= 1 + most - 20 + 1, "{samples} samples of {periods} periods");
    }

    #[test]
    fn events_without_a_slot_are_counted_as_lost() {
        let _one = crate::tests::alone();
        let slots = all();
        slots.lost.store(0, Ordering::Relaxed);
        let claimed = std::iter::from_fn(|| slots.claim(3)).count();
        assert!(claimed <= SLOTS && slots.claim(5).is_none(), "{claimed}");
        let lost = slots.lost.load(Ordering::Relaxed);
        slots.all.iter().for_each(|slot| slot.state.store(FREE, Ordering::Relaxed));
        assert_eq!(lost, 3 + 5);
    }

    #[test]
    fn memory_that_is_not_there_is_not_copied() {
        let there: Vec<u8> = (0..=255).cycle().take(3 * PAGE as usize).collect();
        let mut buffer = vec![0; 2 * PAGE as usize + 17];
        assert_eq!(copy_memory(there.as_ptr() as u64 + 5, &mut buffer), buffer.len());
        assert_eq!(buffer[..], there[5..5 + buffer.len()]);
        for nowhere in [0, 8, u64::MAX - 3, 0xdead_0000_0000_0000] {
            assert_eq!(copy_memory(nowhere, &mut buffer), 0, "{nowhere:#x}");
        }
        let mut more = vec![0; STACK_BYTES];
        assert_eq!(copy_memory(there.as_ptr() as u64 + 1, &mut more[..0]), 0);
    }

    #[test]
    fn only_the_copied_stack_is_read() {
        let mut stack = vec![7; STACK_BYTES].into_boxed_slice();
        stack[8..16].copy_from_slice(&99_u64.to_ne_bytes());
        let sample = Sample { thread: 1, periods: 1, ip: 0, sp: 1000, bp: 0, length: 24, stack };
        assert_eq!(sample.word(1008), Some(99));
        for outside in [0, 999, 1017, 1024, u64::MAX] {
            assert_eq!(sample.word(outside), None, "{outside}");
        }
    }
}
