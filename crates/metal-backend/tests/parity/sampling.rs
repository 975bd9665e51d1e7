//! Options of sampling, each against its definition computed here from the model's own logits.

use std::collections::BTreeMap;

use inference_core::{Dry, GenerateOptions, PenaltyScope, Prompt, Xtc};

use crate::fixtures::{first_logits, greedy, run, tiny, token_ids};

/// Draws at temperature 1 with a seed.
fn draws(max_tokens: usize, seed: u64) -> GenerateOptions {
    let temperature = Some(1.0);
    GenerateOptions { temperature, seed: Some(seed), logprobs: false, ..greedy(max_tokens) }
}

fn prompt() -> Vec<u32> {
    tiny().encode("The licence permits").unwrap()
}

/// Log probabilities of f32 logits, in f64.
fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
    logits.iter().map(|logit| logit - most - sum.ln()).collect()
}

fn widen(logits: &[f32]) -> Vec<f64> {
    logits.iter().copied().map(f64::from).collect()
}

/// Ids from the most to the least likely.
fn ranked(logprobs: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logprobs.len()).collect();
    order.sort_by(|&a, &b| logprobs[b].total_cmp(&logprobs[a]));
    order
}

#[test]
fn a_seed_repeats_a_text_and_another_one_changes_it() {
    let text = |seed| token_ids(&run(tiny(), &prompt(), &draws(32, seed)));
    assert_eq!(text(7), text(7));
    let texts: Vec<_> = (0..6).map(text).collect();
    for (index, first) in texts.iter().enumerate() {
        assert!(texts[index + 1..].iter().all(|other| other != first));
    }
}

#[test]
fn an_unset_seed_is_told_and_repeats_the_text() {
    let prompt = Prompt::Ids(prompt());
    let options = GenerateOptions { seed: None, ..draws(16, 0) };
    let mut generation = tiny().generate(&prompt, &options).unwrap();
    let tokens: Vec<_> = generation.by_ref().map(|token| token.unwrap()).collect();
    let seed = generation.outcome().unwrap().seed;
    let again = tiny().generate(&prompt, &draws(16, seed)).unwrap();
    assert_eq!(again.map(|token| token.unwrap()).collect::<Vec<_>>(), tokens);
}

#[test]
fn the_narrowest_filters_are_greedy() {
    let expected = token_ids(&run(tiny(), &prompt(), &greedy(32)));
    for seed in 0..4 {
        let draws = draws(32, seed);
        assert_ne!(token_ids(&run(tiny(), &prompt(), &draws)), expected);
        for options in [
            GenerateOptions { top_k: Some(1), ..draws.clone() },
            GenerateOptions { top_p: Some(1e-6), ..draws.clone() },
            GenerateOptions { top_p: Some(0.0), ..draws.clone() },
            GenerateOptions { min_p: Some(1.0), ..draws.clone() },
            GenerateOptions { temperature: Some(1e-4), ..draws },
        ] {
            assert_eq!(token_ids(&run(tiny(), &prompt(), &options)), expected, "{options:?}");
        }
    }
}

#[test]
fn filters_at_their_widest_change_nothing() {
    let expected = token_ids(&run(tiny(), &prompt(), &draws(32, 3)));
    let options = GenerateOptions {
        top_k: Some(0),
        top_p: Some(1.0),
        min_p: Some(0.0),
        typical_p: Some(1.0),
        top_n_sigma: Some(0.0),
        dry: Some(Dry::default()),
        xtc: Some(Xtc { probability: 0.0, threshold: 0.1 }),
        repetition_penalty: Some(1.0),
        presence_penalty: Some(0.0),
        frequency_penalty: Some(0.0),
        ..draws(32, 3)
    };
    assert_eq!(token_ids(&run(tiny(), &prompt(), &options)), expected);
}

