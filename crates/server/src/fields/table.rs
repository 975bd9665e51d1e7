//! Requests as tables of fields: what each is, and whether it has an effect. The same tables check
//! requests and write the API's description, so that the description is true.

use serde_json::{Map, Value as Json, json};

use super::json::whole;
use super::reader::{Reader, expected};
use super::told::{self, Unknown, take_hint};
use crate::config::Limits;
use crate::error::{ApiError, Result};

/// A field of a request.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// The type and range of its values.
    pub kind: Kind,
    /// Its effect on the request.
    pub effect: Effect,
    /// Its text in the API's description.
    pub about: &'static str,
}

/// The type and range of a field's values.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number between two bounds, the second one a limit of the server.
    Integer(i64, fn(&Limits) -> i64),
    /// A number between two bounds.
    Number(f64, f64),
    /// A string.
    Text,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// An object of strings.
    Labels,
    /// An object, whose fields the JSON schema tells.
    Object(&'static str),
    /// An object of these fields, which [`check_in`] checks.
    Fields(&'static [Field]),
    /// An array, as the JSON schema tells.
    Array(&'static str),
    /// Anything that fits the JSON schema; the request's own code checks it.
    Schema(&'static str),
}

/// The effect of a field on a request.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// It is needed.
    Required,
    /// It is honoured.
    Honoured,
    /// It is another name of this field of the same table.
    Alias(&'static str),
    /// It asks this server for nothing, whatever it holds, and the answer tells so.
    Nothing,
    /// It asks for nothing that changes what is answered: the first are the values that ask for
    /// nothing anywhere (as JSON), and of others the answer tells that they were ignored.
    Hint(&'static [&'static str], &'static str),
    /// Refused, unless it has one of these values (as JSON), which ask for nothing.
    Refused(&'static [&'static str], &'static str),
}

/// No bound by a limit of the server.
pub const UNBOUNDED: fn(&Limits) -> i64 = |_| i64::MAX;

/// A field with an effect.
pub const fn honoured(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, effect: Effect::Honoured, about }
}

/// A field without which there is no request.
pub const fn required(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, effect: Effect::Required, about }
}

/// A field that asks for nothing.
pub const fn nothing(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, effect: Effect::Nothing, about }
}

/// Another name of the field `of`, which has the same type.
pub const fn alias(name: &'static str, of: &'static str, kind: Kind) -> Field {
    Field { name, kind, effect: Effect::Alias(of), about: "" }
}

/// A field that changes nothing in what is answered, for this `reason`. Values but the `neutral`
/// ones are told.
pub const fn hint(
    name: &'static str,
    neutral: &'static [&'static str],
    reason: &'static str,
) -> Field {
    Field { name, kind: Kind::Schema("{}"), effect: Effect::Hint(neutral, reason), about: reason }
}

/// A field that is refused, but for the `neutral` values.
pub const fn refused(
    name: &'static str,
    neutral: &'static [&'static str],
    reason: &'static str,
) -> Field {
    Field {
        name,
        kind: Kind::Schema("{}"),
        effect: Effect::Refused(neutral, reason),
        about: reason,
    }
}

/// The fields of `request` that have an effect, checked against `tables`.
///
/// # Errors
/// A field that no table has, that is refused, missing, of the wrong type or out of range.
pub fn check(tables: &[&[Field]], limits: &Limits, request: Map<String, Json>) -> Result<Reader> {
    check_in("", tables, limits, request)
}

/// The fields of the object at `path`, as [`check`].
///
/// # Errors
/// As [`check`].
pub fn check_in(
    path: &str,
    tables: &[&[Field]],
    limits: &Limits,
    mut request: Map<String, Json>,
) -> Result<Reader> {
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let fields = || tables.iter().flat_map(|table| table.iter());
    let mut unknown = Unknown::default();
    for (name, value) in &request {
        if !fields().any(|field| field.name == *name) {
            unknown.take(at(name), value)?;
        }
    }
    request.retain(|name, value| !value.is_null() && fields().any(|field| field.name == *name));
    for field in fields() {
        if let Effect::Alias(of) = field.effect
            && let Some(value) = request.shift_remove(field.name)
        {
            field.kind.check(&at(field.name), &value, limits)?;
            if request.get(of).is_some_and(|other| *other != value) {
                let reason = format!("differs from `{}`, which is another name of it", at(of));
                return Err(ApiError::value(at(field.name), reason));
            }
            request.insert(of.to_owned(), value);
        }
    }
    for field in fields() {
        let Some(value) = request.get(field.name) else {
            if let Effect::Required = field.effect {
                return Err(ApiError::value(at(field.name), "is missing"));
            }
            continue;
        };
        match field.effect {
            Effect::Refused(neutral, reason) => {
                if !is_neutral(value, neutral) {
                    return Err(ApiError::unsupported(at(field.name), reason));
                }
                request.shift_remove(field.name);
            }
            Effect::Hint(neutral, reason) => {
                if !is_neutral(value, neutral) {
                    take_hint(&at(field.name), reason)?;
                }
                request.shift_remove(field.name);
            }
            Effect::Nothing => {
                field.kind.check(&at(field.name), value, limits)?;
                match (field.kind, value) {
                    // Nobody else looks at its own fields, each of which is told.
                    (Kind::Fields(fields), Json::Object(inner)) => {
                        check_in(&at(field.name), &[fields], limits, inner.clone())?;
                    }
                    _ => told::tell(&at(field.name)),
                }
                request.shift_remove(field.name);
            }
            Effect::Required | Effect::Honoured | Effect::Alias(_) => {
                field.kind.check(&at(field.name), value, limits)?;
            }
        }
    }
    Reader::new(path, Json::Object(request))
}

