//! Callbacks that stop, cancellations and failures: each returns the text so far with its error.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fake_model::FakeModel;
use inference_core::CancelToken;
use ml::{Backend, Cause, GenOpts, Message, MlxBackend, StreamingBackend};

fn endless(pieces: &[&'static str]) -> FakeModel {
    FakeModel { endless: true, ..FakeModel::says(pieces) }
}

#[test]
fn the_callbacks_error_stops_the_generation_and_comes_back_with_the_text() {
    let model = endless(&["one", " two", " three"]);
    let seen = Arc::clone(&model.seen);
    let mlx = MlxBackend::over(Arc::new(model));
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
    while seen.cancelled.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_callback_may_return_an_error_of_its_own_type() {
    let error = MlxBackend::over(Arc::new(FakeModel::says(&["one"])))
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
    let mlx = MlxBackend::over(Arc::new(endless(&["one", " two"])));
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
    let mlx = MlxBackend::over(Arc::new(endless(&["one", " two"])));
    let deadline = std::time::Instant::now() + std::time::Duration::from_millis(50);
    let opts = GenOpts { cancel: CancelToken::with_deadline(deadline), ..GenOpts::default() };
    let error = mlx.generate("x", &opts).unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(error.partial, "one two");
}

#[test]
fn a_call_that_waits_for_another_one_can_be_cancelled() {
    let model = FakeModel::says(&["one"]);
    let seen = Arc::clone(&model.seen);
    seen.held.store(true, Ordering::SeqCst);
    let mlx = Arc::new(MlxBackend::over(Arc::new(model)));
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
    seen.held.store(false, Ordering::SeqCst);
    assert_eq!(mlx.generate("x", &GenOpts::default()).unwrap().text, "one");
}

#[test]
fn a_failure_of_the_engine_returns_the_text_so_far() {
    let failure = inference_core::Error::Engine("decode step 2: out of beads".into());
    let model = FakeModel { failure: Some(failure), ..FakeModel::says(&["one", " two"]) };
    let error = MlxBackend::over(Arc::new(model)).generate("x", &GenOpts::default()).unwrap_err();
    assert_eq!(error.partial, "one two");
    assert_eq!(error.to_string(), "decode step 2: out of beads");
    assert!(std::error::Error::source(&error).is_some());
}
