//! Constraints that would cost too much: each ends in bounded time with an error, or runs.

use std::time::Instant;

use inference_core::Constraint;
use serde_json::{Value as Json, json};

use super::{constraints, tokenizer, value};

fn nested(levels: usize, wrap: impl Fn(Json) -> Json) -> Json {
    (0..levels).fold(json!({"type": "null"}), |inner, _| wrap(inner))
}

#[test]
fn explore() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let schema = |s: Json| Constraint::JsonSchema(value(&s));
    let chain = |n: usize, sib: bool| {
        let mut defs = serde_json::Map::new();
        for i in 0..n {
            let mut s = json!({"$ref": format!("#/$defs/d{}", i + 1)});
            if sib { s["type"] = json!("string"); }
            defs.insert(format!("d{i}"), s);
        }
        defs.insert(format!("d{n}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    let cases: Vec<(&str, Constraint)> = vec![
        ("self ref", schema(json!({"$ref": "#"}))),
        ("self ref2", schema(json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}))),
        ("endless", schema(json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}))),
        ("(a|aa)+ 30", Constraint::Regex("(a|aa)+$".into())),
        ("exp", Constraint::Regex("(a|b)*a(a|b){30}".into())),
        ("exp2", Constraint::Regex("(a|b)*a(a|b){1000}".into())),
        ("exp3", Constraint::Regex(".*a.{500}".into())),
        ("rep", Constraint::Regex("((((((((a{100}){100}){100}){100}){100}){100}){100}){100})".into())),
        ("rep1", Constraint::Regex("a{100000}".into())),
        ("rep1m", Constraint::Regex("a{4000000000}".into())),
        ("rep range", Constraint::Regex("(a{0,1000}b?){0,1000}".into())),
        ("unicode", Constraint::Regex("(\\p{L}\\p{N}?){1,2000}".into())),
        ("and", Constraint::Lark("start: /(.*a.{20})&(.*b.{19}x.*)&(.*c.{14}.*)/".into())),
        ("postfix", Constraint::Regex(format!("a{}", "{1,2}".repeat(5000)))),
        ("postfix?", Constraint::Regex(format!("a{}", "?".repeat(100_000)))),
        ("not", Constraint::Lark(format!("start: A\nA: {}/a/", "~".repeat(100_000)))),
        ("empty", Constraint::Regex(String::new())),
        ("anchors", Constraint::Regex("^[a-z]+$".into())),
        ("empty lark", Constraint::Lark(String::new())),
        ("left rec", Constraint::Lark("start: start".into())),
        ("left rec2", Constraint::Lark("start: start \"a\" | \"a\"".into())),
        ("amb", Constraint::Lark("start: start start | start start start | \"a\" | ".into())),
        ("chain rules", Constraint::Lark((0..4_600).map(|i| format!("r{i}: r{}\n", i + 1)).collect::<String>() + "r4600: \"x\"\nstart: r0")),
        ("chain terminals", Constraint::Lark((0..3_200).map(|i| format!("R{i}: R{} \"a\"\n", i + 1)).collect::<String>() + "R3200: \"x\"\nstart: R0")),
        ("alt", Constraint::Lark(format!("start: {}", "\"a\"|".repeat(16_000) + "\"b\""))),
        ("seq", Constraint::Lark(format!("start: {}", "\"a\" ".repeat(16_000)))),
        ("opt", Constraint::Lark(format!("start: {}", "\"a\"? ".repeat(5_000)))),
        ("long alt rx", Constraint::Regex((0..9_000).map(|i| format!("w{i}")).collect::<Vec<_>>().join("|"))),
        ("long lit", Constraint::Regex("abc".repeat(21_000))),
        ("opts rx", Constraint::Regex("a?".repeat(5000) + &"a".repeat(5000))),
        ("enum", schema(json!({"enum": (0..13_000).map(|i| format!("value {i}")).collect::<Vec<_>>()}))),
        ("enum mixed", schema(json!({"enum": (0..5_000).map(|i| json!({"a": i})).collect::<Vec<_>>()}))),
        ("const long", schema(json!({"const": "x".repeat(200_000)}))),
        ("props", schema(json!({"type": "object", "properties": (0..8_000).map(|i| (format!("p{i}"), json!({"type": "integer"}))).collect::<serde_json::Map<_, _>>()}))),
        ("props req", schema(json!({"type": "object", "required": (0..10_000).map(|i| format!("p{i}")).collect::<Vec<_>>()}))),
        ("maxItems", schema(json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1_000_000_000u64}))),
        ("minItems", schema(json!({"type": "array", "items": {"type": "integer"}, "minItems": 10_000_000}))),
        ("minItems2", schema(json!({"type": "array", "items": {"type": "array", "minItems": 10_000, "items": {"type": "array", "minItems": 10000}}, "minItems": 10_000}))),
        ("maxLength", schema(json!({"type": "string", "maxLength": 1_000_000_000u64}))),
        ("minLength", schema(json!({"type": "string", "minLength": 100_000_000}))),
        ("patterns", schema(json!({"type": "object", "patternProperties": (0..32).map(|i| (format!("^p{i}_.*x"), json!(true))).collect::<serde_json::Map<_, _>>()}))),
        ("patterns2", schema(json!({"type": "object", "patternProperties": (0..32).map(|i| (format!(".*a.{{{i}}}b"), json!(true))).collect::<serde_json::Map<_, _>>()}))),
        ("oneOf", schema(json!({"oneOf": (0..3000).map(|i| json!({"type": "object", "properties": {"k": {"const": format!("v{i}")}}, "required": ["k"]})).collect::<Vec<_>>()}))),
        ("allOf anyOf", schema(json!({"allOf": (0..20).map(|i| json!({"anyOf": [{"minLength": i}, {"maxLength": 100 + i}]})).collect::<Vec<_>>()}))),
        ("deep allOf", schema(nested(45, |s| json!({"allOf": [s]})))),
        ("deep items", schema(nested(95, |s| json!({"items": s})))),
        ("deep anyOf", schema(nested(12, |s| json!({"anyOf": [s.clone(), {"type": "array", "items": s}]})))),
        ("too deep", schema(nested(300, |s| json!({"items": s})))),
        ("chain", schema(chain(5000, false))),
        ("chain sib", schema(chain(5000, true))),
        ("multipleOf", schema(json!({"type": "integer", "multipleOf": 1_000_003}))),
        ("multipleOf2", schema(json!({"type": "number", "multipleOf": 1e-300}))),
        ("multipleOf3", schema(json!({"type": "number", "multipleOf": 0}))),
        ("num", schema(json!({"type": "number", "minimum": 1e-300, "maximum": 1e300}))),
        ("bigint", schema(json!({"type": "integer", "minimum": -9_223_372_036_854_775_808i64, "maximum": 9_223_372_036_854_775_807i64}))),
        ("pattern exp", schema(json!({"type": "string", "pattern": "(a|b)*a(a|b){40}$", "maxLength": 10000}))),
        ("pattern len", schema(json!({"type": "string", "pattern": "^(.*x){50}$", "minLength": 5000, "maxLength": 100_000}))),
        ("multibyte err", schema(json!({"type": "string", "minLength": "é".repeat(200)}))),
    ];
    let only = std::env::var("ONLY").ok();
    for (name, constraint) in cases {
        if only.as_deref().is_some_and(|o| o != name) { continue; }
        eprint!("{name:>16}: ");
        let rss0 = rss();
        let t = Instant::now();
        let matcher = constraints.matcher(&constraint);
        let compile = t.elapsed();
        match matcher {
            Err(e) => { let e = e.to_string(); eprintln!("compile {compile:?} +{} MB: {}", rss() - rss0, e.chars().take(160).collect::<String>().replace('\n', " ")) }
            Ok(mut m) => {
                // as on the engine's thread
                let (worst, steps, end) = std::thread::spawn(move || {
                    let mut draws = super::Draws(1);
                    let (mut worst, mut steps) = (std::time::Duration::ZERO, 0);
                    let t0 = Instant::now();
                    let end = loop {
                        let t = Instant::now();
                        let mask = match m.mask() { Ok(x) => x, Err(e) => break e.to_string() };
                        worst = worst.max(t.elapsed());
                        let allowed: Vec<u32> = (0..1100).filter(|id| mask.allows(*id)).collect();
                        let id = allowed[draws.below(allowed.len())];
                        let t = Instant::now();
                        m.accept(id);
                        worst = worst.max(t.elapsed());
                        steps += 1;
                        if m.is_complete() { break "complete".into(); }
                        if steps > 300 || t0.elapsed().as_secs() > 10 { break "length".into(); }
                    };
                    (worst, steps, end)
                }).join().unwrap();
                eprintln!("compile {compile:?}, {steps} steps, worst {worst:?}, +{} MB: {}", rss() - rss0, end.chars().take(160).collect::<String>());
            }
        }
    }
}

fn rss() -> i64 {
    let s = std::fs::read_to_string("/proc/self/statm").unwrap();
    s.split(' ').nth(1).unwrap().parse::<i64>().unwrap() * 4 / 1024
}
