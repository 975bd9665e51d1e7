//! Activations of 16 bits as whole numbers: what that loses beside the rounding of results.

use super::plain::{Case, Kind};
use cpu_kernels::{Dtype, Level, Packing};
use half::{bf16, f16};

const M: usize = 4;
const N: usize = 64;
const K: usize = 1024;

fn rounded(dtype: Dtype, value: f64) -> f64 {
    match dtype {
        Dtype::Bf16 => bf16::from_f64(value).into(),
        _ => f16::from_f64(value).into(),
    }
}

/// How far results are from exact ones, as a share of how far exact ones are from the nearest of
/// their type.
fn distance(level: Level, case: &mut Case) -> f64 {
    case.out.fill(0xff);
    case.run(level);
    let weights: Vec<Vec<f64>> =
        (0..N).map(|row| (0..K).map(|i| case.weight(row, i)).collect()).collect();
    let (mut lost, mut least) = (0.0, 0.0);
    for (at, value) in case.values().into_iter().enumerate() {
        let products = weights[at % N].iter().enumerate();
        let exact: f64 = products.map(|(i, w)| w * case.x_at(at / N * K + i)).sum();
        lost += (f64::from(value) - exact).powi(2);
        least += (rounded(case.dtype, exact) - exact).powi(2);
    }
    (lost / least).sqrt()
}

#[test]
fn words_lose_little_beside_the_rounding_of_results() {
    for (bits, size) in [(4, 64), (8, 64), (6, 16), (3, 16)] {
        let kind = Kind::Packed(Packing::Affine { bits, scales: Dtype::Bf16 }, size);
        for (dtype, most) in [(Dtype::Bf16, 1.005), (Dtype::F16, 1.1)] {
            // The largest value of each group, of others between -1 and 1.
            for largest in [1.0, 30.0, 1000.0] {
                let mut case = Case::random(kind, dtype, M, N, K, 5);
                for group in 0..M * K / size {
                    case.set_x(group * size + group % 7, largest);
                }
                for (&level, positions) in
                    Level::available().iter().flat_map(|level| [(level, 1), (level, 64)])
                {
                    // Tiles round scaled weights.
                    if level == Level::Amx && dtype == Dtype::Bf16 {
                        continue;
                    }
                    case.positions = positions;
                    let distance = distance(level, &mut case);
                    assert!(
                        distance < most,
                        "{bits} {dtype:?} {largest} {level:?} {positions}: {distance}"
                    );
                }
            }
        }
    }
}
