//! Conversation formats for checkpoints without a chat template, by family.

use crate::TextError;
use serde_json::Value as Json;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// Turns `<start_of_turn>role`; the system message goes in front of the first user's.
    Gemma,
    /// ChatML (Qwen).
    ChatMl,
    /// Llama 3's headers.
    Llama3,
    /// The contents, one a line.
    Lines,
}

impl Fallback {
    pub fn of(model_type: &str) -> Fallback {
        let is = |family: &str| model_type.starts_with(family);
        if is("gemma") {
            Fallback::Gemma
        } else if is("qwen") {
            Fallback::ChatMl
        } else if is("llama") {
            Fallback::Llama3
        } else {
            Fallback::Lines
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
                Fallback::ChatMl => "<|im_start|>assistant\n",
                Fallback::Llama3 => "<|start_header_id|>assistant<|end_header_id|>\n\n",
                Fallback::Lines => "",
            });
        }
        Ok(out)
    }
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
