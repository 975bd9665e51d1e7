//! Prompts and conversations, laid out as ids, with their pictures between them.

use std::sync::Arc;

use inference_core::{
    ChatOptions, EncodedPicture, Error, Feature, Message, PlacedPicture, Prompt, PromptPart,
    RenderedPrompt, Result, Value,
};
use inference_text::json::{fields, message, try_from_value};
use inference_text::{AddSpecial, ChatInput, LocalTime, Tokenizer};
use serde_json::Value as Json;

use super::MlxModel;
use super::laid::Laid;
use crate::sight::{Prepared, Sight};

/// Ids of a prompt with the pictures that were prepared, each with its place.
type Placed = Vec<(Arc<Prepared>, usize)>;

impl MlxModel {
    /// The tokenizer of an open model.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(super) fn tokenizer(&self) -> Result<&Tokenizer> {
        self.engine.check_open()?;
        Ok(&self.text.tokenizer)
    }

    /// How pictures are seen.
    ///
    /// # Errors
    /// A model that does not see.
    fn seeing(&self) -> Result<&Sight> {
        self.capabilities.require(Feature::Images)?;
        let reason = "the model has no vision tower";
        self.sight.as_ref().ok_or_else(|| Error::Unsupported {
            what: Feature::Images.as_str().into(),
            reason: reason.into(),
        })
    }

    /// A prompt as ids and pictures.
    pub(super) fn laid_out(&self, prompt: &Prompt) -> Result<Laid> {
        let parts = match prompt {
            Prompt::Text(text) => {
                let ids = self.tokenizer()?.encode(text, AddSpecial::Prompt);
                return Ok(Laid { ids: ids.map_err(Error::from)?, scene: None, image: 0 });
            }
            Prompt::Ids(ids) => return Ok(Laid { ids: ids.clone(), scene: None, image: 0 }),
            Prompt::Parts(parts) => parts,
        };
        self.engine.check_open()?;
        let mut pictures = prompt.pictures().peekable();
        let sight = pictures.peek().is_some().then(|| self.seeing()).transpose()?;
        if let Some(sight) = sight {
            sight.limits().check(pictures)?;
        }
        let around = sight.map_or("", |sight| sight.marks().around);
        let is_picture = |at: Option<usize>| {
            matches!(at.and_then(|at| parts.get(at)), Some(PromptPart::Picture(_)))
        };
        let (mut ids, mut placed, mut text) = (Vec::new(), Placed::new(), String::new());
        let has_own_beginning = matches!(parts.first(), Some(PromptPart::Ids(_)));
        let mut special = if has_own_beginning { AddSpecial::Never } else { AddSpecial::Prompt };
        let mut write = |text: &mut String, ids: &mut Vec<u32>| -> Result<()> {
            if !text.is_empty() || special == AddSpecial::Prompt {
                let written = self.text.tokenizer.encode(text, special).map_err(Error::from)?;
                ids.extend(written);
                special = AddSpecial::Never;
                text.clear();
            }
            Ok(())
        };
        for (at, part) in parts.iter().enumerate() {
            match (part, sight) {
                (PromptPart::Text(part), _) => {
                    if is_picture(at.checked_sub(1)) {
                        text.push_str(around);
                    }
                    text.push_str(part);
                    if is_picture(Some(at + 1)) {
                        text.push_str(around);
                    }
                }
                (PromptPart::Ids(part), _) => {
                    write(&mut text, &mut ids)?;
                    ids.extend(part);
                }
                (PromptPart::Picture(picture), Some(sight)) => {
                    write(&mut text, &mut ids)?;
                    let prepared = sight.prepare(picture)?;
                    placed.push((Arc::clone(&prepared), ids.len()));
                    ids.extend(&prepared.ids);
                }
                (PromptPart::Picture(_), None) => self.seeing().map(|_| ())?,
            }
        }
        write(&mut text, &mut ids)?;
        let Some(sight) = sight else { return Ok(Laid { ids, scene: None, image: 0 }) };
        let scene = sight.scene(&placed, ids.len());
        // Samplers and reports look ids up: one that is beyond the vocabulary is nowhere.
        for run in scene.shown.iter().flat_map(|one| &one.runs) {
            let known = (sight.marks().image as usize) < self.info.vocab_size;
            ids[run.clone()].fill(if known { sight.marks().image } else { scene.filler });
        }
        Ok(Laid { ids, scene: Some(Arc::new(scene)), image: sight.marks().image })
    }

    /// A conversation as the template renders it, with its pictures in their places.
    pub(super) fn rendered(
        &self,
        messages: &[Message],
        chat: &ChatOptions,
    ) -> Result<RenderedPrompt> {
        let mut pictures = Vec::new();
        let messages: Vec<Json> = messages
            .iter()
            .map(|one| message(&without_pictures(one, &mut pictures)?))
            .collect::<Result<_>>()?;
        let sight = (!pictures.is_empty()).then(|| self.seeing()).transpose()?;
        if let Some(sight) = sight {
            sight.limits().check(&pictures)?;
        }
        let tools: Vec<Json> = chat.tools.iter().map(try_from_value).collect::<Result<_>>()?;
        let kwargs = fields(&chat.template_kwargs)?;
        let around = sight.map(Sight::marks).filter(|marks| !marks.around.is_empty());
        let replaced = around.map(|marks| {
            let (mark, around) = (marks.written.0.as_str(), marks.around);
            (mark, format!("{around}{mark}{around}"))
        });
        let input = ChatInput {
            messages: &messages,
            tools: (!tools.is_empty()).then_some(tools.as_slice()),
            documents: None,
            add_generation_prompt: chat.add_generation_prompt && !chat.continue_final_message,
            continue_final_message: chat.continue_final_message,
            kwargs: Some(&kwargs),
            now: LocalTime::now_utc(),
            replaced: replaced.as_ref().map(|(mark, by)| (*mark, by.as_str())),
        };
        let rendered = self.text.chat.render_and_encode(&input).map_err(Error::from)?;
        let (text, ids) = (rendered.text, rendered.ids);
        match sight {
            None => Ok(RenderedPrompt { text, ids, pictures: Vec::new() }),
            Some(sight) => with_pictures(text, &ids, pictures, sight),
        }
    }
}

