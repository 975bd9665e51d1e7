//! Values of JSON, as requests and answers write them.

use serde_json::Value as Json;

/// The whole number that `json` is. JSON does not tell 4.0 from 4, and no more do its schemas.
pub fn whole(json: &Json) -> Option<i64> {
    // Up to here, doubles hold every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    json.as_i64().or_else(|| {
        let float = json.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= EXACT);
        float.map(|float| float as i64)
    })
}

/// The type of `json` in words, for an error.
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
    use serde_json::json;

    use super::{number, whole};

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
