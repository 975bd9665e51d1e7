//! Capture and replay of passes of several positions: those of prompts are filled up to a few
//! lengths, so that one is like another.

use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Error, Recorded, Replay, Result, async_eval, cuda};

use super::{Decoder, Pass};
use crate::cache::{Caches, RopeFactors};

/// Positions of each row to which passes are filled up.
const LENGTHS: [i32; 14] = [16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048];
/// The pass of so many alike at which one is captured.
const WORTH_CAPTURING: usize = 3;
/// Passes alike until the next try, where one has none of the form that can be captured.
const UNTIL_NEXT: usize = 64;
/// The most captures that are kept: one of each length, and some of several rows. Each holds what a
/// pass makes between its inputs and its end: `/health` told 0.64 GB more with 24 of them than with
/// eight (Qwen3-0.6B).
const MOST_CAPTURED: usize = 16;
/// The most kinds of passes of which it is known how often they came.
const MOST_KNOWN: usize = 32;
/// The most products of a layer's values and a pass's positions for which the host takes longer
/// than the device: an H100 computes so many in about the time in which the host sends a layer.
const MOST_PRODUCTS: u64 = 25_000_000_000;
/// Times of that for each of several ranks, which share the products and ask each other before they
/// send anything.
const OF_RANK: u64 = 5;

/// The key of a captured prefill: two passes with equal keys replay the same graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassForm {
    pub rows: usize,
    /// Positions of each row, those included that fill rows up.
    pub columns: i32,
    /// Rows that end.
    pub ends: usize,
    /// Which angles rotations take.
    factors: RopeFactors,
}

impl PassForm {
    /// The form of passes of just so many rows, positions of each, and ends.
    pub fn exact([rows, columns, ends]: [usize; 3], factors: RopeFactors) -> PassForm {
        PassForm { rows, columns: columns as i32, ends, factors }
    }

    /// The form of the pass of `model` that has room for `columns` positions of each row, where the
    /// host takes longer for one than the device.
    pub fn filled(
        model: &Decoder,
        [rows, columns, ends]: [usize; 3],
        factors: RopeFactors,
        ranks: Option<&Group>,
    ) -> Option<PassForm> {
        let columns = *LENGTHS.iter().find(|length| **length as usize >= columns)?;
        let products = model.layer_values() * rows as u64 * columns as u64;
        let times = ranks.map_or(1, |ranks| OF_RANK * ranks.size() as u64);
        (products <= times * MOST_PRODUCTS).then_some(PassForm { rows, columns, ends, factors })
    }
}

/// The captured passes of several positions. The buffers of prompts are other ones each time, and
/// captures follow them. Where ranks sum on GPUs, all of them capture the same passes and replay
/// them at the same times.
#[derive(Debug, Default)]
pub(crate) struct PromptCaptures {
    /// Those ranks.
    ranks: Option<Group>,
    /// Those that came last are the last ones.
    known: Vec<Known>,
    /// The buffers of a single row stay where they are from one pass to the next.
    stays: bool,
}

/// The capture of passes of one form, or their count until there is one.
#[derive(Debug)]
struct Known {
    form: PassForm,
    /// Passes until one is captured.
    until_tried: usize,
    captured: Option<Captured>,
    /// There is something in them that cannot be captured.
    is_impossible: bool,
}

#[derive(Debug)]
struct Captured {
    replay: Replay,
    kinds: Vec<usize>,
}

/// The inputs of a pass.
pub(crate) struct PromptInputs {
    /// Hidden states, indices of the ends, and the offsets of each kind of layer.
    moving: Vec<Array>,
    /// Keys and values of each layer.
    buffers: Vec<Array>,
    /// The kind of each layer.
    kinds: Vec<usize>,
}

