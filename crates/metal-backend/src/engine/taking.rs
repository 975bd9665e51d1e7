//! Taking in the draws of rows, which go on or leave.

use std::panic::{AssertUnwindSafe, catch_unwind};

use inference_core::FinishReason;
use serde::{Deserialize, Serialize};

use super::ranks::Ranks;
use super::row::Row;
use super::step_clock::{Part, StepClock};
use crate::error::{Error, Result, not_numbers, panicked};
use crate::sampling::Report;

/// Why a row does not decode any more.
pub(super) enum Exit {
    /// It ended so.
    Ended(Result<FinishReason>),
    /// From here on its positions are encoded otherwise: its caches are of no use any more.
    Outgrown,
}

/// Takes in what was `drawn` for a row, without an id where the logits are no numbers, and hands
/// its token over. Returns why it leaves, `None` where it goes on, which is possible only where its
/// caches `fit`.
pub(super) fn take_in(
    row: &mut Row,
    drawn: Option<(Option<u32>, &Report)>,
    fit: impl Fn(&Row) -> bool,
    clock: &mut StepClock,
) -> Option<Exit> {
    let step = row.generated();
    let accept = || -> Result<Option<FinishReason>> {
        let reason = match drawn {
            Some((Some(id), report)) => row.accept(id, report, clock)?,
            Some((None, _)) => return Err(not_numbers()),
            None => None,
        };
        let reason = reason.or(row.is_cancelled().then_some(FinishReason::Cancelled));
        if reason.is_none() {
            row.sampler.prepare()?;
            clock.lap(Part::Sample);
        }
        Ok(reason.map(|reason| row.end(reason)))
    };
    let result = catch_unwind(AssertUnwindSafe(accept))
        .unwrap_or_else(|panic| Err(panicked("the request", &*panic).into()));
    match result {
        Ok(None) if !fit(row) => Some(Exit::Outgrown),
        Ok(None) => None,
        Ok(Some(reason)) => Some(Exit::Ended(Ok(reason))),
        Err(error) => Some(Exit::Ended(Err(error.in_phase(&format!("decode step {step}"))))),
    }
}

/// Why a row leaves, as all ranks have to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum How {
    Ended,
    Failed,
    Outgrown,
}

/// The index of a row that leaves, how many ids it has, and why it leaves.
type Leaving = (usize, usize, How);

impl Exit {
    fn how(&self) -> How {
        match self {
            Exit::Ended(Ok(_)) => How::Ended,
            Exit::Ended(Err(_)) => How::Failed,
            Exit::Outgrown => How::Outgrown,
        }
    }
}

impl From<How> for Exit {
    fn from(how: How) -> Exit {
        match how {
            How::Ended => Exit::Ended(Ok(FinishReason::Cancelled)),
            How::Failed => Exit::Ended(Err(Error::model("it failed in rank 0"))),
            How::Outgrown => Exit::Outgrown,
        }
    }
}

impl Ranks {
    /// The rows that leave in rank 0, by their indices in `rows`, in all ranks.
    ///
    /// # Errors
    /// A rank that is lost.
    pub fn exits(&self, rows: &mut [Row], left: Vec<(usize, Exit)>) -> Result<Vec<(usize, Exit)>> {
        if !self.are_several() {
            return Ok(left);
        }
        let told = || -> Vec<Leaving> {
            let of_row = |(at, exit): &(usize, Exit)| (*at, rows[*at].ids.len(), exit.how());
            left.iter().map(of_row).collect()
        };
        let leaving = self.agree("rows that leave", told)?;
        if !self.follow() {
            return Ok(left);
        }
        let mut left = Vec::with_capacity(leaving.len());
        for (at, ids, how) in leaving {
            let Some(row) = rows.get_mut(at) else { continue };
            // The id with which a row ends is not always one of its own.
            row.ids.truncate(ids);
            left.push((at, how.into()));
        }
        Ok(left)
    }
}
