//! Pictures from text: pipelines in diffusers' layout or mflux's, on a thread of their own.
//!
//! A component is read when its phase begins and freed after it, unless the load options keep it:
//! the text encoder, then the transformer, then the decoder of latents.

mod attend;
mod bill;
mod caption;
mod computed;
mod denoise;
mod edit;
mod folder;
mod kind;
mod mflux;
mod model;
mod nn;
mod painter;
mod pipeline;
mod plan;
mod planner;
mod qwen_image;
mod qwen_text;
mod qwen_tower;
mod released;
mod resnet;
mod schedule;
#[cfg(test)]
mod tests;
mod tokenizer;
mod vae;
mod vae_kl;
mod vae_qwen;
mod z_image;

pub(crate) use model::MlxImageModel;
