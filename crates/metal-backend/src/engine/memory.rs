//! The bytes that requests need, computed before they start.

use inference_core::{Error, Token, TokenLogprob};
use mlx_ffi::{Device, memory};

use super::pass;
use crate::cache::{StateCost, StateSpec, Storage};
use crate::layers::{Decoder, Mixer, Workspace};
use crate::plan::Need;

/// Positions whose logits are computed at once, where those of many are asked for.
pub(super) const HEAD_ROWS: usize = 16;

/// The most positions of several rows that one pass with drafts computes, with the logits of each.
const DRAFTED_POSITIONS: usize = 128;

/// Of the limit without the weights, no more than one part in so many stays free for passes of
/// prompts.
const PASSES: u64 = 8;

/// New positions that are set aside for a row that decodes.
pub(super) const AHEAD: usize = 256;

/// The arithmetic of one model's requests.
pub(super) struct Budget {
    /// Bytes that weights, caches and activations may take together.
    pub limit: u64,
    /// The cost of each layer's state.
    layers: Vec<StateCost>,
    /// Bytes of activations for each position of a chunk.
    activation_bytes: u64,
    /// How many layers' activations are held at once where the rows are few.
    queued_layers: u64,
    /// The longest sequence whose caches hold when it grows; a longer one is prefilled once more.
    original_context: Option<usize>,
    /// Bytes of a query's scores for one key, all heads together.
    score_bytes: u64,
    /// Workspace of products, beside the activations.
    products: Workspace,
    /// Workspace of the output layer, beside the logits.
    head: Workspace,
    /// Bytes of one position's logits, their log probabilities and sampling copies.
    logit_bytes: u64,
    /// Positions of a chunk.
    chunk: u64,
    /// Bytes that stay free for a pass of prompts while rows begin beside others.
    pub passes: u64,
}

/// The size of a request, from which the bytes that it needs follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Ids of the prompt.
    pub prompt: usize,
    /// The most tokens to generate; `None`: as many as the context and the memory hold.
    pub new: Option<usize>,
    /// Positions that the model's context holds.
    pub context: usize,
    /// Bytes that the prompt's log probabilities take.
    pub report: u64,
    /// Bytes that its pictures take.
    pub sight: u64,
    /// The most draft tokens of a step.
    pub draft: usize,
}

impl Budget {
    /// The budget of `model` whose activations take `dtype_size` bytes each, with its limit, the
    /// positions of a chunk, and the most of a pass of several prompts.
    pub fn new(
        model: &Decoder,
        (specs, storage): (&[StateSpec], Storage),
        dtype_size: u64,
        device: Device,
        (limit, chunk, pass): (u64, usize, usize),
    ) -> Budget {
        let layers = specs.iter().map(|spec| spec.cost(storage, dtype_size)).collect();
        let drafting = || model.drafter.iter().flat_map(|drafter| drafter.layers());
        let mixers = || model.layers.iter().chain(drafting()).map(|layer| &layer.mixer);
        let (inner, products) = match &model.drafter {
            None => (model.intermediate_size, model.workspace()),
            Some(drafter) => {
                let (inner, products) = drafter.widest();
                (inner.max(model.intermediate_size), model.workspace().or(products))
            }
        };
        let mixed = mixers().map(Mixer::activations).max().unwrap_or(0);
        // The residual stream and its norms, the layers' own inputs, what the mixer holds, the
        // three intermediates of the feed-forward network.
        let values = model.stream_values();
        let of_drafter = model.drafter.as_ref().map_or(0, |of| of.stream_values(values));
        let stream = 4 * values.max(of_drafter);
        let activations = stream + mixed + 3 * inner as u64;
        let mut budget = Budget {
            limit,
            layers,
            activation_bytes: activations * dtype_size,
            queued_layers: match device {
                Device::Cpu => pass::QUEUED_LAYERS.min(model.layers.len()) as u64,
                Device::Gpu => pass::PREPARED_LAYERS as u64,
            },
            original_context: model.original_context.map(|length| length as usize),
            score_bytes: mixers().map(|mixer| mixer.score_bytes(device)).max().unwrap_or(0),
            products,
            head: model.head_workspace(),
            logit_bytes: 4 * 4 * model.vocab_size as u64,
            chunk: chunk as u64,
            passes: 0,
        };
        let passes = budget.activations(pass as u64) + budget.answers(1) + budget.caches(1, pass);
        let free = limit.saturating_sub(memory::active().unwrap_or(0) as u64);
        budget.passes = passes.min(free / PASSES);
        budget
    }

