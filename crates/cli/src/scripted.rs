//! A model for tests that says what its script says and remembers what it was asked.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use inference_core::{
    BatchResult, Capabilities, ChatOptions, ClassifyOptions, ClassifyResult, Error, FinishReason,
    GenerateMetrics, GenerateOptions, Generation, Message, ModelInfo, Outcome, Prompt,
    RenderedPrompt, Result, TextModel, Token, TokenLogprob, generate_each,
};

/// One answer: its tokens' texts, and how it ends.
pub struct Line {
    pub tokens: &'static [&'static str],
    pub end: Result<FinishReason>,
}

/// Says its lines in order, then nothing.
#[derive(Default)]
pub struct Scripted {
    lines: Mutex<VecDeque<Line>>,
    asked: Mutex<Vec<Vec<Message>>>,
    info: ModelInfo,
    capabilities: Capabilities,
}

impl Scripted {
    /// A model that ends each of `answers` with its end-of-sequence token.
    pub fn saying(answers: &[&'static [&'static str]]) -> Self {
        let end = |tokens: &&'static [&'static str]| Line {
            tokens,
            end: Ok(FinishReason::EndOfSequence(2)),
        };
        Scripted::with(answers.iter().map(end).collect())
    }

    /// A model with these lines.
    pub fn with(lines: Vec<Line>) -> Self {
        Scripted { lines: Mutex::new(lines.into()), ..Default::default() }
    }

    /// The conversations it was asked to continue.
    pub fn asked(&self) -> Vec<Vec<Message>> {
        self.asked.lock().unwrap().clone()
    }

    fn speak(&self, prompt_ids: Vec<u32>, options: &GenerateOptions) -> Generation {
        let line = self
            .lines
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Line { tokens: &[], end: Ok(FinishReason::Length) });
        let prompt_tokens = prompt_ids.len();
        let (sender, generation) = Generation::channel(prompt_ids, options.cancel.clone());
        if options.prompt_logprobs {
            let told = |(at, id): (usize, &u32)| Token {
                id: *id,
                logprob: (at > 0).then_some(-1.5),
                top_logprobs: (0..options.top_logprobs.min(at))
                    .map(|_| TokenLogprob { id: 11, logprob: -1.0 })
                    .collect(),
                ..Default::default()
            };
            let prompt = generation.prompt_ids().iter().enumerate().map(told).collect();
            sender.send_prompt_logprobs(prompt);
        }
        for (index, text) in line.tokens.iter().enumerate() {
            let id = 10 + index as u32;
            let top_logprobs = (0..options.top_logprobs)
                .map(|rank| TokenLogprob { id: id + rank as u32, logprob: -0.5 - rank as f32 })
                .collect();
            let logprob = options.logprobs.then_some(-0.5);
            sender.send(Token { id, text: (*text).into(), logprob, top_logprobs, logits: None });
        }
        match line.end {
            Err(error) => sender.fail(error),
            Ok(finish_reason) => sender.finish(Outcome {
                finish_reason,
                metrics: GenerateMetrics {
                    prompt_tokens,
                    generated_tokens: line.tokens.len(),
                    prefill_duration: Duration::from_millis(500),
                    decode_duration: Duration::from_millis(250),
                    total_duration: Duration::from_millis(750),
                    time_to_first_token: Some(Duration::from_millis(500)),
                    peak_memory_bytes: 3 << 20,
                    active_memory_bytes: 1 << 20,
                    ..Default::default()
                },
                seed: options.seed.unwrap_or(7),
            }),
        }
        generation
    }
}

impl TextModel for Scripted {
    fn generate(&self, _: &Prompt, options: &GenerateOptions) -> Result<Generation> {
        Ok(self.speak(vec![1, 2, 3], options))
    }

    fn chat(
        &self,
        messages: &[Message],
        _: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Generation> {
        self.asked.lock().unwrap().push(messages.to_vec());
        Ok(self.speak(vec![1, 2, 3], options))
    }

    fn classify(&self, _: &[Prompt], _: &ClassifyOptions) -> Result<Vec<ClassifyResult>> {
        Err(Error::Closed)
    }

    fn batch_generate(
        &self,
        prompts: &[Prompt],
        options: &GenerateOptions,
    ) -> Result<Vec<BatchResult>> {
        generate_each(self, prompts, options)
    }

    fn encode(&self, _: &str) -> Result<Vec<u32>> {
        Ok(vec![1, 2, 3])
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        Ok(ids.iter().map(|id| format!("<{id}>")).collect())
    }

    fn render_chat(&self, _: &[Message], _: &ChatOptions) -> Result<RenderedPrompt> {
        Err(Error::Closed)
    }

    fn model_type(&self) -> &str {
        "scripted"
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn metrics(&self) -> Option<GenerateMetrics> {
        None
    }

    fn close(&self) {}
}