/// Returns true when `value` is one of `neutral`, which are JSON. Null is the same as left out,
/// inside of an object too.
fn is_neutral(value: &Json, neutral: &[&str]) -> bool {
    let empty = Json::Object(Map::new());
    let value = match value {
        Json::Object(object) if object.values().all(Json::is_null) => &empty,
        value => value,
    };
    // JSON does not tell 1.0 from 1.
    let is = |neutral: Json| {
        neutral == *value || neutral.is_number() && neutral.as_f64() == value.as_f64()
    };
    neutral.iter().any(|text| serde_json::from_str(text).is_ok_and(is))
}

/// Takes the object `name`, which asks for nothing: its own fields are those of `table`.
///
/// # Errors
/// Another type; what `table` does not have, or has otherwise.
pub fn take_object(reader: &mut Reader, name: &str, table: &[Field]) -> Result<()> {
    let Some(hint) = reader.object(name)? else { return Ok(()) };
    check_in(&reader.path(name), &[table], &Limits::default(), hint).map(drop)
}

impl Kind {
    fn check(self, name: &str, value: &Json, limits: &Limits) -> Result<()> {
        match self {
            Kind::Bool if value.is_boolean() => Ok(()),
            Kind::Bool => Err(expected(name, "a boolean", value)),
            Kind::Text if value.is_string() => Ok(()),
            Kind::Text => Err(expected(name, "a string", value)),
            Kind::Labels => {
                let Some(labels) = value.as_object() else {
                    return Err(expected(name, "an object", value));
                };
                match labels.iter().find(|(_, label)| !label.is_string()) {
                    Some((key, label)) => Err(expected(format!("{name}.{key}"), "a string", label)),
                    None => Ok(()),
                }
            }
            Kind::Object(_) | Kind::Fields(_) if value.is_object() => Ok(()),
            Kind::Object(_) | Kind::Fields(_) => Err(expected(name, "an object", value)),
            Kind::Array(_) if value.is_array() => Ok(()),
            Kind::Array(_) => Err(expected(name, "an array", value)),
            Kind::Schema(_) => Ok(()),
            Kind::OneOf(names) => match value.as_str() {
                Some(text) if names.contains(&text) => Ok(()),
                Some(text) => {
                    let names = names.join(", ");
                    Err(ApiError::value(name, format!("`{text}` is not one of {names}")))
                }
                None => Err(expected(name, "a string", value)),
            },
            Kind::Integer(low, high) => {
                let high = high(limits);
                let inside = whole(value).is_some_and(|n| (low..=high).contains(&n));
                let what = match (low, high) {
                    (i64::MIN, i64::MAX) => "a whole number of 64 bits".to_owned(),
                    (low, i64::MAX) => format!("a whole number from {low} on"),
                    (low, high) => format!("a whole number from {low} to {high}"),
                };
                if inside { Ok(()) } else { Err(expected(name, &what, value)) }
            }
            Kind::Number(low, high) => {
                let inside = value.as_f64().is_some_and(|n| (low..=high).contains(&n));
                let what = match high == f64::MAX {
                    true => format!("a number from {low} on"),
                    false => format!("a number from {low} to {high}"),
                };
                if inside { Ok(()) } else { Err(expected(name, &what, value)) }
            }
        }
    }

