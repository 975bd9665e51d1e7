//! The stack of transformer blocks that every architecture here is an instance of.

use std::ops::Range;

use mlx_ffi::{Array, Dtype, Indices, Result, eval_all, ops};

use super::block::Stream;
use super::{
    Block, Drafter, Ears, Embedding, Followed, Fusion, LayerInputs, Linear, Mixer, Pace, Pass,
    Positions, RmsNorm, Seen, Sharing, SplitLogits, Stage, StepCapture, Streams, Texts, Tower,
    Trunk, Workspace,
};
use crate::cache::{Caches, RopeFactors, State};
use crate::kernels::Kernels;

/// From hidden states to logits.
#[derive(Debug)]
pub(crate) enum Head {
    /// The token embeddings serve as the output layer.
    Tied,
    /// An output layer of its own.
    Own(Linear),
}

/// A decoder-only transformer.
#[derive(Debug)]
pub(crate) struct Decoder {
    pub embed_tokens: Embedding,
    /// The factor of embeddings.
    pub embed_scale: Option<f64>,
    /// On embeddings, before the first layer.
    pub embed_norm: Option<RmsNorm>,
    /// One more input for each layer.
    pub layer_inputs: Option<LayerInputs>,
    /// Makes several residual streams of one, and one of several.
    pub streams: Option<Streams>,
    pub layers: Vec<Block>,
    pub norm: RmsNorm,
    pub lm_head: Head,
    /// Added to the logits of embeddings that are the output layer, for this rank's ids.
    pub tied_bias: Option<Array>,
    /// Set when several ranks compute the logits of some ids each.
    pub split_logits: Option<SplitLogits>,
    /// The layers of this rank, if ranks have some each. An empty placeholder stands for each of
    /// the others.
    pub stage: Option<Stage>,
    /// The factor of logits, before they are squashed.
    pub logit_scale: Option<f32>,
    /// Logits are squashed to ± this by tanh.
    pub logit_softcap: Option<f32>,
    pub vocab_size: i32,
    pub hidden_size: i32,
    /// Values between the projections of a feed-forward network, of all experts that a position
    /// passes.
    pub intermediate_size: i32,
    /// The most positions that the model was made for, where its config says.
    pub max_position_embeddings: Option<i32>,
    /// The longest sequence whose positions are encoded as in the model's first training
    /// (LongRoPE); all positions of a longer one are encoded in another way.
    pub original_context: Option<i32>,
    /// The encoder of pictures, if the model sees them.
    pub tower: Option<Tower>,
    /// The encoder of sounds, if the model hears them.
    pub ears: Option<Ears>,
    /// Whoever drafts the ids that it verifies, of whose states the caches hold as many positions.
    pub drafter: Option<Box<dyn Drafter>>,
    /// Whose kernels compute it.
    pub kernels: Kernels,
}

impl Decoder {
    /// Which factors stretch the positions of a sequence of `length` ids. Where they change as a
    /// sequence grows, its caches are of no use any more.
    pub fn rope_factors(&self, length: usize) -> RopeFactors {
        match self.original_context {
            Some(original) if length > original as usize => RopeFactors::Long,
            _ => RopeFactors::Short,
        }
    }

    /// `ids`, `[b, l]`, to what goes into the first layer, `[b, l, hidden_size]`.
    fn embed(&self, ids: &Indices) -> Result<Array> {
        if self.stage.as_ref().is_some_and(|stage| !stage.is_first()) {
            // The states come from another rank.
            let shape = [ids.shape(), &[self.hidden_size]].concat();
            return ops::zeros(&shape, self.embed_tokens.dtype());
        }
        let h = match self.embed_scale {
            Some(scale) => self.embed_tokens.scaled(ids, scale)?,
            None => self.embed_tokens.forward(ids)?,
        };
        self.embed_norm.as_ref().map_or_else(|| h.share(), |norm| norm.forward(&h))
    }

