//! Speed of attention of prompts, at the sizes of Qwen3-0.6B.
//!
//! `cargo run --release -p cpu-kernels --example attention -- [THREADS] [LEVEL]` prints the
//! operations per second of chunks of queries that are the last of several keys, in bf16 and f16.

use std::io::Write;
use std::time::Instant;

use cpu_kernels::{Attention, Dtype, Heads, Level, attention, set_level, set_threads};

/// Queries and keys.
const SIZES: [(usize, usize); 4] = [(64, 64), (512, 512), (512, 4096), (1, 4096)];
const HEADS: usize = 16;
const KV_HEADS: usize = 8;
const D: usize = 128;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    set_threads(arguments.next().and_then(|n| n.parse().ok()).unwrap_or(0));
    if let Some(name) = arguments.next() {
        let level = Level::available().iter().find(|level| level.name() == name);
        let Some(level) = level else {
            return Err(std::io::Error::other(format!("no level {name} here")));
        };
        set_level(Some(*level)).map_err(std::io::Error::other)?;
    }
    let mut out = std::io::stdout().lock();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for (l, n) in SIZES {
            // High bytes of small numbers of both signs.
            let high = |i: usize| 0x38 | ((i * 7919) >> 3) as u8 & 0x83;
            let bytes: Vec<u8> =
                (0..HEADS * n * D).flat_map(|i| [(i * 31) as u8, high(i)]).collect();
            let heads = |positions: usize| Heads { data: &bytes, strides: [0, positions * D, D] };
            let mut result = vec![0; l * HEADS * D * dtype.size()];
            let mut best = f64::MAX;
            for _ in 0..5 {
                let start = Instant::now();
                let task = Attention {
                    dtype,
                    b: 1,
                    n_heads: HEADS,
                    n_kv_heads: KV_HEADS,
                    l,
                    n,
                    d: D,
                    dv: D,
                    q: heads(l),
                    k: heads(n),
                    v: heads(n),
                    scale: 0.088,
                    softcap: None,
                    sinks: &[],
                    starts: &[],
                    causal: true,
                    window: None,
                    out: &mut result,
                };
                attention(task).map_err(std::io::Error::other)?;
                best = best.min(start.elapsed().as_secs_f64());
            }
            let seen: usize = (0..l).map(|i| n - l + i + 1).sum();
            let rate = 4.0 * (seen * HEADS * D) as f64 / best / 1e9;
            writeln!(out, "{dtype:?} {l} queries, {n} keys: {rate:.1} GF/s")?;
        }
    }
    Ok(())
}
