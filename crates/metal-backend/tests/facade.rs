//! The facade `ml` over real models: what it promises of text, greedy draws, templates and waiting.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test ends where its setting fails")]

#[allow(dead_code, reason = "each test binary takes what it needs")]
#[path = "parity/fixtures.rs"]
mod fixtures;
#[path = "tiny/mod.rs"]
mod tiny;

use std::sync::{Arc, Mutex};

use inference_core::{
    CancelToken, ChatOptions, FinishReason, GenerateOptions, LoadOptions, TextModel,
};
use metal_backend::{QuantiseOptions, packing, quantise};
use ml::{Backend, Event, GenOpts, Message, MlxBackend, MlxOptions, StreamingBackend};
use safetensors::tensor::Dtype;
use serde_json::json;
use tiny::{Checkpoint, EOS, Tensor, VOCAB_SIZE};

/// A checkpoint that says `script` after its first token: logits are highest for the id that
/// follows the current one. Its tokenizer is one of SentencePiece.
fn recites(tokens: &[&str], script: &[u32]) -> Checkpoint {
    const HIDDEN: usize = 64;
    let mut checkpoint = Checkpoint::with_sizes(1, HIDDEN, 16)
        .config("tie_word_embeddings", json!(false))
        .file("tokenizer.json", sentencepiece(tokens).to_string());
    // The layer adds nothing: what the last norm sees is the current id's embedding.
    for (part, width) in [("self_attn.o_proj", 8), ("mlp.down_proj", 16)] {
        let name = format!("model.layers.0.{part}.weight");
        checkpoint = checkpoint.tensor(&name, Tensor::zeros(Dtype::F32, &[HIDDEN, width]));
    }
    let ones = Tensor {
        data: [1.0_f32; HIDDEN].iter().flat_map(|one| one.to_le_bytes()).collect(),
        ..Tensor::zeros(Dtype::F32, &[HIDDEN])
    };
    let embeddings = checkpoint.tensors["model.embed_tokens.weight"].clone();
    let mut head = Tensor::zeros(Dtype::F32, &[VOCAB_SIZE, HIDDEN]);
    let row = |id: u32| id as usize * 4 * HIDDEN..(id as usize + 1) * 4 * HIDDEN;
    for pair in script.windows(2) {
        head.data[row(pair[1])].copy_from_slice(&embeddings.data[row(pair[0])]);
    }
    checkpoint.tensor("model.norm.weight", ones).tensor("lm_head.weight", head)
}

/// A tokenizer of `tokens`, from id 2 on, with byte tokens and `▁` for spaces.
fn sentencepiece(tokens: &[&str]) -> serde_json::Value {
    let mut vocab = serde_json::Map::from_iter([("<s>".to_owned(), json!(0))]);
    vocab.insert("</s>".into(), json!(EOS));
    vocab.extend(tokens.iter().zip(2..).map(|(token, id)| ((*token).to_owned(), json!(id))));
    let special = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true})
    };
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [special(0, "<s>"), special(EOS, "</s>")],
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<s>", "fuse_unk": false,
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "byte_fallback": true, "vocab": vocab, "merges": []},
    })
}

/// A chat template that adds nothing to the messages.
const BARE: &str = "{% for m in messages %}{{ m.content }}{% endfor %}";

/// An indented line of code, a second one, and a character of two tokens.
fn code() -> Arc<dyn TextModel> {
    let tokens = ["a", "▁▁▁▁▁", "if", "▁x", ":", "<0x0A>", "▁▁", "<0xC3>", "<0xA9>", "▁▁▁"];
    let script = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, EOS];
    Arc::from(recites(&tokens, &script).file("chat_template.jinja", BARE).model())
}

const CODE: &str = "    if x:\n  é   ";

fn greedy() -> GenOpts {
    GenOpts { temperature: Some(0.0), ..GenOpts::default() }
}

