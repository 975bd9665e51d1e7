//! Values of ranks that have a GPU each: MLX's own group over NCCL.
//!
//! NCCL sums and gathers on the device, behind what was queued there. A rank that waits in it keeps its device busy, and
//! waits until the others come. What else ranks do with values is made of what all of them gather.

use std::env;
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use crate::error::{check, init};
use crate::stream::current;
use crate::{Array, Device, Error, Result, ops, sys};

/// What MLX reads to find the other ranks.
const VARIABLES: [&str; 4] = ["NCCL_HOST_IP", "NCCL_PORT", "MLX_RANK", "MLX_WORLD_SIZE"];
const NCCL: &CStr = c"nccl";

/// MLX's group of this process. It lives as long as the process: MLX keeps it, too.
pub(super) struct Nccl(sys::mlx_distributed_group);

// SAFETY: the handle is a pointer to a group that nothing changes, and MLX's calls only read it.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

impl Nccl {
    /// Waits until all ranks are there, as the environment names them.
    ///
    /// # Errors
    /// An MLX without NCCL; variables that are not set, by name, or that say something else; another number of GPUs than
    /// one. What NCCL itself refuses ends the process, with a line that says what.
    pub fn meet(rank: usize, size: usize) -> Result<Nccl> {
        // MLX's list of groups is not made for several threads.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        init();
        // SAFETY: the name is terminated and lives for the call.
        if !unsafe { sys::mlx_distributed_is_available(NCCL.as_ptr()) } {
            let reason = "this build of MLX has no NCCL, with which ranks on GPUs compute together: take the backend `cpu`";
            return Err(Error::new(reason));
        }
        if let Some(missing) = VARIABLES.iter().find(|name| env::var_os(name).is_none()) {
            return Err(Error::new(format!(
                "{missing} is not set, and ranks on GPUs need it: start them with `ml launch`"
            )));
        }
        let devices = Device::Gpu.count()?;
        if devices != 1 {
            return Err(Error::new(format!(
                "a rank sees {devices} GPUs, expected one of its own: start ranks with `ml launch`, or set \
                 CUDA_VISIBLE_DEVICES for each"
            )));
        }
        // SAFETY: creates an empty handle.
        let mut group = Nccl(unsafe { sys::mlx_distributed_group_new() });
        // SAFETY: the place to fill is ours; the name is terminated and lives for the call.
        check(unsafe { sys::mlx_distributed_init(&mut group.0, true, NCCL.as_ptr()) })?;
        // SAFETY: the handle is filled.
        let (own, all) = unsafe {
            (sys::mlx_distributed_group_rank(group.0), sys::mlx_distributed_group_size(group.0))
        };
        if (own as usize, all as usize) != (rank, size) {
            return Err(Error::new(format!(
                "MLX_RANK and MLX_WORLD_SIZE say rank {own} of {all}, expected rank {rank} of {size}"
            )));
        }
        Ok(group)
    }

    pub fn all_sum(&self, x: &Array) -> Result<Array> {
        // SAFETY: the handles live for the call; mlx-c only reads them.
        Array::from_op(|out| unsafe {
            sys::mlx_distributed_all_sum(out, x.raw(), self.0, current())
        })
    }

    /// Of `[n, …]`: `[size · n, …]`.
    pub fn all_gather(&self, x: &Array) -> Result<Array> {
        // SAFETY: the handles live for the call; mlx-c only reads them.
        Array::from_op(|out| unsafe {
            sys::mlx_distributed_all_gather(out, x.raw(), self.0, current())
        })
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_distributed_group_free(self.0) };
    }
}

/// The `x` of the rank `from`, of those that `gather` makes of all.
pub(super) fn of_rank(
    x: &Array,
    from: i32,
    gather: impl FnOnce(&Array) -> Result<Array>,
) -> Result<Array> {
    let all = gather(&ops::expand_dims(x, 0)?)?;
    ops::squeeze(&ops::slice_axis(&all, 0, from, from + 1)?, 0)
}

/// Of each row the index of the largest of all ranks' `values`, `[rows]` in F32, of which `gather` makes those of all. Of
/// equals, it is the first rank's.
pub(super) fn index_of_largest(
    values: &Array,
    indices: &Array,
    first: u32,
    gather: impl Fn(&Array) -> Result<Array>,
) -> Result<Array> {
    let own = ops::add(indices, &Array::from_u32(&[first], &[])?)?;
    let values = gather(&ops::expand_dims(values, 0)?)?;
    let indices = gather(&ops::expand_dims(&own, 0)?)?;
    let best = ops::argmax(&values, 0, true)?;
    ops::squeeze(&ops::take_along_axis(&indices, &best, 0)?, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, Indices};

    /// What two ranks gather where this one is the second and the first has `floats` or `integers`.
    fn behind(floats: Vec<f32>, integers: Vec<u32>) -> impl Fn(&Array) -> Result<Array> {
        move |own| {
            let first = match own.dtype() {
                Dtype::F32 => Array::from_f32(&floats, own.shape())?,
                _ => Array::from_u32(&integers, own.shape())?,
            };
            ops::concatenate(&[&first, own], 0)
        }
    }

    #[test]
    fn what_ranks_gather_says_what_one_has_and_which_value_is_largest() {
        crate::use_device(Device::Cpu).expect("a CPU");
        let own = Array::from_u32(&[5, 6], &[2]).expect("values");
        let first = of_rank(&own, 0, behind(Vec::new(), vec![900, 2])).expect("an array");
        assert_eq!(first.to_vec_u32().expect("values"), [900, 2]);
        let bounded = Indices::bounded(&first, 10).expect("indices");
        assert_eq!((bounded.to_vec_u32().expect("values"), bounded.below()), (vec![9, 2], 10));

        let values = Array::from_f32(&[1.0, -2.0, 3.0], &[3]).expect("values");
        let indices = Array::from_u32(&[0, 1, 2], &[3]).expect("values");
        let gather = behind(vec![0.5, -1.0, 3.0], vec![7, 8, 9]);
        let largest = index_of_largest(&values, &indices, 100, gather).expect("indices");
        assert_eq!(largest.to_vec_u32().expect("values"), [100, 8, 9]);
    }

    #[test]
    fn ranks_without_nccl_say_what_they_need() {
        // A machine of CI has none, or no variables.
        let error = Nccl::meet(0, 2).err().expect("there are no ranks").to_string();
        assert!(error.contains("cpu") || error.contains("ml launch"), "{error}");
    }
}
