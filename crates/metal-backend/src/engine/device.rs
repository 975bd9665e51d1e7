//! The memory of the device that an engine shares with whatever else runs there.

use std::time::{Duration, Instant};

use inference_core::Error;
use mlx_ffi::Device;
use mlx_ffi::memory::{self, DeviceMemory};

use crate::error::Result;

/// Bytes of a device that arrays never take: kernels, graphs and the driver need them.
const LEFT_TO_DRIVER: u64 = 256 << 20;
/// Bytes that are held back for a time at which others have taken everything.
const RESERVE: usize = 96 << 20;
/// Bytes without which nothing new is begun: drivers take some for kernels, and MLX does not
/// outlive it where they find none.
const LEAST: u64 = 64 << 20;
/// How long what was seen of the device is believed: asking takes some microseconds.
const BELIEVED: Duration = Duration::from_millis(20);
/// Until the next try to use a device where others took what was free.
const PAUSE: Duration = Duration::from_millis(100);
/// Freed bytes that a GPU's allocator may keep for reuse, whatever the model.
const LEAST_CACHE: u64 = 1 << 30;

/// Bytes that arrays of this process can take on the device: what MLX allows them, and no more than
/// they have and is free.
///
/// # Errors
/// Those of MLX.
pub(crate) fn limit(device: Device) -> Result<u64> {
    let allowed = memory::first_limit()? as u64;
    Ok(room(device)?.map_or(allowed, |room| room.min(allowed)))
}

/// Bytes that arrays have, are kept for reuse, and are free on a device that others use too; `None`
/// where nobody else does, or nobody tells.
fn room(device: Device) -> Result<Option<u64>> {
    if device == Device::Cpu {
        return Ok(None);
    }
    let Some(DeviceMemory { free, .. }) = memory::of_device() else { return Ok(None) };
    let own = (memory::active()? + memory::cached()?) as u64;
    let own = own.max(memory::pooled());
    Ok(Some(own + free.saturating_sub(LEFT_TO_DRIVER)))
}

/// Lets a GPU's allocator stay within `limit`, and keep `cache` freed bytes or what is little of
/// that. A CPU's allocator keeps little by itself.
///
/// # Errors
/// Those of MLX.
pub(crate) fn bound(device: Device, limit: u64, cache: Option<u64>) -> Result<()> {
    if device == Device::Gpu {
        memory::set_limit(limit as usize)?;
        memory::reserve(RESERVE);
    }
    match (cache, device) {
        (Some(cache), _) => drop(memory::set_cache_limit(cache.min(limit) as usize)?),
        (None, Device::Gpu) => keep_of(0, limit)?,
        (None, Device::Cpu) => {}
    }
    Ok(())
}

/// Made first on a thread: what is prepared for its end, however it ends.
pub(super) struct EndOfThread;

impl Drop for EndOfThread {
    fn drop(&mut self) {
        mlx_ffi::end_thread();
    }
}

/// Makes the device this thread's, with so many threads where it is a CPU; how many bytes arrays
/// may take on it, of which no more than `wanted`.
///
/// # Errors
/// Those of MLX.
pub(crate) fn begin(device: Device, threads: Option<usize>, wanted: Option<u64>) -> Result<u64> {
    mlx_ffi::use_device(device)?;
    if let Some(threads) = threads {
        mlx_ffi::cpu::set_threads(threads);
    }
    let of_device = limit(device)?;
    let limit = wanted.unwrap_or(of_device).min(of_device);
    bound(device, limit, None)?;
    Ok(limit)
}

/// Checks that weights of `needed` bytes fit beside the arrays that are there, within `limit`.
///
/// # Errors
/// [`Error::Memory`] with `remedy`; those of MLX.
pub(crate) fn check_weights(needed: u64, limit: u64, remedy: &str) -> Result<()> {
    let available = limit.saturating_sub(memory::active()? as u64);
    if needed <= available {
        return Ok(());
    }
    let (what, remedy) = ("the model's weights".into(), remedy.into());
    Err(Error::Memory { what, needed, available, remedy }.into())
}

/// Lets a GPU's allocator keep what serves a chunk of a prompt that takes `work` bytes: what
/// batches leave behind as they grow has sizes that nothing asks for again.
///
/// # Errors
/// Those of MLX.
pub(super) fn keep_of(work: u64, limit: u64) -> Result<()> {
    let bytes = work.saturating_mul(2).max(LEAST_CACHE).min(limit / 4);
    memory::set_cache_limit(bytes as usize)?;
    Ok(())
}

/// The state of the device's memory, as of the last look.
pub(super) struct Watch {
    device: Device,
    seen: Option<Instant>,
    room: Option<u64>,
    /// So little is free that nothing new may begin.
    is_low: bool,
}

impl Watch {
    /// Before the first look.
    pub fn new(device: Device) -> Watch {
        Watch { device, seen: None, room: None, is_low: false }
    }

    /// Looks again at `now`, unless it did just before. Where too little is left, gives back what
    /// is not needed, and lets go of the reserve.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn look(&mut self, now: Instant) -> Result<()> {
        let is_fresh = self.seen.is_some_and(|seen| now.saturating_duration_since(seen) < BELIEVED);
        if self.device == Device::Cpu || is_fresh {
            return Ok(());
        }
        let free = || memory::of_device().map_or(u64::MAX, |device| device.free);
        if free() < LEAST {
            memory::give_back()?;
        }
        let left = free();
        if left < LEAST {
            memory::reserve(0);
        } else if self.is_low && left > 2 * LEFT_TO_DRIVER {
            memory::reserve(RESERVE);
        }
        self.is_low = left < LEAST;
        self.room = room(self.device)?;
        self.seen = Some(now);
        Ok(())
    }

    /// Bytes that arrays may take of a limit of `limit` at this time.
    pub fn within(&self, limit: u64) -> u64 {
        self.room.map_or(limit, |room| room.min(limit))
    }

    /// Checks that there is memory to begin something with.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], for what is done in `phase`.
    pub fn check(&self, phase: &str) -> Result<(), Error> {
        match self.is_low {
            true => Err(out_of_memory(self.device, phase, "nothing was begun")),
            false => Ok(()),
        }
    }
}

/// Makes the device of this thread usable after a failure, with what was held back for that.
///
/// # Errors
/// Why a GPU cannot be used any more.
pub(crate) fn recover(device: Device) -> Result<()> {
    const TRIES: usize = 3;
    if device == Device::Gpu {
        memory::reserve(0);
    }
    let mut tried = mlx_ffi::recover();
    for _ in 1..TRIES {
        if tried.is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
        tried = mlx_ffi::recover();
    }
    match device {
        // What a CPU failed with is told to whoever reads it, and nothing is lost by it.
        Device::Cpu => Ok(()),
        Device::Gpu => Ok(tried?),
    }
}

/// The error of what failed in `phase` for want of memory, and who holds it.
pub(super) fn out_of_memory(device: Device, phase: &str, reason: &str) -> Error {
    let held = memory::held(device);
    let holders = match (memory::of_device(), held) {
        (Some(DeviceMemory { free, total }), Some(held)) if device == Device::Gpu => format!(
            "; {} of {} MiB are free, this process holds {}, and others the rest",
            free >> 20,
            total >> 20,
            held >> 20
        ),
        _ => String::new(),
    };
    Error::OutOfMemory {
        what: phase.to_owned(),
        reason: format!("{reason}{holders}; ask for less at once, or end what holds the memory"),
    }
}