    /// The pass of `ids`, `[b, l]`, before its first layer. Rows whose input is no ids begin with
    /// [`Pass::new`].
    pub fn begin(&self, ids: &Indices, caches: &Caches) -> Result<Pass> {
        self.begin_at(ids, Positions::after(caches))
    }

    /// The pass of one row's `ids`, `[1, l]`, with what it sees beside them, before its first
    /// layer. In the places of pictures, `ids` are what stands for one where only ids count.
    pub fn begin_seeing(&self, ids: &Indices, caches: &Caches, seen: Seen) -> Result<Pass> {
        let h = self.embed(ids)?;
        let h = seen.in_place(&h)?;
        let inputs =
            self.layer_inputs.as_ref().map(|inputs| inputs.forward(ids, &h)).transpose()?;
        let behind = seen.behind_layers(&h)?;
        let h = match &self.streams {
            None => h,
            Some(streams) => streams.begin(&h)?,
        };
        let positions = Positions::after(caches).seeing(seen);
        let pass = Pass::new(h, positions).with_layer_inputs(inputs).with_behind_layers(behind);
        Ok(pass.with_ids(self.ids_for_drafts(ids)?))
    }

    /// `ids`, where the drafter takes them in.
    fn ids_for_drafts(&self, ids: &Indices) -> Result<Option<Indices>> {
        self.drafter.as_ref().map(|_| ids.share()).transpose()
    }

    pub(super) fn begin_at(&self, ids: &Indices, positions: Positions) -> Result<Pass> {
        let h = self.embed(ids)?;
        let inputs = self.layer_inputs.as_ref().map(|inputs| inputs.forward(ids, &h));
        let h = match &self.streams {
            None => h,
            Some(streams) => streams.begin(&h)?,
        };
        let pass = Pass::new(h, positions).with_layer_inputs(inputs.transpose()?);
        Ok(pass.with_ids(self.ids_for_drafts(ids)?))
    }

    /// Makes the buffers that layers lack for a pass, all at once.
    pub fn make_buffers(&self, pass: &mut Pass, caches: &mut Caches) -> Result<()> {
        let (l, dtype) = (pass.columns()?, pass.h().dtype());
        let own = self.own_layers();
        let sizes = self.layers.iter().enumerate().map(|(index, layer)| match &layer.mixer {
            Mixer::Attention(attention) if own.contains(&index) => {
                attention.chunk_sizes(dtype, l, &mut pass.positions)
            }
            _ => None,
        });
        caches.make_buffers(dtype, l, sizes)
    }

    /// Values of the matrices of a layer, about, of all ranks together.
    pub fn layer_values(&self) -> u64 {
        let [hidden, inner] = [self.hidden_size, self.intermediate_size].map(|size| size as u64);
        hidden * (3 * inner + 3 * hidden)
    }

    /// The layers that this rank computes.
    fn own_layers(&self) -> Range<usize> {
        self.stage.as_ref().map_or(0..self.layers.len(), Stage::layers)
    }

    /// Takes a pass through its next `count` layers. True once it is through all of them; the
    /// caches then count its positions.
    pub fn advance(&self, pass: &mut Pass, caches: &mut Caches, count: usize) -> Result<bool> {
        let end = self.layers.len().min(pass.layer + count);
        let own = self.own_layers();
        let l = pass.columns()?;
        for index in pass.layer..end {
            if let Some(rows) = &mut pass.positions.decode_rows {
                rows.enter(index);
            }
            let state = &mut caches.layers_mut()[index];
            if own.contains(&index) {
                self.layer(index, pass, state)?;
            } else {
                self.pass_by(index, pass, state)?;
            }
            // Others do it behind the same layer, so that all exchange in the same order.
            if index + 1 == own.end {
                self.hand_on(pass)?;
            } else if index + 1 == own.start {
                self.take_over(pass)?;
            }
        }
        pass.layer = end;
        let through = end == self.layers.len();
        if through {
            if let Some(streams) = &self.streams {
                pass.stream.h = streams.end(&pass.stream.h)?;
            }
            if let Some(drafter) = &self.drafter {
                let follows = drafter.is_cheap() || caches.is_followed();
                match pass.ids.take().filter(|_| follows) {
                    Some(ids) => {
                        let (h, lengths) = (&pass.stream.h, pass.positions.lengths());
                        drafter.follow(self, &Followed { ids: &ids, h, lengths }, caches)?;
                    }
                    None => drafter.pass_by(self, l, caches)?,
                }
            }
            if let Some(tail) = pass.tail.take() {
                pass.stream = pass.stream.at(&tail)?;
            }
            caches.advance(l);
            if let Some(rows) = &mut pass.positions.decode_rows {
                rows.end();
            }
        }
        Ok(through)
    }