#[test]
fn an_output_layer_that_is_no_copy_of_the_embeddings_is_used() {
    for is_tied in [false, true] {
        let turns = recites(&["a", "b"], &[2, 3, 2])
            .config("tie_word_embeddings", json!(is_tied))
            .file("chat_template.jinja", BARE);
        let model: Arc<dyn TextModel> = Arc::from(turns.model());
        let options = GenOpts { max_tokens: Some(4), ..greedy() };
        assert_eq!(MlxBackend::over(model).generate("a", &options).unwrap().text, "baba");
    }
}

#[test]
fn a_folder_whose_output_layer_would_be_dropped_is_not_quantised() {
    let folder =
        recites(&["a", "b"], &[2, 3, 2]).config("tie_word_embeddings", json!(true)).write();
    let target = folder.path().join("packed");
    let options = QuantiseOptions {
        default: packing("affine", None, None).unwrap(),
        recipe: None,
        rules: Vec::new(),
        dtype: None,
        keep_vision: false,
        backend: Some("cpu".into()),
    };
    metal_backend::register().unwrap();
    let made =
        quantise(folder.path(), &target, &options, &CancelToken::new(), &mut |_, _| {}).map(drop);
    let error = made.unwrap_err().to_string();
    for part in ["`lm_head.weight` is no copy", "`tie_word_embeddings`: set it to false"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!target.exists());
}

#[test]
fn a_stream_keeps_words_apart_and_lines_indented_and_is_the_whole_text() {
    let mlx = MlxBackend::over(code());
    let mut pieces = Vec::new();
    let reply = mlx
        .generate_stream("a", &greedy(), &mut |piece| {
            pieces.push(piece.to_owned());
            Ok(())
        })
        .unwrap();
    // One space of the five is SentencePiece's own, before the first word of a text.
    assert_eq!(pieces.concat(), CODE);
    assert_eq!(reply.text, CODE);
    assert!(pieces.contains(&" x".to_owned()), "{pieces:?}");
    assert_eq!(mlx.generate("a", &greedy()).unwrap().text, CODE);
    assert_eq!(mlx.model().decode(&(3..12).collect::<Vec<_>>()).unwrap(), CODE);
    assert_eq!(reply.outcome.finish_reason, FinishReason::EndOfSequence(EOS));
}

#[test]
fn a_character_of_two_tokens_comes_whole() {
    let mut pieces = Vec::new();
    let keep = &mut |piece: &str| {
        pieces.push(piece.to_owned());
        Ok(())
    };
    MlxBackend::over(code()).generate_stream("a", &greedy(), keep).unwrap();
    assert!(pieces.iter().any(|piece| piece.contains('é')), "{pieces:?}");
    assert!(!pieces.iter().any(|piece| piece.contains('\u{fffd}')), "{pieces:?}");
}

#[test]
fn a_stream_that_is_stopped_returns_its_text_and_the_engine_is_free_again() {
    let mlx = MlxBackend::over(code());
    let error = mlx
        .generate_stream("a", &greedy(), &mut |piece| {
            if piece == " x" { Err("enough".into()) } else { Ok(()) }
        })
        .unwrap_err();
    assert_eq!(error.partial, "    if x");
    assert_eq!(mlx.generate("a", &greedy()).unwrap().text, CODE);
}

#[test]
fn a_temperature_of_0_is_greedy_and_none_is_not() {
    let model: Arc<dyn TextModel> = Arc::from(Checkpoint::with_sizes(2, 8, 16).model());
    let mlx = MlxBackend::over(Arc::clone(&model));
    let contract = GenerateOptions { temperature: Some(0.0), ..GenerateOptions::default() };
    let contract = GenerateOptions { max_tokens: Some(40), ..contract };
    let asked = [Message::user("abc")];
    let expected = model.chat(&asked, &ChatOptions::default(), &contract).unwrap();
    let (expected, _) = expected.collect_text().unwrap();
    let text = |temperature| {
        let opts = GenOpts { temperature, max_tokens: Some(40), ..GenOpts::default() };
        mlx.generate("abc", &opts).unwrap().text
    };
    assert_eq!(text(Some(0.0)), expected);
    // Draws at a high temperature differ, so that the equality above says something.
    assert!((0..8).any(|_| text(Some(5.0)) != expected));
}

