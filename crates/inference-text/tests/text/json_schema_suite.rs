//! The JSON Schema Test Suite: a schema is held as the suite says, or refused by a name that
//! `docs/server.md` lists. What is held in another way is counted here and named there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use inference_core::{Constraint, Error};
use inference_text::constraint::{Constraints, Matcher};
use inference_text::json::to_value;
use inference_text::{AddSpecial, Tokenizer};
use serde_json::{Map, Value as Json};

const DOCUMENT: &str = include_str!("../../../../docs/server.md");

/// Instances that are not held as the suite says: the file, whether the suite takes them for
/// valid, how many, and what the document says of them.
const HELD_OTHERWISE: [(&str, bool, usize, &str); 10] = [
    ("additionalProperties", true, 2, "an object that lists `properties`"),
    ("anyOf", true, 2, "an object that lists `properties`"),
    ("format", true, 10, "`format` always holds"),
    ("optional/format/date", false, 6, "`format: date`"),
    ("optional/format/date-time", false, 4, "`format: date-time`"),
    ("optional/format/email", true, 4, "`format: email`"),
    ("optional/format/hostname", false, 48, "`format: hostname`"),
    ("optional/format/ipv6", true, 8, "`format: ipv6`"),
    ("optional/format/time", false, 20, "`format: time`"),
    ("properties", true, 2, "an object that lists `properties`"),
];

#[test]
fn each_schema_of_the_suite_is_held_or_refused_by_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers/llama3");
    let tokenizer = Tokenizer::from_dir(&folder).unwrap();
    let eos = *tokenizer.eos_ids().iter().next().unwrap();
    let constraints = Constraints::new(tokenizer.clone(), vec![eos], tokenizer.vocab_size());
    let mut refused = BTreeSet::new();
    let mut otherwise: BTreeMap<(String, bool), Vec<String>> = BTreeMap::new();
    let (mut held, mut instances) = (0, 0);
    for group in groups() {
        let constraint = Constraint::JsonSchema(to_value(with_draft(&group)));
        let matcher = match constraints.matcher(&constraint) {
            Ok(matcher) => matcher,
            Err(Error::InvalidOption { option: "constraint", reason }) => {
                let names = names(&reason);
                assert!(!names.is_empty(), "{}: {reason}", group["schema"]);
                refused.extend(names);
                continue;
            }
            Err(error) => panic!("{}: {error}", group["schema"]),
        };
        held += 1;
        for test in group["tests"].as_array().unwrap() {
            instances += 1;
            let (valid, text) = (test[1].as_bool().unwrap(), test[2].as_str().unwrap());
            let mut forms = forms(text);
            if forms.any(|form| accepts(&matcher, &tokenizer, eos, &form)) != valid {
                let file = group["file"].as_str().unwrap().to_owned();
                let seen = format!("{}: {}: {text}", group["schema"], test[0]);
                otherwise.entry((file, valid)).or_default().push(seen);
            }
        }
    }
    assert!(held > 300 && instances > 1900, "{held} schemas held, {instances} instances");
    assert_eq!(refused, documented());
    let expected = HELD_OTHERWISE.map(|(file, valid, count, _)| ((file.to_owned(), valid), count));
    let counts: BTreeMap<_, _> =
        otherwise.iter().map(|(key, seen)| (key.clone(), seen.len())).collect();
    assert_eq!(counts, BTreeMap::from(expected), "{otherwise:#?}");
    for (.., words) in HELD_OTHERWISE {
        assert!(section().contains(words), "docs/server.md does not say {words}");
    }
}

fn groups() -> impl Iterator<Item = Json> {
    let packed = &include_bytes!("../fixtures/json_schema_suite.json.gz")[..];
    let mut lines = String::new();
    GzDecoder::new(packed).read_to_string(&mut lines).unwrap();
    let groups: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    groups.into_iter()
}

