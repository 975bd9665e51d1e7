//! A rank's part of a layer with a recurrent state: some heads or channels.
//! Each has a state of its own.

use std::ops::Range;

use super::{share_of, values_of_rank};
use crate::layers::{DeltaSizes, MambaSizes, SharedGroup};
use crate::weights::{Cut, Weights};

/// `range`, with every bound times `size`, behind `first`.
fn times(range: &Range<i32>, size: i32, first: i32) -> Range<i32> {
    first + range.start * size..first + range.end * size
}

/// The key heads of a gated delta net that this rank computes, with their value heads.
fn key_heads(w: &Weights, sizes: DeltaSizes, out: &str) -> Option<Range<i32>> {
    let group = w.ranks()?;
    let DeltaSizes { k_heads, v_heads, v_dim, .. } = sizes;
    let packed = w.group_below(&[out], sizes.values());
    share_of(k_heads, v_heads / k_heads * v_dim, packed, group.rank(), group.size())
}

/// `sizes` with so many key heads, and the value heads that belong to them.
fn with_heads(sizes: DeltaSizes, keys: &Range<i32>) -> DeltaSizes {
    let k_heads = keys.end - keys.start;
    DeltaSizes { k_heads, v_heads: sizes.v_heads / sizes.k_heads * k_heads, ..sizes }
}

/// The cursor that has this rank's part of the gated delta net under `w`, and the sizes of this
/// part.
pub(in crate::shape) fn delta_of_rank(w: &Weights, sizes: DeltaSizes) -> (Weights, DeltaSizes) {
    let Some(own) = key_heads(w, sizes, "out_proj") else { return (w.clone(), sizes) };
    let DeltaSizes { k_heads, v_heads, k_dim, v_dim, .. } = sizes;
    let (each, keys) = (v_heads / k_heads, k_heads * k_dim);
    let heads = times(&own, each, 0);
    let values = times(&heads, v_dim, 0);
    let mixed =
        vec![times(&own, k_dim, 0), times(&own, k_dim, keys), times(&heads, v_dim, 2 * keys)];
    let of_heads = || Cut::row_range(v_heads, heads.clone());
    // Rows of one key head and its value heads lie together.
    let grouped = |size: i32| Cut::row_range(k_heads * size, times(&own, size, 0));
    let cut = w.cut(vec![
        ("in_proj_qkv", Cut::rows(sizes.mixed(), mixed.clone())),
        ("in_proj_z", Cut::row_range(sizes.values(), values.clone())),
        ("in_proj_b", of_heads()),
        ("in_proj_a", of_heads()),
        ("in_proj_qkvz", grouped(2 * (k_dim + each * v_dim))),
        ("in_proj_ba", grouped(2 * each)),
        ("conv1d", Cut::channels(sizes.mixed(), mixed)),
        ("A_log", of_heads()),
        ("dt_bias", of_heads()),
        ("out_proj", Cut::columns(sizes.values(), values)),
    ]);
    (cut, with_heads(sizes, &own))
}

/// The cursor that has this rank's part of the gated delta net under `w` with a decay for each
/// value of a key, and the sizes of this part.
pub(in crate::shape) fn keyed_delta_of_rank(
    w: &Weights,
    sizes: DeltaSizes,
) -> (Weights, DeltaSizes) {
    let Some(own) = key_heads(w, sizes, "o_proj") else { return (w.clone(), sizes) };
    let all = sizes.values();
    let values = times(&own, sizes.v_dim, 0);
    let rows = |name| (name, Cut::row_range(all, values.clone()));
    let channels = |name| (name, Cut::channels(all, vec![values.clone()]));
    let of_heads = |name| (name, Cut::row_range(sizes.v_heads, own.clone()));
    let cut = w.cut(vec![
        rows("q_proj"),
        rows("k_proj"),
        rows("v_proj"),
        rows("f_b_proj"),
        rows("g_b_proj"),
        rows("dt_bias"),
        channels("q_conv1d"),
        channels("k_conv1d"),
        channels("v_conv1d"),
        // Of `q_conv.conv` and the like.
        channels("conv"),
        of_heads("b_proj"),
        of_heads("A_log"),
        ("o_proj", Cut::columns(all, values.clone())),
    ]);
    (cut, with_heads(sizes, &own))
}

/// A rank's part of a Mamba 2 layer.
pub(in crate::shape) struct Mambas {
    pub w: Weights,
    /// The sizes of this part.
    pub sizes: MambaSizes,
    /// Set where several ranks have heads of one group: the data that their norms need.
    pub shared: Option<SharedGroup>,
}

/// This rank's part of the Mamba 2 layer under `w`: some groups with all their heads.
/// With more ranks than groups it is some heads of one.
pub(in crate::shape) fn mamba_of_rank(w: &Weights, sizes: MambaSizes) -> Mambas {
    let all = || Mambas { w: w.clone(), sizes, shared: None };
    let Some(ranks) = w.ranks() else { return all() };
    let MambaSizes { heads, head_dim, groups, state_dim, .. } = sizes;
    let (each, inner) = (heads / groups, sizes.inner());
    let packed = w.group_below(&["out_proj"], inner);
    let (rank, count) = (ranks.rank(), ranks.size());
    let beside = count / groups as usize;
    let (own_groups, own, shared) =
        if let Some(own) = share_of(groups, each * head_dim, packed, rank, count) {
            (own.clone(), times(&own, each, 0), None)
        } else if beside > 1 && count.is_multiple_of(groups as usize) {
            let group = (rank / beside) as i32;
            let own = share_of(each, head_dim, packed, rank % beside, beside);
            let Some(own) = own else { return all() };
            let shared = SharedGroup { ranks: ranks.clone(), groups, group, size: each * head_dim };
            (group..group + 1, times(&own, 1, group * each), Some(shared))
        } else {
            return all();
        };
    let states = groups * state_dim;
    let part = |first: i32| {
        vec![
            times(&own, head_dim, first),
            times(&own_groups, state_dim, first + inner),
            times(&own_groups, state_dim, first + inner + states),
        ]
    };
    let values = times(&own, head_dim, 0);
    let mut rows = vec![values.clone()];
    rows.extend(part(inner));
    rows.push(times(&own, 1, inner + sizes.mixed()));
    let of_heads = |name| (name, Cut::row_range(heads, own.clone()));
    let w = w.cut(vec![
        ("in_proj", Cut::rows(inner + sizes.mixed() + heads, rows)),
        ("conv1d", Cut::channels(sizes.mixed(), part(0))),
        of_heads("A_log"),
        of_heads("dt_bias"),
        of_heads("D"),
        ("norm", Cut::row_range(inner, values.clone())),
        ("out_proj", Cut::columns(inner, values)),
    ]);
    let heads = own.end - own.start;
    let sizes = MambaSizes { heads, groups: own_groups.end - own_groups.start, ..sizes };
    Mambas { w, sizes, shared }
}

/// The cursor that has this rank's part of the gated short convolution under `w`, and the channels
/// of this part, of `all`.
pub(in crate::shape) fn channels_of_rank(w: &Weights, all: i32) -> (Weights, i32) {
    let Some(own) = values_of_rank(w, &["out_proj"], all) else { return (w.clone(), all) };
    let parts = (0..3).map(|part| times(&own, 1, part * all)).collect();
    let cut = w.cut(vec![
        ("in_proj", Cut::rows(3 * all, parts)),
        ("conv", Cut::channels(all, vec![own.clone()])),
        ("out_proj", Cut::columns(all, own.clone())),
    ]);
    (cut, own.end - own.start)
}
