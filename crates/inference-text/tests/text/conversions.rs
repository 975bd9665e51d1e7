//! Tokenizers that are no `tokenizer.json` against what transformers, tiktoken and mistral-common
//! make of them, and files that are none.
//!
//! The files are made by `fixtures/conversions/make.py`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use inference_text::{AddSpecial, Detokenizer, SkipSpecial, TextError, Tokenizer};
use serde_json::{Value, json};
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/conversions").join(name)
}

fn goldens() -> Vec<Value> {
    serde_json::from_slice(&fs::read(fixture("golden.json")).unwrap()).unwrap()
}

/// The folder of a golden.
fn folder(golden: &Value) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let name = |key: &str| golden[key].as_str().unwrap();
    fs::copy(fixture(name("source")), dir.path().join(name("file"))).unwrap();
    for (file, content) in golden["files"].as_object().unwrap() {
        fs::write(dir.path().join(file), content.to_string()).unwrap();
    }
    dir
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn ids_and_texts_are_those_of_the_reference() {
    let goldens = goldens();
    assert_eq!(goldens.len(), 20);
    for golden in &goldens {
        let name = golden["name"].as_str().unwrap();
        let tokenizer = Tokenizer::from_dir(folder(golden).path()).unwrap();
        let cases = golden["cases"].as_array().unwrap();
        assert!(cases.len() > 40, "{name}");
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let whole = tokenizer.encode(text, AddSpecial::Always).unwrap();
            assert_eq!(whole, ids(&case["ids"]), "{name}: {text:?}");
            let plain = tokenizer.encode(text, AddSpecial::Never).unwrap();
            assert_eq!(plain, ids(&case["plain"]), "{name}: {text:?}");
            for (skip, key) in [(SkipSpecial::No, "decoded"), (SkipSpecial::Yes, "without_special")]
            {
                let decoded = case[key].as_str().unwrap();
                assert_eq!(tokenizer.decode(&whole, skip).unwrap(), decoded, "{name}: {text:?}");
                let mut pieces = Detokenizer::new(&tokenizer, skip).unwrap();
                let mut streamed: String = whole.iter().map(|id| pieces.push(*id)).collect();
                streamed += &pieces.finish();
                assert_eq!(streamed, decoded, "{name}: {text:?}");
            }
        }
    }
}

#[test]
fn the_kind_tells_the_format_and_the_file() {
    let kinds: Vec<(String, String)> = goldens()
        .iter()
        .map(|golden| {
            let tokenizer = Tokenizer::from_dir(folder(golden).path()).unwrap();
            (golden["name"].as_str().unwrap().to_owned(), tokenizer.kind().to_owned())
        })
        .collect();
    for (name, kind) in [
        ("llama", "SentencePiece, BPE (`tokenizer.model`)"),
        ("unigram", "SentencePiece, unigram (`tokenizer.model`)"),
        ("t5", "SentencePiece, unigram (`spiece.model`)"),
        ("qwen", "tiktoken (`qwen.tiktoken`)"),
        ("llama 3", "tiktoken (`tokenizer.model`)"),
        ("tekken", "tekken (`tekken.json`)"),
    ] {
        let found = kinds.iter().find(|(known, _)| known == name);
        assert_eq!(found.map(|(_, kind)| &**kind), Some(kind), "{name}");
    }
}

