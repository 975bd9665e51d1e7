//! The description of an architecture, and the metadata of a file that has it.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value as Json};

use super::reader::{Header, Value};
use crate::error::{Error, Result};

/// The keys of what stands for `config.json`.
pub(super) type Config = Map<String, Json>;

/// The description of an architecture.
pub(super) struct Family {
    /// Its name in files.
    pub name: &'static str,
    /// Its `model_type` in `config.json`; its `config` may set another one for some files.
    pub model_type: &'static str,
    /// The names of its modules elsewhere, where they are not the usual ones: without the layer,
    /// and with the part (`.weight`) where only this one is meant.
    pub modules: &'static [Modules],
    /// The prefix of a layer's number elsewhere.
    pub layers: &'static str,
    /// Metadata that changes what is computed and that `config` or the reader reads.
    pub reads: &'static [&'static str],
    /// Numbers that may differ between layers.
    pub by_layer: &'static [&'static str],
    /// Its activations outgrow f16.
    pub needs_range: bool,
    /// Tensors that are several elsewhere, each with what these are called.
    pub splits: fn(&Metadata<'_>) -> Splits,
    /// Tensors of layers that have one number over and over, which `config` reads.
    pub constants: &'static [&'static str],
    /// How its files store a tensor otherwise, by its name without the layer.
    /// A tensor that stands for several goes by the name of each.
    pub change: fn(&Metadata<'_>, &str) -> Result<Change>,
    /// Adds what only this one states.
    pub config: fn(&Metadata<'_>, &mut Config) -> Result<()>,
}

/// Names of modules in files, each with what it is called elsewhere.
pub(super) type Modules = &'static [(&'static str, &'static str)];

/// Names of tensors in files, each with what it is in parts elsewhere.
pub(super) type Splits = &'static [(&'static str, &'static [&'static str])];

/// A family with nothing of its own.
pub(super) const PLAIN: Family = Family {
    name: "",
    model_type: "",
    modules: &[],
    layers: "model.layers",
    reads: &[],
    by_layer: &[],
    needs_range: false,
    splits: |_| &[],
    constants: &[],
    change: |_, _| Ok(Change::default()),
    config: |_, _| Ok(()),
};

/// How a tensor is stored otherwise than in other checkpoints.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub rows: Rows,
    /// Columns that stand in another order.
    pub columns: Option<Tiles>,
    /// Computes the value that other checkpoints have from the stored one.
    pub value: Option<fn(f32) -> f32>,
}

/// In which order rows are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rows {
    #[default]
    InOrder,
    /// Of so many heads: rows of a head's first and of its second half alternate.
    Paired(u64),
    /// Behind so many rows that are in order.
    Tiled(u64, Tiles),
    /// Of each `of` rows, `size` behind the first `first` ones.
    Picked { first: u64, size: u64, of: u64 },
}

/// Heads that belong to groups: other checkpoints have those of a group in turn, files the first
/// ones of all groups, then the second ones, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    pub groups: u64,
    /// Heads of a group.
    pub heads: u64,
}

impl Tiles {
    /// The place in the file of the head that is at place `head` elsewhere.
    pub fn place(self, head: usize) -> usize {
        let (groups, heads) = (self.groups as usize, self.heads as usize);
        head % heads * groups + head / heads
    }
}

