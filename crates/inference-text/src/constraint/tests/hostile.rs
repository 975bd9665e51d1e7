//! Constraints that would cost too much: each is refused, or fails alone, in bounded time.

use std::thread;
use std::time::{Duration, Instant};

use inference_core::Constraint;
use serde_json::{Map, Value as Json, json};

use super::{Draws, VOCAB_SIZE, constraints, refusal, tokenizer, value};

/// Far above what any takes on an idle machine; without the limits, some take minutes.
const PATIENCE: Duration = Duration::from_secs(12);

fn schema(json: Json) -> Constraint {
    Constraint::JsonSchema(value(&json))
}

fn object<T: Into<Json>>(count: usize, entry: impl Fn(usize) -> (String, T)) -> Json {
    Json::Object(
        (0..count).map(entry).map(|(key, value)| (key, value.into())).collect::<Map<_, _>>(),
    )
}

fn nested(levels: usize, wrap: impl Fn(Json) -> Json) -> Json {
    (0..levels).fold(json!({"type": "null"}), |inner, _| wrap(inner))
}

/// Draws on a thread with the stack of the engine's, until something ends it.
fn run(constraint: &Constraint) -> Result<(), String> {
    let constraints = constraints(&tokenizer("qwen"));
    let mut matcher = constraints.matcher(constraint).map_err(|error| error.to_string())?;
    let steps = move || {
        let mut draws = Draws(1);
        for _ in 0..100 {
            let mask = matcher.mask().map_err(|error| error.to_string())?;
            let allowed: Vec<u32> = (0..VOCAB_SIZE as u32).filter(|id| mask.allows(*id)).collect();
            matcher.accept(allowed[draws.below(allowed.len())]);
            if matcher.is_complete() {
                break;
            }
        }
        Ok(())
    };
    thread::spawn(steps).join().unwrap()
}

#[test]
fn what_grows_without_measure_ends_in_bounded_time() {
    let enumeration: Vec<String> = (0..12_000).map(|i| format!("value {i}")).collect();
    let chain = |i: usize| json!({"$ref": format!("#/$defs/d{}", i + 1), "type": "string"});
    let mut chain = object(4000, |i| (format!("d{i}"), chain(i)));
    chain["d4000"] = json!({"type": "string"});
    let rules = |count: usize, rule: fn(usize) -> String| (0..count).map(rule).collect::<String>();
    for constraint in [
        Constraint::Regex("(a|aa)+b".into()),
        Constraint::Regex("(a|b)*a(a|b){1000}".into()),
        Constraint::Regex("((((((a{100}){100}){100}){100}){100}){100})".into()),
        Constraint::Regex("a{4000000000}".into()),
        Constraint::Regex("(a{0,1000}b?){0,1000}".into()),
        Constraint::Regex("a?".repeat(5000) + &"a".repeat(5000)),
        Constraint::Regex(format!("a{}", "?".repeat(60_000))),
        Constraint::Regex("abc".repeat(20_000)),
        Constraint::Lark("start: start start | start start start | \"a\" | ".into()),
        Constraint::Lark(
            rules(4000, |i| format!("r{i}: r{}\n", i + 1)) + "r4000: \"x\"\nstart: r0",
        ),
        Constraint::Lark(
            rules(2500, |i| format!("R{i}: R{} \"a\"\n", i + 1)) + "R2500: \"x\"\nstart: R0",
        ),
        schema(json!({"enum": enumeration})),
        schema(json!({"const": "x".repeat(200_000)})),
        schema(json!({"$ref": "#/$defs/d0", "$defs": chain})),
        schema(json!({"type": "array", "minItems": 1_000_000_000u64})),
        schema(json!({"type": "string", "minLength": 100_000_000})),
        schema(json!({"type": "string", "pattern": "(a|b)*a(a|b){40}$", "maxLength": 10_000})),
        schema(nested(95, |inner| json!({"items": inner}))),
        schema(
            json!({"type": "object", "patternProperties": object(32, |i| (format!("^p{i}_.*x"), true))}),
        ),
        schema(json!({"type": "object", "properties": object(300, |i| (format!("p{i}"), true))})),
    ] {
        let start = Instant::now();
        let outcome = run(&constraint);
        let what: String = format!("{constraint:?}").chars().take(60).collect();
        assert!(start.elapsed() < PATIENCE, "{what}: {:?}: {outcome:?}", start.elapsed());
        if let Err(error) = outcome {
            assert!(error.contains("constraint"), "{what}: {error}");
            assert!(error.chars().count() < 600 && !error.contains("backtrace"), "{what}: {error}");
        }
    }
}

#[test]
fn what_is_too_large_is_refused_with_the_limit() {
    let constraints = constraints(&tokenizer("qwen"));
    for (constraint, words) in [
        (Constraint::Regex("a".repeat(70_000)), "at most 65536"),
        (Constraint::Regex("(".repeat(101) + &")".repeat(101)), "deeper than 100"),
        (Constraint::Lark("a".repeat(70_000)), "at most 65536"),
        (
            Constraint::Lark(r#"start: %json {"x-guidance": {"lenient": true}}"#.into()),
            "`x-guidance`",
        ),
        (
            Constraint::Lark(format!(
                "start: %json {}",
                nested(101, |inner| json!({"items": inner}))
            )),
            "the schema nests deeper than 100",
        ),
        (schema(json!({"const": "x".repeat(300_000)})), "at most 262144"),
        (schema(nested(101, |inner| json!({"items": inner}))), "deeper than 100"),
        (
            schema(json!({"patternProperties": object(33, |i| (format!("^p{i}"), true))})),
            "33 patterns",
        ),
        (
            schema(json!({"properties": object(1001, |i| (format!("p{i}"), true))})),
            "1001 properties",
        ),
        (
            schema(json!({"prefixItems": [{"multipleOf": 0.997}, {"multipleOf": 991}]})),
            "at most 10000",
        ),
    ] {
        let reason = refusal(&constraints, &constraint);
        assert!(reason.contains(words), "{reason}");
    }
}
