//! A rank's part of a layer that several ranks compute together.
//!
//! Heads and the values between projections are split: a rank has the rows of the projections in,
//! and the columns of the one out, whose results all ranks sum. Recurrent layers are split by heads
//! or channels too, each of which has a state of its own. A layer that cannot be split is computed
//! by every rank: heads or groups of packed values that are too few, and layers of other kinds.

mod recurrent;

use std::ops::Range;

use crate::layers::LatentSizes;
use crate::weights::{Cut, Weights, share};
pub(super) use recurrent::{
    Mambas, channels_of_rank, delta_of_rank, keyed_delta_of_rank, mamba_of_rank,
};

/// The heads of an attention layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub count: i32,
    /// Of keys and of values.
    pub kv_count: i32,
    /// Values of a head.
    pub dim: i32,
    /// A gate lies behind each head's queries.
    pub output_gate: bool,
    /// The name of the projection to queries, keys and values, where it is one.
    pub qkv_name: &'static str,
    /// The name of the output projection.
    pub o_name: &'static str,
}

/// The heads that a rank computes.
pub(super) struct HeadShare {
    heads: Range<i32>,
    kv_heads: Range<i32>,
}

impl HeadShare {
    /// Those of `all` under `w` that this rank computes; `None`: all of them.
    pub fn of(w: &Weights, all: Heads) -> Option<HeadShare> {
        let group = w.ranks()?;
        let Heads { count, kv_count, dim, o_name, .. } = all;
        let each = count / kv_count;
        let packed = w.group_below(&[o_name], count * dim);
        let (rank, ranks) = (group.rank(), group.size());
        if let Some(own) = share_of(kv_count, each * dim, packed, rank, ranks) {
            return Some(HeadShare { heads: own.start * each..own.end * each, kv_heads: own });
        }
        // Several ranks have the same keys and values, and each has some of the heads that see
        // them.
        let beside = ranks / kv_count as usize;
        if beside < 2 || !ranks.is_multiple_of(kv_count as usize) {
            return None;
        }
        let kv_head = (rank / beside) as i32;
        let own = share_of(each, dim, packed, rank % beside, beside)?;
        let heads = kv_head * each + own.start..kv_head * each + own.end;
        Some(HeadShare { heads, kv_heads: kv_head..kv_head + 1 })
    }

    /// How many heads of queries they are, and how many of keys and of values.
    pub fn counts(&self) -> [i32; 2] {
        [&self.heads, &self.kv_heads].map(|range| range.end - range.start)
    }

    /// The cursor that has these heads' parts of the matrices under `w`.
    pub fn cut(&self, w: &Weights, all: Heads) -> Weights {
        let of = |count: i32, range: &Range<i32>| {
            (count * all.dim, range.start * all.dim..range.end * all.dim)
        };
        let (q_dim, q) = of(all.count, &self.heads);
        let (kv_dim, kv) = of(all.kv_count, &self.kv_heads);
        let behind = |range: &Range<i32>, first: i32| range.start + first..range.end + first;
        let fused = vec![q.clone(), behind(&kv, q_dim), behind(&kv, q_dim + kv_dim)];
        let times = if all.output_gate { 2 } else { 1 };
        w.cut(vec![
            ("q_proj", Cut::row_range(q_dim * times, q.start * times..q.end * times)),
            ("k_proj", Cut::row_range(kv_dim, kv.clone())),
            ("v_proj", Cut::row_range(kv_dim, kv)),
            (all.qkv_name, Cut::rows(q_dim + 2 * kv_dim, fused)),
            ("sinks", Cut::row_range(all.count, self.heads.clone())),
            (all.o_name, Cut::columns(q_dim, q)),
        ])
    }
}

/// The cursor that has this rank's heads of the latent attention under `w`, and the sizes of those.
/// What is remembered is of all heads, in every rank.
pub(super) fn latent_of_rank(w: &Weights, all: LatentSizes) -> (Weights, LatentSizes) {
    let LatentSizes { heads, nope, rope, value, .. } = all;
    let own = w.ranks().and_then(|group| {
        let packed = w.group_below(&["o_proj"], heads * value);
        share_of(heads, value, packed, group.rank(), group.size())
    });
    let Some(own) = own else { return (w.clone(), all) };
    let rows = |each: i32| Cut::row_range(heads * each, own.start * each..own.end * each);
    let of_heads = || Cut::channels(heads, vec![own.clone()]);
    let cuts = vec![
        ("q_proj", rows(nope + rope)),
        ("q_b_proj", rows(nope + rope)),
        ("kv_b_proj", rows(nope + value)),
        ("embed_q", of_heads()),
        ("unembed_out", of_heads()),
        ("o_proj", Cut::columns(heads * value, own.start * value..own.end * value)),
    ];
    (w.cut(cuts), LatentSizes { heads: own.end - own.start, ..all })
}

/// The names of a network's projections, for [`inner_of_rank`].
pub(super) struct InnerNames<'a> {
    /// The projections in.
    pub into: &'a [&'static str],
    /// The projections in, one behind the other in one matrix.
    pub both: &'a [&'static str],
    /// The projections out.
    pub out: &'a [&'static str],
}

/// The cursor at `w` that has this rank's part of a network, and the values between its
/// projections, of `inner`.
pub(super) fn inner_of_rank(w: &Weights, names: &InnerNames<'_>, inner: i32) -> (Weights, i32) {
    let all = || (w.clone(), inner);
    let Some(own) = values_of_rank(w, names.out, inner) else { return all() };
    let into = names.into.iter().map(|name| (*name, Cut::row_range(inner, own.clone())));
    let both = names.both.iter().filter_map(|name| {
        let behind = own.start + inner..own.end + inner;
        Some((*name, Cut::rows(inner.checked_mul(2)?, vec![own.clone(), behind])))
    });
    let out = names.out.iter().map(|name| (*name, Cut::columns(inner, own.clone())));
    (w.cut(into.chain(both).chain(out).collect()), own.end - own.start)
}

/// Which of the `count` values before the projections `out` this rank computes; `None`: all of
/// them.
fn values_of_rank(w: &Weights, out: &[&str], count: i32) -> Option<Range<i32>> {
    let group = w.ranks()?;
    let packed = w.group_below(out, count);
    // As large units as there may be: kernels like them.
    let units = [64, 32, 16, 8, 4, 2, 1].into_iter().map(|size| size.max(packed));
    let mut shares = units.filter(|size| count % size == 0).filter_map(|size| {
        let own = share_of(count / size, size, packed, group.rank(), group.size())?;
        Some(own.start * size..own.end * size)
    });
    shares.next()
}

/// The units of `count`, each of `width` columns, that a rank computes so that groups of `packed`
/// columns stay whole.
fn share_of(count: i32, width: i32, packed: i32, rank: usize, ranks: usize) -> Option<Range<i32>> {
    let together = (1..=count).find(|together| (together * width) % packed == 0)?;
    if count % together != 0 {
        return None;
    }
    let own = share(count / together, rank, ranks)?;
    Some(own.start * together..own.end * together)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_packed_values_stay_whole() {
        assert_eq!(share_of(4, 32, 1, 1, 2), Some(2..4));
        assert_eq!(share_of(4, 32, 64, 1, 2), Some(2..4));
        assert_eq!(share_of(4, 16, 64, 1, 2), None);
        assert_eq!(share_of(12, 16, 64, 2, 3), Some(8..12));
        assert_eq!(share_of(6, 32, 64, 0, 2), Some(0..2));
        assert_eq!(share_of(6, 32, 64, 1, 2), Some(2..6));
        assert_eq!(share_of(5, 32, 64, 0, 2), None);
    }
}
