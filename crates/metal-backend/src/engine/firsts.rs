//! First tokens, drawn from what the last ids of prompts leave, in the pass that computes these.

use mlx_ffi::cuda::Drawer;
use mlx_ffi::{Array, ops};

use super::drawn::Drawn;
use super::row::Row;
use super::step_clock::StepClock;
use super::taking::{Exit, take_in};
use crate::error::{Error, Result};
use crate::layers::Decoder;
use crate::sampling::{Draws, Sampler, take_rows};

/// The first tokens of some rows whose prompts are computed together, on their way.
pub(super) struct Firsts {
    /// By the rows' indices; `None` where no row draws.
    drawn: Option<Drawn>,
    /// The indices of rows that cannot draw.
    failed: Vec<(usize, Error)>,
}

impl Firsts {
    /// Draws for `rows`, each with its index among those whose prompts are computed, from their hidden states,
    /// `[rows, 1, hidden_size]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn draw<'a>(
        model: &Decoder,
        rows: impl Iterator<Item = (usize, &'a mut Row)>,
        states: &Array,
    ) -> Result<Firsts> {
        let (mut samplers, mut own, mut indices): (Vec<&mut Sampler>, Vec<_>, Vec<_>) =
            Default::default();
        let mut failed = Vec::new();
        for (of_states, (index, row)) in rows.enumerate() {
            match row.sampler.prepare() {
                Ok(()) => {
                    samplers.push(&mut row.sampler);
                    own.push(of_states);
                    indices.push(index);
                }
                Err(error) => failed.push((index, error)),
            }
        }
        if samplers.is_empty() {
            return Ok(Firsts { drawn: None, failed });
        }
        let states = if failed.is_empty() { states.share()? } else { take_rows(states, &own)? };
        // [rows, 1, vocab_size] -> [rows, vocab_size]
        let logits = ops::squeeze(&model.logits(&states)?, 1)?;
        let draws = Draws::new(&mut samplers, &logits, &mut Drawer::default())?;
        Ok(Firsts { drawn: Some(Drawn::new(draws, &indices)), failed })
    }

    /// Everything that will be read, for evaluation.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.drawn.iter().flat_map(|drawn| drawn.draws.arrays())
    }

    /// Waits for the tokens, and hands them over. Returns why each row does not decode, `None` where it does.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn take_in(
        self,
        rows: &mut [Row],
        goes_on: impl Fn(&Row) -> bool,
        clock: &mut StepClock,
    ) -> Result<Vec<Option<Exit>>> {
        let drawn = self.drawn.as_ref().map(Drawn::read).transpose()?;
        let mut drawn = drawn.into_iter().flatten().peekable();
        let mut failed = self.failed.into_iter().peekable();
        let exits = rows.iter_mut().enumerate().map(|(index, row)| {
            if let Some((_, error)) = failed.next_if(|(of, _)| *of == index) {
                return Some(Exit::Ended(Err(error)));
            }
            let (_, id, report) = drawn.next_if(|(of, ..)| *of == index)?;
            take_in(row, Some((id, report)), &goes_on, clock)
        });
        Ok(exits.collect())
    }
}
