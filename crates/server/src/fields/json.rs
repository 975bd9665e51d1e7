//! JSON and the contract's values.

use inference_core::Value;
use serde_json::Value as Json;

/// `json` as the contract's value. A number beyond `i64` becomes a float.
pub fn to_value(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(flag),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Value::Int(integer),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(text),
        Json::Array(items) => Value::Array(items.into_iter().map(to_value).collect()),
        Json::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (key, to_value(value))).collect())
        }
    }
}

/// `value` as JSON. A float that JSON cannot write becomes `null`.
pub fn from_value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Int(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::String(text) => Json::String(text.clone()),
        Value::Array(items) => items.iter().map(from_value).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), from_value(value))).collect()
        }
    }
}

/// The whole number that `json` is. JSON does not tell 4.0 from 4, and no more do its schemas.
pub fn whole(json: &Json) -> Option<i64> {
    // Up to here, doubles hold every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    json.as_i64().or_else(|| {
        let float = json.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT);
        float.map(|float| float as i64)
    })
}

/// What kind of value `json` is, for an error.
pub fn kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

/// A number that JSON can write; negative infinity becomes the lowest one that clients can add up.
pub fn number(value: f32) -> Json {
    match value.is_finite() {
        // By way of its shortest decimal form, so that -0.1 is not printed as -0.10000000149.
        true => value.to_string().parse::<f64>().map_or(Json::Null, Json::from),
        false => Json::from(-9999.0),
    }
}

#[cfg(test)]
mod tests {
    use inference_core::Value;
    use serde_json::json;

    use super::{from_value, number, to_value, whole};

    #[test]
    fn values_survive_the_way_there_and_back() {
        let text = r#"{"b":1,"a":[null,true,-2.5,"x",{"z":0,"y":1.0}],"big":1e300}"#;
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(from_value(&to_value(json.clone())), json);
        assert_eq!(
            serde_json::to_string(&from_value(&to_value(json))).unwrap(),
            text.replace("1e300", "1e+300")
        );
    }

    #[test]
    fn whole_numbers_stay_whole_and_too_large_ones_become_floats() {
        let value = |text| to_value(serde_json::from_str(text).unwrap());
        assert_eq!(value("3"), Value::Int(3));
        assert_eq!(value("3.0"), Value::Float(3.0));
        assert_eq!(value("18446744073709551615"), Value::Float(18446744073709551615.0));
    }

    #[test]
    fn order_and_whole_numbers_are_kept() {
        let value = to_value(serde_json::from_str(r#"{"b":1,"a":[1.0,null]}"#).unwrap());
        let list = Value::Array(vec![Value::Float(1.0), Value::Null]);
        let expected = vec![("b".to_owned(), Value::Int(1)), ("a".to_owned(), list)];
        assert_eq!(value, Value::Object(expected));
    }

    #[test]
    fn a_number_is_whole_by_its_value() {
        let whole = |text: &str| whole(&serde_json::from_str(text).unwrap());
        assert_eq!(
            [whole("4"), whole("4.0"), whole("-0.0"), whole("1e3")].map(Option::unwrap),
            [4, 4, 0, 1000]
        );
        assert_eq!(
            [whole("4.5"), whole("1e300"), whole("9223372036854775808"), whole("\"4\"")],
            [None; 4]
        );
    }

    #[test]
    fn numbers_are_short_and_finite() {
        assert_eq!(number(-0.1), json!(-0.1));
        assert_eq!(number(f32::NEG_INFINITY), json!(-9999.0));
    }
}
