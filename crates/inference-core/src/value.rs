//! JSON data as plain values, for what chat templates take: message fields, tools, arguments.

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
