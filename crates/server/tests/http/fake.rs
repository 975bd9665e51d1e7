//! A model that says what a test tells it, as slowly as the test wants, and remembers what it was
//! asked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use inference_core::{
    AttentionInspector, AttentionSnapshot, AttentionWeights, BatchResult, Capabilities,
    ChatOptions, ClassifyOptions, ClassifyResult, EngineStatus, Error, Feature, FinishReason,
    GenerateMetrics, GenerateOptions, Generation, InspectOptions, LabelScore, LayerAttention,
    Message, ModelInfo, Outcome, Prompt, RenderedPrompt, Result, Support, TextModel, Token,
    TokenLogprob, generate_each,
};

/// What a test looks at while the server owns the model.
#[derive(Default)]
pub struct Shared {
    /// The options of each generation, as they arrived.
    pub options: Mutex<Vec<GenerateOptions>>,
    /// Each conversation that was rendered for a request.
    pub chats: Mutex<Vec<(Vec<Message>, ChatOptions)>>,
    /// Generations that noticed that nobody wants them.
    pub cancelled: AtomicUsize,
    /// Generations under way.
    pub running: AtomicUsize,
    /// Generations wait before their first token while this is set.
    pub held: AtomicBool,
    /// Seconds since the engine's last step.
    pub stalled: AtomicUsize,
    pub closed: AtomicBool,
    /// Texts that are being tokenized, and the most that ever were at once.
    pub encoding: AtomicUsize,
    pub most_encoding: AtomicUsize,
    /// The model's method that panics, while one is named here.
    pub panics: Mutex<&'static str>,
}

impl Shared {
    fn may_panic(&self, method: &str) {
        let panics = *self.panics.lock().unwrap() == method;
        assert!(!panics, "as the test asked");
    }
}

/// The model.
pub struct Fake {
    pub shared: Arc<Shared>,
    /// The texts of the tokens that it says; their ids count from 1000.
    pub says: Vec<&'static str>,
    /// Before each token.
    pub delay: Duration,
    /// How long a text takes to tokenize.
    pub encodes: Duration,
    pub capabilities: Capabilities,
    pub info: ModelInfo,
    /// Looks at attention.
    pub inspects: bool,
    /// Its template knows `enable_thinking`.
    pub thinks: bool,
    /// Its template knows tools, and writes calls as Hermes does.
    pub calls: bool,
    /// Fails in place of the first token.
    pub failure: Option<Error>,
}

impl Default for Fake {
    fn default() -> Self {
        Fake {
            shared: Arc::default(),
            says: vec!["The", " fox", " ran", "."],
            delay: Duration::ZERO,
            encodes: Duration::ZERO,
            capabilities: all_but(&[]),
            info: ModelInfo {
                architecture: "fake".into(),
                context_length: 4096,
                num_layers: 2,
                // Ids are characters.
                vocab_size: 0x11_0000,
                ..ModelInfo::default()
            },
            inspects: true,
            thinks: false,
            calls: false,
            failure: None,
        }
    }
}

/// Everything but `refused`.
pub fn all_but(refused: &[Feature]) -> Capabilities {
    let support = |feature: &Feature| match refused.contains(feature) {
        true => Support::No("the fake does not".into()),
        false => Support::Yes,
    };
    Capabilities::new(Feature::ALL.iter().map(|f| (*f, support(f))).collect())
}

