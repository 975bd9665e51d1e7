//! The keys that a query position may attend to.

use std::ops::Range;

use mlx_ffi::{Array, Dtype, Result, ops};

/// Which of `n` keys each of the last `l` positions sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visible {
    /// For each row, its first key; those before it are padding. Empty: no row has any.
    pub starts: Vec<i32>,
    /// For each row, behind its last key: those from there on are padding, which no other query
    /// sees. Empty: no row has any.
    pub ends: Vec<i32>,
    /// Query `i` sees keys up to `n - l + i`; otherwise all.
    pub causal: bool,
    /// How many keys a query sees at most, up to its own place. Where it is not `causal`, it sees
    /// as many from its own place on.
    pub window: Option<i32>,
    /// For each row and each query, its first key. Empty: no query has one.
    pub firsts: Vec<i32>,
    /// Queries that see each other's keys as if those came before them, by their numbers in the
    /// pass.
    pub spans: Vec<Range<i32>>,
}

/// Which keys queries see, as MLX takes it.
#[derive(Debug)]
pub(crate) enum Mask {
    /// Everything.
    None,
    /// Everything up to itself.
    Causal,
    /// True for the keys that a query sees: `[b or 1, 1, l, n]`.
    Array(Array),
}

impl Visible {
    /// The keys that `l` queries see, of `n`, of which each row has its own from `starts` on.
    pub fn new(starts: Vec<i32>, l: i32, n: i32, window: Option<i32>) -> Visible {
        let starts = if starts.iter().any(|start| *start > 0) { starts } else { Vec::new() };
        let window = window.filter(|window| l > 1 && n > *window);
        Visible { starts, causal: l > 1, window, ..Visible::default() }
    }

    /// Lets the `l` queries, of which those of a row begin at its offset, see no keys before their
    /// chunk of so many positions. `n` keys end with the last query's.
    pub fn within_chunks(&mut self, chunk: i32, offsets: &[i32], [l, n]: [i32; 2]) {
        let first = |offset: i32, i: i32| {
            let behind_first = (offset + i) % chunk;
            (n - l + i - behind_first).max(0)
        };
        let crosses = |offset: &i32| offset % chunk + l > chunk;
        if offsets.iter().any(crosses) {
            self.firsts =
                offsets.iter().flat_map(|&offset| (0..l).map(move |i| first(offset, i))).collect();
            return;
        }
        // All queries of a row have one first key.
        let starts: Vec<i32> = offsets
            .iter()
            .enumerate()
            .map(|(row, &offset)| first(offset, 0).max(self.starts.get(row).copied().unwrap_or(0)))
            .collect();
        if starts.iter().any(|start| *start > 0) {
            self.starts = starts;
        }
    }

    /// Hides the first key of each of `rows` rows, of `n` keys.
    pub fn hide_first(&mut self, rows: usize, n: i32) {
        self.starts.resize(rows, 0);
        self.starts.iter_mut().for_each(|start| *start = (*start + 1).min(n - 1));
    }

    /// The mask for `l` queries over `n` keys.
    pub fn mask(&self, l: i32, n: i32) -> Result<Mask> {
        let is_plain = self.starts.is_empty()
            && self.ends.is_empty()
            && self.spans.is_empty()
            && self.firsts.is_empty();
        if is_plain && self.window.is_none() {
            return Ok(if self.causal { Mask::Causal } else { Mask::None });
        }
        Ok(self.array(l, n)?.map_or(Mask::None, Mask::Array))
    }

    /// `[b or 1, 1, l, n]`, true where a query sees a key; `None`: everywhere.
    pub fn array(&self, l: i32, n: i32) -> Result<Option<Array>> {
        let keys = ops::arange(0, n, Dtype::I32)?;
        let queries = ops::expand_dims(&ops::arange(n - l, n, Dtype::I32)?, 1)?;
        let mut parts = Vec::new();
        if self.causal {
            let last = if self.spans.is_empty() { queries.share()? } else { self.last_keys(l, n)? };
            parts.push(ops::greater_equal(&last, &keys)?);
        }
        if let Some(window) = self.window {
            let window = Array::from_i32(&[window], &[])?;
            parts.push(ops::less(&queries, &ops::add(&keys, &window)?)?);
            if !self.causal {
                parts.push(ops::less(&keys, &ops::add(&queries, &window)?)?);
            }
        }
        if !self.firsts.is_empty() {
            let rows = self.firsts.len() as i32 / l.max(1);
            let firsts = Array::from_i32(&self.firsts, &[rows, 1, l, 1])?;
            parts.push(ops::greater_equal(&keys, &firsts)?);
        }
        if !self.starts.is_empty() {
            let starts = Array::from_i32(&self.starts, &[self.starts.len() as i32, 1, 1, 1])?;
            parts.push(ops::greater_equal(&keys, &starts)?);
        }
        if !self.ends.is_empty() {
            let last: Vec<i32> = self.ends.iter().map(|end| end - 1).collect();
            let last = Array::from_i32(&last, &[last.len() as i32, 1, 1, 1])?;
            // Padding sees itself: a query that saw nothing would have no softmax.
            parts.push(ops::greater_equal(&ops::maximum(&last, &queries)?, &keys)?);
        }
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else { return Ok(None) };
        let all = parts.try_fold(first, |all, part| ops::logical_and(&all, &part))?;
        let rows = self.firsts.len() / l.max(1) as usize;
        let b = self.starts.len().max(self.ends.len()).max(rows).max(1) as i32;
        ops::broadcast_to(&all, &[b, 1, l, n]).map(Some)
    }

    /// The last key that each query sees, `[l, 1]`: its own, or that of the last query of its span.
    fn last_keys(&self, l: i32, n: i32) -> Result<Array> {
        let mut last: Vec<i32> = (n - l..n).collect();
        for span in &self.spans {
            last[span.start as usize..span.end as usize].fill(n - l + span.end - 1);
        }
        Array::from_i32(&last, &[l, 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The positions that each query of each row sees, by the positions of the keys.
    fn seen(visible: &Visible, offsets: &[i32], [l, n]: [i32; 2]) -> Vec<Vec<i32>> {
        let all = visible.array(l, n).expect("a mask").expect("not everything is seen");
        let flags = ops::astype(&all, Dtype::F32).expect("numbers").to_vec_f32().expect("numbers");
        let row = |index: usize| offsets[index / l as usize] + l - n;
        let queries = flags.chunks(n as usize).enumerate();
        queries
            .map(|(index, flags)| {
                let keys = flags.iter().enumerate().filter(|(_, flag)| **flag > 0.0);
                keys.map(|(key, _)| row(index) + key as i32).collect()
            })
            .collect()
    }

    #[test]
    fn positions_see_nothing_before_their_chunk() {
        // Two rows of chunks of 4: the first one's queries are in two chunks.
        let mut visible = Visible::new(vec![0, 3], 3, 6, Some(4));
        visible.within_chunks(4, &[3, 0], [3, 6]);
        let expected: [&[i32]; 6] = [&[0, 1, 2, 3], &[4], &[4, 5], &[0], &[0, 1], &[0, 1, 2]];
        assert_eq!(seen(&visible, &[3, 0], [3, 6]), expected);
        // One query of each row: a first key for each row says it all.
        let mut visible = Visible::new(vec![0, 1], 1, 4, Some(4));
        visible.within_chunks(4, &[5, 2], [1, 4]);
        assert_eq!((visible.firsts.is_empty(), &visible.starts), (true, &vec![2, 1]));
        assert_eq!(seen(&visible, &[5, 2], [1, 4]), [vec![4, 5], vec![0, 1, 2]]);
    }
}
