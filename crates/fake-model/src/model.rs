//! The model.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use inference_core::{
    AnswerReader, AttentionInspector, Capabilities, ChatOptions, ClassifyOptions, ClassifyResult,
    EncodedPicture, EncodedSound, EngineStatus, Error, Feature, FinishReason, GenerateMetrics,
    GenerateOptions, Generation, LabelScore, LastMetrics, Message, ModelInfo, PictureLimits,
    PlacedPicture, PlacedSound, PlainReader, PrefillProgress, Prompt, PromptPart, RenderedPrompt,
    Result, Role, SoundLimits, Support, TextModel, Token, Value,
};

use crate::speech::Speech;
use crate::{FIRST_ID, Line, Seen};

/// The placeholder of a picture in a rendered prompt.
pub const PICTURE: char = '▣';
/// How many ids a picture takes.
pub const PICTURE_IDS: usize = 4;
/// The placeholder of a sound in a rendered prompt.
pub const SOUND: char = '♪';
/// How many ids a sound takes.
pub const SOUND_IDS: usize = 3;

/// The texts of the tokens that answer a prompt.
pub type Answers = Box<dyn Fn(&str) -> Vec<&'static str> + Send + Sync>;

/// A model whose ids are characters, and which honours everything unless it is told otherwise.
pub struct FakeModel {
    /// State that the test reads and changes.
    pub seen: Arc<Seen>,
    /// Said first, one a request.
    pub lines: Mutex<VecDeque<Line>>,
    /// The texts of the tokens that it says to every request after these.
    pub says: Vec<&'static str>,
    /// The bytes of these tokens, where some are parts of characters; a token without any is
    /// special.
    pub pieces: Vec<&'static [u8]>,
    /// Answers by the prompt's text; replaces `lines` and `says` when set.
    pub answers: Option<Answers>,
    /// Ends what it says.
    pub failure: Option<Error>,
    /// Refuses each generation at once.
    pub refusal: Option<Error>,
    /// Goes on for ever after what it says.
    pub endless: bool,
    /// Says the prompt's ids.
    pub echoes: bool,
    /// Before each token.
    pub delay: Duration,
    /// How long a text takes to tokenize.
    pub encodes: Duration,
    /// Generations that may run; one more finds the queue full.
    pub queue: usize,
    /// Its template knows `enable_thinking`.
    pub thinks: bool,
    /// Its template knows tools, and writes calls as Hermes does.
    pub calls: bool,
    /// Texts of which each is one token, from [`FIRST_MARK`] on.
    pub marks: &'static [&'static str],
    /// Its template takes roles in turns only, and none of `system`.
    pub strict: bool,
    /// Its template refuses instructions but at the beginning.
    pub system_first: bool,
    /// Its template leaves out instructions but at the beginning.
    pub drops_instructions: bool,
    /// Makes what tells the parts of its answers apart.
    pub reader: fn() -> Box<dyn AnswerReader>,
    /// Looks at attention.
    pub inspects: bool,
    /// Features that it honours.
    pub capabilities: Capabilities,
    /// Its description, with the limits of pictures and sounds.
    pub info: ModelInfo,
    /// Metrics of each request, but for its counts of prompt and generated tokens.
    pub metrics: GenerateMetrics,
    /// Metrics of its last call.
    pub last: LastMetrics,
    /// Bytes of keys and values that its status tells of.
    pub kv_bytes: u64,
}

impl FakeModel {
    /// A model that says `pieces` to every request.
    pub fn says(pieces: &[&'static str]) -> FakeModel {
        FakeModel { says: pieces.to_vec(), ..FakeModel::default() }
    }

    /// A model that says these lines, then nothing.
    pub fn lines(lines: impl IntoIterator<Item = Line>) -> FakeModel {
        let lines = Mutex::new(lines.into_iter().collect());
        FakeModel { lines, ..FakeModel::says(&[]) }
    }

    /// A model that sees, within these limits, and does not hear; each picture takes
    /// [`PICTURE_IDS`] ids.
    pub fn sees(limits: PictureLimits) -> FakeModel {
        let capabilities = all_but(&[Feature::Audio]);
        let mut model = FakeModel { capabilities, ..FakeModel::default() };
        model.info.pictures = Some(limits);
        model
    }

    /// A model that hears, within these limits; each sound takes [`SOUND_IDS`] ids.
    pub fn hears(limits: SoundLimits) -> FakeModel {
        let mut model = FakeModel::default();
        model.info.sounds = Some(limits);
        model
    }

    /// Refuses sounds beyond what the model takes of them.
    fn check_sounds<'a>(&self, sounds: impl Iterator<Item = &'a EncodedSound>) -> Result<()> {
        let mut sounds = sounds.peekable();
        if sounds.peek().is_some() {
            self.capabilities.require(Feature::Audio)?;
        }
        self.info.sounds.as_ref().map_or(Ok(()), |limits| limits.check(sounds))
    }

