//! `ml info`: what a model is and what it honours.

mod computed;
mod embedding;
mod speech;
mod transcription;

use inference_core::{
    Capabilities, ImageLoadOptions, ImageModelInfo, LoadOptions, ModelInfo, Packing, SpecialToken,
    Support,
};
use serde::Serialize;

use crate::args::InfoArgs;
use crate::bytes;
use crate::failure::{Failure, Result};
use crate::output::{one_line, print, print_json, printable};
use crate::source::Source;
use computed::computes_in;
pub use embedding::{EmbeddingFacts, quantization as embedding_quantization};
pub use speech::SpeechFacts;
pub use transcription::{TranscriptionFacts, quantization as transcription_quantization};

/// Describes the model that `args` name.
///
/// # Errors
/// Bad options, a folder that is no usable model.
pub fn run(args: &InfoArgs) -> Result<()> {
    let options = args.options()?;
    let source = Source::of(args.model.as_deref())?;
    if let Some(folder) = source.image_folder() {
        let info = metal_backend::describe_image_model(folder, &image_options(&options)?)?;
        let facts = ImageFacts::from(&info);
        return match args.json {
            true => print_json(&ImageDescription { model: source.name(), facts }),
            false => print(&printable(&image_text(&source.name(), &info))),
        };
    }
    if let Some(folder) = source.embedding_folder() {
        return embedding::describe(source.name(), folder, &options, args.json);
    }
    if let Some(folder) = source.transcription_folder() {
        return transcription::describe(source.name(), folder, &options, args.json);
    }
    if let Some(folder) = source.speech_folder() {
        return speech::describe(source.name(), folder, &options, args.json);
    }
    let (info, capabilities) = source.describe(&options)?;
    if args.json {
        return print_json(&Description::new(source.name(), &info, &capabilities));
    }
    print(&printable(&text(&source.name(), &info, &capabilities)))
}

/// The options of an image model's load.
///
/// # Errors
/// Options that say nothing of one.
fn image_options(options: &LoadOptions) -> Result<ImageLoadOptions> {
    let LoadOptions { backend, dtype, .. } = options.clone();
    let told = LoadOptions { backend, dtype, ..LoadOptions::default() };
    if *options != told {
        let reason =
            "this is an image model: of the model's options --backend and --dtype concern it";
        return Err(Failure::Usage(reason.into()));
    }
    let LoadOptions { backend, dtype, .. } = told;
    Ok(ImageLoadOptions { backend, dtype, ..ImageLoadOptions::default() })
}

/// The object of `--json` for an image model.
#[derive(Serialize)]
struct ImageDescription {
    model: String,
    #[serde(flatten)]
    facts: ImageFacts,
}

/// Facts of an image model, here and in a list.
#[derive(Serialize)]
pub struct ImageFacts {
    pipeline: String,
    parameters: u64,
    weight_bytes: u64,
    components: Vec<Component>,
    /// `null` when unquantised.
    quantization_bits: Option<usize>,
    dtype: String,
    device: String,
    default_side: usize,
    sides_are_multiples_of: usize,
    default_steps: usize,
    default_guidance: f32,
    min_input_images: usize,
    max_input_images: usize,
}

#[derive(Serialize)]
struct Component {
    name: String,
    class: String,
    parameters: u64,
    weight_bytes: u64,
}

impl From<&ImageModelInfo> for ImageFacts {
    fn from(info: &ImageModelInfo) -> Self {
        let component = |part: &inference_core::ImageComponent| Component {
            name: part.name.clone(),
            class: part.class.clone(),
            parameters: part.num_parameters,
            weight_bytes: part.weight_bytes,
        };
        ImageFacts {
            pipeline: info.pipeline.clone(),
            parameters: info.components.iter().map(|part| part.num_parameters).sum(),
            weight_bytes: info.components.iter().map(|part| part.weight_bytes).sum(),
            components: info.components.iter().map(component).collect(),
            quantization_bits: (info.quant_bits > 0).then_some(info.quant_bits),
            dtype: info.dtype.clone(),
            device: info.device.clone(),
            default_side: info.default_side,
            sides_are_multiples_of: info.multiple,
            default_steps: info.default_steps,
            default_guidance: info.default_guidance,
            min_input_images: info.min_images,
            max_input_images: info.max_images,
        }
    }
}