    /// The JSON schema of what fits.
    pub fn schema(self, limits: &Limits) -> Json {
        match self {
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Text => json!({"type": "string"}),
            Kind::OneOf(names) => json!({"type": "string", "enum": names}),
            Kind::Labels => {
                json!({"type": "object", "additionalProperties": {"type": "string"}})
            }
            Kind::Object(schema) | Kind::Array(schema) | Kind::Schema(schema) => {
                serde_json::from_str(schema).unwrap_or_default()
            }
            Kind::Fields(fields) => {
                let schema = |field: &Field| (field.name.to_owned(), field.schema(limits));
                let properties: Map<String, Json> = fields.iter().map(schema).collect();
                json!({"type": "object", "additionalProperties": false, "properties": properties})
            }
            Kind::Integer(low, high) => {
                json!({"type": "integer", "minimum": low, "maximum": high(limits)})
            }
            Kind::Number(low, high) => {
                let mut schema = json!({"type": "number", "minimum": low});
                if high != f64::MAX {
                    schema["maximum"] = json!(high);
                }
                schema
            }
        }
    }
}

impl Field {
    /// The JSON schema of what this field may hold, with its description.
    pub fn schema(&self, limits: &Limits) -> Json {
        let mut schema = match self.effect {
            Effect::Refused(neutral, _) => {
                let neutral = neutral.iter().filter_map(|text| serde_json::from_str(text).ok());
                json!({"enum": neutral.chain([Json::Null]).collect::<Vec<_>>()})
            }
            Effect::Hint(..) => json!({}),
            Effect::Required => self.kind.schema(limits),
            _ => json!({"anyOf": [self.kind.schema(limits), {"type": "null"}]}),
        };
        schema["description"] = match self.effect {
            Effect::Refused(_, reason) => json!(format!("Not supported: {reason}.")),
            Effect::Nothing => json!(format!("{} Accepted; it asks for nothing here.", self.about)),
            Effect::Hint(_, reason) => json!(format!("Accepted, and changes nothing: {reason}.")),
            Effect::Alias(of) => json!(format!("Another name of `{of}`.")),
            _ => json!(self.about),
        };
        schema
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::{Field, Kind, UNBOUNDED, alias, check, hint, honoured, nothing, refused, required};
    use crate::config::Limits;

    const TABLE: &[Field] = &[
        required("prompt", Kind::Text, ""),
        honoured("n", Kind::Integer(1, |limits| limits.choices as i64), ""),
        honoured("seed", Kind::Integer(i64::MIN, UNBOUNDED), ""),
        honoured("top_p", Kind::Number(0.0, 1.0), ""),
        nothing("user", Kind::Text, ""),
        refused("store", &["false"], "nothing is stored"),
        alias("seeds", "seed", Kind::Integer(i64::MIN, UNBOUNDED)),
        hint("priority", &["0"], "there is one queue"),
    ];

    fn outcome(request: Json) -> Result<(), String> {
        let Json::Object(request) = request else { panic!("an object") };
        let checked = check(&[TABLE], &Limits::default(), request);
        checked.map(drop).map_err(|error| error.message)
    }

    #[test]
    fn each_fault_is_named() {
        let fault = |request| outcome(request).unwrap_err();
        assert_eq!(fault(json!({})), "`prompt`: is missing");
        assert!(fault(json!({"prompt": "a", "x": 1})).starts_with("unknown field `x`"));
        let n = "`n`: expected a whole number from 1 to 8, found 9";
        assert_eq!(fault(json!({"prompt": "a", "n": 9})), n);
        let top_p = "`top_p`: expected a number from 0 to 1, found a string";
        assert_eq!(fault(json!({"prompt": "a", "top_p": "1"})), top_p);
        let store = "`store` is not supported: nothing is stored";
        assert_eq!(fault(json!({"prompt": "a", "store": true})), store);
        assert_eq!(fault(json!({"prompt": "a", "user": 1})), "`user`: expected a string, found 1");
    }

    #[test]
    fn what_asks_for_nothing_passes() {
        let request = json!({"prompt": "a", "n": null, "store": false, "user": "x", "seed": -1});
        assert_eq!(outcome(request), Ok(()));
        assert_eq!(outcome(json!({"prompt": "a", "priority": 3, "x": []})), Ok(()));
        assert_eq!(outcome(json!({"prompt": "a", "priority": 0.0})), Ok(()));
    }

    #[test]
    fn another_name_is_the_same_field() {
        let read = |request: Json| {
            let Json::Object(request) = request else { panic!("an object") };
            check(&[TABLE], &Limits::default(), request)
        };
        let mut reader = read(json!({"prompt": "a", "seeds": 3})).unwrap();
        assert_eq!(reader.integer("seed").unwrap(), Some(3));
        assert!(read(json!({"prompt": "a", "seeds": 3, "seed": 3})).is_ok());
        let error = read(json!({"prompt": "a", "seeds": 3, "seed": 4})).unwrap_err();
        assert_eq!(error.message, "`seeds`: differs from `seed`, which is another name of it");
        let error = read(json!({"prompt": "a", "seeds": "3"})).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("seeds"));
    }
}
