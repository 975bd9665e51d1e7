//! The backend `mlx`: the facade's traits over a model of the contract.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inference_core::{
    ChatOptions, Feature, FinishReason, GenerateMetrics, Generation, LoadOptions, Message,
    ModelInfo, Prompt, Registry, TextModel,
};

use crate::{
    Backend, Cause, Error, Event, GenOpts, Log, OnPiece, Reply, Result, StreamingBackend,
    first_word::FirstWord, system_turn,
};

/// Memory in use, as a multiple of the model's own, past which the log is told.
const MEMORY_FACTOR: u64 = 3;

/// How an [`MlxBackend`] loads its model and where it reports.
#[derive(Clone)]
pub struct MlxOptions {
    /// Options of the contract's load.
    ///
    /// The limits are for the allocator of the whole process. An engine takes what the device has,
    /// if that is less.
    pub load: LoadOptions,
    /// Told of the load and of memory that is not given back; `None`: nobody is.
    pub log: Option<Log>,
}

impl MlxOptions {
    /// Bytes of freed memory that the allocator may keep: 16 GiB.
    pub const CACHE_LIMIT: u64 = 16 << 30;
    /// Bytes that weights, caches and activations may take together: 24 GiB.
    pub const MEMORY_LIMIT: u64 = 24 << 30;
}

/// The limits above, and a log that prints to stderr.
impl Default for MlxOptions {
    fn default() -> Self {
        let load = LoadOptions {
            cache_limit: Some(MlxOptions::CACHE_LIMIT),
            memory_limit: Some(MlxOptions::MEMORY_LIMIT),
            ..LoadOptions::default()
        };
        MlxOptions { load, log: Some(Arc::new(Event::print)) }
    }
}

impl fmt::Debug for MlxOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = self.log.as_ref().map(|_| "a function");
        f.debug_struct("MlxOptions").field("load", &self.load).field("log", &log).finish()
    }
}

/// A loaded model behind [`Backend`] and [`StreamingBackend`].
///
/// It takes no lock: requests wait in the engine's own queue, where their cancel tokens are looked
/// at. After each request it compares the memory in use with the model's own. The request's state
/// is freed by then, so what is in use belongs to others: the log is told, and what was freed goes
/// back ([`clear_cache`](Self::clear_cache)). A CPU's engine keeps nothing of that; a GPU's keeps
/// it for the next request, and gives it back after a second without one.
pub struct MlxBackend {
    model: Arc<dyn TextModel>,
    /// The backend that loaded the model; `None` for a model that was given.
    loader: Option<Arc<dyn inference_core::Backend>>,
    path: Option<PathBuf>,
    log: Option<Log>,
}

impl MlxBackend {
    /// Loads the model folder at `path` with the best of the backends that the program registered,
    /// as [`MlxOptions::default`] says.
    ///
    /// # Errors
    /// Those of [`inference_core::load_model`]: nothing registered or available, a folder that
    /// cannot be loaded.
    pub fn new(path: impl AsRef<Path>) -> inference_core::Result<MlxBackend> {
        MlxBackend::with_options(path, MlxOptions::default())
    }

    /// Loads the model at `path` with options.
    ///
    /// # Errors
    /// As [`new`](Self::new), and options that are refused.
    pub fn with_options(
        path: impl AsRef<Path>,
        options: MlxOptions,
    ) -> inference_core::Result<MlxBackend> {
        MlxBackend::from_registry(inference_core::global(), path, options)
    }

    /// Loads the model at `path` with options, on one of the backends of `registry`.
    ///
    /// # Errors
    /// As [`with_options`](Self::with_options).
    pub fn from_registry(
        registry: &Registry,
        path: impl AsRef<Path>,
        options: MlxOptions,
    ) -> inference_core::Result<MlxBackend> {
        let MlxOptions { mut load, log } = options;
        let path = path.as_ref().to_owned();
        let name = match load.backend.take() {
            Some(name) => name,
            None => registry.default_backend()?.name().to_owned(),
        };
        load.backend = Some(name.clone());
        if let Some(log) = &log {
            log(&Event::Loading { path: path.clone() });
        }
        let model = registry.load_model(&path, &load)?;
        let loader = registry.get(&name);
        let backend = MlxBackend { model: Arc::from(model), loader, path: Some(path), log };
        let info = backend.model.info();
        backend.tell(|| Event::Loaded {
            architecture: info.architecture.clone(),
            device: info.device.clone(),
            num_layers: info.num_layers,
            weight_bytes: info.weight_bytes,
        });
        Ok(backend)
    }

    /// The facade over a model that the program has loaded, with the log of
    /// [`MlxOptions::default`].
    pub fn over(model: Arc<dyn TextModel>) -> MlxBackend {
        MlxBackend { model, loader: None, path: None, log: MlxOptions::default().log }
    }

    /// Returns true when a registered backend can load here: [`new`](Self::new) finds a device.
    pub fn has_device() -> bool {
        inference_core::default_backend().is_ok()
    }

    /// Tells `log` in place of the log that it had.
    pub fn with_log(self, log: Log) -> MlxBackend {
        MlxBackend { log: Some(log), ..self }
    }

    /// The model behind the facade.
    pub fn model(&self) -> &Arc<dyn TextModel> {
        &self.model
    }

    /// Gives memory back that was freed and that the engine keeps for the next request. What runs
    /// goes on.
    ///
    /// # Errors
    /// [`inference_core::Error::Closed`]; what the device says.
    pub fn clear_cache(&self) -> inference_core::Result<()> {
        self.model.clear_cache()
    }

    /// Ends running requests and frees the model. Calling it again changes nothing.
    pub fn close(&self) {
        self.model.close();
    }

