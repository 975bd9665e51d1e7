//! How tokens are drawn and when a generation ends.

use std::path::PathBuf;

use clap::Args;
use inference_core::{
    Constraint, GenerateOptions, PenaltyScope, ReasoningBudget, ReasoningMarks, Xtc,
};

use super::dry::DryArgs;
use super::values::{self, LogitBias};
use crate::failure::Result;
use crate::{files, json};

/// The threshold of XTC where only its probability is given.
const DEFAULT_XTC_THRESHOLD: f32 = 0.1;

/// The marks of a bounded reasoning where none are given.
const DEFAULT_MARKS: (&str, &str) = ("<think>", "</think>");

/// How tokens are drawn and when a generation ends.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Most tokens to generate; 0 only reads the prompt [default: to the end of the context]
    #[arg(short = 'n', long, value_name = "N", value_parser = values::count,
          allow_hyphen_values = true)]
    pub max_tokens: Option<usize>,
    /// 0 takes the most likely token, higher is bolder [default: the model's own, else 0]
    #[arg(short, long, value_name = "T", value_parser = values::number, allow_hyphen_values = true)]
    pub temperature: Option<f32>,
    /// Draw among the K most likely tokens; 0: all
    #[arg(long, value_name = "K", value_parser = values::count, allow_hyphen_values = true)]
    pub top_k: Option<usize>,
    /// Draw among the most likely tokens that together reach this probability, in [0, 1]; 0: the
    /// likeliest
    #[arg(long, value_name = "P", value_parser = values::number, allow_hyphen_values = true)]
    pub top_p: Option<f32>,
    /// Drop tokens below this share of the best one's probability, in [0, 1]
    #[arg(long, value_name = "P", value_parser = values::number, allow_hyphen_values = true)]
    pub min_p: Option<f32>,
    /// Draw among the tokens of typical surprise that together reach this probability, in [0, 1];
    /// 1: all
    #[arg(long, value_name = "P", value_parser = values::number, allow_hyphen_values = true)]
    pub typical_p: Option<f32>,
    /// Draw among the tokens so many standard deviations below the greatest logit; 0: all
    #[arg(long, value_name = "N", value_parser = values::number, allow_hyphen_values = true)]
    pub top_n_sigma: Option<f32>,
    /// Chance that a step drops its top choices, in [0, 1]
    #[arg(long, value_name = "P", value_parser = values::number, allow_hyphen_values = true)]
    pub xtc_probability: Option<f32>,
    /// Probability that makes a token a top choice, in [0, 0.5] [default: 0.1]
    #[arg(long, value_name = "P", value_parser = values::number, allow_hyphen_values = true)]
    pub xtc_threshold: Option<f32>,
    /// Makes recent tokens less likely by this factor, above 0; 1: off
    #[arg(long, value_name = "X", value_parser = values::number, allow_hyphen_values = true)]
    pub repetition_penalty: Option<f32>,
    /// Taken from the logit of each recent token
    #[arg(long, value_name = "X", value_parser = values::number, allow_hyphen_values = true)]
    pub presence_penalty: Option<f32>,
    /// Taken from the logit of each recent token, once for each time it occurs
    #[arg(long, value_name = "X", value_parser = values::number, allow_hyphen_values = true)]
    pub frequency_penalty: Option<f32>,
    #[command(flatten)]
    pub dry: DryArgs,
    /// How many tokens are recent; with one of the penalties [default: 20, or all of the answer]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub penalty_window: Option<usize>,
    /// Take recent tokens from the `context`, which is the prompt and the answer, or from the
    /// `generated` ones alone; with one of the penalties [default: context]
    #[arg(long, value_name = "SCOPE", value_parser = values::penalty_scope)]
    pub penalty_scope: Option<PenaltyScope>,
    /// Added to a token's logit; repeatable, or a JSON object of several
    #[arg(long, value_name = "ID=BIAS")]
    pub logit_bias: Vec<LogitBias>,
    /// Makes the draws repeatable [default: a fresh one, which --json reports]
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub seed: Option<u64>,
    /// End before this text; repeatable
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// End before this token, beside the model's own; repeatable
    #[arg(long, value_name = "ID", value_parser = values::token_id, allow_hyphen_values = true)]
    pub stop_token_id: Vec<u32>,
    /// Generate on past the model's own end
    #[arg(long)]
    pub ignore_eos: bool,
    /// Fewest tokens to generate: until then no end and no stop text counts
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub min_tokens: Option<usize>,
    /// Propose up to N next tokens and verify them in one pass; 0: off [default: 4 where
    /// --speculate finds who drafts, else 0]
    ///
    /// Without one, the draft is what followed the last tokens where they stood before. The tokens
    /// stay what they are without it. In bf16 and f16, of two tokens that are almost as likely the
    /// other may be drawn.
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub draft_tokens: Option<usize>,
    /// Hold the answer to the JSON schema in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["regex", "grammar"])]
    pub json_schema: Option<PathBuf>,
    /// Hold the whole answer to this regular expression
    #[arg(long, value_name = "REGEX", conflicts_with = "grammar")]
    pub regex: Option<String>,
    /// Hold the answer to the Lark grammar in this file
    #[arg(long, value_name = "FILE")]
    pub grammar: Option<PathBuf>,
    /// Leave the reasoning between these marks free of it, such as `<think>` and `</think>`
    #[arg(long, num_args = 2, value_names = ["OPEN", "CLOSE"])]
    pub reasoning: Option<Vec<String>>,
    /// End the reasoning between these marks, or `<think>` and `</think>`, after so many tokens
    #[arg(long, value_name = "TOKENS", value_parser = values::count)]
    pub reasoning_budget: Option<usize>,
}

