//! Taking a JSON object apart, field by field, so that none is left over unnoticed.

use serde_json::{Map, Value as Json};

use super::json::{kind, whole};
use super::told::{Unknown, is_empty, take_hint};
use crate::error::{ApiError, Result};

/// An object whose fields are taken out one by one; [`finish`](Reader::finish) refuses the rest.
/// A field that is `null` counts as left out.
#[derive(Debug)]
pub struct Reader {
    /// Path of the object in the request, such as `messages[0]`; empty for the request itself.
    path: String,
    fields: Map<String, Json>,
}

impl Reader {
    /// The object at `path`; the request itself where that is empty.
    ///
    /// # Errors
    /// `json` is no object.
    pub fn new(path: impl Into<String>, json: Json) -> Result<Self> {
        let path = path.into();
        match json {
            Json::Object(fields) => Ok(Reader { path, fields }),
            other => Err(expected(path, "an object", &other)),
        }
    }

    /// The path of the object in the request.
    pub fn own_path(&self) -> &str {
        &self.path
    }

    /// The path of the field `name`.
    pub fn path(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    /// Returns true where the field `name` is there.
    pub fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !value.is_null())
    }

    /// A copy of the value of the field `name`, which is not taken; `null` where it is left out.
    pub fn copy(&self, name: &str) -> Json {
        self.fields.get(name).cloned().unwrap_or_default()
    }

    /// Any value.
    pub fn take(&mut self, name: &str) -> Option<Json> {
        self.fields.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Sets the field `name` to `value`, for who reads it next.
    pub fn put(&mut self, name: &str, value: Json) {
        self.fields.insert(name.to_owned(), value);
    }

    /// `true` or `false`.
    pub fn bool(&mut self, name: &str) -> Result<Option<bool>> {
        self.typed(name, "a boolean", |value| value.as_bool().ok_or(value))
    }

    /// A number.
    pub fn number(&mut self, name: &str) -> Result<Option<f32>> {
        self.typed(name, "a number", |value| value.as_f64().map(|n| n as f32).ok_or(value))
    }

    /// A whole number of any sign.
    pub fn integer(&mut self, name: &str) -> Result<Option<i64>> {
        self.typed(name, "a whole number", |value| whole(&value).ok_or(value))
    }

    /// A whole number from 0 on.
    pub fn count(&mut self, name: &str) -> Result<Option<usize>> {
        let count = |value: &Json| whole(value).and_then(|n| usize::try_from(n).ok());
        self.typed(name, "a whole number from 0 on", |value| count(&value).ok_or(value))
    }

    /// A string.
    pub fn text(&mut self, name: &str) -> Result<Option<String>> {
        self.typed(name, "a string", |value| match value {
            Json::String(text) => Ok(text),
            other => Err(other),
        })
    }

    /// An array.
    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Json>>> {
        self.typed(name, "an array", |value| match value {
            Json::Array(items) => Ok(items),
            other => Err(other),
        })
    }

    /// An object.
    pub fn object(&mut self, name: &str) -> Result<Option<Map<String, Json>>> {
        self.typed(name, "an object", |value| match value {
            Json::Object(fields) => Ok(fields),
            other => Err(other),
        })
    }

    /// An array of strings.
    pub fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>> {
        let path = self.path(name);
        self.list(name)?.map(|items| texts(&path, items)).transpose()
    }

    /// A string, or an array of them; `what` says so in errors.
    pub fn text_or_texts(&mut self, name: &str, what: &str) -> Result<Option<Vec<String>>> {
        let path = self.path(name);
        match self.take(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(vec![text])),
            Some(Json::Array(items)) => texts(&path, items).map(Some),
            Some(other) => Err(expected(path, what, &other)),
        }
    }

    /// An array of token ids.
    pub fn ids(&mut self, name: &str) -> Result<Option<Vec<u32>>> {
        let path = self.path(name);
        self.list(name)?.map(|items| ids(&path, &items)).transpose()
    }

    /// `value`, which must be there.
    ///
    /// # Errors
    /// The field `name` is missing.
    pub fn need<T>(&self, name: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| {
            let path = self.path(name);
            ApiError::value(path, "is missing")
        })
    }

    /// Nothing is left, but for empty values.
    ///
    /// # Errors
    /// The first field that nobody took, by its path.
    pub fn finish(self) -> Result<()> {
        let mut unknown = Unknown::default();
        let mut left = self.fields.iter();
        left.try_for_each(|(name, value)| unknown.take(self.path(name), value))
    }

    /// Takes the fields `names`, which ask for nothing here because of `reason`.
    ///
    /// # Errors
    /// One is there, and the server holds requests to the fields that it honours.
    pub fn hints(&mut self, names: &[&str], reason: &str) -> Result<()> {
        names.iter().try_for_each(|name| match self.take(name).filter(|value| !is_empty(value)) {
            Some(_) => take_hint(&self.path(name), reason),
            None => Ok(()),
        })
    }

    fn typed<T>(
        &mut self,
        name: &str,
        what: &str,
        read: impl FnOnce(Json) -> Result<T, Json>,
    ) -> Result<Option<T>> {
        let path = self.path(name);
        let read = |value| read(value).map_err(|found| expected(path, what, &found));
        self.take(name).map(read).transpose()
    }
}

/// The strings of the array at `path`.
fn texts(path: &str, items: Vec<Json>) -> Result<Vec<String>> {
    let text = |(index, item)| match item {
        Json::String(text) => Ok(text),
        other => Err(expected(format!("{path}[{index}]"), "a string", &other)),
    };
    items.into_iter().enumerate().map(text).collect()
}

/// The token ids of the array at `path`.
///
/// # Errors
/// The first item that is no id.
pub fn ids(path: &str, items: &[Json]) -> Result<Vec<u32>> {
    let id = |(index, item): (usize, &Json)| {
        let id = whole(item).and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| expected(format!("{path}[{index}]"), "a token id", item))
    };
    items.iter().enumerate().map(id).collect()
}

/// The error that `path` is not `what`.
pub fn expected(path: impl Into<String>, what: &str, found: &Json) -> ApiError {
    let found = match found {
        Json::Number(number) => number.to_string(),
        Json::Bool(flag) => flag.to_string(),
        other => kind(other).to_owned(),
    };
    ApiError::value(path, format!("expected {what}, found {found}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Reader;

    fn param(error: &super::ApiError) -> String {
        error.param.clone().unwrap_or_default()
    }

    #[test]
    fn what_is_taken_is_gone_and_what_is_left_is_named() {
        let mut reader = Reader::new("a[0]", json!({"b": 1, "c": null, "d": true})).unwrap();
        assert_eq!(reader.count("b").unwrap(), Some(1));
        assert_eq!(reader.text("c").unwrap(), None);
        assert_eq!(param(&reader.finish().unwrap_err()), "a[0].d");
    }

    #[test]
    fn a_wrong_type_is_named_with_its_place() {
        let mut reader = Reader::new("", json!({"ids": [1, -2], "n": 1.5})).unwrap();
        assert_eq!(param(&reader.ids("ids").unwrap_err()), "ids[1]");
        let error = reader.integer("n").unwrap_err();
        assert_eq!(error.message, "`n`: expected a whole number, found 1.5");
        assert_eq!(param(&Reader::new("x", json!([])).unwrap_err()), "x");
    }
}
