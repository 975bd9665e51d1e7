//! JSON schemas: what is written under them is valid, what is not held is refused.

use inference_core::Constraint;
use serde_json::Value as Json;

use super::{End, FAMILIES, constraints, refusal, tokenizer, value, write};

const SEEDS: u64 = 6;

fn schemas(kind: &str) -> Vec<Json> {
    let mut all: Json = serde_json::from_str(include_str!("schemas.json")).unwrap();
    serde_json::from_value(all[kind].take()).unwrap()
}

#[test]
fn what_is_written_under_a_schema_is_valid() {
    let schemas = schemas("accepted");
    assert!(schemas.len() >= 100);
    for family in FAMILIES {
        let tokenizer = tokenizer(family);
        let constraints = constraints(&tokenizer);
        let mut ended = 0;
        for schema in &schemas {
            let validator =
                jsonschema::options().should_validate_formats(true).build(schema).unwrap();
            let constraint = Constraint::JsonSchema(value(schema));
            for seed in 0..SEEDS {
                let mut matcher = constraints.matcher(&constraint).unwrap();
                let (text, end) = write(&mut matcher, &tokenizer, seed, 300);
                if end == End::Length {
                    continue;
                }
                ended += 1;
                let instance = match serde_json::from_str::<Json>(&text) {
                    Ok(instance) => instance,
                    // JSON has numbers that f64 has not.
                    Err(error) if error.to_string().contains("number out of range") => continue,
                    Err(error) => panic!("{family}: {schema}: {text}: {error}"),
                };
                if let Err(error) = validator.validate(&instance) {
                    panic!("{family}: {schema}: {text}: {error}");
                }
            }
        }
        // Few texts have no end.
        let all = schemas.len() * SEEDS as usize;
        assert!(ended * 10 > all * 9, "{family}: {ended} of {all} texts ended");
    }
}

#[test]
fn an_object_that_lists_properties_has_no_others() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 4}, "at": {"$ref": "#/$defs/at"}},
        "required": ["name"],
        "$defs": {"at": {"type": "object", "properties": {"x": {"type": "boolean"}}}},
    });
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let written = |schema: &Json, seed| {
        let mut matcher = constraints.matcher(&Constraint::JsonSchema(value(schema))).unwrap();
        write(&mut matcher, &tokenizer, seed, 300)
    };
    for seed in 0..30 {
        let (text, end) = written(&schema, seed);
        assert_ne!(end, End::Length);
        let object: Json = serde_json::from_str(&text).unwrap();
        let keys = |json: &Json| json.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert!(keys(&object).iter().all(|key| key == "name" || key == "at"), "{text}");
        assert!(object.get("at").is_none_or(|at| keys(at).iter().all(|key| key == "x")), "{text}");
    }
    let mut open = schema;
    open["additionalProperties"] = Json::Bool(true);
    let has_others = |seed| written(&open, seed).0.matches(':').count() > 3;
    assert!((0..30).any(has_others));
}

#[test]
fn formats_are_held_by_their_form() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    for schema in schemas("by_form") {
        let constraint = Constraint::JsonSchema(value(&schema));
        let mut matcher = constraints.matcher(&constraint).unwrap();
        let (text, _) = write(&mut matcher, &tokenizer, 1, 2000);
        let text: String = serde_json::from_str(&text).unwrap();
        let signs = match schema["format"].as_str().unwrap() {
            "time" => "::",
            "date" => "--",
            "date-time" => "--::",
            _ => "@",
        };
        let mut rest = text.chars();
        assert!(signs.chars().all(|sign| rest.any(|c| c == sign)), "{schema}: {text}");
    }
}

#[test]
fn keys_keep_the_order_of_the_schema() {
    let tokenizer = tokenizer("qwen");
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"zebra": {"const": 1}, "apple": {"const": 2}, "mango": {"const": 3}},
        "required": ["mango", "apple", "zebra"],
        "additionalProperties": false,
    });
    let constraint = Constraint::JsonSchema(value(&schema));
    for seed in 0..5 {
        let mut matcher = constraints(&tokenizer).matcher(&constraint).unwrap();
        let (text, end) = write(&mut matcher, &tokenizer, seed, 300);
        assert_eq!(end, End::Complete);
        let object: serde_json::Map<String, Json> = serde_json::from_str(&text).unwrap();
        assert_eq!(object.keys().collect::<Vec<_>>(), ["zebra", "apple", "mango"]);
    }
}

#[test]
fn what_is_not_held_in_a_schema_is_refused() {
    let constraints = constraints(&tokenizer("qwen"));
    for case in schemas("refused") {
        let (schema, words) = (&case[0], case[1].as_str().unwrap());
        let reason = refusal(&constraints, &Constraint::JsonSchema(value(schema)));
        assert!(reason.contains(words), "{schema}: {reason}");
    }
}
