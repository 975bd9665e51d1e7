//! Floats compared with a stated tolerance.

/// Asserts that each value lies within `tolerance` of the expected one; NaN never does.
#[track_caller]
pub fn assert_near(actual: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(actual.len(), expected.len(), "{actual:?} against {expected:?}");
    for (index, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance, "value {index} is {a}, expected {e} ± {tolerance}");
    }
}
