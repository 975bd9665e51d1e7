//! Conversation formats for checkpoints without a chat template, by family.

use crate::{AddSpecial, TextError, Tokenizer};
use serde_json::Value as Json;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// Turns `<start_of_turn>role`; the system message goes in front of the first user's.
    Gemma,
    /// Turns `<|turn>role`, the system's among them.
    Gemma4,
    /// ChatML (Qwen).
    ChatMl,
    /// Llama 3's headers.
    Llama3,
    /// The contents, one a line.
    Lines,
}

impl Fallback {
    /// The family's format, or else ChatML, where its marks are tokens; with marks that are text
    /// like any other, a model has not learned where turns end. One that ends its answers with
    /// ChatML's mark has learned that.
    pub fn of(model_type: &str, tokenizer: &Tokenizer) -> Fallback {
        let is = |family: &str| model_type.starts_with(family);
        let own = if is("gemma4") {
            Fallback::Gemma4
        } else if is("gemma") {
            Fallback::Gemma
        } else if is("llama") {
            Fallback::Llama3
        } else {
            Fallback::ChatMl
        };
        let ends = |id: u32| tokenizer.eos_ids().contains(&id);
        let ends_in_chatml = tokenizer.token_to_id("<|im_end|>").is_some_and(ends);
        let choices = match ends_in_chatml {
            true => [Fallback::ChatMl, own],
            false => [own, Fallback::ChatMl],
        };
        let has_marks =
            |choice: &Fallback| choice.marks().iter().all(|mark| is_token(tokenizer, mark));
        choices.into_iter().find(has_marks).unwrap_or(Fallback::Lines)
    }

    /// The marks that begin and end turns.
    fn marks(self) -> &'static [&'static str] {
        match self {
            Fallback::Gemma => &["<start_of_turn>", "<end_of_turn>"],
            Fallback::Gemma4 => &["<|turn>", "<turn|>"],
            Fallback::ChatMl => &["<|im_start|>", "<|im_end|>"],
            Fallback::Llama3 => &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
            Fallback::Lines => &[],
        }
    }

    /// # Errors
    /// [`TextError::Input`] if a content is neither a string nor a list of text parts.
    pub fn render(
        self,
        messages: &[Json],
        bos: &str,
        generation_prompt: bool,
    ) -> Result<String, TextError> {
        let turns: Vec<(String, String)> = messages
            .iter()
            .enumerate()
            .map(|(i, message)| turn(i, message))
            .collect::<Result<_, _>>()?;
        let mut out = String::new();
        match self {
            Fallback::Lines => {
                let contents: Vec<&str> =
                    turns.iter().map(|(_, content)| content.as_str()).collect();
                return Ok(contents.join("\n"));
            }
            Fallback::Gemma => {
                out.push_str(bos);
                let mut system = String::new();
                for (role, content) in &turns {
                    match role.as_str() {
                        "system" | "developer" => system.push_str(&format!("{content}\n\n")),
                        role => {
                            let role = if role == "assistant" { "model" } else { role };
                            let system = std::mem::take(&mut system);
                            out.push_str(&format!(
                                "<start_of_turn>{role}\n{system}{content}<end_of_turn>\n"
                            ));
                        }
                    }
                }
                if !system.is_empty() {
                    out.push_str(&format!(
                        "<start_of_turn>user\n{}<end_of_turn>\n",
                        system.trim_end()
                    ));
                }
            }
            Fallback::Gemma4 => {
                out.push_str(bos);
                for (role, content) in &turns {
                    let role = match role.as_str() {
                        "assistant" => "model",
                        "developer" => "system",
                        role => role,
                    };
                    out.push_str(&format!("<|turn>{role}\n{content}<turn|>\n"));
                }
            }
            Fallback::ChatMl => {
                for (role, content) in &turns {
                    out.push_str(&format!("<|im_start|>{role}\n{content}<|im_end|>\n"));
                }
            }
            Fallback::Llama3 => {
                out.push_str(bos);
                for (role, content) in &turns {
                    out.push_str(&format!(
                        "<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>"
                    ));
                }
            }
        }
        if generation_prompt {
            out.push_str(match self {
                Fallback::Gemma => "<start_of_turn>model\n",
                Fallback::Gemma4 => "<|turn>model\n",
                Fallback::ChatMl => "<|im_start|>assistant\n",
                Fallback::Llama3 => "<|start_header_id|>assistant<|end_header_id|>\n\n",
                Fallback::Lines => "",
            });
        }
        Ok(out)
    }
}

/// Returns true when the tokenizer makes one token of `mark`.
fn is_token(tokenizer: &Tokenizer, mark: &str) -> bool {
    let ids = tokenizer.encode(mark, AddSpecial::Never).unwrap_or_default();
    ids.len() == 1 && tokenizer.token_to_id(mark) == Some(ids[0])
}

fn turn(index: usize, message: &Json) -> Result<(String, String), TextError> {
    let wrong = |reason: &str| TextError::Input {
        name: format!("messages[{index}]"),
        reason: reason.into(),
    };
    let role = message.get("role").and_then(Json::as_str).ok_or_else(|| wrong("has no role"))?;
    let content = match message.get("content") {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Array(parts)) => {
            let texts = parts.iter().map(|part| part.get("text").and_then(Json::as_str));
            texts.collect::<Option<String>>().ok_or_else(|| wrong("has a part that is no text"))?
        }
        None => String::new(),
        Some(_) => return Err(wrong("has a content that is no text")),
    };
    Ok((role.to_owned(), content))
}
