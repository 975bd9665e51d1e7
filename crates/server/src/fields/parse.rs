//! The text of a body to JSON, with each key of an object once: of two values one would be ignored.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value as Json};

use crate::error::{ApiError, Result};

/// The JSON that `bytes` hold.
///
/// # Errors
/// They hold none, or an object has a key twice, which is named by its path.
pub fn parse(bytes: &[u8]) -> Result<Json> {
    let twice = RefCell::new(None);
    let mut text = serde_json::Deserializer::from_slice(bytes);
    let parsed = Node { twice: &twice }.deserialize(&mut text);
    let parsed = parsed.and_then(|json| text.end().map(|()| json));
    parsed.map_err(|error| match twice.take() {
        Some(path) => ApiError::value(path, "is there twice"),
        None => ApiError::not_json(&error),
    })
}

/// One value. Where a key comes twice, its path is put together in `twice` on the way out.
#[derive(Clone, Copy)]
struct Node<'a> {
    twice: &'a RefCell<Option<String>>,
}

impl Node<'_> {
    /// Puts the place of a value in front of a path that was found in it.
    fn within(self, place: &str) {
        if let Some(path) = self.twice.borrow_mut().as_mut() {
            let dot = if path.starts_with('[') { "" } else { "." };
            *path = format!("{place}{dot}{path}");
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Json, D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Json, E> {
        Ok(Json::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(Number::from_f64(number).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::from(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut array = Vec::new();
        loop {
            match items.next_element_seed(self) {
                Ok(Some(item)) => array.push(item),
                Ok(None) => return Ok(Json::Array(array)),
                Err(error) => {
                    self.within(&format!("[{}]", array.len()));
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                self.twice.replace(Some(key));
                return Err(A::Error::custom("a key is there twice"));
            }
            let value = entries.next_value_seed(self).inspect_err(|_| self.within(&key))?;
            object.insert(key, value);
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::parse;
    use crate::error::Kind;

    #[test]
    fn values_are_those_of_the_library() {
        let text = r#"{"b": [1, -2, 1.5, 18446744073709551615, "x\u00e9\n", null, true], "a": {}}"#;
        assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Json>(text).unwrap());
        assert_eq!(parse(b" 1 ").unwrap(), json!(1));
    }

    #[test]
    fn a_key_that_comes_twice_is_named_with_its_place() {
        let param = |text: &str| parse(text.as_bytes()).unwrap_err().param.unwrap_or_default();
        assert_eq!(param(r#"{"a": 1, "a": 1}"#), "a");
        assert_eq!(param(r#"{"a": [0, {"b": {"c": 1, "\u0063": 2}}]}"#), "a[1].b.c");
        assert_eq!(param(r#"[[{"a": 1, "a": 2}]]"#), "[0][0].a");
        assert_eq!(param(r#"{"a": 1, "#), "");
    }

    #[test]
    fn what_is_no_json_is_none() {
        for text in ["", "{", "NaN", "[1]]", "1e400", "\"\\ud800\"", "{\"a\" 1}", "[1,]", "'a'"] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind, Kind::NotJson, "{text}");
        }
        assert!(parse(b"\"\xff\"").is_err());
        assert!(parse("[".repeat(10_000).as_bytes()).is_err());
    }
}
