//! Commands as rank 0 tells them to the others, which compute what is asked and need not know what
//! becomes of it.

use std::sync::mpsc;
use std::time::Instant;

use inference_core::{CancelToken, GenerateOptions, Generation, Token};
use serde::{Deserialize, Serialize};

use crate::engine::classify::ClassifyJob;
use crate::engine::job::{Command, Job};
use crate::engine::prompt_logprobs::PromptLogprobs;
use crate::engine::shared::Sender as JobSender;

/// The orders at the beginning of a scheduling step.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TurnOrders {
    /// Requests that arrived.
    pub arrived: Vec<Order>,
    /// The numbers of those that were cancelled and do not decode.
    pub cancelled: Vec<u64>,
    /// Everything ends.
    pub closes: bool,
}

/// The work of a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    Generate {
        ids: Vec<u32>,
        /// The most likely tokens that are told at each place of the prompt, where it is told of.
        prompt_logprobs: Option<usize>,
    },
    Classify {
        prompts: Vec<Vec<u32>>,
        labels: Vec<Vec<u32>>,
    },
}

impl Order {
    /// The work that `command` asks for; `None` where it computes nothing.
    pub fn of(command: &Command) -> Option<Order> {
        match command {
            Command::Run(job) => Some(Order::Generate {
                ids: job.ids.clone(),
                prompt_logprobs: job.prompt_logprobs.as_ref().map(|report| report.sizes().1),
            }),
            Command::Classify(job) => {
                Some(Order::Classify { prompts: job.prompts.clone(), labels: job.labels.clone() })
            }
            // What several ranks do not do is refused before.
            Command::Inspect(_) => None,
            Command::ClearCache(_) | Command::Close | Command::Lost(_) => None,
        }
    }

    /// The command, whose results nobody waits for.
    pub fn into_command(self) -> Command {
        match self {
            Order::Generate { ids, prompt_logprobs } => {
                let (output, _) = Generation::channel(ids.clone(), CancelToken::new());
                let token = |id: &u32| Token { id: *id, ..Token::default() };
                let tokens = || ids.iter().map(token).collect();
                Command::Run(Box::new(Job {
                    number: 0,
                    prompt_logprobs: prompt_logprobs.map(|top| PromptLogprobs::new(tokens(), top)),
                    ids,
                    scene: None,
                    options: GenerateOptions { temperature: Some(0.0), ..Default::default() },
                    eos_token_ids: Vec::new(),
                    protected_ids: Vec::new(),
                    repeats: None,
                    guide: None,
                    text: None,
                    output: JobSender::new(output),
                    queued_at: Instant::now(),
                }))
            }
            Order::Classify { prompts, labels } => Command::Classify(Box::new(ClassifyJob {
                number: 0,
                scenes: vec![None; prompts.len()],
                prompts,
                labels,
                logits: false,
                draw: None,
                cancel: CancelToken::new(),
                queued_at: Instant::now(),
                reply: mpsc::channel().0,
            })),
        }
    }
}
