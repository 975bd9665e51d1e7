//! Speed of each kind of product at the sizes of Qwen3-0.6B, beside a plain sum of as many bytes.
//!
//! `cargo run --release -p cpu-kernels --example bandwidth -- [KIND] [THREADS] [LEVEL] [int8]`
//! prints, for one row, the bytes of weights read per second, for 8 rows that are steps and prompts
//! of 64 and 512 the operations per second. Matrices are walked through in a set that is larger
//! than the caches.

use std::io::Write;
use std::time::{Duration, Instant};

use cpu_kernels::{
    Dtype, Level, Packing, Problem, Weights, matmul, rounded_matmul, set_level, set_threads,
    threads,
};

const SIZES: [(usize, usize); 4] = [(1024, 1024), (3072, 1024), (1024, 3072), (151936, 1024)];

struct Kind {
    name: &'static str,
    packing: Option<Packing>,
    dense: Dtype,
    group_size: usize,
}

impl Kind {
    /// Bytes of codes, scales and biases of `n` rows of `k`.
    fn sizes(&self, n: usize, k: usize) -> [usize; 3] {
        match self.packing {
            None => [n * k * self.dense.size(), 0, 0],
            Some(packing) => {
                let scales = n * k / self.group_size * packing.scale_size();
                let affine = matches!(packing, Packing::Affine { .. });
                [n * k / 8 * packing.bits(), scales, if affine { scales } else { 0 }]
            }
        }
    }

    fn weights<'a>(&self, n: usize, k: usize, bytes: &'a [u8]) -> Weights<'a> {
        let [data, scales, biases] = self.sizes(n, k);
        let Some(packing) = self.packing else {
            return Weights::Dense { dtype: self.dense, data: &bytes[..data] };
        };
        Weights::Packed {
            packing,
            group_size: self.group_size,
            data: &bytes[..data],
            scales: &bytes[data..][..scales],
            biases: &bytes[data + scales..][..biases],
        }
    }
}

fn kinds() -> Vec<Kind> {
    let in_groups = |name, bits, scales, group_size| Kind {
        name,
        packing: Some(Packing::Affine { bits, scales }),
        dense: Dtype::F32,
        group_size,
    };
    let affine = |name, bits| in_groups(name, bits, Dtype::Bf16, 64);
    // As K-quants of GGUF become them.
    let k_quant = |name, bits, group_size| in_groups(name, bits, Dtype::F16, group_size);
    let dense = |name, dense| Kind { name, packing: None, dense, group_size: 0 };
    let float = |name, packing, group_size| Kind {
        name,
        packing: Some(packing),
        dense: Dtype::F32,
        group_size,
    };
    vec![
        affine("affine4", 4),
        affine("affine8", 8),
        dense("bf16", Dtype::Bf16),
        affine("affine2", 2),
        affine("affine3", 3),
        affine("affine5", 5),
        affine("affine6", 6),
        k_quant("q2_k", 2, 16),
        k_quant("q3_k", 3, 16),
        k_quant("q4_k", 4, 32),
        k_quant("q6_k", 6, 16),
        float("mxfp4", Packing::Mxfp4, 32),
        float("mxfp8", Packing::Mxfp8, 32),
        float("nvfp4", Packing::Nvfp4, 16),
        dense("f16", Dtype::F16),
        dense("f32", Dtype::F32),
    ]
}

/// The fastest of several runs, each of at least 30 ms: what the machine does when left alone.
fn fastest(mut work: impl FnMut()) -> Duration {
    work();
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_millis(30) {
            work();
            count += 1;
        }
        best = best.min(start.elapsed() / count);
    }
    best
}

