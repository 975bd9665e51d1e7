//! A step against the kernels that it is made of, to the bit.

use super::numbers::{push, random};
use cpu_kernels::{
    Attention, Dtype, Error, Heads, Norm, Rotation, Rows, Step, attention, rows, step,
};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const EPS: f32 = 1e-3;

fn values(dtype: Dtype, count: usize, seed: usize) -> Vec<u8> {
    let (mut state, mut bytes) = (seed as u64, Vec::new());
    (0..count).for_each(|_| push(dtype, &mut bytes, 2.0 * random(&mut state)));
    bytes
}

/// Rows of `(n_heads + 2 · n_kv_heads) · d` values each, and buffers of `capacity` positions.
struct Case {
    dtype: Dtype,
    b: usize,
    n_heads: usize,
    n_kv_heads: usize,
    d: usize,
    capacity: usize,
    at: usize,
    qkv: Vec<u8>,
    keys: Vec<u8>,
    values: Vec<u8>,
    norms: Option<[Vec<u8>; 2]>,
    turns: Option<Vec<u8>>,
    starts: Vec<i32>,
    window: Option<usize>,
    sinks: Vec<f32>,
    softcap: Option<f32>,
}

impl Case {
    fn new(dtype: Dtype, [b, n_heads, n_kv_heads, d, at]: [usize; 5]) -> Case {
        let capacity = at + 3;
        let held = b * n_kv_heads * capacity * d;
        Case {
            dtype,
            b,
            n_heads,
            n_kv_heads,
            d,
            capacity,
            at,
            qkv: values(dtype, b * (n_heads + 2 * n_kv_heads) * d, 1),
            keys: values(dtype, held, 2),
            values: values(dtype, held, 3),
            norms: Some([values(dtype, d, 4), values(dtype, d, 5)]),
            turns: Some(values(Dtype::F32, b * d, 6)),
            starts: (0..b as i32).map(|row| 2 * row).collect(),
            window: None,
            sinks: Vec::new(),
            softcap: None,
        }
    }