    /// Computes a layer.
    pub(super) fn layer(&self, index: usize, pass: &mut Pass, state: &mut State) -> Result<()> {
        let behind = pass.behind_layers.get(index);
        // What is added first changes what the next norm sees.
        let next = self.layers[..self.own_layers().end].get(index + 1);
        let next = next.filter(|_| behind.is_none()).and_then(Block::first_norm);
        let inputs = self.layer_inputs.as_ref().zip(pass.layer_inputs.as_ref());
        let input = inputs.map(|(inputs, all)| inputs.of_layer(all, index)).transpose()?;
        let (layer, positions) = (&self.layers[index], &mut pass.positions);
        let is_last = index + 1 == self.layers.len();
        let needs_all = self.drafter.as_ref().is_some_and(|drafter| drafter.takes_states());
        if is_last
            && !needs_all
            && behind.is_none()
            && layer.can_end_at_some()
            && let Some(tail) = pass.tail.take()
        {
            pass.stream = layer.forward_to(&tail, &pass.stream, positions, state)?;
            return Ok(());
        }
        pass.stream = layer.forward(&pass.stream, input.as_ref(), next, positions, state)?;
        if let Some(behind) = behind {
            pass.stream.h = ops::add(&pass.stream.h, behind)?;
        }
        Ok(())
    }

    /// Takes note of a layer that another rank computes.
    fn pass_by(&self, index: usize, pass: &Pass, state: &mut State) -> Result<()> {
        if matches!(state, State::Nothing) {
            return Ok(());
        }
        let [b, l, _] = pass.stream.h.dims()?;
        let spec = self.layers[index].mixer.state(None).narrow();
        state.pass_by(spec, [b, l], self.embed_tokens.dtype())
    }

    /// The hidden states of the rank before this one, where they are not there yet.
    fn take_over(&self, pass: &mut Pass) -> Result<()> {
        let Some(stage) = self.stage.as_ref().filter(|_| pass.exchanged.is_none()) else {
            return Ok(());
        };
        let h = stage.receive(pass.stream.h.shape(), self.embed_tokens.dtype())?;
        pass.exchanged = Some(h.share()?);
        pass.stream = Stream { h, normed: None };
        Ok(())
    }

    /// Sends the hidden states to the rank behind this one, where there is one.
    fn hand_on(&self, pass: &mut Pass) -> Result<()> {
        let Some(stage) = self.stage.as_ref().filter(|stage| !stage.is_last()) else {
            return Ok(());
        };
        let sent = stage.send(&pass.stream.h, self.embed_tokens.dtype())?;
        pass.own = Some(pass.stream.h.share()?);
        pass.exchanged = Some(sent.share()?);
        pass.stream = Stream { h: sent, normed: None };
        Ok(())
    }

