//! Pages of two megabytes for what operations made. Memory that weights are read into asks for them
//! by itself (`shim/allocate.cpp`).

use crate::{Array, Device, Result};

/// Arrays of fewer bytes lie as they are: there are too many, and each is read too seldom.
const LEAST: usize = 256 << 10;

impl Array {
    /// On a CPU, computes the value and lets Linux join its pages to large ones, which copies it
    /// once. A core reads these faster. Whatever the system says, the value stays. A small array,
    /// or one that is not row-major, is left as it is.
    ///
    /// # Errors
    /// As [`eval`](Self::eval).
    pub fn use_large_pages(&self) -> Result<()> {
        if !cfg!(target_os = "linux") || Device::Gpu.is_available()? || self.nbytes() < LEAST {
            return Ok(());
        }
        self.eval()?;
        if let Ok(bytes) = self.bytes() {
            join(bytes);
        }
        Ok(())
    }
}

/// Joins small pages to large ones, those too that the bytes share with their neighbours in memory.
#[cfg(target_os = "linux")]
fn join(bytes: &[u8]) {
    const LARGE: usize = 2 << 20;
    /// `MADV_COLLAPSE` of Linux 6.1 and later; older ones refuse it.
    const COLLAPSE: libc::c_int = 25;
    let before = bytes.as_ptr().addr() % LARGE;
    let first = bytes.as_ptr().wrapping_sub(before).cast_mut();
    let size = (before + bytes.len()).next_multiple_of(LARGE);
    // SAFETY: the call changes no byte. What is not mapped is left out.
    unsafe { libc::madvise(first.cast(), size, COLLAPSE) };
}

#[cfg(not(target_os = "linux"))]
fn join(_: &[u8]) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    #[test]
    fn values_outlast_the_change_of_their_pages() {
        for size in [0, 1, LEAST, LEAST + 1, (5 << 20) + 3] {
            let values: Vec<u8> = (0..size as u32).map(|at| (at >> 7) as u8).collect();
            let array = Array::from_bytes(&values, &[size as i32], Dtype::U8).expect("it fits");
            array.use_large_pages().expect("it is row-major");
            assert!(array.bytes().expect("it is evaluated") == values);
        }
    }
}
