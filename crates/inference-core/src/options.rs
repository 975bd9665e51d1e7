//! Options of a load and of a request: plain structs, unset is `None`, one `validate` each.

use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::RangeBounds;
use std::path::PathBuf;

use crate::{
    CancelToken, Constraint, CpuActivations, Dry, Error, LoadProgress, PenaltyScope, Ranks,
    ReasoningBudget, ReasoningMarks, Result, Speculate,
};

/// A floating-point type that a model can be computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// 32-bit floating point.
    F32,
    /// 16-bit IEEE floating point.
    F16,
    /// 16-bit brain floating point.
    Bf16,
}

impl Dtype {
    /// `f32`, `f16` or `bf16`.
    pub fn as_str(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        }
    }
}

impl std::str::FromStr for Dtype {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "f32" | "float32" => Ok(Dtype::F32),
            "f16" | "float16" => Ok(Dtype::F16),
            "bf16" | "bfloat16" => Ok(Dtype::Bf16),
            other => Err(invalid("dtype", format!("`{other}` is not one of f32, f16, bf16"))),
        }
    }
}

/// How a model is loaded. A backend that does not honour a set option refuses it by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadOptions {
    /// The backend's name; `None`: the first available one.
    pub backend: Option<String>,
    /// The most positions a request may use: caches that would grow past it rotate instead, so
    /// that a generation can go on with the last `context_length` positions in view. Layers
    /// with a sliding window keep it, unless all layers have one.
    pub context_length: Option<usize>,
    /// Requests that run together; `None`: the backend's choice.
    pub parallel_slots: Option<usize>,
    /// Requests that may wait for a slot before further ones are refused with
    /// [`Error::QueueFull`]; `None`: as many as come.
    pub queue_limit: Option<usize>,
    /// Compute every request by itself, so that its numbers do not depend on what runs beside it
    /// or on what a cache holds, on any device. Slower where several run together.
    pub batch_invariant: bool,
    /// Bytes in which keys and values of earlier prompts and answers are kept, so that a prompt
    /// that begins alike need not be computed again; `None` or 0: none are kept.
    pub prefix_cache: Option<u64>,
    /// A folder in which what the prefix cache holds is kept, so that the next load goes on from
    /// it; `None`: it is gone with the model. It is this user's alone: prompts can be told from it.
    pub prefix_cache_dir: Option<PathBuf>,
    /// Bytes that the files in `prefix_cache_dir` may take, of all models; `None`: 8 GiB, or what
    /// they take already where that is more.
    pub prefix_cache_disk: Option<u64>,
    /// Bits of a quantised key and value cache; `None`: unquantised.
    pub kv_bits: Option<usize>,
    /// Values that share a scale in a quantised key and value cache; `None`: 64, or 32 where a
    /// head's size is not a multiple of 64.
    pub kv_group_size: Option<usize>,
    /// Layers that run on the GPU; `None`: all of them.
    pub gpu_layers: Option<usize>,
    /// A folder with a LoRA adapter.
    pub adapter_path: Option<PathBuf>,
    /// Who drafts the tokens of requests; see [`GenerateOptions::draft_tokens`].
    pub speculate: Speculate,
    /// A smaller model with the same vocabulary, in a folder or a file, that drafts.
    pub draft_model: Option<PathBuf>,
    /// The type that weights and activations are held in; `None`: the checkpoint's own, or one that
    /// stands for it where the device has no units for that.
    pub dtype: Option<Dtype>,
    /// Bytes that weights, caches and activations may take together; `None`, or more than the
    /// device has: what it has.
    pub memory_limit: Option<u64>,
    /// Bytes of freed memory that the allocator may keep for reuse, for all models of the process;
    /// no more than the device has. `None`: the backend's choice, which holds what one chunk of a
    /// prompt is computed with.
    pub cache_limit: Option<u64>,
    /// Bytes of weights and caches that stay resident while requests run, so that the system does
    /// not page them out; 0: none. `None`: what the model needs, within what the device recommends.
    /// Without effect where nothing is paged out, as on anything but Metal.
    pub wired_limit: Option<u64>,
    /// Prompt tokens computed at once; `None`: the backend's choice.
    pub prefill_chunk: Option<usize>,
    /// Threads that compute on a CPU, for all models of the process; `None`: all that it has.
    pub threads: Option<usize>,
    /// The form to which activations are rounded before a CPU multiplies them with packed weights;
    /// `None`: they are not.
    pub cpu_activations: Option<CpuActivations>,
    /// Compute the model together with other processes, each of which loads a part of it with the
    /// same options. The first one takes the requests; the others follow it
    /// ([`TextModel::follow`](crate::TextModel::follow)). `None`: alone.
    pub ranks: Option<Ranks>,
    /// Is told how many bytes of weights are read. It changes nothing, so that a backend need not
    /// tell.
    pub progress: Option<LoadProgress>,
}

