//! EmbeddingGemma as mlx-embeddings writes it: the projections behind the pooling lie among the
//! weights.

use super::dense::{Dense, DenseActivation, DensePlace};
use crate::config::Config;
use crate::error::Result;
use crate::files::ModelFiles;
use crate::weights::Checkpoint;

/// The prefix of the projections' names; a number follows.
const DENSE: &str = "dense.";

/// The projections among the weights of `files`, none where there are none.
///
/// # Errors
/// A config or headers that are damaged.
pub(super) fn projections(files: &ModelFiles) -> Result<Vec<Dense>> {
    let Some(text) = files.text("config.json")? else { return Ok(Vec::new()) };
    let config = Config::parse("config.json", &text);
    let config = config.map_err(|error| error.at(&files.path("config.json")))?;
    if config.opt_text("model_type").ok().flatten() != Some("gemma3_text") {
        return Ok(Vec::new());
    }
    let checkpoint = Checkpoint::open(files)?;
    let mut input =
        config.size("hidden_size").map_err(|error| error.at(&files.path("config.json")))?;
    let mut dense = Vec::new();
    loop {
        let name = format!("{DENSE}{}", dense.len());
        // Packed or not, a matrix has a row for each value that it gives.
        let rows = checkpoint.headers.get(&format!("{name}.weight"));
        let Some(&output) = rows.and_then(|header| header.shape.first()) else { break };
        let (place, bias) = (DensePlace::Weights(name), false);
        dense.push(Dense { place, input, output, bias, activation: DenseActivation::Identity });
        input = output;
    }
    Ok(dense)
}

/// The checkpoint in `files` without its projections, and these alone; all in the first where it
/// `has` none.
///
/// # Errors
/// Headers that are damaged.
pub(super) fn apart(files: &ModelFiles, has: bool) -> Result<[Checkpoint; 2]> {
    let part = |wanted: bool| -> Result<Checkpoint> {
        let is_wanted = move |name: &str| (has && name.starts_with(DENSE)) == wanted;
        let checkpoint = Checkpoint::open(files)?;
        Ok(checkpoint.named(|name, _| is_wanted(name).then(|| name.to_owned())))
    };
    Ok([part(false)?, part(true)?])
}
