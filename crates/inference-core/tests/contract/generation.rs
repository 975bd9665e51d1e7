//! Generations: iterating, polling, ending, cancelling.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use fake_model::prompt_logprobs;
use inference_core::{
    CancelToken, Error, FinishReason, GenerateMetrics, Generation, GenerationSender, Outcome,
    PrefillProgress, Token,
};

/// Longer than any of these waits.
const PATIENCE: Duration = Duration::from_secs(60);

fn channel() -> (GenerationSender, Generation) {
    Generation::channel(vec![1, 2], CancelToken::new())
}

fn token(id: u32) -> Token {
    Token { id, text: format!("<{id}>"), ..Default::default() }
}

/// The end of a generation of `generated_tokens`.
fn outcome(generated_tokens: usize) -> Outcome {
    Outcome {
        finish_reason: FinishReason::Length,
        metrics: GenerateMetrics { generated_tokens, ..Default::default() },
        seed: 0,
        greedy: true,
    }
}

fn ids(generation: &mut Generation) -> Vec<u32> {
    generation.map(|token| token.unwrap().id).collect()
}

/// A waker that counts how often it was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(generation: &mut Generation, count: &Arc<Count>) -> Poll<Option<u32>> {
    let waker = Waker::from(Arc::clone(count));
    generation
        .poll_next(&mut Context::from_waker(&waker))
        .map(|item| item.map(|token| token.unwrap().id))
}

#[test]
fn tokens_come_out_in_order_and_the_outcome_after_the_last() {
    let (sender, mut generation) = channel();
    assert_eq!(generation.prompt_ids(), [1, 2]);
    for id in 0..3 {
        sender.send(token(id));
    }
    sender.finish(outcome(3));
    for id in 0..3 {
        assert_eq!(generation.outcome(), None, "not before the end was read");
        assert_eq!(generation.next(), Some(Ok(token(id))));
    }
    assert_eq!(generation.outcome(), None);
    assert_eq!(generation.next(), None);
    assert_eq!(generation.outcome(), Some(&outcome(3)));
}

#[test]
fn a_generation_that_has_ended_stays_ended() {
    let (sender, mut generation) = channel();
    sender.finish(outcome(0));
    for _ in 0..3 {
        assert_eq!(generation.next(), None);
        assert_eq!(poll(&mut generation, &Arc::default()), Poll::Ready(None));
        assert_eq!(generation.outcome(), Some(&outcome(0)));
    }
}

#[test]
fn an_error_is_the_last_item_and_leaves_no_outcome() {
    let (sender, mut generation) = channel();
    sender.send(token(5));
    sender.fail(Error::Engine("decode step 1: out of memory".into()));
    assert_eq!(generation.next(), Some(Ok(token(5))), "what came before is not lost");
    assert_eq!(generation.next(), Some(Err(Error::Engine("decode step 1: out of memory".into()))));
    assert_eq!(generation.next(), None);
    assert_eq!(generation.outcome(), None);
}

#[test]
fn a_sender_that_is_dropped_unfinished_is_an_error_not_a_wait_for_ever() {
    let (sender, mut generation) = channel();
    sender.send(token(5));
    drop(sender);
    assert_eq!(generation.next(), Some(Ok(token(5))));
    assert!(matches!(generation.next(), Some(Err(Error::Engine(_)))));
    assert_eq!(generation.next(), None);
}

#[test]
fn a_panic_in_the_engine_reaches_the_consumer_as_an_error() {
    let (sender, mut generation) = channel();
    let engine = thread::spawn(move || {
        sender.send(token(1));
        panic!("on purpose");
    });
    assert_eq!(generation.next(), Some(Ok(token(1))));
    assert!(matches!(generation.next(), Some(Err(Error::Engine(_)))));
    assert!(engine.join().is_err());
}