impl LoadOptions {
    /// The most that `threads` may be: no machine that a backend is known to run on has more cores,
    /// and many more threads than cores exhaust what a process may have.
    pub const MAX_THREADS: usize = 1024;

    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        positive("context_length", self.context_length)?;
        positive("parallel_slots", self.parallel_slots)?;
        positive("prefill_chunk", self.prefill_chunk)?;
        positive("threads", self.threads)?;
        match (self.speculate, &self.draft_model) {
            (Speculate::Draft, None) => {
                return Err(invalid("speculate", "`draft` asks for a `draft_model`".into()));
            }
            (Speculate::Mtp | Speculate::Ngram | Speculate::Off, Some(_)) => {
                return Err(invalid("draft_model", "`speculate` names another drafter".into()));
            }
            _ => {}
        }
        if let Some(threads) = self.threads
            && threads > Self::MAX_THREADS
        {
            let reason = format!(
                "{threads} is above {}: more threads than cores only wait for each other",
                Self::MAX_THREADS
            );
            return Err(invalid("threads", reason));
        }
        if let Some(bits) = self.kv_bits
            && !matches!(bits, 4 | 8)
        {
            return Err(invalid("kv_bits", format!("{bits} is not 4 or 8")));
        }
        if let Some(size) = self.kv_group_size {
            if !matches!(size, 32 | 64) {
                return Err(invalid("kv_group_size", format!("{size} is not 32 or 64")));
            }
            if self.kv_bits.is_none() {
                return Err(invalid("kv_group_size", "says nothing without `kv_bits`".into()));
            }
        }
        if self.memory_limit == Some(0) {
            return Err(invalid("memory_limit", "must be at least 1".into()));
        }
        self.validate_prefix_store()?;
        self.ranks.as_ref().map_or(Ok(()), Ranks::validate)
    }

    fn validate_prefix_store(&self) -> Result<()> {
        if self.prefix_cache_dir.is_none() {
            return match self.prefix_cache_disk {
                None => Ok(()),
                Some(_) => {
                    let reason = "says nothing without `prefix_cache_dir`".into();
                    Err(invalid("prefix_cache_disk", reason))
                }
            };
        }
        if self.prefix_cache.unwrap_or(0) == 0 {
            let reason = "`prefix_cache` is 0, so that there is nothing to keep";
            return Err(invalid("prefix_cache_dir", reason.into()));
        }
        if self.ranks.is_some() {
            let reason = "several ranks keep no prefixes on disk; leave it out";
            return Err(invalid("prefix_cache_dir", reason.into()));
        }
        Ok(())
    }
}

/// Exclude-top-choices sampling: with `probability`, drop every token above `threshold` but the
/// least likely of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xtc {
    /// Chance that a step applies it, in `[0, 1]`.
    pub probability: f32,
    /// Probability from which a token counts as a top choice, in `[0, 0.5]`.
    pub threshold: f32,
}

