//! Capture and replay of prompts: passes are filled up to a few lengths, so that one is like
//! another.

use mlx_ffi::distributed::Group;
use mlx_ffi::{Array, Error, Recorded, Replay, Result, async_eval};

use super::{Decoder, Pass};
use crate::cache::{Caches, RopeFactors, Slot};

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
    /// The form of the pass of `model` that has room for `columns` positions of each row, where the
    /// host takes longer for one than the device.
    pub fn of(
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

/// The captured passes of prompts. Their buffers are other ones each time, and captures follow
/// them. Where ranks sum on GPUs, all of them capture the same passes and replay them at the same
/// times.
#[derive(Debug, Default)]
pub(crate) struct PromptCaptures {
    /// Those ranks.
    ranks: Option<Group>,
    /// Those that came last are the last ones.
    known: Vec<Known>,
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
        let buffers: Vec<Array> =
            slots.into_iter().flat_map(|Slot { keys, values, .. }| [keys, values]).collect();
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
        PromptCaptures { ranks, known: Vec::new() }
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

    /// The hidden states with which rows end behind the pass that was noted last, where one like it
    /// is captured; the next replay overwrites them.
    ///
    /// # Errors
    /// Those of MLX and of CUDA; a rank that is lost.
    pub fn replay(&mut self, inputs: Option<&PromptInputs>) -> Result<Option<Array>> {
        // Should it fail, it is of no use any more.
        let captured = self.known.last_mut().and_then(|known| known.captured.take());
        // Passes alike may have layers that write elsewhere: the capture is left to others.
        let is_of_others = match (&captured, inputs) {
            (Some(captured), Some(inputs)) => captured.kinds != inputs.kinds,
            _ => false,
        };
        if is_of_others && self.ranks.is_none() {
            if let Some(known) = self.known.last_mut() {
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
    pub fn capture(&mut self, h: &Array, inputs: &PromptInputs) -> Result<()> {
        let Some(known) = self.known.last_mut() else { return Ok(()) };
        if known.captured.is_some() {
            return Ok(());
        }
        known.until_tried = WORTH_CAPTURING;
        let [moving, buffers] = inputs.refs();
        match Replay::record_following(h, &moving, &buffers, self.ranks.as_ref())? {
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
    pub fn refuse(&mut self) {
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

    /// Gives all captures up.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, Dtype, Indices, eval_all, ops, use_device};

    use super::super::capture::tests::{GEMMA, GRANITE, QWEN, decoder, decoder_in};
    use super::super::{StepCapture, Tail};
    use super::*;
    use crate::cache::{StateSpec, Storage};
    use crate::kernels::Kernels;

    /// Prompts of several rows, of which `parts` are computed behind `before` ids of each.
    struct Prompts<'a> {
        model: &'a Decoder,
        before: i32,
        parts: &'a [i32],
    }

    impl Prompts<'_> {
        fn ids(&self, row: i32, range: std::ops::Range<i32>) -> impl Iterator<Item = u32> {
            range.map(move |at| ((at * 7 + row * 13) % 90) as u32)
        }

        /// The logits behind each row's last id and, of one row, of the step after that. Passes are
        /// `filled` up to so many positions, and captured; whether this one was replayed.
        fn logits(&self, mut filled: Option<(i32, &mut PromptCaptures)>) -> (Vec<f32>, bool) {
            let Prompts { model, before, parts } = *self;
            let specs: Vec<StateSpec> =
                model.layers.iter().map(|layer| layer.mixer.state(None)).collect();
            let rows = parts.len() as i32;
            let mut caches = Caches::new(&specs, Storage::Plain, parts.len(), 1000);
            if before > 0 {
                let ids: Vec<u32> = (0..rows).flat_map(|row| self.ids(row, 0..before)).collect();
                let ids = Indices::from_u32(&ids, &[rows, before]).expect("ids");
                let h = model.hidden(&ids, &mut caches, &mut StepCapture::default());
                h.and_then(|h| h.eval()).expect("states");
            }
            let columns = parts.iter().copied().max().expect("a row");
            let all = filled.as_ref().map_or(columns, |(length, _)| *length);
            let of_row = |(row, part): (i32, &i32)| {
                self.ids(row, before..before + part).chain((*part..all).map(|_| 0))
            };
            let ids: Vec<u32> = (0..).zip(parts).flat_map(of_row).collect();
            let ids = Indices::from_u32(&ids, &[rows, all]).expect("ids");
            let ends: Vec<u32> =
                (0..).zip(parts).map(|(row, part)| (row * all + part - 1) as u32).collect();
            let tail = Tail::new(&ends).expect("indices");
            let mut pass = model.begin(&ids, &caches).expect("a pass").with_tail(Some(tail));
            pass.set_lengths(parts.to_vec());
            let mut inputs = None;
            let mut replayed = None;
            if let Some((_, captures)) = &mut filled {
                let (rows, factors) = (parts.len(), RopeFactors::default());
                let form = PassForm { rows, columns: all, ends: ends.len(), factors };
                if captures.note(form).expect("no ranks") {
                    inputs = PromptInputs::of(model, &mut pass, &mut caches).expect("inputs");
                    replayed = captures.replay(inputs.as_ref()).expect("states");
                }
            }
            let was_replayed = replayed.is_some();
            if let Some(h) = replayed {
                pass.end_with(h);
                caches.fill_in_place(columns);
            } else {
                model.advance(&mut pass, &mut caches, model.layers.len()).expect("states");
                if let (Some((_, captures)), Some(inputs)) = (&mut filled, &inputs) {
                    captures.capture(pass.h(), inputs).expect("a capture");
                }
                caches.truncate(&vec![all - columns; parts.len()]).expect("no recurrent states");
            }
            let logits = model.logits(pass.h()).and_then(|of| ops::astype(&of, Dtype::F32));
            let logits = logits.expect("logits");
            eval_all(caches.arrays().chain([&logits])).expect("values");
            if let Some((_, captures)) = filled {
                captures.wait().expect("nothing fails");
            }
            let mut found = logits.to_vec_f32().expect("values");
            if let [_] = parts {
                let id = Indices::from_u32(&[5], &[1, 1]).expect("an id");
                let h = model.hidden(&id, &mut caches, &mut StepCapture::default());
                let step = h.and_then(|h| model.logits(&h)).expect("logits");
                let step = ops::astype(&step, Dtype::F32).and_then(|step| step.to_vec_f32());
                found.extend(step.expect("values"));
            }
            (found, was_replayed)
        }
    }

    #[track_caller]
    fn assert_near(found: &[f32], expected: &[f32], bound: f32, what: &str) {
        let largest = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert_eq!(found.len(), expected.len(), "{what}");
        assert!(off <= bound * largest, "{what}: off by {off} of {largest}");
    }

    #[test]
    fn what_fills_a_pass_up_leaves_no_trace() {
        use_device(Device::Cpu).expect("a CPU");
        for config in [GEMMA, QWEN] {
            // In bf16, processors that sum products of other numbers of rows in another order round
            // them otherwise.
            let model = decoder_in(config, Kernels::CPU, Some(Dtype::F32));
            for (before, parts) in [(0, &[5][..]), (0, &[16]), (45, &[11]), (3, &[9, 14, 2])] {
                let prompts = Prompts { model: &model, before, parts };
                let (expected, _) = prompts.logits(None);
                let mut captures = PromptCaptures::default();
                for _ in 0..4 {
                    let (found, replayed) = prompts.logits(Some((16, &mut captures)));
                    assert!(!replayed, "a CPU's prompts are not captured");
                    assert_near(&found, &expected, 1e-4, &format!("{before} {parts:?} {config}"));
                }
            }
        }
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
    fn prompts_on_cuda_are_captured_and_near_those_that_are_not() {
        use_device(Device::Gpu).expect("a GPU");
        for config in [GEMMA, QWEN, GRANITE] {
            let config = config.replacen('{', r#"{"torch_dtype": "bfloat16", "#, 1);
            let model = decoder(&config, Kernels::Cuda);
            // Packed matrices of so tiny sizes have kernels of ours for up to 64 rows.
            for (rows, filled) in [(1, 32), (3, 16)] {
                let mut captures = PromptCaptures::default();
                let mut replays = 0;
                // A minute for the compilation of kernels.
                for turn in 0..6000 {
                    let length = filled / 2 + 1 + turn % (filled / 2);
                    let before = [0, 0, 40, 250][turn as usize / 2 % 4];
                    let parts: Vec<i32> = (0..rows).map(|row| length - row * 2).collect();
                    let prompts = Prompts { model: &model, before, parts: &parts };
                    let (found, replayed) = prompts.logits(Some((filled, &mut captures)));
                    let (expected, _) = prompts.logits(None);
                    let what = format!("turn {turn}, {before} ids before {parts:?}, {config}");
                    assert_near(&found, &expected, 0.05, &what);
                    replays += usize::from(replayed);
                    if replays == 40 {
                        break;
                    }
                }
                assert_eq!(replays, 40, "{rows} rows, {config}");
            }
        }
    }

    /// Takes note of a pass of one row of so many positions.
    fn note(captures: &mut PromptCaptures, columns: i32) -> bool {
        let factors = RopeFactors::default();
        captures.note(PassForm { rows: 1, columns, ends: 1, factors }).expect("no ranks")
    }

    #[test]
    fn the_third_pass_of_a_form_is_worth_capturing_and_others_are_forgotten() {
        let mut captures = PromptCaptures::default();
        let noted: Vec<bool> = (0..4).map(|_| note(&mut captures, 16)).collect();
        assert_eq!(noted, [false, false, true, true]);
        assert!(!note(&mut captures, 32) && note(&mut captures, 16));
        for columns in 0..MOST_KNOWN as i32 - 1 {
            note(&mut captures, 100 + columns);
        }
        assert!(note(&mut captures, 16), "it came later than 32");
        assert!(!note(&mut captures, 32), "it was forgotten");
        assert_eq!(captures.known.len(), MOST_KNOWN);
        captures.refuse();
        let noted = (0..UNTIL_NEXT).filter(|_| note(&mut captures, 32)).count();
        assert_eq!(noted, 1, "the last one");
        captures.forget();
        assert!(!captures.keeps_any() && !note(&mut captures, 16));
    }
}
