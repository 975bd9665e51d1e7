//! The detokenizer's pieces are the decoded text, for every decoder.

use inference_text::{Detokenizer, SkipSpecial, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const FAMILIES: [&str; 8] =
    ["gemma", "harmony", "llama3", "mistral", "olmo", "phi", "qwen", "smol"];

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers").join(name)
}

/// A family's tokenizer with another decoder.
fn with_decoder(name: &str, decoder: Value) -> Tokenizer {
    let mut json: Value =
        serde_json::from_slice(&std::fs::read(fixture(name).join("tokenizer.json")).unwrap())
            .unwrap();
    json["decoder"] = decoder;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), json.to_string()).unwrap();
    Tokenizer::from_dir(dir.path()).unwrap()
}

fn pieces(tokenizer: &Tokenizer, ids: &[u32], skip: SkipSpecial) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(tokenizer, skip).unwrap();
    let mut pieces: Vec<String> = ids.iter().map(|&id| detokenizer.push(id)).collect();
    pieces.push(detokenizer.finish());
    pieces
}

/// Ids of the whole vocabulary and beyond it, with runs of byte tokens, and the ids of real text.
fn ids(tokenizer: &Tokenizer) -> impl Strategy<Value = Vec<u32>> + use<> {
    let vocab = tokenizer.vocab_size() as u32;
    let named = |tokens: &[&str]| -> Vec<u32> {
        tokens.iter().filter_map(|t| tokenizer.token_to_id(t)).collect()
    };
    let mut bytes: Vec<u32> =
        (0..=255).filter_map(|b| tokenizer.token_to_id(&format!("<0x{b:02X}>"))).collect();
    bytes.extend(named(&["ä", "½", "ł", "Ģ", "Ĥ", "å", "ð", "Ł", "é", "Ċ"]));
    bytes.push(0);
    let spaces = named(&["▁", "▁▁", "Ġ", "ĠĠ", "Ċ", "<pad>", "</s>", "<|im_end|>", "<eos>"]);
    let spaces = if spaces.is_empty() { vec![0] } else { spaces };
    let text = ["你好 🌍 e\u{301}", " a  b", "<0x41> \u{fffd}", "Ünïcödé", "  "];
    let real: Vec<Vec<u32>> = text
        .iter()
        .map(|t| tokenizer.encode(t, inference_text::AddSpecial::Never).unwrap())
        .collect();
    let piece = prop_oneof![
        3 => (0..vocab + 40).prop_map(|id| vec![id]),
        3 => prop::collection::vec(prop::sample::select(bytes), 1..6),
        1 => prop::sample::select(spaces).prop_map(|id| vec![id]),
        1 => prop::sample::select(real),
        1 => any::<u32>().prop_map(|id| vec![id]),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn holds(label: &str, tokenizer: &Tokenizer, cases: u32) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
    runner
        .run(&ids(tokenizer), |ids| {
            for skip in [SkipSpecial::No, SkipSpecial::Yes] {
                // The library fails on a list of no tokens with some decoders; then there is
                // nothing to compare.
                let Ok(text) = tokenizer.decode(&ids, skip) else {
                    continue;
                };
                prop_assert_eq!(
                    pieces(tokenizer, &ids, skip).concat(),
                    text,
                    "{}: {:?}",
                    label,
                    ids
                );
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn pieces_are_the_decoded_text_for_every_family() {
    for name in FAMILIES {
        holds(name, &Tokenizer::from_dir(&fixture(name)).unwrap(), 400);
    }
}

#[test]
fn pieces_are_the_decoded_text_for_every_kind_of_decoder() {
    let replace = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
    let strip = |start: u32, stop: u32| json!({"type": "Strip", "content": " ", "start": start, "stop": stop});
    let fallback = json!({"type": "ByteFallback"});
    let fuse = json!({"type": "Fuse"});
    let sequence = |decoders: Value| json!({"type": "Sequence", "decoders": decoders});
    let decoders = [
        Value::Null,
        json!({"type": "WordPiece", "prefix": "▁", "cleanup": true}),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": false}),
        json!({"type": "BPEDecoder", "suffix": "e"}),
        json!({"type": "CTC", "pad_token": "<unk>", "word_delimiter_token": "▁", "cleanup": true}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true}),
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false}),
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
        fallback.clone(),
        fuse.clone(),
        sequence(json!([replace, fallback, fuse, strip(3, 2)])),
        sequence(json!([replace, fallback, strip(1, 0), fuse])),
        sequence(json!([fallback, fuse, replace, strip(1, 0)])),
        sequence(
            json!([fuse, {"type": "Replace", "pattern": {"Regex": "(a|e) *"}, "content": "<>"}]),
        ),
        sequence(
            json!([fuse, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}]),
        ),
        sequence(json!([
            sequence(json!([replace, fallback])),
            sequence(json!([fuse, strip(1, 0)]))
        ])),
    ];
    for decoder in decoders {
        holds(&decoder.to_string(), &with_decoder("mistral", decoder.clone()), 200);
    }
}

#[test]
fn utf8_is_held_back_until_it_is_whole() {
    let qwen = Tokenizer::from_dir(&fixture("qwen")).unwrap();
    let ids: Vec<u32> = ["ð", "Ł", "Į", "į"].iter().map(|t| qwen.token_to_id(t).unwrap()).collect();
    assert_eq!(pieces(&qwen, &ids, SkipSpecial::No), ["", "", "", "🌍", ""]);
    assert_eq!(pieces(&qwen, &ids[..3], SkipSpecial::No), ["", "", "", "\u{fffd}"]);
    let a = qwen.token_to_id("a").unwrap();
    assert_eq!(pieces(&qwen, &[ids[0], ids[1], a], SkipSpecial::No), ["", "", "\u{fffd}a", ""]);
}

#[test]
fn a_run_of_byte_tokens_is_held_back_until_it_ends() {
    let gemma = Tokenizer::from_dir(&fixture("gemma")).unwrap();
    let byte = |b: u8| gemma.token_to_id(&format!("<0x{b:02X}>")).unwrap();
    let a = gemma.token_to_id("a").unwrap();
    assert_eq!(pieces(&gemma, &[byte(0xc3), byte(0xa9), a], SkipSpecial::No), ["", "", "éa", ""]);
    // One bad byte spoils the whole run, its good ones included.
    assert_eq!(
        pieces(&gemma, &[byte(0xc3), byte(0xa9), byte(0xff)], SkipSpecial::No).concat(),
        "\u{fffd}".repeat(3)
    );
}

#[test]
fn the_first_leading_space_is_kept_as_decode_keeps_it() {
    let qwen = Tokenizer::from_dir(&fixture("qwen")).unwrap();
    let space = qwen.token_to_id("Ġ").unwrap();
    assert_eq!(pieces(&qwen, &[space, space], SkipSpecial::No), [" ", " ", ""]);
}

#[test]
fn a_long_text_takes_linear_time() {
    let gemma = Tokenizer::from_dir(Path::new(&fixture("gemma"))).unwrap();
    let byte = gemma.token_to_id("<0x41>").unwrap();
    // Decoding everything at each step would take hours.
    let ids = vec![byte; 200_000];
    assert_eq!(pieces(&gemma, &ids, SkipSpecial::No).concat().len(), ids.len());
}
