//! Activations of gates.

use crate::functions::{add_product, exp, softplus};

/// The activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// The tanh form of the Gaussian error linear unit.
    GeluTanh,
    /// The Gaussian error linear unit: `x / 2 · (1 + erf(x / √2))`.
    Gelu,
    /// `x` where it is above 0, else 0.
    Relu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `x` itself.
    Identity,
}

impl Activation {
    /// Gates `y` by `x`: replaces each value of `x` by its activation times that of `y`.
    #[inline(always)]
    pub(crate) fn open<const FMA: bool>(self, x: &mut [f32], y: &[f32]) {
        let both = x.iter_mut().zip(y);
        match self {
            Activation::Silu => both.for_each(|(x, &y)| *x = *x / (1.0 + exp::<FMA>(-*x)) * y),
            Activation::GeluTanh => both.for_each(|(x, &y)| *x = gelu::<FMA>(*x) * y),
            Activation::Gelu => both.for_each(|(x, &y)| *x = gelu_erf::<FMA>(*x) * y),
            // What is no number stays so.
            Activation::Relu => both.for_each(|(x, &y)| *x = if *x < 0.0 { 0.0 } else { *x } * y),
            Activation::Sigmoid => both.for_each(|(x, &y)| *x = y / (1.0 + exp::<FMA>(-*x))),
            Activation::Softplus => both.for_each(|(x, &y)| *x = softplus(*x) * y),
            Activation::Identity => both.for_each(|(x, &y)| *x *= y),
        }
    }
}

/// Factor of the cube of x in the tanh form of the Gaussian error linear unit.
pub const GELU_CUBE: f32 = 0.044_715;

/// `x / 2 · (1 + tanh(u))` is `x · sigmoid(2u)`, which does not subtract nearly equal numbers.
#[inline(always)]
fn gelu<const FMA: bool>(x: f32) -> f32 {
    /// √(8 / π).
    const SLOPE: f32 = 1.595_769;
    x / (1.0 + exp::<FMA>(-SLOPE * (x + GELU_CUBE * x * x * x)))
}

/// `x / 2 · erfc(-x / √2)`, the complement of |x| by Chebyshev's polynomial of Numerical Recipes,
/// whose relative error is 1.2e-7 at most.
#[inline(always)]
fn gelu_erf<const FMA: bool>(x: f32) -> f32 {
    const FACTORS: [f32; 9] = [
        -0.822_152_23,
        1.488_515_9,
        -1.135_204,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_7,
        -1.265_512_2,
    ];
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / add_product::<FMA>(0.5, z, 1.0);
    let mut sum = 0.170_872_77;
    for factor in FACTORS {
        sum = add_product::<FMA>(sum, t, factor);
    }
    let complement = t * exp::<FMA>(add_product::<FMA>(-z, z, sum));
    let part = if x < 0.0 { 0.5 * complement } else { 1.0 - 0.5 * complement };
    x * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_is_near_that_of_the_integral() {
        // From -8 on, by the trapezoidal rule in f64.
        let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let step = 1e-4;
        let (mut below, mut at) = (0.0, -8.0);
        for target in -70..=70 {
            let target = f64::from(target) / 10.0;
            while at + step / 2.0 < target {
                below += (density(at) + density(at + step)) / 2.0 * step;
                at += step;
            }
            for found in [gelu_erf::<true>(target as f32), gelu_erf::<false>(target as f32)] {
                let expected = target * below;
                assert!(
                    (f64::from(found) - expected).abs() < 2e-6,
                    "{target}: {found}, not {expected}"
                );
            }
        }
        assert_eq!(gelu_erf::<true>(0.0), 0.0);
        assert!(gelu_erf::<true>(f32::NAN).is_nan());
        assert_eq!(gelu_erf::<true>(f32::INFINITY), f32::INFINITY);
    }
}
