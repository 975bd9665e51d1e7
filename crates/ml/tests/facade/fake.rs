//! A model that says what a test tells it to, and remembers what it was asked.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use inference_core::{
    Backend, BatchResult, Capabilities, ChatOptions, ClassifyOptions, ClassifyResult, EngineStatus,
    Error, FinishReason, GenerateMetrics, GenerateOptions, Generation, LoadOptions, Message,
    ModelInfo, Outcome, Prompt, RenderedPrompt, Result, Role, TextModel, Token, generate_each,
};

/// Shared by a test and its model.
#[derive(Default)]
pub struct Seen {
    pub options: Mutex<Vec<GenerateOptions>>,
    pub messages: Mutex<Vec<Vec<Message>>>,
    pub prompts: Mutex<Vec<Prompt>>,
    /// The consumer of the last request went away before its end.
    pub abandoned: AtomicBool,
    pub closed: AtomicBool,
    /// Another request has the engine: nothing starts while it is set.
    pub busy: AtomicBool,
}

impl Seen {
    pub fn last_options(&self) -> GenerateOptions {
        self.options.lock().unwrap().last().unwrap().clone()
    }

    /// Role and content of the messages of the last chat.
    pub fn last_messages(&self) -> Vec<(String, String)> {
        let chats = self.messages.lock().unwrap();
        let text = |m: &Message| (m.role.to_string(), m.content.as_str().unwrap().to_owned());
        chats.last().unwrap().iter().map(text).collect()
    }
}

/// What the model is and says.
#[derive(Clone)]
pub struct Script {
    pub architecture: &'static str,
    pub pieces: Vec<&'static str>,
    /// The error after the pieces.
    pub failure: Option<Error>,
    /// The model goes on for ever after its pieces.
    pub endless: bool,
    /// The chat template takes roles in turns only, and none of `system`.
    pub strict: bool,
    pub active_memory_bytes: u64,
}

impl Script {
    pub fn says(pieces: &[&'static str]) -> Script {
        Script {
            architecture: "qwen3",
            pieces: pieces.to_vec(),
            failure: None,
            endless: false,
            strict: false,
            active_memory_bytes: 0,
        }
    }

    pub fn model(self) -> (Arc<dyn TextModel>, Arc<Seen>) {
        let seen = Arc::<Seen>::default();
        (Arc::new(FakeModel::new(self, Arc::clone(&seen))), seen)
    }
}

struct FakeModel {
    script: Script,
    seen: Arc<Seen>,
    info: ModelInfo,
    capabilities: Capabilities,
}

impl FakeModel {
    fn new(script: Script, seen: Arc<Seen>) -> FakeModel {
        let info = ModelInfo {
            architecture: script.architecture.into(),
            num_layers: 4,
            weight_bytes: 1_000_000_000,
            device: "abacus".into(),
            ..ModelInfo::default()
        };
        FakeModel { script, seen, info, capabilities: Capabilities::default() }
    }
}

/// The body of a request's own thread.
fn speak(script: &Script, seen: &Seen, sender: inference_core::GenerationSender) {
    let finish = |reason, tokens: usize| Outcome {
        finish_reason: reason,
        metrics: GenerateMetrics {
            prompt_tokens: 3,
            generated_tokens: tokens,
            active_memory_bytes: script.active_memory_bytes,
            ..GenerateMetrics::default()
        },
        seed: 7,
    };
    while seen.busy.load(Ordering::SeqCst) {
        if sender.is_cancelled() {
            return sender.finish(finish(FinishReason::Cancelled, 0));
        }
        std::thread::yield_now();
    }
    for (index, piece) in script.pieces.iter().enumerate() {
        sender.send(Token { id: index as u32, text: (*piece).into(), ..Token::default() });
    }
    while script.endless && !sender.is_cancelled() {
        std::thread::yield_now();
    }
    if script.endless {
        seen.abandoned.store(true, Ordering::SeqCst);
        return sender.finish(finish(FinishReason::Cancelled, script.pieces.len()));
    }
    match &script.failure {
        Some(error) => sender.fail(error.clone()),
        None => sender.finish(finish(FinishReason::Length, script.pieces.len())),
    }
}

impl TextModel for FakeModel {
    fn generate(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Generation> {
        options.validate()?;
        self.seen.prompts.lock().unwrap().push(prompt.clone());
        self.seen.options.lock().unwrap().push(options.clone());
        let (sender, generation) = Generation::channel(vec![1, 2, 3], options.cancel.clone());
        let (script, seen) = (self.script.clone(), Arc::clone(&self.seen));
        std::thread::spawn(move || speak(&script, &seen, sender));
        Ok(generation)
    }

    fn chat(
        &self,
        messages: &[Message],
        _: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Generation> {
        let in_turns = messages.windows(2).all(|pair| pair[0].role != pair[1].role);
        if self.script.strict && (!in_turns || messages.iter().any(|m| m.role == Role::System)) {
            return Err(Error::Prompt("conversation roles must alternate".into()));
        }
        self.seen.messages.lock().unwrap().push(messages.to_vec());
        self.generate(&Prompt::from("rendered"), options)
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
        if self.seen.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, _: &[u32]) -> Result<String> {
        Ok(String::new())
    }

    fn render_chat(&self, _: &[Message], _: &ChatOptions) -> Result<RenderedPrompt> {
        Ok(RenderedPrompt { text: String::new(), ids: Vec::new() })
    }

    fn model_type(&self) -> &str {
        self.script.architecture
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

    fn status(&self) -> EngineStatus {
        EngineStatus { kv_bytes: 5_000_000, ..EngineStatus::default() }
    }

    fn close(&self) {
        self.seen.closed.store(true, Ordering::SeqCst);
    }
}

/// A backend whose device a test can take away.
pub struct FakeBackend {
    pub script: Script,
    pub seen: Arc<Seen>,
    pub has_device: AtomicBool,
    pub loaded: Mutex<Vec<LoadOptions>>,
}

impl FakeBackend {
    pub fn new(script: Script) -> Arc<FakeBackend> {
        Arc::new(FakeBackend {
            script,
            seen: Arc::default(),
            has_device: AtomicBool::new(true),
            loaded: Mutex::default(),
        })
    }
}

impl Backend for FakeBackend {
    fn name(&self) -> &str {
        "abacus"
    }

    fn available(&self) -> Result<(), String> {
        let has_device = self.has_device.load(Ordering::SeqCst);
        has_device.then_some(()).ok_or_else(|| "it has no beads".to_owned())
    }

    fn load_model(&self, path: &Path, options: &LoadOptions) -> Result<Box<dyn TextModel>> {
        options.validate()?;
        if path == Path::new("broken") {
            return Err(Error::Load { path: "broken".into(), reason: "no config.json".into() });
        }
        self.loaded.lock().unwrap().push(options.clone());
        Ok(Box::new(FakeModel::new(self.script.clone(), Arc::clone(&self.seen))))
    }
}
