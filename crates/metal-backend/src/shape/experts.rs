//! How many experts a mixture has.

use super::split::{InnerNames, inner_of_rank};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::layers::{Decoder, ExpertGroups, ExpertLinear, GateUp, GroupScore};
use crate::weights::Weights;

/// The names of the projections of one expert, or of a dense network, in a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertNames {
    pub gate: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    /// The module of all experts where mlx-lm has converted them.
    pub converted: &'static str,
}

impl ExpertNames {
    /// As dense networks have them.
    pub const PROJ: ExpertNames = ExpertNames {
        gate: "gate_proj",
        up: "up_proj",
        down: "down_proj",
        converted: "switch_mlp",
    };
    /// As Gemma 4 has them.
    pub const GEMMA: ExpertNames =
        ExpertNames { converted: "experts.switch_glu", ..ExpertNames::PROJ };
    /// As dense networks have them; mlx-lm converts them under their released module.
    pub const STACKED: ExpertNames = ExpertNames { converted: "experts", ..ExpertNames::PROJ };
    /// As Mixtral has them.
    pub const NUMBERED: ExpertNames =
        ExpertNames { gate: "w1", up: "w3", down: "w2", converted: "switch_mlp" };
}

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
        Experts::read_as(config, keys, "num_experts_per_tok")
    }

    /// The numbers that `config` states, as [`read`](Self::read) has them; that of those that each
    /// position passes is under `chosen`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_as(config: &Config, keys: [&str; 2], chosen: &str) -> Result<Experts> {
        let [first, second] = keys;
        let count = match config.opt_size(second)? {
            Some(count) if config.get(first).is_none() => count,
            _ => config.size(first)?,
        };
        let per_token = config.size(chosen)?;
        if per_token > count {
            return Err(Error::model(format!(
                "config.json: `{chosen}` is {per_token} of {count} experts"
            )));
        }
        Ok(Experts { count, per_token })
    }

    /// The experts' projections in, from `hidden` to `inner` values, and out: a tensor for each
    /// expert under `experts`, `gate_up_proj` and `down_proj` of all there, also turned,
    /// `input_linear` and `output_linear` of all, or a tensor of all for each projection under
    /// `names.converted`, as mlx-lm converts them.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn linears(
        &self,
        w: &Weights,
        names: ExpertNames,
        [hidden, inner]: [i32; 2],
    ) -> Result<(GateUp<ExpertLinear>, ExpertLinear)> {
        let of_rank = InnerNames {
            into: &[names.gate, names.up, "gate_proj", "up_proj"],
            both: &["gate_up_proj", "input_linear"],
            out: &[names.down, "down_proj", "output_linear"],
        };
        // Every rank computes what lies the other way round.
        let both = [self.count, inner.saturating_mul(2), hidden];
        let (w, inner) = &match w.is_turned("experts.gate_up_proj", both) {
            true => (w.clone(), inner),
            false => inner_of_rank(w, &of_rank, inner),
        };
        let inner = *inner;
        let fused = [
            ["experts.gate_up_proj", "experts.down_proj"],
            ["input_linear.weight", "output_linear.weight"],
        ];
        if let Some([gate_up, down]) = fused.into_iter().find(|[gate_up, _]| w.has(gate_up)) {
            let (inside, outside) = ([self.count, inner, hidden], [self.count, hidden, inner]);
            let parts = ["gate_proj", "up_proj"];
            let to = names.converted;
            let [gate_proj, up_proj] = w.fused_expert_linears(gate_up, to, parts, inside)?;
            let [down_proj] = w.fused_expert_linears(down, to, ["down_proj"], outside)?;
            return Ok((GateUp::Separate { gate_proj, up_proj }, down_proj));
        }
        let converted = w.at(names.converted);
        if !converted.at("gate_up_proj").is_empty() {
            // As mlx-vlm converts some of them.
            let (inside, outside) = ([self.count, inner, hidden], [self.count, hidden, inner]);
            let parts = ["gate_proj", "up_proj"];
            let [gate_proj, up_proj] =
                converted.parted_expert_linears("gate_up_proj", parts, inside)?;
            let down_proj = converted.expert_linear("down_proj", outside, false)?;
            return Ok((GateUp::Separate { gate_proj, up_proj }, down_proj));
        }
        let linear = |own, name, input, output| {
            let shape = [self.count, output, input];
            if w.at("experts").is_empty() || !converted.at(name).is_empty() {
                converted.expert_linear(name, shape, false)
            } else {
                w.each_expert_linear(own, &converted.at(name), shape)
            }
        };
        let gate_up = GateUp::Separate {
            gate_proj: linear(names.gate, "gate_proj", hidden, inner)?,
            up_proj: linear(names.up, "up_proj", hidden, inner)?,
        };
        Ok((gate_up, linear(names.down, "down_proj", inner, hidden)?))
    }

    /// Projections of experts without a gate, in from `hidden` to `inner` values and out: a tensor
    /// for each expert under `experts`, one for all there, or one for all under `switch_mlp`, as
    /// mlx-lm converts them.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit.
    pub fn ungated(
        &self,
        w: &Weights,
        [hidden, inner]: [i32; 2],
    ) -> Result<(ExpertLinear, ExpertLinear)> {
        let of_rank =
            InnerNames { into: &["up_proj", "fc1"], both: &[], out: &["down_proj", "fc2"] };
        let (w, inner) = &inner_of_rank(w, &of_rank, inner);
        let inner = *inner;
        let linear = |own: &str, name: &str, input, output| {
            let (shape, fused) = ([self.count, output, input], format!("experts.{own}"));
            if w.has(&fused) {
                let [linear] = w.fused_expert_linears(&fused, "switch_mlp", [name], shape)?;
                return Ok(linear);
            }
            let converted = w.at("switch_mlp");
            if w.at("experts").is_empty() {
                return converted.expert_linear(name, shape, false);
            }
            w.each_expert_linear(own, &converted.at(name), shape)
        };
        Ok((linear("up_proj", "fc1", hidden, inner)?, linear("down_proj", "fc2", inner, hidden)?))
    }

    /// The groups that `config` states, where there are several, with the score of each.
    ///
    /// # Errors
    /// Groups that do not divide the experts, or have too few of them.
    pub fn groups(&self, config: &Config, by: GroupScore) -> Result<Option<ExpertGroups>> {
        let count = config.opt_size("n_group")?.unwrap_or(1);
        let kept = config.opt_size("topk_group")?.unwrap_or(1);
        if count == 1 {
            return Ok(None);
        }
        let size = self.count / count;
        let divides = self.count % count == 0 && size >= 2;
        if !divides || kept > count || i64::from(kept) * i64::from(size) < i64::from(self.per_token)
        {
            return Err(Error::model(format!(
                "config.json: `n_group` {count} and `topk_group` {kept} do not fit {} experts, of which {} are chosen",
                self.count, self.per_token
            )));
        }
        Ok(Some(ExpertGroups { count, kept, by }))
    }

    /// `decoder` with the width of what its experts, of `inner` values, compute at once.
    pub fn widen(&self, decoder: Decoder, inner: i32) -> Decoder {
        // Each choice has its own row on the way in, inside, and on the way out.
        let width = i64::from(self.per_token) * (i64::from(inner) + i64::from(decoder.hidden_size))
            + i64::from(self.count);
        let intermediate_size = i32::try_from(width).unwrap_or(i32::MAX);
        Decoder { intermediate_size: decoder.intermediate_size.max(intermediate_size), ..decoder }
    }

    /// `decoder` with the width of its experts, of `inner` values, and of a shared one of `shared`
    /// values beside them.
    pub fn widen_beside(&self, decoder: Decoder, inner: i32, shared: i32) -> Decoder {
        let decoder = self.widen(decoder, inner);
        let intermediate_size = decoder.intermediate_size.saturating_add(shared);
        Decoder { intermediate_size, ..decoder }
    }
}
