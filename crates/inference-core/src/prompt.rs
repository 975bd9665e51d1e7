//! The input of a model: prompts and rendered conversations.

use std::ops::Range;

use crate::EncodedPicture;

/// The input that a model continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text that the model's tokenizer encodes, with its beginning-of-sequence token exactly once.
    Text(String),
    /// Token ids, taken as they are.
    Ids(Vec<u32>),
    /// Text, ids and pictures in turn. A model that does not see refuses one with a picture by the
    /// feature's name, `images`.
    ///
    /// Text is encoded as [`Prompt::Text`] is, in one piece: the beginning-of-sequence token comes
    /// once, before all parts, unless the first part is ids. A picture beside text is written as
    /// the model's processor writes it; some set line breaks around one. A picture between ids, or
    /// at an end, is written with its own ids alone.
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
    /// The rendered text; a picture is the template's own mark of one.
    pub text: String,
    /// Its token ids, as [`TextModel::chat`](crate::TextModel::chat) feeds them. A picture has its
    /// ids here, so that the length is what the prompt takes of the context.
    pub ids: Vec<u32>,
    /// The pictures, in the order of their positions, which do not overlap.
    pub pictures: Vec<PlacedPicture>,
}

impl RenderedPrompt {
    /// Returns the prompt for a model: with pictures, [`Prompt::Parts`] of ids and pictures.
    pub fn prompt(&self) -> Prompt {
        if self.pictures.is_empty() {
            return Prompt::Ids(self.ids.clone());
        }
        let mut parts = Vec::with_capacity(2 * self.pictures.len() + 1);
        let mut done = 0;
        let ids = |range: Range<usize>| self.ids.get(range).filter(|ids| !ids.is_empty());
        for PlacedPicture { picture, places } in &self.pictures {
            parts.extend(ids(done..places.start).map(|ids| PromptPart::Ids(ids.to_vec())));
            parts.push(PromptPart::Picture(picture.clone()));
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

#[cfg(test)]
mod tests {
    use super::{PlacedPicture, Prompt, PromptPart, RenderedPrompt};
    use crate::EncodedPicture;

    #[test]
    fn a_rendered_conversation_keeps_its_pictures_between_its_ids() {
        let picture = EncodedPicture::new([1, 2], "a.png");
        let placed = |places| PlacedPicture { picture: picture.clone(), places };
        let rendered = RenderedPrompt {
            text: String::new(),
            ids: (0..9).collect(),
            pictures: vec![placed(0..2), placed(4..6), placed(6..8)],
        };
        let (ids, shown) = (PromptPart::Ids, || PromptPart::Picture(picture.clone()));
        let parts = vec![shown(), ids(vec![2, 3]), shown(), shown(), ids(vec![8])];
        assert_eq!(rendered.prompt(), Prompt::Parts(parts));
        assert_eq!(rendered.prompt().pictures().count(), 3);
        let plain = RenderedPrompt { pictures: Vec::new(), ..rendered };
        assert_eq!(plain.prompt(), Prompt::Ids((0..9).collect()));
    }
}
