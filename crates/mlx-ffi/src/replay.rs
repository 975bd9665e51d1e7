//! Operations that a device repeats as one.

use std::ffi::{c_int, c_void};

use crate::device_turns::evaluating;
use crate::distributed::Group;
use crate::error::check;
use crate::vector::VectorArray;
use crate::{Array, Error, Result, sys};

/// Operations of [`cpu`](crate::cpu) or of [`cuda`](crate::cuda), one after the other, kept to be
/// sent to the device again: MLX takes some microseconds for each, this takes them for all.
///
/// They are repeated over buffers that stay where they are. Only the moving arrays are others each
/// time.
#[derive(Debug)]
pub struct Replay(sys::mlxrs_replay);

/// The outcome of [`Replay::record`] or [`Replay::record_following`].
#[derive(Debug)]
pub enum Recorded {
    /// They are kept.
    Kept(Replay),
    /// Their kernels are still being compiled for it; worth another try.
    NotYet,
    /// There is more than operations of these between the arrays, or the device has no memory left.
    Impossible,
}

/// Agreement of ranks on what they can repeat or send, so that all do the same.
struct Agreement<'a> {
    ranks: Option<&'a Group>,
    /// Why a rank could not be asked.
    failed: Option<Error>,
}

impl<'a> Agreement<'a> {
    fn of(ranks: Option<&'a Group>) -> Agreement<'a> {
        Agreement { ranks, failed: None }
    }

    /// As the shim takes it, which must not outlive `self`.
    fn raw(&mut self) -> sys::mlxrs_agreement {
        let agree = self.ranks.map(|_| Self::agree as unsafe extern "C" fn(_, _) -> _);
        let is_strict = self.ranks.and_then(Group::sums).is_some_and(|sums| !sums.may_fall_back);
        sys::mlxrs_agreement { agree, data: (&raw mut *self).cast(), is_strict }
    }

    unsafe extern "C" fn agree(data: *mut c_void, own: c_int) -> c_int {
        // SAFETY: the shim hands over what `raw` gave it, during a call that borrows it.
        let agreement = unsafe { &mut *data.cast::<Agreement<'_>>() };
        let Some(ranks) = agreement.ranks else { return own };
        match ranks.most(own as u8) {
            Ok(all) => c_int::from(all),
            Err(error) => {
                agreement.failed = Some(error);
                -1
            }
        }
    }

    /// The result of a call; the error of a lost rank goes before that of MLX.
    fn check(self, status: c_int) -> Result<()> {
        let called = check(status);
        self.failed.map_or(called, Err)
    }
}

impl Replay {
    /// Keeps the operations that make `output` of `moving` arrays and of others, all lazy but the
    /// others; nothing of it is computed by this. `fixed` are those of the others that may have
    /// been replaced by the time of a repetition. `overlap`: each kernel for CUDA begins before the
    /// one before it has ended, as far as it only reads weights, which pays where they are short.
    /// `ranks`: those that do this at the same time, all of which keep their operations, or none.
    ///
    /// # Errors
    /// Those of MLX; a rank that is lost.
    pub fn record(
        output: &Array,
        moving: &[&Array],
        fixed: &[&Array],
        overlap: bool,
        ranks: Option<&Group>,
    ) -> Result<Recorded> {
        Replay::recorded(output, [moving, fixed], (overlap, false), ranks)
    }

    /// Keeps them likewise, for repetitions with other `fixed` arrays: [`run`](Self::run) takes
    /// what has the same types and shapes, row-major, wherever it lies. Where kernels for CUDA find
    /// a length in what they are given, arrays of four dimensions may be longer along the third,
    /// all that were of one shape alike. `ranks` as there.
    ///
    /// # Errors
    /// Those of MLX; a rank that is lost.
    pub fn record_following(
        output: &Array,
        moving: &[&Array],
        fixed: &[&Array],
        ranks: Option<&Group>,
    ) -> Result<Recorded> {
        Replay::recorded(output, [moving, fixed], (false, true), ranks)
    }

    fn recorded(
        output: &Array,
        [moving, fixed]: [&[&Array]; 2],
        (overlap, follows): (bool, bool),
        ranks: Option<&Group>,
    ) -> Result<Recorded> {
        let (moving, fixed) = (VectorArray::of(moving)?, VectorArray::of(fixed)?);
        let mut replay = sys::mlxrs_replay { ctx: std::ptr::null_mut() };
        let mut outcome = sys::MLXRS_IMPOSSIBLE;
        let mut agreement = Agreement::of(ranks);
        let _evaluating = evaluating();
        // SAFETY: all handles and the agreement live for the call; the places to fill are ours.
        let status = unsafe {
            let (output, ranks) = (output.raw(), agreement.raw());
            sys::mlxrs_replay_new(
                &mut replay,
                &mut outcome,
                output,
                moving.0,
                fixed.0,
                overlap,
                follows,
                ranks,
            )
        };
        agreement.check(status)?;
        Ok(match outcome {
            sys::MLXRS_DONE => Recorded::Kept(Replay(replay)),
            sys::MLXRS_NOT_YET => Recorded::NotYet,
            _ => Recorded::Impossible,
        })
    }

    /// Returns true when [`run`](Self::run) repeats them for these arrays.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn fits(&self, moving: &[&Array], fixed: &[&Array]) -> Result<bool> {
        let (moving, fixed) = (VectorArray::of(moving)?, VectorArray::of(fixed)?);
        let mut fits = false;
        // SAFETY: all handles live for the call; the place to fill is ours.
        check(unsafe { sys::mlxrs_replay_fits(&mut fits, self.0, moving.0, fixed.0) })?;
        Ok(fits)
    }

    /// Repeats them for other moving arrays of the same stream, which are evaluated, behind all
    /// that was sent to the device before. What comes out is overwritten by the next repetition, so
    /// operations that read it, of the same stream, must be sent before that; it is not waited for
    /// by [`Array::eval`]. `None`, and nothing is computed but the moving arrays, where arrays have
    /// other shapes or types, or where one of the fixed ones is not where it was.
    ///
    /// # Errors
    /// Those of MLX and of CUDA.
    pub fn run(&mut self, moving: &[&Array], fixed: &[&Array]) -> Result<Option<Array>> {
        let (moving, fixed) = (VectorArray::of(moving)?, VectorArray::of(fixed)?);
        let _evaluating = evaluating();
        // SAFETY: all handles live for the call.
        let output = VectorArray::from_op(|out| unsafe {
            sys::mlxrs_replay_run(out, self.0, moving.0, fixed.0)
        })?;
        Ok(output.into_iter().next())
    }

    /// Waits for the last repetitions, and lets go of the arrays that they read.
    ///
    /// # Errors
    /// Those of CUDA.
    pub fn wait(&mut self) -> Result<()> {
        // SAFETY: the handle lives for the call.
        check(unsafe { sys::mlxrs_replay_wait(self.0) })
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlxrs_replay_free(self.0) };
    }
}

