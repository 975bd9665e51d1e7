//! One sound that is transcribed: which window is heard next, and what becomes of its tokens.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use inference_core::{SpeechSegment, SpokenWord, Timestamps, TranscribeOptions, WindowFacts};
use inference_text::{SkipSpecial, Tokenizer};

use super::alignment::words;
use super::languages::has_no_blanks;
use super::marks::Marks;
use super::rules::Rules;
use super::segments::{TIME_STEP, cut};

/// Seconds of a frame of features.
const FRAME: f64 = 0.01;
/// Temperatures from this on make a text that later windows do not rest on.
const HOT: f32 = 0.5;

/// The part of a model that sessions need.
pub(super) struct Vocabulary {
    pub tokenizer: Tokenizer,
    pub marks: Marks,
    /// Frames of a window.
    pub window: usize,
    /// The most ids of a window.
    pub most_ids: usize,
}

/// A window that is to be heard.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The first of its frames, and how many of them there are.
    pub first: usize,
    pub frames: usize,
    /// The ids before its text.
    pub prompt: Vec<u32>,
    /// Of these, the place of the start.
    pub start: usize,
    /// The most ids behind the prompt.
    pub most: usize,
    pub temperature: f32,
}

/// The tokens that were heard in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// The ids behind the prompt, without the end.
    pub ids: Vec<u32>,
    /// The logarithms of their probabilities, with the end's where it was said.
    pub logprobs: Vec<f32>,
    /// The probability that nobody speaks.
    pub no_speech: f32,
}

/// The fate of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is heard again with the next temperature.
    Again,
    /// It is silent.
    Silent,
    /// Its text counts.
    Counts,
}

/// One sound that is transcribed.
pub(super) struct Session {
    options: TranscribeOptions,
    /// The ids of the prompt.
    prompt: Vec<u32>,
    language: Option<(String, u32)>,
    pub rules: Rules,
    has_times: bool,
    frames: usize,
    /// The first frame that is not done.
    seek: usize,
    /// How often the window was heard.
    attempt: usize,
    /// The window's text is the prompt of the next one.
    leads_on: bool,
    facts: WindowFacts,
    pub segments: Vec<SpeechSegment>,
    /// The time of the last token, for the beginning of the next word.
    last_time: f64,
}

impl Session {
    /// A session over `frames` of features. `prompt` are the ids of the options' prompt, and
    /// `language` is the given one.
    pub fn new(
        vocabulary: &Vocabulary,
        options: TranscribeOptions,
        frames: usize,
        prompt: Vec<u32>,
        language: Option<(String, u32)>,
    ) -> Session {
        let has_times = frames > vocabulary.window || options.timestamps != Timestamps::None;
        let leads_on = options.condition_on_previous.unwrap_or(false);
        Session {
            rules: Rules::new(&vocabulary.marks, has_times),
            options,
            prompt,
            language,
            has_times,
            frames,
            seek: 0,
            attempt: 0,
            leads_on,
            facts: WindowFacts::default(),
            segments: Vec::new(),
            last_time: 0.0,
        }
    }

    /// Returns true when the language has to be found out.
    pub fn lacks_language(&self, vocabulary: &Vocabulary) -> bool {
        self.language.is_none() && !vocabulary.marks.languages.is_empty()
    }

    /// Sets the language that was found.
    pub fn set_language(&mut self, language: (String, u32)) {
        self.language = Some(language);
    }

    /// The code of the language: English where the model knows no other.
    pub fn language(&self) -> &str {
        self.language.as_ref().map_or("en", |(code, _)| code)
    }

    /// Seconds of the sound that are done.
    pub fn seconds_done(&self) -> f64 {
        self.seek.min(self.frames) as f64 * FRAME
    }

    /// Returns true when words' times are wanted.
    pub fn times_words(&self) -> bool {
        self.options.timestamps == Timestamps::Words
    }

