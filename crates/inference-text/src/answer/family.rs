//! The families of formats in which models write reasoning and tool calls.

/// How a model family writes reasoning and tool calls.
///
/// All but [`Harmony`](Family::Harmony) and [`Muse`](Family::Muse) write reasoning at the answer's
/// beginning, where they reason: between `<think>` and `</think>` where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// No tool calls.
    Plain,
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Qwen 2.5 and 3, Granite 4, EXAONE 4.
    Hermes,
    /// Like Hermes, with the answer between `<response>` and `</response>`: ERNIE 4.5.
    Ernie,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`, also
    /// without the outer marks: Qwen 3 Coder, Qwen 3.5, Nemotron 3.
    Coder,
    /// `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`: GLM 4.5 to
    /// 4.7, Laguna.
    Glm,
    /// `<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></seed:tool_call>`;
    /// reasoning between `<seed:think>` and `</seed:think>`.
    Seed,
    /// `<minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>
    /// </minimax:tool_call>`, with several `invoke` for several calls.
    MiniMax,
    /// `<|tool_calls_section_begin|>`, for each call `<|tool_call_begin|>functions.NAME:INDEX
    /// <|tool_call_argument_begin|>{…}<|tool_call_end|>`, and `<|tool_calls_section_end|>`.
    Kimi,
    /// `<｜tool▁calls▁begin｜>`, for each call `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, a
    /// fenced block of JSON and `<｜tool▁call▁end｜>`, and `<｜tool▁calls▁end｜>`: DeepSeek V3 and R1.
    DeepSeek,
    /// DeepSeek V3.1: the marks of V3, with `NAME<｜tool▁sep｜>{…}` for a call.
    DeepSeek31,
    /// `<|tool_call|>[{"name": …, "arguments": {…}}]`: Granite 3, Phi 4 mini.
    Granite,
    /// `<TOOLCALL>[{"name": …, "arguments": {…}}]</TOOLCALL>`: Nemotron Nano 2.
    Nemotron,
    /// `<tool_calls>[{"name": …, "arguments": {…}}]</tool_calls>`, with the answer between
    /// `<answer>` and `</answer>`.
    Hunyuan,
    /// `<tool_calls>[{"name": …, "arguments": {…}}]</tool_calls>`; reasoning between `Here are my
    /// reasoning steps:` and `[BEGIN FINAL RESPONSE]`: Apriel 1.5 and 1.6.
    Apriel,
    /// `<|START_ACTION|>[{"tool_name": …, "parameters": {…}}]<|END_ACTION|>`, with the answer
    /// between `<|START_RESPONSE|>` and `<|END_RESPONSE|>`, and reasoning between
    /// `<|START_THINKING|>` and `<|END_THINKING|>`.
    Cohere,
    /// `<|tool_call_start|>[NAME(KEY=VALUE)]<|tool_call_end|>`: LFM 2.
    Lfm,
    /// `<function_calls>`, calls in Python, one a line, and `</function_calls>`: OLMo 3.
    Olmo,
    /// `{"name": …, "parameters": {…}}` as the whole answer, several separated by `;`, with or
    /// without `<|python_tag|>`; or `[NAME(KEY=VALUE)]`, also between `<|python_start|>` and
    /// `<|python_end|>`.
    Llama3,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}}]` or `[TOOL_CALLS]NAME[ARGS]{…}`; reasoning
    /// between `[THINK]` and `[/THINK]`.
    Mistral,
    /// A block fenced as `tool_code` or `json`, or as the whole answer JSON or `[NAME(KEY=VALUE)]`:
    /// Gemma 3. The marks of the two below are read too.
    Gemma,
    /// `<start_function_call>call:NAME{KEY:VALUE}<end_function_call>`.
    FunctionGemma,
    /// `<|tool_call>call:NAME{KEY:VALUE}<tool_call|>`; reasoning between `<|channel>thought` and
    /// `<channel|>`.
    Gemma4,
    /// Channels: `<|channel|>analysis<|message|>…<|end|>`, and a recipient `to=functions.NAME`.
    Harmony,
    /// Messages with a recipient, `to=self<|message|>…<|eom|>`; a call is a message to the tool
    /// that has `<atem:invoke name="NAME"><atem:parameter
    /// name="KEY">VALUE</atem:parameter></atem:invoke>`.
    Muse,
}
