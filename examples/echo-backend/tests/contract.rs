//! The duties of a backend to its callers, tested on the example.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap in a helper fails its test")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use echo_backend::EchoBackend;
use inference_core::{
    Backend, CancelToken, ChatOptions, ClassifyOptions, Constraint, Error, Feature, FinishReason,
    GenerateOptions, Generation, LoadOptions, Message, Prompt, Result, Role, Support, TextModel,
    Value,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("model")
}

fn model() -> Box<dyn TextModel> {
    EchoBackend.load_model(&folder(), &LoadOptions::default()).unwrap()
}

fn up_to(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens: Some(max_tokens), ..Default::default() }
}

/// The text and the reason of a generation.
fn finish(generation: Result<Generation>) -> (String, FinishReason) {
    let (text, outcome) = generation.unwrap().collect_text().unwrap();
    (text, outcome.finish_reason)
}

fn generate(prompt: &str, options: &GenerateOptions) -> (String, FinishReason) {
    finish(model().generate(&Prompt::from(prompt), options))
}

const OWL: &str = "The old owl sat in the tree";
const OWL_REST: &str =
    " and counted the stars. When the sun came up, the owl had counted them all.";

#[test]
fn a_prompt_from_the_corpus_is_continued_to_the_end_of_its_document() {
    let (text, reason) = generate(OWL, &GenerateOptions::default());
    assert_eq!((text.as_str(), reason), (OWL_REST, FinishReason::EndOfSequence(256)));
}

#[test]
fn streamed_pieces_concatenate_to_the_decoded_ids_with_characters_whole() {
    let model = model();
    let generation = model.generate(&Prompt::from("A naïve crow"), &up_to(100)).unwrap();
    let tokens: Vec<_> = generation.map(Result::unwrap).collect();
    let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
    let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
    assert_eq!(text, " ate a whole crème brûlée 🍮 and slept until noon.");
    assert_eq!(model.decode(&ids).unwrap(), text);
    assert!(tokens.iter().all(|token| !token.text.contains('\u{fffd}')));
}

#[test]
fn max_tokens_counts_and_zero_only_reads_the_prompt() {
    assert_eq!(generate(OWL, &up_to(4)), (" and".into(), FinishReason::Length));
    let (text, outcome) =
        model().generate(&Prompt::from(OWL), &up_to(0)).unwrap().collect_text().unwrap();
    assert_eq!((text.as_str(), outcome.finish_reason), ("", FinishReason::Length));
    assert_eq!(outcome.metrics.prompt_tokens, OWL.len());
    assert_eq!(outcome.metrics.time_to_first_token, None);
}

#[test]
fn without_max_tokens_a_generation_ends_with_the_context() {
    let options = GenerateOptions { ignore_eos: true, ..Default::default() };
    let model = model();
    let (_, outcome) =
        model.generate(&Prompt::from("The"), &options).unwrap().collect_text().unwrap();
    assert_eq!(outcome.finish_reason, FinishReason::Length);
    let all = outcome.metrics.prompt_tokens + outcome.metrics.generated_tokens;
    assert_eq!(all, model.info().context_length);
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let options = GenerateOptions { stop: vec!["stars".into()], ..Default::default() };
    let expected = (" and counted the ".to_owned(), FinishReason::StopText("stars".into()));
    assert_eq!(generate(OWL, &options), expected);
}

#[test]
fn a_stop_id_ends_the_text_before_it() {
    let options = GenerateOptions { stop_token_ids: vec![b'c'.into()], ..Default::default() };
    assert_eq!(generate(OWL, &options), (" and ".into(), FinishReason::StopToken(99)));
}

#[test]
fn the_seed_changes_nothing_and_is_reported() {
    let seeded = GenerateOptions { seed: Some(7), ..up_to(10) };
    let (text, outcome) =
        model().generate(&Prompt::from(OWL), &seeded).unwrap().collect_text().unwrap();
    assert_eq!(text, generate(OWL, &up_to(10)).0);
    assert_eq!(outcome.seed, 7);
}

