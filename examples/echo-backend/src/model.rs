//! The handle of a loaded model: checks what is asked, then hands it to the engine.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use inference_core::{
    BatchResult, CancelToken, Capabilities, ChatOptions, ClassifyOptions, ClassifyResult, Error,
    GenerateMetrics, GenerateOptions, Generation, Message, ModelInfo, Prompt, RenderedPrompt,
    Result, TextModel, Token, generate_each,
};

use crate::corpus::{self, Corpus, EOS, VOCAB_SIZE};
use crate::engine::{self, CONTEXT, Job, LastMetrics, QUEUE};
use crate::stream;

/// A loaded corpus; any number of threads may call it at once.
pub struct EchoModel {
    info: ModelInfo,
    capabilities: Capabilities,
    /// `None` once the model is closed.
    open: Mutex<Option<Open>>,
    closed: CancelToken,
    last_metrics: LastMetrics,
}

/// What a closed model has no more.
#[derive(Clone)]
struct Open {
    corpus: Arc<Corpus>,
    jobs: SyncSender<Job>,
}

impl EchoModel {
    /// A model over `corpus` whose engine runs.
    pub(crate) fn start(corpus: Corpus, capabilities: Capabilities) -> Result<Self> {
        let corpus = Arc::new(corpus);
        let closed = CancelToken::new();
        let last_metrics = LastMetrics::default();
        let jobs = engine::start(Arc::clone(&corpus), closed.clone(), Arc::clone(&last_metrics))?;
        let info = ModelInfo {
            architecture: "echo".into(),
            vocab_size: VOCAB_SIZE,
            context_length: CONTEXT,
            num_parameters: corpus.len() as u64,
            weight_bytes: corpus.bytes(),
            dtype: "f32".into(),
            device: "cpu".into(),
            eos_token_ids: vec![EOS],
            chat_template: "`role: content`, one line a message".into(),
            ..Default::default()
        };
        let open = Mutex::new(Some(Open { corpus, jobs }));
        Ok(EchoModel { info, capabilities, open, closed, last_metrics })
    }

    fn open(&self) -> Result<Open> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or(Error::Closed)
    }

    /// The ids of a prompt that this model can continue.
    fn prompt_ids(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        let ids = match prompt {
            Prompt::Text(text) => self.encode(text)?,
            Prompt::Ids(ids) => ids.clone(),
        };
        if ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if ids.len() > CONTEXT {
            return Err(Error::PromptTooLong { tokens: ids.len(), limit: CONTEXT });
        }
        known_ids(&ids)?;
        Ok(ids)
    }
}

fn known_ids(ids: &[u32]) -> Result<()> {
    match ids.iter().find(|id| **id as usize >= VOCAB_SIZE) {
        Some(id) => {
            Err(Error::Prompt(format!("token id {id} is not below the vocabulary's {VOCAB_SIZE}")))
        }
        None => Ok(()),
    }
}

fn unsupported(what: &str, reason: &str) -> Error {
    Error::Unsupported { what: what.to_owned(), reason: reason.to_owned() }
}

impl TextModel for EchoModel {
    fn generate(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Generation> {
        options.validate()?;
        self.capabilities.check_generate(options)?;
        let open = self.open()?;
        let prompt_ids = self.prompt_ids(prompt)?;
        let (sender, generation) = Generation::channel(prompt_ids.clone(), options.cancel.clone());
        let job = Job { prompt_ids, options: options.clone(), sender, queued_at: Instant::now() };
        match open.jobs.try_send(job) {
            Ok(()) => Ok(generation),
            Err(TrySendError::Full(_)) => Err(Error::QueueFull { limit: QUEUE }),
            Err(TrySendError::Disconnected(_)) => {
                Err(Error::Engine("the engine thread has ended".into()))
            }
        }
    }

    fn chat(
        &self,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Generation> {
        self.generate(&Prompt::Ids(self.render_chat(messages, chat)?.ids), options)
    }

    /// Computed on the caller's thread: one look into the corpus needs no queue.
    fn classify(
        &self,
        prompts: &[Prompt],
        options: &ClassifyOptions,
    ) -> Result<Vec<ClassifyResult>> {
        options.validate()?;
        self.capabilities.check_classify(options)?;
        let open = self.open()?;
        let prompts: Vec<_> = prompts.iter().map(|p| self.prompt_ids(p)).collect::<Result<_>>()?;
        let classify = |ids: Vec<u32>| {
            if options.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let next = open.corpus.next(&ids)[0];
            let text = stream::decode(&[next.id]);
            let token =
                Token { id: next.id, text, logprob: Some(next.logprob), ..Default::default() };
            Ok(ClassifyResult { token, logits: None, labels: Vec::new() })
        };
        prompts.into_iter().map(classify).collect()
    }

    fn batch_generate(
        &self,
        prompts: &[Prompt],
        options: &GenerateOptions,
    ) -> Result<Vec<BatchResult>> {
        generate_each(self, prompts, options)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.open()?;
        Ok(corpus::encode(text).collect())
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        self.open()?;
        known_ids(ids)?;
        Ok(stream::decode(ids))
    }

    /// One `role: content` line a message. What the format has no place for is refused by name.
    fn render_chat(&self, messages: &[Message], chat: &ChatOptions) -> Result<RenderedPrompt> {
        if !chat.tools.is_empty() {
            return Err(unsupported("tools", "the chat format has no place for them"));
        }
        if let Some((name, _)) = chat.template_kwargs.first() {
            return Err(unsupported(name, "the chat format takes no variables"));
        }
        let mut text = String::new();
        for (index, message) in messages.iter().enumerate() {
            if let Some((name, _)) = message.fields.first() {
                return Err(unsupported(name, "a message has a role and a content alone"));
            }
            let role = &message.role;
            let content = message.content.as_str().ok_or_else(|| {
                Error::Prompt(format!("the content of message {index} (`{role}`) is not text"))
            })?;
            text.push_str(&format!("{role}: {content}\n"));
        }
        if chat.add_generation_prompt {
            text.push_str("assistant:");
        }
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
        self.last_metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The engine thread ends when its last request has.
    fn close(&self) {
        self.closed.cancel();
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