impl SamplingArgs {
    /// The contract's options, checked.
    ///
    /// # Errors
    /// The first option out of its range; a schema or a grammar that cannot be read.
    pub fn options(&self) -> Result<GenerateOptions> {
        let xtc = self.xtc_probability.map(|probability| Xtc {
            probability,
            threshold: self.xtc_threshold.unwrap_or(DEFAULT_XTC_THRESHOLD),
        });
        let constraint = self.constraint()?;
        // Beside a budget alone, the marks are the budget's.
        let is_held = constraint.is_some();
        let options = GenerateOptions {
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            top_n_sigma: self.top_n_sigma,
            xtc,
            dry: self.dry.options(),
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            penalty_window: self.penalty_window,
            penalty_scope: self.penalty_scope.unwrap_or_default(),
            logit_bias: self.logit_bias.iter().flat_map(|bias| bias.0.iter().copied()).collect(),
            seed: self.seed,
            stop: self.stop.clone(),
            stop_token_ids: self.stop_token_id.clone(),
            ignore_eos: self.ignore_eos,
            min_tokens: self.min_tokens.unwrap_or(0),
            draft_tokens: self.draft_tokens,
            constraint,
            reasoning: self.reasoning().filter(|_| is_held || self.reasoning_budget.is_none()),
            reasoning_budget: self.reasoning_budget(),
            ..Default::default()
        };
        options.validate()?;
        Ok(options)
    }

    /// Returns true when the answer is held to a form, such as that of a JSON schema.
    pub fn holds_a_form(&self) -> bool {
        self.json_schema.is_some() || self.regex.is_some() || self.grammar.is_some()
    }

