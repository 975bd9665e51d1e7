//! Kinds and sizes of the state that a layer keeps of each row's past.

use super::buffer::STEP;
use super::slab::slack;
use super::storage::Storage;

/// The kind of state that a layer keeps of each row: a closed set, as the mixers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateSpec {
    /// Keys and values of positions.
    Kv(KvSpec),
    /// A recurrent state.
    Recurrent(RecurrentSpec),
    /// Keys and values of positions, and a recurrent state.
    Both(KvSpec, RecurrentSpec),
    /// Nothing.
    Nothing,
}

/// The sizes of a recurrent state, of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecurrentSpec {
    /// The inputs of a short convolution that its next position sees: positions, channels.
    pub convolution: [i32; 2],
    /// The matrices that the recurrence sums up, in F32: heads, rows and columns; `None`: there are
    /// none.
    pub state: Option<[i32; 3]>,
}

/// Keys and values of the positions that a layer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvSpec {
    pub growth: Growth,
    pub n_kv_heads: i32,
    /// Values of a key.
    pub key_dim: i32,
    /// Values of a value; 0: a value is the beginning of its key, and is not held again.
    pub value_dim: i32,
}

/// Which positions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Every one.
    Growing,
    /// The last ones, as many as the layer sees.
    Sliding {
        /// Positions that a position sees, itself included.
        window: i32,
    },
    /// The first `keep` and the last ones, `limit` in all: what a context length asks for.
    Bounded {
        /// Positions held.
        limit: i32,
        /// Of these, how many from the beginning.
        keep: i32,
    },
}

/// Bytes that a layer's state takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateCost {
    spec: StateSpec,
    /// Bytes of one position of one row.
    pub position: u64,
    /// Bytes of one row, however many positions it has passed.
    row: u64,
}

impl Growth {
    /// Positions kept from the beginning where a context length bounds a cache.
    const CONTEXT_KEEP: i32 = 4;

    /// The growth of a layer that sees `window` positions, under a context length.
    fn new(window: Option<i32>, context_length: Option<i32>) -> Growth {
        match (window, context_length) {
            (Some(window), limit) if limit.is_none_or(|limit| window <= limit) => {
                Growth::Sliding { window }
            }
            (_, Some(limit)) => {
                Growth::Bounded { limit, keep: Growth::CONTEXT_KEEP.min(limit - 1) }
            }
            _ => Growth::Growing,
        }
    }

    /// The most positions held at once when `tokens` have passed, at most `chunk` of them together.
    fn positions(self, tokens: u64, chunk: u64) -> u64 {
        let grown = tokens.next_multiple_of(STEP as u64);
        match self {
            Growth::Growing => grown,
            Growth::Sliding { window } => grown.min((window + slack(window)) as u64 + chunk),
            Growth::Bounded { limit, .. } => grown.min(limit as u64 + chunk),
        }
    }
}

impl KvSpec {
    /// The keys and values of a layer that sees `window` positions, under a context length.
    pub fn new(
        n_kv_heads: i32,
        head_dim: i32,
        window: Option<i32>,
        context_length: Option<i32>,
    ) -> KvSpec {
        let growth = Growth::new(window, context_length);
        KvSpec { growth, n_kv_heads, key_dim: head_dim, value_dim: head_dim }
    }

    /// The latents of `width` values of a layer that sees all positions, under a context length.
    pub fn latent(width: i32, context_length: Option<i32>) -> KvSpec {
        let growth = Growth::new(None, context_length);
        KvSpec { growth, n_kv_heads: 1, key_dim: width, value_dim: 0 }
    }
}

impl StateSpec {
    /// The state of each of `layers` under a context length; `state` gives it for one of them.
    ///
    /// A context length bounds what grows. A window bounds its layer already and stays as it is,
    /// unless no layer grows: then the context length bounds the windows above it, since it would
    /// do nothing.
    pub fn of_layers<T>(
        layers: &[T],
        context_length: Option<i32>,
        state: impl Fn(&T, Option<i32>) -> StateSpec,
    ) -> Vec<StateSpec> {
        let one_grows = layers.iter().any(|layer| state(layer, None).grows());
        let of_layer = |layer| match state(layer, None) {
            own if one_grows && !own.grows() => own,
            _ => state(layer, context_length),
        };
        layers.iter().map(of_layer).collect()
    }

