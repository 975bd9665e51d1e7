//! Attention against a plain one in f64, and that a query's result is its own, under every level.

use super::numbers::{push, random, value};
use cpu_kernels::{Attention, Dtype, Heads, Level, attention, attention_at};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// Sizes and buffers, all contiguous; keys and values in room for more of them.
#[derive(Clone)]
struct Case {
    dtype: Dtype,
    b: usize,
    n_heads: usize,
    n_kv_heads: usize,
    l: usize,
    n: usize,
    d: usize,
    dv: usize,
    room: usize,
    q: Vec<u8>,
    k: Vec<u8>,
    v: Vec<u8>,
    softcap: Option<f32>,
    sinks: Vec<f32>,
    starts: Vec<i32>,
    causal: bool,
    window: Option<usize>,
}

/// b, n_heads, n_kv_heads, l, n, d, dv.
type Sizes = [usize; 7];

impl Case {
    fn random(dtype: Dtype, [b, n_heads, n_kv_heads, l, n, d, dv]: Sizes) -> Case {
        let mut state = (l * 31 + n) as u64;
        let room = n + 3;
        let mut fill = |count: usize, size: f32| {
            let mut bytes = Vec::new();
            (0..count).for_each(|_| push(dtype, &mut bytes, size * random(&mut state)));
            bytes
        };
        let (q, k) = (fill(b * n_heads * l * d, 3.0), fill(b * n_kv_heads * room * d, 3.0));
        let v = fill(b * n_kv_heads * room * dv, 1.0);
        let (softcap, sinks, starts) = (None, Vec::new(), Vec::new());
        let (causal, window) = (true, None);
        Case {
            dtype,
            b,
            n_heads,
            n_kv_heads,
            l,
            n,
            d,
            dv,
            room,
            q,
            k,
            v,
            softcap,
            sinks,
            starts,
            causal,
            window,
        }
    }

    fn scale(&self) -> f32 {
        (self.d as f32).powf(-0.5)
    }

    fn run(&self, level: Level) -> Vec<u8> {
        let Case { dtype, b, n_heads, n_kv_heads, l, n, d, dv, room, .. } = *self;
        let mut out = vec![0x55; b * l * n_heads * dv * dtype.size()];
        let heads = |data, heads, room, d| Heads { data, strides: [heads * room * d, room * d, d] };
        attention_at(
            level,
            Attention {
                dtype,
                b,
                n_heads,
                n_kv_heads,
                l,
                n,
                d,
                dv,
                q: heads(&self.q, n_heads, l, d),
                k: heads(&self.k, n_kv_heads, room, d),
                v: heads(&self.v, n_kv_heads, room, dv),
                scale: self.scale(),
                softcap: self.softcap,
                sinks: &self.sinks,
                starts: &self.starts,
                causal: self.causal,
                window: self.window,
                out: &mut out,
            },
        )
        .expect("fits");
        out
    }

    fn sees(&self, row: usize, query: usize, key: usize) -> bool {
        let own = (self.n + query) as i64 - self.l as i64;
        let key = key as i64;
        let start = self.starts.get(row).copied().unwrap_or(0);
        key >= i64::from(start)
            && (key <= own || !self.causal)
            && self.window.is_none_or(|window| {
                key > own - window as i64 && (self.causal || key < own + window as i64)
            })
    }

    /// In f64, straight from the definition.
    fn expected(&self) -> Vec<f64> {
        let Case { dtype, b, n_heads, n_kv_heads, l, n, d, dv, room, .. } = *self;
        let mut out = Vec::new();
        for row in 0..b {
            for query in 0..l {
                for head in 0..n_heads {
                    let kv = row * n_kv_heads + head / (n_heads / n_kv_heads);
                    let seen: Vec<usize> =
                        (0..n).filter(|&key| self.sees(row, query, key)).collect();
                    let q = ((row * n_heads + head) * l + query) * d;
                    let weights: Vec<f64> = seen
                        .iter()
                        .map(|key| {
                            let k = (kv * room + key) * d;
                            let dot: f64 = (0..d)
                                .map(|i| {
                                    value(dtype, &self.q, q + i) * value(dtype, &self.k, k + i)
                                })
                                .sum();
                            let score = dot * f64::from(self.scale());
                            match self.softcap {
                                None => score.exp(),
                                Some(cap) => {
                                    (f64::from(cap) * (score / f64::from(cap)).tanh()).exp()
                                }
                            }
                        })
                        .collect();
                    let sink = self.sinks.get(head).map_or(0.0, |&sink| f64::from(sink).exp());
                    let total: f64 = weights.iter().sum::<f64>() + sink;
                    for column in 0..dv {
                        let sum: f64 = seen
                            .iter()
                            .zip(&weights)
                            .map(|(key, w)| {
                                w * value(dtype, &self.v, (kv * room + key) * dv + column)
                            })
                            .sum();
                        out.push(if seen.is_empty() { 0.0 } else { sum / total });
                    }
                }
            }
        }
        out
    }

