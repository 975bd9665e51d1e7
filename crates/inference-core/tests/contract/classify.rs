//! Classifications of a model that has no body of its own for them.

use fake_model::FakeModel;
use inference_core::{
    Capabilities, ClassifyOptions, ClassifyResult, Error, GenerateOptions, Generation, ModelInfo,
    Prompt, Result, TextModel,
};

/// A fake that leaves to the contract what it can.
struct Small(FakeModel);

impl TextModel for Small {
    fn generate(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Generation> {
        self.0.generate(prompt, options)
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.0.encode(text)
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        self.0.decode(ids)
    }

    fn info(&self) -> &ModelInfo {
        self.0.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn close(&self) {
        self.0.close();
    }
}

fn classify(
    model: &Small,
    prompts: &[&str],
    generate: GenerateOptions,
) -> Result<Vec<ClassifyResult>> {
    let prompts: Vec<Prompt> = prompts.iter().map(|prompt| Prompt::from(*prompt)).collect();
    model.classify(&prompts, &ClassifyOptions { generate, ..Default::default() })
}

#[test]
fn the_next_token_is_the_first_one_that_would_be_generated() {
    let model = Small(FakeModel::says(&[" yes", " no"]));
    let options = GenerateOptions { logits: true, top_logprobs: 2, ..Default::default() };
    let results = classify(&model, &["a", "b"], options).unwrap();
    assert_eq!(results.len(), 2);
    for ClassifyResult { token, logits, labels } in results {
        assert_eq!((&*token.text, token.logprob), (" yes", Some(-0.25)));
        assert_eq!((token.top_logprobs.len(), token.logits), (2, None));
        assert_eq!((logits.map(|logits| logits.len()), labels.len()), (Some(2), 0));
    }
    let asked = model.0.seen.last_options();
    assert_eq!((asked.max_tokens, asked.temperature, asked.ignore_eos), (Some(1), Some(0.0), true));
}

#[test]
fn options_of_the_draw_reach_it_and_others_are_refused_by_name() {
    let model = Small(FakeModel::says(&["a"]));
    let drawn = GenerateOptions {
        temperature: Some(0.7),
        top_k: Some(3),
        seed: Some(5),
        ..Default::default()
    };
    classify(&model, &["x"], drawn).unwrap();
    let asked = model.0.seen.last_options();
    assert_eq!((asked.temperature, asked.top_k, asked.seed), (Some(0.7), Some(3), Some(5)));
    let stop = GenerateOptions { stop: vec!["b".into()], ..Default::default() };
    let error = classify(&model, &["x"], stop).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { option: "stop", .. }), "{error}");
    let labels = ClassifyOptions { labels: vec!["yes".into()], ..Default::default() };
    let error = model.classify(&["x".into()], &labels).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "labels"), "{error}");
}

#[test]
fn one_bad_prompt_refuses_the_call_before_anything_is_generated() {
    let model = Small(FakeModel::says(&["a"]));
    let error = classify(&model, &["x", ""], GenerateOptions::default()).unwrap_err();
    assert_eq!(error, Error::EmptyPrompt);
    assert!(model.0.seen.options().is_empty());
    let long = "x".repeat(5000);
    let error = classify(&model, &[&long], GenerateOptions::default()).unwrap_err();
    assert_eq!(error, Error::PromptTooLong { tokens: 5000, limit: 4096 });
    let unknown = model.prompt_ids(&Prompt::Ids(vec![1, 0x11_0000])).unwrap_err();
    assert!(unknown.to_string().contains("1114112"), "{unknown}");
}

#[test]
fn a_generation_that_fails_or_is_cancelled_ends_the_call() {
    let lost = Error::Engine("decode step 0: lost".into());
    let model = Small(FakeModel { failure: Some(lost.clone()), ..FakeModel::says(&[]) });
    assert_eq!(classify(&model, &["x"], GenerateOptions::default()), Err(lost));
    let options = GenerateOptions::default();
    options.cancel.cancel();
    let model = Small(FakeModel::says(&["a"]));
    assert_eq!(classify(&model, &["x"], options), Err(Error::Cancelled));
    model.close();
    assert_eq!(classify(&model, &[], GenerateOptions::default()), Err(Error::Closed));
}

#[test]
fn a_model_without_a_chat_format_refuses_chats_by_name() {
    let model = Small(FakeModel::says(&["a"]));
    let error = model.chat(&[], &Default::default(), &GenerateOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "chat"), "{error}");
    assert_eq!((model.model_type(), model.metrics()), ("fake", None));
    assert!(model.attention_inspector().is_none());
}
