//! Features that models of this backend honour and refuse.

use inference_core::{Capabilities, Feature, LoadOptions, Support};

use crate::kernels::Kernels;

/// The features that a model with these `kernels` honours and refuses.
/// Reasons of the kernels come before the model's `own` ones, as they do in a load.
pub(super) fn capabilities(kernels: Kernels, own: &[(Feature, String)]) -> Capabilities {
    let refused = |feature| match feature {
        Feature::GpuLayers => Some("MLX runs all layers on one device; leave it unset"),
        Feature::Threads if !kernels.is_ours_on_cpu() => {
            Some("MLX's own kernels choose their threads themselves; leave it unset")
        }
        Feature::CpuActivations if !kernels.is_ours_on_cpu() => {
            Some("our own kernels for CPUs alone round activations; leave it unset")
        }
        Feature::DraftModel if kernels.is_on_cuda() => {
            Some("a second model does not draft on CUDA; leave it unset")
        }
        Feature::Ranks if !kernels.is_ours_on_cpu() && !kernels.is_on_cuda() => Some(
            "ranks compute together on NVIDIA GPUs, or with our kernels for CPUs: take the backend `cpu`",
        ),
        _ => None,
    };
    let support = |feature| {
        let own = own.iter().find(|(refused, _)| *refused == feature);
        let reason = refused(feature).or(own.map(|(_, reason)| reason.as_str()));
        reason.map_or(Support::Yes, |reason| Support::No(reason.to_owned()))
    };
    Capabilities::new(Feature::ALL.map(|feature| (feature, support(feature))).to_vec())
}

/// Features that a model refuses while several ranks compute it.
pub(super) fn refused_by_ranks(options: &LoadOptions) -> Vec<(Feature, String)> {
    if options.ranks.is_none() {
        return Vec::new();
    }
    let alone = "a rank has only some of the heads; load the model without ranks";
    [
        (Feature::InspectAttention, alone),
        (Feature::Images, "a tower of pictures is not split between ranks"),
        (Feature::Audio, "a tower of sounds is not split between ranks"),
        (Feature::DraftModel, "ranks do not agree on drafts; load the model without ranks"),
        (Feature::DraftTokens, "ranks do not agree on drafts; load the model without ranks"),
        (
            Feature::PrefixStore,
            "ranks do not agree on what lies on disk; load the model without ranks",
        ),
    ]
    .map(|(feature, reason)| (feature, reason.to_owned()))
    .to_vec()
}
