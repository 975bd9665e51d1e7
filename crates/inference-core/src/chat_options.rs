//! How conversations become prompts.

use crate::Value;

/// How a conversation is rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatOptions {
    /// Tool definitions, as the chat template takes them; refused where it has no place for them.
    pub tools: Vec<Value>,
    /// Further variables of the template, such as `enable_thinking`; one that the template does not
    /// read is refused by its name.
    pub template_kwargs: Vec<(String, Value)>,
    /// End the prompt where the assistant's answer begins; otherwise after the last message.
    /// Without effect where the last message is to go on.
    pub add_generation_prompt: bool,
    /// End the prompt behind the text of the last message, which is the assistant's, so that the
    /// answer goes on with it.
    pub continue_final_message: bool,
}

impl Default for ChatOptions {
    fn default() -> Self {
        ChatOptions {
            tools: Vec::new(),
            template_kwargs: Vec::new(),
            add_generation_prompt: true,
            continue_final_message: false,
        }
    }
}
