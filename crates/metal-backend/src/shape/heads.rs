//! The layer of a checkpoint that drafts.

use super::Shape;
use crate::error::Result;
use crate::layers::{Block, Drafter, Heads};
use crate::weights::Weights;

/// The names of the parts of a layer that drafts, beside those of its block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadNames {
    /// The norm of embeddings.
    pub embed_norm: &'static str,
    /// The norm of hidden states.
    pub hidden_norm: &'static str,
    /// The projection from both.
    pub project: &'static str,
    /// The norm behind the block.
    pub norm: &'static str,
    /// Copies of the model's own embeddings and output layer.
    pub copies: &'static [&'static str],
}

impl HeadNames {
    /// Those of Qwen 3.5 and Qwen 3 Next, under `mtp`.
    pub const QWEN: HeadNames = HeadNames {
        embed_norm: "pre_fc_norm_embedding",
        hidden_norm: "pre_fc_norm_hidden",
        project: "fc",
        norm: "norm",
        copies: &[],
    };

    /// Those of DeepSeek V3 and GLM 4.5, beside the tensors of their block.
    pub const NEXTN: HeadNames = HeadNames {
        embed_norm: "enorm",
        hidden_norm: "hnorm",
        project: "eh_proj",
        norm: "shared_head.norm",
        copies: &["embed_tokens", "shared_head.head"],
    };
}

impl Shape {
    /// The layer under `w` that drafts, around its `block`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn heads(&self, w: &Weights, names: HeadNames, block: Block) -> Result<Box<dyn Drafter>> {
        w.ignore_modules(names.copies);
        let hidden = self.hidden_size;
        Ok(Box::new(Heads {
            embed_norm: self.norm(w, names.embed_norm, hidden)?,
            hidden_norm: self.norm(w, names.hidden_norm, hidden)?,
            project: w.linear(names.project, 2 * hidden, hidden, false)?,
            block,
            norm: self.norm(w, names.norm, hidden)?,
        }))
    }

    /// The layer behind the last block of `model` that drafts, built by `block` as the others are.
    /// All layers behind the last block are left aside where the checkpoint has none, or several.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn next_heads(
        &self,
        w: &Weights,
        model: &Weights,
        block: impl Fn(&Weights, usize) -> Result<Block>,
    ) -> Result<Option<Box<dyn Drafter>>> {
        let (names, index) = (HeadNames::NEXTN, self.num_hidden_layers as usize);
        let at = |index: usize| model.at(self.layers).at(&index.to_string());
        let found = at(index).heads_at("", names.project);
        // Several would have to follow each other.
        let drafter = match found.filter(|_| at(index + 1).is_empty()) {
            Some(w) => w.heads(|w| self.heads(w, names, block(w, index)?))?,
            None => None,
        };
        w.leave_layers_from(self.num_hidden_layers);
        Ok(drafter)
    }
}