    /// The value of each option, by its flag's name; `None` where it was not given.
    pub fn values(&self) -> Vec<(&'static str, Option<String>)> {
        fn of<T: ToString>(value: &Option<T>) -> Option<String> {
            value.as_ref().map(T::to_string)
        }
        fn list<T>(values: &[T], text: impl Fn(&T) -> String) -> Option<String> {
            let texts: Vec<String> = values.iter().map(text).collect();
            (!texts.is_empty()).then(|| texts.join(" "))
        }
        let file = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let biases = |bias: &LogitBias| {
            let pairs = bias.0.iter().map(|(id, bias)| format!("{id}={bias}"));
            pairs.collect::<Vec<_>>().join(" ")
        };
        vec![
            ("max-tokens", of(&self.max_tokens)),
            ("temperature", of(&self.temperature)),
            ("top-k", of(&self.top_k)),
            ("top-p", of(&self.top_p)),
            ("min-p", of(&self.min_p)),
            ("typical-p", of(&self.typical_p)),
            ("top-n-sigma", of(&self.top_n_sigma)),
            ("xtc-probability", of(&self.xtc_probability)),
            ("xtc-threshold", of(&self.xtc_threshold)),
            ("repetition-penalty", of(&self.repetition_penalty)),
            ("presence-penalty", of(&self.presence_penalty)),
            ("frequency-penalty", of(&self.frequency_penalty)),
            ("dry-multiplier", of(&self.dry.dry_multiplier)),
            ("dry-base", of(&self.dry.dry_base)),
            ("dry-allowed-length", of(&self.dry.dry_allowed_length)),
            ("dry-penalty-last-n", of(&self.dry.dry_penalty_last_n)),
            (
                "dry-sequence-breaker",
                list(&self.dry.dry_sequence_breaker, |text| format!("{text:?}")),
            ),
            ("penalty-window", of(&self.penalty_window)),
            ("penalty-scope", self.penalty_scope.map(|scope| scope.as_str().to_owned())),
            ("logit-bias", list(&self.logit_bias, biases)),
            ("seed", of(&self.seed)),
            ("stop", list(&self.stop, |text| format!("{text:?}"))),
            ("stop-token-id", list(&self.stop_token_id, u32::to_string)),
            ("ignore-eos", self.ignore_eos.then(|| "on".to_owned())),
            ("min-tokens", of(&self.min_tokens)),
            ("draft-tokens", of(&self.draft_tokens)),
            ("json-schema", file(&self.json_schema)),
            ("regex", of(&self.regex)),
            ("grammar", file(&self.grammar)),
            ("reasoning", list(self.reasoning.as_deref().unwrap_or(&[]), String::clone)),
            ("reasoning-budget", of(&self.reasoning_budget)),
        ]
    }

    /// The flags that were given and that change nothing where each token is the most likely one.
    fn useless_when_greedy(&self) -> Vec<&'static str> {
        let flags = [
            ("--top-k", self.top_k.is_some_and(|k| k != 0)),
            ("--top-p", self.top_p.is_some_and(|p| p != 1.0)),
            ("--min-p", self.min_p.is_some_and(|p| p != 0.0)),
            ("--typical-p", self.typical_p.is_some_and(|p| p != 1.0)),
            ("--top-n-sigma", self.top_n_sigma.is_some_and(|n| n > 0.0)),
            ("--xtc-probability", self.xtc_probability.is_some_and(|p| p != 0.0)),
            ("--seed", self.seed.is_some()),
        ];
        flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect()
    }

    /// Returns a note on flags that are in vain where each token is the most likely one, if any is.
    pub fn greedy_note(&self) -> Option<String> {
        let flags = self.useless_when_greedy();
        (!flags.is_empty()).then(|| {
            format!(
                "note: the temperature is 0, so each token is the most likely one and {} changed \
                 nothing; give --temperature",
                flags.join(", ")
            )
        })
    }

    fn reasoning_budget(&self) -> Option<ReasoningBudget> {
        let (open, close) = DEFAULT_MARKS;
        let marks = self.reasoning();
        let marks =
            marks.unwrap_or_else(|| ReasoningMarks { open: open.into(), close: close.into() });
        self.reasoning_budget.map(|tokens| ReasoningBudget { marks, tokens })
    }

    fn reasoning(&self) -> Option<ReasoningMarks> {
        match self.reasoning.as_deref() {
            Some([open, close]) => {
                Some(ReasoningMarks { open: open.clone(), close: close.clone() })
            }
            _ => None,
        }
    }

    fn constraint(&self) -> Result<Option<Constraint>> {
        if let Some(path) = &self.json_schema {
            let schema = json::parse(&files::read(path)?, &path.display().to_string())?;
            return Ok(Some(Constraint::JsonSchema(schema)));
        }
        if let Some(path) = &self.grammar {
            return Ok(Some(Constraint::Lark(files::read(path)?)));
        }
        Ok(self.regex.clone().map(Constraint::Regex))
    }
}
