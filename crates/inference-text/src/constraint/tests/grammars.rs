//! Lark grammars, and the schemas in them.

use inference_core::Constraint;
use serde_json::Value as Json;

use super::{End, VOCAB_SIZE, constraints, refusal, tokenizer, write};
use crate::AddSpecial;
use crate::constraint::grammar::grammar_source;

#[test]
fn a_grammar_is_followed() {
    let tokenizer = tokenizer("mistral");
    let constraints = constraints(&tokenizer);
    let grammar = r#"
        start: sum
        sum: product ("+" product)*
        product: NUMBER | "(" sum ")"
        NUMBER: /[0-9]{1,3}/
    "#;
    let mut ended = 0;
    for seed in 0..20 {
        let mut matcher = constraints.matcher(&Constraint::Lark(grammar.into())).unwrap();
        let (text, end) = write(&mut matcher, &tokenizer, seed, 100);
        if end == End::Eos {
            ended += 1;
            let open = text.matches('(').count();
            assert_eq!(open, text.matches(')').count(), "{text}");
        }
        assert!(text.chars().all(|c| "0123456789+()".contains(c)), "{text}");
    }
    assert!(ended > 10);
    let reason = refusal(&constraints, &Constraint::Lark("start: nothing".into()));
    assert!(reason.contains("nothing"), "{reason}");
}

#[test]
fn a_grammar_in_gbnf_is_followed() {
    let json = r#"
        root   ::= object
        value  ::= object | array | string | number | ("true" | "false" | "null") ws
        object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
        array  ::= "[" ws ( value ("," ws value)* )? "]" ws
        string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
        number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
        # Few blanks, since random texts would have many.
        ws ::= | " " | "\n" [ \t]{0,3}
    "#;
    let plan = "root ::= \"Plan:\\n\" step{2,3}\nstep ::= \"- \" [^\\n]{1,5} \"\\n\"\n";
    for family in super::FAMILIES {
        let tokenizer = tokenizer(family);
        let constraints = constraints(&tokenizer);
        let written = |grammar: &str, seed| {
            let constraint = Constraint::Lark(grammar.to_owned());
            let mut matcher = constraints.matcher(&constraint).unwrap();
            write(&mut matcher, &tokenizer, seed, 300)
        };
        let mut ended = 0;
        for seed in 0..20 {
            let (text, end) = written(json, seed);
            if end != End::Length {
                ended += 1;
                // JSON has numbers that f64 has not.
                let fault =
                    serde_json::from_str::<Json>(&text).err().map(|error| error.to_string());
                let is_json = fault.is_none_or(|fault| fault.contains("number out of range"));
                assert!(is_json, "{family}: {text}");
            }
            let (text, end) = written(plan, seed);
            assert_ne!(end, End::Length);
            let steps = text.strip_prefix("Plan:\n").unwrap();
            assert!(steps.lines().all(|step| step.starts_with("- ")), "{text}");
            assert!((2..=3).contains(&steps.lines().count()), "{text}");
        }
        assert!(ended > 10, "{family}: {ended}");
    }
    // What follows a run of blanks may need one of them.
    let sums = r#"
        root  ::= (expr "=" ws term "\n")+
        expr  ::= term ([-+*/] term)*
        term  ::= ident | num | "(" ws expr ")" ws
        ident ::= [a-z] [a-z0-9_]* ws
        num   ::= [0-9]+ ws
        ws    ::= [ \t\n]*
    "#;
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let constraint = Constraint::Lark(sums.to_owned());
    for text in ["a=1\n", "a +b*( c1 -2) =3\n", "x\n\n=y \n\nz=1\n"] {
        let mut matcher = constraints.matcher(&constraint).unwrap();
        for id in tokenizer.encode(text, AddSpecial::Never).unwrap() {
            let token = tokenizer.id_to_token(id);
            assert!(matcher.mask().unwrap().allows(id), "{text:?}: {token:?}");
            matcher.accept(id);
        }
        let eos = *tokenizer.eos_ids().iter().next().unwrap();
        assert!(matcher.mask().unwrap().allows(eos), "{text:?}");
    }
    let reason = refusal(&constraints, &Constraint::Lark("root ::= a".into()));
    assert!(reason.contains("GBNF") && reason.contains("`a`"), "{reason}");
}

#[test]
fn a_grammar_may_name_special_tokens() {
    let tokenizer = tokenizer("qwen");
    let grammar = r#"start: "a" <|im_start|> "b""#.to_owned();
    let mut matcher = constraints(&tokenizer).matcher(&Constraint::Lark(grammar)).unwrap();
    let id = |token| tokenizer.token_to_id(token).unwrap();
    for token in ["a", "<|im_start|>", "b"] {
        let mask = matcher.mask().unwrap();
        let allowed: Vec<u32> = (0..VOCAB_SIZE as u32).filter(|id| mask.allows(*id)).collect();
        assert_eq!(allowed, [id(token)]);
        matcher.accept(id(token));
    }
    assert!(matcher.is_complete());
}

