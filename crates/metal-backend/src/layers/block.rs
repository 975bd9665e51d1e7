//! A transformer block: a token mixer, then a feed-forward network.

use mlx_ffi::{Array, Dtype, Result, ops};

use super::ending::LayerScale;
use super::tail::Tail;
use super::{AltUp, Ending, FeedForward, Fusion, Mixer, Positions, RmsNorm, Workspace};
use crate::cache::State;
use crate::kernels::{Columns, Kernels};

/// One transformer block: the mixer, then the feed-forward network, each added to the residual
/// stream. Architectures differ in where norms stand. A half that is nothing adds nothing.
#[derive(Debug)]
pub(crate) struct Block {
    /// Before the mixer.
    pub input_norm: Option<RmsNorm>,
    pub mixer: Mixer,
    /// On what the mixer adds.
    pub mixer_out_norm: Option<RmsNorm>,
    /// Before the feed-forward network.
    pub mlp_norm: Option<RmsNorm>,
    pub mlp: FeedForward,
    /// On what the feed-forward network adds.
    pub mlp_out_norm: Option<RmsNorm>,
    pub residual: Residual,
    /// Changes the stream behind both halves.
    pub ending: Ending,
    /// Whose kernels add to the residual stream.
    pub kernels: Kernels,
}

/// How the two halves of a block add to the residual stream.
#[derive(Debug)]
pub(crate) enum Residual {
    /// One after the other.
    Sum,
    /// One after the other, what is added being multiplied with this.
    Scaled(f32),
    /// Both at once: both see what the norm before the mixer makes, but for a network that has a
    /// norm of its own. There are no other norms.
    Parallel,
    /// One after the other, to one of several streams, from which the others are guessed.
    AltUp(Box<AltUp>),
}

/// The residual stream, and what the next norm makes of it where that is known already.
#[derive(Debug)]
pub(crate) struct Stream {
    /// `[b, l, hidden_size]`.
    pub h: Array,
    pub normed: Option<Array>,
}

impl Stream {
    fn share(&self) -> Result<Stream> {
        let normed = self.normed.as_ref().map(Array::share).transpose()?;
        Ok(Stream { h: self.h.share()?, normed })
    }

    /// The stream at the positions of `tail` alone.
    pub fn at(&self, tail: &Tail) -> Result<Stream> {
        let normed = self.normed.as_ref().map(|normed| tail.of(normed)).transpose()?;
        Ok(Stream { h: tail.of(&self.h)?, normed })
    }

    /// The fusion for a half of a block that has `norm` before it, and an epilogue.
    fn fusion<'a>(&'a self, norm: &'a Option<RmsNorm>, epilogue: Fusion<'a>) -> Fusion<'a> {
        Fusion { norm: norm.as_ref(), normed: self.normed.as_ref(), ..epilogue }
    }
}