#[test]
fn xtc_drops_the_top_choices_but_the_last_and_protected_ids() {
    let prompt = prompt();
    let logprobs = log_softmax(&widen(&first_logits(tiny(), &prompt)));
    let threshold = 0.005_f32;
    let mut top = ranked(&logprobs);
    top.retain(|&id| logprobs[id] > f64::from(threshold).ln());
    assert!(top.len() > 3, "the threshold leaves several top choices: {top:?}");
    let mut protected = tiny().encode("\n").unwrap();
    protected.extend(&tiny().info().eos_token_ids);
    let dropped: Vec<u32> = top[..top.len() - 1].iter().map(|&id| id as u32).collect();
    let always = Some(Xtc { probability: 1.0, threshold });
    let (mut excluded, mut plain) = (0, 0);
    for seed in 0..200 {
        let first = |xtc| {
            let options = GenerateOptions { xtc, top_k: Some(40), ..draws(1, seed) };
            run(tiny(), &prompt, &options)[0].id
        };
        let id = first(always);
        assert!(!dropped.contains(&id) || protected.contains(&id), "{id} is a top choice");
        plain += usize::from(dropped.contains(&first(None)));
        let half = first(Some(Xtc { probability: 0.5, threshold }));
        excluded += usize::from(!dropped.contains(&half));
    }
    assert!(plain > 60, "top choices were drawn {plain} times without xtc");
    // Half of the draws exclude, the others do as without xtc.
    let expected = 100 + (200 - plain) / 2;
    assert!(excluded.abs_diff(expected) < 40, "{excluded} of 200, expected about {expected}");
}

#[test]
fn logit_bias_forces_and_forbids_ids() {
    let prompt = prompt();
    let best = ranked(&widen(&first_logits(tiny(), &prompt)));
    let biased = |options: GenerateOptions, bias: &[(u32, f32)]| {
        let options = GenerateOptions { logit_bias: BTreeMap::from_iter(bias.to_vec()), ..options };
        token_ids(&run(tiny(), &prompt, &options))
    };
    assert_eq!(biased(greedy(4), &[(17, 1e4)]), [17; 4]);
    assert_eq!(biased(draws(4, 0), &[(17, 1e4)]), [17; 4]);
    let forbidden: Vec<_> = best[..3].iter().map(|&id| (id as u32, f32::NEG_INFINITY)).collect();
    assert_eq!(biased(greedy(1), &forbidden), [best[3] as u32]);
    for seed in 0..50 {
        let id = biased(draws(1, seed), &forbidden)[0];
        assert!(best[..3].iter().all(|&top| top as u32 != id));
    }
}

/// mlx-lm's order: bias, repetition, presence, frequency over the last ids of `seen`, as the window
/// says.
fn adjusted(logits: &[f32], options: &GenerateOptions, seen: &[u32]) -> Vec<f64> {
    let mut logits = widen(logits);
    for (id, bias) in &options.logit_bias {
        logits[*id as usize] += f64::from(*bias);
    }
    let window = options.penalty_window_or_default();
    let mut counts = BTreeMap::<u32, u32>::new();
    for id in &seen[seen.len().saturating_sub(window)..] {
        *counts.entry(*id).or_default() += 1;
    }
    for (id, count) in counts {
        let logit = &mut logits[id as usize];
        let repetition = f64::from(options.repetition_penalty.unwrap_or(1.0));
        *logit = if *logit < 0.0 { *logit * repetition } else { *logit / repetition };
        *logit -= f64::from(options.presence_penalty.unwrap_or(0.0));
        *logit -= f64::from(options.frequency_penalty.unwrap_or(0.0)) * f64::from(count);
    }
    logits
}

