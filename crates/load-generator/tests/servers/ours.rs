//! This project's server over a model with known delays.

use std::collections::HashSet;
use std::time::Duration;

use fake_model::FakeModel;
use inference_core::Prompt;
use inference_server::ApiKey;
use load_generator::{Api, Extent, Load, Options, Prompts, Round, measure, parse_lines};

use crate::Ours;

const TOKENS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Before each token.
const DELAY: Duration = Duration::from_millis(40);

fn slow() -> FakeModel {
    FakeModel { delay: DELAY, ..FakeModel::says(&TOKENS) }
}

fn options(server: &Ours) -> Options {
    Options {
        url: server.url.clone(),
        gen_tokens: TOKENS.len(),
        prompts: Prompts::Ids { count: 16, shared: 0, vocab: None },
        loads: vec![Load::Clients(4)],
        extent: Some(Extent::Requests(12)),
        seed: 1,
        ..Options::default()
    }
}

fn one(options: &Options) -> Round {
    let mut results = measure(options, |_| {}).unwrap().results;
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// Within what the clock and a busy machine add to `expected`.
fn about(seconds: f64, expected: Duration) {
    let expected = expected.as_secs_f64();
    assert!(seconds > expected * 0.9 && seconds < expected * 3.0 + 0.1, "{seconds} for {expected}");
}

#[test]
fn counts_and_times_are_those_of_the_server() {
    let server = Ours::start(slow());
    let mut told = Vec::new();
    let report = measure(&options(&server), |round| told.push(round.test.clone())).unwrap();
    let round = &report.results[0];
    assert_eq!((told, round.clients), (vec!["c4".to_owned()], Some(4)));
    assert_eq!(
        (report.model.as_str(), report.counted_by, report.ignore_eos),
        ("fake", "usage", true)
    );
    assert_eq!((round.requests, round.errors.len(), round.most_at_once), (12, 0, 4));
    assert_eq!((round.prompt_tokens, round.output_tokens), (12 * 16, 12 * 8));
    // The fake tells of one cached token in each prompt.
    assert_eq!((round.cached_prompt_tokens, round.other_lengths, round.without_text), (12, 0, 0));
    about(round.time_to_first_token_seconds.unwrap().p50, DELAY);
    let gaps = round.inter_token_latency_seconds.unwrap();
    about(gaps.p50, DELAY);
    assert!(gaps.p50 <= gaps.p95 && gaps.p95 <= gaps.p99 && gaps.p99 <= gaps.max);
    about(round.request_seconds.unwrap().p50, 8 * DELAY);
    // Four clients have three answers each, one after the other.
    about(round.seconds, 3 * 8 * DELAY);
    assert!((round.output_tokens_per_second * round.seconds - 96.0).abs() < 1e-6);
    assert!((round.total_tokens_per_second * round.seconds - 288.0).abs() < 1e-6);
    assert!((round.requests_per_second * round.seconds - 12.0).abs() < 1e-6);
}

#[test]
fn requests_have_fixed_lengths_and_beginnings_of_their_own() {
    let server = Ours::start(FakeModel::says(&TOKENS));
    let options = Options { warm_up: Some(3), ..options(&server) };
    one(&options);
    // The first request is of one token, and tells what the server takes.
    let asked = server.seen.options();
    assert_eq!(asked.len(), 1 + 3 + 12);
    assert_eq!(asked[0].max_tokens, Some(1));
    for asked in &asked[1..] {
        assert_eq!((asked.max_tokens, asked.ignore_eos), (Some(8), true));
        assert_eq!(asked.temperature, Some(0.0));
    }
    let prompts = server.seen.prompts.lock().unwrap();
    let begin = |prompt: &Prompt| match prompt {
        Prompt::Ids(ids) if ids.len() == 16 => ids[0],
        other => panic!("{other:?}"),
    };
    assert_eq!(prompts.iter().map(begin).collect::<HashSet<_>>().len(), 16);
}

#[test]
fn text_has_the_tokens_that_were_asked_for() {
    // The fake's tokens are characters, so that a word has several and a length is not always met.
    for (api, count) in [(Api::Completions, 400), (Api::Chat, 900)] {
        let server = Ours::start(FakeModel::says(&TOKENS));
        let prompts = Prompts::Tokens { count, shared: 100 };
        let report = measure(&Options { api, prompts, ..options(&server) }, |_| {}).unwrap();
        let tokens = report.prompt_tokens.unwrap();
        assert!(tokens.abs_diff(count) <= 5, "{tokens} for {count}");
        assert_eq!(report.results[0].prompt_tokens, 12 * tokens, "all have as many");
        let prompts = server.seen.prompts.lock().unwrap();
        let text = |prompt: &Prompt| match prompt {
            Prompt::Text(text) => text.clone(),
            Prompt::Ids(ids) => ids.iter().filter_map(|id| char::from_u32(*id)).collect(),
            Prompt::Parts(_) => unreachable!("no picture was sent"),
        };
        let measured: Vec<String> = prompts[prompts.len() - 12..].iter().map(text).collect();
        let same = |end: usize| measured.iter().all(|text| text[..end] == measured[0][..end]);
        assert!(same(90) && !same(130), "about 100 tokens are shared: {measured:?}");
    }
}

#[test]
fn requests_by_the_clock_wait_for_no_answer() {
    let server = Ours::start(slow());
    let round = one(&Options {
        loads: vec![Load::Rate(40.0)],
        extent: Some(Extent::Time(Duration::from_secs(1))),
        warm_up: Some(1),
        ..options(&server)
    });
    assert!((15..80).contains(&round.requests), "{}", round.requests);
    assert!(round.most_at_once > 1 && round.errors.is_empty(), "{round:?}");
    assert_eq!(round.output_tokens, round.requests * 8);
    about(round.time_to_first_token_seconds.unwrap().p50, DELAY);
}

#[test]
fn loads_are_measured_in_turn_and_time_ends_them() {
    let server = Ours::start(slow());
    let options = Options {
        loads: vec![Load::Clients(1), Load::Clients(8)],
        extent: Some(Extent::Time(Duration::from_millis(400))),
        ..options(&server)
    };
    let results = measure(&options, |_| {}).unwrap().results;
    let rates: Vec<f64> = results.iter().map(|round| round.output_tokens_per_second).collect();
    assert!(rates[1] > 3.0 * rates[0], "{rates:?}");
    assert!(results.iter().all(|round| round.seconds >= 0.4), "{results:?}");
    assert_eq!(results[1].most_at_once, 8);
}

#[test]
fn refusals_are_counted_by_kind_with_the_remedy() {
    let server = Ours::start(FakeModel { queue: 1, ..slow() });
    let round = one(&options(&server));
    let refused = round.errors["HTTP 429"];
    assert!(refused > 0 && refused < 12, "{refused}");
    assert_eq!(round.output_tokens, (12 - refused) * 8, "refused ones count nothing");
    assert!(round.error_messages["HTTP 429"].contains("--queue"), "{round:?}");
}

#[test]
fn a_key_is_sent_and_a_missing_one_is_told() {
    let change = |config: &mut inference_server::Config| config.keys.extend(ApiKey::new("secret"));
    let server = Ours::with(FakeModel::says(&TOKENS), change);
    let error = measure(&options(&server), |_| {}).unwrap_err().to_string();
    assert!(error.contains("HTTP 401") && error.contains("ML_BENCH_API_KEY"), "{error}");
    let round = one(&Options { key: Some("secret".into()), ..options(&server) });
    assert!(round.errors.is_empty());
}

#[test]
fn given_requests_are_sent_as_they_are() {
    let server = Ours::start(FakeModel::says(&TOKENS));
    let text = "{\"prompt\": \"xyz\", \"max_tokens\": 3, \"temperature\": 0.5}\n\
                {\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n";
    let lines = parse_lines(text, "lines", Api::Completions).unwrap();
    let options = Options {
        prompts: Prompts::Lines(lines),
        loads: vec![Load::Clients(1)],
        extent: None,
        warm_up: Some(0),
        ..options(&server)
    };
    let round = one(&options);
    assert_eq!((round.requests, round.output_tokens, round.errors.len()), (2, 3 + 8, 0));
    let asked = server.seen.options();
    assert_eq!((asked[1].max_tokens, asked[1].temperature), (Some(3), Some(0.5)));
    assert!(asked.iter().all(|asked| !asked.ignore_eos));
    assert_eq!(server.seen.last_messages(), [("user".to_owned(), "hi".to_owned())]);
}
