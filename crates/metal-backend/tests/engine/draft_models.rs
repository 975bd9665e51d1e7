//! Drafts by a second model, and by a layer of the model's own: rows get the tokens that they get
//! without.

use std::fs;
use std::path::Path;

use inference_core::{Error, GenerateOptions, LoadOptions, Speculate};
use serde_json::json;
use tempfile::TempDir;

use crate::drafts::{ids, repeated, run, verifying};
use crate::tiny::{Checkpoint, tokenizer};
use crate::{drawn, some};

/// The options of `load` with the model in this folder as the drafter.
fn by(folder: &TempDir, load: LoadOptions) -> LoadOptions {
    LoadOptions { draft_model: Some(folder.path().to_owned()), ..load }
}

/// Models of the same vocabulary: as large as `Checkpoint::with_sizes(2, 8, 16)`, and others.
pub fn drafters() -> [Checkpoint; 3] {
    let plain = Checkpoint::with_sizes(2, 8, 16);
    let sliding = Checkpoint::with_sizes(3, 8, 16)
        .config("use_sliding_window", json!(true))
        .config("sliding_window", json!(9));
    [plain, sliding, Checkpoint::latent(1)]
}

#[test]
fn tokens_are_those_without_a_drafter_and_its_likeness_is_accepted() {
    let checkpoint = Checkpoint::with_sizes(2, 8, 16);
    let plain = checkpoint.load(&verifying()).unwrap();
    let (mut shares, mut unlike) = (Vec::new(), 0);
    for (at, drafter) in drafters().iter().enumerate() {
        let folder = drafter.write();
        let model = checkpoint.load(&by(&folder, verifying())).unwrap();
        assert!(model.info().weight_bytes > plain.info().weight_bytes);
        let (mut verified, mut accepted) = (0, 0);
        for (salt, options) in [some(90), drawn(90, 3), some(1), some(2)].into_iter().enumerate() {
            for length in [1, 2, 40, 600] {
                let prompt = repeated(salt as u32, length);
                let without = run(&*plain, &prompt, &options);
                for draft_tokens in [None, Some(1), Some(7), Some(0)] {
                    let options = GenerateOptions { draft_tokens, ..options.clone() };
                    let with = run(&*model, &prompt, &options);
                    assert_eq!(ids(&with), ids(&without), "{at}: {length}, {options:?}");
                    let drafts = with.2.draft_tokens;
                    assert!(drafts == 0 || draft_tokens != Some(0));
                    assert!(drafts > 0 || draft_tokens == Some(0) || ids(&with).len() < 4);
                    if options.seed.is_none() {
                        verified += drafts;
                        accepted += with.2.accepted_draft_tokens;
                    }
                }
            }
        }
        shares.push(accepted as f64 / verified as f64);
        unlike += verified - accepted;
    }
    assert!(shares[0] > 0.99, "a model drafts what it says itself: {shares:?}");
    assert!(shares[1] < 0.9 && unlike > 100, "{shares:?}");
}

#[test]
fn a_prefix_and_its_drafter_go_on_together() {
    let checkpoint = Checkpoint::with_sizes(2, 8, 16);
    let folder = checkpoint.write();
    let kept = tempfile::tempdir().unwrap();
    let load = LoadOptions {
        prefix_cache: Some(1 << 20),
        prefix_cache_dir: Some(kept.path().to_owned()),
        ..LoadOptions::default()
    };
    let prompt = repeated(4, 700);
    let without = run(&*checkpoint.load(&verifying()).unwrap(), &prompt, &some(60));
    for turn in 0..2 {
        let model = checkpoint.load(&by(&folder, load.clone())).unwrap();
        for again in 0..2 {
            let with = run(&*model, &prompt, &some(60));
            assert_eq!(ids(&with), ids(&without));
            assert_eq!(with.2.cached_prompt_tokens > 0, turn + again > 0);
            assert_eq!(with.2.accepted_draft_tokens, with.2.draft_tokens, "{turn}, {again}");
        }
    }
    // A row that is computed by itself takes in all that it drafts from.
    let by_itself = LoadOptions { batch_invariant: true, ..load.clone() };
    let model = checkpoint.load(&by(&folder, by_itself)).unwrap();
    for _ in 0..2 {
        let with = run(&*model, &prompt, &some(60));
        assert_eq!((ids(&with), with.2.cached_prompt_tokens), (ids(&without), 0));
        assert!(with.2.draft_tokens > 0);
    }
    // What it kept holds states of both: without the drafter it is of no use.
    let alone = run(&*checkpoint.load(&load).unwrap(), &prompt, &some(60));
    assert_eq!((ids(&alone), alone.2.cached_prompt_tokens), (ids(&without), 0));
}

#[test]
fn what_cannot_draft_is_refused_by_name() {
    let checkpoint = Checkpoint::with_sizes(2, 8, 16);
    let refusal = |folder: &Path| {
        let draft_model = Some(folder.to_owned());
        let load = LoadOptions { draft_model, ..LoadOptions::default() };
        let error = checkpoint.load(&load).err().unwrap();
        (error.clone(), error.to_string())
    };
    let hybrid = Checkpoint::hybrid(4).write();
    let (_, said) = refusal(hybrid.path());
    assert!(said.contains("cannot draft") && said.contains("recurrent"), "{said}");
    assert!(said.contains(&hybrid.path().display().to_string()), "{said}");

    let mut other = tokenizer();
    let vocab = other["model"]["vocab"].as_object_mut().unwrap();
    let (first, last) = ("a".to_owned(), "b".to_owned());
    let [a, b] = [&first, &last].map(|token| vocab[token].clone());
    vocab.insert(first, b);
    vocab.insert(last, a);
    let swapped =
        Checkpoint::with_sizes(2, 8, 16).file("tokenizer.json", other.to_string()).write();
    let (error, said) = refusal(swapped.path());
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "draft_model"), "{said}");
    assert!(said.contains("another vocabulary") && said.contains("`b`"), "{said}");

    let (_, said) = refusal(Path::new("/nowhere/at/all"));
    assert!(said.contains("/nowhere/at/all"), "{said}");
    let damaged = checkpoint.write();
    fs::write(damaged.path().join("config.json"), "{").unwrap();
    let (_, said) = refusal(damaged.path());
    assert!(said.contains(&damaged.path().display().to_string()), "{said}");
}

