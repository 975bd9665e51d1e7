//! Options and prompts: out of range, over the context, over the memory.

use inference_core::{
    ChatOptions, Constraint, Error, Feature, FinishReason, GenerateOptions, LoadOptions, Message,
    PenaltyScope, Prompt, Support, TextModel, Value, Xtc,
};
use serde_json::json;

use crate::tiny::{Checkpoint, VOCAB_SIZE};

fn some(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { max_tokens: Some(max_tokens), ignore_eos: true, ..Default::default() }
}

fn refusal(model: &dyn TextModel, options: &GenerateOptions) -> String {
    model.generate(&"abc".into(), options).unwrap_err().to_string()
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    let model = Checkpoint::qwen3().model();
    let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, f32::MIN];
    type Set = fn(&mut GenerateOptions, f32);
    let options: [(&str, Set, &[f32]); 7] = [
        ("temperature", |o, v| o.temperature = Some(v), &[]),
        ("top_p", |o, v| o.top_p = Some(v), &[1.1]),
        ("min_p", |o, v| o.min_p = Some(v), &[1.1]),
        ("repetition_penalty", |o, v| o.repetition_penalty = Some(v), &[0.0]),
        ("xtc", |o, v| o.xtc = Some(Xtc { probability: v, threshold: 0.1 }), &[1.1]),
        ("xtc", |o, v| o.xtc = Some(Xtc { probability: 0.5, threshold: v }), &[0.6]),
        ("penalty", |o, v| (o.presence_penalty, o.frequency_penalty) = (Some(v), Some(v)), &[]),
    ];
    for (name, set, more) in options {
        for value in bad.iter().chain(more) {
            if name == "penalty" && value.is_finite() {
                continue;
            }
            let mut options = some(1);
            set(&mut options, *value);
            let error = refusal(&*model, &options);
            assert!(error.contains(name) && error.contains(&value.to_string()), "{error}");
        }
    }
    for bias in [f32::NAN, f32::INFINITY] {
        let error =
            refusal(&*model, &GenerateOptions { logit_bias: [(3, bias)].into(), ..some(1) });
        assert!(error.contains("logit_bias") && error.contains("token 3"), "{error}");
    }
    let error = refusal(&*model, &GenerateOptions { penalty_window: Some(0), ..some(1) });
    assert!(error.contains("penalty_window"), "{error}");
    // Without a penalty, nothing would look at them.
    let error = refusal(&*model, &GenerateOptions { penalty_window: Some(64), ..some(1) });
    assert!(error.contains("penalty_window") && error.contains("without a penalty"), "{error}");
    let penalty_scope = PenaltyScope::Generated;
    let error = refusal(&*model, &GenerateOptions { penalty_scope, ..some(1) });
    assert!(error.contains("penalty_scope") && error.contains("without a penalty"), "{error}");
    let stop = vec!["x".into(), String::new()];
    let error = refusal(&*model, &GenerateOptions { stop, ..some(1) });
    assert!(error.contains("stop") && error.contains("empty"), "{error}");
}

#[test]
fn the_extremes_of_each_range_generate() {
    let model = Checkpoint::qwen3().model();
    let base = || GenerateOptions { temperature: Some(1.0), seed: Some(3), ..some(4) };
    let tiniest = f32::from_bits(1);
    let cases = [
        GenerateOptions { temperature: Some(tiniest), ..base() },
        GenerateOptions { temperature: Some(f32::MAX), ..base() },
        GenerateOptions { top_p: Some(tiniest), ..base() },
        GenerateOptions { top_k: Some(usize::MAX), ..base() },
        GenerateOptions { top_k: Some(1 << 32), ..base() },
        GenerateOptions { top_k: Some(VOCAB_SIZE), ..base() },
        GenerateOptions { min_p: Some(tiniest), ..base() },
        GenerateOptions { min_p: Some(1.0), ..base() },
        GenerateOptions { repetition_penalty: Some(tiniest), ..base() },
        GenerateOptions { repetition_penalty: Some(f32::MAX), ..base() },
        GenerateOptions { presence_penalty: Some(f32::MAX), ..base() },
        GenerateOptions { frequency_penalty: Some(f32::MIN), ..base() },
        GenerateOptions { xtc: Some(Xtc { probability: 1.0, threshold: 0.0 }), ..base() },
        GenerateOptions { logit_bias: [(3, f32::MAX), (4, f32::MIN)].into(), ..base() },
        GenerateOptions { seed: Some(u64::MAX), ..base() },
    ];
    for options in cases {
        let tokens: Vec<_> = model.generate(&"abc".into(), &options).unwrap().collect();
        assert_eq!(tokens.len(), 4, "{options:?}");
        let in_vocabulary = |token: &inference_core::Token| (token.id as usize) < VOCAB_SIZE;
        assert!(tokens.iter().all(|token| token.as_ref().is_ok_and(in_vocabulary)), "{options:?}");
    }
}

