//! A loaded model as the contract sees it.

mod attention;
mod breakers;
mod chats;
mod described;
mod drafting;
mod honoured;
mod laid;
mod prompts;
mod range;

use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use inference_core::{
    AnswerReader, AttentionInspector, Capabilities, ChatOptions, ClassifyOptions, ClassifyResult,
    EngineStatus, Error, Feature, GenerateOptions, Generation, LabelScore, LastMetrics, Message,
    ModelInfo, Prompt, RenderedPrompt, Result, TextModel, Token,
};
use inference_text::answer::{AnswerParser, Family};
use inference_text::constraint::{self, Constraints, Guide};
use inference_text::{
    AddSpecial, ChatFormat, Detokenizer, SkipSpecial, StopMatcher, TextError, Tokenizer,
};

use mlx_ffi::memory;

use crate::config::Config;
use crate::engine::{
    ClassifyJob, DrawOptions, Engine, Job, JobSender, PromptLogprobs, Scores, Stops, TextState,
};
use crate::files::ModelFiles;
use crate::hearing::Hearing;
use crate::kernels::Kernels;
use crate::load::{Description, EngineOptions, SamplingDefaults};
use crate::sampling::is_greedy;
use crate::sight::Sight;
use crate::special_tokens::special_tokens;
use breakers::KnownBreakers;
use honoured::{capabilities, refused_by_ranks};
use laid::Laid;

/// A constraint that takes longer than this leaves so much freed heap behind that it is given back.
const COSTLY_CONSTRAINT: Duration = Duration::from_millis(200);

/// Why a model that sees nothing refuses pictures.
const BLIND: &str = "the model has no vision tower that is read here";

/// Why a model that hears nothing refuses sounds.
const DEAF: &str = "the model has no audio tower that is read here";

/// A model on its engine thread, with its tokenizer and chat format.
pub(crate) struct MlxModel {
    engine: Engine,
    text: Text,
    defaults: SamplingDefaults,
    info: ModelInfo,
    capabilities: Capabilities,
    constraints: Constraints,
    breakers: KnownBreakers,
    /// The layers that have attention.
    attention_layers: Vec<usize>,
    /// How it is shown pictures and played sounds.
    shown: WhatIsShown,
    /// How the chat template writes reasoning and tool calls, once that was asked.
    family: OnceLock<Family>,
    /// Done once users were told that chats have no format.
    told_of_lines: Once,
}

/// How a model is shown pictures and played sounds, or why it is not.
struct WhatIsShown {
    sight: std::result::Result<Sight, String>,
    hearing: std::result::Result<Hearing, String>,
}

/// The text side of a model.
struct Text {
    tokenizer: Tokenizer,
    chat: ChatFormat,
    /// Ids that XTC never drops: the line break and those that end a generation.
    protected_ids: Vec<u32>,
}

impl Text {
    fn read(files: &ModelFiles, model_type: &str) -> Result<Text, TextError> {
        let tokenizer = Tokenizer::from_files(files)?;
        let chat = ChatFormat::from_files(files, &tokenizer, model_type)?;
        // A tokenizer without a line break has none to protect.
        let mut protected_ids = tokenizer.encode("\n", AddSpecial::Never).unwrap_or_default();
        protected_ids.extend(tokenizer.eos_ids());
        Ok(Text { tokenizer, chat, protected_ids })
    }

    /// How the model is shown pictures and played sounds.
    fn shown(&self, description: &Description, config: &Config, files: &ModelFiles) -> WhatIsShown {
        let told = |error: crate::error::Error| error.to_string();
        let tokenizer = &self.tokenizer;
        WhatIsShown {
            sight: match description.sees {
                true => Sight::read(config, files, tokenizer).map_err(told),
                false => Err(BLIND.to_owned()),
            },
            hearing: match description.hears {
                true => Hearing::read(config, files, tokenizer).map_err(told),
                false => Err(DEAF.to_owned()),
            },
        }
    }

    /// Completes what the weights say with what the tokenizer and the chat format say.
    fn complete(
        &self,
        description: Description,
        kernels: Kernels,
        shown: &WhatIsShown,
    ) -> (ModelInfo, Capabilities) {
        let Description { mut info, mut refused, .. } = description;
        match &shown.sight {
            Ok(sight) => info.pictures = Some(sight.limits().clone()),
            Err(reason) => refused.push((Feature::Images, reason.clone())),
        }
        match &shown.hearing {
            Ok(hearing) => info.sounds = Some(hearing.limits().clone()),
            Err(reason) => refused.push((Feature::Audio, reason.clone())),
        }
        info.eos_token_ids = self.tokenizer.eos_ids().iter().copied().collect();
        info.special_tokens = special_tokens(&self.tokenizer);
        info.tokenizer = self.tokenizer.kind().to_owned();
        info.chat_template = self.chat.source();
        let reason = constraint::refusal(&self.tokenizer, &info.eos_token_ids, info.vocab_size);
        refused.extend(reason.map(|reason| (Feature::Constraint, reason)));
        (info, capabilities(kernels, &refused))
    }
}