    /// Bytes of the caches of `rows` rows that share buffers, the longest of `tokens` positions.
    pub fn caches(&self, rows: usize, tokens: usize) -> u64 {
        let tokens = tokens as u64;
        let chunk = self.chunk.min(tokens);
        rows as u64 * self.layers.iter().map(|layer| layer.bytes(tokens, chunk)).sum::<u64>()
    }

    /// Positions that are set aside for a row of `held` ids of which `left` more may come.
    pub fn ahead(held: usize, left: usize) -> usize {
        held + left.min(AHEAD)
    }

    /// Bytes of a chunk's activations and scores, and of a step's logits, for a prompt with `new`
    /// more tokens.
    pub fn work(&self, prompt: usize, new: usize) -> u64 {
        let prompt = match self.original_context {
            Some(original) if prompt <= original && original < prompt + new => original + 1,
            _ => prompt,
        } as u64;
        let chunk = self.chunk.min(prompt);
        let keys = self.layers.iter().map(|layer| layer.positions(prompt, chunk)).max();
        let scores = self.score_bytes * chunk * keys.unwrap_or(0);
        self.activations(chunk) + self.moved(chunk) + scores + self.answers(1)
    }

    /// Bytes of the activations of a whole chunk of a prompt.
    pub fn chunk_work(&self) -> u64 {
        self.activations(self.chunk) + self.answers(1)
    }

    /// Bytes that so many positions more than a chunk has take, of prompts up to the longest chunk
    /// twice.
    pub fn longer_chunk(&self, positions: usize) -> u64 {
        match positions as u64 {
            0 => 0,
            more => self.activations(more) + self.score_bytes * more * 2 * (self.chunk + more),
        }
    }

    /// Bytes of the caches that are held twice while so many rows, a whole prompt, are written to
    /// them.
    fn moved(&self, rows: u64) -> u64 {
        if rows >= pass::MANY_ROWS as u64 {
            return 0;
        }
        let largest = self.layers.iter().map(|layer| layer.bytes(rows, rows));
        self.queued_layers * largest.max().unwrap_or(0)
    }

    /// Bytes of the activations of so many rows, and of what products take beside them.
    fn activations(&self, rows: u64) -> u64 {
        let few = rows.min(pass::MANY_ROWS as u64);
        let queued = rows.max(few * self.queued_layers);
        queued * (self.activation_bytes + self.products.row) + self.products.unpacked_bytes(rows)
    }

    /// Bytes of the logits of so many positions at once.
    fn answers(&self, positions: usize) -> u64 {
        let positions = positions as u64;
        positions * self.logit_bytes + self.head.bytes(positions)
    }

    /// Bytes of `rows` rows of up to `tokens` positions that are computed together and not
    /// decoded, with the logits of `answers` positions at once. Several rows fit into a chunk.
    pub fn together(&self, rows: usize, tokens: usize, answers: usize) -> u64 {
        let answers = self.answers(answers.max(1));
        if rows == 1 {
            return self.caches(1, tokens) + self.work(tokens, 0) - self.answers(1) + answers;
        }
        let (rows, tokens) = (rows as u64, tokens as u64);
        let held: u64 = self.layers.iter().map(|layer| layer.exact_bytes(tokens)).sum();
        let scores = self.score_bytes * tokens * tokens;
        rows * (held + scores) + self.activations(rows * tokens) + answers
    }

