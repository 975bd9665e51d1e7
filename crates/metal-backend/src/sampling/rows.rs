//! The draws of all rows of a batch.

use mlx_ffi::cuda::{self, Drawer, Drawing};
use mlx_ffi::{Array, Dtype, Indices, ops};

use super::{Draw, Report, Sampler};
use crate::error::Result;

/// The draws of one step, one for each row of a batch; nothing is computed until they are read.
pub(crate) struct Draws {
    /// `[rows]`, U32.
    pub ids: Indices,
    /// One for each row.
    pub reports: Vec<Report>,
    /// Of rows whose first draws these are, and of which no report says so.
    pub check: Option<Check>,
}

/// The check that the logits of some rows are numbers.
pub(crate) struct Check {
    /// The indices of the rows.
    rows: Vec<usize>,
    /// `[rows]` F32: finite where they are.
    values: Array,
}

impl Check {
    /// That of the rows of `logits`, `[rows, vocab_size]`, of which `samplers` draw for the first
    /// time, where any does. `rows` are theirs.
    fn of_first(
        samplers: &[&mut Sampler],
        rows: &[usize],
        logits: &Array,
    ) -> mlx_ffi::Result<Option<Check>> {
        let all = rows.iter().zip(samplers);
        let first = all.filter(|(_, sampler)| sampler.step == 0 && is_served(sampler));
        let rows: Vec<usize> = first.map(|(row, _)| *row).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let is_all = logits.shape().first() == Some(&(rows.len() as i32));
        let own = if is_all { logits.share()? } else { take_rows(logits, &rows)? };
        let values = match samplers.iter().any(|sampler| sampler.by_kernel) {
            true => cuda::largest(&own)?,
            false => ops::logsumexp(&ops::astype(&own, Dtype::F32)?, -1, false)?,
        };
        Ok(Some(Check { rows, values }))
    }

    /// Waits for it: the indices, in ascending order, of rows whose logits are no numbers.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn no_numbers(&self) -> mlx_ffi::Result<Vec<usize>> {
        let values = self.values.to_vec_f32()?;
        let rows = self.rows.iter().zip(values);
        Ok(rows.filter(|(_, value)| !value.is_finite()).map(|(row, _)| *row).collect())
    }
}

/// How a kernel of ours draws for a row, where it does.
fn by_kernel(sampler: &Sampler) -> Option<Drawing> {
    sampler.drawing().filter(|_| sampler.is_untouched())
}

/// Returns true when a row is served with others.
/// It wants the most likely id alone, or, on CUDA, what a kernel draws.
fn is_served(sampler: &Sampler) -> bool {
    sampler.is_plain() || by_kernel(sampler).is_some()
}

/// How a kernel draws for a row that is served with others, and how many draws it had.
fn drawing_of(sampler: &Sampler) -> (Drawing, u32) {
    (by_kernel(sampler).unwrap_or(Drawing::MOST_LIKELY), sampler.step as u32)
}

/// The ids that rows in `slots` draw that are served with others, of the logits of all slots:
/// `[slots]`, anything for the rest.
fn best_of(
    samplers: &[&mut Sampler],
    slots: &[usize],
    logits: &Array,
    drawer: &mut Drawer,
) -> mlx_ffi::Result<Indices> {
    if samplers.iter().all(|sampler| by_kernel(sampler).is_none()) {
        return ops::argmax(logits, -1, false);
    }
    let mut rows = vec![None; logits.shape().first().map_or(0, |slots| *slots as usize)];
    for (slot, sampler) in slots.iter().zip(samplers) {
        rows[*slot] = Some(drawing_of(sampler));
    }
    drawer.draw(logits, &rows)
}