impl TextModel for Fake {
    fn generate(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Generation> {
        self.shared.may_panic("generate");
        options.validate()?;
        self.capabilities.check_generate(options)?;
        let ids = match prompt {
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Text(text) => self.encode(text)?,
        };
        if ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if ids.len() > self.info.context_length {
            return Err(Error::PromptTooLong {
                tokens: ids.len(),
                limit: self.info.context_length,
            });
        }
        if self.decode(&ids)?.contains("panic!") {
            panic!("as the test asked");
        }
        self.shared.options.lock().unwrap().push(options.clone());
        let (sender, generation) = Generation::channel(ids.clone(), options.cancel.clone());
        let (shared, says, delay) = (Arc::clone(&self.shared), self.says.clone(), self.delay);
        let (options, failure) = (options.clone(), self.failure.clone());
        shared.running.fetch_add(1, Ordering::SeqCst);
        thread::spawn(move || {
            let ended = say(&sender, &shared, &says, delay, &options, &ids, failure);
            shared.running.fetch_sub(1, Ordering::SeqCst);
            match ended {
                Ok(Some(outcome)) => sender.finish(outcome),
                Ok(None) => {
                    shared.cancelled.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => sender.fail(error),
            }
        });
        Ok(generation)
    }

    fn chat(&self, m: &[Message], c: &ChatOptions, o: &GenerateOptions) -> Result<Generation> {
        self.generate(&Prompt::Ids(self.render_chat(m, c)?.ids), o)
    }

    fn classify(&self, p: &[Prompt], options: &ClassifyOptions) -> Result<Vec<ClassifyResult>> {
        let one = |_: &Prompt| ClassifyResult {
            token: Token { id: 1000, logprob: Some(-0.5), ..Token::default() },
            logits: None,
            labels: (0..options.labels.len())
                .map(|index| LabelScore { logprob: -1.0 - index as f32, tokens: 1 })
                .collect(),
        };
        Ok(p.iter().map(one).collect())
    }

    fn batch_generate(&self, p: &[Prompt], options: &GenerateOptions) -> Result<Vec<BatchResult>> {
        generate_each(self, p, options)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.shared.may_panic("encode");
        let now = self.shared.encoding.fetch_add(1, Ordering::SeqCst) + 1;
        self.shared.most_encoding.fetch_max(now, Ordering::SeqCst);
        thread::sleep(self.encodes);
        self.shared.encoding.fetch_sub(1, Ordering::SeqCst);
        Ok(text.chars().map(u32::from).collect())
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        self.shared.may_panic("decode");
        let text = |id: &u32| match id.checked_sub(1000).and_then(|i| self.says.get(i as usize)) {
            Some(said) => (*said).to_owned(),
            None => char::from_u32(*id).unwrap_or(char::REPLACEMENT_CHARACTER).to_string(),
        };
        Ok(ids.iter().map(text).collect())
    }

    fn render_chat(&self, messages: &[Message], chat: &ChatOptions) -> Result<RenderedPrompt> {
        self.shared.may_panic("render_chat");
        self.shared.chats.lock().unwrap().push((messages.to_vec(), chat.clone()));
        let mut text = String::new();
        if self.calls {
            chat.tools.iter().for_each(|tool| text.push_str(&format!("{tool:?}")));
        }
        for message in messages {
            if self.calls && message.fields.iter().any(|(name, _)| name == "tool_calls") {
                text.push_str("<tool_call>");
            }
            text.push_str(&format!("<{}>{}", message.role, message.content.as_str().unwrap_or("")));
        }
        let thinking = chat.template_kwargs.iter().find(|(name, _)| name == "enable_thinking");
        if let (true, Some((_, value))) = (self.thinks, thinking) {
            text.push_str(&format!("{value:?}"));
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
        self.shared.may_panic("capabilities");
        &self.capabilities
    }

    fn metrics(&self) -> Option<GenerateMetrics> {
        None
    }

    fn status(&self) -> EngineStatus {
        EngineStatus {
            running: self.shared.running.load(Ordering::SeqCst),
            heartbeat_age: Duration::from_secs(self.shared.stalled.load(Ordering::SeqCst) as u64),
            ..EngineStatus::default()
        }
    }

    fn attention_inspector(&self) -> Option<&dyn AttentionInspector> {
        self.inspects.then_some(self)
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
    }
}

/// The further back a token, the likelier; the likeliest at its place are those after it.
fn prompt_logprobs(prompt: &[u32], top: u32) -> Vec<Token> {
    let token = |(at, id): (usize, &u32)| {
        let logprob = |rank: u32| -0.5 * (at as f32 + rank as f32);
        let ranks = 0..if at == 0 { 0 } else { top };
        Token {
            id: *id,
            text: char::from_u32(*id).unwrap_or(char::REPLACEMENT_CHARACTER).to_string(),
            logprob: (at > 0).then(|| logprob(0)),
            top_logprobs: ranks
                .map(|rank| TokenLogprob { id: id + rank, logprob: logprob(rank) })
                .collect(),
            logits: None,
        }
    };
    prompt.iter().enumerate().map(token).collect()
}

/// Says it all; `None` where nobody listens any more.
fn say(
    sender: &inference_core::GenerationSender,
    shared: &Shared,
    says: &[&'static str],
    delay: Duration,
    options: &GenerateOptions,
    prompt: &[u32],
    failure: Option<Error>,
) -> Result<Option<Outcome>> {
    while shared.held.load(Ordering::SeqCst) {
        if sender.is_cancelled() {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(1));
    }
    if let Some(error) = failure {
        return Err(error);
    }
    if options.prompt_logprobs {
        sender.send_prompt_logprobs(prompt_logprobs(prompt, options.top_logprobs as u32));
    }
    let most = options.max_tokens.unwrap_or(usize::MAX);
    for (index, text) in says.iter().enumerate().take(most) {
        thread::sleep(delay);
        shared.may_panic("step");
        if sender.is_cancelled() {
            return Ok(None);
        }
        let id = 1000 + index as u32;
        // Answers of other seeds are less likely, so that the best one is known.
        let logprob = -0.25 - options.seed.unwrap_or(0) as f32;
        let top = (0..options.top_logprobs as u32)
            .map(|rank| TokenLogprob { id: id + rank, logprob: logprob - rank as f32 });
        sender.send(Token {
            id,
            text: (*text).to_owned(),
            logprob: options.logprobs.then_some(logprob),
            top_logprobs: top.collect(),
            logits: None,
        });
    }
    let finish_reason = match most < says.len() {
        true => FinishReason::Length,
        false => FinishReason::EndOfSequence(2),
    };
    let metrics = GenerateMetrics {
        prompt_tokens: prompt.len(),
        cached_prompt_tokens: 1,
        generated_tokens: says.len().min(most),
        prefill_duration: Duration::from_millis(2),
        decode_duration: Duration::from_millis(3),
        time_to_first_token: Some(Duration::from_millis(2)),
        ..GenerateMetrics::default()
    };
    Ok(Some(Outcome { finish_reason, metrics, seed: options.seed.unwrap_or(7) }))
}

impl AttentionInspector for Fake {
    fn inspect_attention(
        &self,
        prompt: &Prompt,
        options: &InspectOptions,
    ) -> Result<AttentionSnapshot> {
        let seq_len = match prompt {
            Prompt::Ids(ids) => ids.len(),
            Prompt::Text(text) => text.len(),
        };
        let weights = || AttentionWeights {
            values: vec![0.25; 2 * seq_len * seq_len],
            entropy: vec![0.5; 2 * seq_len],
        };
        let layer = |layer: usize| LayerAttention {
            layer,
            n_kv_heads: 1,
            n_heads: 2,
            head_dim: 1,
            positions: (0..seq_len).collect(),
            keys: vec![layer as f32; seq_len],
            queries: vec![0.5; 2 * seq_len],
            weights: options.weights.then(weights),
        };
        let layers = options.chosen(self.info.num_layers)?.into_iter().map(layer).collect();
        Ok(AttentionSnapshot { architecture: "fake".into(), seq_len, layers })
    }
}