#[test]
fn the_smallest_temperature_is_greedy() {
    let model = Checkpoint::qwen3().model();
    let ids = |temperature| {
        let options = GenerateOptions { temperature: Some(temperature), ..some(6) };
        let tokens = model.generate(&"abc".into(), &options).unwrap();
        tokens.map(|token| token.unwrap().id).collect::<Vec<_>>()
    };
    assert_eq!(ids(f32::from_bits(1)), ids(0.0));
}

#[test]
fn the_smallest_top_p_leaves_the_best_token() {
    let model = Checkpoint::qwen3().model();
    let ids = |temperature, top_p| {
        let options = GenerateOptions { temperature, top_p, ..some(6) };
        let tokens = model.generate(&"abc".into(), &options).unwrap();
        tokens.map(|token| token.unwrap().id).collect::<Vec<_>>()
    };
    assert_eq!(ids(Some(1.0), Some(f32::from_bits(1))), ids(Some(0.0), None));
}

#[test]
fn a_window_of_any_size_holds_what_there_is() {
    let model = Checkpoint::qwen3().model();
    let ids = |window| {
        let options = GenerateOptions {
            repetition_penalty: Some(1.5),
            penalty_window: Some(window),
            ..some(8)
        };
        let tokens = model.generate(&"abc".into(), &options).unwrap();
        tokens.map(|token| token.unwrap().id).collect::<Vec<_>>()
    };
    let whole = ids(1000);
    for window in [1 << 32, usize::MAX / 2, usize::MAX / 2 + 1, usize::MAX] {
        assert_eq!(ids(window), whole, "{window}");
    }
}

#[test]
fn more_top_logprobs_than_tokens_are_all_tokens() {
    let model = Checkpoint::qwen3().model();
    for count in [VOCAB_SIZE, VOCAB_SIZE + 1, 1 << 31, 1 << 32, usize::MAX] {
        let options = GenerateOptions { top_logprobs: count, ..some(1) };
        let token = model.generate(&"abc".into(), &options).unwrap().next().unwrap().unwrap();
        assert_eq!(token.top_logprobs.len(), VOCAB_SIZE, "{count}");
        assert_eq!(token.top_logprobs[0].id, token.id);
    }
}

#[test]
fn forbidding_every_token_is_refused() {
    let model = Checkpoint::qwen3().model();
    let forbid = |ids: std::ops::Range<u32>| GenerateOptions {
        logit_bias: ids.map(|id| (id, f32::NEG_INFINITY)).collect(),
        ..some(2)
    };
    let error = refusal(&*model, &forbid(0..VOCAB_SIZE as u32));
    assert!(error.contains("logit_bias"), "{error}");
    let all_but_one = model.generate(&"abc".into(), &forbid(1..VOCAB_SIZE as u32)).unwrap();
    assert!(all_but_one.map(|token| token.unwrap().id).eq([0, 0]));
}

#[test]
fn ids_out_of_the_vocabulary_are_refused_by_the_option_or_the_prompt() {
    let model = Checkpoint::qwen3().model();
    let far = VOCAB_SIZE as u32;
    let error = refusal(&*model, &GenerateOptions { stop_token_ids: vec![far], ..some(1) });
    assert!(error.contains("stop_token_ids") && error.contains("token 40"), "{error}");
    let error =
        refusal(&*model, &GenerateOptions { logit_bias: [(u32::MAX, 1.0)].into(), ..some(1) });
    assert!(error.contains("logit_bias") && error.contains("4294967295"), "{error}");
    let error = model.generate(&Prompt::Ids(vec![3, far]), &some(1)).unwrap_err().to_string();
    assert!(error.contains("token 40") && error.contains("vocabulary of 40"), "{error}");
    assert_eq!(model.decode(&[far, u32::MAX]).unwrap(), "");
}

