//! The text of a generation: pieces, stop strings, ids that end it.

use inference_core::{FinishReason, GenerateOptions, TextModel, Token};
use serde_json::json;

use crate::drawn;
use crate::tiny::{Checkpoint, EOS};

fn run(model: &dyn TextModel, options: &GenerateOptions) -> (Vec<Token>, FinishReason) {
    let mut generation = model.generate(&"abc".into(), options).unwrap();
    let tokens = generation.by_ref().map(Result::unwrap).collect();
    (tokens, generation.outcome().unwrap().finish_reason.clone())
}

fn text(tokens: &[Token]) -> String {
    tokens.iter().map(|token| token.text.as_str()).collect()
}

#[test]
fn the_pieces_concatenated_are_the_decoded_whole() {
    let model = Checkpoint::qwen3().model();
    let mut replaced = 0;
    for seed in 0..40 {
        let (tokens, _) = run(&*model, &drawn(60, seed));
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let whole = model.decode(&ids).unwrap();
        assert_eq!(text(&tokens), whole);
        replaced += usize::from(whole.contains('\u{fffd}'));
    }
    assert!(replaced > 0, "no seed drew half a character: the test tests too little");
}

#[test]
fn exactly_as_many_tokens_as_asked_for() {
    let model = Checkpoint::qwen3().model();
    for count in [0, 1, 2, 3, 255, 256, 257, 300, 513] {
        let (tokens, reason) = run(&*model, &drawn(count, 1));
        assert_eq!((tokens.len(), reason), (count, FinishReason::Length));
    }
}

/// Every substring of a text as a stop string ends the text where it first begins.
#[test]
fn a_stop_string_may_lie_across_tokens() {
    let model = Checkpoint::qwen3().model();
    let (tokens, _) = run(&*model, &drawn(40, 5));
    let whole = text(&tokens);
    let ends: Vec<usize> = whole.char_indices().map(|(at, _)| at).collect();
    let mut across = 0;
    for (i, &start) in ends.iter().enumerate().skip(3).step_by(2) {
        for length in [1, 2, 5] {
            let Some(&end) = ends.get(i + length) else { continue };
            let stop = &whole[start..end];
            let options =
                GenerateOptions { stop: vec![stop.into(), "no such text".into()], ..drawn(40, 5) };
            let (stopped, reason) = run(&*model, &options);
            assert_eq!(reason, FinishReason::StopText(stop.into()));
            assert_eq!(text(&stopped), whole[..whole.find(stop).unwrap()]);
            assert!(stopped.iter().zip(&tokens).all(|(a, b)| a.id == b.id));
            across += usize::from(length > 2);
        }
    }
    assert!(across > 3);
}

#[test]
fn a_stop_string_that_never_comes_changes_nothing() {
    let model = Checkpoint::qwen3().model();
    let (plain, _) = run(&*model, &drawn(40, 5));
    let almost = format!("{}!", text(&plain).chars().take(12).collect::<String>());
    let options = GenerateOptions { stop: vec![almost], ..drawn(40, 5) };
    let (held, reason) = run(&*model, &options);
    assert_eq!(reason, FinishReason::Length);
    assert_eq!(text(&held), text(&plain));
    assert!(held.iter().map(|token| token.id).eq(plain.iter().map(|token| token.id)));
}

#[test]
fn ids_that_end_a_generation_are_not_emitted() {
    let model = Checkpoint::qwen3().model();
    let (free, _) = run(&*model, &drawn(40, 5));
    let last = free[20].id;
    let first = free.iter().position(|token| token.id == last).unwrap();
    let options = GenerateOptions { stop_token_ids: vec![last], ..drawn(40, 5) };
    let (tokens, reason) = run(&*model, &options);
    assert_eq!((tokens.len(), reason), (first, FinishReason::StopToken(last)));
    assert!(tokens.iter().zip(&free).all(|(a, b)| a.id == b.id));
    // The same id as the model's own end, beside the others of its config.
    let ends = Checkpoint::qwen3().config("eos_token_id", json!([EOS, last])).model();
    let options = GenerateOptions { ignore_eos: false, ..drawn(40, 5) };
    let (tokens, reason) = run(&*ends, &options);
    let first = free.iter().position(|token| [EOS, last].contains(&token.id)).unwrap();
    assert_eq!((tokens.len(), reason), (first, FinishReason::EndOfSequence(free[first].id)));
}

