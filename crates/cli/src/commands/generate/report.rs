//! The results and costs of a generation, as JSON for programs.

use inference_core::{Answer, FinishReason, GenerateMetrics, Outcome, TextModel, Token};
use serde::Serialize;

/// The object of `ml generate --json`. Log probabilities are natural logarithms before
/// temperature and filters; one that JSON cannot write (minus infinity) is `null`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The generated text.
    pub text: String,
    /// Its parts, told apart; only for the answer to a conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Parts>,
    /// The prompt as the model saw it.
    pub prompt_token_ids: Vec<u32>,
    /// The generated ids, the one that ended the generation not among them.
    pub token_ids: Vec<u32>,
    /// One for each generated id.
    pub logprobs: Vec<Option<f32>>,
    /// For each generated id the most likely ones, most likely first; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<Vec<Vec<TopLogprob>>>,
    /// For each generated id the whole logits from which it was chosen; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logits: Option<Vec<Vec<f32>>>,
    /// One for each prompt id, the first of which has none; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<Vec<Option<f32>>>,
    /// For each prompt id the most likely ones at its place; only when both are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_top_logprobs: Option<Vec<Vec<TopLogprob>>>,
    /// `stop`, `length` or `cancelled`.
    pub finish_reason: &'static str,
    /// The exact cause, for the reason `stop`.
    pub stop: Option<Stop>,
    /// The seed of the draws, given or chosen.
    pub seed: u64,
    /// True when each token was the most likely one, so that neither the seed nor filters changed
    /// anything.
    pub greedy: bool,
    /// Its costs.
    pub metrics: Metrics,
}

/// The parts of an answer.
#[derive(Debug, Serialize)]
pub struct Parts {
    /// The text of the answer.
    pub content: String,
    /// The reasoning before it.
    pub reasoning: String,
    /// The calls of tools, in order.
    pub tool_calls: Vec<Call>,
}

/// A call of a tool.
#[derive(Debug, Serialize)]
pub struct Call {
    name: String,
    /// The text of a JSON object, as the model wrote it where it wrote JSON.
    arguments: String,
}

impl From<&Answer> for Parts {
    fn from(answer: &Answer) -> Self {
        let call = |call: &inference_core::ToolCall| Call {
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        };
        Parts {
            content: answer.content.clone(),
            reasoning: answer.reasoning.clone(),
            tool_calls: answer.tool_calls.iter().map(call).collect(),
        }
    }
}

/// One of the most likely tokens of a step.
#[derive(Debug, Serialize)]
pub struct TopLogprob {
    id: u32,
    /// Its text alone; missing where it has none by itself, such as a part of a character.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    logprob: f32,
}

/// The cause that stopped a generation.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Stop {
    /// One of the model's own ids.
    EndOfSequence { token_id: u32 },
    /// An id of `--stop-token-id`.
    Token { token_id: u32 },
    /// A text of `--stop`.
    Text { text: String },
}

/// Counts; times in seconds; tokens a second; bytes.
#[derive(Debug, Serialize)]
pub struct Metrics {
    prompt_tokens: usize,
    cached_prompt_tokens: usize,
    generated_tokens: usize,
    draft_tokens: usize,
    accepted_draft_tokens: usize,
    queue_seconds: f64,
    prefill_seconds: f64,
    decode_seconds: f64,
    picture_preparation_seconds: f64,
    picture_tower_seconds: f64,
    total_seconds: f64,
    time_to_first_token_seconds: Option<f64>,
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
    peak_memory_bytes: u64,
    active_memory_bytes: u64,
}

