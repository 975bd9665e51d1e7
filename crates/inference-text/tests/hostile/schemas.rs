//! Schemas that would cost too much, each of another kind.

use serde_json::{Map, Value as Json, json};

fn object<T: Into<Json>>(count: usize, entry: impl Fn(usize) -> (String, T)) -> Json {
    let entries = (0..count).map(entry).map(|(key, value)| (key, value.into()));
    Json::Object(entries.collect::<Map<_, _>>())
}

fn nested(levels: usize, wrap: impl Fn(Json) -> Json) -> Json {
    (0..levels).fold(json!({"type": "null"}), |inner, _| wrap(inner))
}

fn list<T: Into<Json>>(count: usize, item: impl Fn(usize) -> T) -> Json {
    Json::Array((0..count).map(item).map(Into::into).collect())
}

fn with_defs(mut schema: Json, defs: Json) -> Json {
    schema["$defs"] = defs;
    schema
}

/// Names and schemas.
pub fn all() -> Vec<(&'static str, Json)> {
    let words = r"(\w{0,250}\s?){0,250}";
    let reference = |name: String| json!({"$ref": format!("#/$defs/{name}")});
    let all_pairs = |count: usize| {
        list(
            count,
            |i| json!({"anyOf": [{"required": [format!("a{i}")]}, {"required": [format!("b{i}")]}]}),
        )
    };
    let big = json!({"type": "object", "properties": object(900, |i| (format!("property{i}"), json!({"enum": [i, "a", "b"]})))});
    vec![
        ("a hostile pattern", json!({"type": "string", "pattern": format!("^{words}$")})),
        (
            "a hostile pattern with a length",
            json!({"type": "string", "pattern": words, "maxLength": 5000}),
        ),
        (
            "a pattern that is searched for",
            json!({"type": "string", "pattern": "a(a|b){200}c", "minLength": 100}),
        ),
        (
            "a pattern with states without measure",
            json!({"type": "string", "pattern": "(a|b)*a(a|b){40}$", "maxLength": 10_000}),
        ),
        (
            "many hostile patterns",
            json!({"properties": object(100, |i| (format!("p{i}"), json!({"type": "string", "pattern": format!("^(\\w{{0,{}}}\\s?){{0,50}}$", 50 + i)})))}),
        ),
        (
            "patterns of properties",
            json!({"type": "object", "patternProperties": object(32, |i| (format!("^p{i}_.*x"), true))}),
        ),
        (
            "hostile patterns of properties",
            json!({"type": "object", "patternProperties": {"^(\\w{0,200}-?){0,200}x$": true, "^y(\\w{0,200}-?){0,200}$": true}, "properties": object(200, |i| (format!("yp{i}"), true))}),
        ),
        (
            "patterns of both sides",
            json!({"allOf": list(12, |i| json!({"type": "string", "pattern": format!("a.{{{}}}b", i + 1)}))}),
        ),
        ("a long enumeration", json!({"enum": list(12_000, |i| format!("value {i}"))})),
        (
            "long enumerations that meet",
            json!({"allOf": [{"enum": list(5000, |i| format!("value {i}"))}, {"enum": list(5000, |i| format!("value {}", i + 1))}]}),
        ),
        (
            "enumerations of objects",
            json!({"enum": list(2500, |i| json!({"kind": format!("k{i}"), "n": i}))}),
        ),
        ("enumerations of lists", json!({"enum": list(5000, |i| json!([i, i + 1, [i]]))})),
        ("a long constant", json!({"const": "x".repeat(200_000)})),
        ("a constant with escapes", json!({"const": "\u{1}\"\\".repeat(20_000)})),
        ("a constant of many fields", json!({"const": object(990, |i| (format!("f{i}"), i))})),
        ("a nested constant", json!({"const": (0..90).fold(json!(1), |inner, _| json!([inner]))})),
        ("choices of choices", json!({"allOf": all_pairs(14)})),
        ("choices of many choices", json!({"allOf": all_pairs(60)})),
        (
            "choices of one, multiplied",
            json!({"allOf": list(10, |i| json!({"oneOf": list(8, |j| json!({"type": "object", "properties": {format!("k{i}"): {"const": j}}, "required": [format!("k{i}")]}))}))}),
        ),
        (
            "a large object and many choices",
            json!({"allOf": [big.clone(), {"anyOf": list(3000, |_| json!({"type": "object"}))}]}),
        ),
        (
            "a large property and many choices",
            json!({"allOf": [{"anyOf": list(6000, |_| json!({"type": "object"}))}, {"type": "object", "properties": {"a": big.clone()}}]}),
        ),
        (
            "a large referenced property and many choices",
            with_defs(
                json!({"allOf": [{"anyOf": list(6000, |_| json!({"type": "object"}))}, {"$ref": "#/$defs/big"}]}),
                json!({"big": {"type": "object", "properties": {"a": big.clone()}}}),
            ),
        ),
        (
            "a large enumeration and many choices",
            json!({"allOf": [{"anyOf": list(6000, |_| json!({"type": "array"}))}, {"type": "array", "items": {"enum": list(8000, |i| format!("v{i}"))}}]}),
        ),
        (
            "all of many large",
            json!({"allOf": list(40, |i| json!({"type": "object", "properties": object(100, |j| (format!("p{}", i * 37 + j), json!({"type": "integer"})))}))}),
        ),
        (
            "a chain of references",
            with_defs(reference("d0".into()), {
                let mut chain = object(4000, |i| {
                    (
                        format!("d{i}"),
                        json!({"$ref": format!("#/$defs/d{}", i + 1), "type": "string"}),
                    )
                });
                chain["d4000"] = json!({"type": "string"});
                chain
            }),
        ),
        (
            "references that double",
            with_defs(reference("d0".into()), {
                let both = |i: usize| json!({"type": "object", "properties": {"a": {"$ref": format!("#/$defs/d{}", i + 1)}, "b": {"$ref": format!("#/$defs/d{}", i + 1)}}});
                let mut chain = object(60, |i| (format!("d{i}"), both(i)));
                chain["d60"] = json!({"type": "string"});
                chain
            }),
        ),
        (
            "references that double beside others",
            with_defs(reference("d0".into()), {
                let both = |i: usize| json!({"minProperties": 0, "allOf": [{"properties": {"a": {"$ref": format!("#/$defs/d{}", i + 1)}}}, {"properties": {"a": {"$ref": format!("#/$defs/d{}", i + 1)}, "b": {"$ref": format!("#/$defs/d{}", i + 1)}}}]});
                let mut chain = object(40, |i| (format!("d{i}"), both(i)));
                chain["d40"] = json!({"type": "object"});
                chain
            }),
        ),
        (
            "choices that double",
            with_defs(reference("d0".into()), {
                let both = |i: usize| json!({"type": "object", "allOf": [{"anyOf": [{"$ref": format!("#/$defs/d{}", i + 1)}, {"required": [format!("r{i}")]}]}]});
                let mut chain = object(40, |i| (format!("d{i}"), both(i)));
                chain["d40"] = json!({"required": ["z"]});
                chain
            }),
        ),
        (
            "a reference to itself among all",
            json!({"allOf": [{"$ref": "#"}, {"type": "object", "properties": {"a": {"$ref": "#"}}}]}),
        ),
        (
            "trees of two kinds at once",
            with_defs(
                json!({"allOf": [reference("t1".into()), reference("t2".into())]}),
                json!({
                    "t1": {"type": "object", "properties": {"c": {"$ref": "#/$defs/t1"}, "d": {"$ref": "#/$defs/t2"}}},
                    "t2": {"type": "object", "properties": {"c": {"$ref": "#/$defs/t2"}, "d": {"$ref": "#/$defs/t1"}}},
                }),
            ),
        ),
        (
            "many properties",
            json!({"type": "object", "properties": object(990, |i| (format!("p{i}"), true))}),
        ),
        (
            "many objects of many properties",
            json!({"properties": object(60, |i| (format!("o{i}"), json!({"type": "object", "properties": object(60, |j| (format!("p{i}_{j}"), json!({"type": "integer"})))})))}),
        ),
        (
            "many small objects",
            json!({"anyOf": list(3000, |i| json!({"type": "object", "properties": {format!("p{i}"): {"type": "integer"}}}))}),
        ),
        (
            "many small closed objects",
            json!({"anyOf": list(2500, |i| json!({"type": "object", "properties": {format!("p{i}"): {"type": "integer"}}, "additionalProperties": false}))}),
        ),
        (
            "at least one of many",
            json!({"type": "object", "properties": object(990, |i| (format!("p{i}"), true)), "minProperties": 1, "additionalProperties": false}),
        ),
        (
            "at most one of many",
            json!({"type": "object", "properties": object(990, |i| (format!("p{i}"), true)), "maxProperties": 1, "additionalProperties": false}),
        ),
        ("a billion items", json!({"type": "array", "minItems": 1_000_000_000u64})),
        (
            "a billion items of a list",
            json!({"type": "array", "prefixItems": list(500, |i| json!({"const": i})), "maxItems": 1_000_000_000u64}),
        ),
        (
            "many first items",
            json!({"type": "array", "prefixItems": list(8000, |i| json!({"const": i}))}),
        ),
        ("a hundred million letters", json!({"type": "string", "minLength": 100_000_000})),
        ("lengths of a billion", json!({"type": "string", "maxLength": 4_000_000_000u64})),
        (
            "many lengths",
            json!({"properties": object(900, |i| (format!("p{i}"), json!({"type": "string", "minLength": i, "maxLength": 10 * i + 5})))}),
        ),
        ("a billion properties", json!({"type": "object", "minProperties": 1_000_000_000u64})),
        ("deep lists", nested(95, |inner| json!({"items": inner}))),
        ("deep objects", nested(48, |inner| json!({"properties": {"a": inner}}))),
        ("deep choices", nested(48, |inner| json!({"anyOf": [inner, {"type": "string"}]}))),
        (
            "deep choices without types",
            nested(47, |inner| json!({"anyOf": [{"items": inner.clone()}, {"maxLength": 3}]})),
        ),
        ("deep all", nested(48, |inner| json!({"allOf": [inner, {}]}))),
        (
            "multiples",
            json!({"prefixItems": list(60, |i| json!({"type": "number", "multipleOf": ([0.125, 0.0016, 625.0, 16.0, 0.8][i % 5]), "minimum": i}))}),
        ),
        (
            "bounds of numbers",
            json!({"anyOf": list(2500, |i| json!({"type": "number", "minimum": i as f64 + 0.123_456, "maximum": i as f64 * 1e9 + 0.987_654}))}),
        ),
        (
            "formats",
            json!({"anyOf": list(4000, |i| json!({"type": "string", "format": (["email", "ipv6", "uri", "date-time", "hostname"][i % 5]), "maxLength": i + 3}))}),
        ),
        (
            "formats with patterns",
            json!({"type": "string", "format": "email", "pattern": "^\\w+([\\.-]?\\w+)*@\\w+([\\.-]?\\w+)*(\\.\\w{2,})+$", "minLength": 600, "maxLength": 6000}),
        ),
    ]
}
