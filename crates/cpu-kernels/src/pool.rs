//! Threads that wait for the next product.
//!
//! A decode step is some two hundred products of a few tens of microseconds, so a worker spins
//! for a while before it sleeps, and whoever asks for a product works on it too: one that a
//! sleeping worker comes too late for is simply finished without it.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a worker looks for work before it sleeps. Longer than what a step does between two
/// products.
const SPIN: Duration = Duration::from_micros(100);

type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// The product at hand.
#[derive(Clone, Copy)]
struct Job {
    work: *const Work<'static>,
    /// Threads that have units of their own to begin with.
    threads: usize,
}

/// Units that a thread takes from the first on, as neighbours read neighbouring memory: the first,
/// and above 32 bits the end. A thread that has none left takes the last of another.
#[repr(align(64))]
struct Own(AtomicU64);

impl Own {
    fn set(&self, units: Range<usize>) {
        self.0.store((units.end as u64) << 32 | units.start as u64, Relaxed);
    }

    /// The first unit, or the last one; none where none is left.
    fn take(&self, is_first: bool) -> Option<usize> {
        let parts = |both: u64| ((both & u64::from(u32::MAX)) as usize, (both >> 32) as usize);
        let rest = |both: u64| {
            let (start, end) = parts(both);
            let one = if is_first { 1 } else { 1 << 32 };
            (start < end).then(|| if is_first { both + one } else { both - one })
        };
        let (start, end) = parts(self.0.fetch_update(Relaxed, Relaxed, rest).ok()?);
        Some(if is_first { start } else { end - 1 })
    }
}

struct Shared {
    /// Written while `remaining` is 0 and all claimed units are done; read after a claim.
    job: UnsafeCell<Job>,
    /// Units that nobody has claimed yet.
    remaining: AtomicUsize,
    /// Which they are; written while `remaining` is 0.
    own: [Own; MAX_THREADS],
    done: AtomicUsize,
    panicked: AtomicBool,
    /// Threads that may work, the caller among them.
    limit: AtomicUsize,
    sleepers: AtomicUsize,
    asleep: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `job` is written only by the holder of `CALLER` while no unit is claimed or claimable,
// and read only by the owner of a claimed unit.
unsafe impl Sync for Shared {}

/// Held by the thread whose product runs; counts the workers that were started.
static CALLER: Mutex<usize> = Mutex::new(0);

fn nothing(_: usize) {}

static SHARED: Shared = Shared {
    job: UnsafeCell::new(Job { work: &nothing, threads: 1 }),
    remaining: AtomicUsize::new(0),
    own: [const { Own(AtomicU64::new(0)) }; MAX_THREADS],
    done: AtomicUsize::new(0),
    panicked: AtomicBool::new(false),
    limit: AtomicUsize::new(0),
    sleepers: AtomicUsize::new(0),
    asleep: Mutex::new(()),
    wake: Condvar::new(),
};

/// The most threads that products run on. Far more than a process may have, threads do not fail to
/// start but end the process: what the system denies them is asked for once they run.
const MAX_THREADS: usize = 1024;

/// Lets products run on `n` threads, the caller's among them and 1024 at most; 0 means one for each
/// core, which is the default. Takes effect with the next product.
pub fn set_threads(n: usize) {
    SHARED.limit.store(n.min(MAX_THREADS), SeqCst);
}

/// The threads that products run on, the caller's among them.
pub fn threads() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    match SHARED.limit.load(Relaxed) {
        0 => *CORES.get_or_init(|| {
            std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS)
        }),
        n => n,
    }
}

/// Calls `work` for all of 0..`n` in ranges of at most `height` (but four), on all threads.
pub(crate) fn split(n: usize, height: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    // Several for each thread, so that one that is held up does not hold up all.
    let each = n.div_ceil(threads() * 8).min(height.max(1)).next_multiple_of(4);
    run(n.div_ceil(each), &|unit| work(unit * each..n.min((unit + 1) * each)));
}

/// Calls `work` for all of 0..`n` in panels of at most `height`, all but the last of a multiple of
/// `multiple`, on all threads.
pub(crate) fn panels(
    n: usize,
    height: usize,
    multiple: usize,
    work: &(dyn Fn(Range<usize>) + Sync),
) {
    let fits = height.max(multiple) / multiple * multiple;
    // Several for each thread, so that one that is held up does not hold up all.
    let each = n.div_ceil(threads() * 8).next_multiple_of(multiple).min(fits);
    run(n.div_ceil(each), &|unit| work(unit * each..n.min((unit + 1) * each)));
}

/// Elements that threads write, each its own.
pub(crate) struct Parts<'a, T> {
    first: *mut T,
    len: usize,
    of: PhantomData<&'a mut [T]>,
}

