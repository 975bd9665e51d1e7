//! The content of a message: text, or text, pictures and sounds in turn.

use inference_core::{EncodedPicture, EncodedSound, Value};

/// The separator between texts that become one.
pub const BETWEEN: &str = "\n\n";

/// Texts, pictures and sounds in their order.
#[derive(Debug)]
pub struct Content {
    /// The separator between texts that become one.
    between: &'static str,
    /// Texts, of which no two follow each other, pictures and sounds.
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Picture(EncodedPicture),
    Sound(EncodedSound),
}

impl Content {
    /// Nothing yet; `between` joins texts that follow each other.
    pub fn new(between: &'static str) -> Self {
        Content { between, parts: Vec::new() }
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(Part::Text(whole)) => {
                if !whole.is_empty() && !text.is_empty() {
                    whole.push_str(self.between);
                }
                whole.push_str(text);
            }
            _ => self.parts.push(Part::Text(text.to_owned())),
        }
    }

    /// Adds a picture.
    pub fn picture(&mut self, picture: EncodedPicture) {
        self.parts.push(Part::Picture(picture));
    }

    /// Adds a sound.
    pub fn sound(&mut self, sound: EncodedSound) {
        self.parts.push(Part::Sound(sound));
    }

    /// Adds what another one has.
    pub fn append(&mut self, other: Content) {
        for part in other.parts {
            match part {
                Part::Text(text) => self.text(&text),
                Part::Picture(picture) => self.picture(picture),
                Part::Sound(sound) => self.sound(sound),
            }
        }
    }

    /// The content of a message, which [`into_value`](Self::into_value) made or which is a text.
    pub fn of_value(between: &'static str, value: &Value) -> Self {
        let mut content = Content::new(between);
        match value {
            Value::Array(parts) => {
                for part in parts {
                    let text = || part.get("text").and_then(Value::as_str).unwrap_or_default();
                    match (EncodedPicture::of_part(part), EncodedSound::of_part(part)) {
                        (Some(picture), _) => content.picture(picture.clone()),
                        (_, Some(sound)) => content.sound(sound.clone()),
                        _ => content.text(text()),
                    }
                }
            }
            text => content.text(text.as_str().unwrap_or_default()),
        }
        content
    }

    /// Returns true when it has a picture.
    pub fn has_pictures(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Picture(_)))
    }

    /// Returns true when it has a sound.
    pub fn has_sounds(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Sound(_)))
    }

    /// Returns true when it has neither text, nor pictures, nor sounds.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(text) if text.is_empty()))
    }

    /// As messages have it: one text where there is nothing else, for templates that take no list.
    pub fn into_value(self) -> Value {
        let is_text = |part: &Part| matches!(part, Part::Text(_));
        let part = |part| match part {
            Part::Picture(picture) => picture.into_part(),
            Part::Sound(sound) => sound.into_part(),
            Part::Text(text) => {
                let fields = [("type", Value::from("text")), ("text", Value::String(text))];
                Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).into())
            }
        };
        match self.parts.iter().all(is_text) {
            true => match self.parts.into_iter().next() {
                Some(Part::Text(text)) => Value::String(text),
                _ => Value::from(""),
            },
            false => Value::Array(self.parts.into_iter().map(part).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use inference_core::{EncodedPicture, Value};

    use super::Content;

    #[test]
    fn texts_are_joined_and_pictures_part_them() {
        let mut content = Content::new("|");
        assert_eq!(Content::new("").into_value(), Value::from(""));
        content.text("a");
        content.text("");
        content.text("b");
        assert_eq!(Content::of_value("|", &Value::from("c")).into_value(), Value::from("c"));
        content.picture(EncodedPicture::new([1], "p"));
        content.text("c");
        assert!(!content.is_empty());
        let value = content.into_value();
        let Value::Array(parts) = &value else { panic!("parts") };
        let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
        assert_eq!(
            parts.iter().map(text).collect::<Vec<_>>(),
            [Some("a|b".to_owned()), None, Some("c".to_owned())]
        );
        let mut more = Content::of_value("|", &value);
        more.append(Content::of_value("|", &Value::from("d")));
        let Value::Array(parts) = more.into_value() else { panic!("parts") };
        assert_eq!(text(&parts[2]).as_deref(), Some("c|d"));
    }
}