    /// Its cost if keys and values are held by `storage` and have `dtype_size` bytes each.
    pub fn cost(self, storage: Storage, dtype_size: u64) -> StateCost {
        let elements = |sizes: &[i32]| sizes.iter().map(|size| *size as u64).product::<u64>();
        let of_kv = |KvSpec { n_kv_heads, key_dim, value_dim, .. }| {
            storage.bytes(elements(&[n_kv_heads, key_dim + value_dim]), dtype_size)
        };
        let of_recurrent = |RecurrentSpec { convolution, state }| {
            let state = state.map_or(0, |state| elements(&state) * 4);
            elements(&convolution) * dtype_size + state
        };
        let (position, row) =
            (self.kv().map_or(0, of_kv), self.recurrent().map_or(0, of_recurrent));
        StateCost { spec: self, position, row }
    }

    /// The sizes of keys and values, where there are any.
    pub(super) fn kv(self) -> Option<KvSpec> {
        match self {
            StateSpec::Kv(kv) | StateSpec::Both(kv, _) => Some(kv),
            StateSpec::Recurrent(_) | StateSpec::Nothing => None,
        }
    }

    /// The sizes of the recurrent state, where there is one.
    fn recurrent(self) -> Option<RecurrentSpec> {
        match self {
            StateSpec::Recurrent(state) | StateSpec::Both(_, state) => Some(state),
            StateSpec::Kv(_) | StateSpec::Nothing => None,
        }
    }

    /// A layer of the same kind that takes as little as it can: what can be done with rows is the
    /// same.
    pub fn narrow(self) -> StateSpec {
        let kv = |kv: KvSpec| KvSpec { n_kv_heads: 1, ..kv };
        let recurrent = || RecurrentSpec { convolution: [1, 1], state: None };
        match self {
            StateSpec::Kv(spec) => StateSpec::Kv(kv(spec)),
            StateSpec::Recurrent(_) => StateSpec::Recurrent(recurrent()),
            StateSpec::Both(spec, _) => StateSpec::Both(kv(spec), recurrent()),
            StateSpec::Nothing => StateSpec::Nothing,
        }
    }

    /// Returns true when positions of a row that ends after at most `total` ones can be taken back.
    /// Past a bound, new positions overwrite old ones.
    pub fn can_go_back(self, total: usize) -> bool {
        let is_kept = |kv: KvSpec| match kv.growth {
            Growth::Bounded { limit, .. } => total <= limit as usize,
            Growth::Growing | Growth::Sliding { .. } => true,
        };
        self.kv().is_none_or(is_kept)
    }

    /// Returns true when it holds nothing but what single positions left.
    pub fn is_of_positions(self) -> bool {
        self.recurrent().is_none()
    }

    /// Returns true when every further position takes more memory, however many have passed.
    pub fn grows(self) -> bool {
        self.kv().is_some_and(|kv| kv.growth == Growth::Growing)
    }

    /// Values of each key and of each value that are packed in groups.
    pub fn packed_dims(self) -> impl Iterator<Item = i32> {
        self.kv().into_iter().flat_map(|kv| [kv.key_dim, kv.value_dim]).filter(|dim| *dim > 0)
    }
}

impl StateCost {
    /// The most positions that are seen at once when `tokens` have passed, at most `chunk` of them
    /// together.
    pub fn positions(self, tokens: u64, chunk: u64) -> u64 {
        self.spec.kv().map_or(0, |kv| kv.growth.positions(tokens, chunk))
    }

    /// Bytes of one row when `tokens` have passed, at most `chunk` of them together.
    pub fn bytes(self, tokens: u64, chunk: u64) -> u64 {
        self.positions(tokens, chunk) * self.position + self.row
    }

    /// Bytes of one row that holds `tokens` positions and no room for more.
    pub fn exact_bytes(self, tokens: u64) -> u64 {
        tokens * self.position + self.row
    }
}