impl MlxModel {
    /// Loads a model in the type that the options say, and starts its engine.
    fn load_as_told(options: EngineOptions) -> Result<MlxModel> {
        let kernels = options.kernels;
        let of_ranks = refused_by_ranks(&options.load);
        capabilities(kernels, &of_ranks).check_load(&options.load)?;
        let model_type = model_type(&options)?;
        let files = options.files.clone();
        let drafting = options.drafting.as_ref().map(|drafting| drafting.files.clone());
        let meanwhile = || -> Result<_> {
            let text = Text::read(&files, model_type).map_err(Error::from)?;
            drafting.iter().try_for_each(|files| text.check_drafting(files))?;
            text.chat.prepare_beside();
            Ok((text, SamplingDefaults::read(&files)?))
        };
        let (config, load) = (options.config.clone(), options.load.clone());
        let (engine, mut description, (text, defaults)) = Engine::start(options, meanwhile)?;
        description.refused.extend(of_ranks);
        let shown = text.shown(&description, &config, &files);
        let attention_layers = description.attention_layers.clone();
        let (info, capabilities) = text.complete(description, kernels, &shown);
        let constraints =
            Constraints::new(text.tokenizer.clone(), info.eos_token_ids.clone(), info.vocab_size);
        let model = MlxModel {
            engine,
            text,
            defaults,
            info,
            capabilities,
            constraints,
            breakers: KnownBreakers::default(),
            attention_layers,
            shown,
            family: OnceLock::new(),
            told_of_lines: Once::new(),
        };
        if model.info.in_place_of.is_some() {
            model.engine.is_f16_for_bf16();
        }
        model.check_range(load.dtype)?;
        model.tell_of_fault();
        // A large vocabulary leaves as much behind as it keeps.
        memory::trim_heap();
        Ok(model)
    }

    /// The options with what the model's own generation config asks for.
    fn with_defaults(&self, options: &GenerateOptions) -> GenerateOptions {
        let mut options = options.clone();
        if options.temperature.is_none() {
            let defaults = &self.defaults;
            options.temperature = Some(defaults.temperature);
            options.top_k = options.top_k.or(defaults.top_k);
            options.top_p = options.top_p.or(defaults.top_p);
            options.min_p = options.min_p.or(defaults.min_p);
            options.repetition_penalty = options.repetition_penalty.or(defaults.repetition_penalty);
        }
        options
    }

    /// Checks options against the vocabulary.
    fn check_ids(&self, options: &GenerateOptions) -> Result<()> {
        let known = |id: &u32| (*id as usize) < self.info.vocab_size;
        let unknown = |option, id: u32| Error::InvalidOption {
            option,
            reason: format!("token {id} is not in the vocabulary of {}", self.info.vocab_size),
        };
        if let Some(id) = options.logit_bias.keys().find(|id| !known(id)) {
            return Err(unknown("logit_bias", *id));
        }
        let forbidden = options.logit_bias.values().filter(|bias| **bias == f32::NEG_INFINITY);
        if forbidden.count() == self.info.vocab_size {
            return Err(Error::InvalidOption {
                option: "logit_bias",
                reason: "forbids every token of the vocabulary".into(),
            });
        }
        if let Some(id) = options.stop_token_ids.iter().find(|id| !known(id)) {
            return Err(unknown("stop_token_ids", *id));
        }
        Ok(())
    }

    /// Checks a prompt that at least `after` positions must be able to follow.
    fn check_prompt(&self, laid: &Laid, after: usize) -> Result<()> {
        let ids = &laid.ids;
        let (context, vocab_size) = (self.info.context_length, self.info.vocab_size);
        if ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if ids.len().saturating_add(after) > context {
            return Err(Error::PromptTooLong { tokens: ids.len(), limit: context });
        }
        match ids.iter().find(|id| **id as usize >= vocab_size) {
            None => Ok(()),
            Some(id) => {
                Err(Error::Prompt(format!("token {id} is not in the vocabulary of {vocab_size}")))
            }
        }
    }