impl PromptInputs {
    /// The inputs of `pass`, before its first layer, where our own kernels make it in place.
    pub fn of(
        model: &Decoder,
        pass: &mut Pass,
        caches: &mut Caches,
    ) -> Result<Option<PromptInputs>> {
        let ([_, l, _], dtype) = (pass.h().dims()?, pass.h().dtype());
        let Some(tail) = pass.tail.as_ref().filter(|_| pass.has_one_input()) else {
            return Ok(None);
        };
        let mut moving = vec![pass.h().share()?, tail.indices().share()?];
        model.make_buffers(pass, caches)?;
        let mut slots = Vec::with_capacity(model.layers.len());
        for (layer, state) in model.layers.iter().zip(caches.layers_mut()) {
            match layer.mixer.chunk_slot(dtype, l, &mut pass.positions, state)? {
                Some(slot) => slots.push(slot),
                None => return Ok(None),
            }
        }
        let mut known: Vec<(i32, &[i32])> = Vec::new();
        let mut kinds = Vec::with_capacity(slots.len());
        for slot in &slots {
            let kind = (slot.at, &slot.starts[..]);
            kinds.push(match known.iter().position(|of| *of == kind) {
                Some(at) => at,
                None => {
                    let offsets = pass.positions.chunk_offsets(slot)?;
                    moving.extend([offsets.at, offsets.rows]);
                    known.push(kind);
                    known.len() - 1
                }
            });
        }
        // Kinds that write at one place share its index, which is moved to one place alone.
        let is_apart = |at: usize| known[..at].iter().all(|of| of.0 != known[at].0);
        let are_apart = (1..known.len()).all(is_apart);
        let buffers: Vec<Array> = slots.into_iter().flat_map(|slot| slot.parts).collect();
        async_eval(&buffers)?;
        Ok(are_apart.then_some(PromptInputs { moving, buffers, kinds }))
    }

    fn refs(&self) -> [Vec<&Array>; 2] {
        [&self.moving, &self.buffers].map(|arrays| arrays.iter().collect())
    }
}

impl PromptCaptures {
    /// Those of the passes that all of `ranks` compute.
    pub fn among(ranks: Option<Group>) -> PromptCaptures {
        PromptCaptures { ranks, ..PromptCaptures::default() }
    }

    /// Those of passes of rows that decode: a single row's buffers stay until they are full.
    pub fn of_decoding() -> PromptCaptures {
        PromptCaptures { stays: true, ..PromptCaptures::default() }
    }

    /// Returns true when `own` is true in all ranks. Captures are given up when memory is short,
    /// which happens in single ranks.
    fn all(&self, own: bool) -> Result<bool> {
        Ok(match &self.ranks {
            None => own,
            Some(ranks) => ranks.most(u8::from(!own))? == 0,
        })
    }

    /// Takes note of a pass that can have this form. True where it is captured, or is to be: then
    /// it is worth it to fill it up.
    ///
    /// # Errors
    /// A rank that is lost.
    pub fn note(&mut self, form: PassForm) -> Result<bool> {
        let known = match self.known.iter().position(|known| known.form == form) {
            Some(at) => self.known.remove(at),
            None => {
                Known { form, until_tried: WORTH_CAPTURING, captured: None, is_impossible: false }
            }
        };
        if self.known.len() == MOST_KNOWN {
            self.known.remove(0);
        }
        self.known.push(known);
        let last = self.known.len() - 1;
        let known = &mut self.known[last];
        if known.captured.is_none() {
            known.until_tried = known.until_tried.saturating_sub(1);
        }
        let is_worth_it =
            !known.is_impossible && (known.captured.is_some() || known.until_tried == 0);
        self.all(is_worth_it)
    }

    /// Returns true when passes of this form have something that cannot be captured.
    pub fn is_impossible(&self, form: PassForm) -> bool {
        self.known.iter().any(|known| known.form == form && known.is_impossible)
    }

    /// Takes the pass that was noted last through all layers, in place in `caches`. `columns` of
    /// its positions are kept where it is replayed, and all otherwise. Returns whether it was.
    ///
    /// # Errors
    /// Those of MLX and of CUDA; a rank that is lost.
    pub fn advance(
        &mut self,
        model: &Decoder,
        pass: &mut Pass,
        caches: &mut Caches,
        columns: usize,
    ) -> Result<bool> {
        let inputs = PromptInputs::of(model, pass, caches)?;
        if let Some(h) = self.replay(inputs.as_ref())? {
            pass.end_with(h);
            caches.fill_in_place(columns as i32);
            return Ok(true);
        }
        model.advance(pass, caches, model.layers.len())?;
        match &inputs {
            Some(inputs) => self.capture(pass.h(), inputs)?,
            None => self.refuse(),
        }
        Ok(false)
    }