    /// Refuses pictures beyond what the model takes of them.
    fn check_pictures<'a>(&self, pictures: impl Iterator<Item = &'a EncodedPicture>) -> Result<()> {
        let mut pictures = pictures.peekable();
        if pictures.peek().is_some() {
            self.capabilities.require(Feature::Images)?;
        }
        self.info.pictures.as_ref().map_or(Ok(()), |limits| limits.check(pictures))
    }

    /// A model that says the prompt's ids.
    pub fn echo(architecture: &str) -> FakeModel {
        let info = ModelInfo { architecture: architecture.to_owned(), ..ModelInfo::default() };
        FakeModel { echoes: true, info, ..FakeModel::says(&[]) }
    }

    fn piece(&self, id: u32) -> Option<&'static [u8]> {
        id.checked_sub(FIRST_ID).and_then(|index| self.pieces.get(index as usize).copied())
    }

    /// The answer to the prompt of `ids`: from `answers`, else the next of `lines`, else `says`.
    fn line(&self, ids: &[u32]) -> Line {
        if let Some(answers) = &self.answers {
            return Line::of(&answers(&self.decode(ids).unwrap_or_default()));
        }
        let next = self.lines.lock().unwrap().pop_front();
        next.unwrap_or_else(|| Line {
            tokens: self.says.clone(),
            end: self.failure.clone().map_or(Ok(FinishReason::EndOfSequence(2)), Err),
        })
    }
}