#[test]
fn a_finished_sender_adds_no_error_when_it_is_dropped() {
    for _ in 0..200 {
        let (sender, mut generation) = channel();
        let engine = thread::spawn(move || sender.finish(outcome(0)));
        // Reads the end, often before the sender's own drop.
        assert_eq!(generation.next(), None);
        engine.join().unwrap();
        assert_eq!(generation.next(), None);
        assert_eq!(generation.outcome(), Some(&outcome(0)));
    }
}

#[test]
fn a_blocked_consumer_gets_every_token_from_another_thread() {
    let (sender, mut generation) = channel();
    let engine = thread::spawn(move || {
        for id in 0..1000 {
            sender.send(token(id));
            if id % 100 == 0 {
                thread::yield_now();
            }
        }
        sender.finish(outcome(1000));
    });
    assert_eq!(ids(&mut generation), (0..1000).collect::<Vec<_>>());
    assert_eq!(generation.outcome(), Some(&outcome(1000)));
    engine.join().unwrap();
}

#[test]
fn a_generation_may_be_read_on_another_thread_than_it_was_made_on() {
    let (sender, generation) = channel();
    let consumer = thread::spawn(move || generation.collect_text());
    sender.send(token(1));
    sender.send(token(2));
    sender.finish(outcome(2));
    assert_eq!(consumer.join().unwrap(), Ok(("<1><2>".to_owned(), outcome(2))));
}

#[test]
fn collecting_the_text_passes_the_error_on() {
    let (sender, generation) = channel();
    sender.send(token(1));
    sender.fail(Error::Closed);
    assert_eq!(generation.collect_text(), Err(Error::Closed));

    let (sender, mut generation) = channel();
    sender.fail(Error::Closed);
    assert_eq!(generation.next(), Some(Err(Error::Closed)));
    assert!(matches!(generation.collect_text(), Err(Error::Engine(_))), "nothing left to tell");
}

#[test]
fn collecting_the_text_after_the_end_was_read_still_has_the_outcome() {
    let (sender, mut generation) = channel();
    sender.finish(outcome(0));
    assert_eq!(generation.next(), None);
    assert_eq!(generation.collect_text(), Ok((String::new(), outcome(0))));
}

#[test]
fn polling_is_pending_until_a_token_comes_and_then_wakes_once() {
    let (sender, mut generation) = channel();
    let count = Arc::<Count>::default();
    assert_eq!(poll(&mut generation, &count), Poll::Pending);
    assert_eq!(poll(&mut generation, &count), Poll::Pending);
    assert_eq!(count.get(), 0);
    sender.send(token(7));
    sender.send(token(8));
    assert_eq!(count.get(), 1, "the waker is used up by the first token");
    assert_eq!(poll(&mut generation, &count), Poll::Ready(Some(7)));
    assert_eq!(poll(&mut generation, &count), Poll::Ready(Some(8)));
    assert_eq!(poll(&mut generation, &count), Poll::Pending);
    sender.finish(outcome(2));
    assert_eq!(count.get(), 2, "the end wakes too");
    assert_eq!(poll(&mut generation, &count), Poll::Ready(None));
    assert_eq!(generation.outcome(), Some(&outcome(2)));
}

#[test]
fn failing_and_dropping_the_sender_wake_a_polling_consumer() {
    let ends: [fn(GenerationSender); 2] = [|sender| sender.fail(Error::Closed), drop];
    for end in ends {
        let (sender, mut generation) = channel();
        let count = Arc::<Count>::default();
        assert_eq!(poll(&mut generation, &count), Poll::Pending);
        end(sender);
        assert_eq!(count.get(), 1);
    }
}

#[test]
fn the_latest_waker_is_the_one_that_is_woken() {
    let (sender, mut generation) = channel();
    let (first, second) = (Arc::<Count>::default(), Arc::<Count>::default());
    assert_eq!(poll(&mut generation, &first), Poll::Pending);
    assert_eq!(poll(&mut generation, &second), Poll::Pending);
    sender.send(token(1));
    assert_eq!((first.get(), second.get()), (0, 1));
}

