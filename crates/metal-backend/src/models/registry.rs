//! The names of the architectures, each with its builder.

use super::encoders::encoder_named;
use super::{
    afmoe, apertus, arcee, bailing_moe, cohere, cohere2, cohere2_moe, deepseek_v2, deepseek_v3,
    deepseek_v32, dots1, ernie4_5_moe, exaone, exaone_moe, exaone4, falcon_h1, gemma, gemma2,
    gemma3, gemma3_text, gemma3n, gemma4, glm, glm_moe_dsa, glm4, glm4_moe, glm4_moe_lite,
    gpt_neox, gpt_oss, granite, granitemoe, granitemoehybrid, helium, hunyuan_v1_dense,
    hunyuan_v1_moe, internlm2, internlm3, kimi_k25, kimi_linear, laguna, lfm2, lfm2_moe, lfm3,
    llama, llama4, mamba, mamba2, mellum, mimo, minicpm, minimax_m2, ministral, ministral3,
    mistral, mistral3, mistral4, mixtral, muse_glimmer, nemotron, nemotron_h, olmo, olmo2, olmo3,
    olmoe, phi, phi3, phimoe, qwen2, qwen2_5_vl, qwen2_moe, qwen2_vl, qwen3, qwen3_5, qwen3_5_moe,
    qwen3_moe, qwen3_next, qwen3_vl, qwen3_vl_moe, recurrent_gemma, seed_oss, smollm3, solar_open,
    stablelm, starcoder2,
};
use crate::config::Config;
use crate::error::{Error, Result, nearest};
use crate::layers::Decoder;
use crate::weights::Weights;

/// Builds a model from its config and takes its weights.
pub(super) type Load = fn(&Config, &Weights) -> Result<Decoder>;

