//! Embeddings: options, the registry, prompts by name, scores between 0 and 1.

use std::path::Path;

use fake_model::FakeBackend;
use inference_core::{
    EmbedOptions, EmbeddingLoadOptions, EmbeddingModelInfo, Error, PairScores, Pooling, Registry,
    Truncate,
};

#[test]
fn a_backend_that_embeds_nothing_refuses_embedding_models_by_name() {
    let registry = Registry::new();
    registry.register(FakeBackend::available("cpu")).unwrap();
    let load = |options| registry.load_embedding_model(Path::new("."), &options).err().unwrap();
    let error = load(EmbeddingLoadOptions::default());
    let refused = matches!(&error, Error::Unsupported { what, .. } if what == "embedding models");
    assert!(refused && error.to_string().contains("`cpu`"), "{error}");
    let error = load(EmbeddingLoadOptions { max_tokens: Some(0), ..Default::default() });
    assert!(error.to_string().contains("`max_tokens`"), "{error}");
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let refused = |options: EmbedOptions| match options.validate().unwrap_err() {
        Error::InvalidOption { option, .. } => option,
        other => panic!("{other}"),
    };
    let dimensions = Some(0);
    assert_eq!(refused(EmbedOptions { dimensions, ..Default::default() }), "dimensions");
    let (prompt_name, prompt) = (Some("query".into()), Some("query: ".into()));
    assert_eq!(refused(EmbedOptions { prompt_name, prompt, ..Default::default() }), "prompt_name");
    assert_eq!(EmbedOptions::default().validate(), Ok(()));
}

#[test]
fn a_prompt_is_the_one_that_is_asked_for_else_the_models_own() {
    let prompts = vec![("document".into(), "d: ".into()), ("query".into(), "q: ".into())];
    let info = EmbeddingModelInfo { prompts, ..Default::default() };
    let options = EmbedOptions::default();
    assert_eq!(info.prompt(&options), Ok(""));
    let with_default =
        EmbeddingModelInfo { default_prompt: Some("document".into()), ..info.clone() };
    assert_eq!(with_default.prompt(&options), Ok("d: "));
    let by_name = EmbedOptions { prompt_name: Some("query".into()), ..Default::default() };
    assert_eq!(with_default.prompt(&by_name), Ok("q: "));
    let own = EmbedOptions { prompt: Some(String::new()), ..Default::default() };
    assert_eq!(with_default.prompt(&own), Ok(""));
    let unknown = EmbedOptions { prompt_name: Some("title".into()), ..Default::default() };
    let error = info.prompt(&unknown).unwrap_err().to_string();
    assert!(error.contains("`title`") && error.contains("document, query"), "{error}");
}

#[test]
fn names_are_those_of_sentence_transformers() {
    for pooling in Pooling::ALL {
        assert_eq!(pooling.as_str().parse(), Ok(pooling));
    }
    assert_eq!("last".parse(), Ok(Pooling::Last));
    assert!("first".parse::<Pooling>().unwrap_err().to_string().contains("lasttoken"));
    assert_eq!("end".parse(), Ok(Truncate::End));
    assert!("both".parse::<Truncate>().is_err());
}

#[test]
fn relevance_lies_between_0_and_1() {
    let scores = PairScores { logits: vec![0.0, 800.0, -800.0, 2.0], tokens: vec![1; 4] };
    let relevance = scores.relevance();
    assert_eq!(relevance[..3], [0.5, 1.0, 0.0]);
    assert!((relevance[3] - 0.880_797).abs() < 1e-6);
}