    #[track_caller]
    fn check(&self) {
        let tolerance = match self.dtype {
            Dtype::F32 => 2e-6,
            Dtype::F16 => 1e-3,
            Dtype::Bf16 => 6e-3,
        };
        let expected = self.expected();
        for &level in Level::available() {
            let found = self.run(level);
            for (i, expected) in expected.iter().enumerate() {
                let found = value(self.dtype, &found, i);
                assert!(
                    (found - expected).abs() <= tolerance,
                    "{level:?} {:?} {i}: {found}, expected {expected}",
                    self.dtype
                );
            }
        }
    }

    /// The bytes of one query's heads.
    fn query<'a>(&self, out: &'a [u8], row: usize, query: usize) -> &'a [u8] {
        let size = self.n_heads * self.dv * self.dtype.size();
        &out[(row * self.l + query) * size..][..size]
    }

    /// Row `row` from query `from` on to query `to`, with no more keys than the last one may see.
    fn part(&self, row: usize, from: usize, to: usize) -> Case {
        let Case { dtype, n_heads, n_kv_heads, l, n, d, dv, room, .. } = *self;
        let n = n - l + to;
        let mut q = Vec::new();
        for head in 0..n_heads {
            let first = ((row * n_heads + head) * l + from) * d * dtype.size();
            q.extend(&self.q[first..][..(to - from) * d * dtype.size()]);
        }
        let of_row = |data: &[u8], d: usize| {
            let size = n_kv_heads * room * d * dtype.size();
            data[row * size..][..size].to_vec()
        };
        let starts = self.starts.get(row).copied().into_iter().collect();
        let (k, v) = (of_row(&self.k, d), of_row(&self.v, dv));
        Case { b: 1, l: to - from, n, q, k, v, starts, ..self.clone() }
    }

    /// Without the first `count` keys of the only row.
    fn without(&self, count: usize) -> Case {
        let Case { dtype, n_kv_heads, n, d, dv, room, .. } = *self;
        let cut = |data: &[u8], d: usize| {
            let size = d * dtype.size();
            let heads = data.chunks_exact(room * size);
            assert_eq!(heads.len(), n_kv_heads);
            heads.flat_map(|head| &head[count * size..]).copied().collect::<Vec<u8>>()
        };
        let starts = self.starts.iter().map(|start| (start - count as i32).max(0)).collect();
        let (k, v) = (cut(&self.k, d), cut(&self.v, dv));
        Case { n: n - count, room: room - count, k, v, starts, ..self.clone() }
    }
}

const SIZES: [Sizes; 7] = [
    [1, 1, 1, 1, 1, 8, 8],
    [2, 4, 2, 5, 11, 33, 17],
    [1, 6, 2, 1, 70, 64, 64],
    [3, 3, 3, 9, 9, 80, 80],
    [2, 7, 1, 4, 40, 128, 128],
    [1, 8, 8, 40, 57, 96, 112],
    [1, 4, 1, 1, 900, 256, 256],
];

#[test]
fn every_size_and_type_agrees_with_the_definition() {
    for dtype in DTYPES {
        for sizes in SIZES {
            let plain = Case::random(dtype, sizes);
            let [b, n_heads, _, _, n, _, _] = sizes;
            let sinks: Vec<f32> = (0..n_heads).map(|head| head as f32 - 1.0).collect();
            let starts: Vec<i32> = (0..b).map(|row| (row * 5 % (n + 2)) as i32).collect();
            plain.check();
            Case { causal: false, ..plain.clone() }.check();
            for window in [1, 4, 30] {
                Case { window: Some(window), ..plain.clone() }.check();
            }
            Case { softcap: Some(2.0), sinks, ..plain.clone() }.check();
            Case { window: Some(7), starts: starts.clone(), ..plain.clone() }.check();
            Case { starts, causal: false, ..plain }.check();
        }
    }
}

#[test]
fn a_query_that_sees_nothing_gives_zeros() {
    let zeros = |case: &Case, row: usize, query: usize| {
        for &level in Level::available() {
            let out = case.run(level);
            assert!(case.query(&out, row, query).iter().all(|&byte| byte == 0), "{level:?}");
        }
    };
    for dtype in DTYPES {
        let case = Case::random(dtype, [2, 4, 2, 3, 5, 16, 16]);
        let padded = Case { starts: vec![3, 9], sinks: vec![1.0; 4], ..case };
        padded.check();
        zeros(&padded, 0, 0);
        zeros(&padded, 1, 2);
        zeros(&Case::random(dtype, [1, 4, 2, 3, 0, 16, 16]), 0, 2);
        // Two queries before the only key.
        let early = Case::random(dtype, [1, 4, 2, 3, 1, 16, 16]);
        early.check();
        zeros(&early, 0, 1);
    }
}

