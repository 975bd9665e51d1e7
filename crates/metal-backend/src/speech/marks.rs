//! The ids with which Whisper is told what to do, and those that it may not say.

use inference_core::SpeechTask;
use inference_text::Tokenizer;

use super::languages;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;

/// The first vocabulary with tokens of languages.
const MULTILINGUAL_FROM: i32 = 51_865;

/// The ids of a model that are no text.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    /// Behind the last token; text has the ids below.
    pub end: u32,
    /// Before the first token.
    pub start: u32,
    /// Before the text that came earlier.
    pub previous: Option<u32>,
    /// Nobody speaks.
    pub no_speech: Option<u32>,
    /// No times are wanted.
    pub no_times: Option<u32>,
    /// Each language's code and id; empty where the model knows English alone.
    pub languages: Vec<(String, u32)>,
    pub transcribe: Option<u32>,
    pub translate: Option<u32>,
    /// Ids that are never said.
    pub suppressed: Vec<u32>,
    /// Ids that are not said first.
    pub suppressed_first: Vec<u32>,
    /// The latest time that may come first, in steps of 0.02 s.
    pub latest_first_time: Option<u32>,
    /// Layer and head of the attention that follows the words; empty: none is known.
    pub alignment_heads: Vec<[usize; 2]>,
    /// The most ids of a window.
    pub max_length: Option<usize>,
}

impl Marks {
    /// Reads `generation_config.json`, and where it says nothing, `config` and the tokenizer.
    ///
    /// # Errors
    /// A file that is damaged, or that lacks the ids without which nothing can be heard.
    pub fn read(files: &ModelFiles, config: &Config, tokenizer: &Tokenizer) -> Result<Marks> {
        const NAME: &str = "generation_config.json";
        let text = files.text(NAME)?.unwrap_or_else(|| "{}".into());
        let own = Config::parse(NAME, &text).map_err(|error| error.at(&files.path(NAME)))?;
        Marks::of(&own, config, tokenizer).map_err(|error| error.at(&files.folder()))
    }

    fn of(own: &Config, config: &Config, tokenizer: &Tokenizer) -> Result<Marks> {
        let id = |key: &str, token: &str| -> Result<Option<u32>> {
            let stated = match own.opt_index(key)? {
                None => config.opt_index(key)?,
                stated => stated,
            };
            Ok(stated.map(|id| id as u32).or_else(|| tokenizer.token_to_id(token)))
        };
        let needed = |id: Option<u32>, token: &str| {
            id.ok_or_else(|| Error::model(format!("the tokenizer has no token `{token}`")))
        };
        let end = needed(id("eos_token_id", "<|endoftext|>")?, "<|endoftext|>")?;
        let start = "<|startoftranscript|>";
        let start = needed(id("decoder_start_token_id", start)?, start)?;
        let no_times = id("no_timestamps_token_id", "<|notimestamps|>")?;
        let vocab = config.size("vocab_size")?;
        if end == 0 || end as i64 >= i64::from(vocab) || no_times.is_some_and(|id| id <= end) {
            return Err(Error::model(format!(
                "`eos_token_id` {end} is not between the text and the marks of {vocab} tokens"
            )));
        }
        let list = |key: &str| -> Result<Vec<u32>> {
            let stated = match own.opt_list_of_numbers(key)? {
                None => config.opt_list_of_numbers(key)?,
                stated => stated,
            };
            // A negative one stands for a list that only some programs know.
            let ids = stated.unwrap_or_default().into_iter().filter(|id| *id >= 0.0);
            Ok(ids.map(|id| id as u32).collect())
        };
        let is_multilingual = match own.opt_flag("is_multilingual")? {
            Some(flag) => flag,
            None => config.size("vocab_size")? >= MULTILINGUAL_FROM,
        };
        let of_token = |token: &str| tokenizer.token_to_id(token);
        let task = |name: &str| {
            let stated = own.get("task_to_id").and_then(|ids| ids.get(name)?.as_u64());
            let id = stated.map(|id| id as u32).or_else(|| of_token(&format!("<|{name}|>")));
            id.filter(|_| is_multilingual)
        };
        Ok(Marks {
            end,
            start,
            previous: id("prev_sot_token_id", "<|startofprev|>")?,
            no_speech: no_times.and_then(|id| id.checked_sub(1)),
            no_times,
            languages: if is_multilingual { languages_of(own, tokenizer) } else { Vec::new() },
            transcribe: task("transcribe"),
            translate: task("translate"),
            suppressed: list("suppress_tokens")?,
            suppressed_first: list("begin_suppress_tokens")?,
            latest_first_time: own.opt_index("max_initial_timestamp_index")?.map(|id| id as u32),
            alignment_heads: alignment_heads(own)?,
            max_length: own.opt_size("max_length")?.map(|length| length as usize),
        })
    }

    /// The id of the first time, 0 s.
    pub fn first_time(&self) -> Option<u32> {
        Some(self.no_times? + 1)
    }

    /// The ids before a window's text: the start, the language, the task, and no times where none
    /// are wanted.
    pub fn initial(&self, language: Option<u32>, task: SpeechTask, has_times: bool) -> Vec<u32> {
        let task = match task {
            SpeechTask::Translate => self.translate,
            // Where the model has one language, it has one task.
            _ => self.transcribe,
        };
        let no_times = self.no_times.filter(|_| !has_times);
        let task = language.and(task);
        [Some(self.start), language, task, no_times].into_iter().flatten().collect()
    }
}

/// The model's languages in the order of their ids.
fn languages_of(own: &Config, tokenizer: &Tokenizer) -> Vec<(String, u32)> {
    let stated = own.get("lang_to_id").and_then(|ids| ids.as_object());
    let mut found: Vec<(String, u32)> = match stated {
        Some(ids) => {
            let code = |token: &str| {
                token.strip_prefix("<|").and_then(|rest| rest.strip_suffix("|>")).map(str::to_owned)
            };
            let each =
                ids.iter().filter_map(|(token, id)| Some((code(token)?, id.as_u64()? as u32)));
            each.collect()
        }
        None => {
            let id = |code: &str| tokenizer.token_to_id(&format!("<|{code}|>"));
            languages::codes().filter_map(|code| Some((code.to_owned(), id(code)?))).collect()
        }
    };
    found.sort_by_key(|(_, id)| *id);
    found
}

/// `alignment_heads`: pairs of a layer and a head.
fn alignment_heads(own: &Config) -> Result<Vec<[usize; 2]>> {
    let Some(stated) = own.get("alignment_heads").filter(|stated| !stated.is_null()) else {
        return Ok(Vec::new());
    };
    let pair = |pair: &serde_json::Value| -> Option<[usize; 2]> {
        let [layer, head] = pair.as_array()?.as_slice() else { return None };
        Some([layer.as_u64()? as usize, head.as_u64()? as usize])
    };
    let pairs = stated.as_array().map(|pairs| pairs.iter().map(pair).collect::<Option<Vec<_>>>());
    pairs.flatten().ok_or_else(|| {
        own.wrong("alignment_heads", stated, "a list of pairs of a layer and a head")
    })
}