#[test]
fn metrics_of_streams_are_the_requests_own() {
    let mlx = MlxBackend::over(code());
    let metrics = mlx.generate_stream("a", &greedy(), &mut |_| Ok(())).unwrap().outcome.metrics;
    assert_eq!((metrics.prompt_tokens, metrics.generated_tokens), (1, 9));
    assert!(metrics.prefill_duration.as_nanos() > 0 && metrics.peak_memory_bytes > 0);
}

#[test]
fn a_call_can_be_cancelled_while_another_one_has_the_engine() {
    // `a` and `b` in turns, without end.
    let turns = recites(&["a", "b"], &[2, 3, 2]).file("chat_template.jinja", BARE);
    let endless: Arc<dyn TextModel> = Arc::from(turns.model());
    let mlx = MlxBackend::over(endless);
    let (first, second) = (GenOpts { max_tokens: Some(4000), ..greedy() }, greedy());
    let (said, saying) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            mlx.generate_stream("a", &first, &mut |_| {
                // Nobody listens after the first piece.
                let _ = said.send(());
                Ok(())
            })
        });
        saying.recv().unwrap();
        let waiting = scope.spawn(|| mlx.generate("a", &second));
        second.cancel.cancel();
        assert!(waiting.join().unwrap().unwrap_err().is_cancelled());
        first.cancel.cancel();
        let stopped = running.join().unwrap();
        // It may have come to its end by now; what it says was not disturbed.
        let text = stopped.map_or_else(|error| error.partial, |reply| reply.text);
        assert!(text.starts_with('b') && !text.contains("bb"), "{text}");
    });
}

#[test]
fn each_model_is_asked_in_its_own_template() {
    let messages = [Message::system("Be brief."), Message::user("abc")];
    let template = |text: &str| Checkpoint::qwen3().file("chat_template.jinja", text);
    let own = template("{% for m in messages %}{{ m.content }} cab {% endfor %}");
    for checkpoint in [own, Checkpoint::qwen3()] {
        let model: Arc<dyn TextModel> = Arc::from(checkpoint.model());
        let expected = model.render_chat(&messages, &ChatOptions::default()).unwrap();
        let opts = GenOpts { max_tokens: Some(1), ..greedy() };
        let mlx = MlxBackend::over(Arc::clone(&model));
        let found = mlx.chat(&messages, &opts).unwrap().outcome.metrics.prompt_tokens;
        assert_eq!(found, expected.ids.len(), "{}", expected.text);
        // A prompt is the user's message.
        let expected = model.render_chat(&messages[1..], &ChatOptions::default()).unwrap();
        let found = mlx.generate("abc", &opts).unwrap().outcome.metrics.prompt_tokens;
        assert_eq!(found, expected.ids.len(), "{}", expected.text);
    }
}

#[test]
fn gemma_gets_a_system_message_as_the_users() {
    let model: Arc<dyn TextModel> =
        Arc::from(fixtures::Checkpoint::new("gemma2").load(LoadOptions::default()));
    let asked = [Message::user("[System: Be brief.]\n\nWhy?")];
    let expected = model.render_chat(&asked, &ChatOptions::default()).unwrap();
    assert!(expected.text.contains("<start_of_turn>user\n[System: Be brief.]"));
    let messages = [Message::system("Be brief."), Message::user("Why?")];
    let opts = GenOpts { max_tokens: Some(1), ..greedy() };
    let reply = MlxBackend::over(model).chat(&messages, &opts).unwrap();
    assert_eq!(reply.outcome.metrics.prompt_tokens, expected.ids.len());
}

#[test]
fn a_path_is_loaded_by_what_the_program_registered() {
    metal_backend::register().unwrap();
    assert!(MlxBackend::has_device());
    let folder = Checkpoint::qwen3().write();
    let events = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&events);
    let options = MlxOptions {
        load: LoadOptions { backend: Some("cpu".into()), ..MlxOptions::default().load },
        log: Some(Arc::new(move |event: &Event| kept.lock().unwrap().push(event.to_string()))),
    };
    let mlx = MlxBackend::with_options(folder.path(), options).unwrap();
    assert!(mlx.available());
    let loading = format!("mlx: loading {}", folder.path().display());
    assert_eq!(*events.lock().unwrap(), [&*loading, "mlx: qwen3 on cpu: 1 layers, 0 MB"]);
    assert!(mlx.generate("abc", &GenOpts { max_tokens: Some(3), ..greedy() }).is_ok());
    mlx.close();
    assert!(!mlx.available());
}

