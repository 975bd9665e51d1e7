//! Prompts and conversations, laid out as ids, with their pictures and sounds between them.

use std::sync::Arc;

use inference_core::{
    ChatOptions, EncodedPicture, EncodedSound, Error, Feature, Message, PlacedPicture, PlacedSound,
    Prompt, PromptPart, RenderedPrompt, Result, Value,
};
use inference_text::json::{fields, message, try_from_value};
use inference_text::{AddSpecial, ChatInput, LocalTime, Tokenizer};
use serde_json::Value as Json;

use super::MlxModel;
use super::laid::Laid;
use crate::hearing::Hearing;
use crate::sight::{Prepared, Scene, Sight};

/// The pictures and sounds that were prepared, each with its place among the ids of a prompt.
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

    /// How pictures are seen and sounds heard, where a prompt has these.
    ///
    /// # Errors
    /// A model that does not see or hear; too many, empty or too large ones, by their names.
    fn senses<'a>(
        &self,
        pictures: impl IntoIterator<Item = &'a EncodedPicture>,
        sounds: impl IntoIterator<Item = &'a EncodedSound>,
    ) -> Result<Senses<'_>> {
        let missing = |feature: Feature, reason: &str| Error::Unsupported {
            what: feature.as_str().into(),
            reason: reason.into(),
        };
        let (mut senses, mut pictures) = (Senses::default(), pictures.into_iter().peekable());
        if pictures.peek().is_some() {
            self.capabilities.require(Feature::Images)?;
            let sight = self.shown.sight.as_ref();
            let sight = sight.map_err(|reason| missing(Feature::Images, reason))?;
            sight.limits().check(pictures)?;
            senses.sight = Some(sight);
        }
        let mut sounds = sounds.into_iter().peekable();
        if sounds.peek().is_some() {
            self.capabilities.require(Feature::Audio)?;
            let hearing = self.shown.hearing.as_ref();
            let hearing = hearing.map_err(|reason| missing(Feature::Audio, reason))?;
            hearing.limits().check(sounds)?;
            senses.hearing = Some(hearing);
        }
        Ok(senses)
    }

    /// A prompt as ids, pictures and sounds.
    pub(super) fn laid_out(&self, prompt: &Prompt) -> Result<Laid> {
        let parts = match prompt {
            Prompt::Text(text) => {
                let ids = self.tokenizer()?.encode(text, AddSpecial::Prompt);
                return Ok(Laid { ids: ids.map_err(Error::from)?, scene: None });
            }
            Prompt::Ids(ids) => return Ok(Laid { ids: ids.clone(), scene: None }),
            Prompt::Parts(parts) => parts,
        };
        self.engine.check_open()?;
        let senses = self.senses(prompt.pictures(), prompt.sounds())?;
        let around = |at: Option<usize>| match at.and_then(|at| parts.get(at)) {
            Some(PromptPart::Picture(_)) => senses.sight.map_or("", |sight| sight.marks().around),
            Some(PromptPart::Sound(_)) => senses.hearing.map_or("", |one| one.marks().around),
            _ => "",
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
            let prepared = match part {
                PromptPart::Text(part) => {
                    text.push_str(around(at.checked_sub(1)));
                    text.push_str(part);
                    text.push_str(around(Some(at + 1)));
                    continue;
                }
                PromptPart::Ids(part) => {
                    write(&mut text, &mut ids)?;
                    ids.extend(part);
                    continue;
                }
                PromptPart::Picture(picture) => senses.sight.map(|sight| sight.prepare(picture)),
                PromptPart::Sound(sound) => senses.hearing.map(|hearing| hearing.prepare(sound)),
            };
            write(&mut text, &mut ids)?;
            if let Some(prepared) = prepared.transpose()? {
                placed.push((Arc::clone(&prepared), ids.len()));
                ids.extend(&prepared.ids);
            }
        }
        write(&mut text, &mut ids)?;
        if placed.is_empty() {
            return Ok(Laid { ids, scene: None });
        }
        let scene = senses.scene(&placed, ids.len());
        // Samplers and reports look ids up: one that is beyond the vocabulary is nowhere.
        for one in &scene.shown {
            let own = one.prepared.own;
            let known = (own as usize) < self.info.vocab_size;
            for run in one.runs.iter().filter(|_| !known) {
                ids[run.clone()].fill(scene.filler);
            }
        }
        Ok(Laid { ids, scene: Some(Arc::new(scene)) })
    }

    /// A conversation as the template renders it, with its pictures and sounds in their places.
    pub(super) fn rendered(
        &self,
        messages: &[Message],
        chat: &ChatOptions,
    ) -> Result<RenderedPrompt> {
        let mut shown = Shown::default();
        let messages: Vec<Json> =
            messages.iter().map(|one| message(&shown.taken_out_of(one)?)).collect::<Result<_>>()?;
        let senses = self.senses(&shown.pictures, &shown.sounds)?;
        let tools: Vec<Json> = chat.tools.iter().map(try_from_value).collect::<Result<_>>()?;
        let kwargs = fields(&chat.template_kwargs)?;
        let of_sight = senses.sight.map(|sight| (&sight.marks().written.0, sight.marks().around));
        let of_hearing = senses.hearing.map(|one| (&one.marks().written.0, one.marks().around));
        // A family that sees and hears writes nothing around either.
        let around = of_sight.into_iter().chain(of_hearing).find(|(_, around)| !around.is_empty());
        let replaced =
            around.map(|(mark, around)| (mark.as_str(), format!("{around}{mark}{around}")));
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
        senses.placed(text, &ids, shown)
    }
}

