//! Tensors that files carry beside the weights of a model: what its code counts, and scales of what
//! is not packed here.

use mlx_ffi::Dtype;

use crate::weights::source::TensorHeader;

/// Last parts of the names of tensors that code computes by itself: numbers of positions and kinds,
/// frequencies and tables of rotations, and what hides later positions. Older versions of
/// transformers save them.
const COUNTED: [&str; 7] = [
    "position_ids",
    "token_type_ids",
    "inv_freq",
    "original_inv_freq",
    "cos_cached",
    "sin_cached",
    "masked_bias",
];

/// Last parts of the names of scales by which vendors' servers round keys, values, queries and
/// weights of attention to 8 bits. Nothing of these is rounded so here.
const OF_PACKED_CACHES: [&str; 5] = ["k_scale", "v_scale", "q_scale", "prob_scale", "kv_scale"];

/// The names of the scales of keys and values where they stand at the projections.
const OF_PROJECTIONS: [&str; 2] = ["k_proj.output_scale", "v_proj.output_scale"];

/// Returns true for a tensor that no model known here computes with.
pub(crate) fn is_of_no_use(name: &str, header: &TensorHeader) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let is_scale = || {
        let is_small = header.elements() <= MOST_SCALES;
        let is_named = OF_PACKED_CACHES.contains(&last)
            || OF_PROJECTIONS.iter().any(|end| name.ends_with(&format!(".{end}")));
        is_small && header.dtype.is_float() && is_named
    };
    COUNTED.contains(&last) || is_scale() || is_mask(name, header)
}

/// The most scales of an attention: one for each head.
const MOST_SCALES: u64 = 1024;

/// Returns true for the square of ones and zeros that hides later positions.
/// It is `attn.bias` of GPT-2 and its heirs.
fn is_mask(name: &str, header: &TensorHeader) -> bool {
    let is_named = ["attn.bias", "attention.bias"].iter().any(|end| {
        name.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    });
    let is_square = matches!(header.shape[..], [1, 1, rows, columns] if rows == columns);
    is_named && is_square && !matches!(header.dtype, Dtype::U32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_code_counts_is_of_no_use_and_what_a_model_learnt_is() {
        let of =
            |name: &str, shape: &[i32], dtype| is_of_no_use(name, &TensorHeader::of(shape, dtype));
        for name in [
            "embeddings.position_ids",
            "bert.embeddings.position_ids",
            "roberta.embeddings.token_type_ids",
            "position_ids",
            "vision_model.embeddings.position_ids",
            "model.layers.3.self_attn.rotary_emb.inv_freq",
            "model.rotary_emb.inv_freq",
            "visual.rotary_pos_emb.inv_freq",
            "h.0.attn.masked_bias",
        ] {
            assert!(of(name, &[1, 512], Dtype::I64), "{name}");
        }
        for name in
            ["model.layers.0.self_attn.k_scale", "model.layers.0.self_attn.k_proj.output_scale"]
        {
            assert!(of(name, &[1], Dtype::F32) && of(name, &[], Dtype::F32), "{name}");
            assert!(!of(name, &[64, 64], Dtype::F32), "{name}");
        }
        assert!(of("h.0.attn.bias", &[1, 1, 64, 64], Dtype::U8));
        for (name, shape) in [
            ("h.0.attn.bias", &[64][..]),
            ("embeddings.position_embeddings.weight", &[512, 384]),
            ("my_position_ids", &[1, 512]),
            ("model.layers.0.self_attn.q_proj.output_scale", &[1]),
            ("model.layers.0.mlp.up_proj.bias", &[1, 1, 8, 8]),
        ] {
            assert!(!of(name, shape, Dtype::F32), "{name}");
        }
    }
}