/// A group's schema, which names its draft: without a name it would be the latest.
fn with_draft(group: &Json) -> Json {
    let mut schema = group["schema"].clone();
    if let (Json::Object(fields), "draft7") = (&mut schema, group["draft"].as_str().unwrap()) {
        fields.entry("$schema").or_insert("http://json-schema.org/draft-07/schema#".into());
    }
    schema
}

/// Returns true when the whole text may be written.
fn accepts(matcher: &Matcher, tokenizer: &Tokenizer, eos: u32, text: &str) -> bool {
    let mut matcher = matcher.fork();
    for id in tokenizer.encode(text, AddSpecial::Never).unwrap() {
        if matcher.is_complete() || !matcher.mask().unwrap().allows(id) {
            return false;
        }
        matcher.accept(id);
    }
    matcher.is_complete() || matcher.mask().unwrap().allows(eos)
}

/// An instance as it stands in the suite, and with integers as digits alone and its keys in any
/// order. A grammar writes one of these.
fn forms(text: &str) -> impl Iterator<Item = String> {
    let mut forms = vec![text.to_owned()];
    // A number beyond f64 has one form.
    if let Ok(instance) = serde_json::from_str(text) {
        match with_digits(instance) {
            Json::Object(fields) if fields.len() <= 4 => {
                let orders = orders(fields.into_iter().collect());
                forms.extend(orders.into_iter().map(|fields| Json::Object(fields).to_string()));
            }
            instance => forms.push(instance.to_string()),
        }
    }
    forms.into_iter()
}

fn with_digits(instance: Json) -> Json {
    match instance {
        Json::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e18 => {
                Json::from(float as i64)
            }
            _ => Json::Number(number),
        },
        Json::Array(items) => items.into_iter().map(with_digits).collect(),
        Json::Object(fields) => {
            fields.into_iter().map(|(key, field)| (key, with_digits(field))).collect()
        }
        other => other,
    }
}

fn orders(fields: Vec<(String, Json)>) -> Vec<Map<String, Json>> {
    if fields.is_empty() {
        return vec![Map::new()];
    }
    let mut all = Vec::new();
    for first in 0..fields.len() {
        let mut rest = fields.clone();
        let (key, field) = rest.remove(first);
        for tail in orders(rest) {
            let head = Map::from_iter([(key.clone(), field.clone())]);
            all.push(head.into_iter().chain(tail).collect());
        }
    }
    all
}

/// The names that the document gives to what a refusal is about.
fn names(reason: &str) -> Vec<String> {
    if let Some(keys) = reason.strip_prefix("not supported in a schema: ") {
        return keys.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    }
    if let Some(format) = reason.strip_prefix("Unknown format: ") {
        return vec![format!("format: {format}")];
    }
    if let Some(rest) = reason.strip_prefix("Expected positive integer for '") {
        return vec![rest.split('\'').next().unwrap().to_owned()];
    }
    let beginnings = [
        ("`oneOf`", "oneOf"),
        ("`multipleOf`", "multipleOf"),
        ("patternProperty regexes", "patternProperties"),
        ("`$ref` beside", "$ref"),
        ("Resource '", "$ref"),
        ("Anchor '", "$ref"),
        ("the schema `false`", "false"),
        ("Unsatisfiable schema: schema is false", "false"),
        ("Unsatisfiable schema: anyOf is empty", "anyOf"),
    ];
    let about = beginnings.iter().filter(|(beginning, _)| reason.starts_with(beginning));
    about.map(|(_, name)| (*name).to_owned()).collect()
}

/// The document's section on schemas.
fn section() -> &'static str {
    let (_, section) = DOCUMENT.split_once("\n## Schemas\n").unwrap();
    section.split("\n## ").next().unwrap()
}

/// The names in the first column of the document's first table.
fn documented() -> BTreeSet<String> {
    let rows = section().lines().skip_while(|line| !line.starts_with("| refused "));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}