    /// The seed of the draws of this window.
    pub fn seed(&self) -> u64 {
        let seed = self.options.seed.unwrap_or(0);
        seed ^ (self.seek as u64) << 20 ^ (self.attempt as u64) << 52
    }

    /// The next window; `None` where all is done.
    pub fn window(&self, vocabulary: &Vocabulary) -> Option<Window> {
        if self.seek >= self.frames {
            return None;
        }
        let marks = &vocabulary.marks;
        let language = self.language.as_ref().map(|(_, id)| *id);
        let initial = marks.initial(language, self.options.task, self.has_times);
        let mut prompt = self.before(marks, vocabulary.most_ids / 2 - 1);
        let start = prompt.len();
        prompt.extend(initial);
        let left = vocabulary.most_ids.saturating_sub(prompt.len()).max(1);
        Some(Window {
            first: self.seek,
            frames: vocabulary.window.min(self.frames - self.seek),
            start,
            prompt,
            most: self.options.max_tokens.map_or(left, |most| most.min(left)),
            temperature: self.temperature(),
        })
    }

    /// The ids of the text that came before, of which at most `most`.
    fn before(&self, marks: &Marks, most: usize) -> Vec<u32> {
        let Some(previous) = marks.previous else { return Vec::new() };
        let last = |ids: &[u32]| ids[ids.len() - most.min(ids.len())..].to_vec();
        let is_asked = self.options.condition_on_previous == Some(true);
        if !is_asked || (self.segments.is_empty() && self.prompt.is_empty()) {
            let prompt = last(&self.prompt);
            return if prompt.is_empty() { prompt } else { [vec![previous], prompt].concat() };
        }
        if !self.leads_on {
            return vec![previous];
        }
        let mut ids = self.prompt.clone();
        for segment in &self.segments {
            ids.extend(without_second_time(&segment.tokens, marks.first_time()));
        }
        [vec![previous], last(&ids)].concat()
    }

    fn temperature(&self) -> f32 {
        match &self.options.fallback {
            Some(fallback) => {
                let last = fallback.temperatures.len().saturating_sub(1);
                fallback.temperatures.get(self.attempt.min(last)).copied().unwrap_or(0.0)
            }
            None => self.options.temperature.unwrap_or(0.0),
        }
    }

    /// The fate of `window` after it was `heard`.
    pub fn judge(&mut self, vocabulary: &Vocabulary, window: &Window, heard: &Heard) -> Verdict {
        let text = vocabulary.text(&heard.ids);
        let count = heard.logprobs.len().max(1) as f32;
        self.facts = WindowFacts {
            start: window.first as f64 * FRAME,
            temperature: window.temperature,
            mean_logprob: heard.logprobs.iter().sum::<f32>() / count,
            compression_ratio: compression_ratio(text.as_bytes()),
            no_speech: heard.no_speech,
        };
        let is_asked = self.options.condition_on_previous.unwrap_or(false);
        self.leads_on = is_asked && window.temperature < HOT;
        let Some(fallback) = &self.options.fallback else { return Verdict::Counts };
        let is_guessed = fallback.logprob.is_some_and(|least| self.facts.mean_logprob < least);
        let is_silent = fallback.no_speech.is_some_and(|most| heard.no_speech > most);
        if is_guessed && is_silent {
            return Verdict::Silent;
        }
        let most = fallback.compression_ratio;
        let repeats = most.is_some_and(|most| self.facts.compression_ratio > most);
        let is_last = self.attempt + 1 >= fallback.temperatures.len();
        if (is_guessed || repeats) && !is_last { Verdict::Again } else { Verdict::Counts }
    }

    /// Hears the window again.
    pub fn again(&mut self) {
        self.attempt += 1;
    }

    /// Passes over a silent window.
    pub fn pass_over(&mut self, window: &Window) {
        self.seek += window.frames;
        self.attempt = 0;
    }