#[test]
fn logprobs_are_given_when_asked_for() {
    let options = GenerateOptions { logprobs: true, top_logprobs: 2, ..up_to(30) };
    let tokens: Vec<_> =
        model().generate(&Prompt::from("x"), &options).unwrap().map(Result::unwrap).collect();
    for token in &tokens {
        assert_eq!(token.logprob, Some(token.top_logprobs[0].logprob));
        assert!(token.top_logprobs.len() <= 2 && token.logprob <= Some(0.0));
    }
    let plain = model().generate(&Prompt::from("x"), &up_to(1)).unwrap().next().unwrap().unwrap();
    assert_eq!((plain.logprob, plain.top_logprobs.len()), (None, 0));
}

#[test]
fn a_cancelled_or_late_request_ends_as_cancelled() {
    for cancel in [CancelToken::new(), CancelToken::with_deadline(Instant::now())] {
        cancel.cancel();
        let options = GenerateOptions { cancel, ..Default::default() };
        assert_eq!(generate(OWL, &options), (String::new(), FinishReason::Cancelled));
    }
}

#[test]
fn dropping_a_generation_makes_room_for_the_next_request() {
    let model = model();
    let endless = GenerateOptions { ignore_eos: true, ..Default::default() };
    for _ in 0..20 {
        let mut generation = model.generate(&Prompt::from("The"), &endless).unwrap();
        generation.next().unwrap().unwrap();
    }
    assert_eq!(finish(model.generate(&Prompt::from(OWL), &up_to(4))).0, " and");
}

#[test]
fn what_the_model_cannot_do_is_refused_by_the_options_name() {
    let refused: [(&str, GenerateOptions); 7] = [
        ("temperature", GenerateOptions { temperature: Some(0.7), ..Default::default() }),
        ("presence_penalty", GenerateOptions { presence_penalty: Some(1.0), ..Default::default() }),
        ("penalty_window", GenerateOptions { penalty_window: Some(4), ..Default::default() }),
        ("draft_tokens", GenerateOptions { draft_tokens: Some(4), ..Default::default() }),
        ("min_tokens", GenerateOptions { min_tokens: 4, ..Default::default() }),
        ("logits", GenerateOptions { logits: true, ..Default::default() }),
        (
            "constraint",
            GenerateOptions {
                constraint: Some(Constraint::Regex("a".into())),
                ..Default::default()
            },
        ),
    ];
    let model = model();
    for (name, options) in refused {
        match model.generate(&Prompt::from(OWL), &options) {
            Err(Error::Unsupported { what, .. }) => assert_eq!(what, name),
            other => panic!("`{name}`: {other:?}"),
        }
    }
    let load = LoadOptions { kv_bits: Some(8), ..Default::default() };
    match EchoBackend.load_model(&folder(), &load) {
        Err(Error::Unsupported { what, .. }) => assert_eq!(what, "kv_bits"),
        other => panic!("`kv_bits`: {other:?}"),
    }
}

#[test]
fn a_bad_value_is_refused_before_anything_else() {
    let options = GenerateOptions { temperature: Some(f32::NAN), ..Default::default() };
    let error = model().generate(&Prompt::from(""), &options).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "temperature", .. }), "{error}");
}

#[test]
fn the_report_speaks_of_every_feature() {
    let model = model();
    let report = model.capabilities();
    assert_eq!(report.iter().count(), Feature::ALL.len());
    assert_eq!(report.support(Feature::Chat), Support::Yes);
    for (feature, support) in report.iter() {
        assert_ne!(support, &Support::No(String::new()), "{feature} gives its reason");
    }
}

#[test]
fn prompts_that_cannot_be_continued_are_refused_with_the_numbers() {
    let model = model();
    let refusal = |prompt: Prompt| model.generate(&prompt, &up_to(1)).unwrap_err();
    assert_eq!(refusal("".into()), Error::EmptyPrompt);
    assert_eq!(
        refusal("x".repeat(4097).into()),
        Error::PromptTooLong { tokens: 4097, limit: 4096 }
    );
    assert!(refusal(vec![1, 257].into()).to_string().contains("257"));
    assert!(model.decode(&[257]).is_err());
}