    /// `ids`, `[b, l]`, to hidden states `[b, l, hidden_size]`, which must be sent to the device
    /// before the next call. Appends `l` positions to each layer's cache. A step of one position is
    /// captured and replayed where the device allows it.
    pub fn hidden(
        &self,
        ids: &Indices,
        caches: &mut Caches,
        capture: &mut StepCapture,
    ) -> Result<Array> {
        let mut pass = self.begin_at(ids, Positions::of_step(caches, capture.places()))?;
        let own = self.own_layers();
        if own.start > 0 {
            self.take_over(&mut pass)?;
        }
        let inputs = match &self.drafter {
            None => capture.inputs(&self.layers, own, &mut pass, caches)?,
            // A step that is replayed would leave the drafter's states behind.
            Some(_) => None,
        };
        let Some(inputs) = inputs else {
            self.advance(&mut pass, caches, self.layers.len())?;
            return pass.h().share();
        };
        if let Some(h) = capture.replay(&inputs)? {
            caches.fill_in_place(1);
            pass.stream = Stream { h, normed: None };
            self.hand_on(&mut pass)?;
            return pass.h().share();
        }
        self.advance(&mut pass, caches, self.layers.len())?;
        capture.note(pass.own.as_ref().unwrap_or(pass.h()), &inputs)?;
        pass.h().share()
    }

    /// `ids`, `[1, l]`, of whole texts to their states behind the last norm, `[1, l, hidden_size]`.
    /// Each layer is waited for, so that few are held: on a CPU before the next one, on a GPU while
    /// the next one is prepared.
    pub fn encode(&self, ids: &Indices, texts: Texts) -> Result<Array> {
        let mut pass = self.begin_at(ids, Positions::of_texts(texts))?;
        let mut pace = Pace::default();
        for (index, layer) in self.layers.iter().enumerate() {
            let next = self.layers.get(index + 1).and_then(Block::first_norm);
            let positions = &mut pass.positions;
            let mut state = State::Nothing;
            pass.stream = layer.forward(&pass.stream, None, next, positions, &mut state)?;
            match self.kernels {
                Kernels::Cpu(_) => eval_all(pass.arrays())?,
                _ => pace.after(&pass.arrays().collect::<Vec<_>>())?,
            }
        }
        self.norm.forward(pass.h())
    }

