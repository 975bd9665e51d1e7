//! JSON schemas: what is written under them is valid, what is not honoured is refused.

use inference_core::Constraint;
use serde_json::Value as Json;

use super::{End, FAMILIES, constraints, refusal, tokenizer, value, write};

fn schemas() -> Json {
    serde_json::from_str(include_str!("schemas.json")).unwrap()
}

#[test]
fn what_is_written_under_a_schema_is_valid() {
    for family in FAMILIES {
        let tokenizer = tokenizer(family);
        let constraints = constraints(&tokenizer);
        for schema in schemas()["accepted"].as_array().unwrap() {
            let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
            let constraint = Constraint::JsonSchema(value(schema));
            let mut ended = 0;
            for seed in 0..12 {
                let mut matcher = match constraints.matcher(&constraint) { Ok(m) => m, Err(e) => { eprintln!("REFUSED {schema} {e}"); break; } };
                let (text, end) = write(&mut matcher, &tokenizer, seed, 400);
                if end == End::Length {
                    continue;
                }
                ended += 1;
                let instance: Json = match serde_json::from_str(&text) { Ok(i) => i, Err(e) => { eprintln!("PARSE {schema} {text} {e}"); continue; }};
                if let Err(error) = validator.validate(&instance) {
                    eprintln!("INVALID {family}: {schema}: {text}: {error}");
                }
            }
            if ended < 3 { eprintln!("FEW {schema} {ended}"); }
        }
    }
}

#[test]
fn what_is_not_honoured_in_a_schema_is_refused() {
    let constraints = constraints(&tokenizer("qwen"));
    for case in schemas()["refused"].as_array().unwrap() {
        let (schema, words) = (&case[0], case[1].as_str().unwrap());
        match constraints.matcher(&Constraint::JsonSchema(value(schema))) {
           Ok(_) => eprintln!("ACCEPTED {schema}"),
           Err(e) => eprintln!("{} {schema}: {e}", if e.to_string().contains(words) {"ok"} else {"WORDS"}),
        }
    }
}