#[test]
fn a_consumer_may_mix_polling_and_iterating() {
    let (sender, mut generation) = channel();
    let count = Arc::<Count>::default();
    assert_eq!(poll(&mut generation, &count), Poll::Pending);
    let engine = thread::spawn(move || {
        for id in 0..4 {
            sender.send(token(id));
        }
        sender.finish(outcome(4));
    });
    // Blocks although a waker is registered, and takes what woke it.
    assert_eq!(generation.next(), Some(Ok(token(0))));
    engine.join().unwrap();
    assert_eq!(poll(&mut generation, &count), Poll::Ready(Some(1)));
    assert_eq!(generation.next(), Some(Ok(token(2))));
    assert_eq!(poll(&mut generation, &count), Poll::Ready(Some(3)));
    assert_eq!(generation.next(), None);
    assert_eq!(count.get(), 1);
}

/// Wakes by unparking the thread that waits: the smallest executor.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn an_executor_that_sleeps_between_polls_reads_every_token() {
    let (sender, mut generation) = channel();
    let engine = thread::spawn(move || {
        for id in 0..500 {
            sender.send(token(id));
        }
        sender.finish(outcome(500));
    });
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut seen = 0;
    loop {
        match generation.poll_next(&mut context) {
            Poll::Pending => thread::park(),
            Poll::Ready(Some(item)) => {
                assert_eq!(item.unwrap().id, seen);
                seen += 1;
            }
            Poll::Ready(None) => break,
        }
    }
    assert_eq!(seen, 500);
    engine.join().unwrap();
}

/// A waker that uses the channel from inside `wake`, as an executor that polls at once does.
struct Inline(mpsc::Sender<()>, Arc<GenerationSender>);

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.1.send(token(99));
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_waker_may_use_the_channel_because_it_runs_outside_the_lock() {
    let (sender, mut generation) = channel();
    let sender = Arc::new(sender);
    let (woken, wakes) = mpsc::channel();
    let waker = Waker::from(Arc::new(Inline(woken, Arc::clone(&sender))));
    assert!(generation.poll_next(&mut Context::from_waker(&waker)).is_pending());
    sender.send(token(1));
    wakes.recv().unwrap();
    assert_eq!(generation.next().unwrap().unwrap().id, 1);
    assert_eq!(generation.next().unwrap().unwrap().id, 99);
}

#[test]
fn dropping_the_generation_cancels_it_but_not_the_token_of_the_request() {
    let cancel = CancelToken::new();
    let (sender, generation) = Generation::channel(vec![1], cancel.clone());
    assert!(!sender.is_cancelled());
    drop(generation);
    assert!(sender.is_cancelled());
    assert!(!cancel.is_cancelled(), "other requests may share it");
    sender.send(token(1));
    sender.finish(outcome(1));
}

#[test]
fn cancelling_the_request_or_passing_its_deadline_is_seen_by_the_sender() {
    let cancel = CancelToken::new();
    let (sender, _generation) = Generation::channel(vec![1], cancel.clone());
    cancel.cancel();
    assert!(sender.is_cancelled());
    let expired = CancelToken::with_deadline(Instant::now());
    let (sender, _generation) = Generation::channel(vec![1], expired);
    assert!(sender.is_cancelled());
}

#[test]
fn a_cancelled_generation_hands_over_what_it_has_and_says_so() {
    let (sender, mut generation) = channel();
    sender.send(token(1));
    sender.finish(Outcome { finish_reason: FinishReason::Cancelled, ..outcome(1) });
    assert_eq!(ids(&mut generation), [1]);
    assert_eq!(generation.outcome().unwrap().finish_reason, FinishReason::Cancelled);
}