/// How tokens are generated.
///
/// Logits pass, in this order: `logit_bias`, `repetition_penalty`, `presence_penalty`,
/// `frequency_penalty`, `dry`; then the `constraint`; then, unless the temperature is 0,
/// `top_n_sigma`, `typical_p`, `top_p`, `min_p`, `xtc`, `top_k`, the temperature, and the draw. Log
/// probabilities are those before the constraint, the filters and the temperature.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// The most tokens to generate; `None`: to the end of the context; 0: prefill only.
    pub max_tokens: Option<usize>,
    /// 0 is greedy; `None`: what the model's generation config asks for, else greedy. A set
    /// temperature also sets the model's own `top_k`, `top_p` and `min_p` aside.
    pub temperature: Option<f32>,
    /// Keep this many of the most likely tokens; 0: all.
    pub top_k: Option<usize>,
    /// Keep the smallest set of most likely tokens whose probability reaches this, in `[0, 1]`; 0
    /// keeps the likeliest alone.
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this fraction of the most likely one, in `[0, 1]`.
    pub min_p: Option<f32>,
    /// Keep the tokens whose surprise is nearest to the mean one, until their probabilities pass
    /// this, in `[0, 1]`; 1: all. Also called locally typical sampling.
    pub typical_p: Option<f32>,
    /// Keep the tokens whose logits are at most so many standard deviations of all logits below the
    /// greatest one; 0 or less: all.
    pub top_n_sigma: Option<f32>,
    /// Exclude-top-choices sampling.
    pub xtc: Option<Xtc>,
    /// Divides positive and multiplies negative logits of the ids in the window; above 0, 1 is off.
    pub repetition_penalty: Option<f32>,
    /// Subtracted from the logits of the ids in the window.
    pub presence_penalty: Option<f32>,
    /// Subtracted from the logits of the ids in the window, once for each occurrence.
    pub frequency_penalty: Option<f32>,
    /// A penalty on going on with what was there before.
    pub dry: Option<Dry>,
    /// How many of the last ids of the `penalty_scope` the penalties look at; `None`: 20 of the
    /// context, all of the generated ones. It says nothing without a penalty.
    pub penalty_window: Option<usize>,
    /// Which ids the penalties look at.
    pub penalty_scope: PenaltyScope,
    /// Added to the logits of these ids; negative infinity forbids an id.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Makes draws repeatable: a draw depends on the seed and the step alone. `None`: a fresh one,
    /// which the [`Outcome`](crate::Outcome) tells.
    pub seed: Option<u64>,
    /// Texts that end the generation and are not part of it; the earliest match counts. In an
    /// answer to a conversation they count in what it says: see
    /// [`TextModel::generate_answer`](crate::TextModel::generate_answer).
    pub stop: Vec<String>,
    /// Ids that end the generation and are not part of it, beside the model's own.
    pub stop_token_ids: Vec<u32>,
    /// Generate on past the model's end-of-sequence ids.
    pub ignore_eos: bool,
    /// Until so many tokens are generated, ids that end the generation are never drawn, and stop
    /// strings do not count: what is complete by then is text. A text with a `constraint` that
    /// allows nothing but an end still ends.
    pub min_tokens: usize,
    /// Let the text show special tokens, such as the marks of tool calls and channels, which it
    /// leaves out otherwise. Ids that end the generation are never part of the text.
    pub special_tokens: bool,
    /// Report the log probability of each token.
    pub logprobs: bool,
    /// Report this many most likely tokens at each step, with their log probabilities; whether
    /// `logprobs` is set or not.
    pub top_logprobs: usize,
    /// Report the log probability of each token of the prompt after those before it, and
    /// `top_logprobs` most likely ones at its position; see
    /// [`Generation::take_prompt_logprobs`](crate::Generation::take_prompt_logprobs). They are the
    /// model's own: no other option changes them. The whole prompt is computed, whatever a prefix
    /// cache holds.
    pub prompt_logprobs: bool,
    /// Hand over the whole logits with each token: `[vocab_size]` f32 values.
    pub logits: bool,
    /// Speculative decoding: propose up to this many next tokens, and verify them in one pass; 0:
    /// off. `None`: [`DRAFT_TOKENS`](Self::DRAFT_TOKENS) where the load has a drafter
    /// ([`LoadOptions::speculate`]), else off.
    ///
    /// The draft is what that drafter proposes. Without one, it is the continuation of an earlier
    /// occurrence of the last tokens, in the prompt or in the answer. Each draft token is held
    /// against the draw of its step, and the first other one ends the draft. So the tokens are
    /// those without drafts. In bf16 and f16 a pass of several positions rounds otherwise than a
    /// step: of two tokens that are almost as likely, the other may be drawn. Few or none are
    /// verified where that does not pay.
    pub draft_tokens: Option<usize>,
    /// The form that the text must conform to.
    pub constraint: Option<Constraint>,
    /// Marks of the reasoning that the constraint leaves alone; `None`: the constraint holds from
    /// the first token.
    pub reasoning: Option<ReasoningMarks>,
    /// The most tokens of reasoning; `None`: as many as the model likes.
    pub reasoning_budget: Option<ReasoningBudget>,
    /// Ends the generation from another thread, or at a deadline. A clone of the options shares it.
    pub cancel: CancelToken,
}