/// Every query of `case` alone, in chunks, in the batch, and without the keys that it does not see.
fn check_that_queries_are_their_own(case: &Case) {
    for &level in Level::available() {
        let all = case.run(level);
        for row in 0..case.b {
            for chunk in [1, 2, 7] {
                for from in (0..case.l).step_by(chunk) {
                    let to = case.l.min(from + chunk);
                    let part = case.part(row, from, to);
                    let out = part.run(level);
                    for query in from..to {
                        let found = part.query(&out, 0, query - from);
                        assert!(found == case.query(&all, row, query), "{level:?} {row} {query}");
                    }
                }
            }
            for query in 0..case.l {
                let alone = case.part(row, query, query + 1);
                let unseen = (0..alone.n).take_while(|&key| !alone.sees(0, 0, key)).count();
                let alone = alone.without(unseen);
                let out = alone.run(level);
                assert!(alone.query(&out, 0, 0) == case.query(&all, row, query), "{row} {query}");
            }
        }
    }
}

#[test]
fn a_query_does_not_depend_on_chunks_padding_or_the_batch() {
    for dtype in DTYPES {
        for sizes in
            [[3, 4, 2, 19, 50, 40, 72], [2, 6, 2, 8, 37, 128, 128], [1, 2, 2, 33, 33, 64, 64]]
        {
            let case = Case::random(dtype, sizes);
            check_that_queries_are_their_own(&case);
            let starts: Vec<i32> = (0..sizes[0]).map(|row| row as i32 * 7).collect();
            check_that_queries_are_their_own(&Case { starts: starts.clone(), ..case.clone() });
            for window in [1, 5, 21] {
                let starts = starts.clone();
                check_that_queries_are_their_own(&Case {
                    window: Some(window),
                    starts,
                    ..case.clone()
                });
            }
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for dtype in DTYPES {
        // Few heads over many keys: several threads share them.
        for sizes in [[1, 2, 1, 1, 1500, 64, 136], [1, 3, 1, 40, 60, 64, 64]] {
            let case = Case::random(dtype, sizes);
            for &level in Level::available() {
                let outs = [1, 2, 3, 5].map(|threads| {
                    cpu_kernels::set_threads(threads);
                    case.run(level)
                });
                cpu_kernels::set_threads(0);
                assert!(outs.iter().all(|out| *out == outs[0]), "{level:?} {dtype:?}");
            }
        }
    }
}

#[test]
fn what_a_query_does_not_see_may_be_anything() {
    for dtype in DTYPES {
        let case = Case { starts: vec![3, 0], ..Case::random(dtype, [2, 4, 2, 9, 20, 16, 16]) };
        let mut poisoned = case.clone();
        // The first three keys of the first row, and those after the last.
        for data in [&mut poisoned.k, &mut poisoned.v] {
            let room = case.room * 16 * dtype.size();
            for (head, keys) in data.chunks_exact_mut(room).enumerate() {
                let size = 16 * dtype.size();
                if head < case.n_kv_heads {
                    keys[..3 * size].fill(0xff);
                }
                keys[case.n * size..].fill(0xff);
            }
        }
        for &level in Level::available() {
            assert!(case.run(level) == poisoned.run(level), "{level:?}");
        }
        // A later key that is no number leaves earlier queries as they are.
        let mut later = case.clone();
        let key = (case.n - 1) * 16 * dtype.size();
        later.v[key..key + 16 * dtype.size()].fill(0xff);
        for &level in Level::available() {
            let (a, b) = (case.run(level), later.run(level));
            for query in 0..8 {
                assert!(case.query(&a, 0, query) == case.query(&b, 0, query));
            }
            assert!(value(dtype, case.query(&b, 0, 8), 0).is_nan());
        }
    }
}

/// Two heads of q over one of k, two keys of zeros.
fn task(out: &mut [u8]) -> Attention<'_> {
    Attention {
        dtype: Dtype::F32,
        b: 1,
        n_heads: 2,
        n_kv_heads: 1,
        l: 1,
        n: 2,
        d: 4,
        dv: 4,
        q: Heads { data: &[0; 32], strides: [8, 4, 4] },
        k: Heads { data: &[0; 32], strides: [8, 8, 4] },
        v: Heads { data: &[0; 32], strides: [8, 8, 4] },
        scale: 1.0,
        softcap: None,
        sinks: &[],
        starts: &[],
        causal: true,
        window: None,
        out,
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let refused = |task: Attention<'_>| attention(task).expect_err("refused").to_string();
    let mut out = [7; 32];
    assert_eq!(
        refused(Attention { k: Heads { data: &[0; 31], strides: [8, 8, 4] }, ..task(&mut out) }),
        "k has 31 bytes, too few for [1, 1, 2, 4] by [8, 8, 4]"
    );
    assert!(refused(Attention { n_kv_heads: 0, ..task(&mut out) }).contains("share 0"));
    assert!(refused(Attention { d: 0, ..task(&mut out) }).contains("of 0 values"));
    assert!(refused(Attention { starts: &[0, 0], ..task(&mut out) }).contains("2 starts"));
    assert!(refused(Attention { sinks: &[0.0], ..task(&mut out) }).contains("1 sinks"));
    let far = Heads { data: &[0; 32], strides: [8, 8, usize::MAX] };
    assert!(refused(Attention { v: far, ..task(&mut out) }).contains("too few"));
    assert!(refused(task(&mut [0; 16])).contains("out has 16 bytes"));
    assert_eq!(out, [7; 32]);
    attention(task(&mut out)).expect("fits");
    assert_eq!(out, [0; 32]);
}