#[test]
fn a_conversation_is_rendered_and_answered() {
    let model = model();
    let messages = [Message::user("Tell me about the fox.")];
    let chat = ChatOptions::default();
    let rendered = model.render_chat(&messages, &chat).unwrap();
    assert_eq!(rendered.text, "user: Tell me about the fox.\nassistant:");
    let generation = model.chat(&messages, &chat, &GenerateOptions::default()).unwrap();
    assert_eq!(generation.prompt_ids(), rendered.ids);
    assert_eq!(finish(Ok(generation)).0, " The quick fox ran through the wood and found a stream.");
}

#[test]
fn what_a_conversation_cannot_say_is_refused_by_name() {
    let model = model();
    let user = [Message::user("Hello!")];
    let error = |messages: &[Message], chat: &ChatOptions| {
        model.render_chat(messages, chat).unwrap_err().to_string()
    };
    let tools = ChatOptions { tools: vec![Value::Null], ..Default::default() };
    assert!(error(&user, &tools).contains("`tools`"));
    let template_kwargs = vec![("enable_thinking".to_owned(), Value::from(true))];
    let kwargs = ChatOptions { template_kwargs, ..Default::default() };
    assert!(error(&user, &kwargs).contains("`enable_thinking`"));
    let parts = [Message::new(Role::User, Value::Array(vec![]))];
    assert!(error(&parts, &ChatOptions::default()).contains("message 0 (`user`)"));
}

#[test]
fn classifying_gives_the_likeliest_next_token_of_each_prompt() {
    let prompts = ["The quick fo", "The old ow"].map(Prompt::from);
    let results = model().classify(&prompts, &ClassifyOptions::default()).unwrap();
    assert_eq!(results.iter().map(|r| r.token.text.as_str()).collect::<Vec<_>>(), ["x", "l"]);

    let generate = GenerateOptions { logits: true, ..Default::default() };
    let logits = ClassifyOptions { generate, ..Default::default() };
    assert!(model().classify(&prompts, &logits).is_err());
    let cancelled = ClassifyOptions::default();
    cancelled.generate.cancel.cancel();
    assert_eq!(model().classify(&prompts, &cancelled), Err(Error::Cancelled));
}

#[test]
fn a_batch_longer_than_the_queue_is_finished_and_keeps_its_order() {
    let prompts: Vec<_> = (0..200).map(|i| Prompt::from(if i == 5 { "" } else { OWL })).collect();
    let results = model().batch_generate(&prompts, &up_to(4)).unwrap();
    assert_eq!(results.len(), 200);
    for (index, result) in results.iter().enumerate() {
        let expected = (index == 5).then_some(Error::EmptyPrompt);
        assert_eq!(
            (&result.error, result.tokens.len()),
            (&expected, if index == 5 { 0 } else { 4 })
        );
    }
}

#[test]
fn many_threads_may_ask_at_once() {
    let model = model();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let generation = model.generate(&Prompt::from(OWL), &GenerateOptions::default());
                assert_eq!(finish(generation).0, OWL_REST);
            });
        }
    });
    assert_eq!(model.metrics().unwrap().prompt_tokens, OWL.len());
}

#[test]
fn closing_ends_what_runs_and_refuses_what_comes_after() {
    let model = model();
    let endless = GenerateOptions { ignore_eos: true, ..Default::default() };
    // Enough work that the last request still waits when the model is closed.
    let start = |_| model.generate(&Prompt::from("The"), &endless).unwrap();
    let mut queued: Vec<_> = (0..60).map(start).collect();
    queued[0].next().unwrap().unwrap();
    model.close();
    model.close();
    let last = queued.pop().unwrap();
    assert_eq!(last.collect_text(), Err(Error::Closed));
    for generation in queued {
        // Each ends, the first ones perhaps before the model was closed.
        generation.count();
    }
    assert_eq!(model.generate(&Prompt::from("The"), &endless).unwrap_err(), Error::Closed);
    assert_eq!(model.encode("x"), Err(Error::Closed));
}

#[test]
fn a_folder_that_is_no_model_is_refused_with_the_file() {
    let missing = EchoBackend.load_model(Path::new("missing"), &LoadOptions::default());
    match missing {
        Err(Error::Load { path, reason }) => {
            assert!(path.ends_with("corpus.txt") && !reason.is_empty(), "{path}: {reason}");
        }
        other => panic!("{other:?}"),
    }
}
