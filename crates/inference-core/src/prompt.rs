//! The input of a model: prompts and rendered conversations.

use std::ops::Range;

use crate::{EncodedPicture, EncodedSound};

/// The input that a model continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text that the model's tokenizer encodes, with its beginning-of-sequence token exactly once.
    Text(String),
    /// Token ids, taken as they are.
    Ids(Vec<u32>),
    /// Text, ids, pictures and sounds in turn. A model that does not see refuses one with a picture
    /// by the feature's name, `images`; one that does not hear refuses sounds likewise, as `audio`.
    ///
    /// Text is encoded as [`Prompt::Text`] is, in one piece: the beginning-of-sequence token comes
    /// once, before all parts, unless the first part is ids. A picture or a sound beside text is
    /// written as the model's processor writes it; some set line breaks around one. Between ids, or
    /// at an end, it is written with its own ids alone.
    Parts(Vec<PromptPart>),
}

impl Prompt {
    /// The pictures, in their order.
    pub fn pictures(&self) -> impl Iterator<Item = &EncodedPicture> {
        let parts = match self {
            Prompt::Parts(parts) => parts.as_slice(),
            _ => &[],
        };
        parts.iter().filter_map(|part| match part {
            PromptPart::Picture(picture) => Some(picture),
            _ => None,
        })
    }

    /// The sounds, in their order.
    pub fn sounds(&self) -> impl Iterator<Item = &EncodedSound> {
        let parts = match self {
            Prompt::Parts(parts) => parts.as_slice(),
            _ => &[],
        };
        parts.iter().filter_map(|part| match part {
            PromptPart::Sound(sound) => Some(sound),
            _ => None,
        })
    }

    /// Returns true when it has neither pictures nor sounds.
    pub fn is_plain(&self) -> bool {
        self.pictures().next().is_none() && self.sounds().next().is_none()
    }
}

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptPart {
    /// Text for the tokenizer.
    Text(String),
    /// Token ids, taken as they are.
    Ids(Vec<u32>),
    /// A picture.
    Picture(EncodedPicture),
    /// A sound.
    Sound(EncodedSound),
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// The rendered text; a picture or a sound is the template's own mark of one.
    pub text: String,
    /// Its token ids, as [`TextModel::chat`](crate::TextModel::chat) feeds them. Pictures and
    /// sounds have their ids here, so that the length is what the prompt takes of the context.
    pub ids: Vec<u32>,
    /// The pictures, in the order of their positions, which do not overlap.
    pub pictures: Vec<PlacedPicture>,
    /// The sounds, in the order of their positions, which overlap with no picture's either.
    pub sounds: Vec<PlacedSound>,
}

impl RenderedPrompt {
    /// Returns the prompt for a model: with pictures or sounds, [`Prompt::Parts`] of ids and these.
    pub fn prompt(&self) -> Prompt {
        let pictures = self.pictures.iter().map(|PlacedPicture { picture, places }| {
            (places.clone(), PromptPart::Picture(picture.clone()))
        });
        let sounds = self.sounds.iter().map(|PlacedSound { sound, places }| {
            (places.clone(), PromptPart::Sound(sound.clone()))
        });
        let mut placed: Vec<(Range<usize>, PromptPart)> = pictures.chain(sounds).collect();
        if placed.is_empty() {
            return Prompt::Ids(self.ids.clone());
        }
        placed.sort_by_key(|(places, _)| places.start);
        let mut parts = Vec::with_capacity(2 * placed.len() + 1);
        let mut done = 0;
        let ids = |range: Range<usize>| self.ids.get(range).filter(|ids| !ids.is_empty());
        for (places, part) in placed {
            parts.extend(ids(done..places.start).map(|ids| PromptPart::Ids(ids.to_vec())));
            parts.push(part);
            done = places.end;
        }
        parts.extend(ids(done..self.ids.len()).map(|ids| PromptPart::Ids(ids.to_vec())));
        Prompt::Parts(parts)
    }
}

/// A picture in a [`RenderedPrompt`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPicture {
    /// The picture.
    pub picture: EncodedPicture,
    /// Its own ids among those of the prompt, the marks of its beginning and end included.
    pub places: Range<usize>,
}

/// A sound in a [`RenderedPrompt`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedSound {
    /// The sound.
    pub sound: EncodedSound,
    /// Its own ids among those of the prompt, the marks of its beginning and end included.
    pub places: Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::{PlacedPicture, PlacedSound, Prompt, PromptPart, RenderedPrompt};
    use crate::{EncodedPicture, EncodedSound};

    #[test]
    fn a_rendered_conversation_keeps_its_pictures_between_its_ids() {
        let picture = EncodedPicture::new([1, 2], "a.png");
        let placed = |places| PlacedPicture { picture: picture.clone(), places };
        let rendered = RenderedPrompt {
            text: String::new(),
            ids: (0..9).collect(),
            pictures: vec![placed(0..2), placed(4..6), placed(6..8)],
            sounds: Vec::new(),
        };
        let (ids, shown) = (PromptPart::Ids, || PromptPart::Picture(picture.clone()));
        let parts = vec![shown(), ids(vec![2, 3]), shown(), shown(), ids(vec![8])];
        assert_eq!(rendered.prompt(), Prompt::Parts(parts));
        assert_eq!(rendered.prompt().pictures().count(), 3);
        let sound = EncodedSound::new([3], "a.wav");
        let sounds = vec![PlacedSound { sound: sound.clone(), places: 2..4 }];
        let both = RenderedPrompt { sounds, ..rendered.clone() };
        let heard = PromptPart::Sound(sound);
        let parts = vec![shown(), heard, shown(), shown(), PromptPart::Ids(vec![8])];
        assert_eq!(both.prompt(), Prompt::Parts(parts));
        assert!(!both.prompt().is_plain() && both.prompt().sounds().count() == 1);
        let plain = RenderedPrompt { pictures: Vec::new(), ..rendered };
        assert_eq!(plain.prompt(), Prompt::Ids((0..9).collect()));
        assert!(plain.prompt().is_plain());
    }
}
