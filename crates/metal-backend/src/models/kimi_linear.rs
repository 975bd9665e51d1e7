//! Kimi Linear: three gated delta nets, with a decay for each value of a key, to one layer of
//! latent attention that does not see positions; experts with corrected sigmoid scores.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::{Decoder, DeltaSizes, Mixer};
use crate::shape::{LatentParts, Mixture, Shape};
use crate::weights::Weights;

/// Keys of config.json that other models' configs call otherwise, each with their name.
const NAMES: [(&str, &str); 6] = [
    ("num_experts_per_token", "num_experts_per_tok"),
    ("num_shared_experts", "n_shared_experts"),
    ("num_expert_group", "n_group"),
    ("moe_renormalize", "norm_topk_prob"),
    ("moe_router_activation_func", "scoring_func"),
    ("model_max_length", "max_position_embeddings"),
];

/// Builds the model under the names of `KimiLinearForCausalLM`, or those of mlx-lm's converter.
pub(super) fn load(config: &Config, w: &Weights) -> Result<Decoder> {
    for key in ["mla_use_nope", "use_grouped_topk"] {
        if let (Some(false), Some(value)) = (config.opt_flag(key)?, config.get(key)) {
            return Err(config.wrong(key, value, "true"));
        }
    }
    // What is absent is not there.
    let absent = [("n_shared_experts", 0), ("first_k_dense_replace", 0)];
    let config = &config
        .with_names(&NAMES)
        .with_defaults(&absent)
        .with_default_number("rms_norm_eps", 1e-5)
        .with_default_number("routed_scaling_factor", 2.446);
    let shape = Shape::read_latent(config)?;
    let delta = Delta::read(config, shape.num_hidden_layers)?;
    let latent = LatentParts::read(config)?;
    let mixture = Mixture::read(config, shape.num_hidden_layers)?;
    w.leave_layers_from(shape.num_hidden_layers);
    let decoder = shape.decoder(config, w, &w.at("model"), |w, index| {
        let attention = w.at("self_attn");
        let mixer: Mixer = if delta.layers[index] {
            shape.keyed_delta_net(&attention, delta.sizes)?.into()
        } else {
            shape.latent_attention(&attention, &latent)?.into()
        };
        let sparse = w.at("block_sparse_moe");
        let mlp = if sparse.is_empty() { w.at("mlp") } else { sparse };
        shape.pre_norm_block(w, mixer, mixture.feed_forward(&shape, &mlp, index)?)
    })?;
    Ok(mixture.widen(decoder))
}

/// The gated delta nets that the config states.
struct Delta {
    sizes: DeltaSizes,
    /// For each layer, whether it is one.
    layers: Vec<bool>,
}

impl Delta {
    /// Reads `linear_attn_config`.
    fn read(config: &Config, layers: i32) -> Result<Delta> {
        const KEY: &str = "linear_attn_config";
        let own = config
            .object(KEY)?
            .ok_or_else(|| Error::model(format!("config.json: key `{KEY}` is missing")))?;
        let (heads, dim) = (own.size("num_heads")?, own.size("head_dim")?);
        let taps = own.size("short_conv_kernel_size")?;
        if dim % 4 != 0 || dim > 256 || heads > i32::MAX / (8 * dim) || taps > 64 {
            return Err(Error::model(format!(
                "config.json: `{KEY}` has {heads} heads of {dim} values and convolutions of {taps}, expected a `head_dim` that is a multiple of 4 up to 256, and sizes that fit"
            )));
        }
        // Layers are counted from 1 on.
        let listed = |key| -> Result<Vec<bool>> {
            let list = own.opt_indices(key)?;
            let list =
                list.ok_or_else(|| Error::model(format!("config.json: `{KEY}` has no `{key}`")))?;
            Ok((1..=layers as u64).map(|layer| list.contains(&layer)).collect())
        };
        let (delta, full) = (listed("kda_layers")?, listed("full_attn_layers")?);
        if let Some(index) = delta.iter().zip(&full).position(|(delta, full)| delta == full) {
            return Err(Error::model(format!(
                "config.json: `{KEY}` has layer {} in both of `kda_layers` and `full_attn_layers`, or in none",
                index + 1
            )));
        }
        let sizes = DeltaSizes {
            k_heads: heads,
            v_heads: heads,
            k_dim: dim,
            v_dim: dim,
            decays: dim,
            taps,
        };
        Ok(Delta { sizes, layers: delta })
    }
}
