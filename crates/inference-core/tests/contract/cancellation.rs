//! Cancel tokens: the shared flag and the deadline.

use std::time::{Duration, Instant};

use inference_core::{CancelToken, GenerateOptions};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_new_token_is_not_cancelled_and_has_no_deadline() {
    let token = CancelToken::new();
    assert!(!token.is_cancelled());
    assert_eq!(token.deadline(), None);
}

#[test]
fn cancelling_one_clone_cancels_all_of_them() {
    let token = CancelToken::new();
    let clones = [token.clone(), token.clone().clone()];
    clones[1].cancel();
    assert!(token.is_cancelled());
    assert!(clones[0].is_cancelled());
}

#[test]
fn cancelling_twice_changes_nothing() {
    let token = CancelToken::new();
    token.cancel();
    token.cancel();
    assert!(token.is_cancelled());
}

#[test]
fn two_tokens_made_apart_share_nothing() {
    let (one, other) = (CancelToken::new(), CancelToken::new());
    one.cancel();
    assert!(!other.is_cancelled());
}

#[test]
fn cancelling_is_seen_from_another_thread() {
    let token = CancelToken::new();
    let seen = {
        let token = token.clone();
        std::thread::spawn(move || {
            while !token.is_cancelled() {
                std::thread::yield_now();
            }
        })
    };
    token.cancel();
    seen.join().unwrap();
}

#[test]
fn a_deadline_in_the_past_counts_as_cancelled_and_one_in_the_future_does_not() {
    let now = Instant::now();
    assert!(CancelToken::with_deadline(now).is_cancelled());
    assert!(!CancelToken::with_deadline(now + HOUR).is_cancelled());
}

#[test]
fn a_token_with_a_deadline_can_be_cancelled_before_it() {
    let token = CancelToken::with_deadline(Instant::now() + HOUR);
    token.cancel();
    assert!(token.is_cancelled());
}

#[test]
fn the_earlier_of_two_deadlines_counts() {
    let soon = Instant::now() + HOUR;
    let late = soon + HOUR;
    assert_eq!(CancelToken::with_deadline(soon).and_deadline(late).deadline(), Some(soon));
    assert_eq!(CancelToken::with_deadline(late).and_deadline(soon).deadline(), Some(soon));
    assert_eq!(CancelToken::new().and_deadline(soon).deadline(), Some(soon));
}

#[test]
fn a_token_with_an_added_deadline_shares_the_flag_both_ways_but_not_the_deadline() {
    let token = CancelToken::new();
    let expired = token.and_deadline(Instant::now());
    assert!(expired.is_cancelled());
    assert!(!token.is_cancelled(), "the deadline belongs to the derived token alone");

    let derived = token.and_deadline(Instant::now() + HOUR);
    derived.cancel();
    assert!(token.is_cancelled());
}

#[test]
fn a_clone_of_the_options_shares_their_token() {
    let options = GenerateOptions::default();
    options.clone().cancel.cancel();
    assert!(options.cancel.is_cancelled());
    assert!(!GenerateOptions::default().cancel.is_cancelled());
}
