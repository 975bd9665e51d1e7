//! The parts that models are made of. They decide at load how they compute; model files only
//! name them.

mod attention;
mod decoder;
mod embedding;
mod experts;
mod linear;
mod lora;
mod mlp;
mod moe;
mod norm;
mod positions;
mod product;
mod qkv;
mod rope;
mod seen;
mod step;
mod workspace;

pub(crate) use attention::{Attention, AttentionConfig};
pub(crate) use decoder::{Block, Decoder, Head, Pass};
pub(crate) use embedding::Embedding;
pub(crate) use experts::{ExpertLinear, Order};
pub(crate) use linear::{Around, Linear, Matrix, Weight};
pub(crate) use lora::{ExpertLora, Lora};
pub(crate) use mlp::{Activation, GateUp, Mlp};
pub(crate) use moe::{FeedForward, Moe, Routing};
pub(crate) use norm::RmsNorm;
pub(crate) use positions::{Positions, SharedPlaces};
pub(crate) use product::{Product, UNPACKED_FROM};
pub(crate) use qkv::{Columns, QkNorms, Qkv};
pub(crate) use rope::{Reach, Rope};
pub(crate) use seen::Seen;
pub(crate) use step::KeptStep;
pub(crate) use workspace::Workspace;
