//! What a call asks of the model, and what it gives back.

use inference_core::{FinishReason, Prompt};
use ml::{Backend, GenOpts, Message, MlxBackend, StreamingBackend};

use crate::fake::Script;

fn over(script: Script) -> (MlxBackend, std::sync::Arc<crate::fake::Seen>) {
    let (model, seen) = script.model();
    (MlxBackend::over(model), seen)
}

#[test]
fn unset_values_are_the_facades_own() {
    let (mlx, seen) = over(Script::says(&["a"]));
    mlx.generate("x", &GenOpts::default()).unwrap();
    let options = seen.last_options();
    assert_eq!(options.temperature, Some(0.1));
    assert_eq!(options.max_tokens, Some(2048));
    assert_eq!((options.top_k, options.top_p, options.repetition_penalty), (None, None, None));
}

#[test]
fn a_temperature_of_0_is_greedy_and_no_tokens_are_none() {
    let (mlx, seen) = over(Script::says(&["a"]));
    let opts = GenOpts { temperature: Some(0.0), max_tokens: Some(0), ..GenOpts::default() };
    mlx.generate("x", &opts).unwrap();
    assert_eq!(seen.last_options().temperature, Some(0.0));
    assert_eq!(seen.last_options().max_tokens, Some(0));
}

#[test]
fn every_option_reaches_the_model() {
    let (mlx, seen) = over(Script::says(&["a"]));
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
    opts.cancel.cancel();
    assert!(options.cancel.is_cancelled());
}

#[test]
fn an_option_out_of_its_range_is_refused_by_name() {
    let (mlx, _) = over(Script::says(&["a"]));
    let opts = GenOpts { temperature: Some(-1.0), ..GenOpts::default() };
    let error = mlx.generate("x", &opts).unwrap_err();
    assert!(error.to_string().contains("temperature"), "{error}");
    assert_eq!(error.partial, "");
}

#[test]
fn another_model_than_the_loaded_one_is_refused() {
    let (mlx, _) = over(Script::says(&["a"]));
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
    let (mlx, seen) = over(Script::says(&pieces));
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
    assert_eq!(seen.prompts.lock().unwrap()[0], Prompt::from("code"));
}

#[test]
fn every_call_has_its_metrics_streams_too() {
    let (mlx, _) = over(Script::says(&["a", "b"]));
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
        assert_eq!((outcome.metrics.prompt_tokens, outcome.metrics.generated_tokens), (3, 2));
        assert_eq!((outcome.finish_reason, outcome.seed), (FinishReason::Length, 7));
    }
}

#[test]
fn it_is_one_of_several_backends_behind_the_traits() {
    let (mlx, _) = over(Script::says(&["a"]));
    let backends: Vec<Box<dyn StreamingBackend>> = vec![Box::new(mlx)];
    let chosen = backends.iter().find(|backend| backend.name() == "mlx").unwrap();
    assert!(chosen.available());
    assert_eq!(chosen.chat(&[Message::user("x")], &GenOpts::default()).unwrap().text, "a");
}