#[test]
fn prompts_that_are_empty_or_over_the_context_are_refused() {
    let model = Checkpoint::qwen3().config("max_position_embeddings", json!(8)).model();
    assert_eq!(model.generate(&"".into(), &some(1)).unwrap_err(), Error::EmptyPrompt);
    assert_eq!(model.generate(&Prompt::Ids(vec![]), &some(1)).unwrap_err(), Error::EmptyPrompt);
    for count in [8, 9, 5000] {
        let error = model.generate(&Prompt::Ids(vec![3; count]), &some(1)).unwrap_err();
        assert_eq!(error, Error::PromptTooLong { tokens: count, limit: 8 });
    }
    // The whole context may be filled where nothing is to follow.
    let mut full = model.generate(&Prompt::Ids(vec![3; 8]), &some(0)).unwrap();
    assert!(full.next().is_none());
    let mut last = model.generate(&Prompt::Ids(vec![3; 7]), &some(100)).unwrap();
    assert_eq!(last.by_ref().count(), 1);
    assert_eq!(last.outcome().unwrap().finish_reason, FinishReason::Length);
}

#[test]
fn a_text_over_the_size_limit_is_refused_with_both_sizes() {
    let model = Checkpoint::qwen3().model();
    let error =
        model.generate(&"a".repeat((8 << 20) + 1).into(), &some(1)).unwrap_err().to_string();
    assert!(error.contains("8388609") && error.contains("8388608"), "{error}");
}

#[test]
fn memory_that_does_not_suffice_is_refused_with_the_numbers() {
    let checkpoint = Checkpoint::qwen3();
    let limit = |bytes| LoadOptions { memory_limit: Some(bytes), ..Default::default() };
    let error = checkpoint.load(&limit(1000)).unwrap_err();
    assert!(
        matches!(&error, Error::Memory { needed, available, .. } if needed > available),
        "{error}"
    );
    assert!(error.to_string().contains("memory limit"), "{error}");
    // Tests beside this one hold memory of the same process.
    let model = checkpoint.load(&limit(64 << 20)).unwrap();
    let mut ids = vec![3; 4000];
    ids.extend([4; 95]);
    let big = Checkpoint::qwen3().config("max_position_embeddings", json!(100_000_000));
    drop(model);
    let model = big.load(&limit(64 << 20)).unwrap();
    let error = model.generate(&Prompt::Ids(ids), &some(50_000_000)).unwrap().find_map(Result::err);
    let error = error.expect("fifty million tokens do not fit into 64 MiB");
    assert!(
        matches!(&error, Error::Memory { needed, available, .. } if needed > available),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("4095 tokens") && text.contains("50000000") && text.contains("GiB"),
        "{text}"
    );
    assert_eq!(model.generate(&"abc".into(), &some(3)).unwrap().count(), 3);
}