    fn columns(&self, first_head: usize) -> Heads<'_> {
        let width = (self.n_heads + 2 * self.n_kv_heads) * self.d;
        let data = &self.qkv[first_head * self.d * self.dtype.size()..];
        Heads { data, strides: [width, 0, self.d] }
    }

    fn qkv(&self) -> [Heads<'_>; 3] {
        [0, self.n_heads, self.n_heads + self.n_kv_heads].map(|first| self.columns(first))
    }

    fn norms(&self) -> Option<[Norm<'_>; 2]> {
        let norms = self.norms.as_ref()?;
        Some(norms.each_ref().map(|weight| Norm::root_mean_square(weight, EPS)))
    }

    fn rotation(&self) -> Option<Rotation<'_>> {
        self.turns.as_deref().map(|turns| Rotation { dims: self.d, turns })
    }

    fn strides(&self) -> [usize; 3] {
        [self.n_kv_heads * self.capacity * self.d, self.capacity * self.d, self.d]
    }

    /// The result, and the buffers afterwards.
    fn step(&self, change: impl FnOnce(&mut Step<'_>)) -> Result<[Vec<u8>; 3], Error> {
        let Case { dtype, b, n_heads, n_kv_heads, d, at, .. } = *self;
        let (mut keys, mut values) = (self.keys.clone(), self.values.clone());
        let mut out = vec![0x55; b * n_heads * d * dtype.size()];
        let [q, k, v] = self.qkv();
        let mut task = Step {
            dtype,
            b,
            n_heads,
            n_kv_heads,
            d,
            q,
            k,
            v,
            norms: self.norms(),
            rotation: self.rotation(),
            at,
            keys: &mut keys,
            key_strides: self.strides(),
            values: &mut values,
            value_strides: self.strides(),
            starts: &self.starts,
            window: self.window,
            scale: 0.2,
            softcap: self.softcap,
            sinks: &self.sinks,
            out: &mut out,
        };
        change(&mut task);
        step(task)?;
        Ok([out, keys, values])
    }

    /// Computes the step with one kernel after the other instead of the joined one.
    fn expected(&self) -> [Vec<u8>; 3] {
        let Case { dtype, b, n_heads, n_kv_heads, d, at, .. } = *self;
        let size = dtype.size();
        let [q, k, v] = self.qkv();
        let [q_norm, k_norm] = self.norms().map_or([None, None], |norms| norms.map(Some));
        let turned = |x, n: usize, norm, rotation| {
            let mut out = vec![0; b * n * d * size];
            let sizes = [b, 1, n];
            rows(Rows { dtype, sizes, d, x, norm, rotation, out: &mut out }).expect("it fits");
            out
        };
        let q = turned(q, n_heads, q_norm, self.rotation());
        let k = turned(k, n_kv_heads, k_norm, self.rotation());
        let v = turned(v, n_kv_heads, None, None);
        let (mut keys, mut values) = (self.keys.clone(), self.values.clone());
        for (new, buffer) in [(&k, &mut keys), (&v, &mut values)] {
            for (head, bytes) in new.chunks_exact(d * size).enumerate() {
                let first = (head * self.capacity + at) * d * size;
                buffer[first..first + d * size].copy_from_slice(bytes);
            }
        }
        let mut out = vec![0x55; b * n_heads * d * size];
        let held = |data| Heads { data, strides: self.strides() };
        attention(Attention {
            dtype,
            b,
            n_heads,
            n_kv_heads,
            l: 1,
            n: at + 1,
            d,
            dv: d,
            q: Heads { data: &q, strides: [n_heads * d, d, d] },
            k: held(&keys),
            v: held(&values),
            scale: 0.2,
            softcap: self.softcap,
            sinks: &self.sinks,
            starts: &self.starts,
            causal: true,
            window: self.window,
            out: &mut out,
        })
        .expect("it fits");
        [out, keys, values]
    }
}

#[test]
fn a_step_is_what_its_kernels_are_one_after_the_other() {
    for dtype in DTYPES {
        for sizes in [[1, 4, 4, 16, 0], [3, 6, 2, 40, 9], [2, 16, 8, 64, 700], [1, 8, 1, 128, 3000]]
        {
            let plain = Case::new(dtype, sizes);
            let bare =
                Case { norms: None, turns: None, starts: Vec::new(), ..Case::new(dtype, sizes) };
            let window = Case { window: Some(5), ..Case::new(dtype, sizes) };
            let sinks = vec![0.7; sizes[1]];
            let sinks = Case { sinks, norms: None, ..Case::new(dtype, sizes) };
            let softcap = Case { softcap: Some(3.0), turns: None, ..Case::new(dtype, sizes) };
            for (name, case) in [
                ("plain", plain),
                ("bare", bare),
                ("window", window),
                ("sinks", sinks),
                ("softcap", softcap),
            ] {
                let found = case.step(|_| ()).expect("it fits");
                assert!(found == case.expected(), "{name} {dtype:?} {sizes:?}");
            }
        }
    }
}

#[test]
fn a_step_that_does_not_fit_is_refused() {
    let case = Case::new(Dtype::F32, [2, 4, 2, 8, 5]);
    let refused = |change: &dyn Fn(&mut Step<'_>), text: &str| {
        let error = case.step(change).expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    };
    refused(&|task| task.at = 8, "keys has");
    refused(&|task| task.at = usize::MAX, "no position after the last");
    refused(&|task| task.value_strides[0] *= 2, "values has");
    refused(&|task| task.v.data = &task.v.data[..8], "v has");
    refused(&|task| task.q.data = &task.q.data[..8], "x has");
    refused(&|task| task.starts = &[0], "1 starts");
    refused(&|task| task.rotation = Some(Rotation { dims: 8, turns: &[] }), "turns has");
}