#[test]
fn a_seed_repeats_its_draws_and_the_outcome_tells_it() {
    let model = Checkpoint::qwen3().model();
    let options = GenerateOptions { seed: None, ..drawn(20, 0) };
    let mut generation = model.generate(&"abc".into(), &options).unwrap();
    let ids: Vec<u32> = generation.by_ref().map(|token| token.unwrap().id).collect();
    let seed = generation.outcome().unwrap().seed;
    let (again, _) = run(&*model, &drawn(20, seed));
    assert!(again.iter().map(|token| token.id).eq(ids));
}

#[test]
fn nothing_ends_a_generation_before_its_fewest_tokens() {
    let model = Checkpoint::qwen3().model();
    let likeliest = || GenerateOptions { temperature: Some(0.0), ..drawn(40, 5) };
    // Also where the text goes on behind them, the model's own ends wait.
    let (free, _) = run(&*model, &GenerateOptions { min_tokens: 40, ..likeliest() });
    assert!(free.iter().all(|token| token.id != EOS));
    let first_of = |id| free.iter().position(|token| token.id == id).unwrap();
    let first = free.iter().map(|token| first_of(token.id)).max().unwrap();
    assert!(first > 3, "the text repeats itself at once");
    let end = free[first].id;
    let ends = |options| GenerateOptions { stop_token_ids: vec![end], ..options };
    // Up to there the answer is the same, and from there on the id ends it.
    for (min_tokens, drafts) in [(0, 0), (1, 0), (first, 0), (first, 4)] {
        let options =
            GenerateOptions { min_tokens, draft_tokens: Some(drafts), ..ends(likeliest()) };
        let (tokens, reason) = run(&*model, &options);
        assert_eq!((tokens.len(), reason), (first, FinishReason::StopToken(end)));
    }
    let longer = GenerateOptions { min_tokens: first + 1, ..ends(likeliest()) };
    let (tokens, _) = run(&*model, &longer);
    assert!(tokens.len() > first && tokens[first].id != end, "{first}");
    for options in [likeliest(), GenerateOptions { top_k: Some(8), ..drawn(40, 5) }] {
        let (tokens, reason) =
            run(&*model, &GenerateOptions { min_tokens: 40, ..ends(options.clone()) });
        assert_eq!((tokens.len(), reason), (40, FinishReason::Length));
        assert!(tokens.iter().all(|token| token.id != end));
    }
    // Log probabilities stay those of the model.
    let told = |min_tokens| {
        run(&*model, &GenerateOptions { logprobs: true, min_tokens, ..ends(likeliest()) }).0
    };
    let (few, many) = (told(0), told(40));
    assert!(few.iter().zip(&many).all(|(few, many)| few.logprob == many.logprob));
    assert!(few.len() == first && many[first].logprob < free_logprob(&*model, first));
}

/// The log probability of the likeliest token of index `at`.
fn free_logprob(model: &dyn TextModel, at: usize) -> Option<f32> {
    let options = GenerateOptions { temperature: Some(0.0), logprobs: true, ..drawn(40, 5) };
    run(model, &GenerateOptions { min_tokens: 40, ..options }).0[at].logprob
}

#[test]
fn the_models_own_end_is_not_drawn_before_the_fewest_tokens() {
    let model = Checkpoint::qwen3().config("eos_token_id", json!([EOS, 20])).model();
    let forced = || GenerateOptions { logit_bias: [(20, 100.0)].into(), ..drawn(6, 1) };
    for (ignore_eos, min_tokens, count) in [(false, 0, 0), (false, 3, 3), (true, 3, 6)] {
        let options = GenerateOptions { ignore_eos, min_tokens, ..forced() };
        let (tokens, _) = run(&*model, &options);
        assert_eq!(tokens.len(), count);
        assert!(tokens.iter().take(min_tokens).all(|token| token.id != 20));
    }
}

#[test]
fn a_stop_string_counts_behind_the_fewest_tokens() {
    let model = Checkpoint::qwen3().model();
    for min_tokens in [0, 1, 5, 10, 39, 40] {
        let options = GenerateOptions { min_tokens, ..drawn(40, 5) };
        let (free, _) = run(&*model, &options);
        let whole = text(&free);
        let begin = text(&free[..min_tokens]).len();
        for stop in whole.split_inclusive(|_| true).map(str::to_owned) {
            let (tokens, reason) =
                run(&*model, &GenerateOptions { stop: vec![stop.clone()], ..options.clone() });
            let found = whole[begin..].find(&stop).map(|at| begin + at);
            let expected = found.map_or(whole.as_str(), |at| &whole[..at]);
            assert_eq!(text(&tokens), expected, "{min_tokens} {stop:?}");
            assert_eq!(reason == FinishReason::Length, found.is_none());
        }
    }
}