#[test]
fn a_dropped_generation_lets_go_of_its_waker_while_the_sender_lives() {
    let (sender, mut generation) = channel();
    let count = Arc::<Count>::default();
    assert_eq!(poll(&mut generation, &count), Poll::Pending);
    assert_eq!(Arc::strong_count(&count), 2);
    drop(generation);
    assert_eq!(Arc::strong_count(&count), 1);
    sender.send(token(1));
    drop(sender);
    assert_eq!(count.get(), 0, "nobody is left to wake");
}

#[test]
fn finish_reasons_have_the_names_of_the_protocols() {
    let reasons = [
        (FinishReason::EndOfSequence(2), "stop"),
        (FinishReason::StopToken(5), "stop"),
        (FinishReason::StopText("\n".into()), "stop"),
        (FinishReason::Length, "length"),
        (FinishReason::Cancelled, "cancelled"),
    ];
    for (reason, name) in reasons {
        assert_eq!(reason.as_str(), name);
    }
}

#[test]
fn both_ends_can_be_sent_to_other_threads_and_printed() {
    fn sendable<T: Send + std::fmt::Debug>(_: &T) {}
    fn movable<T: Unpin>(_: &T) {}
    let (sender, generation) = channel();
    sendable(&sender);
    sendable(&generation);
    movable(&generation);
    assert!(format!("{generation:?}").contains("prompt_tokens: 2"));
}

#[test]
fn the_prompts_log_probabilities_come_once_with_the_first_item() {
    let (sender, mut generation) = channel();
    let count = Arc::new(Count::default());
    assert_eq!(poll(&mut generation, &count), Poll::Pending);
    sender.send_prompt_logprobs(prompt_logprobs(&[1, 2], 0));
    assert_eq!(count.get(), 0, "there is no item yet");
    assert_eq!(generation.take_prompt_logprobs(), None);
    sender.send(token(3));
    assert_eq!(poll(&mut generation, &count), Poll::Ready(Some(3)));
    assert_eq!(generation.take_prompt_logprobs(), Some(prompt_logprobs(&[1, 2], 0)));
    assert_eq!(generation.take_prompt_logprobs(), None);
}

#[test]
fn the_prompts_log_probabilities_come_with_the_end_where_nothing_was_generated() {
    for end in [Ok(outcome(0)), Err(Error::Closed)] {
        let (sender, mut generation) = channel();
        sender.send_prompt_logprobs(prompt_logprobs(&[1, 2], 0));
        match end {
            Ok(outcome) => sender.finish(outcome),
            Err(error) => sender.fail(error),
        }
        drop(generation.next());
        assert_eq!(generation.take_prompt_logprobs(), Some(prompt_logprobs(&[1, 2], 0)));
    }
}

#[test]
fn a_consumer_sees_how_far_the_prompt_is_while_it_waits() {
    let (sender, mut generation) = channel();
    let soon = Duration::from_millis(1);
    assert_eq!(generation.prefill(), None);
    assert!(!generation.wait(soon), "nothing is there");
    let elapsed = Duration::from_secs(2);
    let progress = PrefillProgress { total: 50, cached: 10, processed: 30, elapsed };
    sender.send_prefill(progress);
    assert!(!generation.wait(soon), "progress is no token");
    assert_eq!(generation.prefill(), Some(progress));
    assert_eq!((progress.tokens_per_second(), progress.left()), (10.0, Some(elapsed)));
    sender.send(token(1));
    assert!(generation.wait(PATIENCE));
    assert_eq!(generation.next().unwrap().unwrap().id, 1);
    assert!(!generation.wait(soon));
    sender.finish(outcome(1));
    assert!(generation.wait(PATIENCE) && generation.next().is_none());
    assert!(generation.wait(PATIENCE), "it has ended");
}

#[test]
fn a_prompt_of_which_nothing_is_computed_has_no_rate() {
    let begun = PrefillProgress { total: 5, cached: 3, processed: 3, elapsed: Duration::ZERO };
    assert_eq!((begun.tokens_per_second(), begun.left()), (0.0, None));
}
