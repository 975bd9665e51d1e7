//! The tokens of a text by itself, without those that a tokenizer puts around each.

use inference_core::TextModel;

use crate::error::Result;

/// The ids of `text`, without what `model` puts before and behind each text.
///
/// # Errors
/// The tokenizer fails.
pub fn bare(model: &dyn TextModel, text: &str) -> Result<Vec<u32>> {
    let mut ids = model.encode(text)?;
    let around = model.encode("")?;
    let same = |pair: &(&u32, &u32)| pair.0 == pair.1;
    let before = ids.iter().zip(&around).take_while(same).count();
    let rest = &around[before..];
    let behind = ids.len().saturating_sub(rest.len());
    if ids[before..].ends_with(rest) {
        ids.truncate(behind);
    }
    ids.drain(..before);
    Ok(ids)
}