impl GenerateOptions {
    /// The window of the penalties over the context where none is given.
    pub const DEFAULT_PENALTY_WINDOW: usize = 20;

    /// The draft tokens of a pass where a model drafts and a request says nothing.
    pub const DRAFT_TOKENS: usize = 4;

    /// The most that `draft_tokens` may be: a longer draft is seldom right to its end.
    pub const MAX_DRAFT_TOKENS: usize = 64;

    /// How many of the last ids of their scope the penalties look at.
    pub fn penalty_window_or_default(&self) -> usize {
        self.penalty_window.unwrap_or(match self.penalty_scope {
            PenaltyScope::Context => GenerateOptions::DEFAULT_PENALTY_WINDOW,
            PenaltyScope::Generated => usize::MAX,
        })
    }

    /// Refuses a window or a scope of penalties where there is no penalty, with the model's own
    /// values filled in: nothing would look at it. A penalty that is off was given, and passes.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the option's name.
    pub fn check_penalties(&self) -> Result<()> {
        let GenerateOptions { repetition_penalty, presence_penalty, frequency_penalty, .. } = self;
        if repetition_penalty.or(*presence_penalty).or(*frequency_penalty).is_some() {
            return Ok(());
        }
        let reason = "says nothing without a penalty: set `repetition_penalty`, \
                      `presence_penalty` or `frequency_penalty`";
        if self.penalty_window.is_some() {
            return Err(invalid("penalty_window", reason.into()));
        }
        match self.penalty_scope {
            PenaltyScope::Context => Ok(()),
            PenaltyScope::Generated => Err(invalid("penalty_scope", reason.into())),
        }
    }

    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        within("temperature", self.temperature, (Included(0.0), Unbounded))?;
        within("top_p", self.top_p, (Included(0.0), Included(1.0)))?;
        within("min_p", self.min_p, (Included(0.0), Included(1.0)))?;
        within("typical_p", self.typical_p, (Included(0.0), Included(1.0)))?;
        within("top_n_sigma", self.top_n_sigma, (Unbounded, Unbounded))?;
        self.dry.as_ref().map_or(Ok(()), Dry::validate)?;
        within("repetition_penalty", self.repetition_penalty, (Excluded(0.0), Unbounded))?;
        within("presence_penalty", self.presence_penalty, (Unbounded, Unbounded))?;
        within("frequency_penalty", self.frequency_penalty, (Unbounded, Unbounded))?;
        positive("penalty_window", self.penalty_window)?;
        if let Some(count) = self.draft_tokens
            && count > Self::MAX_DRAFT_TOKENS
        {
            let most = Self::MAX_DRAFT_TOKENS;
            return Err(invalid("draft_tokens", format!("{count} is above {most}")));
        }
        if let Some(xtc) = self.xtc {
            let (probability, threshold) = (Some(xtc.probability), Some(xtc.threshold));
            within("xtc.probability", probability, (Included(0.0), Included(1.0)))?;
            within("xtc.threshold", threshold, (Included(0.0), Included(0.5)))?;
        }
        if let Some(most) = self.max_tokens
            && self.min_tokens > most
        {
            let reason = format!("{} is above `max_tokens`, {most}", self.min_tokens);
            return Err(invalid("min_tokens", reason));
        }
        for (id, bias) in &self.logit_bias {
            if bias.is_nan() || *bias == f32::INFINITY {
                return Err(invalid(
                    "logit_bias",
                    format!("{bias} for token {id} is not a number to add"),
                ));
            }
        }
        if let Some(index) = self.stop.iter().position(String::is_empty) {
            return Err(invalid(
                "stop",
                format!("string {index} is empty, which would match at once"),
            ));
        }
        if self.ignore_eos && self.constraint.is_some() {
            return Err(invalid(
                "ignore_eos",
                "a constrained text ends where its constraint does".into(),
            ));
        }
        if let Some(marks) = &self.reasoning {
            if self.constraint.is_none() {
                return Err(invalid("reasoning", "says nothing without `constraint`".into()));
            }
            if marks.open.is_empty() || marks.close.is_empty() {
                return Err(invalid("reasoning", "a mark is empty".into()));
            }
        }
        if let Some(ReasoningBudget { marks, .. }) = &self.reasoning_budget
            && (marks.open.is_empty() || marks.close.is_empty())
        {
            return Err(invalid("reasoning_budget", "a mark is empty".into()));
        }
        Ok(())
    }
}

