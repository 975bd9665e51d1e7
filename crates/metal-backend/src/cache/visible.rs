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

    /// The mask for `l` queries over `n` keys.
    pub fn mask(&self, l: i32, n: i32) -> Result<Mask> {
        let is_plain = self.starts.is_empty() && self.ends.is_empty() && self.spans.is_empty();
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
        let b = self.starts.len().max(self.ends.len()).max(1) as i32;
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
