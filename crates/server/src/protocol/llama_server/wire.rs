//! Answers as llama.cpp's server writes them.

use inference_core::{GenerateOptions, PrefillProgress};
use serde_json::{Map, Value as Json, json};

use super::error::failure;
use crate::error::ApiError;
use crate::fields::json::number;
use crate::protocol::openai::head::{IDLE, of_progress};
use crate::protocol::timings::{Times, timings};
use crate::protocol::wire::{Frame, Wire};
use crate::run::part::{End, Part, Scored, Spelling, Usage};
use crate::run::said::Said;

/// Writes the answers to `/completion`.
#[derive(Debug)]
pub struct LlamaWire {
    /// Tokens of the model's context.
    pub context: usize,
    /// One for each answer.
    pub answers: Vec<Answer>,
    /// The parts that are told of them.
    pub told: Told,
    /// Used so far.
    pub progress: Usage,
}

/// The parts of an answer that a request asks for.
#[derive(Debug)]
pub struct Told {
    /// The model's name.
    pub model: String,
    /// The times, in each piece of a stream.
    pub times: Times,
    /// The ids of its tokens, where it is told whole.
    pub tokens: bool,
    /// The probabilities of its tokens.
    pub probabilities: bool,
    /// Paths of the fields that its end has; empty for all.
    pub fields: Vec<String>,
}

/// The state of one answer.
#[derive(Debug)]
pub struct Answer {
    prompt: String,
    /// Tokens of the prompt.
    prompt_tokens: usize,
    settings: Json,
    end: Option<End>,
    has_new_line: bool,
    /// Tokens of the answer so far.
    tokens: usize,
}

impl Answer {
    /// The answer to `prompt` of so many tokens, which was asked for with `options`, where `most`
    /// tokens were asked for and `bias` is what tokens have for theirs.
    pub fn new(
        prompt: String,
        prompt_tokens: usize,
        options: &GenerateOptions,
        most: Option<usize>,
        bias: Json,
    ) -> Answer {
        let most = most.map_or(json!(-1), |most| json!(most));
        let settings = json!({
            "n_predict": most,
            "max_tokens": most,
            "temperature": options.temperature.map(number),
            "top_k": options.top_k,
            "top_p": options.top_p.map(number),
            "min_p": options.min_p.map(number),
            "typical_p": options.typical_p.map(number),
            "top_n_sigma": options.top_n_sigma.map(number),
            "dry_multiplier": options.dry.as_ref().map(|dry| number(dry.multiplier)),
            "repeat_penalty": options.repetition_penalty.map(number),
            "presence_penalty": options.presence_penalty.map(number),
            "frequency_penalty": options.frequency_penalty.map(number),
            "seed": options.seed,
            "stop": options.stop,
            "ignore_eos": options.ignore_eos,
            "logit_bias": bias,
            "n_probs": options.top_logprobs,
        });
        Answer { prompt, prompt_tokens, settings, end: None, has_new_line: false, tokens: 0 }
    }
}

impl LlamaWire {
    /// The end of answer `index`, of which `content` is told with it, and of whose request `usage`
    /// is.
    fn last(&self, index: usize, content: &str, usage: Usage) -> Json {
        let answer = &self.answers[index];
        let (stop_type, word) = match &answer.end {
            Some(End::StopText(text)) => ("word", text.as_str()),
            Some(End::Length) => ("limit", ""),
            Some(End::Stop | End::Calls) => ("eos", ""),
            None => ("none", ""),
        };
        // The tokens of one answer are counted with that of its end.
        let tokens = if self.answers.len() == 1 { usage.completion } else { answer.tokens };
        let all = answer.prompt_tokens + tokens;
        let mut settings = answer.settings.clone();
        settings["n_ctx"] = json!(self.context);
        json!({
            "index": index,
            "content": content,
            "tokens": [],
            "id_slot": -1,
            "stop": true,
            "model": self.told.model,
            "tokens_predicted": tokens,
            "tokens_evaluated": answer.prompt_tokens,
            "generation_settings": settings,
            "prompt": answer.prompt,
            "has_new_line": answer.has_new_line,
            "truncated": answer.end == Some(End::Length) && all >= self.context,
            "stop_type": stop_type,
            "stopping_word": word,
            "tokens_cached": all,
            "timings": timings(usage),
        })
    }