impl Report {
    /// The report of a generation of `prompt_ids` that gave `tokens` and ended with `outcome`, and
    /// told `prompt` of the prompt. The model tells the texts of the most likely tokens, where
    /// `with_top` asks for them.
    pub fn new(
        prompt_ids: &[u32],
        prompt: Option<&[Token]>,
        tokens: &[Token],
        outcome: &Outcome,
        with_top: Option<&dyn TextModel>,
    ) -> Self {
        let all_top = |tokens: &[Token]| -> Option<Vec<Vec<TopLogprob>>> {
            with_top.map(|model| tokens.iter().map(|token| top_logprobs(token, model)).collect())
        };
        Report {
            text: tokens.iter().map(|token| token.text.as_str()).collect(),
            answer: None,
            prompt_token_ids: prompt_ids.to_vec(),
            token_ids: tokens.iter().map(|token| token.id).collect(),
            logprobs: tokens.iter().map(|token| token.logprob).collect(),
            top_logprobs: all_top(tokens),
            logits: tokens.iter().any(|token| token.logits.is_some()).then(|| {
                tokens.iter().map(|token| token.logits.clone().unwrap_or_default()).collect()
            }),
            prompt_logprobs: prompt
                .map(|prompt| prompt.iter().map(|token| token.logprob).collect()),
            prompt_top_logprobs: prompt.and_then(all_top),
            finish_reason: outcome.finish_reason.as_str(),
            stop: stop(&outcome.finish_reason),
            seed: outcome.seed,
            greedy: outcome.greedy,
            metrics: Metrics::from(&outcome.metrics),
        }
    }
}

fn top_logprobs(token: &Token, model: &dyn TextModel) -> Vec<TopLogprob> {
    let one = |top: &inference_core::TokenLogprob| TopLogprob {
        id: top.id,
        token: model
            .decode(&[top.id])
            .ok()
            .filter(|text| !text.is_empty() && !text.contains(char::REPLACEMENT_CHARACTER)),
        logprob: top.logprob,
    };
    token.top_logprobs.iter().map(one).collect()
}

fn stop(reason: &FinishReason) -> Option<Stop> {
    match reason {
        FinishReason::EndOfSequence(id) => Some(Stop::EndOfSequence { token_id: *id }),
        FinishReason::StopToken(id) => Some(Stop::Token { token_id: *id }),
        FinishReason::StopText(text) => Some(Stop::Text { text: text.clone() }),
        FinishReason::Length | FinishReason::Cancelled => None,
    }
}