impl Draws {
    /// Draws from `logits`, `[rows, vocab_size]`. Each row's draw is what it is alone. `drawer` is
    /// what is kept of the draws before these.
    ///
    /// # Errors
    /// Those of MLX; a constraint's, where it was not prepared.
    pub fn new(
        samplers: &mut [&mut Sampler],
        logits: &Array,
        drawer: &mut Drawer,
    ) -> Result<Draws> {
        if let [sampler] = samplers
            && !is_served(sampler)
        {
            let Draw { id, report } = sampler.draw(logits)?;
            return Ok(Draws { ids: id, reports: vec![report], check: None });
        }
        let all: Vec<usize> = (0..samplers.len()).collect();
        if let Some(draws) = Draws::of_slots(samplers, &all, logits, drawer)? {
            return Ok(draws);
        }
        let any_served = samplers.iter().any(|sampler| is_served(sampler));
        let best = any_served.then(|| best_of(samplers, &all, logits, drawer)).transpose()?;
        let check = Check::of_first(samplers, &all, logits)?;
        let (mut ids, mut reports) = (Vec::new(), Vec::new());
        for (row, sampler) in (0..).zip(samplers) {
            match &best {
                Some(best) if is_served(sampler) => {
                    sampler.step += 1;
                    ids.push(best.slice_axis(0, row, row + 1)?);
                    reports.push(Report::default());
                }
                _ => {
                    let own = ops::slice_axis(logits, 0, row, row + 1)?;
                    let Draw { id, report } = sampler.draw(&own)?;
                    ids.push(id);
                    reports.push(report);
                }
            }
        }
        let ids = Indices::concatenate(&ids.iter().collect::<Vec<_>>(), 0)?;
        Ok(Draws { ids, reports, check })
    }

    /// Draws from the logits of all slots, `[slots, vocab_size]`, for the samplers of the rows in
    /// `slots`, which ascend: an id for each slot. `None` where a row needs its logits apart. What
    /// is left of the slots is not looked at.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn of_slots(
        samplers: &mut [&mut Sampler],
        slots: &[usize],
        logits: &Array,
        drawer: &mut Drawer,
    ) -> mlx_ffi::Result<Option<Draws>> {
        if !samplers.iter().all(|sampler| is_served(sampler)) {
            return Ok(None);
        }
        let count = logits.shape().first().map_or(0, |slots| *slots as usize);
        let ids = best_of(samplers, slots, logits, drawer)?;
        let check = Check::of_first(samplers, slots, logits)?;
        samplers.iter_mut().for_each(|sampler| sampler.step += 1);
        let reports = (0..count).map(|_| Report::default()).collect();
        Ok(Some(Draws { ids, reports, check }))
    }

    /// The ids that several positions of each row draw, as if each were drawn one after the other:
    /// `[rows · positions]` of `logits`, `[rows · positions, vocab_size]`. `None` where a row needs
    /// its logits apart, or draws for the first time.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn of_positions(
        samplers: &mut [&mut Sampler],
        positions: usize,
        logits: &Array,
        drawer: &mut Drawer,
    ) -> mlx_ffi::Result<Option<Indices>> {
        if !samplers.iter().all(|sampler| sampler.step > 0 && is_served(sampler)) {
            return Ok(None);
        }
        let ids = match samplers.iter().all(|sampler| by_kernel(sampler).is_none()) {
            true => ops::argmax(logits, -1, false)?,
            false => {
                let of_row = |sampler: &&mut Sampler| {
                    let (drawing, step) = drawing_of(sampler);
                    (0..positions as u32).map(move |at| Some((drawing, step + at)))
                };
                drawer.draw(logits, &samplers.iter().flat_map(of_row).collect::<Vec<_>>())?
            }
        };
        samplers.iter_mut().for_each(|sampler| sampler.step += positions as u64);
        Ok(Some(ids))
    }

    /// Draws that are narrow, each from its row of `logprobs`, `[rows, vocab_size]`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn narrow(samplers: &mut [&mut Sampler], logprobs: &Array) -> mlx_ffi::Result<Draws> {
        let own = |row: i32| ops::slice_axis(logprobs, 0, row, row + 1);
        let rows = (0..).zip(samplers.iter_mut());
        let ids = rows.map(|(row, sampler)| sampler.draw_narrow(&own(row)?));
        let ids = ids.collect::<mlx_ffi::Result<Vec<Indices>>>()?;
        let reports = samplers.iter().map(|_| Report::default()).collect();
        let ids = Indices::concatenate(&ids.iter().collect::<Vec<_>>(), 0)?;
        Ok(Draws { ids, reports, check: None })
    }

    /// Everything that will be read.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        let check = self.check.iter().map(|check| &check.values);
        let reports = self.reports.iter().flat_map(Report::arrays);
        std::iter::once(&*self.ids).chain(reports).chain(check)
    }
}

/// The rows of `[b, …]` with these indices.
///
/// # Errors
/// Those of MLX.
pub(crate) fn take_rows(array: &Array, rows: &[usize]) -> mlx_ffi::Result<Array> {
    ops::take(array, &indices_of(rows)?, 0)
}

fn indices_of(rows: &[usize]) -> mlx_ffi::Result<Indices> {
    let indices: Vec<u32> = rows.iter().map(|row| *row as u32).collect();
    Indices::from_u32(&indices, &[rows.len() as i32])
}
