//! A completion's answers: text and log probabilities.

use inference_core::PrefillProgress;
use serde_json::{Value as Json, json};

use super::head::{Head, IDLE, failure, finish_reason};
use super::logprobs::{OfCompletion, Place};
use crate::error::ApiError;
use crate::protocol::wire::{Frame, Wire};
use crate::run::part::{Part, Scored, Usage};
use crate::run::said::Said;

/// Writes a completion's answers.
pub struct CompletionWire {
    /// The fields that every object begins with.
    pub head: Head,
    /// One for each generation.
    pub answers: Vec<Answer>,
    /// How many answers are generated to each prompt.
    pub best_of: usize,
    /// How many of them, the likeliest, are told.
    pub n: usize,
    /// Log probabilities are reported.
    pub logprobs: bool,
}

/// The state of one answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The prompt, where the answer begins with it and its tokens are not told.
    pub echo: String,
    /// The place of the next token that is told. Like OpenAI's, an answer's own tokens begin behind
    /// the prompt, also where that is not told.
    pub place: Place,
}

/// The `object` of all of it.
const OBJECT: &str = "text_completion";

impl CompletionWire {
    /// The lists of the tokens of a prompt and of an answer, the first of which begins at `place`;
    /// it goes behind them.
    fn lists(&self, prompt: &[Scored], tokens: &[Scored], place: &mut Place) -> Json {
        if !self.logprobs {
            return Json::Null;
        }
        let mut lists = OfCompletion::default();
        prompt.iter().for_each(|scored| lists.push(scored, place.pass_prompt(scored)));
        tokens.iter().for_each(|scored| lists.push(scored, place.pass(scored)));
        lists.into_json()
    }

    fn choice(&self, index: usize, generation: usize, said: &Said) -> Json {
        let Answer { echo, place } = &self.answers[generation];
        let prompt: String = said.prompt.iter().map(|scored| scored.token.text.as_str()).collect();
        json!({
            "index": index,
            "text": format!("{echo}{prompt}{}", said.text),
            "logprobs": self.lists(&said.prompt, &said.tokens, &mut place.clone()),
            "finish_reason": finish_reason(said.end.as_ref()),
        })
    }
}

fn chunk(text: &str, logprobs: Json) -> Json {
    json!({"text": text, "logprobs": logprobs, "finish_reason": null})
}

impl Wire for CompletionWire {
    fn begin(&mut self) -> Vec<Frame> {
        let with_echo = self.answers.iter().enumerate().filter(|(_, one)| !one.echo.is_empty());
        let first = |(index, one): (usize, &Answer)| {
            self.head.chunk(OBJECT, index, chunk(&one.echo, Json::Null))
        };
        with_echo.map(first).collect()
    }

    fn used(&mut self, progress: Usage) {
        self.head.used(progress);
    }

    fn read(&mut self, index: usize, progress: PrefillProgress) -> Vec<Frame> {
        vec![self.head.progress(OBJECT, index, chunk("", Json::Null), progress)]
    }

    fn say(&mut self, index: usize, parts: Vec<Part>) -> Vec<Frame> {
        let (mut text, mut told, mut tokens, mut last) =
            (String::new(), Vec::new(), Vec::new(), None);
        for part in parts {
            match part {
                Part::Prompt(prompt) => {
                    text.extend(prompt.iter().map(|scored| scored.token.text.as_str()));
                    told.extend(prompt);
                }
                Part::Token(token) => tokens.push(token),
                Part::Text(more) => text.push_str(&more),
                // Completions are read as text alone.
                Part::Reasoning(_) | Part::Call { .. } | Part::Arguments { .. } => {}
                Part::End(end) => last = Some(end),
            }
        }
        let mut frames = Vec::new();
        if !text.is_empty() || (self.logprobs && !(told.is_empty() && tokens.is_empty())) {
            let mut place = std::mem::take(&mut self.answers[index].place);
            let logprobs = self.lists(&told, &tokens, &mut place);
            self.answers[index].place = place;
            frames.push(self.head.chunk(OBJECT, index, chunk(&text, logprobs)));
        }
        if let Some(end) = last {
            let mut choice = chunk("", Json::Null);
            choice["finish_reason"] = finish_reason(Some(&end));
            frames.push(self.head.chunk(OBJECT, index, choice));
        }
        frames
    }

    fn end(&mut self, usage: Usage) -> Vec<Frame> {
        self.head.end(OBJECT, usage)
    }

    fn fail(&self, error: &ApiError) -> Frame {
        failure(error)
    }

    fn idle(&self) -> Frame {
        IDLE
    }

    fn whole(&mut self, answers: Vec<Said>, usage: Usage) -> Json {
        let told = best(&answers, self.best_of, self.n);
        let choices = told.into_iter().enumerate();
        let choices = choices.map(|(index, one)| self.choice(index, one, &answers[one]));
        self.head.whole(OBJECT, choices.collect(), usage)
    }
}

/// Of each prompt's `best_of` answers the `n` that are likeliest, by the mean of their tokens.
fn best(answers: &[Said], best_of: usize, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..answers.len()).collect();
    if best_of == n {
        return order;
    }
    let likelihood = |index: &usize| answers[*index].likelihood();
    for group in order.chunks_mut(best_of) {
        group.sort_by(|one, other| likelihood(other).total_cmp(&likelihood(one)));
    }
    order.chunks(best_of).flat_map(|group| group.iter().take(n).copied()).collect()
}
