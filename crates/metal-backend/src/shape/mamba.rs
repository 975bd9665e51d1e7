//! Mamba 2 layers built from a config.

use mlx_ffi::{Array, ops};

use super::Shape;
use super::split::{Mambas, mamba_of_rank};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::{GateNorm, Mamba2, MambaSizes, RmsNorm};
use crate::weights::Weights;

/// The properties of one Mamba 2 layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MambaParts {
    /// `in_proj` has a bias.
    pub in_bias: bool,
    /// `out_proj` has a bias.
    pub out_bias: bool,
    /// `conv1d` has a bias.
    pub convolution_bias: bool,
    /// The place of `norm` beside the gate.
    pub norm: NormPlace,
    /// The least step and the largest.
    pub limits: [f32; 2],
    /// Factors of the parts of `in_proj`'s result: the gate, the mixed values, values written into
    /// states, values that read them, and steps.
    pub multipliers: Option<[f32; 5]>,
}

/// The place of the norm of a result beside its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormPlace {
    /// There is none.
    None,
    BehindGate,
    BeforeGate,
}

/// The sizes that `config` states under `mamba_…`, of layers with `inner` values.
///
/// # Errors
/// A key that is missing or wrong; sizes that do not divide.
pub(crate) fn mamba_sizes(config: &Config, inner: i64) -> Result<MambaSizes> {
    let heads = config.size("mamba_n_heads")?;
    let is_derived = config.get("mamba_d_head").is_none_or(|value| value == "auto");
    let head_dim = match is_derived {
        true => i32::try_from(inner / i64::from(heads)).unwrap_or(i32::MAX),
        false => config.size("mamba_d_head")?,
    };
    if i64::from(heads) * i64::from(head_dim) != inner {
        return Err(Error::model(format!(
            "config.json: `mamba_n_heads` {heads} of `mamba_d_head` {head_dim} are not the {inner} values of a mamba layer"
        )));
    }
    let sizes = MambaSizes {
        heads,
        head_dim,
        groups: config.opt_size("mamba_n_groups")?.unwrap_or(1),
        state_dim: config.opt_size("mamba_d_state")?.unwrap_or(256),
        taps: config.opt_size("mamba_d_conv")?.unwrap_or(4),
    };
    check_mamba(sizes)
}

/// The least step and the largest that `config` states.
///
/// # Errors
/// A value that is no range.
pub(crate) fn step_limits(config: &Config) -> Result<[f32; 2]> {
    Ok(config.opt_range("time_step_limit")?.unwrap_or([0.0, f32::INFINITY]))
}

/// `sizes`, where layers can have them.
///
/// # Errors
/// Groups that do not divide the heads; sizes that are too large.
pub(crate) fn check_mamba(sizes: MambaSizes) -> Result<MambaSizes> {
    let MambaSizes { heads, head_dim, groups, state_dim, taps } = sizes;
    if heads % groups != 0 {
        return Err(Error::model(format!(
            "config.json: {heads} heads of mamba layers are no multiple of {groups} groups"
        )));
    }
    let wide = |a: i32, b: i32| i64::from(a) * i64::from(b);
    let widest = 2 * (wide(heads, head_dim).saturating_add(wide(groups, state_dim)));
    if widest + i64::from(heads) > i64::from(i32::MAX) || taps > 64 {
        return Err(Error::model(
            "config.json: the heads of mamba layers, or the taps of their convolutions, are too large",
        ));
    }
    Ok(sizes)
}

impl Shape {
    /// The Mamba 2 layer under `w`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn mamba(&self, w: &Weights, sizes: MambaSizes, parts: MambaParts) -> Result<Mamba2> {
        let Mambas { w, sizes, shared } = &mamba_of_rank(w, sizes);
        let MambaSizes { heads, groups, state_dim, taps, .. } = *sizes;
        let (inner, mixed) = (sizes.inner(), sizes.mixed());
        let norm = || -> Result<RmsNorm> {
            let norm = w.rms_norm("norm", inner, self.rms_norm_eps)?;
            if norm.weight.shape() != [inner] {
                // A stand-in, which describes the layer.
                return Ok(norm);
            }
            let weight = ops::reshape(&norm.weight, &[groups, inner / groups])?;
            Ok(RmsNorm { weight, ..norm })
        };
        let counts = [inner, inner, groups * state_dim, groups * state_dim, heads];
        let in_proj =
            w.linear("in_proj", self.hidden_size, inner + mixed + heads, parts.in_bias)?;
        let convolution = w.depthwise("conv1d.weight", mixed, taps)?;
        let multipliers = parts.multipliers.map(|multipliers| -> Result<Array> {
            let all: Vec<f32> = multipliers
                .into_iter()
                .zip(counts)
                .flat_map(|(multiplier, count)| std::iter::repeat_n(multiplier, count as usize))
                .collect();
            let all = Array::from_f32(&all, &[all.len() as i32])?;
            Ok(ops::astype(&all, convolution.dtype())?)
        });
        Ok(Mamba2 {
            sizes: *sizes,
            shared: shared.clone(),
            in_proj,
            multipliers: multipliers.transpose()?,
            convolution,
            bias: parts.convolution_bias.then(|| w.tensor("conv1d.bias", &[mixed])).transpose()?,
            a_log: w.tensor_f32("A_log", &[heads])?,
            dt_bias: w.tensor_f32("dt_bias", &[heads])?,
            d: w.tensor_f32("D", &[heads])?,
            limits: parts.limits,
            norm: match parts.norm {
                NormPlace::None => GateNorm::None,
                NormPlace::BehindGate => GateNorm::BehindGate(norm()?),
                NormPlace::BeforeGate => GateNorm::BeforeGate(norm()?),
            },
            out_proj: w.linear("out_proj", inner, self.hidden_size, parts.out_bias)?,
            kernels: w.kernels(),
        })
    }
}
