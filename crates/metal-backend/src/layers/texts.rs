//! Whole texts one behind the other in one row: no padding is computed, and each text sees itself alone.

use mlx_ffi::cpu::Run;
use mlx_ffi::{Array, Result, ops};

use super::Rotation;

/// The texts of a pass, `[1, l, …]`, one behind the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    /// Positions of each, at least 1.
    lengths: Vec<i32>,
}

impl Texts {
    /// Texts of so many positions each. Neighbours of one length are attended to at once.
    pub fn new(lengths: Vec<i32>) -> Texts {
        Texts { lengths }
    }

    /// The first position of each text, and the one behind its last.
    pub fn spans(&self) -> impl Iterator<Item = [i32; 2]> {
        self.lengths.iter().scan(0, |end, length| {
            let first = *end;
            *end += length;
            Some([first, *end])
        })
    }

    /// The place of each position in its own text.
    pub fn places(&self) -> impl Iterator<Item = i32> {
        self.lengths.iter().flat_map(|length| 0..*length)
    }

    /// Appends the cosines and sines of each position's angles.
    pub fn push_cos_sin(&self, rotation: &Rotation, to: &mut Vec<f32>) {
        let longest = self.lengths.iter().copied().max().unwrap_or(0);
        let mut of_places = Vec::new();
        (0..longest).for_each(|place| rotation.push_cos_sin(place, &mut of_places));
        let width = of_places.len() / longest.max(1) as usize;
        for length in &self.lengths {
            to.extend_from_slice(&of_places[..*length as usize * width]);
        }
    }

    /// Neighbours of one length.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for ([first, _], length) in self.spans().zip(&self.lengths) {
            match runs.last_mut() {
                Some(run) if run.length == *length => run.count += 1,
                _ => runs.push(Run { first, count: 1, length: *length }),
            }
        }
        runs
    }

    /// What `attend` makes of queries, keys and values within each text. They are `[1, n, l, d]` of all
    /// texts here, `[count, n, length, d]` there; the results `[count, length, n · d]` there, and
    /// `[1, l, n · d]` here.
    ///
    /// # Errors
    /// Those of `attend` and of MLX.
    pub fn attend(
        &self,
        heads: [&Array; 3],
        mut attend: impl FnMut([Array; 3]) -> Result<Array>,
    ) -> Result<Array> {
        let mut parts = Vec::new();
        for Run { first, count, length } in self.runs() {
            let of_run = |x: &Array| -> Result<Array> {
                let [_, n, _, d] = x.dims()?;
                let x = ops::slice_axis(x, 2, first, first + count * length)?;
                if count == 1 {
                    return Ok(x);
                }
                ops::swap_axes(&ops::reshape(&x, &[n, count, length, d])?, 0, 1)
            };
            let [q, k, v] = heads;
            let out = attend([of_run(q)?, of_run(k)?, of_run(v)?])?;
            parts.push(ops::reshape(&out, &[1, count * length, -1])?);
        }
        match parts.as_slice() {
            [one] => one.share(),
            _ => ops::concatenate(&parts.iter().collect::<Vec<_>>(), 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use mlx_ffi::{Device, use_device};

    use super::*;

    #[test]
    fn each_text_is_attended_to_by_itself_and_neighbours_of_one_length_at_once() {
        use_device(Device::Cpu).expect("a CPU");
        let texts = Texts::new(vec![2, 2, 1, 3]);
        let values: Vec<f32> = (0..16).map(|value| value as f32).collect();
        // Two heads of one value: the second one's are 8 more.
        let heads = Array::from_f32(&values, &[1, 2, 8, 1]).expect("heads");
        let mut seen = Vec::new();
        let out = texts.attend([&heads, &heads, &heads], |[q, _, v]| {
            seen.push(q.shape().to_vec());
            // [count, n, length, 1] -> [count, length, n]
            ops::squeeze(&ops::swap_axes(&v, 1, 2)?, 3)
        });
        assert_eq!(seen, [[2, 2, 2, 1], [1, 2, 1, 1], [1, 2, 3, 1]]);
        let out = out.expect("joined");
        assert_eq!(out.shape(), [1, 8, 2]);
        let expected: Vec<f32> = (0..8).flat_map(|at| [at as f32, at as f32 + 8.0]).collect();
        assert_eq!(out.to_vec_f32().expect("values"), expected);
        assert_eq!(texts.places().collect::<Vec<_>>(), [0, 1, 0, 1, 0, 0, 1, 2]);
        assert_eq!(texts.spans().last(), Some([5, 8]));
    }
}
