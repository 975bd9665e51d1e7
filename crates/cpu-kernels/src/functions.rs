//! Functions of one number that the compiler turns into vectors.

/// `x w + sum`; `FMA`: rounded once.
#[inline(always)]
pub(crate) fn add_product<const FMA: bool>(x: f32, w: f32, sum: f32) -> f32 {
    if FMA { x.mul_add(w, sum) } else { sum + x * w }
}

/// `ln(1 + exp(x))`.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// The sum of the lanes of a sum, pairs of halves first.
#[inline(always)]
pub(crate) fn sum_of_lanes<const N: usize>(mut lanes: [f32; N]) -> f32 {
    let mut width = N / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// e to the power of `x`, to about the last bit; 0 below −87.
#[inline(always)]
pub(crate) fn exp<const FMA: bool>(x: f32) -> f32 {
    // Adding it leaves the nearest whole number in the lowest bits.
    const WHOLE: f32 = 12_582_912.0;
    let add = |a: f32, b: f32, c: f32| if FMA { a.mul_add(b, c) } else { a * b + c };
    let x_low = if x > 88.0 { 88.0 } else { x };
    let shifted = add(x_low, std::f32::consts::LOG2_E, WHOLE);
    let whole = shifted - WHOLE;
    // ln 2 in two parts, so that the product with a whole number is exact enough.
    let rest = add(whole, 2.121_944_4e-4, add(whole, -0.693_359_4, x_low));
    let mut sum = 1.987_569_1e-4;
    for factor in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        sum = add(sum, rest, factor);
    }
    let value = add(sum, rest * rest, rest + 1.0);
    let scaled = f32::from_bits(value.to_bits().wrapping_add(shifted.to_bits() << 23));
    let kept = if x < -87.0 { 0.0 } else { scaled };
    let kept = if x > 88.0 { f32::INFINITY } else { kept };
    if x.is_nan() { x } else { kept }
}

/// The hyperbolic tangent of `x`, to about the last bits.
#[inline(always)]
pub(crate) fn tanh<const FMA: bool>(x: f32) -> f32 {
    let small = x.abs();
    // Near 0 the other form would subtract nearly equal numbers.
    let square = x * x;
    let series = x * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * (17.0 / 315.0))));
    let full = (1.0 - 2.0 / (exp::<FMA>(2.0 * small) + 1.0)).copysign(x);
    if small < 0.1 { series } else { full }
}

/// The square of the sine of `x`, to about 1e-6, for |x| below some thousands.
#[inline(always)]
pub(crate) fn sine_squared<const FMA: bool>(x: f32) -> f32 {
    // Adding it leaves the nearest whole number in the lowest bits.
    const WHOLE: f32 = 12_582_912.0;
    let add = |a: f32, b: f32, c: f32| if FMA { a.mul_add(b, c) } else { a * b + c };
    let whole = add(x, std::f32::consts::FRAC_1_PI, WHOLE) - WHOLE;
    // π in two parts, so that the product with a whole number is exact enough.
    let rest = add(whole, -9.676_536e-4, add(whole, -3.140_625, x)).clamp(-1.6, 1.6);
    let square = rest * rest;
    let mut sum = -2.505_210_8e-8;
    for factor in [2.755_732e-6, -1.984_127e-4, 8.333_333e-3, -1.666_666_7e-1, 1.0] {
        sum = add(sum, square, factor);
    }
    sum * sum * square
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_squared_sine_is_near_that_of_the_library() {
        for i in -90_000..=90_000 {
            let x = i as f32 / 100.0;
            let exact = f64::from(x).sin().powi(2);
            for found in [sine_squared::<true>(x), sine_squared::<false>(x)] {
                assert!((f64::from(found) - exact).abs() < 1e-6, "{x}: {found}, not {exact}");
            }
        }
    }

    #[test]
    fn exp_and_tanh_are_near_those_of_the_library() {
        for i in -9000..=9000 {
            let x = i as f32 / 100.0;
            for (found, exact) in [
                (exp::<true>(x), f64::from(x).exp()),
                (exp::<false>(x), f64::from(x).exp()),
                (tanh::<true>(x / 10.0), f64::from(x / 10.0).tanh()),
            ] {
                if exact < 1e-37 && exact > -1e-37 || exact > 1e38 {
                    continue;
                }
                let error = (f64::from(found) / exact - 1.0).abs();
                assert!(error < 1e-6, "{x}: {found}, not {exact}");
            }
        }
        assert_eq!(exp::<true>(0.0), 1.0);
        assert_eq!(exp::<true>(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp::<false>(f32::INFINITY), f32::INFINITY);
        assert!(exp::<true>(f32::NAN).is_nan() && tanh::<true>(f32::NAN).is_nan());
    }
}
