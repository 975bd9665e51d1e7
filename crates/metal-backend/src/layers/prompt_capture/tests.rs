//! Prompts that are filled up, captured and replayed leave what others leave.

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