impl Default for FakeModel {
    fn default() -> Self {
        FakeModel {
            seen: Arc::default(),
            lines: Mutex::default(),
            says: vec!["The", " fox", " ran", "."],
            pieces: Vec::new(),
            answers: None,
            failure: None,
            refusal: None,
            endless: false,
            echoes: false,
            delay: Duration::ZERO,
            encodes: Duration::ZERO,
            queue: usize::MAX,
            thinks: false,
            system_first: false,
            drops_instructions: false,
            calls: false,
            marks: &[],
            strict: false,
            reader: || Box::new(PlainReader),
            inspects: true,
            capabilities: all_but(&[]),
            info: ModelInfo {
                architecture: "fake".into(),
                context_length: 4096,
                num_layers: 2,
                vocab_size: 0x11_0000,
                ..ModelInfo::default()
            },
            metrics: GenerateMetrics {
                cached_prompt_tokens: 1,
                prefill_duration: Duration::from_millis(500),
                decode_duration: Duration::from_millis(250),
                total_duration: Duration::from_millis(750),
                time_to_first_token: Some(Duration::from_millis(500)),
                peak_memory_bytes: 3 << 20,
                active_memory_bytes: 1 << 20,
                ..GenerateMetrics::default()
            },
            last: LastMetrics::default(),
            kv_bytes: 0,
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

/// A picture or a sound.
enum Shown {
    Picture(EncodedPicture),
    Sound(EncodedSound),
}

/// Writes a message's content. A picture or a sound is a mark, and is `shown` at that character.
fn show(message: &Message, text: &mut String, shown: &mut Vec<(usize, Shown)>) {
    let Value::Array(parts) = &message.content else {
        return text.push_str(message.content.as_str().unwrap_or(""));
    };
    for part in parts {
        let at = text.chars().count();
        if let Some(picture) = EncodedPicture::of_part(part) {
            shown.push((at, Shown::Picture(picture.clone())));
            text.push(PICTURE);
        } else if let Some(sound) = EncodedSound::of_part(part) {
            shown.push((at, Shown::Sound(sound.clone())));
            text.push(SOUND);
        } else {
            text.push_str(part.get("text").and_then(Value::as_str).unwrap_or(""));
        }
    }
}

/// The id of the first of [`FakeModel::marks`].
pub const FIRST_MARK: u32 = 0x0010_0000;

/// The id of the only special token.
const SPECIAL_ID: u32 = 7;
/// Its name.
const SPECIAL: &str = "<special>";

impl TextModel for FakeModel {
    fn generate(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Generation> {
        self.seen.may_panic("generate");
        options.validate()?;
        options.check_penalties()?;
        self.capabilities.check_generate(options)?;
        self.refusal.clone().map_or(Ok(()), Err)?;
        let ids = self.prompt_ids(prompt)?;
        assert!(!self.decode(&ids)?.contains("panic!"), "as the test asked");
        if self.seen.running.fetch_add(1, Ordering::SeqCst) >= self.queue {
            self.seen.running.fetch_sub(1, Ordering::SeqCst);
            self.seen.refused.fetch_add(1, Ordering::SeqCst);
            return Err(Error::QueueFull { limit: self.queue });
        }
        self.seen.prompts.lock().unwrap().push(prompt.clone());
        self.seen.options.lock().unwrap().push(options.clone());
        let (sender, generation) = Generation::channel(ids.clone(), options.cancel.clone());
        // Half of the prompt is read at once.
        sender.send_prefill(PrefillProgress {
            total: ids.len(),
            cached: self.metrics.cached_prompt_tokens,
            processed: ids.len() / 2,
            elapsed: self.metrics.prefill_duration / 2,
        });
        let speech = Speech {
            seen: Arc::clone(&self.seen),
            line: self.line(&ids),
            prompt: ids,
            options: options.clone(),
            echoes: self.echoes,
            endless: self.endless,
            delay: self.delay,
            metrics: self.metrics.clone(),
        };
        thread::spawn(move || speech.run(sender));
        Ok(generation)
    }

    fn classify(&self, p: &[Prompt], options: &ClassifyOptions) -> Result<Vec<ClassifyResult>> {
        let label = |index: usize| LabelScore { logprob: -1.0 - index as f32, tokens: 1 };
        let one = |_: &Prompt| ClassifyResult {
            token: Token { id: FIRST_ID, logprob: Some(-0.5), ..Token::default() },
            logits: None,
            labels: (0..options.labels.len()).map(label).collect(),
        };
        Ok(p.iter().map(one).collect())
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.seen.may_panic("encode");
        if self.seen.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        let now = self.seen.encoding.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.most_encoding.fetch_max(now, Ordering::SeqCst);
        thread::sleep(self.encodes);
        self.seen.encoding.fetch_sub(1, Ordering::SeqCst);
        let (mut ids, mut rest) = (Vec::new(), text);
        while let Some(first) = rest.chars().next() {
            let mark = self.marks.iter().position(|mark| rest.starts_with(mark));
            let (id, length) = match mark {
                Some(mark) => (FIRST_MARK + mark as u32, self.marks[mark].len()),
                None => (u32::from(first), first.len_utf8()),
            };
            ids.push(id);
            rest = &rest[length..];
        }
        Ok(ids)
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        self.seen.may_panic("decode");
        let text = |id: &u32| {
            let said = id.checked_sub(FIRST_ID).and_then(|i| self.says.get(i as usize));
            said.map_or_else(
                || char::from_u32(*id).unwrap_or(char::REPLACEMENT_CHARACTER).to_string(),
                |said| (*said).to_owned(),
            )
        };
        Ok(ids.iter().filter(|id| **id != SPECIAL_ID).map(text).collect())
    }

    fn decode_with_special(&self, ids: &[u32]) -> Result<String> {
        let text = |id: &u32| match *id {
            SPECIAL_ID => Ok(SPECIAL.to_owned()),
            id => self.decode(&[id]),
        };
        ids.iter().map(text).collect()
    }

    fn token_bytes(&self, id: u32) -> Result<Vec<u8>> {
        match self.piece(id) {
            Some(piece) => Ok(piece.to_vec()),
            None => Ok(self.decode(&[id])?.into_bytes()),
        }
    }

    fn special_token(&self, id: u32) -> Option<String> {
        self.piece(id).filter(|piece| piece.is_empty()).map(|_| format!("<|{id}|>"))
    }

    fn prompt_ids(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        self.check_pictures(prompt.pictures())?;
        self.check_sounds(prompt.sounds())?;
        let ids = match prompt {
            Prompt::Text(text) => self.encode(text)?,
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Parts(parts) => {
                let part = |part: &PromptPart| match part {
                    PromptPart::Text(text) => self.encode(text),
                    PromptPart::Ids(ids) => Ok(ids.clone()),
                    PromptPart::Picture(_) => Ok(vec![u32::from(PICTURE); PICTURE_IDS]),
                    PromptPart::Sound(_) => Ok(vec![u32::from(SOUND); SOUND_IDS]),
                };
                parts.iter().map(part).collect::<Result<Vec<_>>>()?.concat()
            }
        };
        self.info.check_prompt(&ids)?;
        Ok(ids)
    }

    fn render_chat(&self, messages: &[Message], chat: &ChatOptions) -> Result<RenderedPrompt> {
        self.seen.may_panic("render_chat");
        let is_system = |message: &Message| message.role == Role::System;
        if self.system_first && messages.iter().skip(1).any(is_system) {
            return Err(Error::Prompt("instructions come first".into()));
        }
        let in_turns = messages.windows(2).all(|pair| pair[0].role != pair[1].role);
        if self.strict && (!in_turns || messages.iter().any(|m| m.role == Role::System)) {
            return Err(Error::Prompt("conversation roles must alternate".into()));
        }
        self.check_pictures(messages.iter().flat_map(Message::pictures))?;
        self.check_sounds(messages.iter().flat_map(Message::sounds))?;
        self.seen.chats.lock().unwrap().push((messages.to_vec(), chat.clone()));
        let (mut text, mut shown) = (String::new(), Vec::new());
        if self.calls {
            chat.tools.iter().for_each(|tool| text.push_str(&format!("{tool:?}")));
        }
        for (at, message) in messages.iter().enumerate() {
            if self.drops_instructions && at > 0 && is_system(message) {
                continue;
            }
            if self.calls && message.fields.iter().any(|(name, _)| name == "tool_calls") {
                text.push_str("<tool_call>");
            }
            text.push_str(&format!("<{}>", message.role));
            show(message, &mut text, &mut shown);
        }
        let thinking = chat.template_kwargs.iter().find(|(name, _)| name == "enable_thinking");
        if chat.continue_final_message
            && messages.last().is_none_or(|last| last.role != Role::Assistant)
        {
            return Err(Error::Prompt("the last message is not the assistant's".into()));
        }
        if let (true, Some((_, value))) = (self.thinks, thinking) {
            text.push_str(&format!("{value:?}"));
        }
        let (mut ids, mut pictures, mut sounds) = (Vec::new(), Vec::new(), Vec::new());
        let mut shown = shown.into_iter().peekable();
        for (at, id) in self.encode(&text)?.into_iter().enumerate() {
            match shown.next_if(|(place, _)| *place == at) {
                Some((_, Shown::Picture(picture))) => {
                    let places = ids.len()..ids.len() + PICTURE_IDS;
                    ids.resize(places.end, id);
                    pictures.push(PlacedPicture { picture, places });
                }
                Some((_, Shown::Sound(sound))) => {
                    let places = ids.len()..ids.len() + SOUND_IDS;
                    ids.resize(places.end, id);
                    sounds.push(PlacedSound { sound, places });
                }
                None => ids.push(id),
            }
        }
        Ok(RenderedPrompt { text, ids, pictures, sounds })
    }

    fn answer_reader(&self, _: &RenderedPrompt, _: &ChatOptions) -> Box<dyn AnswerReader> {
        (self.reader)()
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        self.seen.may_panic("capabilities");
        &self.capabilities
    }

    fn last_metrics(&self) -> Option<&LastMetrics> {
        Some(&self.last)
    }

    fn status(&self) -> EngineStatus {
        EngineStatus {
            running: self.seen.running.load(Ordering::SeqCst),
            heartbeat_age: Duration::from_secs(self.seen.stalled.load(Ordering::SeqCst) as u64),
            kv_bytes: self.kv_bytes,
            ..EngineStatus::default()
        }
    }

    fn clear_cache(&self) -> Result<()> {
        self.seen.cleared.fetch_add(1, Ordering::SeqCst);
        self.check_open()
    }

    fn attention_inspector(&self) -> Option<&dyn AttentionInspector> {
        self.inspects.then_some(self)
    }

    fn close(&self) {
        self.seen.closed.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use inference_core::{ChatOptions, EncodedPicture, EncodedSound, Message, Prompt, TextModel};

    use super::{FakeModel, PICTURE, PICTURE_IDS, SOUND_IDS};

    #[test]
    fn a_sound_takes_its_ids_beside_a_picture() {
        let model = FakeModel::default();
        let parts = [
            EncodedPicture::new([1], "a.png").into_part(),
            EncodedSound::new([2], "a.wav").into_part(),
        ];
        let messages = [Message::user_with_parts(parts, "b")];
        let prompt = model.render_chat(&messages, &ChatOptions::default()).unwrap();
        let [placed] = prompt.sounds.as_slice() else { panic!("one sound") };
        assert_eq!(placed.places.len(), SOUND_IDS);
        assert_eq!(placed.places.start, prompt.pictures[0].places.end);
        assert_eq!(model.prompt_ids(&prompt.prompt()), Ok(prompt.ids.clone()));
    }

    #[test]
    fn a_picture_takes_its_ids_and_a_mark_that_is_written_takes_one() {
        let model = FakeModel::default();
        let typed = format!("{PICTURE} is a mark");
        let messages = [
            Message::user(typed),
            Message::user_with_pictures([EncodedPicture::new([1], "a.png")], "b"),
        ];
        let prompt = model.render_chat(&messages, &ChatOptions::default()).unwrap();
        assert_eq!(prompt.ids.len(), prompt.text.chars().count() + PICTURE_IDS - 1);
        let [placed] = prompt.pictures.as_slice() else { panic!("one picture") };
        let place = prompt.text.chars().count() - 2;
        assert_eq!(placed.places, place..place + PICTURE_IDS);
        assert_eq!(model.prompt_ids(&prompt.prompt()), Ok(prompt.ids.clone()));
        assert_eq!(prompt.prompt().pictures().count(), 1);
        assert_eq!(Prompt::from(prompt.ids).pictures().count(), 0);
    }
}