#[test]
fn load_options_out_of_range_are_refused_by_name() {
    let none = LoadOptions::default;
    let cases = [
        (LoadOptions { context_length: Some(0), ..none() }, "context_length"),
        (LoadOptions { context_length: Some(4097), ..none() }, "4096"),
        (LoadOptions { context_length: Some(usize::MAX), ..none() }, "context_length"),
        (LoadOptions { prefill_chunk: Some(0), ..none() }, "prefill_chunk"),
        (LoadOptions { memory_limit: Some(0), ..none() }, "memory_limit"),
        (LoadOptions { kv_bits: Some(3), ..none() }, "kv_bits"),
        (LoadOptions { kv_bits: Some(4), ..none() }, "kv_bits"),
        (LoadOptions { parallel_slots: Some(0), ..none() }, "parallel_slots"),
        (LoadOptions { kv_group_size: Some(16), kv_bits: Some(4), ..none() }, "kv_group_size"),
        (LoadOptions { kv_group_size: Some(32), ..none() }, "kv_group_size"),
        (LoadOptions { gpu_layers: Some(1), ..none() }, "gpu_layers"),
    ];
    for (options, part) in cases {
        let error = Checkpoint::qwen3().load(&options).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn what_one_model_cannot_do_is_in_its_report() {
    let reason = |model: &dyn TextModel, feature| match model.capabilities().support(feature) {
        Support::No(reason) => reason,
        Support::Yes => panic!("{feature} is reported as honoured"),
    };
    // A head of four values.
    let checkpoint = Checkpoint::qwen3();
    let error = checkpoint.load(&LoadOptions { kv_bits: Some(8), ..Default::default() });
    let what = "kv_bits".to_owned();
    let reported = reason(&*checkpoint.model(), Feature::KvBits);
    assert_eq!(error.unwrap_err(), Error::Unsupported { what, reason: reported });
    let what = "kv_group_size".to_owned();
    let groups =
        LoadOptions { kv_bits: Some(8), kv_group_size: Some(32), ..LoadOptions::default() };
    let reason_of_groups = "a head of 4 values is not a multiple of 64 or 32".to_owned();
    let expected = Error::Unsupported { what, reason: reason_of_groups };
    assert_eq!(checkpoint.load(&groups).unwrap_err(), expected);

    let endless = checkpoint.config("eos_token_id", json!(null)).model();
    let constraint = Some(Constraint::Regex("a".into()));
    let error =
        endless.generate(&"a".into(), &GenerateOptions { constraint, ..Default::default() });
    let reason = reason(&*endless, Feature::Constraint);
    assert!(reason.contains("no end-of-sequence id"), "{reason}");
    assert_eq!(error.unwrap_err(), Error::Unsupported { what: "constraint".into(), reason });
}

#[test]
fn a_backend_does_not_stand_in_for_another_one() {
    let options = LoadOptions { backend: Some("metal".into()), ..Default::default() };
    let error = Checkpoint::qwen3().load(&options).unwrap_err().to_string();
    assert_eq!(error, "option `backend`: names `metal`, and this is `cpu`");
}

#[test]
fn what_a_chat_format_does_not_read_is_refused_by_name() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ mood }}";
    let own = Checkpoint::qwen3().file("chat_template.jinja", template).model();
    let told = |model: &dyn TextModel, tools: Vec<Value>, name: &str| {
        let template_kwargs = vec![(name.to_owned(), "b".into())];
        let chat = ChatOptions { tools, template_kwargs, ..ChatOptions::default() };
        let rendered = model.render_chat(&[Message::user("a")], &chat);
        rendered.map(|prompt| prompt.text).map_err(|error| error.to_string())
    };
    assert_eq!(told(&*own, vec![], "mood").unwrap(), "ab");
    let error = told(&*own, vec![Value::Null], "mood").unwrap_err();
    assert!(error.starts_with("`tools` is not supported"), "{error}");
    for name in ["moo", "messages", "documents"] {
        let error = told(&*own, vec![], name).unwrap_err();
        assert!(error.starts_with(&format!("`{name}` is not supported")), "{error}");
    }
    // A family's format reads messages alone.
    assert!(told(&*Checkpoint::qwen3().model(), vec![], "mood").is_err());
}

#[test]
fn any_chunk_gives_the_same_tokens() {
    let prompt = Prompt::Ids((0..50).map(|i| 2 + i % 30).collect());
    let ids = |prefill_chunk| {
        let options = LoadOptions { prefill_chunk, ..Default::default() };
        let model = Checkpoint::with_sizes(2, 8, 16).load(&options).unwrap();
        let tokens = model.generate(&prompt, &some(8)).unwrap();
        tokens.map(|token| token.unwrap().id).collect::<Vec<_>>()
    };
    let whole = ids(None);
    for chunk in [1, 2, 7, 49, 50, 51, 1 << 32, usize::MAX] {
        assert_eq!(ids(Some(chunk)), whole, "{chunk}");
    }
}

#[test]
fn short_contexts_rotate() {
    let prompt = Prompt::Ids((0..30).map(|i| 2 + i % 30).collect());
    for context_length in [1, 2, 3, 4, 5, 6, 29, 30, 31, 4096] {
        for chunk in [1, 3, 2048] {
            let options = LoadOptions {
                context_length: Some(context_length),
                prefill_chunk: Some(chunk),
                ..Default::default()
            };
            let model = Checkpoint::with_sizes(2, 8, 16).load(&options).unwrap();
            let tokens: Vec<_> = model.generate(&prompt, &some(12)).unwrap().collect();
            assert!(tokens.iter().all(Result::is_ok), "{context_length}, {chunk}: {tokens:?}");
            assert_eq!(tokens.len(), 12, "{context_length}, {chunk}");
        }
    }
}
