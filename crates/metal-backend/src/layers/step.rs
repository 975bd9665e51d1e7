//! The step of one new position of each row, which a device repeats as one operation.

use mlx_ffi::{Array, Recorded, Replay, Result};

use super::{Decoder, Pass};
use crate::cache::{Caches, Room};

/// From so many steps alike on, one is kept for repetition; what is short is not worth it.
const WORTH_KEEPING: usize = 8;
/// Steps until the next try, where kernels are still being compiled.
const UNTIL_COMPILED: usize = 64;

/// What is kept of the steps that some rows have made: as long as their buffers have room, one is like
/// the other.
#[derive(Debug)]
pub(crate) struct KeptStep {
    replay: Option<Replay>,
    /// Steps that are computed one operation after the other until it is tried to keep one.
    until_tried: usize,
    /// There is something in them that cannot be kept.
    is_impossible: bool,
}

impl Default for KeptStep {
    fn default() -> KeptStep {
        KeptStep { replay: None, until_tried: WORTH_KEEPING, is_impossible: false }
    }
}

/// What a step reads.
pub(crate) struct StepInputs {
    /// Its own.
    moving: Vec<Array>,
    /// What steps share until the rows or their buffers are others.
    fixed: Vec<Array>,
}

impl StepInputs {
    /// The inputs of the pass, before its first layer, and of the attention of each layer in its room.
    fn of(model: &Decoder, pass: &mut Pass, rooms: Vec<Room>) -> Result<StepInputs> {
        let moving = pass.arrays().map(Array::share).collect::<Result<_>>()?;
        let mut inputs = StepInputs { moving, fixed: Vec::new() };
        let mut known: Vec<(i32, &[i32])> = Vec::new();
        for (layer, room) in model.layers.iter().zip(&rooms) {
            if !known.contains(&(room.at, &room.starts)) {
                known.push((room.at, &room.starts));
                let places = pass.positions.places(room, layer.attention.config.n_heads)?;
                inputs.moving.push(places.at);
                inputs.fixed.push(places.rows);
            }
        }
        inputs.fixed.extend(rooms.into_iter().flat_map(|room| [room.keys, room.values]));
        Ok(inputs)
    }

    fn refs(&self) -> [Vec<&Array>; 2] {
        [&self.moving, &self.fixed].map(|arrays| arrays.iter().collect())
    }
}

impl KeptStep {
    /// The hidden states after the step, where one like it is kept; they are overwritten by the next.
    fn repeat(&mut self, inputs: &StepInputs) -> Result<Option<Array>> {
        let Some(replay) = &mut self.replay else { return Ok(None) };
        let [moving, fixed] = inputs.refs();
        let h = replay.run(&moving, &fixed)?;
        if h.is_none() {
            *self = KeptStep::default();
        }
        Ok(h)
    }

    /// Takes note of a step that leads to `h`, which is not evaluated.
    fn note(&mut self, h: &Array, inputs: &StepInputs) -> Result<()> {
        self.until_tried -= 1;
        if self.until_tried > 0 {
            return Ok(());
        }
        self.until_tried = UNTIL_COMPILED;
        let [moving, fixed] = inputs.refs();
        // Kernels of one row are short, and wait for each other no longer than they have to.
        let overlap = h.dims::<3>()?[0] == 1;
        match Replay::record(h, &moving, &fixed, overlap)? {
            Recorded::Kept(replay) => self.replay = Some(replay),
            Recorded::NotYet => {}
            Recorded::Impossible => self.is_impossible = true,
        }
        Ok(())
    }
}

impl Decoder {
    /// `ids`, `[b, l]`, to hidden states `[b, l, hidden_size]`, which must be sent to the device before
    /// the next call. Appends `l` positions to each layer's cache.
    pub fn hidden(&self, ids: &Array, caches: &mut Caches) -> Result<Array> {
        let mut pass = self.begin(ids, caches)?;
        let Some(inputs) = self.step_inputs(&mut pass, caches)? else {
            self.advance(&mut pass, caches, self.layers.len())?;
            return pass.h().share();
        };
        if let Some(h) = caches.step_mut().repeat(&inputs)? {
            caches.fill_in_place();
            return Ok(h);
        }
        self.advance(&mut pass, caches, self.layers.len())?;
        caches.step_mut().note(pass.h(), &inputs)?;
        pass.h().share()
    }

