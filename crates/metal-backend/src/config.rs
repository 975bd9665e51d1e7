//! Reading `config.json`: typed access by key, in the spelling of every transformers version.

mod fp8;
mod quantization;
mod rope;

use inference_text::json::standard_json;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

pub(crate) use fp8::Fp8Format;
pub(crate) use rope::{RopeConfig, RopePairs, RopeScaling, RopeSections};

/// The largest value that a size in a config may have; MLX counts in 32 bits.
const MAX_SIZE: u64 = i32::MAX as u64;

/// A JSON object of a model's configuration, with the name it goes by in errors.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    name: String,
    fields: Map<String, Value>,
}

impl Config {
    /// Parses the text of a file called `name`.
    ///
    /// # Errors
    /// Text that is not a JSON object.
    pub fn parse(name: &str, text: &str) -> Result<Config> {
        let value: Value = serde_json::from_str(&standard_json(text))
            .map_err(|error| Error::model(format!("{name} is not valid JSON: {error}")))?;
        match value {
            Value::Object(fields) => Ok(Config { name: name.to_owned(), fields }),
            other => {
                Err(Error::model(format!("{name} holds {}, expected an object", kind(&other))))
            }
        }
    }

    /// Its file and place in it, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The keys that it has.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.fields.keys().map(String::as_str)
    }

    /// All values by key.
    pub fn into_fields(self) -> Map<String, Value> {
        self.fields
    }

    /// The value of `key`, with `null` counted as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    /// A copy of the config with these values for the keys that it lacks.
    pub fn with_defaults(&self, defaults: &[(&str, i64)]) -> Config {
        let mut config = self.clone();
        for (key, value) in defaults {
            config.fields.entry(*key).or_insert(Value::from(*value));
        }
        config
    }

    /// A copy of the config that has the values of some keys under other names too, each a key and
    /// its other name; what is there already stays.
    pub fn with_names(&self, names: &[(&str, &str)]) -> Config {
        let mut config = self.clone();
        for (key, other) in names {
            if let Some(value) = self.get(key) {
                config.fields.entry(*other).or_insert_with(|| value.clone());
            }
        }
        config
    }

    /// The config with a number for `key` where it is absent.
    pub fn with_default_number(&self, key: &str, default: f64) -> Config {
        let mut config = self.clone();
        config.fields.entry(key).or_insert(Value::from(default));
        config
    }

    /// A copy of the config with this size for `key`.
    pub fn with_size(&self, key: &str, size: i32) -> Config {
        let mut config = self.clone();
        config.fields.insert(key.to_owned(), Value::from(size));
        config
    }

    /// A copy of the config in which `named` gives the packed modules other names.
    pub fn with_packed_names(&self, named: impl Fn(&str) -> String) -> Config {
        let mut config = self.clone();
        if let Some(Value::Object(packed)) = config.fields.get_mut("quantization") {
            let fields = std::mem::take(packed).into_iter();
            packed.extend(fields.map(|(key, value)| match value {
                Value::Object(_) => (named(&key), value),
                other => (key, other),
            }));
        }
        config
    }

    /// The config with this flag for `key` where it is absent.
    pub fn with_default_flag(&self, key: &str, default: bool) -> Config {
        let mut config = self.clone();
        config.fields.entry(key).or_insert(Value::from(default));
        config
    }

    /// These keys, where `key` is `flag`.
    pub fn with_flag(&self, key: &str, flag: bool) -> Config {
        let mut config = self.clone();
        config.fields.insert(key.to_owned(), Value::from(flag));
        config
    }

    /// A config that has this one under `key`, and all of its values beside it.
    pub fn nested(&self, key: &str) -> Config {
        let mut outer = self.clone();
        outer.fields.insert(key.to_owned(), Value::Object(self.fields.clone()));
        outer
    }

    /// Takes over `outer`'s value for `key` where the config has none of its own.
    pub fn with_fallback(mut self, outer: &Config, key: &str) -> Config {
        if let (None, Some(value)) = (self.get(key), outer.get(key)) {
            self.fields.insert(key.to_owned(), value.clone());
        }
        self
    }

    /// The object under `key`.
    pub fn object(&self, key: &str) -> Result<Option<Config>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(fields)) => {
                Ok(Some(Config { name: format!("{}: `{key}`", self.name), fields: fields.clone() }))
            }
            Some(other) => Err(self.wrong(key, other, "an object")),
        }
    }

    /// The config of the part that is about text: the object under `text_config`, or all of it.
    pub fn of_text(&self) -> Result<Config> {
        Ok(self.object("text_config")?.unwrap_or_else(|| self.clone()))
    }

    /// A size or count from 1 on.
    pub fn size(&self, key: &str) -> Result<i32> {
        self.opt_size(key)?.ok_or_else(|| self.missing(key))
    }

    /// A size or count from 1 on, where it is given.
    pub fn opt_size(&self, key: &str) -> Result<Option<i32>> {
        self.get(key)
            .map(|value| match value.as_u64() {
                Some(size @ 1..=MAX_SIZE) => Ok(size as i32),
                _ => Err(self.wrong(key, value, "a positive 32-bit integer")),
            })
            .transpose()
    }

    /// An index from 0 on, where it is given.
    pub fn opt_index(&self, key: &str) -> Result<Option<i32>> {
        self.get(key)
            .map(|value| match value.as_u64() {
                Some(index @ 0..=MAX_SIZE) => Ok(index as i32),
                _ => Err(self.wrong(key, value, "an integer from 0 on")),
            })
            .transpose()
    }

    /// A finite number, where it is given.
    pub fn opt_number(&self, key: &str) -> Result<Option<f64>> {
        self.get(key)
            .map(|value| match value.as_f64() {
                // Models compute with 32 bits at most.
                Some(number) if (number as f32).is_finite() => Ok(number),
                _ => Err(self.wrong(key, value, "a number")),
            })
            .transpose()
    }

    /// A number above 0, where it is given.
    pub fn opt_positive(&self, key: &str) -> Result<Option<f64>> {
        match self.opt_number(key)? {
            Some(number) if number <= 0.0 => {
                Err(self.wrong(key, &self.fields[key], "a number above 0"))
            }
            number => Ok(number),
        }
    }

    /// A number above 0; `default` where the key is absent, `None` where it is `null`.
    pub fn nullable_positive(&self, key: &str, default: Option<f64>) -> Result<Option<f64>> {
        if self.fields.contains_key(key) { self.opt_positive(key) } else { Ok(default) }
    }

    /// A truth value, where it is given.
    pub fn opt_flag(&self, key: &str) -> Result<Option<bool>> {
        self.get(key)
            .map(|value| value.as_bool().ok_or_else(|| self.wrong(key, value, "true or false")))
            .transpose()
    }

    /// Text, where it is given.
    pub fn opt_text(&self, key: &str) -> Result<Option<&str>> {
        self.get(key)
            .map(|value| value.as_str().ok_or_else(|| self.wrong(key, value, "a string")))
            .transpose()
    }

    /// A list of numbers, where it is given.
    pub fn opt_list_of_numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let numbers = value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
        numbers.map(Some).ok_or_else(|| self.wrong(key, value, "a list of numbers"))
    }

    /// A list of numbers above 0, where it is given.
    pub fn opt_positives(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let positive =
            |value: &Value| value.as_f64().filter(|n| *n > 0.0 && (*n as f32).is_finite());
        let numbers = value.as_array().and_then(|list| list.iter().map(positive).collect());
        numbers.map(Some).ok_or_else(|| self.wrong(key, value, "a list of numbers above 0"))
    }

    /// A list of indices from 0 on, where it is given.
    pub fn opt_indices(&self, key: &str) -> Result<Option<Vec<u64>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let indices = value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
        indices.map(Some).ok_or_else(|| self.wrong(key, value, "a list of integers from 0 on"))
    }

    /// A list of strings, where it is given.
    pub fn opt_texts(&self, key: &str) -> Result<Option<Vec<&str>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let texts = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        texts.map(Some).ok_or_else(|| self.wrong(key, value, "a list of strings"))
    }

    /// Two numbers from 0 on, the first of which is not the larger one, where they are given; what
    /// Python writes as infinity is one.
    pub fn opt_range(&self, key: &str) -> Result<Option<[f32; 2]>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = |value: &Value| match value.get("__float__").unwrap_or(value) {
            Value::String(name) if name == "Infinity" => Some(f32::INFINITY),
            other => other.as_f64().map(|number| number as f32).filter(|n| n.is_finite()),
        };
        let found = match value.as_array().map(Vec::as_slice) {
            Some([first, last]) => number(first).zip(number(last)),
            _ => None,
        };
        let range = found.filter(|(first, last)| *first >= 0.0 && first <= last);
        let expected = "two numbers from 0 on in ascending order";
        range
            .map(|(first, last)| Some([first, last]))
            .ok_or_else(|| self.wrong(key, value, expected))
    }

    /// Several numbers, where they are given.
    pub fn opt_numbers<const N: usize>(&self, key: &str) -> Result<Option<[f32; N]>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = |value: &Value| value.as_f64().map(|n| n as f32).filter(|n| n.is_finite());
        let numbers: Option<Vec<f32>> =
            value.as_array().and_then(|list| list.iter().map(number).collect());
        let numbers = numbers.and_then(|numbers| <[f32; N]>::try_from(numbers).ok());
        numbers.map(Some).ok_or_else(|| self.wrong(key, value, &format!("{N} numbers")))
    }

    /// An error that concerns `key`.
    pub fn wrong(&self, key: &str, found: &Value, expected: &str) -> Error {
        // `NaN` and its like are shown as they stand in the file.
        let mut found = match found.get("__float__").and_then(Value::as_str) {
            Some(name) => name.to_owned(),
            None => found.to_string(),
        };
        if found.len() > 80 {
            let end = (0..=80).rev().find(|&end| found.is_char_boundary(end)).unwrap_or(0);
            found.truncate(end);
            found.push('…');
        }
        Error::model(format!("{}: `{key}` is {found}, expected {expected}", self.name))
    }

    fn missing(&self, key: &str) -> Error {
        Error::model(format!("{}: key `{key}` is missing", self.name))
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