    /// Takes the segments of a window whose text counts. `times` are those of its tokens in seconds
    /// from its beginning, where they were wanted. Returns how many segments there were before.
    pub fn take(
        &mut self,
        vocabulary: &Vocabulary,
        window: &Window,
        heard: &Heard,
        times: Option<&[f64]>,
    ) -> usize {
        let before = self.segments.len();
        let (cuts, done) = cut(&heard.ids, vocabulary.marks.first_time(), window.frames);
        let offset = window.first as f64 * TIME_STEP / 2.0;
        for cut in cuts {
            let tokens = heard.ids[cut.tokens.clone()].to_vec();
            let mut segment = SpeechSegment {
                start: offset + cut.start,
                end: offset + cut.end,
                text: vocabulary.text(&tokens),
                tokens,
                words: Vec::new(),
                window: self.facts,
            };
            if let Some(times) = times {
                let times: Vec<f64> =
                    times[cut.tokens.clone()].iter().map(|time| offset + time).collect();
                let probabilities = &heard.logprobs[cut.tokens];
                segment.words = self.words(vocabulary, &segment.tokens, &times, probabilities);
            }
            self.segments.push(segment);
        }
        self.seek += done.max(1);
        self.attempt = 0;
        before
    }

    /// The words of `tokens`, which have these `times`.
    fn words(
        &mut self,
        vocabulary: &Vocabulary,
        tokens: &[u32],
        times: &[f64],
        logprobs: &[f32],
    ) -> Vec<SpokenWord> {
        // A token begins where the one before it ends.
        let mut spans = Vec::with_capacity(tokens.len());
        for (token, end) in tokens.iter().zip(times) {
            spans.push((*token, self.last_time, *end));
            self.last_time = *end;
        }
        let is_text = |token: u32| token < vocabulary.marks.end;
        let spans: Vec<_> = spans.into_iter().zip(logprobs).filter(|(s, _)| is_text(s.0)).collect();
        let ids: Vec<u32> = spans.iter().map(|(span, _)| span.0).collect();
        let decode = |ids: &[u32]| vocabulary.text(ids);
        let found = words(&ids, has_no_blanks(self.language()), &decode);
        let spoken = found.into_iter().map(|word| {
            let own = &spans[word.first..=word.last];
            let probability: f32 = own.iter().map(|(_, logprob)| logprob.exp()).sum();
            SpokenWord {
                word: word.text,
                start: hundredths(own[0].0.1),
                end: hundredths(own[own.len() - 1].0.2),
                probability: probability / own.len() as f32,
            }
        });
        spoken.collect()
    }

    /// All text: that of all segments' tokens together, since a character may lie in two.
    pub fn text(&self, vocabulary: &Vocabulary) -> String {
        let ids: Vec<u32> = self.segments.iter().flat_map(|s| s.tokens.iter().copied()).collect();
        vocabulary.text(&ids)
    }
}

impl Vocabulary {
    /// The text of `ids`, of which only those below the end are text.
    pub fn text(&self, ids: &[u32]) -> String {
        let ids: Vec<u32> = ids.iter().copied().filter(|id| *id < self.marks.end).collect();
        self.tokenizer.decode(&ids, SkipSpecial::Yes).unwrap_or_default()
    }
}

/// A segment's tokens without the second of two times at its end.
fn without_second_time(tokens: &[u32], first_time: Option<u32>) -> &[u32] {
    let is_time = |token: &u32| first_time.is_some_and(|first| *token >= first);
    match tokens {
        [rest @ .., before, _] if !rest.is_empty() && is_time(before) => {
            &tokens[..tokens.len() - 1]
        }
        _ => tokens,
    }
}

/// How many times `text` is as long as its compressed form.
pub(super) fn compression_ratio(text: &[u8]) -> f32 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let compressed = encoder.write_all(text).and_then(|()| encoder.finish());
    compressed.map_or(0.0, |compressed| text.len() as f32 / compressed.len().max(1) as f32)
}

fn hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}