impl Block {
    /// `[b, l, hidden_size]` to the same. `input` is the layer's own, where layers have one.
    /// `next`, the norm of what follows, is computed too where that is one operation with it.
    /// `state` remembers `l` more positions.
    pub fn forward(
        &self,
        x: &Stream,
        input: Option<&Columns>,
        next: Option<&RmsNorm>,
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Stream> {
        if let Residual::AltUp(altup) = &self.residual {
            return self.alternating(altup, x, input, positions, state);
        }
        let scale = self.ending.scale.as_ref();
        match &self.ending.input {
            None => self.halves(x, (next, scale), None, positions, state),
            Some(own) => {
                let Stream { h, .. } = self.halves(x, (None, None), None, positions, state)?;
                let (h, normed) = own.added(h, input, scale, next)?;
                Ok(Stream { h, normed })
            }
        }
    }

    /// Returns true when some positions can pass its second half without the others.
    pub fn can_end_at_some(&self) -> bool {
        let is_plain = matches!(self.residual, Residual::Sum | Residual::Scaled(_));
        is_plain && self.ending.is_nothing()
    }

    /// The residual stream behind it at `tail` alone, `[positions, 1, hidden_size]`, of `x` and
    /// with `state` as for [`forward`](Self::forward).
    pub fn forward_to(
        &self,
        tail: &Tail,
        x: &Stream,
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Stream> {
        self.halves(x, (None, None), Some(tail), positions, state)
    }

    /// The residual stream behind both halves, multiplied with `scale`, and its norm `next` where
    /// it is one operation with it; only of `tail` where that is all that is needed.
    fn halves(
        &self,
        x: &Stream,
        (next, scale): (Option<&RmsNorm>, Option<&LayerScale>),
        tail: Option<&Tail>,
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Stream> {
        if let Residual::Parallel = self.residual {
            let Stream { h, normed } = self.parallel(x, positions, state)?;
            return Ok(Stream { h: scaled(h, scale)?, normed });
        }
        let mix = |epilogue: Fusion<'_>| {
            self.mixer.forward(&x.h, x.fusion(&self.input_norm, epilogue), positions, state)
        };
        let feeds = !matches!(self.mlp, FeedForward::Nothing);
        let (mixed, some);
        let mut h = if matches!(self.mixer, Mixer::Nothing) {
            x
        } else {
            let behind = if feeds { (self.mlp_norm.as_ref(), None) } else { (next, scale) };
            mixed = self.added(x, mix, &self.mixer_out_norm, behind)?;
            &mixed
        };
        if let Some(tail) = tail {
            some = h.at(tail)?;
            h = &some;
        }
        if !feeds {
            return h.share();
        }
        let feed =
            |epilogue: Fusion<'_>| self.mlp.forward(&h.h, h.fusion(&self.mlp_norm, epilogue));
        self.added(h, feed, &self.mlp_out_norm, (next, scale))
    }

    /// The norm that the block begins with, where it begins with one.
    pub fn first_norm(&self) -> Option<&RmsNorm> {
        let first = match self.mixer {
            Mixer::Nothing => &self.mlp_norm,
            _ => &self.input_norm,
        };
        first.as_ref()
    }

    /// Both halves of what the first norm makes, added at once.
    fn parallel(&self, x: &Stream, positions: &mut Positions, state: &mut State) -> Result<Stream> {
        let normed = x.fusion(&self.input_norm, Fusion::default()).prologue(&x.h)?;
        let seen = Fusion { normed: Some(&normed), ..Fusion::default() };
        let mixed = self.mixer.forward(&x.h, seen, positions, state)?;
        let own = self.mlp_norm.as_ref().map(|norm| norm.forward(&x.h)).transpose()?;
        let seen = Fusion { normed: own.as_ref().or(seen.normed), ..seen };
        let fed = self.mlp.forward(&x.h, seen)?;
        let h = self.kernels.sum(&self.kernels.sum(&x.h, &mixed)?, &fed)?;
        Ok(Stream { h, normed: None })
    }

    /// One of several streams computed, the others corrected by what came of it.
    fn alternating(
        &self,
        altup: &AltUp,
        x: &Stream,
        input: Option<&Columns>,
        positions: &mut Positions,
        state: &mut State,
    ) -> Result<Stream> {
        let predicted = altup.predict(&x.h)?;
        let stream = Stream { h: altup.active(&predicted)?, normed: None };
        let normed = stream.fusion(&self.input_norm, Fusion::default()).prologue(&stream.h)?;
        let seen = Fusion { normed: Some(&normed), ..Fusion::default() };
        let mixed = self.mixer.forward(&stream.h, seen, positions, state)?;
        let mixed = match &self.mixer_out_norm {
            None => mixed,
            Some(norm) => norm.forward(&mixed)?,
        };
        let h = Stream { h: altup.laurel.join(&stream.h, &mixed, &normed)?, normed: None };
        let fed = self.mlp.forward(&h.h, h.fusion(&self.mlp_norm, Fusion::default()))?;
        let Stream { h, .. } = self.sum(&h, fed, &self.mlp_out_norm)?;
        Ok(Stream { h: altup.correct(&predicted, &h, input)?, normed: None })
    }

    /// Norms what comes in, where the sum before a block does that otherwise.
    pub fn prepare(&self, x: &mut Stream) -> Result<()> {
        if let Residual::AltUp(_) = self.residual {
            return Ok(());
        }
        if self.kernels.adds_rows(&x.h)
            && let Some(norm) = self.first_norm()
        {
            x.normed = Some(norm.forward(&x.h)?);
        }
        Ok(())
    }

    /// Bytes that its products take beside the activations, which are of `dtype`.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let halves = self.mixer.workspace(dtype).then(self.mlp.workspace(dtype));
        match &self.residual {
            Residual::AltUp(altup) => halves.then(altup.workspace(dtype)),
            _ => halves.then(self.ending.workspace(dtype)),
        }
    }

    /// The residual stream after a half of a block, which may be told to add its result to it
    /// itself: a norm on the result comes first.
    fn added(
        &self,
        x: &Stream,
        half: impl FnOnce(Fusion<'_>) -> Result<Array>,
        out_norm: &Option<RmsNorm>,
        (next, scale): (Option<&RmsNorm>, Option<&LayerScale>),
    ) -> Result<Stream> {
        let kernels = self.kernels;
        let plain = |out: Array| {
            let Stream { h, normed } = self.sum(x, out, out_norm)?;
            Ok(Stream { h: scaled(h, scale)?, normed })
        };
        let factor = match self.residual {
            Residual::Sum => None,
            Residual::Scaled(factor) => Some(factor),
            Residual::Parallel | Residual::AltUp(_) => return plain(half(Fusion::default())?),
        };
        let is_sum = factor.is_none() && out_norm.is_none() && scale.is_none();
        if is_sum && !kernels.adds_rows(&x.h) {
            let onto = Fusion { residual: Some(&x.h), ..Fusion::default() };
            return Ok(Stream { h: half(onto)?, normed: None });
        }
        let norms = [out_norm.as_ref(), next].map(|norm| norm.and_then(RmsNorm::weights));
        let known = norms.map(|norm| norm.is_some()) == [out_norm.is_some(), next.is_some()];
        let by = scale.map(LayerScale::on_device);
        let in_parts = known && kernels.adds_parts(&x.h, norms, by);
        let out = half(Fusion { in_parts, ..Fusion::default() })?;
        if known && let Some(both) = kernels.residual(&x.h, &out, norms, factor, by) {
            let (h, normed) = both?;
            return Ok(Stream { h, normed });
        }
        plain(out)
    }

    /// The residual stream with what a half of the block adds, after its norm.
    fn sum(&self, x: &Stream, out: Array, out_norm: &Option<RmsNorm>) -> Result<Stream> {
        let out = out_norm.as_ref().map_or_else(|| out.share(), |norm| norm.forward(&out))?;
        let out = match &self.residual {
            Residual::Scaled(factor) => ops::multiply(&out, &Array::scalar(*factor, out.dtype())?)?,
            Residual::Sum | Residual::Parallel | Residual::AltUp(_) => out,
        };
        Ok(Stream { h: self.kernels.sum(&x.h, &out)?, normed: None })
    }
}

/// `h` multiplied with a scale, where there is one.
fn scaled(h: Array, scale: Option<&LayerScale>) -> Result<Array> {
    match scale {
        None => Ok(h),
        Some(scale) => scale.apply(&h),
    }
}