    /// Bytes that a pass of `columns` positions of several rows takes beside their caches, of up to
    /// `tokens` positions, which are copied where the rows end at different places.
    pub fn pass(&self, rows: usize, columns: usize, tokens: usize) -> u64 {
        let positions = (rows * columns) as u64;
        let scores = self.score_bytes * positions * tokens as u64;
        self.activations(positions) + scores + self.answers(1) + self.caches(rows, tokens)
    }

    /// Bytes that the log probabilities of a prompt take while it is computed: the logits of some
    /// positions at once, and what is told of each token, with `top` most likely ones.
    pub fn report(&self, (tokens, top): (usize, usize)) -> u64 {
        let told = size_of::<Token>() + top * size_of::<TokenLogprob>();
        let more_logits = HEAD_ROWS.min(tokens).saturating_sub(1) as u64 * self.logit_bytes;
        more_logits + tokens as u64 * told as u64
    }

    /// The bytes that a request needs to end alone, and for a while beside others.
    /// `beside` returns what caches add to the bytes set aside: a row may have left them a slot.
    pub fn need(&self, wanted: Wanted, beside: impl Fn(u64) -> u64) -> Need {
        let (least, most) = wanted.tokens();
        let ahead = Budget::ahead(0, most);
        let caches = self.caches(1, wanted.prompt + ahead);
        let (new, work) = (beside(caches), self.work(wanted.prompt, ahead));
        let of_pass = match new < caches {
            // While a prompt is computed, it has buffers beside the slot that it takes then.
            true => self.caches(1, wanted.prompt) + work,
            // Rows that begin one after the other until memory is full would leave each prompt a
            // pass of its own.
            false => work.max(self.passes),
        };
        let soon = (self.alone(wanted, ahead) - caches - work) + new + of_pass;
        Need { least: self.alone(wanted, least), soon }
    }