#[test]
fn a_drafter_whose_drafts_do_not_pay_is_asked_for_none_and_comes_back_for_the_next_request() {
    let checkpoint = Checkpoint::with_sizes(2, 8, 16);
    let folder = Checkpoint::with_sizes(3, 8, 16).write();
    let plain = checkpoint.load(&LoadOptions::default()).unwrap();
    let model = checkpoint.load(&by(&folder, LoadOptions::default())).unwrap();
    for salt in 0..3 {
        let prompt = repeated(salt, 30);
        let with = run(&*model, &prompt, &some(400));
        assert_eq!(ids(&with), ids(&run(&*plain, &prompt, &some(400))));
        // A pass of a model this small takes hardly less than a step and its drafter's.
        assert!(with.2.draft_tokens < 800, "{}", with.2.draft_tokens);
    }
}

/// The options of a load without drafts.
fn off() -> LoadOptions {
    LoadOptions { speculate: Speculate::Off, ..LoadOptions::default() }
}

#[test]
fn a_layer_that_predicts_further_tokens_drafts_and_changes_none() {
    for (name, checkpoint) in [
        ("hybrid", Checkpoint::hybrid_that_drafts(4)),
        ("latent", Checkpoint::latent_that_drafts(2)),
    ] {
        for (is_right, checkpoint) in [(false, checkpoint.clone()), (true, checkpoint.foreseeing())]
        {
            let plain = checkpoint.load(&off()).unwrap();
            assert_eq!(plain.info().unused_parts, ["MTP layers"], "{name}");
            let mtp = LoadOptions { speculate: Speculate::Mtp, ..verifying() };
            let with = checkpoint.load(&mtp).unwrap();
            assert!(with.info().unused_parts.is_empty(), "{name}");
            assert!(with.info().weight_bytes > plain.info().weight_bytes);
            let (mut verified, mut accepted) = (0, 0);
            for (salt, length) in [(1, 1), (2, 2), (3, 40), (4, 600)] {
                let prompt = repeated(salt, length);
                let asked = [some(80), drawn(80, u64::from(salt)), some(2)];
                for (at, options) in asked.into_iter().enumerate() {
                    let without = run(&*plain, &prompt, &options);
                    let found = run(&*with, &prompt, &options);
                    assert_eq!(ids(&found), ids(&without), "{name}, {length}, {options:?}");
                    if at == 0 {
                        verified += found.2.draft_tokens;
                        accepted += found.2.accepted_draft_tokens;
                    }
                }
            }
            assert!(verified > 50, "{name}: {verified}");
            assert_eq!(accepted == verified, is_right, "{name}: {accepted} of {verified}");
        }
    }
}

#[test]
fn who_drafts_is_chosen_and_refused_by_name() {
    let refusal = |checkpoint: &Checkpoint, load: LoadOptions| {
        checkpoint.load(&load).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let plain = Checkpoint::with_sizes(2, 8, 16);
    let mtp = || LoadOptions { speculate: Speculate::Mtp, ..LoadOptions::default() };
    let said = refusal(&plain, mtp());
    assert!(said.contains("speculate") && said.contains("no layer"), "{said}");

    // A layer of which a part is missing is left aside, unless it is asked for.
    let mut torn = Checkpoint::hybrid_that_drafts(4);
    torn.tensors.remove("mtp.layers.0.mlp.up_proj.weight");
    assert_eq!(torn.load(&verifying()).unwrap().info().unused_parts, ["MTP layers"]);
    let said = refusal(&torn, mtp());
    assert!(said.contains("mtp.layers.0.mlp.up_proj.weight"), "{said}");

    let folder = plain.write();
    for speculate in [Speculate::Mtp, Speculate::Ngram, Speculate::Off] {
        let said = refusal(&plain, LoadOptions { speculate, ..by(&folder, off()) });
        assert!(said.contains("draft_model"), "{said}");
    }
    let draft = LoadOptions { speculate: Speculate::Draft, ..LoadOptions::default() };
    let said = refusal(&plain, draft);
    assert!(said.contains("`draft` asks for a `draft_model`"), "{said}");

    let model = plain.load(&off()).unwrap();
    let asked = GenerateOptions { draft_tokens: Some(2), ..some(5) };
    let error = model.generate(&inference_core::Prompt::Ids(vec![3]), &asked).err().unwrap();
    assert!(matches!(&error, Error::Unsupported { what, .. } if what == "draft_tokens"), "{error}");
    // Lookups for requests that say nothing.
    let ngram = LoadOptions { speculate: Speculate::Ngram, ..verifying() };
    let model = plain.load(&ngram).unwrap();
    let options = GenerateOptions { logit_bias: [(5, 1000.0)].into(), ..some(40) };
    assert!(run(&*model, &[5; 9], &options).2.accepted_draft_tokens > 10);
}
