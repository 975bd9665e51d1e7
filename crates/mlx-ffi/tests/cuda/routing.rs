//! How our kernel for CUDA chooses and weighs experts.

use mlx_ffi::cuda::{self, Groups, Router, Score};
use mlx_ffi::{Array, Dtype, Result, ops};

use super::on_cuda::{some, use_cuda};
use super::uniform::{floats, values, wide};

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn experts_are_chosen_and_weighed_by_their_scores() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for &(t, experts, count) in some(&[(1, 8, 2), (7, 32, 4), (40, 128, 8), (3, 1000, 32)], 2) {
            for (score, is_corrected, normaliser) in [
                (Score::Softmax, false, None),
                (Score::Softmax, false, Some(0.0)),
                (Score::Sigmoid, true, Some(1e-20)),
            ] {
                let choice = (score, is_corrected, normaliser);
                routed([t, experts, count], dtype, choice, None).expect("choices");
            }
        }
        for (t, experts, count, groups) in
            [(1, 8, 2, (4, 2)), (9, 256, 8, (8, 4)), (5, 96, 6, (32, 3))]
        {
            let groups = Some(Groups { count: groups.0, kept: groups.1 });
            for (score, is_corrected) in [(Score::Sigmoid, true), (Score::Softmax, false)] {
                let choice = (score, is_corrected, Some(1e-20));
                routed([t, experts, count], dtype, choice, groups).expect("choices of groups");
            }
        }
    }
}

fn routed(
    [t, experts, count]: [i32; 3],
    dtype: Dtype,
    (score, is_corrected, normaliser): (Score, bool, Option<f32>),
    groups: Option<Groups>,
) -> Result<()> {
    let three = Array::scalar(3.0, dtype)?;
    let logits = ops::multiply(&values(&[t, 1, experts], 2, dtype), &three)?;
    let corrections = floats(experts as usize, 8);
    let added = Array::from_f32(&corrections, &[experts])?;
    let correction_given = is_corrected.then_some(&added);
    let correction = correction_given;
    // Each expert has a weight of its own where nothing is corrected.
    let scales = values(&[experts], 9, dtype);
    let scaled = (!is_corrected).then_some(&scales);
    let each = wide(&scales).to_vec_f32()?;
    let router = Router {
        score,
        correction,
        normaliser,
        factor: 1.5,
        choices: count,
        groups,
        scales: scaled,
    };
    assert!(cuda::takes_route(&logits, &router));
    let (indices, weights) = cuda::route(&logits, &router)?;
    let indices = ops::astype(&indices, Dtype::F32)?.to_vec_f32()?;
    let weights = wide(&weights).to_vec_f32()?;
    let logits = wide(&logits).to_vec_f32()?;
    for row in 0..t as usize {
        let logits = &logits[row * experts as usize..][..experts as usize];
        let total: f32 = logits.iter().map(|logit| logit.exp()).sum();
        let of = |logit: f32| match score {
            Score::Softmax => logit.exp() / total,
            Score::Sigmoid => 1.0 / (1.0 + (-logit).exp()),
        };
        let scores: Vec<f32> = logits.iter().map(|logit| of(*logit)).collect();
        let more = |expert: usize| if is_corrected { corrections[expert] } else { 0.0 };
        let by = |expert: usize| scores[expert] + more(expert);
        let own = row * count as usize..(row + 1) * count as usize;
        let chosen: Vec<usize> = indices[own.clone()].iter().map(|index| *index as usize).collect();
        let sum: f32 = chosen.iter().map(|expert| scores[*expert]).sum();
        let divisor = normaliser.map_or(1.0, |normaliser| sum + normaliser);
        let lowest = chosen.iter().map(|expert| by(*expert)).fold(f32::INFINITY, f32::min);
        for (place, expert) in chosen.iter().enumerate() {
            assert!(!chosen[..place].contains(expert), "{chosen:?}");
            let own_scale = if is_corrected { 1.0 } else { each[*expert] };
            let expected = 1.5 * scores[*expert] / divisor * own_scale;
            let found = weights[own.start + place];
            assert!(
                (found - expected).abs() < 1e-2 * expected.abs().max(1e-3),
                "{found} {expected}"
            );
        }
        // Of the groups, how good each is.
        let size = groups.map_or(experts, |groups| experts / groups.count) as usize;
        let of_groups: Vec<f32> = (0..experts as usize / size)
            .map(|group| {
                let mut all: Vec<f32> = (group * size..(group + 1) * size).map(by).collect();
                all.sort_by(f32::total_cmp);
                all.iter().rev().take(2).sum()
            })
            .collect();
        let is_kept = |expert: usize| {
            let better = of_groups.iter().filter(|other| **other > of_groups[expert / size]);
            groups.is_none_or(|groups| better.count() < groups.kept as usize)
        };
        assert!(chosen.iter().all(|expert| is_kept(*expert)), "{chosen:?} of {of_groups:?}");
        let others = (0..experts as usize).filter(|expert| !chosen.contains(expert));
        let others = others.filter(|expert| is_kept(*expert));
        let best = others.map(by).fold(f32::NEG_INFINITY, f32::max);
        assert!(best <= lowest + 1e-6, "{best} is better than {lowest}: {chosen:?}");
    }
    Ok(())
}
