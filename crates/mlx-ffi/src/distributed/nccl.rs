//! Values of ranks that have a GPU each: a group of MLX's over a communicator of NCCL that is ours.
//!
//! NCCL gathers on the device, behind what was queued there. It sums there, too, where GPUs do not
//! reach each other's memory; otherwise a kernel of ours does. A rank that waits in it keeps its
//! device busy, and waits until the others come or the group is given up. What else ranks do with
//! values is made of what all of them gather.

use std::env;
use std::ffi::{CStr, c_int};

use crate::error::{check, init};
use crate::stream::current;
use crate::{Array, Device, Dtype, Error, Result, ops, sys};

/// Environment variable: the ways in which sums are not sent.
const WITHOUT: &str = "ML_RANKS_WITHOUT";
/// Environment variable: set to report why something is done otherwise.
const TRACE: &str = "ML_TRACE_REPLAY";
/// Bytes by which NCCL knows a group: `MLXRS_NCCL_ID` of the shim.
const ID: usize = 128;
/// Bytes by which a rank opens the memory of another one: `MLXRS_PEER_HANDLE` of the shim.
const HANDLE: usize = 64;
/// The kernel that sums.
const ALL_SUM: &CStr = text(concat!(include_str!("../cuda/all_sum.cu"), "\0"));

/// A text that ends with a zero, as C has it.
const fn text(bytes: &str) -> &CStr {
    match CStr::from_bytes_with_nul(bytes.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a zero within the text"),
    }
}

/// Indices up to which each is a number of F32.
const MOST_NUMBERED: u32 = 1 << 24;

/// How sums are sent beside operation by operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// In steps that a device repeats as one.
    pub in_replays: bool,
    /// Past MLX, between operations of ours.
    pub dispatched: bool,
    /// By a kernel that writes into the memory of the other GPUs, where they reach each other.
    pub by_kernel: bool,
    /// Operation by operation where neither is possible; otherwise that is an error, which says
    /// why.
    pub may_fall_back: bool,
}

impl Sums {
    /// All of it, without what `without` names.
    fn parse(without: Option<&str>) -> Result<Sums> {
        let mut sums =
            Sums { in_replays: true, dispatched: true, by_kernel: true, may_fall_back: true };
        for word in without.unwrap_or_default().split(',').map(str::trim) {
            match word {
                "" => {}
                "replay" => sums.in_replays = false,
                "dispatch" => sums.dispatched = false,
                "peers" => sums.by_kernel = false,
                "fallback" => sums.may_fall_back = false,
                other => {
                    return Err(Error::new(format!(
                        "{WITHOUT} has {other:?}, expected replay, dispatch, peers or fallback, with a comma between"
                    )));
                }
            }
        }
        Ok(sums)
    }
}

/// A group of this process. NCCL keeps what it has of it as long as the process lives.
pub(super) struct Nccl {
    group: sys::mlx_distributed_group,
    sums: Sums,
}

// SAFETY: the handle is a pointer to a group that calls change under its own lock, and MLX's calls
// only read it.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

impl Nccl {
    /// Waits until all ranks are there. `gather` fills its second bytes with the first ones of all
    /// ranks, in their order.
    ///
    /// # Errors
    /// An MLX without NCCL; another number of GPUs than one; a variable that says nothing known;
    /// what NCCL refuses.
    pub fn meet(
        rank: usize,
        size: usize,
        mut gather: impl FnMut(&[u8], &mut [u8]) -> Result<()>,
    ) -> Result<Nccl> {
        init();
        // SAFETY: the call takes nothing.
        if !unsafe { sys::mlxrs_nccl_is_there() } {
            let reason = "this build of MLX has no NCCL, with which ranks on GPUs compute together: take the backend `cpu`";
            return Err(Error::new(reason));
        }
        let without = env::var_os(WITHOUT).map(|value| value.to_string_lossy().into_owned());
        let sums = Sums::parse(without.as_deref())?;
        let devices = Device::Gpu.count()?;
        if devices != 1 {
            return Err(Error::new(format!(
                "a rank sees {devices} GPUs, expected one of its own: start ranks with `ml launch`, or set \
                 CUDA_VISIBLE_DEVICES for each"
            )));
        }
        let mut id = [0; ID];
        if rank == 0 {
            // SAFETY: there are as many bytes as the call writes.
            check(unsafe { sys::mlxrs_nccl_id(id.as_mut_ptr()) })?;
        }
        let mut ids = vec![0; size * ID];
        gather(&id, &mut ids)?;
        // SAFETY: creates an empty handle.
        let mut nccl = Nccl { group: unsafe { sys::mlx_distributed_group_new() }, sums };
        // SAFETY: the place to fill is ours; there are as many bytes as the call reads.
        check(unsafe {
            sys::mlxrs_nccl_join(&mut nccl.group, ids.as_ptr(), rank as c_int, size as c_int)
        })?;
        nccl.sums.by_kernel = nccl.reach(size, gather)?;
        Ok(nccl)
    }

