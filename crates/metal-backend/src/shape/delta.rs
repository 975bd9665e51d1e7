//! Gated delta nets built from a config.

use std::ops::Range;

use super::Shape;
use super::split::{delta_of_rank, keyed_delta_of_rank};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::kernels::Activation;
use crate::layers::{DeltaNet, DeltaProjections, DeltaSizes, LowRankFirst, LowRankProjections};
use crate::weights::{Linears, Weights};

impl Shape {
    /// The sizes of the gated delta nets that `config` states.
    ///
    /// # Errors
    /// A key that is missing or wrong; heads that do not divide.
    pub fn delta_sizes(&self, config: &Config) -> Result<DeltaSizes> {
        let sizes = DeltaSizes {
            k_heads: config.size("linear_num_key_heads")?,
            v_heads: config.size("linear_num_value_heads")?,
            k_dim: config.size("linear_key_head_dim")?,
            v_dim: config.size("linear_value_head_dim")?,
            decays: 1,
            taps: config.size("linear_conv_kernel_dim")?,
        };
        let DeltaSizes { k_heads, v_heads, k_dim, v_dim, taps, .. } = sizes;
        if v_heads % k_heads != 0 {
            return Err(Error::model(format!(
                "config.json: `linear_num_value_heads` {v_heads} is no multiple of `linear_num_key_heads` {k_heads}"
            )));
        }
        if k_dim % 4 != 0 || k_dim > 256 {
            return Err(Error::model(format!(
                "config.json: `linear_key_head_dim` is {k_dim}, expected a multiple of 4 up to 256"
            )));
        }
        let widest = 2 * i64::from(k_heads) * i64::from(k_dim)
            + 2 * i64::from(v_heads) * (i64::from(v_dim) + 1);
        if widest > i64::from(i32::MAX) || taps > 64 {
            return Err(Error::model(
                "config.json: the heads of linear attention, or `linear_conv_kernel_dim`, are too large",
            ));
        }
        Ok(sizes)
    }

    /// The gated delta net under `w`: with a projection for each purpose (Qwen 3.5), or with two
    /// whose rows are grouped by key heads (Qwen 3 Next).
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn delta_net(&self, w: &Weights, sizes: DeltaSizes) -> Result<DeltaNet> {
        let (w, sizes) = &delta_of_rank(w, sizes);
        let sizes = *sizes;
        let (mixed, values, heads) = (sizes.mixed(), sizes.values(), sizes.v_heads);
        let projections = if w.at("in_proj_qkvz").is_empty() {
            let names = [
                ("in_proj_qkv", mixed),
                ("in_proj_z", values),
                ("in_proj_b", heads),
                ("in_proj_a", heads),
            ];
            match w.linears(names, self.hidden_size, false)? {
                Linears::Joined(linear) => DeltaProjections::Fused(linear),
                Linears::Separate(linears) => DeltaProjections::Separate(Box::new(linears)),
            }
        } else {
            self.grouped_projections(w, sizes)?
        };
        Ok(DeltaNet {
            sizes,
            projections,
            convolution: w.depthwise("conv1d.weight", mixed, sizes.taps)?,
            a_log: w.tensor_f32("A_log", &[heads])?,
            dt_bias: w.tensor_f32("dt_bias", &[heads])?,
            norm: w.rms_norm("norm", sizes.v_dim, self.rms_norm_eps)?,
            gate: Activation::Silu,
            out_proj: w.linear("out_proj", values, self.hidden_size, false)?,
            kernels: w.kernels(),
        })
    }

    /// The gated delta net under `w` with a decay for each value of a key (Kimi Linear).
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn keyed_delta_net(&self, w: &Weights, sizes: DeltaSizes) -> Result<DeltaNet> {
        let (w, sizes) = &keyed_delta_of_rank(w, sizes);
        let sizes = *sizes;
        let DeltaSizes { v_heads: heads, v_dim: rank, taps, .. } = sizes;
        let (hidden, values) = (self.hidden_size, sizes.values());
        let names = [
            ("q_proj", values),
            ("k_proj", values),
            ("v_proj", values),
            ("b_proj", heads),
            ("f_a_proj", rank),
            ("g_a_proj", rank),
        ];
        let first = match w.linears(names, hidden, false)? {
            Linears::Joined(linear) => LowRankFirst::Fused(linear),
            Linears::Separate(linears) => LowRankFirst::Separate(Box::new(linears)),
        };
        let convolutions = match w.shape("q_conv1d.weight") {
            Some(_) => ["q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"],
            None => ["q_conv.conv.weight", "k_conv.conv.weight", "v_conv.conv.weight"],
        };
        let projections = LowRankProjections {
            first,
            rank,
            decay: w.linear("f_b_proj", rank, values, false)?,
            gate: w.linear("g_b_proj", rank, values, false)?,
        };
        Ok(DeltaNet {
            sizes,
            projections: DeltaProjections::LowRank(Box::new(projections)),
            convolution: w.depthwise_in_turn(convolutions, values, taps)?,
            a_log: w.vector_f32("A_log", heads)?,
            dt_bias: w.vector_f32("dt_bias", values)?,
            norm: w.rms_norm("o_norm", rank, self.rms_norm_eps)?,
            gate: Activation::Sigmoid,
            out_proj: w.linear("o_proj", values, hidden, false)?,
            kernels: w.kernels(),
        })
    }

    /// `in_proj_qkvz` and `in_proj_ba`, whose rows are those of one key head and its value heads
    /// after the other, as rows of all queries, keys and so on in turn.
    fn grouped_projections(&self, w: &Weights, sizes: DeltaSizes) -> Result<DeltaProjections> {
        let DeltaSizes { k_heads, v_heads, k_dim, v_dim, .. } = sizes;
        let (shared, hidden) = (v_heads / k_heads, self.hidden_size);
        let qkvz = rows_in_turn(k_heads, [k_dim, k_dim, shared * v_dim, shared * v_dim]);
        let ba = rows_in_turn(k_heads, [shared, shared]);
        let qkvz = w.linear_in_order("in_proj_qkvz", hidden, &qkvz, false)?;
        let ba = w.linear_in_order("in_proj_ba", hidden, &ba, false)?;
        Ok(match w.join([qkvz, ba], false)? {
            Linears::Joined(linear) => DeltaProjections::Fused(linear),
            Linears::Separate(linears) => DeltaProjections::Paired(Box::new(linears)),
        })
    }
}

/// The rows of each part in turn, of all groups. Each group has so many rows of each part.
fn rows_in_turn<const N: usize>(groups: i32, parts: [i32; N]) -> Vec<Range<i32>> {
    let of_group: i32 = parts.iter().sum();
    let mut before = 0;
    let mut rows = Vec::new();
    for part in parts {
        let first = move |group: i32| group * of_group + before;
        rows.extend((0..groups).map(|group| first(group)..first(group) + part));
        before += part;
    }
    rows
}