    /// What a step reads, where it is one that our own kernels make in place.
    fn step_inputs(&self, pass: &mut Pass, caches: &mut Caches) -> Result<Option<StepInputs>> {
        let [_, l, _] = pass.h().dims()?;
        if l != 1 || caches.step_mut().is_impossible {
            return Ok(None);
        }
        if !caches.have_room() {
            // What is kept holds the buffers that are about to be replaced.
            *caches.step_mut() = KeptStep::default();
        }
        let dtype = pass.h().dtype();
        let mut rooms = Vec::with_capacity(self.layers.len());
        for (layer, cache) in self.layers.iter().zip(caches.layers_mut()) {
            match layer.attention.room(dtype, l, &mut pass.positions, cache)? {
                Some(room) => rooms.push(room),
                None => return Ok(None),
            }
        }
        self.prepare(pass)?;
        StepInputs::of(self, pass, rooms).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, Dtype, ops, use_device};

    use super::*;
    use crate::cache::{CacheSpec, Storage};
    use crate::config::Config;
    use crate::files::ModelFiles;
    use crate::layers::Product;
    use crate::models;
    use crate::weights::{Checkpoint, Weights};

    /// Windows, norms on heads, and two ropes.
    const GEMMA: &str = r#"{
        "model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3,
        "vocab_size": 90, "sliding_window": 40, "sliding_window_pattern": 3, "rms_norm_eps": 1e-6,
        "query_pre_attn_scalar": 16, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "max_position_embeddings": 512
    }"#;
    /// Biases, and packed weights.
    const QWEN: &str = r#"{
        "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 90, "rms_norm_eps": 1e-6,
        "rope_theta": 1e4, "max_position_embeddings": 512, "tie_word_embeddings": true,
        "quantization": {"bits": 4, "group_size": 64}
    }"#;

    fn decoder(config: &str) -> Decoder {
        let files = ModelFiles::Random(config.into());
        let config = Config::parse("config.json", config).expect("an object");
        let checkpoint = Checkpoint::open(&files).expect("no files are read");
        let weights = Weights::of(&checkpoint, &config, None, Product::CpuKernels, false);
        models::load(&config, &weights).expect("a model")
    }

    /// Logits of each step of two rows, one of which joins later; whether steps were repeated at last.
    fn run(model: &Decoder, keeps: bool) -> (Vec<Vec<f32>>, bool) {
        let specs: Vec<CacheSpec> = model
            .layers
            .iter()
            .map(|layer| CacheSpec::new(layer.attention.config.window, None))
            .collect();
        let prefilled = |ids: &[u32]| {
            let mut caches = Caches::new(&specs, Storage::Plain, 1, 1000);
            let ids = Array::from_u32(ids, &[1, ids.len() as i32]).expect("ids");
            model.hidden(&ids, &mut caches).expect("states").eval().expect("values");
            caches
        };
        let mut caches = prefilled(&[1, 2, 3, 4, 5]);
        let (mut found, mut was_kept) = (Vec::new(), Vec::new());
        for step in 0..60u32 {
            if step == 20 {
                caches.join(prefilled(&[7, 8])).expect("rows of one kind");
            }
            caches.step_mut().is_impossible |= !keeps;
            let ids: Vec<u32> =
                caches.offsets().iter().map(|at| (*at as u32 * 7 + step) % 90).collect();
            let ids = Array::from_u32(&ids, &[ids.len() as i32, 1]).expect("ids");
            let h = model.hidden(&ids, &mut caches).expect("states");
            let logits = model.logits(&h).expect("logits");
            let logits = ops::astype(&logits, Dtype::F32).expect("f32");
            found.push(logits.to_vec_f32().expect("values"));
            was_kept.push(caches.step_mut().replay.is_some());
        }
        let alone = was_kept[..20].iter().filter(|kept| **kept).count();
        let together = was_kept[20..].iter().filter(|kept| **kept).count();
        (found, alone > 8 && together > 8)
    }

    #[test]
    fn steps_on_a_cpu_are_repeated_as_one_with_the_same_numbers() {
        use_device(Device::Cpu).expect("a CPU");
        for config in [GEMMA, QWEN] {
            let model = decoder(config);
            let (expected, kept) = run(&model, false);
            assert!(!kept, "{config}");
            let (found, kept) = run(&model, true);
            assert!(kept, "{config}");
            for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(found.iter().all(|logit| logit.is_finite()), "step {step} {config}");
                assert!(found == expected, "step {step} {config}");
            }
        }
    }
}
