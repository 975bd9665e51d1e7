//! How many experts a mixture has.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::Decoder;

/// The numbers of experts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experts {
    /// That there are.
    pub count: i32,
    /// That each position passes.
    pub per_token: i32,
}

impl Experts {
    /// The numbers that `config` states, that of all under the first of `keys` that it has.
    ///
    /// # Errors
    /// A key that is missing or wrong; more experts for a position than there are.
    pub fn read(config: &Config, keys: [&str; 2]) -> Result<Experts> {
        let [first, second] = keys;
        let count = match config.opt_size(second)? {
            Some(count) if config.get(first).is_none() => count,
            _ => config.size(first)?,
        };
        let per_token = config.size("num_experts_per_tok")?;
        if per_token > count {
            return Err(Error::model(format!(
                "config.json: `num_experts_per_tok` is {per_token} of {count} experts"
            )));
        }
        Ok(Experts { count, per_token })
    }

    /// `decoder` with the width of what its experts, of `inner` values, compute at once.
    pub fn widen(&self, decoder: Decoder, inner: i32) -> Decoder {
        // Each choice has its own row on the way in, inside, and on the way out.
        let width = i64::from(self.per_token) * (i64::from(inner) + i64::from(decoder.hidden_size))
            + i64::from(self.count);
        let intermediate_size = i32::try_from(width).unwrap_or(i32::MAX);
        Decoder { intermediate_size: decoder.intermediate_size.max(intermediate_size), ..decoder }
    }
}