#[test]
fn penalties_are_those_of_mlx_lm() {
    let plain = token_ids(&run(tiny(), &prompt(), &greedy(48)));
    let reporting = GenerateOptions { logits: true, ..greedy(48) };
    let bias = BTreeMap::from([(plain[0], -1.5), (plain[1], 0.75)]);
    for options in [
        GenerateOptions { repetition_penalty: Some(1.8), ..reporting.clone() },
        GenerateOptions { presence_penalty: Some(1.5), ..reporting.clone() },
        GenerateOptions { frequency_penalty: Some(0.7), ..reporting.clone() },
        GenerateOptions { frequency_penalty: Some(-0.2), ..reporting.clone() },
        GenerateOptions {
            repetition_penalty: Some(1.8),
            penalty_window: Some(1),
            ..reporting.clone()
        },
        GenerateOptions {
            presence_penalty: Some(2.0),
            penalty_window: Some(1000),
            ..reporting.clone()
        },
        // Over all that was generated, the prompt left out.
        GenerateOptions {
            repetition_penalty: Some(1.8),
            penalty_scope: PenaltyScope::Generated,
            ..reporting.clone()
        },
        GenerateOptions {
            presence_penalty: Some(4.0),
            penalty_scope: PenaltyScope::Generated,
            penalty_window: Some(24),
            ..reporting.clone()
        },
        GenerateOptions {
            repetition_penalty: Some(1.3),
            presence_penalty: Some(0.4),
            frequency_penalty: Some(0.3),
            penalty_window: Some(6),
            logit_bias: bias,
            ..reporting
        },
    ] {
        let tokens = run(tiny(), &prompt(), &options);
        let mut seen = match options.penalty_scope {
            PenaltyScope::Context => prompt(),
            PenaltyScope::Generated => Vec::new(),
        };
        assert_ne!(token_ids(&tokens), plain, "the penalties change something");
        for token in &tokens {
            let logits = adjusted(token.logits.as_ref().unwrap(), &options, &seen);
            let logprobs = log_softmax(&logits);
            let best = ranked(&logprobs)[0];
            let found = f64::from(token.logprob.unwrap());
            assert!((found - logprobs[token.id as usize]).abs() < 1e-5, "{found} at {seen:?}");
            assert!(logprobs[best] - logprobs[token.id as usize] < 1e-5, "{best} at {seen:?}");
            seen.push(token.id);
        }
    }
}

#[test]
fn top_logprobs_are_the_most_likely_ids_of_the_logits_in_order() {
    let options = GenerateOptions { top_logprobs: 6, logits: true, ..greedy(12) };
    let sampled = GenerateOptions { temperature: Some(1.5), seed: Some(1), ..options.clone() };
    for options in [options, sampled] {
        for token in run(tiny(), &prompt(), &options) {
            let logprobs = log_softmax(&widen(&token.logits.unwrap()));
            let chosen = token.logprob.unwrap();
            assert!((f64::from(chosen) - logprobs[token.id as usize]).abs() < 1e-5);
            let top = token.top_logprobs;
            assert!(top.iter().zip(&top[1..]).all(|(a, b)| a.logprob >= b.logprob), "{top:?}");
            let expected = ranked(&logprobs);
            assert_eq!(top.len(), 6);
            for (found, id) in top.iter().zip(expected) {
                assert_eq!(found.id as usize, id);
                assert!((f64::from(found.logprob) - logprobs[id]).abs() < 1e-5);
            }
            if let Some(found) = top.iter().find(|found| found.id == token.id) {
                assert_eq!(found.logprob, chosen);
            }
        }
    }
}

