//! The hidden states that the last pass of rows left, for heads that draft.

use mlx_ffi::{Array, Dtype, Result, ops};

/// The hidden states of rows' last pass, of which each row keeps those up to its last position.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// `[rows, l, size]`; `None`: no row's are known.
    states: Option<Array>,
    /// The place of each row's last position among its `l`; negative: it is not known.
    last: Vec<i32>,
}

impl Trail {
    /// The states of a pass, `[rows, l, size]`.
    ///
    /// # Errors
    /// Another shape.
    pub fn of_pass(states: Array) -> Result<Trail> {
        let [rows, l, _] = states.dims()?;
        Ok(Trail { states: Some(states), last: vec![l - 1; rows as usize] })
    }

    /// The state of each row's last position, `[rows, 1, size]`: zeros where that is not known.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn last(&self, [rows, size]: [i32; 2], dtype: Dtype) -> Result<Array> {
        let Some(states) = &self.states else { return ops::zeros(&[rows, 1, size], dtype) };
        let [held, l, size] = states.dims()?;
        if self.last.iter().all(|at| *at == self.last[0] && *at >= 0) {
            return ops::slice_axis(
                states,
                1,
                self.last[0].min(l - 1),
                self.last[0].min(l - 1) + 1,
            );
        }
        let of_row = |(row, at): (i32, &i32)| match *at {
            ..0 => ops::zeros(&[1, 1, size], states.dtype()),
            at => {
                let row = ops::slice_axis(states, 0, row, row + 1)?;
                ops::slice_axis(&row, 1, at, at + 1)
            }
        };
        let all = (0..held).zip(&self.last).map(of_row).collect::<Result<Vec<_>>>()?;
        ops::concatenate(&all.iter().collect::<Vec<_>>(), 0)
    }

    /// Another handle on the same states.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn share(&self) -> Result<Trail> {
        let states = self.states.as_ref().map(Array::share).transpose()?;
        Ok(Trail { states, last: self.last.clone() })
    }

    /// Those of these rows, each without so many of its last positions.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn of(&self, rows: impl Iterator<Item = (usize, i32)>) -> Result<Trail> {
        let Some(states) = &self.states else { return Ok(Trail::default()) };
        let (mut kept, mut last) = (Vec::new(), Vec::new());
        for (row, left_out) in rows {
            kept.push(ops::slice_axis(states, 0, row as i32, row as i32 + 1)?);
            last.push(self.last[row] - left_out);
        }
        match kept.is_empty() {
            true => Ok(Trail::default()),
            false => {
                Trail { states: Some(ops::concatenate(&kept.iter().collect::<Vec<_>>(), 0)?), last }
                    .ended()
            }
        }
    }

    /// Takes so many of each row's last positions back.
    pub fn truncate(&mut self, counts: &[i32]) {
        self.last.iter_mut().zip(counts).for_each(|(at, count)| *at -= count);
    }

    /// Adds the rows of `other`, so many of `rows`, behind its own.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn join(&mut self, other: &Trail, [own, others]: [usize; 2]) -> Result<()> {
        let Some(known) = self.states.as_ref().or(other.states.as_ref()) else { return Ok(()) };
        let (size, dtype) = (known.shape().last().copied().unwrap_or(0), known.dtype());
        let [mine, theirs] = [(&*self, own), (other, others)]
            .map(|(trail, rows)| trail.last([rows as i32, size], dtype));
        let rows = own + others;
        *self =
            Trail { states: Some(ops::concatenate(&[&mine?, &theirs?], 0)?), last: vec![0; rows] };
        Ok(())
    }

    /// This trail, of which nothing but each row's last position is held.
    fn ended(self) -> Result<Trail> {
        let Some(states) = &self.states else { return Ok(self) };
        let [rows, _, size] = states.dims()?;
        let last = self.last([rows, size], states.dtype())?;
        Ok(Trail { states: Some(last), last: vec![0; rows as usize] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(rows: i32, l: i32) -> Trail {
        let values: Vec<f32> = (0..rows * l).map(|at| at as f32).collect();
        Trail::of_pass(Array::from_f32(&values, &[rows, l, 1]).unwrap()).unwrap()
    }

    fn last(trail: &Trail, rows: i32) -> Vec<f32> {
        trail.last([rows, 1], Dtype::F32).unwrap().to_vec_f32().unwrap()
    }

    #[test]
    fn each_row_goes_on_from_its_own_last_position() {
        let mut both = trail(2, 3);
        assert_eq!(last(&both, 2), [2.0, 5.0]);
        both.truncate(&[1, 2]);
        assert_eq!(last(&both, 2), [1.0, 3.0]);
        assert_eq!(
            last(&both.of([(1, 0), (0, 1), (0, 2)].into_iter()).unwrap(), 3),
            [3.0, 0.0, 0.0]
        );
        both.join(&trail(1, 4), [2, 1]).unwrap();
        assert_eq!(last(&both, 3), [1.0, 3.0, 3.0]);
        // More is taken back than the last pass gave: it is not known.
        both.truncate(&[0, 1, 0]);
        assert_eq!(last(&both, 3), [1.0, 0.0, 3.0]);
    }

    #[test]
    fn rows_of_which_nothing_is_known_have_zeros() {
        let mut none = Trail::default();
        assert_eq!(last(&none, 2), [0.0, 0.0]);
        none.join(&Trail::default(), [2, 1]).unwrap();
        assert_eq!(last(&none, 3), [0.0; 3]);
        none.join(&trail(1, 2), [3, 1]).unwrap();
        assert_eq!(last(&none, 4), [0.0, 0.0, 0.0, 1.0]);
        assert_eq!(last(&none.of([(3, 0)].into_iter()).unwrap(), 1), [1.0]);
    }
}
