//! The gated delta net: linear attention over a state that each position corrects.

use mlx_ffi::cpu::{ConvolutionActivation, DeltaRule, Filter};
use mlx_ffi::{Array, Dtype, Result, ops};

use super::{Fusion, Linear, Positions, RmsNorm, Workspace};
use crate::cache::{Recurrent, RecurrentSpec};
use crate::kernels::{Activation, Columns, Kernels};

/// The sizes of a gated delta net.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeltaSizes {
    /// Heads of queries and keys.
    pub k_heads: i32,
    /// Heads of values, a multiple of `k_heads`.
    pub v_heads: i32,
    /// Values of a query and a key.
    pub k_dim: i32,
    /// Values of a value.
    pub v_dim: i32,
    /// Positions that a position's convolution sees, itself included.
    pub taps: i32,
}

impl DeltaSizes {
    /// Values of queries, keys and values of all heads.
    pub fn mixed(&self) -> i32 {
        2 * self.k_heads * self.k_dim + self.values()
    }

    /// Values of all value heads.
    pub fn values(&self) -> i32 {
        self.v_heads * self.v_dim
    }
}

/// The projections into a gated delta net.
#[derive(Debug)]
pub(crate) enum DeltaProjections {
    /// A matrix for queries, keys and values, one for the gate of the result, for beta and for decay.
    Separate(Box<[Linear; 4]>),
    /// A matrix for queries, keys, values and the gate of the result in turn, one for beta and decay.
    Paired(Box<[Linear; 2]>),
    /// One matrix: the rows of all four in turn.
    Fused(Linear),
}

/// A gated delta net (Qwen 3 Next, 3.5): projections, a short convolution, the gated delta rule, and a
/// norm of each head that a gate follows.
#[derive(Debug)]
pub(crate) struct DeltaNet {
    pub sizes: DeltaSizes,
    pub projections: DeltaProjections,
    /// `[taps, mixed]`.
    pub convolution: Array,
    /// `[v_heads]` F32.
    pub a_log: Array,
    /// `[v_heads]` F32.
    pub dt_bias: Array,
    /// Over each value head.
    pub norm: RmsNorm,
    pub out_proj: Linear,
    /// Whose kernels compute it.
    pub kernels: Kernels,
}

impl DeltaNet {
    /// `x` is `[b, l, hidden_size]`; so is the result, with its `fusion`. `state` goes `l` positions on.
    pub fn forward(
        &self,
        x: &Array,
        fusion: Fusion<'_>,
        positions: &Positions,
        state: &mut Recurrent,
    ) -> Result<Array> {
        let DeltaSizes { k_heads, v_heads, v_dim, .. } = self.sizes;
        let [qkv, z, b, a] = self.projected(x, fusion.only_prologue())?;
        let qkv = qkv.array()?;
        let [rows, l, _] = qkv.dims()?;
        let [inputs, sum] = state.take(qkv.dtype())?;
        let lengths = positions.lengths();
        let filter = Filter {
            weight: &self.convolution,
            bias: None,
            activation: ConvolutionActivation::Silu,
        };
        let [mixed, inputs] = self.kernels.convolution(&qkv, inputs, filter, lengths)?;
        let [y, sum] = self.kernels.delta(&DeltaRule {
            mixed: &mixed,
            a: &a.array()?,
            b: &b.array()?,
            a_log: &self.a_log,
            dt_bias: &self.dt_bias,
            k_heads,
            lengths,
            state: &sum,
        })?;
        state.set([inputs, sum]);
        let heads = ops::reshape(&y, &[rows, l, v_heads, v_dim])?;
        let normed = ops::reshape(&self.norm.forward(&heads)?, &[rows, l, v_heads * v_dim])?;
        let gated = self.kernels.gated(Activation::Silu, &z, &Columns::all(normed))?;
        self.out_proj.forward_fused(&gated, fusion.only_epilogue())
    }

    /// Queries, keys and values; the gate of the result; what beta and what decay are made of.
    fn projected(&self, x: &Array, fusion: Fusion<'_>) -> Result<[Columns; 4]> {
        let DeltaSizes { v_heads, .. } = self.sizes;
        let (mixed, values) = (self.sizes.mixed(), self.sizes.values());
        match &self.projections {
            DeltaProjections::Separate(linears) => {
                let [qkv, z, b, a] = &**linears;
                let x = fusion.prologue(x)?;
                let all = |linear: &Linear| linear.forward(&x).map(Columns::all);
                Ok([all(qkv)?, all(z)?, all(b)?, all(a)?])
            }
            DeltaProjections::Paired(linears) => {
                let [qkvz, ba] = &**linears;
                let x = fusion.prologue(x)?;
                let [qkv, z] = columns(&qkvz.forward(&x)?, [mixed, values])?;
                let [b, a] = columns(&ba.forward(&x)?, [v_heads, v_heads])?;
                Ok([qkv, z, b, a])
            }
            DeltaProjections::Fused(linear) => {
                let all = linear.forward_fused(x, fusion)?;
                columns(&all, [mixed, values, v_heads, v_heads])
            }
        }
    }

    /// What it remembers.
    pub fn spec(&self) -> RecurrentSpec {
        let DeltaSizes { v_heads, k_dim, v_dim, taps, .. } = self.sizes;
        RecurrentSpec {
            convolution: [taps - 1, self.sizes.mixed()],
            state: Some([v_heads, v_dim, k_dim]),
        }
    }

    /// Values of one position between the projections, before and after the convolution; queries and keys
    /// once more, in F32.
    pub fn activations(&self) -> u64 {
        let DeltaSizes { k_heads, k_dim, .. } = self.sizes;
        let (mixed, values) = (self.sizes.mixed() as u64, self.sizes.values() as u64);
        2 * mixed + 4 * values + 4 * (k_heads * k_dim) as u64
    }

    /// Bytes that its products take.
    pub fn workspace(&self, dtype: Dtype) -> Workspace {
        let into = match &self.projections {
            DeltaProjections::Separate(linears) => at_once(&**linears, dtype),
            DeltaProjections::Paired(linears) => at_once(&**linears, dtype),
            DeltaProjections::Fused(linear) => linear.workspace(dtype),
        };
        into.then(self.out_proj.workspace(dtype))
    }
}

/// As many columns of `all` as each of `counts` says, in turn.
fn columns<const N: usize>(all: &Array, counts: [i32; N]) -> Result<[Columns; N]> {
    let mut first = 0;
    let parts = counts.map(|count| {
        let range = first..first + count;
        first += count;
        all.share().map(|of| Columns { of, range })
    });
    let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(parts.try_into().expect("one for each count"))
}

/// Bytes that products of the same values take, which may be computed at once.
fn at_once(linears: &[Linear], dtype: Dtype) -> Workspace {
    linears.iter().map(|linear| linear.workspace(dtype)).fold(Workspace::default(), Workspace::and)
}