#[test]
fn draws_follow_the_filtered_probabilities_over_seeds() {
    let prompt = prompt();
    let logprobs = log_softmax(&widen(&first_logits(tiny(), &prompt)));
    let order = ranked(&logprobs);
    // What mlx-lm's definitions keep.
    let nucleus = order.iter().scan(0.0, |mass, &id| {
        let above = *mass;
        *mass += logprobs[id].exp();
        (above < f64::from(0.4_f32)).then_some(id)
    });
    let likely = |&&id: &&usize| logprobs[id] >= logprobs[order[0]] + f64::from(0.2_f32).ln();
    let plain = draws(1, 0);
    for (options, kept) in [
        (
            GenerateOptions { top_k: Some(5), temperature: Some(1.3), ..plain.clone() },
            order[..5].to_vec(),
        ),
        (
            GenerateOptions { top_p: Some(0.4), temperature: Some(0.5), ..plain.clone() },
            nucleus.collect(),
        ),
        (
            GenerateOptions { min_p: Some(0.2), ..plain },
            order.iter().filter(likely).copied().collect(),
        ),
    ] {
        assert!((3..40).contains(&kept.len()), "{} ids are kept", kept.len());
        let temperature = f64::from(options.temperature.unwrap());
        let scaled: Vec<f64> = kept.iter().map(|&id| logprobs[id] / temperature).collect();
        let expected: Vec<f64> = log_softmax(&scaled).into_iter().map(f64::exp).collect();
        let mut counts = vec![0.0; kept.len()];
        const DRAWS: usize = 600;
        for seed in 0..DRAWS as u64 {
            let options = GenerateOptions { seed: Some(seed), ..options.clone() };
            let id = run(tiny(), &prompt, &options)[0].id as usize;
            let index = kept.iter().position(|&kept| kept == id);
            counts[index.expect("a filtered id is never drawn")] += 1.0;
        }
        let cells = counts.iter().zip(&expected);
        let chi_square: f64 = cells
            .map(|(count, p)| {
                let expected = p * DRAWS as f64;
                (count - expected) * (count - expected) / expected
            })
            .sum();
        // Mean n and variance 2n for n degrees of freedom; a chance of about 1 in 10,000 beyond.
        let freedom = (kept.len() - 1) as f64;
        eprintln!("chi-square {chi_square:.1} with {freedom} degrees of freedom");
        assert!(chi_square < freedom + 5.0 * (2.0 * freedom).sqrt(), "{chi_square}: {counts:?}");
    }
}

#[test]
fn draws_follow_the_probabilities_over_steps() {
    let options = GenerateOptions { top_k: Some(2), logits: true, ..draws(1500, 11) };
    let (mut excess, mut variance, mut pairs) = (0.0, 0.0, 0.0);
    let mut last = 0.0;
    for token in run(tiny(), &prompt(), &options) {
        let logits = widen(&token.logits.unwrap());
        let order = ranked(&logits);
        let p = 1.0 / (1.0 + (logits[order[1]] - logits[order[0]]).exp());
        let hit = if token.id as usize == order[0] { 1.0 } else { 0.0 };
        assert!(hit == 1.0 || token.id as usize == order[1]);
        let residual = (hit - p) / (p * (1.0 - p)).sqrt();
        excess += hit - p;
        variance += p * (1.0 - p);
        pairs += residual * last;
        last = residual;
    }
    let (bias, correlation) = (excess / f64::sqrt(variance), pairs / f64::sqrt(1499.0));
    eprintln!("bias {bias:.2} and correlation of neighbours {correlation:.2} standard deviations");
    assert!(bias.abs() < 4.0, "{bias}");
    assert!(correlation.abs() < 4.0, "{correlation}");
}

#[test]
fn dry_breaks_a_repeat_and_its_breakers_keep_it() {
    let line = "The licence permits use. The licence permits use. The licence permits";
    let prompt = tiny().encode(line).unwrap();
    let of = |dry| {
        let options = GenerateOptions { dry, logprobs: true, ..greedy(1) };
        let token = run(tiny(), &prompt, &options).remove(0);
        (token.id, token.logprob)
    };
    let plain = of(None);
    let dry = |sequence_breakers: &[&str], multiplier| {
        let sequence_breakers = sequence_breakers.iter().map(|text| (*text).to_owned()).collect();
        of(Some(Dry { multiplier, sequence_breakers, ..Dry::default() }))
    };
    let next = prompt[tiny().encode("The licence permits").unwrap().len()];
    let biased = |bias: f32| {
        let logit_bias = [(next, bias)].into();
        let options = GenerateOptions { logit_bias, logprobs: true, ..greedy(1) };
        run(tiny(), &prompt, &options)[0].id
    };
    assert_eq!(dry(&[], 1e6).0, biased(-1e6), "what went on before goes on no more");
    assert_ne!(dry(&[], 1e6).0, next);
    assert_eq!(dry(&["permits"], 1e6), plain, "a repeat behind a breaker is too short");
    assert_eq!(dry(&[], 0.0), plain);
}