impl Family {
    /// Returns true when the metadata or factors under `key` are read.
    pub fn reads(&self, key: &str) -> bool {
        self.reads.contains(&key)
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Metadata that changes what is computed, which only the families work with that read it.
const READ_BY_SOME: [&str; 32] = [
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "attention.shared_kv_layers",
    "attention.scale",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.temperature_scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "embedding_length_per_layer_input",
    "embedding_scale",
    "residual_scale",
    "logit_scale",
    "expert_count",
    "expert_shared_count",
    "expert_gating_func",
    "expert_group_count",
    "expert_weights_scale",
    "swiglu_clamp_exp",
    "activation_sparsity_scale",
    "altup.num_inputs",
    "leading_dense_block_count",
    "interleave_moe_layer_step",
    "nextn_predict_layers",
    "rope.freq_base_swa",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.attn_factor",
    "rope.dimension_sections",
    "ssm.inner_size",
    "kda.head_dim",
];

/// Divisors of the rotations' speeds, and constants, by the name of the tensor that holds them.
pub(super) type Factors = BTreeMap<&'static str, Vec<f32>>;

/// The metadata of a file, under the keys of its architecture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metadata<'a> {
    pub header: &'a Header,
    pub factors: &'a Factors,
    pub of: &'static Family,
}

impl<'a> Metadata<'a> {
    /// The metadata of a file of the architecture.
    ///
    /// # Errors
    /// Metadata that it does not read, by name.
    pub fn of(
        header: &'a Header,
        of: &'static Family,
        factors: &'a Factors,
    ) -> Result<Metadata<'a>> {
        let metadata = Metadata { header, factors, of };
        for key in READ_BY_SOME {
            let key = (key, metadata.key(key));
            let is_off = match header.metadata.get(&key.1) {
                // One expert is a plain network.
                Some(Value::Unsigned(1)) if key.0 == "expert_count" => true,
                Some(Value::Float(1.0)) if key.0 == "rope.scaling.attn_factor" => true,
                None | Some(Value::Unsigned(0) | Value::Signed(0) | Value::Flag(false)) => true,
                Some(Value::Float(value)) => *value == 0.0,
                Some(_) => false,
            };
            if !is_off && !metadata.of.reads(key.0) {
                return Err(Error::model(format!(
                    "has `{}`, which is not known of this architecture; use a folder of safetensors",
                    key.1
                )));
            }
        }
        metadata.refuse_others()?;
        Ok(metadata)
    }

    /// Refuses what no architecture is known with.
    fn refuse_others(&self) -> Result<()> {
        const FACTOR: &str = "rope.scaling.yarn_ext_factor";
        const NORMALISES: &str = "expert_weights_norm";
        if self.flag("attention.causal")? == Some(false) {
            return Err(Error::model(format!(
                "has `{}`, false: it is no model that continues text",
                self.key("attention.causal")
            )));
        }
        if self.flag(NORMALISES)? == Some(false) && !self.of.reads(NORMALISES) {
            return Err(Error::model(format!("has `{}`, false; true works", self.key(NORMALISES))));
        }
        match self.float(FACTOR)? {
            Some(factor) if factor != 1.0 => {
                Err(Error::model(format!("has `{}`, {factor}; 1 works", self.key(FACTOR))))
            }
            _ => Ok(()),
        }
    }