    /// Lets all ranks write into each other's memory; returns true when they do so from now on.
    ///
    /// # Errors
    /// Those of `gather`; where nothing else may be used, why not.
    fn reach(
        &self,
        size: usize,
        mut gather: impl FnMut(&[u8], &mut [u8]) -> Result<()>,
    ) -> Result<bool> {
        // A byte that tells whether this rank could, and what the others need.
        let mut agree = |own: Result<[u8; HANDLE]>| {
            let mut told = [0; 1 + HANDLE];
            if let Ok(handle) = &own {
                told[0] = 1;
                told[1..].copy_from_slice(handle);
            }
            let mut all = vec![0; size * told.len()];
            gather(&told, &mut all)?;
            let each = all.chunks_exact(told.len());
            if each.clone().all(|told| told[0] == 1) {
                return Ok(Some(each.flat_map(|told| &told[1..]).copied().collect::<Vec<_>>()));
            }
            let reason = match own {
                _ if !self.sums.by_kernel => return Ok(None),
                Err(error) => error,
                Ok(_) => Error::new("a rank's GPU does not reach the memory of the others"),
            };
            if env::var_os(TRACE).is_some() {
                eprintln!("NCCL sums: {reason}");
            }
            if self.sums.may_fall_back { Ok(None) } else { Err(reason) }
        };
        let mut handle = [0; HANDLE];
        let offered = match self.sums.by_kernel {
            // SAFETY: the group is filled; the text ends with a zero; there are as many bytes as
            // the call writes.
            true => check(unsafe {
                sys::mlxrs_peers_offer(self.group, ALL_SUM.as_ptr(), handle.as_mut_ptr())
            }),
            false => Err(Error::new(format!("{WITHOUT} names peers"))),
        };
        let Some(handles) = agree(offered.map(|()| handle))? else {
            return Ok(false);
        };
        // SAFETY: the group has made its memory; there are the handles of all its ranks.
        let opened = check(unsafe { sys::mlxrs_peers_open(self.group, handles.as_ptr()) });
        if agree(opened.map(|()| handle))?.is_none() {
            return Ok(false);
        }
        // SAFETY: all ranks have opened the memory of all.
        let tried = check(unsafe { sys::mlxrs_peers_try(self.group) });
        if agree(tried.map(|()| handle))?.is_none() {
            return Ok(false);
        }
        // SAFETY: as above.
        unsafe { sys::mlxrs_peers_use(self.group) };
        Ok(true)
    }

    pub fn sums(&self) -> Sums {
        self.sums
    }

    /// Lets what waits on the device for other ranks end, with any values, and lets later
    /// operations fail.
    pub fn give_up(&self) {
        // SAFETY: the handle is filled, and lives for the call.
        unsafe { sys::mlxrs_nccl_give_up(self.group) };
    }

    pub fn all_sum(&self, x: &Array) -> Result<Array> {
        // SAFETY: the handles live for the call; mlx-c only reads them.
        Array::from_op(|out| unsafe {
            sys::mlx_distributed_all_sum(out, x.raw(), self.group, current())
        })
    }