/// Each `model_type` with its builder.
const REGISTRY: &[(&str, Load)] = &[
    ("afmoe", afmoe::load),
    ("apertus", apertus::load),
    ("arcee", arcee::load),
    ("bailing_moe", bailing_moe::load),
    ("cohere", cohere::load),
    ("cohere2", cohere2::load),
    ("cohere2_moe", cohere2_moe::load),
    ("deepseek_v2", deepseek_v2::load),
    ("deepseek_v3", deepseek_v3::load),
    ("deepseek_v32", deepseek_v32::load),
    ("dots1", dots1::load),
    ("ernie4_5_moe", ernie4_5_moe::load),
    ("exaone", exaone::load),
    ("exaone4", exaone4::load),
    ("exaone_moe", exaone_moe::load),
    ("falcon_h1", falcon_h1::load),
    ("falcon_mamba", mamba::load_falcon),
    ("gemma", gemma::load),
    ("gemma2", gemma2::load),
    ("gemma3", gemma3::load),
    ("gemma3_text", gemma3_text::load),
    ("gemma3n", gemma3n::load),
    ("gemma3n_text", gemma3n::load_text),
    ("gemma4", gemma4::load),
    ("gemma4_text", gemma4::load_text),
    ("gemma4_unified", gemma4::load_unified),
    ("gemma4_unified_text", gemma4::load_unified_text),
    ("glm", glm::load),
    ("glm4", glm4::load),
    ("glm4_moe", glm4_moe::load),
    ("glm4_moe_lite", glm4_moe_lite::load),
    ("glm_moe_dsa", glm_moe_dsa::load),
    ("gpt_neox", gpt_neox::load),
    ("gpt_oss", gpt_oss::load),
    ("granite", granite::load),
    ("granite_swa", granite::load_windowed),
    ("granitemoe", granitemoe::load),
    ("granitemoe_swa", granitemoe::load_windowed),
    ("granitemoehybrid", granitemoehybrid::load),
    ("granitemoeshared", granitemoe::load_shared),
    ("helium", helium::load),
    ("hunyuan_v1_dense", hunyuan_v1_dense::load),
    ("hunyuan_v1_moe", hunyuan_v1_moe::load),
    ("internlm2", internlm2::load),
    ("internlm3", internlm3::load),
    ("iquestcoder", llama::load),
    ("joyai_llm_flash", deepseek_v3::load),
    ("kimi_k2", deepseek_v3::load),
    ("kimi_k25", kimi_k25::load),
    ("kimi_linear", kimi_linear::load),
    ("laguna", laguna::load),
    ("lfm2", lfm2::load),
    ("lfm2_moe", lfm2_moe::load),
    ("lfm3", lfm3::load),
    ("llama", llama::load),
    ("llama4", llama4::load),
    ("llama4_text", llama4::load_text),
    ("mamba", mamba::load),
    ("mamba2", mamba2::load),
    ("mellum", mellum::load),
    ("mimo", mimo::load),
    ("minicpm", minicpm::load),
    ("minimax_m2", minimax_m2::load),
    ("ministral", ministral::load),
    ("ministral3", ministral3::load),
    ("mistral", mistral::load),
    ("mistral3", mistral3::load),
    ("mistral4", mistral4::load),
    ("mixtral", mixtral::load),
    ("muse_glimmer", muse_glimmer::load),
    ("nemotron", nemotron::load),
    ("nemotron_h", nemotron_h::load),
    ("olmo", olmo::load),
    ("olmo2", olmo2::load),
    ("olmo3", olmo3::load),
    ("olmoe", olmoe::load),
    ("phi", phi::load),
    ("phi3", phi3::load),
    ("phimoe", phimoe::load),
    ("qwen2", qwen2::load),
    ("qwen2_5_vl", qwen2_5_vl::load),
    ("qwen2_moe", qwen2_moe::load),
    ("qwen2_vl", qwen2_vl::load),
    ("qwen3", qwen3::load),
    ("qwen3_5", qwen3_5::load),
    ("qwen3_5_moe", qwen3_5_moe::load),
    ("qwen3_5_moe_text", qwen3_5_moe::load_text),
    ("qwen3_5_text", qwen3_5::load_text),
    ("qwen3_moe", qwen3_moe::load),
    ("qwen3_next", qwen3_next::load),
    ("qwen3_vl", qwen3_vl::load),
    ("qwen3_vl_moe", qwen3_vl_moe::load),
    ("recurrent_gemma", recurrent_gemma::load),
    ("seed_oss", seed_oss::load),
    ("smollm3", smollm3::load),
    ("solar_open", solar_open::load),
    ("stablelm", stablelm::load),
    ("starcoder2", starcoder2::load),
    ("xverse", llama::load),
];

/// The names of the architectures, sorted.
pub(crate) const ARCHITECTURES: [&str; REGISTRY.len()] = {
    let mut names = [""; REGISTRY.len()];
    let mut index = 0;
    while index < REGISTRY.len() {
        names[index] = REGISTRY[index].0;
        index += 1;
    }
    names
};

/// The architecture of `config` with its builder.
pub(super) fn registered(config: &Config) -> Result<(&'static str, Load)> {
    let model_type = model_type(config)?;
    let found = REGISTRY.iter().find(|(name, _)| *name == model_type);
    Ok(*found.expect("`model_type` returns names of the registry only"))
}

/// The architecture's name, where it is one of ours.
///
/// # Errors
/// A config without one, or with another one.
pub(crate) fn model_type(config: &Config) -> Result<&'static str> {
    let name = config
        .opt_text("model_type")?
        .ok_or_else(|| Error::model("config.json: key `model_type` is missing"))?;
    ARCHITECTURES.into_iter().find(|known| *known == name).ok_or_else(|| {
        if encoder_named(name).is_some() {
            return Error::model(format!(
                "config.json: `{name}` generates no text, it encodes texts: use `ml embed`, `ml rerank` or `ml serve --embedding-model`"
            ));
        }
        Error::model(format!(
            "config.json: architecture `{name}` is not known; nearest are {}; known are {}",
            nearest(name, &ARCHITECTURES).join(", "),
            ARCHITECTURES.join(", ")
        ))
    })
}
