//! The sets of instructions that the kernels are written for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::Error;

/// A set of instructions. Later ones are faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The baseline of the architecture: SSE2 on x86-64, NEON on aarch64.
    Portable,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 with BW, DQ and VL: Intel from Skylake-X on.
    Avx512f,
    /// AVX-512 with BW, DQ, VL, VBMI and BF16: AMD from Zen 4 on, Intel from Sapphire Rapids on.
    Avx512,
    /// AVX-512 as above, and tiles of bf16 (AMX) for prompts: Intel from Sapphire Rapids on.
    Amx,
}

impl Level {
    /// Returns the levels that this processor can run, the slowest first.
    pub fn available() -> &'static [Level] {
        static AVAILABLE: OnceLock<Vec<Level>> = OnceLock::new();
        AVAILABLE.get_or_init(detect)
    }

    /// Checks that this processor can run it.
    pub(crate) fn check(self) -> Result<(), Error> {
        if Level::available().contains(&self) {
            return Ok(());
        }
        Err(Error(format!("this processor does not have {}", self.name())))
    }

    /// The one that [`set_level`] chose; without it the fastest that this processor can run.
    pub fn current() -> Level {
        let (chosen, available) = (CHOSEN.load(Relaxed), Level::available());
        let level = available.iter().find(|level| **level as u8 == chosen).or(available.last());
        level.copied().unwrap_or(Level::Portable)
    }

    /// All of them, the slowest first, whatever this processor has.
    pub const ALL: [Level; 5] =
        [Level::Portable, Level::Avx2, Level::Avx512f, Level::Avx512, Level::Amx];

    /// `portable`, `avx2`, `avx512f`, `avx512` or `amx`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512f => "avx512f",
            Level::Avx512 => "avx512",
            Level::Amx => "amx",
        }
    }
}

/// Its number; any that is not available stands for the best.
static CHOSEN: AtomicU8 = AtomicU8::new(u8::MAX);

/// Lets whatever begins from now on run at `level`; `None`: at the best.
///
/// # Errors
/// A level that this processor does not have.
pub fn set_level(level: Option<Level>) -> Result<(), Error> {
    level.map_or(Ok(()), Level::check)?;
    CHOSEN.store(level.map_or(u8::MAX, |level| level as u8), Relaxed);
    Ok(())
}

/// A kernel in plain Rust, which the compiler turns into the vectors of a level.
pub(crate) trait Kernel: Sized {
    /// The result of a run.
    type Output;

    /// Runs it; `FMA`: a product and a sum are rounded once. On x86-64 that is so from AVX2 on,
    /// whose instructions such a run may use. Implementations are `#[inline(always)]`, so that they
    /// are compiled for the level that calls them.
    fn run<const FMA: bool>(self) -> Self::Output;

    /// Runs it with AVX-512, for whose vectors it may have instructions of its own.
    ///
    /// # Safety
    /// The processor has [`Level::Avx512f`].
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn run_avx512f(self) -> Self::Output {
        self.run::<true>()
    }

    /// True for a [`run_avx512`](Kernel::run_avx512) of its own. Others are compiled once for both.
    #[cfg(target_arch = "x86_64")]
    const HAS_AVX512: bool = false;

    /// Runs it with AVX-512, VBMI and BF16, for which it may have instructions of its own.
    ///
    /// # Safety
    /// The processor has [`Level::Avx512`].
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn run_avx512(self) -> Self::Output {
        // SAFETY: the caller's promise is the greater one.
        unsafe { self.run_avx512f() }
    }
}

/// Runs `kernel` with the instructions of `level`, which the processor must have.
///
/// # Safety
/// [`Level::available`] has `level`.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn run_at<K: Kernel>(level: Level, kernel: K) -> K::Output {
    match level {
        Level::Portable => kernel.run::<false>(),
        // SAFETY: the caller's promise.
        Level::Avx2 => unsafe { run_avx2(kernel) },
        // SAFETY: the caller's promise.
        Level::Avx512 | Level::Amx if const { K::HAS_AVX512 } => unsafe { run_avx512(kernel) },
        // SAFETY: the caller's promise.
        Level::Avx512f | Level::Avx512 | Level::Amx => unsafe { run_avx512f(kernel) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
fn run_avx512f<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller has the level.
    unsafe { kernel.run_avx512f() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller has the level.
    unsafe { kernel.run_avx512() }
}

/// Runs `kernel` with the instructions of `level`, which the processor must have.
///
/// # Safety
/// [`Level::available`] has `level`.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn run_at<K: Kernel>(_: Level, kernel: K) -> K::Output {
    if cfg!(target_arch = "aarch64") { kernel.run::<true>() } else { kernel.run::<false>() }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Vec<Level> {
    vec![Level::Portable]
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<Level> {
    let mut levels = vec![Level::Portable];
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    if avx2 {
        levels.push(Level::Avx2);
    }
    let avx512f = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    if avx512f {
        levels.push(Level::Avx512f);
    }
    let avx512 =
        avx512f && is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bf16");
    if avx512 {
        levels.push(Level::Avx512);
    }
    if avx512 && crate::amx::is_available() {
        levels.push(Level::Amx);
    }
    levels
}