/// Operations of [`cuda`](crate::cuda) that are sent to the device one after the other, past MLX,
/// which takes several times as long for each.
#[derive(Debug)]
pub struct Dispatcher {
    raw: sys::mlxrs_dispatcher,
    ranks: Option<Group>,
}

/// The outcome of [`Dispatcher::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// They are in flight.
    Sent,
    /// Their kernels are still being compiled for it, on other threads; worth another try.
    NotYet,
    /// There is no CUDA, or other operations stand between them.
    Impossible,
}

impl Dispatcher {
    /// A dispatcher of this thread's stream. `ranks`: those that send at the same times, all of
    /// which send theirs, or none.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn new(ranks: Option<Group>) -> Result<Dispatcher> {
        let mut dispatcher = sys::mlxrs_dispatcher { ctx: std::ptr::null_mut() };
        // SAFETY: the place to fill is ours.
        check(unsafe { sys::mlxrs_dispatcher_new(&mut dispatcher) })?;
        Ok(Dispatcher { raw: dispatcher, ranks })
    }

    /// Sends the operations that make `outputs`, behind all that was sent before. Once they are
    /// sent, outputs count as evaluated: operations of the same stream may read them, and anybody
    /// else after [`wait`](Self::wait). Of what they are made of, nothing else can be evaluated any
    /// more. Otherwise they are as they were, but for what they need and no operation here makes,
    /// which is evaluated.
    ///
    /// # Errors
    /// Those of MLX and of CUDA; a rank that is lost.
    pub fn send<'a>(&mut self, outputs: impl IntoIterator<Item = &'a Array>) -> Result<Dispatch> {
        let outputs = VectorArray::of(&outputs.into_iter().collect::<Vec<_>>())?;
        let mut outcome = sys::MLXRS_IMPOSSIBLE;
        let mut agreement = Agreement::of(self.ranks.as_ref());
        let _evaluating = evaluating();
        // SAFETY: all handles and the agreement live for the call; the place to fill is ours.
        let status =
            unsafe { sys::mlxrs_dispatch(&mut outcome, self.raw, outputs.0, agreement.raw()) };
        agreement.check(status)?;
        Ok(match outcome {
            sys::MLXRS_DONE => Dispatch::Sent,
            sys::MLXRS_NOT_YET => Dispatch::NotYet,
            _ => Dispatch::Impossible,
        })
    }

    /// Waits for all that was sent.
    ///
    /// # Errors
    /// Those of CUDA.
    pub fn wait(&mut self) -> Result<()> {
        // SAFETY: the handle lives for the call.
        check(unsafe { sys::mlxrs_dispatcher_wait(self.raw) })
    }

    /// Gives up the memory that it keeps for what is sent next.
    pub fn rest(&mut self) {
        // SAFETY: the handle lives for the call.
        unsafe { sys::mlxrs_dispatcher_rest(self.raw) }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlxrs_dispatcher_free(self.raw) };
    }
}