fn image_text(name: &str, info: &ImageModelInfo) -> String {
    let quantisation = match info.quant_bits {
        0 => format!("none, {}", info.dtype),
        bits => format!("{bits} bits"),
    };
    let inputs = match (info.min_images, info.max_images) {
        (_, 0) => "none".to_owned(),
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    let rows = [
        ("model", name.to_owned()),
        ("pipeline", info.pipeline.clone()),
        ("quantisation", quantisation),
        ("computes in", format!("{} on {}", info.dtype, info.device)),
        ("sides", format!("{}, or other multiples of {}", info.default_side, info.multiple)),
        ("steps", info.default_steps.to_string()),
        ("guidance", info.default_guidance.to_string()),
        ("input images", inputs),
    ];
    let mut text: String =
        rows.iter().map(|(label, value)| format!("{label:<15}{}\n", one_line(value))).collect();
    text += "components\n";
    for part in &info.components {
        let size = match part.weight_bytes {
            0 => String::new(),
            size => {
                let parameters = bytes::parameters(part.num_parameters);
                format!(", {parameters} parameters in {}", bytes::human(size))
            }
        };
        text += &format!("  {:<14}{}{size}\n", part.name, part.class);
    }
    text
}

/// The object of `--json`.
#[derive(Serialize)]
struct Description {
    model: String,
    #[serde(flatten)]
    facts: Facts,
    capabilities: Vec<Capability>,
}

/// Facts of a model for text, here and in a list.
#[derive(Serialize)]
pub struct Facts {
    architecture: String,
    parameters: u64,
    vocab_size: usize,
    num_layers: usize,
    hidden_size: usize,
    /// The way in which most weights are packed; `null` when unquantised.
    quantization: Option<Quantization>,
    /// All ways, that of most weights first.
    quantizations: Vec<Quantization>,
    context_length: usize,
    kv_bytes_per_token: u64,
    weight_bytes: u64,
    /// The format of the files: `safetensors`, `gguf` or `pytorch`; empty where it is unknown.
    weight_format: String,
    dtype: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_place_of: Option<String>,
    device: String,
    /// Parts of the checkpoint that the model does not use.
    unused_parts: Vec<String>,
    tokenizer: String,
    chat_template: String,
    eos_token_ids: Vec<u32>,
    special_tokens: Vec<Special>,
}

#[derive(Serialize)]
struct Special {
    role: &'static str,
    id: u32,
    text: String,
}

#[derive(Serialize)]
struct Quantization {
    mode: String,
    bits: usize,
    group_size: usize,
    parameters: u64,
}

impl From<&Packing> for Quantization {
    fn from(packing: &Packing) -> Self {
        let Packing { mode, bits, group_size, parameters } = packing.clone();
        Quantization { mode, bits, group_size, parameters }
    }
}

#[derive(Serialize)]
struct Capability {
    feature: &'static str,
    supported: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<&ModelInfo> for Facts {
    fn from(info: &ModelInfo) -> Self {
        Facts {
            architecture: info.architecture.clone(),
            parameters: info.num_parameters,
            vocab_size: info.vocab_size,
            num_layers: info.num_layers,
            hidden_size: info.hidden_size,
            quantization: info.packings.first().map(Quantization::from),
            quantizations: info.packings.iter().map(Quantization::from).collect(),
            context_length: info.context_length,
            kv_bytes_per_token: info.kv_bytes_per_token,
            weight_bytes: info.weight_bytes,
            weight_format: info.stored_as.format.clone(),
            dtype: info.dtype.clone(),
            in_place_of: info.in_place_of.clone(),
            device: info.device.clone(),
            unused_parts: info.unused_parts.clone(),
            tokenizer: info.tokenizer.clone(),
            chat_template: info.chat_template.clone(),
            eos_token_ids: info.eos_token_ids.clone(),
            special_tokens: info.special_tokens.iter().map(Special::from).collect(),
        }
    }
}

impl From<&SpecialToken> for Special {
    fn from(token: &SpecialToken) -> Self {
        Special { role: token.role, id: token.id, text: token.text.clone() }
    }
}

impl Description {
    fn new(model: String, info: &ModelInfo, capabilities: &Capabilities) -> Self {
        let capabilities = capabilities
            .iter()
            .map(|(feature, support)| Capability {
                feature: feature.as_str(),
                supported: *support == Support::Yes,
                reason: match support {
                    Support::Yes => None,
                    Support::No(reason) => Some(reason.clone()),
                },
            })
            .collect();
        Description { model, facts: Facts::from(info), capabilities }
    }
}

/// `4 bits in groups of 64` or `mxfp4`, or the type of unquantised weights; of most weights, where
/// there are several.
pub fn quantization(info: &ModelInfo) -> String {
    match info.packings.as_slice() {
        [] => format!("none, {}", info.dtype),
        [only] => way(only),
        [first, ..] => format!("{} and others", way(first)),
    }
}

/// The size of the weights and the format of their files.
fn weights(info: &ModelInfo) -> String {
    let size = bytes::human(info.weight_bytes);
    match info.stored_as.format.as_str() {
        "" => size,
        "pytorch" => format!("{size}, pickled by PyTorch"),
        format => format!("{size} in {format}"),
    }
}

/// All ways with their parts of the packed weights.
fn quantizations(info: &ModelInfo) -> String {
    if info.packings.len() < 2 {
        return quantization(info);
    }
    let all: u64 = info.packings.iter().map(|packing| packing.parameters).sum();
    let part = |packing: &Packing| match packing.parameters as f64 / all as f64 * 100.0 {
        part if part < 1.0 => format!("{} (under 1 %)", way(packing)),
        part => format!("{} ({part:.0} %)", way(packing)),
    };
    info.packings.iter().map(part).collect::<Vec<_>>().join(", ")
}

fn way(packing: &Packing) -> String {
    match packing.mode.as_str() {
        "affine" => format!("{} bits in groups of {}", packing.bits, packing.group_size),
        mode => mode.to_owned(),
    }
}

/// Describes the bytes of a position's keys and values. Nothing grows where no layer keeps all
/// positions.
fn kv_cache(bytes_per_token: u64) -> String {
    match bytes_per_token {
        0 => "of one size, whatever the length".to_owned(),
        bytes => format!("{} per token", bytes::human(bytes)),
    }
}

fn text(name: &str, info: &ModelInfo, capabilities: &Capabilities) -> String {
    let unused = match info.unused_parts.as_slice() {
        [] => "nothing".to_owned(),
        parts => parts.join(", "),
    };
    let rows = [
        ("model", name.to_owned()),
        ("architecture", info.architecture.clone()),
        ("parameters", bytes::parameters(info.num_parameters)),
        ("layers", format!("{} of width {}", info.num_layers, info.hidden_size)),
        ("vocabulary", info.vocab_size.to_string()),
        ("quantisation", quantizations(info)),
        ("weights", weights(info)),
        ("computes in", computes_in(info)),
        ("context", format!("{} tokens", info.context_length)),
        ("KV cache", kv_cache(info.kv_bytes_per_token)),
        ("left aside", unused),
        ("tokenizer", info.tokenizer.clone()),
        ("chat template", info.chat_template.clone()),
    ];
    let mut text: String =
        rows.iter().map(|(label, value)| format!("{label:<15}{}\n", one_line(value))).collect();
    text += "special tokens\n";
    for (role, tokens) in by_role(&info.special_tokens) {
        text += &format!("  {role:<13}{tokens}\n");
    }
    text += "capabilities\n";
    for (feature, support) in capabilities.iter() {
        let support = match support {
            Support::Yes => "yes".to_owned(),
            Support::No(reason) => format!("no: {reason}"),
        };
        text += &format!("  {:<19}{support}\n", feature.as_str());
    }
    text
}

/// The tokens of each part on a line: `2 <|im_end|>, 0 <|endoftext|>`. Where no token ends a
/// generation, that is said.
fn by_role(tokens: &[SpecialToken]) -> Vec<(&'static str, String)> {
    let mut roles: Vec<(&str, String)> = Vec::new();
    if tokens.iter().all(|token| token.role != "eos") {
        roles.push(("eos", "none".to_owned()));
    }
    for token in tokens {
        let told = format!("{} {}", token.id, token.text);
        match roles.iter_mut().find(|(role, _)| *role == token.role) {
            Some((_, tokens)) => *tokens += &format!(", {told}"),
            None => roles.push((token.role, told)),
        }
    }
    roles
}

#[cfg(test)]
mod tests {
    use inference_core::{
        Capabilities, Feature, ModelInfo, Packing, SpecialToken, StoredAs, Support,
    };
    use serde_json::json;

    use super::{Description, quantization, text};

    fn token(role: &'static str, id: u32, text: &str) -> SpecialToken {
        SpecialToken { role, id, text: text.into() }
    }

    fn packing(mode: &str, bits: usize, group_size: usize, parameters: u64) -> Packing {
        Packing { mode: mode.into(), bits, group_size, parameters }
    }

    fn example() -> (ModelInfo, Capabilities) {
        let info = ModelInfo {
            architecture: "qwen3".into(),
            vocab_size: 4096,
            num_layers: 8,
            hidden_size: 256,
            quant_bits: 4,
            quant_group: 64,
            packings: vec![packing("affine", 4, 64, 6_000_000)],
            context_length: 2048,
            num_parameters: 7_350_000,
            weight_bytes: 4 << 20,
            stored_as: StoredAs { format: "pytorch".into(), ..StoredAs::default() },
            kv_bytes_per_token: 4096,
            dtype: "bf16".into(),
            device: "cpu".into(),
            eos_token_ids: vec![2, 0],
            special_tokens: vec![
                token("bos", 1, "<s>"),
                token("eos", 2, "</s>"),
                token("eos", 0, "<|end|>"),
                token("reasoning", 7, "<think>"),
            ],
            unused_parts: vec!["vision tower".into(), "MTP layers".into()],
            tokenizer: "tiktoken (`qwen.tiktoken`)".into(),
            chat_template: "chat_template.jinja".into(),
            ..ModelInfo::default()
        };
        let capabilities = Capabilities::new(vec![
            (Feature::Chat, Support::Yes),
            (Feature::KvBits, Support::No("to come".into())),
        ]);
        (info, capabilities)
    }

    #[test]
    fn the_object_names_what_is_refused_and_why() {
        let (info, capabilities) = example();
        let object =
            serde_json::to_value(Description::new("m".into(), &info, &capabilities)).unwrap();
        assert_eq!(object["model"], "m");
        let packing =
            json!({"mode": "affine", "bits": 4, "group_size": 64, "parameters": 6_000_000});
        assert_eq!(object["quantization"], packing);
        assert_eq!(object["quantizations"], json!([packing]));
        assert_eq!(object["kv_bytes_per_token"], 4096);
        assert_eq!(object["eos_token_ids"], json!([2, 0]));
        assert_eq!(object["special_tokens"][0], json!({"role": "bos", "id": 1, "text": "<s>"}));
        assert_eq!(object["unused_parts"], json!(["vision tower", "MTP layers"]));
        assert_eq!(
            object["capabilities"],
            json!([
                {"feature": "chat", "supported": true},
                {"feature": "kv_bits", "supported": false, "reason": "to come"},
            ])
        );
    }

    #[test]
    fn all_ways_of_packing_are_told() {
        let (mut info, capabilities) = example();
        info.packings.insert(0, packing("mxfp4", 4, 32, 90_000_000));
        info.packings.push(packing("affine", 8, 64, 40_000));
        let told = text("m", &info, &capabilities);
        let line = "quantisation   mxfp4 (94 %), 4 bits in groups of 64 (6 %), 8 bits in groups of 64 (under 1 %)\n";
        assert!(told.contains(line), "{told}");
        assert_eq!(quantization(&info), "mxfp4 and others");
        info.packings.clear();
        assert_eq!(quantization(&info), "none, bf16");
    }

    #[test]
    fn a_model_without_end_is_told() {
        assert_eq!(super::by_role(&[]), [("eos", "none".to_owned())]);
    }

    #[test]
    fn the_text_has_a_line_for_each_fact() {
        let (info, capabilities) = example();
        let text = text("m", &info, &capabilities);
        for line in [
            "architecture   qwen3\n",
            "parameters     7.3M\n",
            "quantisation   4 bits in groups of 64\n",
            "weights        4.0 MiB, pickled by PyTorch\n",
            "KV cache       4.0 KiB per token\n",
            "left aside     vision tower, MTP layers\n",
            "special tokens\n  bos          1 <s>\n  eos          2 </s>, 0 <|end|>\n",
            "  reasoning    7 <think>\n",
            "  chat               yes\n",
            "  kv_bits            no: to come\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }
}
