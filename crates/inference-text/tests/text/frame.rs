//! The ids around texts that are embedded or scored, and that texts stay text.

use inference_text::{Frame, Tokenizer};
use serde_json::{Value, json};

/// A tokenizer of words: `[CLS] a b [SEP]`, and pairs with kinds as BERT has them.
fn tokenizer(post_processor: Value) -> Tokenizer {
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
    };
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
        "added_tokens": [special(0, "[CLS]"), special(1, "[SEP]")],
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": post_processor,
        "model": {"type": "WordLevel", "unk_token": "?",
            "vocab": {"[CLS]": 0, "[SEP]": 1, "?": 2, "fox": 3, "snow": 4, "[": 5, "SEP": 6, "]": 7}},
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    Tokenizer::from_dir(folder.path()).unwrap()
}

fn template() -> Value {
    let special = |id: &str, kind: u32| json!({"SpecialToken": {"id": id, "type_id": kind}});
    let text = |id: &str, kind: u32| json!({"Sequence": {"id": id, "type_id": kind}});
    let token = |id: u32, name: &str| json!({"id": name, "ids": [id], "tokens": [name]});
    json!({
        "type": "TemplateProcessing",
        "single": [special("[CLS]", 0), text("A", 0), special("[SEP]", 0)],
        "pair": [special("[CLS]", 0), text("A", 0), special("[SEP]", 0), text("B", 1), special("[SEP]", 1)],
        "special_tokens": {"[CLS]": token(0, "[CLS]"), "[SEP]": token(1, "[SEP]")},
    })
}

#[test]
fn a_frame_is_what_the_post_processor_adds() {
    let frame = tokenizer(template()).frame().unwrap();
    let expected = Frame {
        single: [vec![0], vec![1]],
        pair: [vec![(0, 0)], vec![(1, 0)], vec![(1, 1)]],
        kinds: [0, 1],
    };
    assert_eq!(frame, expected);
    let mut without_kinds = frame;
    without_kinds.forget_kinds();
    assert_eq!((without_kinds.kinds, without_kinds.pair[2].clone()), ([0, 0], vec![(1, 0)]));
    let frame = tokenizer(Value::Null).frame().unwrap();
    assert_eq!((frame.single, frame.kinds), (Default::default(), [0, 1]));
}

#[test]
fn marks_are_tokens_in_a_prompt_and_text_in_a_text() {
    let tokenizer = tokenizer(template());
    assert_eq!(tokenizer.encode_behind("", "fox [SEP] snow").unwrap(), [3, 5, 6, 7, 4]);
    assert_eq!(tokenizer.encode_behind("[SEP] ", "fox [SEP]").unwrap(), [1, 3, 5, 6, 7]);
    assert_eq!(tokenizer.encode_behind("snow ", "").unwrap(), [4]);
    let all: String = ('\u{fdd0}'..='\u{fdef}').collect();
    assert!(tokenizer.encode_behind("", &all).is_err());
}
