//! Draws from explicit keys. Literal numbers are from Python's mlx 0.32.2.

use super::near::assert_near;
use mlx_ffi::{Array, Dtype, Result, ops, random};

#[test]
fn a_key_draws_the_same_values_as_in_python() -> Result<()> {
    let key = random::key(7)?;
    assert_eq!(key.to_vec_u32()?, [0, 7]);
    let uniform = random::uniform(&[3], &key)?.to_vec_f32()?;
    assert_near(&uniform, &[0.224_984_63, 0.426_160_42, 0.453_609_35], 1e-7);
    let normal = random::normal(&[3], Dtype::F32, &key)?.to_vec_f32()?;
    assert_near(&normal, &[-0.755_466_2, -0.186_157_93, -0.116_547_35], 1e-5);
    let half = random::normal(&[2], Dtype::Bf16, &key)?;
    assert_eq!(half.dtype(), Dtype::Bf16);
    assert_near(&half.to_vec_f32()?, &[-1.687_5, 1.601_562_5], 8e-3);
    Ok(())
}

#[test]
fn a_seed_of_64_bits_keeps_both_halves() -> Result<()> {
    assert_eq!(random::key(0x1234_5678_9abc_def0)?.to_vec_u32()?, [0x1234_5678, 0x9abc_def0]);
    Ok(())
}

#[test]
fn equal_keys_draw_equal_values_and_others_differ() -> Result<()> {
    let draw = |seed| random::uniform(&[64], &random::key(seed)?)?.to_vec_f32();
    assert_eq!(draw(1)?, draw(1)?);
    assert_ne!(draw(1)?, draw(2)?);
    assert!(draw(1)?.iter().all(|value| (0.0..1.0).contains(value)));
    Ok(())
}

#[test]
fn split_gives_two_other_keys() -> Result<()> {
    let (first, second) = random::split(&random::key(7)?)?;
    assert_eq!(first.to_vec_u32()?, [966_301_609, 989_289_821]);
    assert_eq!(second.to_vec_u32()?, [1_948_237_315, 1_058_547_403]);
    Ok(())
}

#[test]
fn split_reports_what_is_wrong_with_a_key() -> Result<()> {
    let error = random::split(&ops::zeros(&[3], Dtype::U32)?).expect_err("a key has two values");
    assert!(error.to_string().contains("(3)"), "{error}");
    Ok(())
}

#[test]
fn normal_values_have_the_stated_mean_and_deviation() -> Result<()> {
    let values = random::normal(&[4000], Dtype::F32, &random::key(3)?)?.to_vec_f32()?;
    let mean = values.iter().sum::<f32>() / 4000.0;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / 4000.0;
    // The mean deviates by 1/√4000 = 0.016, the variance by √(2/4000) = 0.022: four times that.
    assert!(mean.abs() < 0.064, "{mean}");
    assert!((variance - 1.0).abs() < 0.09, "{variance}");
    Ok(())
}

#[test]
fn categorical_draws_as_often_as_softmax_says() -> Result<()> {
    const DRAWS: i32 = 4000;
    let logits = Array::from_f32(&[0.0, 1.0, 2.0, f32::NEG_INFINITY], &[1, 4])?;
    let many = ops::broadcast_to(&logits, &[DRAWS, 4])?;
    let drawn = random::categorical(&many, -1, &random::key(11)?)?;
    assert_eq!((drawn.shape(), drawn.dtype()), (&[DRAWS][..], Dtype::U32));
    let mut counts = [0.0; 4];
    for index in drawn.to_vec_u32()? {
        counts[index as usize] += 1.0 / DRAWS as f32;
    }
    // A frequency near 0.5 deviates by √(0.25/4000) = 0.008: four times that.
    assert_near(&counts, &[0.090_03, 0.244_73, 0.665_24, 0.0], 0.032);
    assert_eq!(counts[3], 0.0);
    Ok(())
}

#[test]
fn categorical_equals_the_draw_in_python() -> Result<()> {
    let logits = Array::from_f32(&[0.0, 1.0, 2.0, 2.0, 1.0, 0.0], &[2, 3])?;
    assert_eq!(random::categorical(&logits, -1, &random::key(7)?)?.to_vec_u32()?, [2, 0]);
    Ok(())
}