#[test]
fn a_tokenizer_json_goes_before_other_files() {
    let dir = folder(&goldens()[0]);
    let smol = fixture("../tokenizers/smol/tokenizer.json");
    fs::copy(smol, dir.path().join("tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_dir(dir.path()).unwrap();
    assert_eq!(tokenizer.kind(), "BPE (`tokenizer.json`)");
}

/// The error of a file alone in a folder, which comes fast.
fn error(name: &str, bytes: &[u8], config: Value) -> String {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(name), bytes).unwrap();
    fs::write(dir.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    let began = Instant::now();
    let error = Tokenizer::from_dir(dir.path()).unwrap_err();
    let elapsed = began.elapsed();
    assert!(elapsed < Duration::from_secs(20), "{name} took {elapsed:?}");
    assert!(matches!(error, TextError::Invalid { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(name), "{text}");
    text
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    [&field, bytes].concat()
}

fn piece(text: &[u8], score: f32, kind: u8) -> Vec<u8> {
    let score = [&[2 << 3 | 5][..], &score.to_le_bytes()].concat();
    field(1, &[field(1, text), score, vec![3 << 3, kind]].concat())
}

/// A model of a few pieces and what `more` says.
fn small(more: &[Vec<u8>]) -> Vec<u8> {
    let pieces = [piece(b"<unk>", 0.0, 2), piece(b"<s>", 0.0, 3), piece(b"a", -1.0, 1)];
    [pieces.concat(), more.concat()].concat()
}

#[test]
fn files_of_sentencepiece_that_are_none_are_told_by_their_fault() {
    let whole = fs::read(fixture("bpe.model")).unwrap();
    let training = |bytes: &[u8]| field(2, bytes);
    let id = |key: u16, value: &[u8]| {
        let key = key << 3;
        training(&[&[key as u8 | 0x80, (key >> 7) as u8], value].concat())
    };
    let minus_one = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    let bpe = training(b"\x18\x02");
    let million: Vec<u8> =
        (0..1_000_000).flat_map(|at| piece(format!("<{at}>").as_bytes(), 0.0, 3)).collect();
    let many: Vec<u8> =
        (0..1_100_000).flat_map(|at| piece(format!("<{at}>").as_bytes(), 0.0, 1)).collect();
    let none = b"what it holds is something else".to_vec();
    for (name, bytes, fault) in [
        ("nothing", Vec::new(), "has no pieces"),
        ("a text", none, "unknown type"),
        ("half of one", whole[..whole.len() / 2].to_vec(), "are there"),
        ("a byte less", whole[..whole.len() - 1].to_vec(), "are there"),
        (
            "a length beyond it",
            b"\x0a\xff\xff\xff\xff\x7f".to_vec(),
            "34359738367 bytes, of which 0",
        ),
        ("the longest length", [b"\x0a", &minus_one[..]].concat(), "18446744073709551615 bytes"),
        ("a group", b"\x0b\x0b\x0b\x0c".to_vec(), "unknown type 3"),
        ("a piece twice", small(&[piece(b"a", -2.0, 1)]), "pieces 2 and 3 are both `a`"),
        ("an empty piece", small(&[piece(b"", -2.0, 1)]), "piece 3: it is empty"),
        ("a piece of no text", small(&[piece(b"\xff", 0.0, 1)]), "piece 3: `piece` is no text"),
        ("a piece of no type", small(&[piece(b"b", 0.0, 9)]), "piece 3: its type is"),
        ("no number", small(&[piece(b"b", f32::NAN, 1)]), "piece 3: its score is NaN"),
        ("no end", small(&[piece(b"b", f32::INFINITY, 1)]), "piece 3: its score is inf"),
        ("a model of words", small(&[training(b"\x18\x03")]), "`model_type` is word"),
        ("a model of letters", small(&[training(b"\x18\x04")]), "`model_type` is char"),
        ("an unknown model", small(&[training(b"\x18\x63")]), "`model_type` is"),
        ("a negative id", small(&[id(40, minus_one)]), "the unknown token's id is none of"),
        ("an id beyond it", small(&[id(40, b"\x63")]), "the unknown token's id is none of"),
        ("an id of 64 bits", small(&[id(40, b"\xff\xff\xff\xff\xff\x7f")]), "`unk_id` is"),
        ("a million special tokens", million, "added tokens, at most 131072"),
        ("more pieces than any has", many, "has more than 1048576 pieces"),
        ("a long piece", small(&[bpe.clone(), piece(&[b'a'; 1 << 16], 0.0, 1)]), "are too long"),
        (
            "long pieces",
            small(&[
                bpe,
                (0..3000)
                    .flat_map(|at| piece(format!("{at}{}", "b".repeat(900)).as_bytes(), 0.0, 1))
                    .collect(),
            ]),
            "are too long",
        ),
        ("a table that is none", small(&[field(3, &field(2, b"\xff\xff\xff\xff"))]), ""),
    ] {
        let text = error("tokenizer.model", &bytes, json!({}));
        assert!(text.contains(fault), "{name}: {text}");
    }
    let class = error("tokenizer.model", &whole, json!({"tokenizer_class": "AlbertTokenizer"}));
    assert!(class.contains("AlbertTokenizer") && class.contains("save_pretrained"), "{class}");
    let extra = json!({"tokenizer_class": "T5Tokenizer", "extra_ids": 1_000_000_000});
    let extra = error("spiece.model", &fs::read(fixture("t5.model")).unwrap(), extra);
    assert!(extra.contains("`extra_ids` is 1000000000"), "{extra}");
    let decoder = json!({"added_tokens_decoder": {"-1": {"content": "x"}}});
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tokenizer.model"), &whole).unwrap();
    fs::write(dir.path().join("tokenizer_config.json"), decoder.to_string()).unwrap();
    let negative = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
    assert!(negative.contains("`added_tokens_decoder` has the id `-1`"), "{negative}");
}

#[test]
fn a_model_that_is_cut_anywhere_is_an_error_or_a_smaller_one() {
    let whole = fs::read(fixture("unigram.model")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let load = |bytes: &[u8]| {
        fs::write(dir.path().join("tokenizer.model"), bytes).unwrap();
        Tokenizer::from_dir(dir.path())
    };
    let size = load(&whole).unwrap().vocab_size();
    let mut smaller = 0;
    for end in (0..whole.len()).step_by(7) {
        if let Ok(tokenizer) = load(&whole[..end]) {
            smaller += 1;
            assert!(tokenizer.vocab_size() <= size);
        }
    }
    assert!(smaller < whole.len() / 14, "{smaller}");
}

#[test]
fn ranks_that_are_none_are_told_by_their_fault() {
    let whole = fs::read_to_string(fixture("ranks.tiktoken")).unwrap();
    for (name, bytes, fault) in [
        ("nothing", String::new(), "the byte 0x00 has no token"),
        ("a text", "hello".to_owned(), "line 1: expected a token in base64 and its rank"),
        ("half a line", whole[..whole.len() - 6].to_owned(), "line "),
        ("a negative rank", format!("{whole}YWI= -1"), "the rank is no number"),
        ("a huge rank", format!("{whole}YWI= 4294967295"), "the rank is no number"),
        ("a gap", format!("{whole}AAECAwQ= 1048575"), "no token has the rank"),
        ("a rank twice", format!("{whole}AAECAwQ= 7"), "rank 7 is there twice"),
    ] {
        for file in ["qwen.tiktoken", "tiktoken.model"] {
            let text = error(file, bytes.as_bytes(), json!({}));
            assert!(text.contains(fault), "{name}: {text}");
        }
    }
    let far = json!({"added_tokens_decoder": {"4000000000": {"content": "x"}}});
    let text = error("tiktoken.model", whole.as_bytes(), far);
    assert!(text.contains("`added_tokens_decoder` goes up to 4000000000"), "{text}");
    let twice = |id: &str| json!({"content": "a", "id": id});
    let same = json!({"added_tokens_decoder": {"420": twice("420"), "421": twice("421")}});
    let text = error("tiktoken.model", whole.as_bytes(), same);
    assert!(text.contains("the special token `a` is there twice"), "{text}");
}

#[test]
fn a_tekken_json_that_is_none_is_told_by_its_fault() {
    let whole: Value = serde_json::from_slice(&fs::read(fixture("tekken.json")).unwrap()).unwrap();
    let with = |pointer: &str, value: Value| {
        let mut changed = whole.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        changed.to_string()
    };
    for (bytes, fault) in [
        (String::new(), "EOF"),
        ("[]".to_owned(), "invalid type"),
        ("{}".to_owned(), "`config` is missing"),
        (r#"{"config": {"pattern": "a"}}"#.to_owned(), "`vocab` is missing"),
        (whole.to_string()[..9000].to_owned(), "EOF"),
        (with("/config/pattern", json!(null)), "`config.pattern` is no text"),
        (with("/config/pattern", json!("(")), ""),
        (with("/config/default_vocab_size", json!(-1)), "`config.default_vocab_size` is -1"),
        (
            with("/config/default_vocab_size", json!(5000)),
            "`config.default_vocab_size` is 5000, of",
        ),
        (with("/config/default_vocab_size", json!(3)), "`config.default_vocab_size` is 3, of"),
        (with("/config/default_num_special_tokens", json!(1e9)), "default_num_special_tokens` is"),
        (with("/config/default_num_special_tokens", json!(2)), "has 6 special tokens, and"),
        (with("/special_tokens/1/rank", json!(0)), "`special_tokens[1].rank` is 0, which another"),
        (with("/special_tokens/1/rank", json!(-1)), "`special_tokens[1]` has no `rank`"),
        (
            with("/special_tokens/5/rank", json!(7)),
            "a special token has the rank 7, and none has 5",
        ),
        (with("/special_tokens/1/token_str", json!("<unk>")), "the special token `<unk>` is there"),
        (with("/special_tokens/1/token_str", json!("")), "`special_tokens[1].token_str` is empty"),
        (with("/vocab/9/rank", json!(8)), "`vocab[9].rank` is 8"),
        (with("/vocab/9/token_bytes", json!("!")), "`vocab[9].token_bytes` is no base64"),
        (with("/vocab/300/token_bytes", json!("YQ==")), "have the same token"),
        (with("/vocab/300/token_bytes", json!("")), "the token of rank 300 is empty"),
        (with("/vocab", json!(7)), "invalid type"),
    ] {
        let text = error("tekken.json", bytes.as_bytes(), json!({}));
        assert!(text.contains(fault), "{fault}: {text}");
    }
}

#[test]
fn tokens_in_a_file_of_their_own_are_ids() {
    let dir = folder(&goldens()[0]);
    for (content, fault) in [
        (r#"{"<x>": -1}"#, "`<x>` has the id -1"),
        (r#"{"<x>": "460"}"#, "`<x>` has the id \"460\""),
        ("[]", "expected an object"),
    ] {
        put(dir.path(), "added_tokens.json", content);
        let error = Tokenizer::from_dir(dir.path()).unwrap_err().to_string();
        assert!(error.contains("added_tokens.json") && error.contains(fault), "{error}");
    }
}

fn put(dir: &Path, file: &str, content: &str) {
    fs::write(dir.join(file), content).unwrap();
}