/// Bytes per second of a sum over `bytes` on all threads.
fn plain_sum(bytes: &[u8]) -> f64 {
    let part = bytes.len() / threads() / 64 * 64;
    let mut sums = vec![0u64; threads()];
    let time = fastest(|| {
        std::thread::scope(|scope| {
            for (sum, bytes) in sums.iter_mut().zip(bytes.chunks_exact(part)) {
                scope.spawn(move || {
                    let mut lanes = [0u64; 32];
                    for words in bytes.as_chunks::<8>().0.as_chunks::<32>().0 {
                        for (lane, word) in lanes.iter_mut().zip(words) {
                            *lane = lane.wrapping_add(u64::from_le_bytes(*word));
                        }
                    }
                    *sum = lanes.iter().fold(0, |a, b| a.wrapping_add(*b));
                });
            }
        });
    });
    std::hint::black_box(&sums);
    bytes.len() as f64 / time.as_secs_f64()
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let only = arguments.next().unwrap_or_default();
    set_threads(arguments.next().and_then(|n| n.parse().ok()).unwrap_or(0));
    if let Some(name) = arguments.next() {
        let level = Level::available().iter().find(|level| level.name() == name);
        let Some(level) = level else {
            let names: Vec<&str> = Level::available().iter().map(|level| level.name()).collect();
            return Err(std::io::Error::other(format!("no level {name} here, only {names:?}")));
        };
        set_level(Some(*level)).map_err(std::io::Error::other)?;
    }
    let rounded = arguments.next().as_deref() == Some("int8");
    let mut out = std::io::stdout().lock();
    // Small numbers in every type: bytes of 0x3c are 0.0115 in bf16 and 1.06 in f16.
    let bytes = vec![0x3cu8; 640 << 20];
    let sum = plain_sum(&bytes);
    writeln!(out, "{} threads; a plain sum reads {:.1} GB/s", threads(), sum / 1e9)?;
    let tiny = || {
        let (x, weights) =
            ([0; 64], Weights::Dense { dtype: Dtype::Bf16, data: &bytes[..64 * 64] });
        let mut y = [0; 128];
        matmul(Problem {
            m: 1,
            positions: 1,
            n: 64,
            k: 32,
            dtype: Dtype::Bf16,
            x: &x,
            weights,
            out: &mut y,
        })
        .expect("fits");
    };
    writeln!(out, "a product of 64 x 32 takes {:.1} us", fastest(tiny).as_secs_f64() * 1e6)?;
    writeln!(
        out,
        "{:8} {:4} {:>12} {:>12} {:>6} {:>10} {:>10} {:>10}",
        "weights", "x", "n x k", "m=1 GB/s", "of sum", "m=8 GF/s", "m=64 GF/s", "m=512 GF/s"
    )?;
    for kind in kinds().iter().filter(|kind| only.is_empty() || only == "all" || kind.name == only)
    {
        for dtype in [Dtype::Bf16, Dtype::F16, Dtype::F32] {
            for (n, k) in SIZES {
                let size: usize = kind.sizes(n, k).iter().sum();
                let x = vec![0x3c; 512 * k * dtype.size()];
                let mut y = vec![0; 512 * n * dtype.size()];
                let mut run = |m: usize, positions: usize, from: usize| {
                    let weights = kind.weights(n, k, &bytes[from..][..size]);
                    let (x, out) = (&x[..m * k * dtype.size()], &mut y[..m * n * dtype.size()]);
                    let problem = Problem { m, positions, n, k, dtype, x, weights, out };
                    if rounded { rounded_matmul(problem) } else { matmul(problem) }.expect("fits");
                };
                let mut from = 0;
                let one = fastest(|| {
                    run(1, 1, from);
                    from = if from + 2 * size > bytes.len() { 0 } else { from + size };
                });
                let rate = size as f64 / one.as_secs_f64();
                let mut cells = vec![];
                for (m, positions) in [(8, 1), (64, 64), (512, 512)] {
                    if n * m <= 4096 * 512 {
                        let time = fastest(|| {
                            run(m, positions, from);
                            from = if from + 2 * size > bytes.len() { 0 } else { from + size };
                        });
                        let time = time.as_secs_f64();
                        cells.push(format!("{:10.0}", 2.0 * (m * n * k) as f64 / time / 1e9));
                    }
                }
                writeln!(
                    out,
                    "{:8} {:4} {:>12} {:12.1} {:5.0}% {}",
                    kind.name,
                    format!("{dtype:?}"),
                    format!("{n}x{k}"),
                    rate / 1e9,
                    100.0 * rate / sum,
                    cells.join(" "),
                )?;
            }
        }
    }
    Ok(())
}
