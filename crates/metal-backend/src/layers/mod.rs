//! The parts that models are made of. Each says what it computes, what it remembers and what it
//! costs; model files only name them.

mod altup;
mod attended;
mod attention;
mod block;
mod capture;
mod decode_rows;
mod decoder;
mod delta_net;
mod delta_projections;
mod dense_and_moe;
mod drafter;
mod drafting;
mod ears;
mod embedding;
mod encoder;
mod ending;
mod experts;
mod feed_forward;
#[cfg(test)]
mod few_operations;
mod fusion;
mod head_linear;
mod heads;
mod latent;
mod latent_moe;
mod layer_inputs;
mod layer_norm;
mod linear;
mod lora;
mod mamba2;
mod mixer;
mod mlp;
mod moe;
mod norm;
mod observed;
mod output_gate;
mod pace;
mod pass;
mod plain_mlp;
mod planned;
mod position_scale;
mod positions;
mod prompt_capture;
mod qkv;
mod recur;
mod rope;
mod rotation;
mod routing;
mod scaled_moe;
mod seen;
mod shared_kv;
mod sharing;
mod short_convolution;
mod side_by_side;
mod stage;
mod step_offsets;
mod streams;
mod tail;
mod text_encoder;
mod texts;
mod together;
mod top_logits;
mod tower;
mod vocabulary;
mod weight;
mod within_texts;
mod workspace;

pub(crate) use altup::{AltUp, Laurel};
pub(crate) use attention::{Attention, AttentionConfig};
pub(crate) use block::{Block, Residual};
pub(crate) use capture::StepCapture;
pub(crate) use decode_rows::{JoiningRows, LeavingRows};
pub(crate) use decoder::{Decoder, Head};
pub(crate) use delta_net::DeltaNet;
pub(crate) use delta_projections::{
    DeltaProjections, DeltaSizes, LowRankFirst, LowRankProjections,
};
pub(crate) use dense_and_moe::DenseAndMoe;
pub(crate) use drafter::DraftModel;
pub(crate) use drafting::{Drafter, Followed, Trunk};
pub(crate) use ears::{
    EarAttention, EarBlock, EarConvolution, EarEntry, EarExit, EarNetwork, EarNorm, EarPadding,
    EarWindow, Ears, LightConvolution, Listening, RelativePositions,
};
pub(crate) use embedding::Embedding;
pub(crate) use encoder::{Encoder, EncoderBlock};
pub(crate) use ending::{Ending, LayerInput, LayerScale};
pub(crate) use experts::ExpertLinear;
pub(crate) use feed_forward::FeedForward;
pub(crate) use fusion::Fusion;
pub(crate) use head_linear::HeadLinear;
pub(crate) use heads::Heads;
pub(crate) use latent::{LatentAttention, LatentQueries, LatentSizes};
pub(crate) use latent_moe::LatentMoe;
pub(crate) use layer_inputs::LayerInputs;
pub(crate) use layer_norm::LayerNorm;
pub(crate) use linear::Linear;
pub(crate) use lora::{ExpertLora, Lora};
pub(crate) use mamba2::{GateNorm, Mamba2, MambaSizes, SharedGroup};
pub(crate) use mixer::{Mixer, StepBuffers};
pub(crate) use mlp::{GateUp, Mlp};
pub(crate) use moe::{Moe, SharedExpert};
pub(crate) use norm::{Around, RmsNorm};
pub(crate) use observed::{HeadSizes, Observed};
pub(crate) use output_gate::OutputGate;
pub(crate) use pace::Pace;
pub(crate) use pass::Pass;
pub(crate) use plain_mlp::{PlainActivation, PlainMlp, Xielu};
pub(crate) use planned::{MOST_CHUNK_KEYS, is_for_kernels};
pub(crate) use position_scale::PositionScale;
pub(crate) use positions::{DecodeRows, Positions};
pub(crate) use prompt_capture::{PassForm, PromptCaptures};
pub(crate) use qkv::{QkNorms, Qkv};
pub(crate) use rope::Rope;
pub(crate) use rotation::Rotation;
pub(crate) use routing::{ExpertGroups, GroupScore, Routing, Score, ScoredRouting};
pub(crate) use scaled_moe::ScaledMoe;
pub(crate) use seen::Seen;
pub(crate) use sharing::Sharing;
pub(crate) use short_convolution::ShortConvolution;
pub(crate) use side_by_side::{Multipliers, SideBySide};
pub(crate) use stage::{LastLogits, ModelPart, PartBytes, Stage};
pub(crate) use streams::Streams;
pub(crate) use tail::Tail;
pub(crate) use text_encoder::{ClassHead, ClassOf, TextEncoder};
pub(crate) use texts::{Group, Padding, Texts};
pub(crate) use together::Together;
pub(crate) use tower::{
    Axes, ClippedLinear, Entry, Exit, Look, Merger, Network, PatchPositions, QkvLinears, Tower,
    TowerAttention, TowerBlock, TowerNorm, TowerRope, Windows,
};
pub(crate) use vocabulary::{OwnIds, OwnLogits, SplitLogits};
pub(crate) use weight::Weight;
pub(crate) use workspace::Workspace;
