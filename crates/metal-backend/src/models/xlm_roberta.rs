//! RoBERTa and XLM-RoBERTa: BERT's encoder, whose places begin behind that of padding.

use super::bert;
use crate::config::Config;
use crate::error::Result;
use crate::layers::{ClassHead, TextEncoder};
use crate::shape::scores;
use crate::weights::Weights;

/// Builds the model under the names of `XLMRobertaModel` or `XLMRobertaForSequenceClassification`.
pub(super) fn load(config: &Config, w: &Weights) -> Result<(TextEncoder, Option<ClassHead>)> {
    let model = w.first_of(&["roberta"]).unwrap_or_else(|| w.clone());
    let scores = scores(config, w, "classifier.out_proj")?;
    let padding = config.opt_index("pad_token_id")?.unwrap_or(1);
    let encoder = bert::build(config, &model, padding + 1)?;
    model.ignore_modules(&["pooler"]);
    if !scores {
        w.ignore_modules(&["lm_head"]);
        return Ok((TextEncoder::Encoder(Box::new(encoder)), None));
    }
    let (head, hidden) = (w.at("classifier"), encoder.hidden_size);
    let dense = head.linear("dense", hidden, hidden, true)?;
    let head = bert::tanh_head(dense, head.linear("out_proj", hidden, 1, true)?, w);
    Ok((TextEncoder::Encoder(Box::new(encoder)), Some(head)))
}
