//! Rows that take a decode step in a pass of prompts: products see the positions of both as one
//! matrix.

use mlx_ffi::{Array, Dtype, Indices, Result, ops};

use super::step_offsets::SharedOffsets;
use super::{Attention, DecodeRows, Decoder, Mixer, Pass, Positions, Sharing};
use crate::cache::{Caches, KvCache, State};
use crate::kernels::Columns;

/// The rows of a batch that join a pass of prompts, with the next id of each.
pub(crate) struct JoiningRows {
    /// `[rows, 1]`.
    pub ids: Indices,
    /// The state of their past positions.
    pub caches: Caches,
    /// The offsets of their steps, kept on the device.
    pub places: SharedOffsets,
}

impl JoiningRows {
    /// How many rows.
    pub fn rows(&self) -> usize {
        self.caches.slots()
    }
}

/// The rows of a batch behind a pass of prompts.
pub(crate) struct LeavingRows {
    /// Their hidden states behind the last layer, `[rows, 1, hidden_size]`.
    pub hidden: Array,
    /// With one more position of each row.
    pub caches: Caches,
}

impl Pass {
    /// Takes decode rows along, before the first layer of a pass of prompts.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn add_decode_rows(&mut self, model: &Decoder, joining: JoiningRows) -> Result<()> {
        let JoiningRows { ids, caches, places } = joining;
        let rows = model.begin(&ids, &caches)?;
        self.stream.h = model.kernels.join(&self.stream.h, &rows.stream.h)?;
        self.positions.decode_rows = Some(Box::new(DecodeRows::new(caches, places)));
        Ok(())
    }

    /// Lets the decode rows go behind the last layer. The hidden states that are left are those of
    /// prompts.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn take_decode_rows(&mut self) -> Result<Option<LeavingRows>> {
        let Some(rows) = self.positions.decode_rows.take() else { return Ok(None) };
        let [all, _, _] = self.stream.h.dims()?;
        let of_prompts = all - rows.count();
        let hidden = ops::slice_axis(&self.stream.h, 0, of_prompts, all)?;
        self.stream.h = ops::slice_axis(&self.stream.h, 0, 0, of_prompts)?;
        Ok(Some(LeavingRows { hidden, caches: rows.into_caches() }))
    }
}

impl Attention {
    /// [`mix`](Self::mix) for prompts and for rows that decode, `[1, positions, n_heads *
    /// head_dim]`: each attends to its own keys.
    ///
    /// # Errors
    /// Those of MLX.
    pub(super) fn mix_both(
        &self,
        rows: &mut DecodeRows,
        [q, k, v]: [Columns; 3],
        positions: &mut Positions,
        cache: &mut KvCache,
    ) -> Result<Array> {
        let prompts = positions.offsets().len() as i32;
        let split = |x: &Columns| rows.split(x, prompts);
        let ([q, of_rows_q], [k, of_rows_k], [v, of_rows_v]) = (split(&q)?, split(&k)?, split(&v)?);
        let of_prompts = self.mix([q, k, v], positions, cache)?;
        let (positions, cache) = rows.keys_and_values()?;
        let of_rows = self.mix([of_rows_q, of_rows_k, of_rows_v], positions, cache)?;
        self.kernels.join(&of_prompts, &of_rows)
    }

    /// Returns true when a kernel of a step writes the next keys and values in place.
    fn takes_rows(&self, dtype: Dtype, after: &mut Positions, cache: &mut KvCache) -> Result<bool> {
        let is_alone = self.config.sharing == Sharing::Own;
        Ok(is_alone && self.slot(dtype, 1, after, cache)?.is_some())
    }
}

impl Decoder {
    /// Returns true when rows with these caches can decode in a pass of prompts. All layers must
    /// attend to keys and values of their own, which a kernel of a step writes in place, or have a
    /// recurrent state, or both.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn takes_rows(&self, caches: &mut Caches) -> Result<bool> {
        let has_others =
            self.stage.is_some() || self.streams.is_some() || self.layer_inputs.is_some();
        if has_others || !caches.have_room() {
            return Ok(false);
        }
        let mut positions = Positions::after(caches);
        let dtype = self.embed_tokens.dtype();
        for (layer, state) in self.layers.iter().zip(caches.layers_mut()) {
            let takes = match (&layer.mixer, state) {
                (Mixer::Attention(attention), State::Kv(cache)) => {
                    attention.takes_rows(dtype, &mut positions, cache)?
                }
                (Mixer::SideBySide(both), State::Both(cache, _)) => {
                    both.attention.takes_rows(dtype, &mut positions, cache)?
                }
                (
                    Mixer::Delta(_)
                    | Mixer::Convolution(_)
                    | Mixer::RgLru(_)
                    | Mixer::Mamba1(_)
                    | Mixer::Mamba(_),
                    State::Recurrent(_),
                )
                | (Mixer::Nothing, State::Nothing) => true,
                _ => false,
            };
            if !takes {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