    /// Of `[n, …]`: `[size · n, …]`.
    pub fn all_gather(&self, x: &Array) -> Result<Array> {
        // SAFETY: the handles live for the call; mlx-c only reads them.
        Array::from_op(|out| unsafe {
            sys::mlx_distributed_all_gather(out, x.raw(), self.group, current())
        })
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_distributed_group_free(self.group) };
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

/// Of each row the index of the largest of all ranks' `values`, `[rows]` in F32, of which `gather`
/// makes those of all. Of equals, it is the first rank's.
///
/// # Errors
/// Indices up to a `below` that F32 cannot number.
pub(super) fn index_of_largest(
    values: &Array,
    indices: &Array,
    [first, below]: [u32; 2],
    gather: impl Fn(&Array) -> Result<Array>,
) -> Result<Array> {
    if below > MOST_NUMBERED {
        return Err(Error::new(format!(
            "ranks on GPUs find the largest of up to {MOST_NUMBERED} values, not of {below}"
        )));
    }
    let own = ops::add(indices, &Array::from_u32(&[first], &[])?)?;
    // One message for both. [1, 2, rows] -> [ranks, 2, rows]
    let both = ops::concatenate(
        &[&ops::expand_dims(values, 0)?, &ops::expand_dims(&ops::astype(&own, Dtype::F32)?, 0)?],
        0,
    )?;
    let all = gather(&ops::expand_dims(&both, 0)?)?;
    let part = |at: i32| ops::squeeze(&ops::slice_axis(&all, 1, at, at + 1)?, 1);
    let best = ops::argmax(&part(0)?, 0, true)?;
    let index = ops::squeeze(&ops::take_along_axis(&part(1)?, &best, 0)?, 0)?;
    ops::astype(&index, Dtype::U32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Indices;

    /// The gather of two ranks of which this one is the second.
    fn behind(first: Array) -> impl Fn(&Array) -> Result<Array> {
        move |own| ops::concatenate(&[&ops::reshape(&first, own.shape())?, own], 0)
    }

    #[test]
    fn what_ranks_gather_says_what_one_has_and_which_value_is_largest() {
        crate::use_device(Device::Cpu).expect("a CPU");
        let own = Array::from_u32(&[5, 6], &[2]).expect("values");
        let other = Array::from_u32(&[900, 2], &[2]).expect("values");
        let first = of_rank(&own, 0, behind(other)).expect("an array");
        assert_eq!(first.to_vec_u32().expect("values"), [900, 2]);
        let bounded = Indices::bounded(&first, 10).expect("indices");
        assert_eq!((bounded.to_vec_u32().expect("values"), bounded.below()), (vec![9, 2], 10));

        let values = Array::from_f32(&[1.0, -2.0, 3.0], &[3]).expect("values");
        let indices = Array::from_u32(&[0, 1, 2], &[3]).expect("values");
        let other = || Array::from_f32(&[0.5, -1.0, 3.0, 7.0, 8.0, 9.0], &[6]).expect("values");
        let largest = |below| index_of_largest(&values, &indices, [100, below], behind(other()));
        let found = largest(1000).expect("indices");
        assert_eq!(found.to_vec_u32().expect("values"), [100, 8, 9]);
        let error = largest(1 << 25).expect_err("too many").to_string();
        assert!(error.contains("16777216"), "{error}");
    }

    #[test]
    fn ranks_without_nccl_or_a_gpu_of_their_own_say_what_they_need() {
        // A machine of CI has none.
        let error = Nccl::meet(0, 2, |_, _| Ok(())).err().expect("there are no ranks").to_string();
        assert!(error.contains("cpu") || error.contains("ml launch"), "{error}");
    }

    #[test]
    fn how_sums_are_not_sent_is_told_by_words_that_are_known() {
        let parse = |without| {
            let sums = Sums::parse(without)?;
            Ok::<_, Error>([sums.in_replays, sums.dispatched, sums.by_kernel, sums.may_fall_back])
        };
        for without in [None, Some(""), Some(" , ")] {
            assert_eq!(parse(without).ok(), Some([true; 4]));
        }
        assert_eq!(parse(Some("replay")).ok(), Some([false, true, true, true]));
        assert_eq!(parse(Some("dispatch, replay")).ok(), Some([false, false, true, true]));
        assert_eq!(parse(Some("fallback")).ok(), Some([true, true, true, false]));
        assert_eq!(parse(Some("peers")).ok(), Some([true, true, false, true]));
        let error = parse(Some("graphs")).expect_err("no such word").to_string();
        assert!(
            error.contains("ML_RANKS_WITHOUT") && error.contains("replay, dispatch"),
            "{error}"
        );
    }
}