/// The prompt with the ids of pictures in the place of what the template wrote for them.
fn with_pictures(
    text: String,
    ids: &[u32],
    pictures: Vec<EncodedPicture>,
    sight: &Sight,
) -> Result<RenderedPrompt> {
    let marks = sight.marks();
    let (_, mark) = marks.written;
    let written = ids.iter().filter(|id| **id == mark).count();
    if written != pictures.len() {
        return Err(Error::Prompt(format!(
            "the chat template writes {written} pictures, the messages have {}",
            pictures.len()
        )));
    }
    let mut pictures = pictures.into_iter();
    let mut prompt = RenderedPrompt { text, ..RenderedPrompt::default() };
    let mut at = 0;
    while let Some(id) = ids.get(at) {
        at += 1;
        let picture = if *id == mark { pictures.next() } else { None };
        let Some(picture) = picture else {
            prompt.ids.push(*id);
            continue;
        };
        if marks.writes_all {
            // What begins and ends a picture is part of its own ids.
            let begins = prompt.ids.pop();
            if begins != marks.begin || ids.get(at) != Some(&marks.end) {
                return Err(Error::Prompt(
                    "the chat template does not write the marks around a picture".into(),
                ));
            }
            at += 1;
        }
        let prepared = sight.prepare(&picture)?;
        let places = prompt.ids.len()..prompt.ids.len() + prepared.ids.len();
        prompt.ids.extend(&prepared.ids);
        prompt.pictures.push(PlacedPicture { picture, places });
    }
    Ok(prompt)
}

/// The message with a mark in the place of each picture, which is added to `pictures`. A template
/// may pass over what is no text, which would ignore it silently.
fn without_pictures(message: &Message, pictures: &mut Vec<EncodedPicture>) -> Result<Message> {
    let Value::Array(parts) = &message.content else { return Ok(message.clone()) };
    let part = |part: &Value| {
        if let Some(picture) = EncodedPicture::of_part(part) {
            pictures.push(picture.clone());
            return Ok(Value::Object(vec![("type".to_owned(), "image".into())]));
        }
        match part.get("type").and_then(Value::as_str) {
            None | Some("text") => Ok(part.clone()),
            Some(kind @ ("image" | "image_url")) => Err(Error::Unsupported {
                what: Feature::Images.as_str().into(),
                reason: format!("a content part `{kind}` has no picture's bytes"),
            }),
            Some(other) => Err(Error::Unsupported {
                what: format!("content part {other}"),
                reason: "this backend reads text and pictures".into(),
            }),
        }
    };
    let parts = parts.iter().map(part).collect::<Result<_>>()?;
    Ok(Message { content: Value::Array(parts), ..message.clone() })
}