// SAFETY: only `part` leads to the elements, whose callers promise parts of their own.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn of(elements: &'a mut [T]) -> Parts<'a, T> {
        Parts { first: elements.as_mut_ptr(), len: elements.len(), of: PhantomData }
    }

    /// # Safety
    /// No other thread uses these elements meanwhile.
    #[allow(clippy::mut_from_ref, reason = "each caller has elements of its own")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the range lies inside the slice, which is borrowed for 'a; the caller promises
        // the rest.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }
}

/// Calls `work` once for each of 0..`units`, on all threads, and returns when all are done.
pub(crate) fn run(units: usize, work: &Work<'_>) {
    let threads = threads();
    let fits = units > 1 && u32::try_from(units).is_ok();
    // A second product at the same time runs on its caller's thread alone.
    let caller = if threads > 1 && fits { CALLER.try_lock().ok() } else { None };
    let Some(mut started) = caller else {
        return (0..units).for_each(work);
    };
    while *started + 1 < threads {
        let id = *started + 1;
        let worker = std::thread::Builder::new().name(format!("cpu-kernels-{id}"));
        if worker.spawn(move || wait_for_work(id)).is_err() {
            break;
        }
        *started += 1;
    }
    // SAFETY: the lifetime is erased; this function returns only when every unit is done, and
    // after that nobody reads the job.
    let work = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
    // SAFETY: we hold `CALLER` and nothing is claimable, so nobody reads or writes the job.
    unsafe { *SHARED.job.get() = Job { work, threads } };
    for (i, own) in SHARED.own[..threads].iter().enumerate() {
        own.set(units * i / threads..units * (i + 1) / threads);
    }
    SHARED.done.store(0, Relaxed);
    SHARED.remaining.store(units, SeqCst);
    if SHARED.sleepers.load(SeqCst) > 0 {
        drop(SHARED.asleep.lock().unwrap_or_else(PoisonError::into_inner));
        SHARED.wake.notify_all();
    }
    while work_on_one(0) {}
    let mut spins = 0u32;
    while SHARED.done.load(Acquire) < units {
        spins += 1;
        // A worker that lost its core needs one.
        if spins.is_multiple_of(4096) { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
    let panicked = SHARED.panicked.swap(false, Relaxed);
    drop(started);
    if panicked {
        resume_unwind(Box::new("a kernel panicked"));
    }
}

/// Does a unit if there is one.
fn work_on_one(id: usize) -> bool {
    let claim = SHARED.remaining.fetch_update(AcqRel, Relaxed, |left| left.checked_sub(1));
    if claim.is_err() {
        return false;
    }
    // SAFETY: a unit was claimed and is not done yet, so the caller waits and the job stands.
    let (work, threads) = unsafe {
        let Job { work, threads } = *SHARED.job.get();
        (&*work, threads)
    };
    // One is left for each claim, so some thread has it.
    let units = (0..).find_map(|i| SHARED.own[(id + i) % threads].take(i == 0));
    let unit = units.expect("a unit for each claim");
    if catch_unwind(AssertUnwindSafe(|| work(unit))).is_err() {
        SHARED.panicked.store(true, Relaxed);
    }
    SHARED.done.fetch_add(1, Release);
    true
}

fn wait_for_work(id: usize) {
    loop {
        let since = Instant::now();
        let mut spins = 0u32;
        loop {
            if SHARED.remaining.load(Relaxed) > 0 && id < threads() {
                while work_on_one(id) {}
                break;
            }
            spins += 1;
            if spins.is_multiple_of(256) && since.elapsed() > SPIN {
                sleep(id);
                break;
            }
            // Who prepares the next step may need this core meanwhile.
            if spins.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

fn sleep(id: usize) {
    let mut guard = SHARED.asleep.lock().unwrap_or_else(PoisonError::into_inner);
    SHARED.sleepers.fetch_add(1, SeqCst);
    while SHARED.remaining.load(SeqCst) == 0 || id >= threads() {
        guard = SHARED.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    SHARED.sleepers.fetch_sub(1, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_takes_its_units_in_turn_and_others_take_the_last() {
        let own = Own(AtomicU64::new(0));
        assert_eq!(own.take(true), None);
        own.set(3..7);
        let taken = [true, false, true, false, true, false].map(|is_first| own.take(is_first));
        assert_eq!(taken, [Some(3), Some(6), Some(4), Some(5), None, None]);
    }

    #[test]
    fn every_unit_runs_once_and_a_panic_reaches_the_caller() {
        for _ in 0..2000 {
            let counts: Vec<AtomicUsize> = (0..37).map(|_| AtomicUsize::new(0)).collect();
            run(37, &|unit| {
                counts[unit].fetch_add(1, Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Relaxed) == 1));
        }
        let caught = catch_unwind(|| run(8, &|unit| assert!(unit != 5)));
        assert!(caught.is_err());
        run(8, &|_| ());
    }
}
