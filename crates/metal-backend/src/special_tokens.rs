//! The tokens that have a part in a model's format: what `ml info` names.

use inference_core::SpecialToken;
use inference_text::Tokenizer;

/// Marks of known chat formats, by their part. A vocabulary has those of one or two formats.
const MARKS: [(&str, &[&str]); 3] = [
    (
        "turn",
        &[
            "<|im_start|>",
            "<|im_end|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
            "<start_of_turn>",
            "<end_of_turn>",
            "<|turn>",
            "<turn|>",
            "<|user|>",
            "<|assistant|>",
            "<|end|>",
            "<|start|>",
            "<|message|>",
            "<|channel|>",
            "[INST]",
            "[/INST]",
        ],
    ),
    ("reasoning", &["<think>", "</think>", "[THINK]", "[/THINK]", "<|channel>", "<channel|>"]),
    (
        "tool_call",
        &[
            "<tool_call>",
            "</tool_call>",
            "<|tool_call>",
            "<tool_call|>",
            "<start_function_call>",
            "<end_function_call>",
            "<|python_tag|>",
            "[TOOL_CALLS]",
            "<|call|>",
        ],
    ),
];

/// The tokens of `tokenizer` that have a part, in the order of the parts.
pub(crate) fn special_tokens(tokenizer: &Tokenizer) -> Vec<SpecialToken> {
    let spelled = |role, text: &str| {
        let id = tokenizer.token_to_id(text)?;
        Some(SpecialToken { role, id, text: text.to_owned() })
    };
    let named = |role, name| tokenizer.named_token(name).and_then(|text| spelled(role, text));
    let eos = tokenizer.eos_ids().iter().map(|id| {
        let text = tokenizer.id_to_token(*id).unwrap_or_default();
        SpecialToken { role: "eos", id: *id, text }
    });
    let marks =
        MARKS.iter().flat_map(|(role, texts)| texts.iter().filter_map(|text| spelled(role, text)));
    named("bos", "bos_token")
        .into_iter()
        .chain(eos)
        .chain(named("pad", "pad_token"))
        .chain(named("unk", "unk_token"))
        .chain(marks)
        .collect()
}
