//! JSON data as plain values, for what chat templates take: message fields, tools, arguments.
//! Pictures and sounds of messages stand among them.

use crate::{EncodedPicture, EncodedSound};

/// A JSON value whose objects keep the order of their keys, as chat templates print them.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number written without fraction or exponent that fits.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    String(String),
    /// An ordered list.
    Array(Vec<Value>),
    /// Key and value pairs in the order given.
    Object(Vec<(String, Value)>),
    /// A picture, which JSON cannot write: it stands in a content part of a message alone
    /// ([`EncodedPicture::into_part`]), and is refused everywhere else.
    Picture(EncodedPicture),
    /// A sound, which JSON cannot write: it stands in a content part of a message alone
    /// ([`EncodedSound::into_part`]), and is refused everywhere else.
    Sound(EncodedSound),
}

impl Value {
    /// The text of a [`Value::String`], `None` for every other kind.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value under `key` of a [`Value::Object`]; the last one where a key repeats.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Object(fields) => {
                fields.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
            }
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::String(text)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Bool(flag)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Float(number)
    }
}

impl EncodedPicture {
    /// The content part of a message that shows this picture:
    /// `{"type": "image", "image": `[`Value::Picture`]`}`.
    pub fn into_part(self) -> Value {
        let fields = [("type", Value::from("image")), ("image", Value::Picture(self))];
        Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).into())
    }

    /// The picture that a content part shows, as [`into_part`](Self::into_part) makes it; `None`
    /// for every other part. No JSON makes such a part, so no text can pretend to be one.
    pub fn of_part(part: &Value) -> Option<&EncodedPicture> {
        match (part.get("type")?.as_str()?, part.get("image")?) {
            ("image", Value::Picture(picture)) => Some(picture),
            _ => None,
        }
    }
}

impl EncodedSound {
    /// The content part of a message that plays this sound:
    /// `{"type": "audio", "audio": `[`Value::Sound`]`}`.
    pub fn into_part(self) -> Value {
        let fields = [("type", Value::from("audio")), ("audio", Value::Sound(self))];
        Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).into())
    }

    /// The sound that a content part plays, as [`into_part`](Self::into_part) makes it; `None` for
    /// every other part. No JSON makes such a part, so no text can pretend to be one.
    pub fn of_part(part: &Value) -> Option<&EncodedSound> {
        match (part.get("type")?.as_str()?, part.get("audio")?) {
            ("audio", Value::Sound(sound)) => Some(sound),
            _ => None,
        }
    }
}