    fn tell(&self, event: impl FnOnce() -> Event) {
        if let Some(log) = &self.log {
            log(&event());
        }
    }

    /// Refuses a call that means another model.
    fn check_model(&self, opts: &GenOpts) -> Result<()> {
        let Some(asked) = opts.model.as_deref().filter(|name| !name.is_empty()) else {
            return Ok(());
        };
        let ModelInfo { architecture, .. } = self.model.info();
        let is_path = self.path.as_deref().is_some_and(|path| {
            Path::new(asked) == path || path.file_name().is_some_and(|name| name == asked)
        });
        if is_path || asked == architecture {
            return Ok(());
        }
        let loaded = self.path.as_ref().map_or(architecture.clone(), |p| p.display().to_string());
        Err(inference_core::Error::Unsupported {
            what: "model".into(),
            reason: format!("`{asked}` was asked for, this backend has loaded `{loaded}`"),
        }
        .into())
    }

    /// The prompt is the user's message. A model without a chat format continues it as it is.
    fn start(&self, prompt: &str, opts: &GenOpts) -> Result<Generation> {
        if self.model.capabilities().require(Feature::Chat).is_ok() {
            return self.start_chat(&[Message::user(prompt)], opts);
        }
        self.check_model(opts)?;
        Ok(self.model.generate(&Prompt::from(prompt), &opts.to_generate_options())?)
    }

    fn start_chat(&self, messages: &[Message], opts: &GenOpts) -> Result<Generation> {
        self.check_model(opts)?;
        let options = opts.to_generate_options();
        let chat = |messages: &[Message]| {
            self.model.chat(messages, &ChatOptions::default(), &options).map_err(Error::from)
        };
        if !system_turn::is_needed(self.model.model_type(), messages) {
            return chat(messages);
        }
        match chat(&system_turn::as_turns(messages)?) {
            Err(Error { cause: Cause::Model(inference_core::Error::Prompt(_)), .. }) => {
                chat(&system_turn::within_turns(messages)?)
            }
            started => started,
        }
    }

    /// Reads a generation to its end.
    fn read(&self, mut generation: Generation, on_piece: &mut OnPiece<'_>) -> Result<Reply> {
        let mut text = String::new();
        let mut failure = None;
        let mut first_word = FirstWord::of(self.model.model_type());
        for token in generation.by_ref() {
            let token = match token {
                Ok(token) => token,
                Err(error) => {
                    failure = Some(Cause::Model(error));
                    break;
                }
            };
            let piece = first_word.without_its_space(&token.text);
            if piece.is_empty() {
                continue;
            }
            text.push_str(piece);
            if let Err(error) = on_piece(piece) {
                failure = Some(Cause::Callback(error));
                break;
            }
        }
        let outcome = generation.outcome().cloned();
        // Cancels what the callback stopped, and frees what the request holds here.
        drop(generation);
        if let Some(outcome) = &outcome {
            self.look_at_memory(&outcome.metrics);
        }
        let cancelled = |outcome: &inference_core::Outcome| {
            matches!(outcome.finish_reason, FinishReason::Cancelled)
        };
        match (failure, outcome) {
            (None, Some(outcome)) if !cancelled(&outcome) => Ok(Reply { text, outcome }),
            (failure, outcome) => Err(Error {
                partial: text,
                metrics: outcome.map(|outcome| Box::new(outcome.metrics)),
                cause: failure.unwrap_or(Cause::Model(inference_core::Error::Cancelled)),
            }),
        }
    }

    /// Logs when the bytes in use pass three times the model's own, and gives freed memory back.
    fn look_at_memory(&self, metrics: &GenerateMetrics) {
        let weight_bytes = self.model.info().weight_bytes;
        let active_bytes = metrics.active_memory_bytes;
        // A model that does not say what it weighs cannot be compared with.
        if weight_bytes == 0 || active_bytes <= weight_bytes.saturating_mul(MEMORY_FACTOR) {
            return;
        }
        self.tell(|| {
            let status = self.model.status();
            Event::MemoryHigh {
                active_bytes,
                peak_bytes: metrics.peak_memory_bytes,
                weight_bytes,
                kv_bytes: status.kv_bytes,
                prefix_cache_bytes: status.prefix_cache_bytes,
            }
        });
        // A model that was closed meanwhile holds nothing, and a device that fails tells the next
        // request.
        let _ = self.clear_cache();
    }
}

impl Backend for MlxBackend {
    fn generate(&self, prompt: &str, opts: &GenOpts) -> Result<Reply> {
        self.generate_stream(prompt, opts, &mut |_| Ok(()))
    }

    fn chat(&self, messages: &[Message], opts: &GenOpts) -> Result<Reply> {
        self.chat_stream(messages, opts, &mut |_| Ok(()))
    }

    fn name(&self) -> &str {
        "mlx"
    }

    /// False where the device is gone or the model was closed.
    fn available(&self) -> bool {
        let has_device = self.loader.as_ref().is_none_or(|loader| loader.available().is_ok());
        has_device && self.model.check_open().is_ok()
    }
}

impl StreamingBackend for MlxBackend {
    fn generate_stream(
        &self,
        prompt: &str,
        opts: &GenOpts,
        on_piece: &mut OnPiece<'_>,
    ) -> Result<Reply> {
        self.read(self.start(prompt, opts)?, on_piece)
    }

    fn chat_stream(
        &self,
        messages: &[Message],
        opts: &GenOpts,
        on_piece: &mut OnPiece<'_>,
    ) -> Result<Reply> {
        self.read(self.start_chat(messages, opts)?, on_piece)
    }
}

/// Shows the path and the model.
impl fmt::Debug for MlxBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MlxBackend")
            .field("path", &self.path)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}