    /// The ids of a label, which goes on where a prompt ends.
    fn label_ids(&self, label: &str) -> Result<Vec<u32>> {
        let invalid = |reason: String| Error::InvalidOption { option: "labels", reason };
        let ids = self.text.tokenizer.encode(label, AddSpecial::Never).map_err(Error::from)?;
        if ids.is_empty() {
            return Err(invalid(format!("`{label}` has no tokens")));
        }
        match ids.iter().find(|id| **id as usize >= self.info.vocab_size) {
            None => Ok(ids),
            Some(id) => Err(invalid(format!("`{label}`: token {id} is not in the vocabulary"))),
        }
    }

    /// How a classification draws by `options`; `None` where that is the most likely id alone.
    fn draw(&self, options: &GenerateOptions) -> Option<Box<DrawOptions>> {
        let plain = is_greedy(options) && options.logit_bias.is_empty();
        let vocabulary = (&self.text.tokenizer, self.info.vocab_size);
        let breakers = self.breakers.of(options, vocabulary);
        let penalties =
            [options.repetition_penalty, options.presence_penalty, options.frequency_penalty];
        let is_penalised = penalties.iter().any(Option::is_some) || breakers.is_some();
        if plain && options.top_logprobs == 0 && !is_penalised {
            return None;
        }
        let generate = GenerateOptions { logprobs: true, logits: false, ..options.clone() };
        let protected_ids = self.text.protected_ids.clone();
        Some(Box::new(DrawOptions { generate, protected_ids, breakers }))
    }

    /// Converts the scores of a prompt to the contract's result.
    fn classified(
        &self,
        scores: Scores,
        label_tokens: &[usize],
        special: SkipSpecial,
    ) -> Result<ClassifyResult> {
        let Scores { id, logprob, top, logits, labels } = scores;
        let mut text = Detokenizer::new(&self.text.tokenizer, special).map_err(Error::from)?;
        let text = text.push(id) + &text.finish();
        let logprob = Some(logprob);
        let token = Token { id, text, logprob, top_logprobs: top, logits: None };
        let labels = labels.into_iter().zip(label_tokens);
        let labels = labels.map(|(logprob, &tokens)| LabelScore { logprob, tokens }).collect();
        Ok(ClassifyResult { token, logits, labels })
    }

    /// The tokens of a prompt, as they are read.
    fn prompt_tokens(&self, ids: &[u32], special: SkipSpecial) -> Result<Vec<Token>> {
        let mut text = Detokenizer::new(&self.text.tokenizer, special).map_err(Error::from)?;
        let token = |id: &u32| Token { id: *id, text: text.push(*id), ..Token::default() };
        let mut tokens: Vec<Token> = ids.iter().map(token).collect();
        if let Some(last) = tokens.last_mut() {
            last.text.push_str(&text.finish());
        }
        Ok(tokens)
    }

    /// Compiles what a request is held to. The heap that a costly constraint took goes back to the
    /// system.
    fn begin_guide(&self, options: &GenerateOptions, ids: &[u32]) -> Result<Option<Guide>> {
        let started = Instant::now();
        let guide = self.constraints.begin(options, ids);
        if started.elapsed() > COSTLY_CONSTRAINT {
            memory::trim_heap();
        }
        guide
    }

    /// Starts a generation. Stop strings count where `parser` finds content, or everywhere.
    fn start(
        &self,
        laid: Laid,
        options: &GenerateOptions,
        parser: Option<AnswerParser>,
    ) -> Result<Generation> {
        self.engine.check_open()?;
        options.validate()?;
        self.capabilities.check_generate(options)?;
        self.check_ids(options)?;
        self.check_prompt(&laid, usize::from(options.max_tokens != Some(0)))?;
        let Laid { ids, scene, .. } = laid;
        let guide = self.begin_guide(options, &ids)?;
        let options = self.with_defaults(options);
        options.check_penalties()?;
        let special = skip_special(&options);
        let prompt_logprobs = match options.prompt_logprobs {
            true => {
                let tokens = self.prompt_tokens(&ids, special)?;
                let top = options.top_logprobs.min(self.info.vocab_size);
                Some(PromptLogprobs::new(tokens, top))
            }
            false => None,
        };
        let detokenizer = Detokenizer::new(&self.text.tokenizer, special).map_err(Error::from)?;
        let stops = StopMatcher::new(&options.stop).map_err(Error::from)?;
        let (output, generation) = Generation::channel(ids.clone(), options.cancel.clone());
        let text = TextState::new(detokenizer, Stops::new(stops, parser));
        let vocabulary = (&self.text.tokenizer, self.info.vocab_size);
        let repeats = self.breakers.repeats(&options, vocabulary, &ids);
        self.engine.submit(Job {
            number: 0,
            ids,
            scene,
            eos_token_ids: self.info.eos_token_ids.clone(),
            protected_ids: self.text.protected_ids.clone(),
            repeats,
            guide,
            prompt_logprobs,
            text: Some(text.passing(options.min_tokens)),
            output: JobSender::new(output),
            queued_at: Instant::now(),
            options,
        })?;
        Ok(generation)
    }
}