    /// The fields of `whole` that the request asks for.
    fn chosen(&self, whole: Json) -> Json {
        if self.told.fields.is_empty() {
            return whole;
        }
        let at = |path: &String| {
            let found = path.split('/').try_fold(&whole, |value, name| value.get(name))?;
            Some((path.clone(), found.clone()))
        };
        Json::Object(self.told.fields.iter().filter_map(at).collect::<Map<_, _>>())
    }
}

/// The probability of a token and of the likeliest ones at its place.
fn probability(scored: &Scored) -> Json {
    let entry = |id: u32, spelling: &Spelling, logprob: f32| {
        let Spelling { text, bytes, .. } = spelling;
        json!({"id": id, "token": text, "bytes": bytes.as_deref().unwrap_or_default(),
            "logprob": number(logprob)})
    };
    let token = &scored.token;
    let mut own = entry(token.id, &scored.own, token.logprob.unwrap_or(f32::NEG_INFINITY));
    let top = token.top_logprobs.iter().zip(&scored.top);
    own["top_logprobs"] = top.map(|(top, own)| entry(top.id, own, top.logprob)).collect();
    own
}

impl Wire for LlamaWire {
    fn begin(&mut self) -> Vec<Frame> {
        Vec::new()
    }

    fn used(&mut self, progress: Usage) {
        self.progress = progress;
    }

    fn read(&mut self, index: usize, progress: PrefillProgress) -> Vec<Frame> {
        let progress = of_progress(progress);
        let piece = json!({"index": index, "content": "", "tokens": [], "stop": false,
            "id_slot": -1, "prompt_progress": progress});
        vec![Frame::Data(piece.to_string())]
    }

    fn say(&mut self, index: usize, parts: Vec<Part>) -> Vec<Frame> {
        let (mut text, mut tokens) = (String::new(), Vec::new());
        let answer = &mut self.answers[index];
        for part in parts {
            match part {
                Part::Text(more) => text.push_str(&more),
                Part::Token(token) => tokens.push(token),
                Part::End(end) => answer.end = Some(end),
                // A prompt is continued as text alone.
                Part::Prompt(_)
                | Part::Reasoning(_)
                | Part::Call { .. }
                | Part::Arguments { .. } => {}
            }
        }
        answer.has_new_line |= text.contains('\n');
        answer.tokens += tokens.len();
        if text.is_empty() && tokens.is_empty() {
            return Vec::new();
        }
        let ids: Vec<u32> = tokens.iter().map(|scored| scored.token.id).collect();
        let mut chunk = json!({"index": index, "content": text, "tokens": ids, "stop": false});
        if self.told.probabilities {
            chunk["completion_probabilities"] = tokens.iter().map(probability).collect();
        }
        if self.told.times == Times::Told {
            chunk["timings"] = timings(self.progress);
        }
        vec![Frame::Data(chunk.to_string())]
    }

    fn end(&mut self, usage: Usage) -> Vec<Frame> {
        let last = |index| Frame::Data(self.chosen(self.last(index, "", usage)).to_string());
        (0..self.answers.len()).map(last).collect()
    }

    fn fail(&self, error: &ApiError) -> Frame {
        failure(error)
    }

    fn idle(&self) -> Frame {
        IDLE
    }

    fn whole(&mut self, answers: Vec<Said>, usage: Usage) -> Json {
        let mut told = Vec::with_capacity(answers.len());
        for (index, said) in answers.into_iter().enumerate() {
            let answer = &mut self.answers[index];
            answer.has_new_line = said.text.contains('\n');
            answer.tokens = said.tokens.len();
            answer.end = said.end;
            let mut whole = self.last(index, &said.text, usage);
            if self.told.tokens {
                whole["tokens"] = said.tokens.iter().map(|scored| scored.token.id).collect();
            }
            if self.told.probabilities {
                whole["completion_probabilities"] = said.tokens.iter().map(probability).collect();
            }
            told.push(self.chosen(whole));
        }
        match told.len() {
            1 => told.remove(0),
            _ => Json::Array(told),
        }
    }
}