    /// The hidden states with which rows end behind the pass that was noted last, where one like it
    /// is captured; the next replay overwrites them.
    ///
    /// # Errors
    /// Those of MLX and of CUDA; a rank that is lost.
    fn replay(&mut self, inputs: Option<&PromptInputs>) -> Result<Option<Array>> {
        // Should it fail, it is of no use any more.
        let captured = self.known.last_mut().and_then(|known| known.captured.take());
        // Passes alike may have layers that write elsewhere: the capture is left to others.
        let is_of_others = match (&captured, inputs) {
            (Some(captured), Some(inputs)) => captured.kinds != inputs.kinds,
            _ => false,
        };
        if is_of_others && self.ranks.is_none() {
            // Those of a row that decodes go on writing elsewhere.
            if let Some(known) = self.known.last_mut().filter(|_| !self.stays) {
                known.captured = captured;
            }
            return Ok(None);
        }
        let found = captured.zip(inputs).filter(|(captured, of)| captured.kinds == of.kinds);
        let refs = inputs.map(PromptInputs::refs);
        let fits = match (&found, &refs, &self.ranks) {
            (Some((captured, _)), Some([moving, buffers]), Some(_)) => {
                captured.replay.fits(moving, buffers)?
            }
            _ => found.is_some(),
        };
        let all_fit = self.all(fits)?;
        let (Some((mut captured, _)), Some([moving, buffers])) = (found, refs) else {
            return Ok(None);
        };
        let h = if all_fit { captured.replay.run(&moving, &buffers)? } else { None };
        match (&h, &self.ranks, self.known.last_mut()) {
            (Some(_), _, Some(known)) => known.captured = Some(captured),
            (None, Some(_), _) if all_fit => {
                return Err(Error::new("a prompt that all ranks repeat has changed in this one"));
            }
            _ => {}
        }
        Ok(h)
    }

    /// Captures the pass that was noted last, which leads to `h`; nothing of it is evaluated yet.
    ///
    /// # Errors
    /// Those of MLX and of CUDA; a rank that is lost.
    fn capture(&mut self, h: &Array, inputs: &PromptInputs) -> Result<()> {
        let Some(known) = self.known.last_mut() else { return Ok(()) };
        if known.captured.is_some() {
            return Ok(());
        }
        known.until_tried = WORTH_CAPTURING;
        let [moving, buffers] = inputs.refs();
        let ranks = self.ranks.as_ref();
        // Kernels of few rows that copy weights ahead need not wait for each other. They cannot be
        // changed later.
        let overlap = known.form.rows == 1 && known.form.columns <= cuda::MOST_SEVERAL_ROWS;
        let recorded = match self.stays && overlap {
            true => Replay::record(h, &moving, &buffers, true, ranks)?,
            false => Replay::record_following(h, &moving, &buffers, ranks)?,
        };
        match recorded {
            Recorded::Kept(replay) => {
                let kinds = inputs.kinds.clone();
                known.captured = Some(Captured { replay, kinds });
                self.forget_oldest();
            }
            Recorded::NotYet => {}
            Recorded::Impossible => known.is_impossible = true,
        }
        Ok(())
    }

    /// Takes note that the pass that was noted last cannot be captured as it is.
    fn refuse(&mut self) {
        if let Some(known) = self.known.last_mut() {
            (known.captured, known.until_tried) = (None, UNTIL_NEXT);
        }
    }

    /// Keeps no more than so many captures.
    fn forget_oldest(&mut self) {
        let captured = self.known.iter_mut().rev().filter(|known| known.captured.is_some());
        for known in captured.skip(MOST_CAPTURED) {
            known.captured = None;
        }
    }

    /// Waits for replays in flight.
    ///
    /// # Errors
    /// Those of CUDA.
    pub fn wait(&mut self) -> Result<()> {
        self.known
            .iter_mut()
            .filter_map(|known| known.captured.as_mut())
            .try_for_each(|captured| captured.replay.wait())
    }

    /// Returns true when anything is captured.
    pub fn keeps_any(&self) -> bool {
        self.known.iter().any(|known| known.captured.is_some())
    }

    /// Gives up captures that hold the buffers of a row, which are about to be replaced or to be
    /// free. The next pass is captured again.
    pub fn forget_staying(&mut self) {
        for known in self.known.iter_mut().filter(|known| known.form.rows == 1) {
            if self.stays && known.captured.take().is_some() {
                known.until_tried = 1;
            }
        }
    }

    /// Gives all captures up.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests;