impl From<&GenerateMetrics> for Metrics {
    fn from(metrics: &GenerateMetrics) -> Self {
        Metrics {
            prompt_tokens: metrics.prompt_tokens,
            cached_prompt_tokens: metrics.cached_prompt_tokens,
            generated_tokens: metrics.generated_tokens,
            draft_tokens: metrics.draft_tokens,
            accepted_draft_tokens: metrics.accepted_draft_tokens,
            queue_seconds: metrics.queue_duration.as_secs_f64(),
            prefill_seconds: metrics.prefill_duration.as_secs_f64(),
            decode_seconds: metrics.decode_duration.as_secs_f64(),
            picture_preparation_seconds: metrics.picture_preparation.as_secs_f64(),
            picture_tower_seconds: metrics.picture_tower.as_secs_f64(),
            total_seconds: metrics.total_duration.as_secs_f64(),
            time_to_first_token_seconds: metrics.time_to_first_token.map(|t| t.as_secs_f64()),
            prefill_tokens_per_second: metrics.prefill_tokens_per_second(),
            decode_tokens_per_second: metrics.decode_tokens_per_second(),
            peak_memory_bytes: metrics.peak_memory_bytes,
            active_memory_bytes: metrics.active_memory_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use fake_model::{FakeModel, Line};
    use inference_core::{FinishReason, GenerateOptions, Prompt, TextModel};
    use serde_json::json;

    use super::Report;
    use crate::streaming;

    fn report(model: &FakeModel, options: &GenerateOptions) -> serde_json::Value {
        let mut generation = model.generate(&Prompt::from("abc"), options).unwrap();
        let mut tokens = Vec::new();
        let outcome = streaming::read(&mut generation, |token| {
            tokens.push(token);
            Ok(())
        })
        .unwrap();
        let top = (options.top_logprobs > 0).then_some(model as &dyn TextModel);
        let prompt = generation.take_prompt_logprobs();
        let ids = generation.prompt_ids();
        serde_json::to_value(Report::new(ids, prompt.as_deref(), &tokens, &outcome, top)).unwrap()
    }

    #[test]
    fn the_object_has_every_field() {
        let model = FakeModel::lines([Line::of(&["Hi", "!"])]);
        let options = GenerateOptions { logprobs: true, seed: Some(3), ..Default::default() };
        assert_eq!(
            report(&model, &options),
            json!({
                "text": "Hi!",
                "prompt_token_ids": [97, 98, 99],
                "token_ids": [1000, 1001],
                "logprobs": [-3.25, -3.25],
                "finish_reason": "stop",
                "stop": {"type": "end_of_sequence", "token_id": 2},
                "seed": 3,
                "greedy": true,
                "metrics": {
                    "prompt_tokens": 3,
                    "cached_prompt_tokens": 1,
                    "generated_tokens": 2,
                    "draft_tokens": 0,
                    "accepted_draft_tokens": 0,
                    "queue_seconds": 0.0,
                    "prefill_seconds": 0.5,
                    "decode_seconds": 0.25,
                    "picture_preparation_seconds": 0.0,
                    "picture_tower_seconds": 0.0,
                    "total_seconds": 0.75,
                    "time_to_first_token_seconds": 0.5,
                    "prefill_tokens_per_second": 4.0,
                    "decode_tokens_per_second": 4.0,
                    "peak_memory_bytes": 3 << 20,
                    "active_memory_bytes": 1 << 20,
                },
            })
        );
    }

    #[test]
    fn top_logprobs_are_there_when_asked_for() {
        let model = FakeModel::lines([Line::of(&["Hi"])]);
        let options = GenerateOptions { logprobs: true, top_logprobs: 2, ..Default::default() };
        assert_eq!(
            report(&model, &options)["top_logprobs"],
            json!([[
                {"id": 1000, "token": "Ϩ", "logprob": -0.25},
                {"id": 1001, "token": "ϩ", "logprob": -1.25},
            ]])
        );
    }

    #[test]
    fn whole_logits_are_there_when_asked_for() {
        let options = GenerateOptions { logits: true, ..Default::default() };
        let found = report(&FakeModel::lines([Line::of(&["Hi", "!"])]), &options);
        assert_eq!(found["logits"], json!([[-0.25, 0.5], [-0.25, 0.5]]));
    }

    #[test]
    fn the_prompt_is_told_of_when_asked_for() {
        let options = GenerateOptions { prompt_logprobs: true, ..Default::default() };
        let plain = report(&FakeModel::lines([Line::of(&["Hi"])]), &options);
        assert_eq!(plain["prompt_logprobs"], json!([null, -0.5, -1.0]));
        assert_eq!(plain.get("prompt_top_logprobs"), None);
        let options = GenerateOptions { top_logprobs: 1, ..options };
        let top = report(&FakeModel::lines([Line::of(&["Hi"])]), &options);
        let entry = |id, token, logprob| json!([{"id": id, "token": token, "logprob": logprob}]);
        let entries = json!([[], entry(98, "b", -0.5), entry(99, "c", -1.0)]);
        assert_eq!(top["prompt_top_logprobs"], entries);
    }

    #[test]
    fn the_end_is_told_exactly() {
        let end = |reason| Line { end: Ok(reason), ..Line::of(&["a"]) };
        let model = FakeModel::lines([
            end(FinishReason::StopText("\n".into())),
            end(FinishReason::StopToken(4)),
            end(FinishReason::Length),
            end(FinishReason::Cancelled),
        ]);
        let next = || {
            let report = report(&model, &GenerateOptions::default());
            (report["finish_reason"].clone(), report["stop"].clone())
        };
        assert_eq!(next(), (json!("stop"), json!({"type": "text", "text": "\n"})));
        assert_eq!(next(), (json!("stop"), json!({"type": "token", "token_id": 4})));
        assert_eq!(next(), (json!("length"), json!(null)));
        assert_eq!(next(), (json!("cancelled"), json!(null)));
    }
}