/// How the pictures and sounds of one prompt are taken in.
#[derive(Default)]
struct Senses<'a> {
    sight: Option<&'a Sight>,
    hearing: Option<&'a Hearing>,
}

/// The pictures and sounds of a conversation.
#[derive(Default)]
struct Shown {
    pictures: Vec<EncodedPicture>,
    sounds: Vec<EncodedSound>,
}

impl Senses<'_> {
    /// The scene of these, in a prompt of so many ids.
    fn scene(&self, placed: &Placed, ids: usize) -> Scene {
        let of_hearing = || self.hearing.map_or(0, Hearing::filler);
        let filler = self.sight.map_or_else(of_hearing, Sight::filler);
        Scene::new(placed, ids, self.sight.is_some_and(Sight::has_places), filler)
    }

    /// The prompt with the ids of what is shown in the place of what the template wrote for it.
    fn placed(&self, text: String, ids: &[u32], shown: Shown) -> Result<RenderedPrompt> {
        let marks = self.sight.map(Sight::marks);
        let picture_mark = marks.map(|marks| marks.written.1);
        let sound_mark = self.hearing.map(|hearing| hearing.marks().written.1);
        let Shown { pictures, sounds } = shown;
        for (mark, kind, count) in
            [(picture_mark, "pictures", pictures.len()), (sound_mark, "sounds", sounds.len())]
        {
            let written = ids.iter().filter(|id| Some(**id) == mark).count();
            if mark.is_some() && written != count {
                return Err(Error::Prompt(format!(
                    "the chat template writes {written} {kind}, the messages have {count}"
                )));
            }
        }
        let (mut pictures, mut sounds) = (pictures.into_iter(), sounds.into_iter());
        let mut prompt = RenderedPrompt { text, ..RenderedPrompt::default() };
        let mut at = 0;
        while let Some(id) = ids.get(at) {
            at += 1;
            let sound = if Some(*id) == sound_mark { sounds.next() } else { None };
            if let (Some(sound), Some(hearing)) = (sound, self.hearing) {
                let prepared = hearing.prepare(&sound)?;
                let places = prompt.ids.len()..prompt.ids.len() + prepared.ids.len();
                prompt.ids.extend(&prepared.ids);
                prompt.sounds.push(PlacedSound { sound, places });
                continue;
            }
            let picture = if Some(*id) == picture_mark { pictures.next() } else { None };
            let (Some(picture), Some(sight), Some(marks)) = (picture, self.sight, marks) else {
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
}

impl Shown {
    /// The message with a mark in the place of each picture and sound, which are added here. A
    /// template may pass over what is no text, which would ignore it silently.
    fn taken_out_of(&mut self, message: &Message) -> Result<Message> {
        let Value::Array(parts) = &message.content else { return Ok(message.clone()) };
        let mark = |kind: &str| Value::Object(vec![("type".to_owned(), kind.into())]);
        let part = |part: &Value| {
            if let Some(picture) = EncodedPicture::of_part(part) {
                self.pictures.push(picture.clone());
                return Ok(mark("image"));
            }
            if let Some(sound) = EncodedSound::of_part(part) {
                self.sounds.push(sound.clone());
                return Ok(mark("audio"));
            }
            match part.get("type").and_then(Value::as_str) {
                None | Some("text") => Ok(part.clone()),
                Some(kind @ ("image" | "image_url")) => Err(Error::Unsupported {
                    what: Feature::Images.as_str().into(),
                    reason: format!("a content part `{kind}` has no picture's bytes"),
                }),
                Some(kind @ ("audio" | "input_audio" | "audio_url")) => Err(Error::Unsupported {
                    what: Feature::Audio.as_str().into(),
                    reason: format!("a content part `{kind}` has no sound's bytes"),
                }),
                Some(other) => Err(Error::Unsupported {
                    what: format!("content part {other}"),
                    reason: "this backend reads text, pictures and sounds".into(),
                }),
            }
        };
        let parts = parts.iter().map(part).collect::<Result<_>>()?;
        Ok(Message { content: Value::Array(parts), ..message.clone() })
    }
}
