//! State that a test reads and changes while something else owns the model.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use inference_core::{ChatOptions, GenerateOptions, Message, Prompt};

/// Shared by a test and its model.
#[derive(Default)]
pub struct Seen {
    /// The prompts of all generations, as they arrived.
    pub prompts: Mutex<Vec<Prompt>>,
    /// Their options.
    pub options: Mutex<Vec<GenerateOptions>>,
    /// Each conversation that was rendered.
    pub chats: Mutex<Vec<(Vec<Message>, ChatOptions)>>,
    /// Generations that noticed that nobody wants them.
    pub cancelled: AtomicUsize,
    /// Generations under way.
    pub running: AtomicUsize,
    /// Requests that found the queue full.
    pub refused: AtomicUsize,
    /// Generations wait before their first token while this is set.
    pub held: AtomicBool,
    /// Seconds since the engine's last step.
    pub stalled: AtomicUsize,
    /// How often freed memory was asked to go back.
    pub cleared: AtomicUsize,
    /// Set once the model was closed.
    pub closed: AtomicBool,
    /// Texts that are being tokenized.
    pub encoding: AtomicUsize,
    /// The most texts that were ever tokenized at once.
    pub most_encoding: AtomicUsize,
    /// The model's method that panics, while one is named here; `step` is each token.
    pub panics: Mutex<&'static str>,
}

impl Seen {
    /// The options of all generations.
    pub fn options(&self) -> Vec<GenerateOptions> {
        self.options.lock().unwrap().clone()
    }

    /// The options of the last generation.
    pub fn last_options(&self) -> GenerateOptions {
        self.options().pop().expect("something was generated")
    }

    /// The messages of each conversation that was rendered.
    pub fn messages(&self) -> Vec<Vec<Message>> {
        self.chats.lock().unwrap().iter().map(|(messages, _)| messages.clone()).collect()
    }

    /// Role and text of the messages of the last conversation.
    pub fn last_messages(&self) -> Vec<(String, String)> {
        let text = |m: &Message| (m.role.to_string(), m.content.as_str().unwrap_or("").to_owned());
        self.messages().pop().expect("a chat was rendered").iter().map(text).collect()
    }

    /// Panics where the test asked for it.
    pub(crate) fn may_panic(&self, method: &str) {
        // Compared first: a panic with the lock held would poison it.
        let panics = *self.panics.lock().unwrap() == method;
        assert!(!panics, "as the test asked");
    }
}
