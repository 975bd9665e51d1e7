//! The draws of a step, by the slots of the rows that they were made for.

use mlx_ffi::{Array, Indices, Result, async_eval};

use super::ahead::Ahead;
use super::due::Ticket;
use super::ranks::Ranks;
use super::served::Served;
use crate::error;
use crate::layers::{Decoder, Stage};
use crate::sampling::{Check, Draws, Report};

/// The draws of rows, which may leave before their draws are read.
pub(super) struct Drawn {
    pub draws: Draws,
    /// The slot of each draw's row, in ascending order; `None` once the row left.
    slots: Vec<Option<usize>>,
    /// Set while ranks have still to exchange the draws.
    due: Option<Ticket>,
}

impl Drawn {
    /// The draws of the rows in `slots`, which ascend.
    pub fn new(draws: Draws, slots: &[usize]) -> Drawn {
        Drawn { draws, slots: slots.iter().copied().map(Some).collect(), due: None }
    }

    /// The draws of all slots, of which those in `slots` have rows.
    pub fn of_slots(draws: Draws, slots: &[usize]) -> Drawn {
        let count = draws.reports.len();
        let has_row = |slot: usize| slots.binary_search(&slot).is_ok().then_some(slot);
        Drawn { draws, slots: (0..count).map(has_row).collect(), due: None }
    }

    /// Sends the draws to the device. In a pipeline the last rank sends the ids that it chose, and
    /// all else waits until [`exchange`](Self::exchange).
    ///
    /// # Errors
    /// Those of MLX.
    pub fn send(&mut self, served: &Served, ahead: Ahead) -> Result<()> {
        let chooses = |stage: &Stage| ahead == Ahead::MostLikely && stage.is_last();
        if served.model.stage.as_ref().is_none_or(chooses) {
            async_eval(self.draws.arrays())?;
        }
        if served.model.stage.is_some() {
            self.due = Some(served.due.add(self.draws.arrays())?);
        }
        Ok(())
    }

    /// In a pipeline, exchanges what was put off.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn exchange(&mut self, served: &Served) -> Result<()> {
        self.due.take().map_or(Ok(()), |due| served.due.exchange(due))
    }

    /// Returns true when something was drawn for the row in a slot.
    pub fn has(&self, slot: usize) -> bool {
        self.slots.contains(&Some(slot))
    }

    /// Forgets what was drawn for the row in a slot, which leaves.
    pub fn forget(&mut self, slot: usize) {
        self.slots.iter_mut().filter(|known| **known == Some(slot)).for_each(|known| *known = None);
    }

    /// Takes note that the rows in `slots` are moved to slots 0, 1, ….
    pub fn compact(&mut self, slots: &[usize]) {
        let moved = |slot: Option<usize>| slot.and_then(|slot| slots.binary_search(&slot).ok());
        self.slots.iter_mut().for_each(|slot| *slot = moved(*slot));
    }

    /// Waits for the draws: what was drawn for each row that is still there, with its slot. There
    /// is no id where the logits are no numbers, as far as no report says so.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn read(&self) -> Result<impl Iterator<Item = (usize, Option<u32>, &Report)>> {
        let ids = self.draws.ids.to_vec_u32()?;
        let no_numbers = self.draws.check.as_ref().map(Check::no_numbers).transpose()?;
        let is_number = move |at: usize| {
            no_numbers.as_ref().is_none_or(|none| none.binary_search(&at).is_err())
        };
        let all = self.slots.iter().zip(ids).zip(&self.draws.reports).enumerate();
        let of_row = move |(at, ((slot, id), report)): (usize, ((&Option<usize>, u32), _))| {
            Some(((*slot)?, is_number(at).then_some(id), report))
        };
        Ok(all.filter_map(of_row))
    }
}

/// Calls `draw` in the first rank alone, and returns the ids of so many rows in all ranks.
/// The other ranks know no more than `logits`.
///
/// # Errors
/// Those of MLX and of `draw`.
pub(super) fn draws_of_all(
    (model, ranks): (&Decoder, &Ranks),
    rows: usize,
    logits: &Array,
    draw: impl FnOnce() -> error::Result<Draws>,
) -> error::Result<Draws> {
    let Some(group) = ranks.group() else { return draw() };
    if ranks.follow() {
        let ids = group.indices_after(0, logits, rows as i32, model.vocab_size as usize)?;
        let reports = (0..rows).map(|_| Report::default()).collect();
        return Ok(Draws { ids, reports, check: None });
    }
    let draws = draw()?;
    Ok(Draws { ids: group.indices_of_rank(&draws.ids, 0)?, ..draws })
}

/// The next ids of all slots, as the embedding takes them.
#[derive(Default)]
pub(super) struct NextIds {
    /// The index of each slot's id among those drawn and given, in the last step in which they were
    /// not in order.
    known: Option<(Vec<u32>, Indices)>,
}

impl NextIds {
    /// `[slots]`: what was drawn for rows, and what is given for those that just joined. A vacant
    /// slot has any id.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn of(
        &mut self,
        slots: usize,
        drawn: Option<&Drawn>,
        fresh: &[(usize, u32)],
    ) -> Result<Indices> {
        let of_draws = drawn.into_iter().flat_map(|drawn| &drawn.slots);
        // What a vacant slot has is any id, its own where that leaves all in order.
        let all = (of_draws.clone().count() + fresh.len()) as u32;
        let mut order: Vec<u32> =
            (0..slots as u32).map(|slot| slot.min(all.saturating_sub(1))).collect();
        let mut count = 0;
        for slot in of_draws {
            if let Some(slot) = slot {
                order[*slot] = count;
            }
            count += 1;
        }
        for (slot, _) in fresh {
            order[*slot] = count;
            count += 1;
        }
        let given: Vec<u32> = fresh.iter().map(|(_, id)| *id).collect();
        let given = match given.len() {
            0 => None,
            count => Some(Indices::from_u32(&given, &[count as i32])?),
        };
        let parts: Vec<&Indices> =
            drawn.map(|drawn| &drawn.draws.ids).into_iter().chain(&given).collect();
        let ids = match parts[..] {
            [ids] => ids.share()?,
            _ => Indices::concatenate(&parts, 0)?,
        };
        if count as usize == slots && order.iter().copied().eq(0..count) {
            return Ok(ids);
        }
        // The order stays the same from step to step, and takes long to get to a GPU.
        let known = match self.known.take_if(|(known, _)| *known == order) {
            Some(known) => known,
            None => {
                let indices = Indices::from_u32(&order, &[slots as i32])?;
                (order, indices)
            }
        };
        let taken = ids.take(&known.1, 0)?;
        self.known = Some(known);
        Ok(taken)
    }
}
