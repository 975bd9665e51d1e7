//! Callbacks that stop, cancellations and failures: each returns the text so far with its error.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use inference_core::CancelToken;
use ml::{Backend, Cause, GenOpts, Message, MlxBackend, StreamingBackend};

use crate::fake::Script;

fn endless(pieces: &[&'static str]) -> Script {
    Script { endless: true, ..Script::says(pieces) }
}

#[test]
fn the_callbacks_error_stops_the_generation_and_comes_back_with_the_text() {
    let (model, seen) = endless(&["one", " two", " three"]).model();
    let mlx = MlxBackend::over(model);
    let mut calls = 0;
    let error = mlx
        .generate_stream("x", &GenOpts::default(), &mut |piece| {
            calls += 1;
            if piece == " two" { Err("enough".into()) } else { Ok(()) }
        })
        .unwrap_err();
    assert_eq!((calls, &*error.partial), (2, "one two"));
    assert!(matches!(&error.cause, Cause::Callback(cause) if cause.to_string() == "enough"));
    assert_eq!(error.to_string(), "stopped by the callback: enough");
    assert!(!error.is_cancelled());
    // The model hears of it: its request would go on for ever otherwise.
    while !seen.abandoned.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

#[test]
fn a_callback_may_return_an_error_of_its_own_type() {
    let (model, _) = Script::says(&["one"]).model();
    let error = MlxBackend::over(model)
        .chat_stream(&[Message::user("x")], &GenOpts::default(), &mut |_| {
            Err(Box::new(std::io::Error::from(std::io::ErrorKind::BrokenPipe)))
        })
        .unwrap_err();
    let Cause::Callback(cause) = error.cause else { panic!("not the callback's: {error}") };
    let cause = cause.downcast::<std::io::Error>().unwrap();
    assert_eq!(cause.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn a_cancellation_returns_the_text_so_far_and_what_it_cost() {
    let (model, _) = endless(&["one", " two"]).model();
    let mlx = MlxBackend::over(model);
    let opts = GenOpts::default();
    let cancel = opts.cancel.clone();
    let error = mlx
        .generate_stream("x", &opts, &mut |piece| {
            if piece == " two" {
                cancel.cancel();
            }
            Ok(())
        })
        .unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(error.partial, "one two");
    assert_eq!(error.metrics.unwrap().generated_tokens, 2);
}

#[test]
fn a_whole_answer_that_is_cancelled_returns_its_text_too() {
    let (model, _) = endless(&["one", " two"]).model();
    let mlx = Arc::new(MlxBackend::over(model));
    let deadline = std::time::Instant::now() + std::time::Duration::from_millis(50);
    let opts = GenOpts { cancel: CancelToken::with_deadline(deadline), ..GenOpts::default() };
    let error = mlx.generate("x", &opts).unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(error.partial, "one two");
}

#[test]
fn a_call_that_waits_for_another_one_can_be_cancelled() {
    let (model, seen) = Script::says(&["one"]).model();
    seen.busy.store(true, Ordering::SeqCst);
    let mlx = Arc::new(MlxBackend::over(model));
    let opts = GenOpts::default();
    let waiting = {
        let (mlx, opts) = (Arc::clone(&mlx), opts.clone());
        std::thread::spawn(move || mlx.generate("x", &opts))
    };
    while seen.prompts.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    assert!(!waiting.is_finished());
    opts.cancel.cancel();
    // The engine stays busy all the while.
    let error = waiting.join().unwrap().unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(error.partial, "");
    seen.busy.store(false, Ordering::SeqCst);
    assert_eq!(mlx.generate("x", &GenOpts::default()).unwrap().text, "one");
}

#[test]
fn a_failure_of_the_engine_returns_the_text_so_far() {
    let failure = inference_core::Error::Engine("decode step 2: out of beads".into());
    let script = Script { failure: Some(failure), ..Script::says(&["one", " two"]) };
    let (model, _) = script.model();
    let error = MlxBackend::over(model).generate("x", &GenOpts::default()).unwrap_err();
    assert_eq!(error.partial, "one two");
    assert_eq!(error.to_string(), "decode step 2: out of beads");
    assert!(std::error::Error::source(&error).is_some());
}
