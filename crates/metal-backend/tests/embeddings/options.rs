//! Effects of options on vectors.

use inference_core::{
    CancelToken, EmbedInput, EmbedOptions, EmbeddingLoadOptions, Error, Pooling, ScoreOptions,
    TextPair, Truncate,
};

use crate::fixtures::{self, Fixture, distance};

#[test]
fn fewer_dimensions_are_the_first_ones_with_the_length_1() {
    for name in ["bert", "qwen3_embedding", "embedding_gemma"] {
        let fixture = Fixture::new(name);
        let golden = &fixture.golden["dimensions"];
        let wanted = golden["dimensions"].as_u64().expect("a number") as usize;
        let options = EmbedOptions { dimensions: Some(wanted), ..EmbedOptions::default() };
        let model = fixture.load(Default::default());
        let made = model.embed(&fixture.inputs(), &options).expect("the texts fit");
        for (found, expected) in made.vectors.iter().zip(fixtures::rows(&golden["vectors"])) {
            assert!(distance(found, &expected) < 2e-5, "{name}: {found:?}, not {expected:?}");
        }
    }
}

#[test]
fn the_length_is_as_asked() {
    let fixture = Fixture::new("bert");
    let model = fixture.load(Default::default());
    let length = |normalize| {
        let options = EmbedOptions { normalize, ..EmbedOptions::default() };
        let made = model.embed(&["a fox".into()], &options).expect("it fits");
        made.vectors[0].iter().map(|value| value * value).sum::<f32>().sqrt()
    };
    assert!((length(None) - 1.0).abs() < 1e-5);
    assert!((length(Some(true)) - 1.0).abs() < 1e-5);
    assert!((length(Some(false)) - 1.0).abs() > 0.1);
}

#[test]
fn a_prompt_by_name_is_its_text_before_each_text() {
    let fixture = Fixture::new("qwen3_embedding");
    let model = fixture.load(Default::default());
    let (_, text) = model.info().prompts.iter().find(|(name, _)| name == "query").expect("a query");
    let embed = |options| model.embed(&["fox".into()], &options).expect("it fits");
    let by_name =
        embed(EmbedOptions { prompt_name: Some("query".into()), ..EmbedOptions::default() });
    let by_text = embed(EmbedOptions { prompt: Some(text.clone()), ..EmbedOptions::default() });
    assert_eq!(by_name, by_text);
    assert_ne!(by_name, embed(EmbedOptions::default()));
}

#[test]
fn a_long_text_is_refused_or_loses_what_is_named() {
    let fixture = Fixture::new("bert");
    let options = EmbeddingLoadOptions { max_tokens: Some(6), ..Default::default() };
    let model = fixture.load(options);
    let embed = |text: &str, truncate| {
        let options = EmbedOptions { truncate, ..EmbedOptions::default() };
        model.embed(&[text.into()], &options)
    };
    let long = "the fox runs through the snow";
    let error = embed(long, Truncate::Refuse).expect_err("too long");
    assert_eq!(error, Error::PromptTooLong { tokens: 8, limit: 6 });
    let end = embed(long, Truncate::End).expect("its end goes");
    assert_eq!(end, embed("the fox runs through", Truncate::Refuse).expect("it fits"));
    let start = embed(long, Truncate::Start).expect("its beginning goes");
    assert_eq!(start, embed("runs through the snow", Truncate::Refuse).expect("it fits"));
    assert_eq!((end.tokens[0], start.tokens[0]), (6, 6));
}

#[test]
fn a_long_document_loses_its_end_and_a_long_query_is_refused() {
    for name in ["bert_reranker", "qwen3_reranker"] {
        let fixture = Fixture::new(name);
        let all = fixture.load(Default::default());
        let pair = |query: &str, document: &str| {
            [TextPair { query: query.into(), document: document.into() }]
        };
        let whole = pair("fox", "the fox runs through the snow");
        let tokens = all.score(&whole, &ScoreOptions::default()).expect("it fits").tokens[0];
        let max_tokens = Some(tokens - 2);
        let model = fixture.load(EmbeddingLoadOptions { max_tokens, ..Default::default() });
        let end = ScoreOptions { truncate: Truncate::End, ..ScoreOptions::default() };
        let error = model.score(&whole, &ScoreOptions::default()).expect_err("too long");
        assert_eq!(error, Error::PromptTooLong { tokens, limit: tokens - 2 }, "{name}");
        let cut = model.score(&whole, &end).expect("its end goes");
        assert_eq!(cut.tokens, [tokens - 2], "{name}");
        let long = pair(&"fox ".repeat(200), "snow");
        let error = model.score(&long, &end).expect_err("no room for the document");
        assert!(matches!(error, Error::PromptTooLong { .. }), "{name}: {error}");
    }
}

#[test]
fn a_pooling_that_is_named_takes_the_place_of_the_files_own() {
    let fixture = Fixture::new("bert");
    let load = |pooling| fixture.load(EmbeddingLoadOptions { pooling, ..Default::default() });
    let embed = |pooling| {
        load(pooling).embed(&["a fox".into()], &EmbedOptions::default()).expect("it fits").vectors
    };
    assert_eq!(embed(None), embed(Some(Pooling::Mean)));
    assert_ne!(embed(None), embed(Some(Pooling::Cls)));
    assert_ne!(embed(Some(Pooling::Last)), embed(Some(Pooling::Cls)));
}

#[test]
fn a_cancelled_request_ends_and_a_closed_model_refuses() {
    let fixture = Fixture::new("bert");
    let model = fixture.load(Default::default());
    let cancel = CancelToken::new();
    cancel.cancel();
    let options = EmbedOptions { cancel, ..EmbedOptions::default() };
    let inputs: Vec<EmbedInput> = fixture.inputs();
    assert_eq!(model.embed(&inputs, &options).expect_err("cancelled"), Error::Cancelled);
    model.close();
    let error = model.embed(&inputs, &EmbedOptions::default()).expect_err("closed");
    assert_eq!(error, Error::Closed);
}
