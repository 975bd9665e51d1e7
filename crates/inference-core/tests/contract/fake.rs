//! A backend and a model that do what a test tells them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use inference_core::{
    Backend, BatchResult, Capabilities, ChatOptions, ClassifyOptions, ClassifyResult, Error,
    FinishReason, GenerateMetrics, GenerateOptions, Generation, LoadOptions, Message, ModelInfo,
    Outcome, Prompt, RenderedPrompt, Result, TextModel, Token, generate_each,
};

/// A backend of the given name; `reason` says why it is not available, where it is not.
pub struct FakeBackend {
    pub name: &'static str,
    pub reason: Option<&'static str>,
}

impl FakeBackend {
    pub fn available(name: &'static str) -> Arc<Self> {
        Arc::new(FakeBackend { name, reason: None })
    }

    pub fn unavailable(name: &'static str, reason: &'static str) -> Arc<Self> {
        Arc::new(FakeBackend { name, reason: Some(reason) })
    }
}

impl Backend for FakeBackend {
    fn name(&self) -> &str {
        self.name
    }

    fn available(&self) -> Result<(), String> {
        self.reason.map_or(Ok(()), |reason| Err(reason.to_owned()))
    }

    /// The architecture tells which backend loaded the model.
    fn load_model(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
        options.validate()?;
        if path == Path::new("broken") {
            return Err(Error::Load { path: "broken".into(), reason: "no config.json".into() });
        }
        Ok(Box::new(FakeModel::new(self.name)))
    }
}

/// A model that repeats the prompt's ids, and refuses a request while `queue` others run.
pub struct FakeModel {
    pub info: ModelInfo,
    pub capabilities: Capabilities,
    pub queue: usize,
    pub refused: AtomicUsize,
    pub failure: Option<Error>,
    pub running: Arc<AtomicUsize>,
}

impl FakeModel {
    pub fn new(architecture: &str) -> Self {
        FakeModel {
            info: ModelInfo { architecture: architecture.to_owned(), ..Default::default() },
            capabilities: Capabilities::default(),
            queue: usize::MAX,
            refused: AtomicUsize::new(0),
            failure: None,
            running: Arc::default(),
        }
    }
}

impl TextModel for FakeModel {
    fn generate(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Generation> {
        options.validate()?;
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        let ids = match prompt {
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Text(text) => self.encode(text)?,
        };
        if ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if self.running.load(Ordering::SeqCst) >= self.queue {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(Error::QueueFull { limit: self.queue });
        }
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Arc::clone(&self.running);
        let (sender, generation) = Generation::channel(ids.clone(), options.cancel.clone());
        let reports = options.prompt_logprobs;
        std::thread::spawn(move || {
            if reports {
                sender.send_prompt_logprobs(prompt_logprobs(&ids));
            }
            for &id in &ids {
                if id == u32::MAX {
                    running.fetch_sub(1, Ordering::SeqCst);
                    return sender.fail(Error::Engine("decode step 0: bad id".into()));
                }
                sender.send(Token { id, text: id.to_string(), ..Default::default() });
            }
            running.fetch_sub(1, Ordering::SeqCst);
            sender.finish(outcome(ids.len()));
        });
        Ok(generation)
    }

    fn chat(
        &self,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Generation> {
        self.generate(&Prompt::Ids(self.render_chat(messages, chat)?.ids), options)
    }

    fn classify(&self, _: &[Prompt], _: &ClassifyOptions) -> Result<Vec<ClassifyResult>> {
        Ok(Vec::new())
    }

    fn batch_generate(
        &self,
        prompts: &[Prompt],
        options: &GenerateOptions,
    ) -> Result<Vec<BatchResult>> {
        generate_each(self, prompts, options)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        Ok(ids.iter().map(u32::to_string).collect())
    }

    fn render_chat(&self, messages: &[Message], _: &ChatOptions) -> Result<RenderedPrompt> {
        let text: String = messages.iter().filter_map(|m| m.content.as_str()).collect();
        Ok(RenderedPrompt { ids: self.encode(&text)?, text })
    }

    fn model_type(&self) -> &str {
        &self.info.architecture
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

/// What a report of the prompt `ids` has: the first token's probability is unknown.
pub fn prompt_logprobs(ids: &[u32]) -> Vec<Token> {
    let token = |(at, id): (usize, &u32)| {
        let logprob = (at > 0).then_some(-(at as f32));
        Token { id: *id, text: id.to_string(), logprob, ..Default::default() }
    };
    ids.iter().enumerate().map(token).collect()
}

/// The end of a generation of `generated_tokens`.
pub fn outcome(generated_tokens: usize) -> Outcome {
    Outcome {
        finish_reason: FinishReason::Length,
        metrics: GenerateMetrics { generated_tokens, ..Default::default() },
        seed: 0,
    }
}
