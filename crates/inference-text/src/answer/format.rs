//! The parts of each family's format.

use super::family::Family;
use super::header::{DEEPSEEK, KIMI, MISTRAL, Names};
use super::tags::{ATEM, CODER, INVOKE, SEED, Tags};
use crate::reasoning::Begun;

/// An opening and a closing mark.
pub type Pair = (&'static str, &'static str);

/// How a possible call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The mark; empty where a call is the whole answer.
    pub mark: &'static str,
    pub kind: Kind,
    /// The mark that ends it, which may be missing.
    pub close: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An object or an array of JSON.
    Json,
    /// JSON, an element of Qwen 3 Coder, or one of GLM.
    Hermes,
    /// An element whose beginning is the mark.
    Element(&'static Tags),
    /// Elements, or JSON.
    Elements(&'static Tags),
    /// JSON, or a list of calls in Python.
    JsonOrList,
    /// Names with their arguments, or JSON.
    Named(&'static Names),
    /// Statements in Python, or JSON.
    Python,
    /// `call:NAME{…}`, with this around strings, or JSON.
    Gemma(&'static str),
}

const THINK: Pair = ("<think>", "</think>");

const fn opening(mark: &'static str, kind: Kind, close: &'static str) -> Opening {
    Opening { mark, kind, close }
}

/// A call without a mark, for families whose calls may be the whole answer.
pub const UNMARKED: Opening = opening("", Kind::JsonOrList, "");

/// A further call after one, for families that separate them so.
pub const SEPARATED: Opening = opening(";", Kind::JsonOrList, "");

const HERMES: &[Opening] = &[
    opening("<tool_call>", Kind::Hermes, "</tool_call>"),
    opening("<function=", Kind::Element(&CODER), "</tool_call>"),
];
const SEED_OSS: &[Opening] =
    &[opening("<seed:tool_call>", Kind::Elements(&SEED), "</seed:tool_call>")];
const MINIMAX: &[Opening] =
    &[opening("<minimax:tool_call>", Kind::Elements(&INVOKE), "</minimax:tool_call>")];
const KIMI_K2: &[Opening] = &[
    opening("<|tool_calls_section_begin|>", Kind::Named(&KIMI), "<|tool_calls_section_end|>"),
    opening("<|tool_call_section_begin|>", Kind::Named(&KIMI), "<|tool_call_section_end|>"),
];
const DEEPSEEK_V3: &[Opening] =
    &[opening("<｜tool▁calls▁begin｜>", Kind::Named(&DEEPSEEK), "<｜tool▁calls▁end｜>")];
const GRANITE: &[Opening] = &[opening("<|tool_call|>", Kind::Json, "<|/tool_call|>")];
const NEMOTRON: &[Opening] = &[opening("<TOOLCALL>", Kind::Json, "</TOOLCALL>")];
const TOOL_CALLS_LIST: &[Opening] = &[opening("<tool_calls>", Kind::Json, "</tool_calls>")];
const COHERE: &[Opening] = &[opening("<|START_ACTION|>", Kind::Json, "<|END_ACTION|>")];
const LFM: &[Opening] = &[opening("<|tool_call_start|>", Kind::Python, "<|tool_call_end|>")];
const OLMO: &[Opening] = &[opening("<function_calls>", Kind::Python, "</function_calls>")];
const LLAMA: &[Opening] = &[
    opening("<|python_tag|>", Kind::JsonOrList, ""),
    opening("<|python_start|>", Kind::JsonOrList, "<|python_end|>"),
];
const TOOL_CALLS: &[Opening] = &[opening("[TOOL_CALLS]", Kind::Named(&MISTRAL), "")];
const FUNCTION_GEMMA: Opening =
    opening("<start_function_call>", Kind::Gemma("<escape>"), "<end_function_call>");
const GEMMA_4: Opening = opening("<|tool_call>", Kind::Gemma("<|\"|>"), "<tool_call|>");
const GEMMA: &[Opening] = &[
    FUNCTION_GEMMA,
    GEMMA_4,
    opening("```tool_code", Kind::Python, "```"),
    opening("```json", Kind::JsonOrList, "```"),
];
/// A message to a tool of Muse.
pub const FUNCTION_CALLS: Opening =
    opening("<atem:function_calls>", Kind::Elements(&ATEM), "</atem:function_calls>");

/// The openings of a family that have a mark. The first is what the model writes.
pub fn openings(family: Family) -> &'static [Opening] {
    match family {
        Family::Plain | Family::Harmony | Family::Muse => &[],
        Family::Hermes | Family::Ernie | Family::Coder | Family::Glm => HERMES,
        Family::Seed => SEED_OSS,
        Family::MiniMax => MINIMAX,
        Family::Kimi => KIMI_K2,
        Family::DeepSeek | Family::DeepSeek31 => DEEPSEEK_V3,
        Family::Granite => GRANITE,
        Family::Nemotron => NEMOTRON,
        Family::Hunyuan | Family::Apriel => TOOL_CALLS_LIST,
        Family::Cohere => COHERE,
        Family::Lfm => LFM,
        Family::Olmo => OLMO,
        Family::Llama3 => LLAMA,
        Family::Mistral => TOOL_CALLS,
        Family::Gemma => GEMMA,
        Family::FunctionGemma => &[FUNCTION_GEMMA],
        Family::Gemma4 => &[GEMMA_4],
    }
}

/// Returns true for a family in which a call without a mark may be the whole answer.
pub fn calls_without_mark(family: Family) -> bool {
    matches!(family, Family::Llama3 | Family::Gemma)
}

/// The marks of reasoning.
pub fn reasoning_marks(family: Family) -> &'static [Pair] {
    match family {
        Family::Mistral => &[("[THINK]", "[/THINK]"), THINK],
        Family::Gemma | Family::Gemma4 => &[("<|channel>thought", "<channel|>"), THINK],
        Family::Seed => &[("<seed:think>", "</seed:think>")],
        Family::Cohere => &[("<|START_THINKING|>", "<|END_THINKING|>")],
        Family::Apriel => &[("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")],
        _ => &[THINK],
    }
}

/// Returns the state in which the end of a prompt leaves the reasoning of its answer.
pub fn begun_reasoning(family: Family, prompt_text: &str) -> Begun<'static> {
    Begun::of(prompt_text, reasoning_marks(family).iter().copied())
}

/// The marks around an answer, which say nothing.
pub fn answer_marks(family: Family) -> Option<Pair> {
    match family {
        Family::Ernie => Some(("<response>", "</response>")),
        Family::Hunyuan => Some(("<answer>", "</answer>")),
        Family::Cohere => Some(("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
        _ => None,
    }
}