    /// How many new tokens may follow a prompt that has `available` bytes once it is alone.
    pub fn new_tokens(&self, wanted: Wanted, available: u64) -> usize {
        let (mut fits, most) = wanted.tokens();
        if self.alone(wanted, most) <= available {
            return most;
        }
        let mut too_many = most + 1;
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if self.alone(wanted, middle) <= available {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        fits
    }

    /// Why a request does not fit into `available` bytes.
    pub fn refusal(&self, wanted: Wanted, available: u64) -> Error {
        let (Wanted { prompt, report, sight, .. }, (least, _)) = (wanted, wanted.tokens());
        let told = if report > 0 { " and its log probabilities" } else { "" };
        let seen = if sight > 0 { " and its pictures and sounds" } else { "" };
        Error::Memory {
            what: format!("a prompt of {prompt} tokens with {least} new ones{told}{seen}"),
            needed: self.alone(wanted, least),
            available,
            remedy: "ask for fewer tokens, set a shorter context length or a smaller prefill chunk, or raise the memory limit".into(),
        }
    }

    /// Bytes of a request with so many new tokens.
    fn alone(&self, wanted: Wanted, new: usize) -> u64 {
        let Wanted { prompt, report, sight, draft, .. } = wanted;
        let tokens = prompt + new + draft;
        self.caches(1, tokens)
            + self.work(prompt, new)
            + self.drafts(1, draft, tokens)
            + report
            + sight
    }

    /// The most draft tokens of each of so many rows: more rows have shorter drafts.
    pub fn most_drafts(rows: usize) -> usize {
        (DRAFTED_POSITIONS / rows.max(1)).saturating_sub(1)
    }

    /// Bytes that a pass takes beside the caches, of `rows` rows of up to `tokens` positions with
    /// drafts of up to `longest` tokens. Fewer rows never take more.
    pub fn drafts(&self, rows: usize, longest: usize, tokens: usize) -> u64 {
        if longest == 0 {
            return 0;
        }
        let positions = (rows * (1 + longest)).min(DRAFTED_POSITIONS);
        let scores = self.score_bytes * (positions * tokens) as u64;
        // Recurrent states are copied before it, and all of them behind it where rows end at
        // different places.
        let copies = rows as u64 * self.layers.iter().map(|of| of.exact_bytes(0)).sum::<u64>();
        let moved = if copies > 0 && rows > 1 { self.caches(rows, tokens) } else { 0 };
        self.activations(positions as u64) + self.answers(positions) + scores + copies + moved
    }
}

impl Wanted {
    /// The fewest new tokens with which it is admitted, and the most that it may have.
    fn tokens(self) -> (usize, usize) {
        let left = self.context.saturating_sub(self.prompt);
        let most = self.new.unwrap_or(left).min(left);
        (if self.new.is_none() { 1.min(most) } else { most }, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::KvSpec;

    fn budget() -> Budget {
        Budget {
            limit: 0,
            layers: Vec::new(),
            activation_bytes: 100,
            queued_layers: 3,
            products: Workspace { row: 7, unpacked: 5000, unpacked_from: 512 },
            head: Workspace { row: 3, unpacked: 900, unpacked_from: 512 },
            original_context: None,
            score_bytes: 0,
            logit_bytes: 10,
            chunk: 2048,
            passes: 0,
        }
    }

    #[test]
    fn what_products_take_is_part_of_what_is_needed() {
        let budget = budget();
        // One row goes through the output layer.
        assert_eq!(budget.work(511, 0), 511 * 107 + 13);
        assert_eq!(budget.work(512, 0), 512 * 107 + 5000 + 13);
        assert_eq!(budget.work(5000, 0), 2048 * 107 + 5000 + 13);
        assert_eq!(budget.together(1, 511, 2), 511 * 107 + 26);
        // Of few rows, several layers are under way.
        assert_eq!(budget.work(10, 0), 3 * 10 * 107 + 13);
        assert_eq!(budget.work(50, 0), 3 * 32 * 107 + 13);
        assert_eq!(budget.together(2, 300, 600), 600 * 107 + 5000 + 600 * 13 + 900);
    }

    #[test]
    fn beside_others_a_request_leaves_room_for_a_pass_or_takes_a_slot() {
        let spec = StateSpec::Kv(KvSpec::new(2, 8, None, None));
        let layers = vec![spec.cost(Storage::Plain, 2)];
        let budget = Budget { layers, passes: 9_000_000, ..budget() };
        let wanted =
            Wanted { prompt: 100, new: Some(50), context: 4096, report: 3, sight: 4, draft: 0 };
        let need = |beside: fn(u64) -> u64| budget.need(wanted, beside);
        let work = budget.work(100, 50);
        assert!(work < budget.passes);
        let held = |tokens| budget.caches(1, tokens);
        assert!(held(150) > 0);
        assert_eq!(need(|bytes| bytes).soon, held(150) + budget.passes + 7);
        assert_eq!(need(|bytes| bytes).least, held(150) + work + 7);
        // Of a slot it takes nothing more, but its prompt has buffers of its own until then.
        assert_eq!(need(|_| 0).soon, held(100) + work + 7);
        assert_eq!(need(|bytes| bytes - 1).soon, held(150) - 1 + held(100) + work + 7);
    }

    #[test]
    fn drafts_of_many_rows_are_cut_and_their_logits_are_set_aside() {
        let budget = Budget { score_bytes: 2, ..budget() };
        assert_eq!(budget.drafts(64, 0, 1000), 0);
        let of_positions =
            |count: u64| count.max(3 * count.min(32)) * 107 + count * 13 + 2 * count * 1000;
        assert_eq!(budget.drafts(1, 4, 1000), of_positions(5));
        assert_eq!(budget.drafts(2, 64, 1000), of_positions(128));
        assert_eq!(budget.drafts(64, 64, 1000), of_positions(128));
        assert_eq!([1, 2, 3, 64, 65, 500].map(Budget::most_drafts), [127, 63, 41, 1, 0, 0]);
        for rows in 1..=DRAFTED_POSITIONS {
            for longest in 1..=64 {
                let computed = rows * (1 + longest.min(Budget::most_drafts(rows)));
                let taken = budget.drafts(rows, longest, 1000);
                assert!(taken >= of_positions(computed as u64), "{rows} rows, {longest} tokens");
                assert!(taken <= budget.drafts(rows + 1, longest, 1000));
            }
        }
    }
}
