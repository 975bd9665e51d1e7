//! Constraints that are compiled once, and how many compile at once.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use inference_core::{Constraint, Error};
use serde_json::json;

use super::{VOCAB_SIZE, constraints, tokenizer, value, write};
use crate::constraint::slots::Slots;
use crate::constraint::{KEPT, Matcher};

fn allowed(matcher: &mut Matcher) -> Vec<u32> {
    let mask = matcher.mask().unwrap();
    (0..VOCAB_SIZE as u32).filter(|id| mask.allows(*id)).collect()
}

#[test]
fn requests_with_the_same_constraint_do_not_see_each_other() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let schema = json!({"type": "array", "items": {"enum": ["red", "green", 17]}, "maxItems": 4});
    let schema = Constraint::JsonSchema(value(&schema));
    let expected: Vec<_> = (0..6)
        .map(|seed| {
            let fresh = super::constraints(&tokenizer);
            write(&mut fresh.matcher(&schema).unwrap(), &tokenizer, seed, 200)
        })
        .collect();
    // All begin before any goes on.
    let mut matchers: Vec<_> = (0..6).map(|_| constraints.matcher(&schema).unwrap()).collect();
    for (seed, (matcher, expected)) in (0..).zip(matchers.iter_mut().zip(expected)) {
        assert_eq!(write(matcher, &tokenizer, seed, 200), expected);
    }
    assert_eq!(constraints.compiled.lock().unwrap().len(), 1);
}

#[test]
fn the_constraints_used_last_are_kept() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    let regex = |i: usize| Constraint::Regex(format!("a{{{}}}", i + 1));
    for i in 0..KEPT {
        constraints.matcher(&regex(i)).unwrap();
    }
    // The first one is used again, so the second one makes room.
    constraints.matcher(&regex(0)).unwrap();
    constraints.matcher(&regex(KEPT)).unwrap();
    let kept: Vec<_> =
        constraints.compiled.lock().unwrap().iter().map(|(kept, _)| kept.clone()).collect();
    assert_eq!(kept.len(), KEPT);
    assert!(kept.contains(&regex(0)) && !kept.contains(&regex(1)) && kept.contains(&regex(KEPT)));
    assert_eq!(kept.last(), Some(&regex(KEPT)));
}

#[test]
fn a_mask_may_be_asked_for_again() {
    let tokenizer = tokenizer("qwen");
    let mut matcher =
        constraints(&tokenizer).matcher(&Constraint::Regex("[a-c]{2}x".into())).unwrap();
    for token in ["b", "c", "x"] {
        assert_eq!(allowed(&mut matcher), allowed(&mut matcher));
        matcher.accept(tokenizer.token_to_id(token).unwrap());
    }
    assert!(matcher.is_complete());
}

#[test]
fn compilations_beyond_the_limit_wait_and_are_refused_by_name() {
    let slots = Arc::new(Slots::default());
    let patience = Duration::from_millis(20);
    let mut taken: Vec<_> = (0..4).map(|_| Slots::take(&slots, 1, patience).unwrap()).collect();
    let started = Instant::now();
    assert!(matches!(Slots::take(&slots, 1, patience), Err(Error::QueueFull { limit: 4 })));
    assert!(started.elapsed() >= patience);
    let waiting = {
        let slots = Arc::clone(&slots);
        thread::spawn(move || Slots::take(&slots, 1, Duration::from_secs(60)).is_ok())
    };
    taken.pop();
    assert!(waiting.join().unwrap());
    // A slot that was waited for is free again.
    assert!(Slots::take(&slots, 1, patience).is_ok());
}

#[test]
fn many_constraints_compile_from_many_threads() {
    let tokenizer = tokenizer("qwen");
    let constraints = constraints(&tokenizer);
    thread::scope(|scope| {
        for i in 0..24 {
            let (constraints, tokenizer) = (&constraints, &tokenizer);
            scope.spawn(move || {
                let regex = Constraint::Regex(format!("[a-z]{{{}}}", 1 + i % 12));
                let mut matcher = constraints.matcher(&regex).unwrap();
                let (text, _) = write(&mut matcher, tokenizer, i, 50);
                assert_eq!(text.len() as u64, 1 + i % 12);
            });
        }
    });
}
