//! The requests that a loaded model takes.

use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use crate::{
    AnswerReader, Answering, AttentionInspector, BatchResult, Capabilities, ChatOptions,
    ClassifyOptions, ClassifyResult, EngineStatus, Error, Feature, FinishReason, GenerateMetrics,
    GenerateOptions, Generation, LastMetrics, Message, ModelInfo, PlainReader, Prompt, PromptPart,
    RenderedPrompt, Result, Support, Token,
};

/// A loaded model. Any number of threads may call it at once.
///
/// Every call validates its options first and honours each of them, or refuses it by name;
/// nothing is ignored.
///
/// A model has to generate, encode, decode, say what it is and what it honours, and close. The
/// other methods have bodies in terms of these, which a backend replaces where it can do better:
/// a method that is added later is no change for a backend that does not offer it.
pub trait TextModel: Send + Sync {
    /// Continues `prompt`.
    ///
    /// # Errors
    /// Before anything is queued: [`Error::InvalidOption`], [`Error::Unsupported`],
    /// [`Error::EmptyPrompt`], [`Error::PromptTooLong`], [`Error::Closed`]. What goes wrong later,
    /// [`Error::Memory`] included, is the last item of the [`Generation`].
    fn generate(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Generation>;

    /// Answers a conversation, rendered by the model's chat template.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), and [`Error::Prompt`] when the template refuses.
    fn chat(
        &self,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Generation> {
        self.generate_answer(&self.render_chat(messages, chat)?, chat, options)
    }

    /// Answers `prompt`, rendered with `chat`. Stop strings count in what the answer says: not in
    /// reasoning, calls and marks that the text shows. Without a body of its own: everywhere.
    ///
    /// # Errors
    /// Those of [`generate`](Self::generate).
    fn generate_answer(
        &self,
        prompt: &RenderedPrompt,
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Generation> {
        let _ = chat;
        self.generate(&prompt.prompt(), options)
    }

    /// Answers a conversation in parts: reasoning, content and tool calls, told apart.
    ///
    /// # Errors
    /// Those of [`chat`](Self::chat).
    fn answer(
        &self,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Answering> {
        let prompt = self.render_chat(messages, chat)?;
        let reader = self.answer_reader(&prompt, chat);
        let mut options = options.clone();
        options.special_tokens |= reader.needs_special_tokens()
            && self.capabilities().require(Feature::SpecialTokens).is_ok();
        let generation = self.generate_answer(&prompt, chat, &options)?;
        Ok(Answering::new(generation, reader))
    }

    /// Returns the reader that splits an answer to `prompt` into its parts. `prompt` is a
    /// conversation as the template rendered it. Without a body of its own, all text is content.
    fn answer_reader(&self, prompt: &RenderedPrompt, chat: &ChatOptions) -> Box<dyn AnswerReader> {
        let _ = (prompt, chat);
        Box::new(PlainReader)
    }

    /// The next token after each prompt, and how likely the labels are in its place.
    ///
    /// Without a body of its own, a model generates one token for each prompt, and refuses labels.
    ///
    /// # Errors
    /// As [`generate`](Self::generate); one bad prompt refuses the call.
    fn classify(
        &self,
        prompts: &[Prompt],
        options: &ClassifyOptions,
    ) -> Result<Vec<ClassifyResult>> {
        classify_each(self, prompts, options)
    }

    /// Continues every prompt with the same options; one prompt's error leaves the others alone.
    /// Afterwards [`metrics`](Self::metrics) are the sums over the prompts that ended well, and
    /// their `total_duration` is that of the call: the requests' own times overlap.
    ///
    /// # Errors
    /// Errors that concern all prompts: the options, a closed model.
    fn batch_generate(
        &self,
        prompts: &[Prompt],
        options: &GenerateOptions,
    ) -> Result<Vec<BatchResult>> {
        self.check_open()?;
        generate_each(self, prompts, options)
    }

    /// Answers every conversation, rendered with `chat`, like a batch of prompts.
    ///
    /// # Errors
    /// As [`batch_generate`](Self::batch_generate).
    fn batch_answer(
        &self,
        prompts: &[RenderedPrompt],
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Vec<BatchResult>> {
        self.check_open()?;
        start_each(self, prompts, |prompt| self.generate_answer(prompt, chat, options))
    }

    /// The token ids of `text`, as a raw prompt has them.
    ///
    /// # Errors
    /// [`Error::Prompt`] when the tokenizer refuses the text.
    fn encode(&self, text: &str) -> Result<Vec<u32>>;

    /// The text of `ids`, special tokens left out.
    ///
    /// # Errors
    /// [`Error::Prompt`] when the tokenizer refuses the ids.
    fn decode(&self, ids: &[u32]) -> Result<String>;

    /// The text of `ids` with the names of special tokens. Without a body of its own, a model
    /// leaves them out.
    ///
    /// # Errors
    /// [`Error::Prompt`] when the tokenizer refuses the ids.
    fn decode_with_special(&self, ids: &[u32]) -> Result<String> {
        self.decode(ids)
    }

    /// The bytes that the token `id` adds to a text behind another token. Those of one character
    /// may be spread over several tokens; a special token adds none. Without a body of its own, a
    /// model tells those of whole characters alone.
    ///
    /// # Errors
    /// [`Error::Prompt`] when the tokenizer refuses the id, or its tokens have no bytes of their
    /// own; and [`Error::Unsupported`] for a part of a character, where the model does not tell its
    /// bytes.
    fn token_bytes(&self, id: u32) -> Result<Vec<u8>> {
        let text = self.decode(&[id])?;
        match text.contains(char::REPLACEMENT_CHARACTER) {
            false => Ok(text.into_bytes()),
            true => Err(Error::Unsupported {
                what: "token_bytes".into(),
                reason: "the model does not tell the bytes of parts of characters".into(),
            }),
        }
    }

    /// The name of the special token `id`, such as `<|im_end|>`; `None` for a token that adds text.
    /// Without a body of its own, a model names none.
    fn special_token(&self, id: u32) -> Option<String> {
        let _ = id;
        None
    }

    /// The ids of a prompt that can be computed, as [`generate`](Self::generate) feeds them; those
    /// of its pictures are among them. Without a body of its own, a model refuses pictures.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode); [`Error::Unsupported`] for pictures of a model that does
    /// not see; [`Error::EmptyPrompt`]; and where
    /// [`info`](Self::info) tells the limits, [`Error::PromptTooLong`] for one that exceeds the
    /// context, and [`Error::Prompt`] for an id that is not in the vocabulary.
    fn prompt_ids(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        let ids = match prompt {
            Prompt::Text(text) => self.encode(text)?,
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Parts(parts) => ids_of_parts(self, parts)?,
        };
        self.info().check_prompt(&ids)?;
        Ok(ids)
    }

    /// Renders these messages as [`chat`](Self::chat) would feed them. A model without a chat
    /// format refuses.
    ///
    /// # Errors
    /// [`Error::Prompt`] when the template refuses.
    fn render_chat(&self, messages: &[Message], chat: &ChatOptions) -> Result<RenderedPrompt> {
        let _ = (messages, chat);
        self.capabilities().require(Feature::Chat)?;
        Err(Error::Unsupported { what: "chat".into(), reason: "the model has no format".into() })
    }

    /// The architecture's name.
    fn model_type(&self) -> &str {
        &self.info().architecture
    }

    /// Returns the model's description.
    fn info(&self) -> &ModelInfo;

    /// Returns the features that the model honours and those that it refuses.
    fn capabilities(&self) -> &Capabilities;

    /// Returns the store of the last call's metrics; `None`: there is none.
    fn last_metrics(&self) -> Option<&LastMetrics> {
        None
    }

    /// The metrics of the call that finished last, of whichever caller. Each [`Generation`]
    /// carries its own; this is for programs that know only the older contract.
    fn metrics(&self) -> Option<GenerateMetrics> {
        self.last_metrics().and_then(LastMetrics::get)
    }

    /// Returns the state of the engine at this moment; an engine that reports nothing is idle.
    fn status(&self) -> EngineStatus {
        EngineStatus::default()
    }

    /// Returns the notices for users since the last call, such as those of files left aside.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Why the model cannot be used any more, once that is so: every request from then on gets this
    /// error.
    fn fault(&self) -> Option<Error> {
        None
    }

    /// Waits, in a process that is not the first of several ([`LoadOptions::ranks`]), until the
    /// first one has ended. The first one takes the requests. In it, and in a process alone, this
    /// returns at once.
    ///
    /// [`LoadOptions::ranks`]: crate::LoadOptions::ranks
    ///
    /// # Errors
    /// A process that is lost; what failed in this one.
    fn follow(&self) -> Result<()> {
        Ok(())
    }

    /// Gives memory back that was freed and that the engine keeps for the next request. What
    /// requests that run now need, and what a prefix cache holds, stays. Without a body of its own,
    /// a model keeps none.
    ///
    /// # Errors
    /// [`Error::Closed`]; what the device says.
    fn clear_cache(&self) -> Result<()> {
        self.check_open()
    }

    /// The model's attention, where it can be looked at.
    fn attention_inspector(&self) -> Option<&dyn AttentionInspector> {
        None
    }

    /// `Ok` until the model is closed. Without a body of its own, a model is asked to encode an
    /// empty text.
    ///
    /// # Errors
    /// [`Error::Closed`] from then on.
    fn check_open(&self) -> Result<()> {
        match self.encode("") {
            Err(Error::Closed) => Err(Error::Closed),
            _ => Ok(()),
        }
    }

    /// Ends running requests and frees everything. Calling it again changes nothing; any other
    /// call afterwards is [`Error::Closed`].
    fn close(&self);
}

/// The model's description, so that results that hold one can be unwrapped and logged.
impl fmt::Debug for dyn TextModel + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextModel").field("info", self.info()).finish_non_exhaustive()
    }
}

/// Queues every prompt through [`TextModel::generate`] and collects the results in order: the
/// body of [`TextModel::batch_generate`]. Requests of a backend that runs several at once run
/// together. Where the queue is full, the oldest request is read to its end first.
///
/// # Errors
/// [`Error::InvalidOption`], [`Error::Unsupported`] and [`Error::Closed`], which concern all.
fn generate_each<M: TextModel + ?Sized>(
    model: &M,
    prompts: &[Prompt],
    options: &GenerateOptions,
) -> Result<Vec<BatchResult>> {
    start_each(model, prompts, |prompt| model.generate(prompt, options))
}

fn start_each<M: TextModel + ?Sized, P>(
    model: &M,
    prompts: &[P],
    start: impl Fn(&P) -> Result<Generation>,
) -> Result<Vec<BatchResult>> {
    let started = Instant::now();
    let results = queue_each(prompts, start)?;
    if let Some(last) = model.last_metrics() {
        let outcomes = results.iter().filter_map(|result| result.outcome.as_ref());
        let sum = GenerateMetrics::sum(outcomes.map(|outcome| &outcome.metrics));
        last.set(GenerateMetrics { total_duration: started.elapsed(), ..sum });
    }
    Ok(results)
}

fn queue_each<P>(
    prompts: &[P],
    start: impl Fn(&P) -> Result<Generation>,
) -> Result<Vec<BatchResult>> {
    let mut results = Vec::with_capacity(prompts.len());
    let mut running = VecDeque::new();
    for prompt in prompts {
        let mut started = start(prompt);
        while let Err(Error::QueueFull { .. }) = started
            && let Some(oldest) = running.pop_front()
        {
            results.push(collect(oldest));
            started = start(prompt);
        }
        if let Err(
            error @ (Error::InvalidOption { .. } | Error::Unsupported { .. } | Error::Closed),
        ) = started
        {
            return Err(error);
        }
        running.push_back(started);
    }
    results.extend(running.into_iter().map(collect));
    Ok(results)
}

/// The ids of a prompt of text and ids: texts that follow each other are encoded as one.
fn ids_of_parts<M: TextModel + ?Sized>(model: &M, parts: &[PromptPart]) -> Result<Vec<u32>> {
    let (mut texts, mut all) = (String::new(), Vec::new());
    for part in parts {
        match part {
            PromptPart::Text(text) if all.is_empty() => texts.push_str(text),
            PromptPart::Ids(ids) if texts.is_empty() => all.extend_from_slice(ids),
            PromptPart::Picture(_) => {
                model.capabilities().require(Feature::Images)?;
                let reason = "this model sees, but takes pictures in messages alone";
                return Err(Error::Unsupported { what: "images".into(), reason: reason.into() });
            }
            PromptPart::Sound(_) => {
                model.capabilities().require(Feature::Audio)?;
                let reason = "this model hears, but takes sounds in messages alone";
                return Err(Error::Unsupported { what: "audio".into(), reason: reason.into() });
            }
            PromptPart::Text(_) | PromptPart::Ids(_) => {
                let reason = "this model takes a prompt of texts or of ids, not of both";
                return Err(Error::Prompt(reason.into()));
            }
        }
    }
    if texts.is_empty() { Ok(all) } else { model.encode(&texts) }
}

fn collect(generation: Result<Generation>) -> BatchResult {
    let mut generation = match generation {
        Ok(generation) => generation,
        Err(error) => {
            let error = Some(error);
            return BatchResult { prompt_logprobs: None, tokens: Vec::new(), outcome: None, error };
        }
    };
    let mut tokens = Vec::new();
    let mut error = None;
    for item in generation.by_ref() {
        match item {
            Ok(token) => tokens.push(token),
            Err(failure) => error = Some(failure),
        }
    }
    let prompt_logprobs = generation.take_prompt_logprobs();
    BatchResult { prompt_logprobs, tokens, outcome: generation.outcome().cloned(), error }
}

/// Generates one token for each prompt: the body of [`TextModel::classify`].
///
/// # Errors
/// Those of [`TextModel::classify`]; labels, which a generated token tells nothing of.
fn classify_each<M: TextModel + ?Sized>(
    model: &M,
    prompts: &[Prompt],
    options: &ClassifyOptions,
) -> Result<Vec<ClassifyResult>> {
    options.validate()?;
    model.capabilities().check_classify(options)?;
    if !options.labels.is_empty() {
        let reason = "the model is asked for the next token alone".to_owned();
        return Err(Error::Unsupported { what: Feature::Labels.as_str().to_owned(), reason });
    }
    model.check_open()?;
    for prompt in prompts {
        model.prompt_ids(prompt)?;
    }
    let able = |feature| model.capabilities().support(feature) == Support::Yes;
    let options = GenerateOptions {
        max_tokens: Some(1),
        temperature: options.generate.temperature.or(Some(0.0)),
        // The end of the sequence is a token like others here.
        ignore_eos: able(Feature::Stop),
        logprobs: able(Feature::Logprobs),
        ..options.generate.clone()
    };
    let results = generate_each(model, prompts, &options)?;
    results.into_iter().map(next_token).collect()
}

fn next_token(result: BatchResult) -> Result<ClassifyResult> {
    if let Some(error) = result.error {
        return Err(error);
    }
    let end = result.outcome.map(|outcome| outcome.finish_reason);
    let mut token = match (result.tokens.into_iter().next(), end) {
        (Some(token), _) => token,
        (None, Some(FinishReason::EndOfSequence(id))) => Token { id, ..Token::default() },
        (None, Some(FinishReason::Cancelled)) => return Err(Error::Cancelled),
        (None, _) => return Err(Error::Engine("no token was generated".into())),
    };
    Ok(ClassifyResult { logits: token.logits.take(), token, labels: Vec::new() })
}
