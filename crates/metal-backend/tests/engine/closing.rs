//! Closing and dropping a model, and consumers whose own code misbehaves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use inference_core::{ChatOptions, Error, Message, TextModel};

use crate::tiny::Checkpoint;
use crate::{endless, one_slot, slow, some};

fn soon<T>(call: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = call();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    result
}

#[test]
fn ends_what_runs_and_what_waits_and_refuses_what_comes() {
    let model = slow();
    let mut running = model.generate(&endless(), &some(5)).unwrap();
    let mut queued = model.generate(&"abc".into(), &some(5)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    soon(|| model.close());
    assert_eq!(soon(|| running.next()), Some(Err(Error::Closed)));
    assert_eq!(soon(|| queued.next()), Some(Err(Error::Closed)));
    assert_eq!((running.next(), queued.next()), (None, None));
    model.close();
    let messages = [Message::user("hello")];
    assert_eq!(model.generate(&"abc".into(), &some(1)).unwrap_err(), Error::Closed);
    assert_eq!(model.generate(&"".into(), &some(1)).unwrap_err(), Error::Closed);
    let chat = model.chat(&messages, &ChatOptions::default(), &some(1));
    assert_eq!(chat.unwrap_err(), Error::Closed);
    assert_eq!(model.classify(&[], &Default::default()).unwrap_err(), Error::Closed);
    assert_eq!(model.batch_generate(&[], &some(1)).unwrap_err(), Error::Closed);
    assert_eq!(model.encode("abc").unwrap_err(), Error::Closed);
    assert_eq!(model.decode(&[3]).unwrap_err(), Error::Closed);
    let rendered = model.render_chat(&messages, &ChatOptions::default());
    assert_eq!(rendered.unwrap_err(), Error::Closed);
    assert_eq!(model.info().vocab_size, crate::tiny::VOCAB_SIZE);
}

#[test]
fn from_many_threads_at_once_is_closing_once() {
    let model = slow();
    let running = model.generate(&endless(), &some(5)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| soon(|| model.close()));
        }
    });
    assert_eq!(running.last(), Some(Err(Error::Closed)));
}

#[test]
fn dropping_the_model_ends_its_generations() {
    let model = slow();
    let mut running = model.generate(&"abc".into(), &some(900_000)).unwrap();
    let queued = model.generate(&"abc".into(), &some(5)).unwrap();
    running.next().unwrap().unwrap();
    soon(|| drop(model));
    assert_eq!(soon(|| running.last()), Some(Err(Error::Closed)));
    assert_eq!(soon(|| queued.last()), Some(Err(Error::Closed)));
}

#[test]
fn a_generation_that_ended_outlives_its_model() {
    let model = one_slot();
    let mut generation = model.generate(&"abc".into(), &some(4)).unwrap();
    assert_eq!(model.generate(&"abc".into(), &some(1)).unwrap().count(), 1);
    drop(model);
    assert_eq!(generation.by_ref().map(Result::unwrap).count(), 4);
    assert!(generation.outcome().is_some());
}

#[derive(Default)]
struct Flag {
    woken: AtomicUsize,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_generation_can_be_polled() {
    let model = Checkpoint::qwen3().model();
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let mut generation = model.generate(&"abc".into(), &some(25)).unwrap();
    let (mut count, mut pending) = (0, 0);
    let started = Instant::now();
    loop {
        let before = flag.woken.load(Ordering::SeqCst);
        match generation.poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(token)) => count += usize::from(token.is_ok()),
            Poll::Ready(None) => break,
            Poll::Pending => {
                pending += 1;
                while flag.woken.load(Ordering::SeqCst) == before {
                    assert!(started.elapsed() < Duration::from_secs(20), "never woken");
                    std::thread::yield_now();
                }
            }
        }
    }
    assert_eq!(count, 25);
    assert!(flag.woken.load(Ordering::SeqCst) <= pending, "woken more often than it waited");
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker of the consumer's fails");
    }
}

#[test]
fn a_waker_that_panics_harms_nobody_else() {
    let model = slow();
    let waker = Waker::from(Arc::new(Panics));
    for max_tokens in [0, 1, 40] {
        // Queued behind a request that runs, so that polling finds nothing yet.
        let running = model.generate(&endless(), &some(1)).unwrap();
        let mut polled = model.generate(&"abc".into(), &some(max_tokens)).unwrap();
        let behind = model.generate(&"abc".into(), &some(2)).unwrap();
        assert!(polled.poll_next(&mut Context::from_waker(&waker)).is_pending());
        drop(running);
        assert_eq!(behind.map(Result::unwrap).count(), 2);
        assert_eq!(polled.map(Result::unwrap).count(), max_tokens);
    }
}

/// Drops the model on whichever thread wakes it.
struct Drops {
    model: Mutex<Option<Box<dyn TextModel>>>,
    done: AtomicBool,
}

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        drop(self.model.lock().unwrap().take());
        self.done.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_model_may_be_dropped_on_its_own_engine_thread() {
    let model = slow();
    let running = model.generate(&endless(), &some(1)).unwrap();
    let mut polled = model.generate(&"abc".into(), &some(900_000)).unwrap();
    let drops = Arc::new(Drops { model: Mutex::new(Some(model)), done: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&drops));
    assert!(polled.poll_next(&mut Context::from_waker(&waker)).is_pending());
    drop(running);
    assert_eq!(soon(|| polled.last()), Some(Err(Error::Closed)));
    assert!(drops.done.load(Ordering::SeqCst));
}
