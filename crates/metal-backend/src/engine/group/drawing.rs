//! The draws of a step, alone or beside other ranks.

use mlx_ffi::{Array, async_eval};

use super::super::ahead::Ahead;
use super::super::drawn::{Drawn, draws_of_all};
use super::super::served::Served;
use super::Group;
use crate::error::Result;
use crate::layers::{SplitLogits, Stage};
use crate::sampling::{Draws, Report, Sampler, take_rows};

impl Group {
    /// The most likely id of each row, of the logits of all slots that this rank computes, `[slots,
    /// ids]`.
    pub(super) fn most_likely(&mut self, split: &SplitLogits, own: &Array) -> Result<Drawn> {
        let own = self.of_rows(own)?;
        self.rows.iter_mut().for_each(|row| row.sampler.count_draw());
        let reports = self.rows.iter().map(|_| Report::default()).collect();
        Ok(Drawn::new(Draws { ids: split.most_likely(&own)?, reports, check: None }, &self.slots))
    }

    /// Draws for all rows from the logits of all slots, `[slots, vocab_size]`, or from those of the
    /// rows that ranks have exchanged where the draws are narrow.
    pub(super) fn draw(&mut self, served: &Served, logits: &Array, ahead: Ahead) -> Result<Drawn> {
        if served.model.stage.as_ref().is_some_and(Stage::is_last) {
            // The first rank draws from them.
            async_eval([logits])?;
        }
        let rows = self.rows.len();
        let is_narrow = matches!(ahead, Ahead::Top(_));
        if !served.ranks.are_several() && !is_narrow && rows < self.caches.slots() {
            // As many ids as slots: rows that leave change no size.
            let mut samplers: Vec<&mut Sampler> =
                self.rows.iter_mut().map(|row| &mut row.sampler).collect();
            let (slots, drawer) = (&self.slots, &mut self.drawer);
            if let Some(draws) = Draws::of_slots(&mut samplers, slots, logits, drawer)? {
                return Ok(Drawn::of_slots(draws, slots));
            }
        }
        let draws = draws_of_all((&served.model, &served.ranks), rows, logits, || {
            let own = if is_narrow { logits.share()? } else { self.of_rows(logits)? };
            let mut samplers: Vec<&mut Sampler> =
                self.rows.iter_mut().map(|row| &mut row.sampler).collect();
            match is_narrow {
                true => Ok(Draws::narrow(&mut samplers, &own)?),
                false => Draws::new(&mut samplers, &own, &mut self.drawer),
            }
        })?;
        Ok(Drawn::new(draws, &self.slots))
    }

    /// Gathers the entries of the live rows from a per-slot array.
    pub(super) fn of_rows(&self, of_slots: &Array) -> mlx_ffi::Result<Array> {
        match self.rows.len() == self.caches.slots() {
            true => of_slots.share(),
            false => take_rows(of_slots, &self.slots),
        }
    }
}