    /// The key that the architecture has for `key`.
    pub fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.of.name)
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.header.metadata.get(&self.key(key))
    }

    /// Returns true when the file has the tensor `name`.
    pub fn has(&self, name: &str) -> bool {
        self.header.tensors.contains_key(name)
    }

    /// A whole number.
    ///
    /// # Errors
    /// A value that is no such number.
    pub fn number(&self, key: &str) -> Result<Option<u64>> {
        let found = self.get(key).map(|value| {
            value.whole().ok_or_else(|| {
                let key = self.key(key);
                Error::model(format!("`{key}` is no whole number, which alone works"))
            })
        });
        found.transpose()
    }

    /// A whole number that every file of the architecture has.
    ///
    /// # Errors
    /// One that is missing, or is none.
    pub fn required(&self, key: &str) -> Result<u64> {
        let found = self.number(key)?;
        found.ok_or_else(|| Error::model(format!("has no `{}`", self.key(key))))
    }

    /// A whole number for each layer, or one for all of them; none where there is no such key.
    ///
    /// # Errors
    /// A value that is neither such a number nor a list of them.
    pub fn of_layers(&self, key: &str) -> Result<Vec<u64>> {
        let Some(Value::List(list)) = self.get(key) else {
            return Ok(self.number(key)?.into_iter().collect());
        };
        let found: Option<Vec<u64>> = list.iter().map(Value::whole).collect();
        found
            .ok_or_else(|| Error::model(format!("`{}` is no list of whole numbers", self.key(key))))
    }

    /// A whole number, the largest where there is one for each layer.
    ///
    /// # Errors
    /// A value that is no such number; numbers that differ, where the architecture has one.
    pub fn largest(&self, key: &str) -> Result<Option<u64>> {
        let all = self.of_layers(key)?;
        let largest = all.iter().copied().max();
        if !self.of.by_layer.contains(&key) && all.iter().any(|one| Some(*one) != largest) {
            return Err(Error::model(format!(
                "`{}` differs between layers, which is not known",
                self.key(key)
            )));
        }
        Ok(largest)
    }

    /// A number with a fraction.
    ///
    /// # Errors
    /// A value that is no such number.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(value)) if value.is_finite() => Ok(Some(*value)),
            Some(Value::Float(value)) => {
                Err(Error::model(format!("`{}` is {value}, expected a number", self.key(key))))
            }
            Some(_) => Err(Error::model(format!("`{}` is no number", self.key(key)))),
        }
    }

    /// Numbers of a list; none where the file has no such list.
    ///
    /// # Errors
    /// A list of something else.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let list = match self.get(key) {
            None => return Ok(None),
            Some(Value::List(list)) => list,
            Some(_) => return Err(Error::model(format!("`{}` is no list", self.key(key)))),
        };
        let float = |value: &Value| match value {
            Value::Float(value) => Some(*value),
            _ => None,
        };
        let found: Option<Vec<f64>> = list.iter().map(float).collect();
        let wrong = || Error::model(format!("`{}` is no list of numbers", self.key(key)));
        found.ok_or_else(wrong).map(Some)
    }

    /// A flag; none where the file has no such key.
    ///
    /// # Errors
    /// A value that is no flag.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Flag(flag)) => Ok(Some(*flag)),
            Some(_) => Err(Error::model(format!("`{}` is no flag", self.key(key)))),
        }
    }

    /// A flag for each of the `layers`; none where the file has no such list.
    ///
    /// # Errors
    /// A list of another kind, or one that is too short.
    pub fn flags(&self, key: &str, layers: u64) -> Result<Option<Vec<bool>>> {
        let list = match self.get(key) {
            None => return Ok(None),
            Some(Value::List(list)) => list.as_slice(),
            Some(_) => &[],
        };
        let flag = |value: &Value| match value {
            Value::Flag(flag) => Some(*flag),
            other => other.whole().map(|number| number != 0),
        };
        let found: Option<Vec<bool>> = list.iter().take(layers as usize).map(flag).collect();
        let found = found.filter(|flags| flags.len() as u64 == layers);
        let wrong = || Error::model(format!("`{}` is no list of {layers} flags", self.key(key)));
        found.ok_or_else(wrong).map(Some)
    }

    /// Returns true when some layer has the tensor.
    pub fn some_layer_has(&self, tensor: &str) -> bool {
        let of_layer = |name: &str| {
            name.strip_prefix("blk.")
                .and_then(|rest| rest.split_once('.'))
                .map(|(_, rest)| rest.to_owned())
        };
        self.header.tensors.keys().any(|name| of_layer(name).as_deref() == Some(tensor))
    }

    /// Layers, without those that predict tokens further ahead.
    ///
    /// # Errors
    /// A number that is missing or wrong.
    pub fn layers(&self) -> Result<u64> {
        let ahead = self.number("nextn_predict_layers")?.unwrap_or(0);
        Ok(self.all_layers()?.saturating_sub(ahead))
    }

    /// All layers.
    ///
    /// # Errors
    /// A number that is missing or wrong.
    pub fn all_layers(&self) -> Result<u64> {
        const MOST: u64 = 10_000;
        match self.required("block_count")? {
            all if all > MOST => {
                let key = self.key("block_count");
                Err(Error::model(format!("`{key}` is {all}, at most {MOST} are supported")))
            }
            all => Ok(all),
        }
    }

    /// Values of a head.
    ///
    /// # Errors
    /// A number that is missing or wrong.
    pub fn head_dim(&self) -> Result<u64> {
        if let Some(size) = self.number("attention.key_length")? {
            return Ok(size);
        }
        let heads = self.largest("attention.head_count")?.unwrap_or(1);
        Ok(self.required("embedding_length")? / heads.max(1))
    }
}
