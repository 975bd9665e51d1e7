//! The handle of a loaded model: checks what is asked, then hands it to the engine.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use inference_core::{
    CancelToken, Capabilities, ChatOptions, Error, GenerateOptions, Generation, LastMetrics,
    Message, ModelInfo, Prompt, RenderedPrompt, Result, TextModel,
};

use crate::corpus::{self, Corpus, EOS, VOCAB_SIZE};
use crate::engine::{self, CONTEXT, Job, QUEUE};
use crate::stream;

/// A loaded corpus; any number of threads may call it at once.
pub struct EchoModel {
    info: ModelInfo,
    capabilities: Capabilities,
    /// The way to the engine; `None` once the model is closed.
    jobs: Mutex<Option<SyncSender<Job>>>,
    closed: CancelToken,
    last_metrics: LastMetrics,
}

impl EchoModel {
    /// A model over `corpus` whose engine runs.
    pub(crate) fn start(corpus: Corpus, capabilities: Capabilities) -> Result<Self> {
        let corpus = Arc::new(corpus);
        let closed = CancelToken::new();
        let last_metrics = LastMetrics::default();
        let jobs = engine::start(Arc::clone(&corpus), closed.clone(), last_metrics.clone())?;
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
        let jobs = Mutex::new(Some(jobs));
        Ok(EchoModel { info, capabilities, jobs, closed, last_metrics })
    }

    fn jobs(&self) -> Result<SyncSender<Job>> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.clone().ok_or(Error::Closed)
    }
}

fn unsupported(what: &str, reason: &str) -> Error {
    Error::Unsupported { what: what.to_owned(), reason: reason.to_owned() }
}

impl TextModel for EchoModel {
    fn generate(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Generation> {
        options.validate()?;
        self.capabilities.check_generate(options)?;
        let jobs = self.jobs()?;
        let prompt_ids = self.prompt_ids(prompt)?;
        let (sender, generation) = Generation::channel(prompt_ids.clone(), options.cancel.clone());
        let job = Job { prompt_ids, options: options.clone(), sender, queued_at: Instant::now() };
        match jobs.try_send(job) {
            Ok(()) => Ok(generation),
            Err(TrySendError::Full(_)) => Err(Error::QueueFull { limit: QUEUE }),
            Err(TrySendError::Disconnected(_)) => {
                Err(Error::Engine("the engine thread has ended".into()))
            }
        }
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.jobs()?;
        Ok(corpus::encode(text).collect())
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        self.jobs()?;
        match ids.iter().find(|id| **id as usize >= VOCAB_SIZE) {
            Some(id) => Err(Error::Prompt(format!("token {id} is not in the vocabulary"))),
            None => Ok(stream::decode(ids)),
        }
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
        Ok(RenderedPrompt { ids: self.encode(&text)?, text, ..RenderedPrompt::default() })
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn last_metrics(&self) -> Option<&LastMetrics> {
        Some(&self.last_metrics)
    }

    /// The engine thread ends when its last request has.
    fn close(&self) {
        self.closed.cancel();
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
