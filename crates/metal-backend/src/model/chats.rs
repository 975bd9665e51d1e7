//! Conversations: what a chat format has no place for, what is to be told of one, and what reads
//! answers.

use inference_core::{ChatOptions, Error, RenderedPrompt, Result};
use inference_text::answer::{AnswerParser, Family, Tool};

use super::MlxModel;

/// Variables of a chat template that are no arguments of it.
const CONVERSATION: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

impl MlxModel {
    /// Tells users of a template that cannot be read.
    pub(super) fn tell_of_fault(&self) {
        if let Some(fault) = self.text.chat.fault() {
            self.engine.notice(format!(
                "the chat template cannot be read, so that chats fail; prompts without it do not: {fault}"
            ));
        }
    }

    /// Tells users once that chats have no format, where that is so.
    pub(super) fn tell_of_lines(&self) {
        if !self.text.chat.is_lines() {
            return;
        }
        let notice = "there is no chat template, and the vocabulary has no marks of turns that are known: a \
                      chat is its messages, one a line; chat_template.jinja in the model's folder would change that";
        self.told_of_lines.call_once(|| self.engine.notice(notice.to_owned()));
    }

    /// Returns the parser that tells the parts of an answer to `prompt` apart.
    pub(super) fn answer_parser(
        &self,
        prompt: &RenderedPrompt,
        chat: &ChatOptions,
    ) -> AnswerParser {
        let family = *self.family.get_or_init(|| Family::probe(self));
        let tools = Tool::of_values(&chat.tools);
        AnswerParser::with_schemas(family, &prompt.text, &tools)
    }

    /// Refuses options that the chat format has no place for: it would ignore them silently.
    pub(super) fn refuse_unread(&self, chat: &ChatOptions) -> Result<()> {
        let refuse = |what: &str, reason: &str| {
            Err(Error::Unsupported { what: what.to_owned(), reason: reason.to_owned() })
        };
        if !chat.tools.is_empty() && !self.text.chat.reads("tools") {
            return refuse("tools", "the model's chat format has no place for them");
        }
        for (name, _) in &chat.template_kwargs {
            if CONVERSATION.contains(&name.as_str()) {
                return refuse(name, "the conversation itself sets this variable of the template");
            }
            if !self.text.chat.reads(name) {
                return refuse(name, "the model's chat format does not read it");
            }
        }
        Ok(())
    }
}
