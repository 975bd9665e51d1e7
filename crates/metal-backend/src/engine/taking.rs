//! What becomes of a row whose draw is known.

use std::panic::{AssertUnwindSafe, catch_unwind};

use inference_core::FinishReason;

use super::row::Row;
use super::step_clock::{Part, StepClock};
use crate::error::{Result, not_numbers, panicked};
use crate::sampling::Report;

/// Why a row does not decode any more.
pub(super) enum Exit {
    /// It ended so.
    Ended(Result<FinishReason>),
    /// From here on its positions are encoded otherwise: its caches are of no use any more.
    Outgrown,
}

/// Takes in what was `drawn` for a row, without an id where the logits are no numbers, and hands its token over. Returns
/// why it leaves, `None` where it goes on, which is possible only where its caches `fit`.
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
