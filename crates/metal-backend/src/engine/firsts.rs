//! First tokens, drawn from what the last ids of prompts leave, in the pass that computes these.

use mlx_ffi::cuda::Drawer;
use mlx_ffi::{Array, async_eval, ops};

use super::drawn::{Drawn, draws_of_all};
use super::ranks::Ranks;
use super::row::Row;
use super::step_clock::StepClock;
use super::taking::{Exit, take_in};
use crate::error::{Error, Result};
use crate::layers::Decoder;
use crate::sampling::{Draws, Sampler, take_rows};

/// The first tokens, in flight, of some rows whose prompts are computed together.
pub(super) struct Firsts {
    /// By the rows' indices; `None` where no row draws.
    drawn: Option<Drawn>,
    /// The indices of rows that cannot draw.
    failed: Vec<(usize, Error)>,
}

impl Firsts {
    /// Draws for `rows`, each with its index among those whose prompts are computed, from their
    /// hidden states, `[rows, 1, hidden_size]`.
    ///
    /// # Errors
    /// Those of MLX; a rank that is lost.
    pub fn draw<'a>(
        (model, ranks): (&Decoder, &Ranks),
        rows: impl Iterator<Item = (usize, &'a mut Row)>,
        states: &Array,
    ) -> Result<Firsts> {
        let mut rows: Vec<(usize, &mut Row)> = rows.collect();
        let mut failed = Vec::new();
        // What a row draws by is in the first rank alone.
        if !ranks.follow() {
            for (index, row) in &mut rows {
                if let Err(error) = row.sampler.prepare() {
                    failed.push((*index, error));
                }
            }
        }
        let told = || failed.iter().map(|(index, _)| *index).collect::<Vec<usize>>();
        let cannot = ranks.agree("rows that cannot draw", told)?;
        let (mut samplers, mut own, mut indices): (Vec<&mut Sampler>, Vec<_>, Vec<_>) =
            Default::default();
        for (of_states, (index, row)) in rows.into_iter().enumerate() {
            if !cannot.contains(&index) {
                samplers.push(&mut row.sampler);
                own.push(of_states);
                indices.push(index);
            }
        }
        if samplers.is_empty() {
            return Ok(Firsts { drawn: None, failed });
        }
        let states = if cannot.is_empty() { states.share()? } else { take_rows(states, &own)? };
        let own = model.own_logits(&states)?;
        if ranks.are_several() {
            // By itself, so that all ranks compute its operations in the same order.
            async_eval([&own])?;
        }
        // [rows, 1, vocab_size] -> [rows, vocab_size]
        let logits = ops::squeeze(&model.of_all(own)?, 1)?;
        let draws = draws_of_all((model, ranks), indices.len(), &logits, || {
            Draws::new(&mut samplers, &logits, &mut Drawer::default())
        })?;
        if ranks.are_several() {
            async_eval(draws.arrays())?;
        }
        Ok(Firsts { drawn: Some(Drawn::new(draws, &indices)), failed })
    }

    /// Everything that will be read, for evaluation.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.drawn.iter().flat_map(|drawn| drawn.draws.arrays())
    }

    /// Waits for the tokens, and hands them over. Returns the indices of the rows that do not
    /// decode, and why.
    ///
    /// # Errors
    /// Those of MLX; a rank that is lost.
    pub fn take_in(
        self,
        ranks: &Ranks,
        rows: &mut [Row],
        goes_on: impl Fn(&Row) -> bool,
        clock: &mut StepClock,
    ) -> Result<Vec<(usize, Exit)>> {
        if let Some(drawn) = &self.drawn {
            ranks.have_computed(&drawn.draws.ids)?;
        }
        let drawn = self.drawn.as_ref().map(Drawn::read).transpose()?;
        let mut drawn = drawn.into_iter().flatten().peekable();
        let mut failed = self.failed.into_iter().peekable();
        let mut left = Vec::new();
        for (index, row) in rows.iter_mut().enumerate() {
            let known = drawn.next_if(|(of, ..)| *of == index);
            if ranks.follow() {
                if let Some((_, id, _)) = known {
                    row.follow(id.unwrap_or_default());
                }
            } else if let Some((_, error)) = failed.next_if(|(of, _)| *of == index) {
                left.push((index, Exit::Ended(Err(error))));
            } else if let Some((_, id, report)) = known {
                let exit = take_in(row, Some((id, report)), &goes_on, clock);
                left.extend(exit.map(|exit| (index, exit)));
            }
        }
        ranks.exits(rows, left)
    }
}
