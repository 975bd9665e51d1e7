//! What a query position may attend to.

use std::ops::Range;

use mlx_ffi::{Array, Dtype, Result, ops};

/// Which of `n` keys each of the last `l` positions sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visible {
    /// For each row, its first key; those before it are padding. Empty: no row has any.
    pub starts: Vec<i32>,
    /// Query `i` sees keys up to `n - l + i`; otherwise all.
    pub causal: bool,
    /// How many keys a query sees at most, up to its own place.
    pub window: Option<i32>,
}

/// Whether a layer's queries see keys behind their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// They do not.
    #[default]
    Never,
    /// Those of the same picture.
    WithinPictures,
}

/// Which keys queries see, as MLX takes it.
#[derive(Debug)]
pub(crate) enum Mask {
    /// Everything.
    None,
    /// Everything up to itself.
    Causal,
    /// Where true: `[b or 1, 1, l, n]`.
    Array(Array),
}

impl Visible {
    /// What `l` queries see of `n` keys, of which each row has its own from `starts` on.
    pub fn new(starts: Vec<i32>, l: i32, n: i32, window: Option<i32>) -> Visible {
        let starts = if starts.iter().any(|start| *start > 0) { starts } else { Vec::new() };
        Visible { starts, causal: l > 1, window: window.filter(|window| l > 1 && n > *window) }
    }

    /// The mask for `l` queries over `n` keys.
    pub fn mask(&self, l: i32, n: i32) -> Result<Mask> {
        if self.starts.is_empty() && self.window.is_none() {
            return Ok(if self.causal { Mask::Causal } else { Mask::None });
        }
        Ok(self.array(l, n)?.map_or(Mask::None, Mask::Array))
    }

    /// `[b or 1, 1, l, n]`, true where a query sees a key. Those of a span of queries see each other's
    /// keys, which are the last `l` ones, as if they came before them.
    pub fn array_ahead(&self, l: i32, n: i32, spans: &[Range<i32>]) -> Result<Array> {
        let mut numbers = vec![0; l as usize];
        for (number, span) in spans.iter().enumerate() {
            for at in span.clone() {
                numbers[at as usize] = number as i32 + 1;
            }
        }
        let queries = Array::from_i32(&numbers, &[l, 1])?;
        // Keys that came before this pass have numbers that no query has.
        let before = vec![-1; (n - l) as usize];
        let own = numbers.iter().map(|number| if *number == 0 { -1 } else { *number });
        let keys: Vec<i32> = before.into_iter().chain(own).collect();
        let keys = Array::from_i32(&keys, &[n])?;
        let same = ops::logical_and(
            &ops::greater_equal(&queries, &keys)?,
            &ops::greater_equal(&keys, &queries)?,
        )?;
        let all = self.array_with(l, n, Some(&same))?;
        all.ok_or_else(|| mlx_ffi::Error::new("queries that see ahead have a mask"))
    }

    /// `[b or 1, 1, l, n]`, true where a query sees a key; `None`: everywhere.
    pub fn array(&self, l: i32, n: i32) -> Result<Option<Array>> {
        self.array_with(l, n, None)
    }

    /// The mask of [`array`](Self::array), with what is `same`, `[l, n]`, seen as if it came before.
    fn array_with(&self, l: i32, n: i32, same: Option<&Array>) -> Result<Option<Array>> {
        let keys = ops::arange(0, n, Dtype::I32)?;
        let queries = ops::expand_dims(&ops::arange(n - l, n, Dtype::I32)?, 1)?;
        let mut parts = Vec::new();
        if self.causal {
            let before = ops::greater_equal(&queries, &keys)?;
            parts.push(match same {
                None => before,
                Some(same) => ops::where_(same, same, &before)?,
            });
        }
        if let Some(window) = self.window {
            let window = Array::from_i32(&[window], &[])?;
            parts.push(ops::less(&queries, &ops::add(&keys, &window)?)?);
        }
        if !self.starts.is_empty() {
            let starts = Array::from_i32(&self.starts, &[self.starts.len() as i32, 1, 1, 1])?;
            parts.push(ops::greater_equal(&keys, &starts)?);
        }
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else { return Ok(None) };
        let all = parts.try_fold(first, |all, part| ops::logical_and(&all, &part))?;
        let b = self.starts.len().max(1) as i32;
        ops::broadcast_to(&all, &[b, 1, l, n]).map(Some)
    }
}
