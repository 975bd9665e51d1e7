//! Models that hear, against transformers: see `tests/fixtures/hearing/README.md`.

// A helper of a test may panic as the test itself may.
#![allow(clippy::unwrap_used)]

mod fixtures;
mod refusals;
mod with_others;

use fixtures::{Hearing, MODELS, greedy};

/// Every case: the prompt's ids, the logits behind it, and every greedy token.
#[test]
fn sounds_lead_to_the_tokens_of_the_reference() {
    let mut wrong = Vec::new();
    for name in MODELS {
        let hearing = Hearing::new(name);
        let model = hearing.load(Default::default());
        let unused: &[&str] = if name == "gemma3n" { &["vision tower"] } else { &[] };
        assert_eq!(model.info().unused_parts, unused, "{name}");
        for (case, golden) in hearing.cases() {
            let prompt = hearing.rendered(model.as_ref(), golden);
            assert_eq!(prompt.ids, fixtures::ids(&golden["ids"]), "{name} {case}: prompt");
            let said = greedy(model.as_ref(), &prompt.prompt());
            let logits = said[0].logits.as_ref().expect("logits were asked for");
            let furthest = fixtures::distance(logits, &hearing.last_logits(case));
            let found: Vec<u32> = said.iter().map(|token| token.id).collect();
            println!("{name} {case}: {furthest:.1e}");
            if found != fixtures::said(golden) || furthest >= fixtures::TOLERANCE {
                wrong.push(format!("{name} {case}: {furthest:.1e} away, {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
