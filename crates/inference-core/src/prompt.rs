//! What a model is given.

/// What a model continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text that the model's tokenizer encodes, with its beginning-of-sequence token exactly once.
    Text(String),
    /// Token ids, taken as they are.
    Ids(Vec<u32>),
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Prompt::Text(text.to_owned())
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Prompt::Text(text)
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(ids: Vec<u32>) -> Self {
        Prompt::Ids(ids)
    }
}

/// A conversation as the chat template rendered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// The rendered text.
    pub text: String,
    /// Its token ids, as [`TextModel::chat`](crate::TextModel::chat) feeds them.
    pub ids: Vec<u32>,
}
