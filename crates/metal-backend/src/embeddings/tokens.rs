//! From texts to ids: prompts, what the model puts around them, and what is left out of long ones.

use std::panic::resume_unwind;
use std::thread;

use inference_core::{EmbedInput, EmbedOptions, Error, Result, TextPair, Truncate};
use inference_text::{Frame, TextError, Tokenizer};

/// The instruction of Qwen's rerankers where none is given.
pub(super) const QWEN_INSTRUCTION: &str =
    "Given a web search query, retrieve relevant passages that answer the query";
/// The texts before and behind a pair for Qwen's rerankers.
const QWEN_AROUND: [&str; 2] = [
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
];

/// Fewer rows are made sooner than a thread is started.
const ROWS_OF_THREAD: usize = 16;

/// A text on its way to its vector or its score.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub ids: Vec<u32>,
    /// Which text of a pair each id belongs to.
    pub kinds: Vec<u32>,
    /// Ids that count for no pooling: those of a prompt, and those before it.
    pub prompt: usize,
}

/// How texts become ids.
#[derive(Debug)]
pub(super) struct Texts {
    pub tokenizer: Tokenizer,
    pub frame: Frame,
    /// The most ids of a text.
    pub max_tokens: usize,
    pub vocab_size: usize,
    pub lower_case: bool,
    /// The ids around a pair that is asked about; `None`: pairs have a frame.
    pub question: Option<[Vec<u32>; 2]>,
    /// The most threads that make rows.
    pub threads: usize,
}

impl Texts {
    /// Prepares `tokenizer` for texts of at most `max_tokens`.
    ///
    /// # Errors
    /// Those of the tokenizer.
    pub fn new(
        tokenizer: Tokenizer,
        [max_tokens, vocab_size]: [usize; 2],
        lower_case: bool,
        asks: bool,
        threads: Option<usize>,
    ) -> Result<Texts, TextError> {
        let frame = tokenizer.frame()?;
        let around = |text: &str| tokenizer.encode_behind(text, "");
        let question = match asks {
            true => Some([around(QWEN_AROUND[0])?, around(QWEN_AROUND[1])?]),
            false => None,
        };
        let threads =
            threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        Ok(Texts { tokenizer, frame, max_tokens, vocab_size, lower_case, question, threads })
    }

    /// The row of a text behind a prompt.
    ///
    /// # Errors
    /// A text without tokens, one with too many, ids that the vocabulary does not have.
    pub fn row(&self, input: &EmbedInput, prompt: &str, options: &EmbedOptions) -> Result<Row> {
        let truncate = options.truncate;
        let most = options.max_tokens.map_or(self.max_tokens, |most| most.min(self.max_tokens));
        let text = match input {
            EmbedInput::Text(text) => text,
            EmbedInput::Ids(ids) => {
                let ids = cut(ids.clone(), most, ids.len(), truncate)?;
                return self.checked(Row { kinds: vec![0; ids.len()], ids, prompt: 0 });
            }
        };
        let ids = self.encode(prompt, text)?;
        let [before, behind] = &self.frame.single;
        let around = before.len() + behind.len();
        if ids.is_empty() && around == 0 {
            return Err(Error::EmptyPrompt);
        }
        let all = ids.len() + around;
        let room = most.saturating_sub(around);
        let prompt = match prompt.is_empty() {
            true => 0,
            // As sentence-transformers counts them.
            false => before.len() + self.encode(prompt, "")?.len(),
        };
        let ids = cut(ids, room, all, truncate)?;
        let ids = [before, &ids[..], behind].concat();
        self.checked(Row { kinds: vec![0; ids.len()], ids, prompt })
    }

