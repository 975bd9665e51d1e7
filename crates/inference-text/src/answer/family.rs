//! The families of formats in which models write reasoning and tool calls.

/// How a model family writes reasoning and tool calls.
///
/// All but [`Harmony`](Family::Harmony) write reasoning at the answer's beginning, where they reason:
/// between `<think>` and `</think>` where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// No tool calls.
    Plain,
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, and in it or alone
    /// `<function=NAME><parameter=KEY>VALUE</parameter></function>`.
    Hermes,
    /// `{"name": …, "parameters": {…}}` as the whole answer, several separated by `;`, with or
    /// without `<|python_tag|>`; or `[NAME(KEY=VALUE)]`, also between `<|python_start|>` and
    /// `<|python_end|>`.
    Llama3,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}}]` or `[TOOL_CALLS]NAME[ARGS]{…}`; reasoning
    /// between `[THINK]` and `[/THINK]`.
    Mistral,
    /// `<start_function_call>call:NAME{KEY:VALUE}<end_function_call>`, the same between
    /// `<|tool_call>` and `<tool_call|>`; a block fenced as `tool_code` or `json`; or as the whole
    /// answer JSON or `[NAME(KEY=VALUE)]`; reasoning between `<|channel>thought` and `<channel|>`.
    Gemma,
    /// Channels: `<|channel|>analysis<|message|>…<|end|>`, and a recipient `to=functions.NAME`.
    Harmony,
}