impl TextModel for MlxModel {
    fn generate(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Generation> {
        self.start(self.laid_out(prompt)?, options, None)
    }

    fn generate_answer(
        &self,
        prompt: &RenderedPrompt,
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Generation> {
        // Without stop strings nothing has to be told apart.
        let parser = (!options.stop.is_empty()).then(|| self.answer_parser(prompt, chat));
        self.start(self.laid_out(&prompt.prompt())?, options, parser)
    }

    fn answer_reader(&self, prompt: &RenderedPrompt, chat: &ChatOptions) -> Box<dyn AnswerReader> {
        Box::new(self.answer_parser(prompt, chat))
    }

    fn classify(
        &self,
        prompts: &[Prompt],
        options: &ClassifyOptions,
    ) -> Result<Vec<ClassifyResult>> {
        self.engine.check_open()?;
        options.validate()?;
        self.capabilities.check_classify(options)?;
        self.check_ids(&options.generate)?;
        let labels: Vec<Vec<u32>> =
            options.labels.iter().map(|label| self.label_ids(label)).collect::<Result<_>>()?;
        // Nothing is asked of what follows a label's last token.
        let after = labels.iter().map(|ids| ids.len() - 1).max().unwrap_or(0);
        let read = |prompt| {
            let laid = self.laid_out(prompt)?;
            self.check_prompt(&laid, after).map(|()| (laid.ids, laid.scene))
        };
        let read = prompts.iter().map(read).collect::<Result<Vec<_>>>()?;
        let (prompts, scenes): (Vec<_>, Vec<_>) = read.into_iter().unzip();
        if prompts.is_empty() {
            return Ok(Vec::new());
        }
        let label_tokens: Vec<usize> = labels.iter().map(Vec::len).collect();
        let scores = self.engine.classify(|reply| ClassifyJob {
            number: 0,
            prompts,
            scenes,
            labels,
            logits: options.generate.logits,
            draw: self.draw(&options.generate),
            cancel: options.generate.cancel.clone(),
            queued_at: Instant::now(),
            reply,
        })?;
        let special = skip_special(&options.generate);
        scores.into_iter().map(|scores| self.classified(scores, &label_tokens, special)).collect()
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.tokenizer()?.encode(text, AddSpecial::Prompt).map_err(Error::from)
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer()?.decode(ids, SkipSpecial::Yes).map_err(Error::from)
    }

    fn decode_with_special(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer()?.decode(ids, SkipSpecial::No).map_err(Error::from)
    }

    fn token_bytes(&self, id: u32) -> Result<Vec<u8>> {
        self.tokenizer()?.token_bytes(id).map_err(Error::from)
    }

    fn special_token(&self, id: u32) -> Option<String> {
        self.text.tokenizer.special_token(id)
    }

    fn prompt_ids(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        let laid = self.laid_out(prompt)?;
        self.check_prompt(&laid, 0)?;
        Ok(laid.shown_ids())
    }

    fn render_chat(&self, messages: &[Message], chat: &ChatOptions) -> Result<RenderedPrompt> {
        self.engine.check_open()?;
        self.refuse_unread(chat)?;
        self.tell_of_lines();
        self.rendered(messages, chat)
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn last_metrics(&self) -> Option<&LastMetrics> {
        Some(self.engine.last_metrics())
    }

    fn status(&self) -> EngineStatus {
        self.engine.status()
    }

    fn notices(&self) -> Vec<String> {
        self.engine.notices()
    }

    fn fault(&self) -> Option<Error> {
        self.engine.fault()
    }

    fn follow(&self) -> Result<()> {
        self.engine.follow()
    }

    fn clear_cache(&self) -> Result<()> {
        self.engine.clear_cache()
    }

    fn attention_inspector(&self) -> Option<&dyn AttentionInspector> {
        (!self.attention_layers.is_empty()).then_some(self as &dyn AttentionInspector)
    }

    fn check_open(&self) -> Result<()> {
        self.engine.check_open()
    }

    fn close(&self) {
        self.engine.close();
    }
}

fn skip_special(options: &GenerateOptions) -> SkipSpecial {
    if options.special_tokens { SkipSpecial::No } else { SkipSpecial::Yes }
}

fn model_type(options: &EngineOptions) -> Result<&'static str> {
    let found = crate::models::model_type(&options.config);
    found.map_err(|error| error.at(&options.files.folder()).into())
}