    /// The row of a pair. Where it has too many ids, the document loses some.
    ///
    /// # Errors
    /// As [`row`](Self::row); a query that leaves no room.
    pub fn pair(&self, pair: &TextPair, instruction: &str, truncate: Truncate) -> Result<Row> {
        if let Some([before, behind]) = &self.question {
            let head = format!("<Instruct>: {instruction}\n<Query>: {}\n<Document>: ", pair.query);
            // Encoded at once: tokens may reach over the border.
            let text = format!("{head}{}", pair.document);
            let ids = self.encode("", &text)?;
            let around = before.len() + behind.len();
            let all = ids.len() + around;
            let least = self.encode("", &head)?.len() + around;
            let room = self.room(least, all)? + least - around;
            // The beginning is the question itself.
            if all > self.max_tokens && truncate == Truncate::Start {
                return Err(Error::InvalidOption {
                    option: "truncate",
                    reason: "a pair of this model can lose its end only: `end`".into(),
                });
            }
            let ids = cut(ids, room, all, truncate)?;
            let ids = [before, &ids[..], behind].concat();
            return self.checked(Row { kinds: vec![0; ids.len()], ids, prompt: 0 });
        }
        let (query, document) = (self.encode("", &pair.query)?, self.encode("", &pair.document)?);
        let around: usize = self.frame.pair.iter().map(Vec::len).sum();
        let least = query.len() + around;
        let all = least + document.len();
        let document = cut(document, self.room(least, all)?, all, truncate)?;
        let [first, second] = self.frame.kinds;
        let [before, between, behind] = &self.frame.pair;
        let of = |ids: Vec<u32>, kind: u32| ids.into_iter().map(move |id| (id, kind));
        let framed = before.iter().copied().chain(of(query, first));
        let framed = framed.chain(between.iter().copied()).chain(of(document, second));
        let (ids, kinds) = framed.chain(behind.iter().copied()).unzip();
        self.checked(Row { ids, kinds, prompt: 0 })
    }

    /// Ids that a document may have beside `least` others.
    fn room(&self, least: usize, all: usize) -> Result<usize> {
        match self.max_tokens.checked_sub(least) {
            Some(room) if room > 0 || all == least => Ok(room),
            _ => Err(Error::PromptTooLong { tokens: all, limit: self.max_tokens }),
        }
    }

    /// The rows that `row` makes, by several threads where there are many.
    ///
    /// # Errors
    /// The first of theirs.
    pub fn rows<T: Sync>(
        &self,
        all: &[T],
        row: impl Fn(&Texts, &T) -> Result<Row> + Sync,
    ) -> Result<Vec<Row>> {
        let threads = self.threads.min(all.len() / ROWS_OF_THREAD).max(1);
        let of_part =
            |part: &[T]| part.iter().map(|one| row(self, one)).collect::<Result<Vec<_>>>();
        if threads == 1 {
            return of_part(all);
        }
        thread::scope(|scope| {
            let parts = all.chunks(all.len().div_ceil(threads));
            let parts: Vec<_> = parts.map(|part| scope.spawn(move || of_part(part))).collect();
            let mut rows = Vec::with_capacity(all.len());
            for part in parts {
                rows.extend(part.join().unwrap_or_else(|panic| resume_unwind(panic))?);
            }
            Ok(rows)
        })
    }

    fn encode(&self, prompt: &str, text: &str) -> Result<Vec<u32>> {
        let ids = match self.lower_case {
            true => self.tokenizer.encode_behind(&prompt.to_lowercase(), &text.to_lowercase()),
            false => self.tokenizer.encode_behind(prompt, text),
        };
        ids.map_err(Error::from)
    }

    fn checked(&self, row: Row) -> Result<Row> {
        if row.ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        match row.ids.iter().find(|id| **id as usize >= self.vocab_size) {
            None => Ok(row),
            Some(id) => {
                let size = self.vocab_size;
                Err(Error::Prompt(format!("token {id} is not in the vocabulary of {size}")))
            }
        }
    }
}

/// `ids`, of which `room` stay. With what is around them they are `all`.
fn cut(mut ids: Vec<u32>, room: usize, all: usize, truncate: Truncate) -> Result<Vec<u32>> {
    let over = ids.len().saturating_sub(room);
    match truncate {
        _ if over == 0 => {}
        Truncate::End => ids.truncate(room),
        Truncate::Start => drop(ids.drain(..over)),
        _ => return Err(Error::PromptTooLong { tokens: all, limit: all - over }),
    }
    Ok(ids)
}
