//! Models that see, against transformers: see `tests/fixtures/vision/README.md`.

// A helper of a test may panic as the test itself may.
#![allow(clippy::unwrap_used)]

mod converted;
mod fixtures;
mod sizes;
mod with_others;

use fixtures::{MODELS, Seeing, greedy};

/// Every case: the prompt's ids, the logits behind it, and every greedy token.
#[test]
fn pictures_lead_to_the_tokens_of_the_reference() {
    let mut wrong = Vec::new();
    for name in MODELS {
        let seeing = Seeing::new(name);
        let model = seeing.load(Default::default());
        for (case, golden) in seeing.cases() {
            let prompt = seeing.rendered(model.as_ref(), golden);
            assert_eq!(prompt.ids, fixtures::ids(&golden["ids"]), "{name} {case}: prompt");
            let said = greedy(model.as_ref(), &prompt.prompt());
            let logits = said[0].logits.as_ref().expect("logits were asked for");
            let expected = seeing.last_logits(case);
            let furthest = fixtures::distance(logits, &expected);
            let found: Vec<u32> = said.iter().map(|token| token.id).collect();
            println!("{name} {case}: {furthest:.1e}");
            let wanted = fixtures::ids(&golden["greedy"]);
            // A token that ends a generation is no part of it.
            let wanted = &wanted[..wanted.len() - usize::from(wanted.len() < fixtures::MOST)];
            if found != wanted || furthest >= seeing.tolerance() {
                wrong
                    .push(format!("{name} {case}: {furthest:.1e} away, {found:?}, not {wanted:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