/// The words of an answer that thinks two lines, and says two.
const THINKING: [&str; 9] = ["a", "<think>", "hm", "<0x0A>", "so", "</think>", "▁yes", "\n", "no"];

#[test]
fn stop_strings_count_in_what_an_answer_says_and_in_all_of_a_continued_text() {
    let script = [2, 3, 4, 5, 6, 7, 8, 9, 10, EOS];
    let model = recites(&THINKING, &script).file("chat_template.jinja", BARE).model();
    let messages = [Message::user("a")];
    let stopped_by = |stop: &str| GenerateOptions {
        stop: vec![stop.to_owned()],
        temperature: Some(0.0),
        ..GenerateOptions::default()
    };
    let chat = ChatOptions::default();
    for (stop, content, tokens) in
        [("\n", "yes", 7), ("hm", "yes\nno", 8), ("think", "yes\nno", 8), ("es\nn", "y", 8)]
    {
        let options = stopped_by(stop);
        let mut answering = model.answer(&messages, &chat, &options).unwrap();
        answering.by_ref().for_each(|piece| drop(piece.unwrap()));
        let answer = answering.answer().clone();
        assert_eq!(
            (answer.reasoning.as_str(), answer.content.as_str()),
            ("hm\nso", content),
            "{stop}"
        );
        let outcome = answering.generation().outcome().unwrap();
        assert_eq!(outcome.metrics.generated_tokens, tokens, "{stop}");
        let is_stopped =
            matches!(&outcome.finish_reason, FinishReason::StopText(text) if text == stop);
        assert_eq!(is_stopped, content != "yes\nno", "{stop}");
        let (text, _) = model.chat(&messages, &chat, &options).unwrap().collect_text().unwrap();
        assert_eq!(text, format!("<think>hm\nso</think> {content}"), "{stop}");
        let prompts = [model.render_chat(&messages, &chat).unwrap()];
        let results = model.batch_answer(&prompts, &chat, &options).unwrap();
        let whole: String = results[0].tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(whole, text, "{stop}");
    }
    let continued = |stop: &str| {
        let generation = model.generate(&"a".into(), &stopped_by(stop)).unwrap();
        generation.collect_text().unwrap().0
    };
    assert_eq!((continued("\n").as_str(), continued("think").as_str()), ("<think>hm", "<"));
}

#[test]
fn a_template_that_cannot_be_read_is_told_of_and_blocks_chats_alone() {
    let checkpoint = recites(&["a", "b"], &[2, 3, EOS]).file("chat_template.jinja", "{% if %}");
    let model = checkpoint.model();
    let notices = model.notices();
    assert!(notices.len() == 1 && notices[0].contains("`default`, line 1"), "{notices:?}");
    let (text, _) =
        model.generate(&"a".into(), &GenerateOptions::default()).unwrap().collect_text().unwrap();
    assert_eq!(text, "b");
    assert_eq!(model.classify(&["a".into()], &Default::default()).unwrap()[0].token.id, 3);
    let messages = [Message::user("a")];
    let error = model.render_chat(&messages, &ChatOptions::default()).unwrap_err().to_string();
    assert!(error.contains("chat template, line 1"), "{error}");
    assert!(
        model.info().chat_template.contains("cannot be read"),
        "{}",
        model.info().chat_template
    );
}

#[test]
fn a_model_without_a_format_says_so_once_it_chats() {
    let model = recites(&["a", "b"], &[2, 3, EOS]).model();
    model.generate(&"a".into(), &GenerateOptions::default()).unwrap().collect_text().unwrap();
    assert_eq!(model.notices(), Vec::<String>::new());
    let messages = [Message::user("a")];
    for told in [1, 0] {
        assert_eq!(model.render_chat(&messages, &ChatOptions::default()).unwrap().text, "a");
        assert_eq!(model.notices().len(), told);
    }
}