/// How prompts are classified.
#[derive(Clone, Debug, Default)]
pub struct ClassifyOptions {
    /// Texts whose probability as the continuation of each prompt is wanted; each may span several
    /// tokens. It is the model's own: no other option changes it.
    pub labels: Vec<String>,
    /// How the next token is chosen and what is reported of it: it is the first one that
    /// [`generate`](crate::TextModel::generate) would draw, but for an unset temperature, which is
    /// 0 here. Its log probability is always reported. Options that are about more than the next
    /// token are refused: a `max_tokens` other than 1, `stop`, `stop_token_ids`, `ignore_eos`,
    /// `min_tokens`, `prompt_logprobs`, `draft_tokens`, `constraint`, `reasoning` and
    /// `reasoning_budget`.
    pub generate: GenerateOptions,
}

impl ClassifyOptions {
    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] with the first bad option's name.
    pub fn validate(&self) -> Result<()> {
        if let Some(index) = self.labels.iter().position(String::is_empty) {
            return Err(invalid("labels", format!("label {index} is empty")));
        }
        let options = &self.generate;
        options.validate()?;
        options.check_penalties()?;
        let beyond_one_token = [
            ("max_tokens", options.max_tokens.is_some_and(|count| count != 1)),
            ("stop", !options.stop.is_empty()),
            ("stop_token_ids", !options.stop_token_ids.is_empty()),
            ("ignore_eos", options.ignore_eos),
            ("min_tokens", options.min_tokens > 0),
            ("prompt_logprobs", options.prompt_logprobs),
            ("draft_tokens", options.draft_tokens.is_some_and(|count| count > 0)),
            ("constraint", options.constraint.is_some()),
            ("reasoning", options.reasoning.is_some()),
            ("reasoning_budget", options.reasoning_budget.is_some()),
        ];
        match beyond_one_token.into_iter().find(|(_, asked)| *asked) {
            Some((option, _)) => {
                let reason = "a classification is about the next token alone; leave it unset";
                Err(invalid(option, reason.into()))
            }
            None => Ok(()),
        }
    }
}

fn invalid(option: &'static str, reason: String) -> Error {
    Error::InvalidOption { option, reason }
}

fn positive(option: &'static str, value: Option<usize>) -> Result<()> {
    match value {
        Some(0) => Err(invalid(option, "must be at least 1".into())),
        _ => Ok(()),
    }
}

/// Checks that a set value lies between the bounds; with two unbounded ends, that it is finite.
fn within(
    option: &'static str,
    value: Option<f32>,
    (low, high): (Bound<f32>, Bound<f32>),
) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    if value.is_finite() && (low, high).contains(&value) {
        return Ok(());
    }
    let low = match low {
        Included(low) => Some(format!("at least {low}")),
        Excluded(low) => Some(format!("above {low}")),
        Unbounded => None,
    };
    let high = match high {
        Included(high) => format!("at most {high}"),
        Excluded(high) => format!("below {high}"),
        Unbounded => "finite".to_owned(),
    };
    let range = low.map_or(high.clone(), |low| format!("{low} and {high}"));
    Err(invalid(option, format!("{value} is not {range}")))
}