    /// Why ranks cannot have some of its layers each; `None`: they can.
    pub fn refuses_stages(&self) -> Option<&'static str> {
        if self.layer_inputs.is_some() || self.streams.is_some() {
            return Some("its layers have inputs or streams of their own");
        }
        let shares = |block: &Block| {
            let attention = block.mixer.attention();
            attention.is_some_and(|attention| attention.config.sharing != Sharing::Own)
        };
        self.layers.iter().any(shares).then_some("layers use the keys and values of others")
    }

    /// Why whole texts cannot be encoded by it; `None`: they can.
    pub fn refuses_texts(&self) -> Option<&'static str> {
        let is_plain = |block: &Block| match &block.mixer {
            Mixer::Attention(attention) => {
                let is_alone = attention.config.sharing == Sharing::Own;
                is_alone && attention.position_scale.is_none() && attention.has_halves()
            }
            _ => false,
        };
        if self.layer_inputs.is_some() || self.streams.is_some() {
            return Some("its layers have inputs or streams of their own");
        }
        let all = self.layers.iter().all(is_plain);
        (!all).then_some("it has layers other than attention to the same text")
    }

    /// Hidden states `[b, l, hidden_size]` to logits `[b, l, vocab_size]`.
    pub fn logits(&self, hidden: &Array) -> Result<Array> {
        self.of_all(self.own_logits(hidden)?)
    }

    /// Hidden states `[b, l, hidden_size]` to the logits that this rank computes: `[b, l,
    /// vocab_size]`, or those of its ids.
    pub fn own_logits(&self, hidden: &Array) -> Result<Array> {
        self.projected(hidden, Fusion { norm: Some(&self.norm), ..Fusion::default() })
    }

    /// The logits of all ids, of this rank's `own`.
    pub fn of_all(&self, own: Array) -> Result<Array> {
        match &self.split_logits {
            None => Ok(own),
            Some(split) => split.of_all(&own),
        }
    }

    /// States behind the last norm, `[b, l, hidden_size]`, to logits `[b, l, vocab_size]`.
    pub fn logits_of_normed(&self, states: &Array) -> Result<Array> {
        self.of_all(self.projected(states, Fusion::default())?)
    }

    fn projected(&self, hidden: &Array, fusion: Fusion<'_>) -> Result<Array> {
        if self.stage.as_ref().is_some_and(|stage| !stage.is_last()) {
            // Something of that shape, once the states are on their way.
            let mut shape = hidden.shape().to_vec();
            shape.pop();
            shape.push(self.vocab_size);
            return ops::after(&ops::zeros(&shape, Dtype::F32)?, hidden);
        }
        let logits = match &self.lm_head {
            Head::Tied => self.embed_tokens.project(hidden, fusion)?,
            Head::Own(linear) => linear.forward_fused(hidden, fusion)?,
        };
        let logits = match &self.tied_bias {
            None => logits,
            Some(bias) => ops::add(&logits, &ops::astype(bias, logits.dtype())?)?,
        };
        let logits = match self.logit_scale {
            None => logits,
            Some(scale) => ops::multiply(&logits, &Array::scalar(scale, logits.dtype())?)?,
        };
        let Some(softcap) = self.logit_softcap else { return Ok(logits) };
        let softcap = Array::scalar(softcap, logits.dtype())?;
        ops::multiply(&ops::tanh(&ops::divide(&logits, &softcap)?)?, &softcap)
    }

    /// Values of one position between layers: the residual stream and the layers' own inputs.
    /// Several streams are computed in F32, and count twice.
    pub fn stream_values(&self) -> u64 {
        let size = self.layer_inputs.as_ref().map_or(0, |inputs| inputs.size as u64);
        let streams = self.streams.as_ref().map_or(1, |streams| 2 * streams.count());
        streams * self.hidden_size as u64 + self.layers.len() as u64 * size
    }

    /// Bytes that the products of the layers, and of the embeddings before them, take beside the
    /// activations.
    pub fn workspace(&self) -> Workspace {
        let dtype = self.embed_tokens.dtype();
        let layers = self.layers[self.own_layers()].iter().map(|layer| layer.workspace(dtype));
        let has_embeddings = self.stage.as_ref().is_none_or(Stage::is_first);
        let embeddings = match has_embeddings {
            true => self.embed_tokens.workspace(),
            false => Workspace::default(),
        };
        let embeddings = match &self.layer_inputs {
            None => embeddings,
            Some(inputs) => embeddings.then(inputs.workspace(dtype)),
        };
        let embeddings = match &self.streams {
            None => embeddings,
            Some(streams) => embeddings.then(streams.workspace(dtype)),
        };
        let largest = layers.fold(embeddings, Workspace::or);
        // While the device computes a layer, the next one is prepared.
        Workspace { unpacked: 2 * largest.unpacked, ..largest }
    }

    /// Bytes that the output layer takes beside the logits.
    pub fn head_workspace(&self) -> Workspace {
        if self.stage.as_ref().is_some_and(|stage| !stage.is_last()) {
            return Workspace::default();
        }
        match &self.lm_head {
            Head::Own(linear) => linear.workspace(self.embed_tokens.dtype()),
            Head::Tied => self.embed_tokens.head_workspace(),
        }
    }
}

impl Trunk for Decoder {
    fn embedded(&self, ids: &Indices) -> Result<Array> {
        self.embed(ids)
    }

    fn normed(&self, h: &Array) -> Result<Array> {
        self.norm.forward(h)
    }

    fn logits_behind_norm(&self, states: &Array) -> Result<Array> {
        self.logits_of_normed(states)
    }

    fn sizes(&self) -> [i32; 2] {
        [self.vocab_size, self.hidden_size]
    }

    fn dtype(&self) -> Dtype {
        self.embed_tokens.dtype()
    }
}
