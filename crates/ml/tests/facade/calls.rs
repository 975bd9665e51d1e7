//! A call's request to the model, and its reply.

use std::sync::Arc;

use fake_model::{FakeModel, Seen, all_but};
use inference_core::{Feature, FinishReason, ModelInfo, PenaltyScope, Prompt};
use ml::{Backend, GenOpts, Message, MlxBackend, StreamingBackend};

fn over(model: FakeModel) -> (MlxBackend, Arc<Seen>) {
    let seen = Arc::clone(&model.seen);
    (MlxBackend::over(Arc::new(model)), seen)
}

/// A model of that architecture, which says `pieces`.
fn of(architecture: &str, pieces: &[&'static str]) -> FakeModel {
    let info = ModelInfo { architecture: architecture.into(), ..ModelInfo::default() };
    FakeModel { info, ..FakeModel::says(pieces) }
}

#[test]
fn unset_values_are_the_facades_own() {
    let (mlx, seen) = over(FakeModel::says(&["a"]));
    mlx.generate("x", &GenOpts::default()).unwrap();
    let options = seen.last_options();
    assert_eq!(options.temperature, Some(0.1));
    assert_eq!(options.max_tokens, Some(2048));
    assert_eq!((options.top_k, options.top_p, options.repetition_penalty), (None, None, None));
}

#[test]
fn a_temperature_of_0_is_greedy_and_no_tokens_are_none() {
    let (mlx, seen) = over(FakeModel::says(&["a"]));
    let opts = GenOpts { temperature: Some(0.0), max_tokens: Some(0), ..GenOpts::default() };
    mlx.generate("x", &opts).unwrap();
    assert_eq!(seen.last_options().temperature, Some(0.0));
    assert_eq!(seen.last_options().max_tokens, Some(0));
}

#[test]
fn every_option_reaches_the_model() {
    let (mlx, seen) = over(FakeModel::says(&["a"]));
    let opts = GenOpts {
        temperature: Some(0.7),
        max_tokens: Some(9),
        top_k: Some(40),
        top_p: Some(0.9),
        repeat_penalty: Some(1.1),
        ..GenOpts::default()
    };
    mlx.chat(&[Message::user("x")], &opts).unwrap();
    let options = seen.last_options();
    assert_eq!((options.temperature, options.max_tokens), (Some(0.7), Some(9)));
    assert_eq!((options.top_k, options.top_p), (Some(40), Some(0.9)));
    assert_eq!(options.repetition_penalty, Some(1.1));
    assert_eq!((options.penalty_scope, options.penalty_window), (PenaltyScope::Generated, None));
    opts.cancel.cancel();
    assert!(options.cancel.is_cancelled());
}

#[test]
fn an_option_out_of_its_range_is_refused_by_name() {
    let (mlx, _) = over(FakeModel::says(&["a"]));
    let opts = GenOpts { temperature: Some(-1.0), ..GenOpts::default() };
    let error = mlx.generate("x", &opts).unwrap_err();
    assert!(error.to_string().contains("temperature"), "{error}");
    assert_eq!(error.partial, "");
}

#[test]
fn another_model_than_the_loaded_one_is_refused() {
    let (mlx, _) = over(of("qwen3", &["a"]));
    let ask =
        |name: &str| mlx.generate("x", &GenOpts { model: Some(name.into()), ..GenOpts::default() });
    assert!(ask("qwen3").is_ok());
    assert!(ask("").is_ok());
    let error = ask("llama").unwrap_err().to_string();
    assert!(error.contains("`model`") && error.contains("llama") && error.contains("qwen3"));
}

#[test]
fn a_stream_is_the_whole_text_with_indentation_and_whole_characters() {
    let pieces = ["    if", " x:", "\n\t\t", "", "return", " \"é👩‍💻\"", " "];
    let (mlx, seen) = over(FakeModel::says(&pieces));
    let mut streamed = Vec::new();
    let reply = mlx
        .generate_stream("code", &GenOpts::default(), &mut |piece| {
            streamed.push(piece.to_owned());
            Ok(())
        })
        .unwrap();
    assert_eq!(streamed.concat(), pieces.concat());
    assert_eq!(reply.text, pieces.concat());
    assert_eq!(mlx.generate("code", &GenOpts::default()).unwrap().text, pieces.concat());
    assert!(streamed.iter().all(|piece| !piece.is_empty()));
    assert_eq!(seen.last_messages(), [("user".to_owned(), "code".to_owned())]);
}

#[test]
fn a_prompt_is_asked_in_the_chat_template_and_continued_where_there_is_none() {
    let (mlx, seen) = over(FakeModel::says(&["a"]));
    let opts = GenOpts::default();
    mlx.generate("Why?", &opts).unwrap();
    mlx.generate_stream("Why?", &opts, &mut |_| Ok(())).unwrap();
    assert_eq!(seen.messages(), [[Message::user("Why?")], [Message::user("Why?")]]);
    let capabilities = all_but(&[Feature::Chat]);
    let (mlx, seen) = over(FakeModel { capabilities, ..FakeModel::says(&["a"]) });
    mlx.generate("Why?", &opts).unwrap();
    assert_eq!(*seen.prompts.lock().unwrap(), [Prompt::from("Why?")]);
    assert!(seen.messages().is_empty());
}

#[test]
fn gemmas_first_word_loses_its_space_in_streams_and_in_whole_texts() {
    for (architecture, expected) in [("gemma3", "The fox"), ("qwen3", " The fox")] {
        let (mlx, _) = over(of(architecture, &[" The", " fox"]));
        let mut streamed = Vec::new();
        let keep = &mut |piece: &str| {
            streamed.push(piece.to_owned());
            Ok(())
        };
        let reply = mlx.chat_stream(&[Message::user("x")], &GenOpts::default(), keep).unwrap();
        assert_eq!((streamed.concat(), reply.text), (expected.to_owned(), expected.to_owned()));
        assert_eq!(mlx.generate("x", &GenOpts::default()).unwrap().text, expected);
    }
}

#[test]
fn every_call_has_its_metrics_streams_too() {
    let (mlx, _) = over(FakeModel::says(&["a", "b"]));
    let opts = GenOpts::default();
    let chat = [Message::user("x")];
    let replies = [
        mlx.generate("x", &opts),
        mlx.chat(&chat, &opts),
        mlx.generate_stream("x", &opts, &mut |_| Ok(())),
        mlx.chat_stream(&chat, &opts, &mut |_| Ok(())),
    ];
    for reply in replies {
        let outcome = reply.unwrap().outcome;
        // `<user>x`, an id for each character.
        assert_eq!((outcome.metrics.prompt_tokens, outcome.metrics.generated_tokens), (7, 2));
        assert_eq!((outcome.finish_reason, outcome.seed), (FinishReason::EndOfSequence(2), 7));
    }
}

#[test]
fn it_is_one_of_several_backends_behind_the_traits() {
    let (mlx, _) = over(FakeModel::says(&["a"]));
    let backends: Vec<Box<dyn StreamingBackend>> = vec![Box::new(mlx)];
    let chosen = backends.iter().find(|backend| backend.name() == "mlx").unwrap();
    assert!(chosen.available());
    assert_eq!(chosen.chat(&[Message::user("x")], &GenOpts::default()).unwrap().text, "a");
}
