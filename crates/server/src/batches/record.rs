//! Files and batches as they are written beside their contents.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its id.
    pub id: String,
    /// Its place in the order of all records.
    pub number: u64,
    /// The client's name for it, which is a label alone.
    pub name: String,
    /// The origin of its lines.
    pub purpose: Purpose,
    /// Its bytes.
    pub bytes: u64,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// When it goes.
    pub expires: u64,
}

/// The origin of a file's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Requests of a client.
    Batch,
    /// Answers of a batch.
    BatchOutput,
}

/// The form of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Its requests are a file, and its answers become files.
    Files,
    /// Its requests came with it, and its answers stay with it.
    Whole,
}

/// The state of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its requests are not looked at yet.
    Validating,
    /// Its requests cannot be read, or its answers cannot be kept.
    Failed,
    /// Its requests are answered.
    InProgress,
    /// Its answers are put together.
    Finalizing,
    /// All requests have answers or errors.
    Completed,
    /// Its time was over before.
    Expired,
    /// It is to end.
    Cancelling,
    /// It was ended.
    Cancelled,
}

impl Status {
    /// Returns true when nothing more becomes of it.
    pub fn is_over(self) -> bool {
        matches!(self, Status::Failed | Status::Completed | Status::Expired | Status::Cancelled)
    }
}

/// The end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Every request was answered.
    Done,
    /// The client wants no more.
    Cancelled,
    /// The time is over.
    Expired,
    /// There is no room for more answers.
    Full,
}

/// A mistake in a batch's requests, or what kept it from its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// A word for programs.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The field.
    pub param: Option<String>,
}

/// Tokens of a batch's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Of prompts.
    pub input: u64,
    /// Of those, the ones that a cache held.
    pub cached: u64,
    /// Of answers.
    pub output: u64,
    /// Of those, thoughts.
    pub reasoning: u64,
}

/// A batch of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Its id.
    pub id: String,
    /// Its place in the order of all records.
    pub number: u64,
    /// Its form.
    pub form: Form,
    /// The path that answers its requests.
    pub endpoint: String,
    /// The file with its requests, where it has that form.
    pub input: Option<String>,
    /// Its time, in the client's words.
    pub window: String,
    /// Notes of the client.
    pub metadata: Option<Map<String, Json>>,
    /// Its state.
    pub status: Status,
    /// When it was made, in seconds since 1970; so are all times.
    pub created: u64,
    /// When its time is over.
    pub expires: u64,
    /// When its first request was begun.
    pub started: Option<u64>,
    /// When its answers were put together.
    pub finalizing: Option<u64>,
    /// When it was to end.
    pub cancelling: Option<u64>,
    /// When it was over.
    pub ended: Option<u64>,
    /// How it came to its end, once its answers are put together.
    pub stop: Option<Stop>,
    /// Its requests.
    pub total: usize,
    /// Those that were answered.
    pub completed: usize,
    /// Those that have an error.
    pub failed: usize,
    /// The file of its answers.
    pub output: Option<String>,
    /// The file of its errors.
    pub errors: Option<String>,
    /// How long these files stay, in seconds.
    pub output_stays: u64,
    /// Its mistakes.
    pub faults: Vec<Fault>,
    /// Tokens of its answers, once it is over.
    pub tokens: Option<Tokens>,
}

impl Batch {
    /// A batch of requests for `endpoint`, of which nothing else is known yet.
    pub fn new(form: Form, endpoint: &str, created: u64, expires: u64) -> Batch {
        Batch {
            id: String::new(),
            number: 0,
            form,
            endpoint: endpoint.to_owned(),
            input: None,
            window: String::new(),
            metadata: None,
            status: Status::Validating,
            created,
            expires,
            started: None,
            finalizing: None,
            cancelling: None,
            ended: None,
            stop: None,
            total: 0,
            completed: 0,
            failed: 0,
            output: None,
            errors: None,
            output_stays: 0,
            faults: Vec::new(),
            tokens: None,
        }
    }
}
