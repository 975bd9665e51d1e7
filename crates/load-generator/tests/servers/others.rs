//! Servers that take less, count nothing, or break off.

use std::net::TcpListener;
use std::time::Duration;

use load_generator::{Error, Extent, IgnoreEos, Load, Options, Prompts, measure};
use serde_json::{Value as Json, json};

use crate::scripted::Scripted;

const ONE: &str = r#"{"object":"list","data":[{"id":"other","object":"model"}]}"#;

fn options(url: &str) -> Options {
    Options {
        url: url.to_owned(),
        gen_tokens: 3,
        prompts: Prompts::Tokens { count: 50, shared: 0 },
        loads: vec![Load::Clients(2)],
        extent: Some(Extent::Requests(6)),
        timeout: Duration::from_secs(20),
        ..Options::default()
    }
}

/// A stream of so many texts, with `end` behind it.
fn stream(texts: usize, end: &str) -> (u16, String) {
    let text = "data: {\"choices\": [{\"index\": 0, \"text\": \"a\"}]}\n\n".repeat(texts);
    (200, format!("{text}{end}"))
}

/// A whole answer, whose usage counts words and two tokens around them.
fn counted(post: &Json) -> (u16, String) {
    let words = post["prompt"].as_str().unwrap().split_whitespace().count();
    let usage = json!({"prompt_tokens": words + 2, "completion_tokens": 1});
    (200, json!({"choices": [{"text": "a"}], "usage": usage}).to_string())
}

#[test]
fn fields_that_a_server_refuses_are_not_sent() {
    let server = Scripted::start(ONE, |post| {
        let unknown = ["ignore_eos", "stream_options"].iter().find(|f| post.get(**f).is_some());
        match unknown {
            Some(field) => (400, json!({"error": format!("unknown field {field}")}).to_string()),
            None if post["stream"] == true => stream(3, "data: [DONE]\n\n"),
            None => counted(post),
        }
    });
    let report = measure(&options(&server.url), |_| {}).unwrap();
    assert_eq!((report.ignore_eos, report.counted_by), (false, "frames"));
    assert_eq!(report.prompt_tokens, Some(50), "a word is a token here");
    let round = &report.results[0];
    assert_eq!((round.requests, round.errors.len()), (6, 0));
    assert_eq!((round.output_tokens, round.prompt_tokens), (18, 300), "frames and counted prompts");
    for post in &server.streams()[4..] {
        assert!(post.get("ignore_eos").is_none() && post.get("stream_options").is_none());
        assert_eq!((&post["model"], &post["max_tokens"]), (&json!("other"), &json!(3)));
    }
}

#[test]
fn what_must_be_sent_and_is_refused_is_told_in_the_servers_words() {
    let server = Scripted::start(ONE, |_| (400, "{\"error\": \"no such field\"}".to_owned()));
    let options = Options { ignore_eos: IgnoreEos::Always, ..options(&server.url) };
    let error = measure(&options, |_| {}).unwrap_err().to_string();
    assert!(error.contains("/v1/completions: HTTP 400: {\"error\": \"no such field\"}"), "{error}");
    assert!(server.streams().iter().all(|post| post["ignore_eos"] == true));
}

#[test]
fn answers_that_break_off_are_errors() {
    let failed = "data: {\"error\": {\"message\": \"out of memory\"}}\n\n";
    for (end, kind, words) in [
        ("", "no [DONE]", "without [DONE], after 2 texts"),
        (failed, "error in the stream", "out of memory"),
        ("data: <html>\n\n", "bad answer", "<html>"),
    ] {
        let server = Scripted::start(ONE, move |post| match &post["stream"] {
            Json::Bool(true) if post["max_tokens"] == 1 => stream(1, "data: [DONE]\n\n"),
            Json::Bool(true) => stream(2, end),
            _ => counted(post),
        });
        let options = Options { warm_up: Some(0), ..options(&server.url) };
        let report = measure(&options, |_| {}).unwrap();
        let round = &report.results[0];
        assert_eq!(round.errors, [(kind.to_owned(), 6)].into());
        assert!(round.error_messages[kind].contains(words), "{round:?}");
        assert_eq!((round.output_tokens, round.time_to_first_token_seconds), (0, None));
        // A warm-up that nothing answers ends the measurement.
        let error = measure(&Options { warm_up: Some(1), ..options }, |_| {}).unwrap_err();
        assert_eq!(error.kind(), kind);
    }
}

#[test]
fn a_server_that_does_not_stream_is_told() {
    let server = Scripted::start(ONE, counted);
    let error = measure(&options(&server.url), |_| {}).unwrap_err().to_string();
    assert!(error.contains("application/json in place of text/event-stream"), "{error}");
}

#[test]
fn an_answer_that_takes_too_long_is_given_up() {
    let server = Scripted::start(ONE, |_| {
        std::thread::sleep(Duration::from_secs(5));
        stream(1, "data: [DONE]\n\n")
    });
    let options = Options { timeout: Duration::from_millis(200), ..options(&server.url) };
    let error = measure(&options, |_| {}).unwrap_err();
    assert!(matches!(error, Error::Timeout(_)), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_told_with_the_remedy() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = measure(&options(&url), |_| {}).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(error.to_string().contains("ml serve"), "{error}");
}

#[test]
fn a_model_is_named_where_there_is_none_or_more_than_one() {
    let answer = |post: &Json| match &post["stream"] {
        Json::Bool(true) => stream(3, "data: [DONE]\n\n"),
        _ => counted(post),
    };
    let several = r#"{"data":[{"id":"a"},{"id":"b"}]}"#;
    for (list, words) in [(several, "(a, b)"), ("{\"data\": []}", "lists no model")] {
        let server = Scripted::start(list, answer);
        let error = measure(&options(&server.url), |_| {}).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("--model"), "{error}");
        let named = Options { model: Some("b".into()), ..options(&server.url) };
        assert_eq!(measure(&named, |_| {}).unwrap().model, "b");
    }
}