#[test]
fn a_schema_in_a_grammar_is_a_schema() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let schema = r#"{"type": "array", "items": {"enum": [1, "(", "["]}, "maxItems": 3}"#;
    let grammar =
        format!("start: \"<\" list \">\" // %json {{\"x-guidance\": 1}}\nlist: %json {schema}\n");
    for seed in 0..20 {
        let mut matcher = constraints.matcher(&Constraint::Lark(grammar.clone())).unwrap();
        let (text, end) = write(&mut matcher, &tokenizer, seed, 200);
        assert_eq!(end, End::Complete, "{text}");
        let inner = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap();
        // Between two tokens: nothing, a space, or a line break with an indentation.
        let is_tight = |line: &str| !line.trim_start().contains("  ");
        assert!(!inner.contains("\n\n") && inner.lines().all(is_tight), "{text}");
        assert!(serde_json::from_str::<Vec<Json>>(inner).unwrap().len() <= 3);
    }
    let refused = r#"start: %json {"uniqueItems": true}"#;
    let reason = refusal(&constraints, &Constraint::Lark(refused.into()));
    let words = "not supported in a schema: `uniqueItems`; leave it out";
    assert!(reason.ends_with(words), "{reason}");
    let refused = r#"start: "<" list
list: %json {"items": {"format": "postcode"}}"#;
    let reason = refusal(&constraints, &Constraint::Lark(refused.into()));
    assert!(reason.contains("postcode") && !reason.contains("x-guidance"), "{reason}");
    let reason = refusal(&constraints, &Constraint::Lark("start: A\nA: /a[/".into()));
    assert!(reason.contains("unclosed") && !reason.contains("start"), "{reason}");
}

#[test]
fn what_only_looks_like_a_schema_is_left_as_it_is() {
    for grammar in [
        r#"start: "%json {}" /%json {}/ // %json {}"#,
        "# %json {}\nstart: \"a\\\"%json {}\"",
        r#"start: %json 17"#,
        r#"start: "no end %json {}"#,
        "start: /no end %json {}",
        "start: </s> \"%json {}\" <a/%json{}>",
        "%json",
        "start: \"é\" // ∞",
    ] {
        assert_eq!(grammar_source(grammar).unwrap(), grammar);
    }
    let written = grammar_source(r#"start: %json{"type": "null"} | "x""#).unwrap();
    assert!(written.contains("whitespace_pattern") && written.ends_with(r#"} | "x""#), "{written}");
    // Brackets in texts do not nest; schemas have their own limit.
    let texts = format!("start: {}", r#""(" "#.repeat(500));
    assert_eq!(grammar_source(&texts).unwrap(), texts);
    let schema = format!(r#"start: %json {{"const": "{}"}}"#, "x".repeat(100_000));
    assert!(grammar_source(&schema).is_ok());
    let schema = format!(r#"start: %json {{"const": "{}"}}"#, "x".repeat(300_000));
    assert!(grammar_source(&schema).unwrap_err().to_string().contains("at most 262144"));
}

#[test]
fn a_grammar_may_let_reasoning_come_first() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let answers = [
        "answer: %json {\"enum\": [\"yes\", \"no\"]}\n",
        "answer: /\"(yes|no)\"/\n",
        "answer: %lark {\nstart: \"\\\"\" word \"\\\"\"\nword: \"yes\" | \"no\"\n}\n",
    ];
    for answer in answers {
        let grammar = format!(
            "start: (<[992]> TEXT? <[993]> SPACE?)? answer\n\
             TEXT: /(?s:.+)/ & ~/(?s:.*)<\\/think>(?s:.*)/\nSPACE: /\\s{{1,4}}/\n{answer}"
        );
        let grammar = Constraint::Lark(grammar);
        let texts =
            ["\"no\"", "<think>\nIs it {no}?\n</think>\n\n\"yes\"", "<think></think>\"no\""];
        for text in texts {
            let mut matcher = constraints.matcher(&grammar).unwrap();
            for id in tokenizer.encode(text, AddSpecial::Never).unwrap() {
                assert!(matcher.mask().unwrap().allows(id), "{answer}{text}: {id}");
                matcher.accept(id);
            }
            assert!(matcher.is_complete(), "{answer}{text}");
        }
        let mask = constraints.matcher(&grammar).unwrap().mask().unwrap();
        let allowed = (0..VOCAB_SIZE as u32).filter(|id| mask.allows(*id)).count();
        assert!(allowed < 10, "{allowed}");
    }
}
