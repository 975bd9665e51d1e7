//! The tensors of a checkpoint by name, and the changes that families need.

use std::collections::BTreeMap;

use mlx_ffi::Dtype;

use super::value::Value;
use crate::config::Fp8Format;
use crate::error::{Error, Result};
use crate::weights::{Checkpoint, is_of_no_use};

/// All tensors by name.
pub(super) struct Tensors {
    pub all: BTreeMap<String, Value>,
    /// The names of those that were left out.
    pub left_out: Vec<String>,
}

impl Tensors {
    /// Those of a checkpoint; floats of 8 bits with scales are unpacked.
    ///
    /// # Errors
    /// Scales that are missing or do not fit.
    pub fn of(checkpoint: &Checkpoint, fp8: Fp8Format) -> Result<Tensors> {
        let headers = &checkpoint.headers;
        let (mut all, mut left_out) = (BTreeMap::new(), Vec::new());
        for (name, header) in headers {
            if is_of_no_use(name, header) {
                left_out.push(name.clone());
                continue;
            }
            let weight = name.strip_suffix("_scale_inv");
            let stem = name.strip_suffix("activation_scale").or(name.strip_suffix("input_scale"));
            let is_fp8 = |name: &str| headers.get(name).is_some_and(|header| header.is_fp8);
            if weight.is_some_and(is_fp8)
                || stem.is_some_and(|stem| is_fp8(&format!("{stem}weight")))
            {
                continue;
            }
            let value = if header.is_fp8 {
                let scales =
                    headers.get(&format!("{name}_scale_inv")).cloned().ok_or_else(|| {
                        Error::model(format!("tensor `{name}` has floats of 8 bits without scales"))
                    })?;
                Value::fp8(header.clone(), scales, fp8).map_err(|error| of_tensor(name, error))?
            } else {
                Value::read(header.clone())
            };
            all.insert(name.clone(), value);
        }
        Ok(Tensors { all, left_out })
    }

    /// Leaves out the tensors for whose names `is_unused` holds.
    pub fn leave_out(&mut self, is_unused: impl Fn(&str) -> bool) {
        let names = self.all.keys().filter(|name| is_unused(name)).cloned();
        for name in names.collect::<Vec<_>>() {
            self.all.remove(&name);
            self.left_out.push(name);
        }
    }

    /// Gives each tensor the name that `rename` makes of its own.
    ///
    /// # Errors
    /// Two tensors that would have one name.
    pub fn rename(&mut self, rename: impl Fn(&str) -> String) -> Result<()> {
        for (name, value) in std::mem::take(&mut self.all) {
            let new = rename(&name);
            if self.all.insert(new.clone(), value).is_some() {
                return Err(two_called(&new));
            }
        }
        Ok(())
    }

    /// Replaces the tensors for which `change` makes another one.
    ///
    /// # Errors
    /// Those of `change`, with the tensor's name.
    pub fn change(&mut self, change: impl Fn(&str, &Value) -> Result<Option<Value>>) -> Result<()> {
        for (name, value) in &mut self.all {
            if let Some(changed) = change(name, value).map_err(|error| of_tensor(name, error))? {
                *value = changed;
            }
        }
        Ok(())
    }

    /// Replaces each tensor whose name ends with `suffix` by those that `split` makes, with what
    /// their names end with instead.
    ///
    /// # Errors
    /// Those of `split`, with the tensor's name; a name that two would have.
    pub fn split(
        &mut self,
        suffix: &str,
        split: impl Fn(Value) -> Result<Vec<(&'static str, Value)>>,
    ) -> Result<()> {
        let names: Vec<String> =
            self.all.keys().filter(|name| name.ends_with(suffix)).cloned().collect();
        for name in names {
            let stem = name.strip_suffix(suffix).unwrap_or(&name);
            let Some(value) = self.all.remove(&name) else { continue };
            for (end, value) in split(value).map_err(|error| of_tensor(&name, error))? {
                let new = format!("{stem}{end}");
                if self.all.insert(new.clone(), value).is_some() {
                    return Err(two_called(&new));
                }
            }
        }
        Ok(())
    }

    /// Puts experts that have a tensor each together: `…experts.3.NAME.weight` of all numbers
    /// become `…INTO.NEW.weight`, for the pairs (`NAME`, `NEW`).
    ///
    /// # Errors
    /// Experts with different shapes; a number that is missing.
    pub fn stack_experts(&mut self, into: &str, names: &[(&str, &str)]) -> Result<()> {
        let mut groups: BTreeMap<String, BTreeMap<usize, String>> = BTreeMap::new();
        for name in self.all.keys() {
            if let Some((stem, rest)) = name.split_once(".experts.")
                && let Some((number, rest)) = rest.split_once('.')
                && let Ok(number) = number.parse()
                && let Some((own, kind)) = rest.rsplit_once('.')
                && let Some((_, new)) = names.iter().find(|(known, _)| *known == own)
            {
                let target = format!("{stem}.{into}.{new}.{kind}");
                groups.entry(target).or_default().insert(number, name.clone());
            }
        }
        for (target, members) in groups {
            let is_whole = members.keys().copied().eq(0..members.len());
            if !is_whole {
                return Err(Error::model(format!(
                    "of the {} experts of `{target}`, some are missing",
                    members.len()
                )));
            }
            let parts = members.values().filter_map(|name| self.all.remove(name)).collect();
            let value = Value::stack(parts).map_err(|error| of_tensor(&target, error))?;
            if self.all.insert(target.clone(), value).is_some() {
                return Err(two_called(&target));
            }
        }
        Ok(())
    }

    /// Takes `kv_b_proj` of latent attention apart, as mlx-lm has it: each head's keys, transposed,
    /// are `embed_q`, and its values `unembed_out`.
    ///
    /// # Errors
    /// One that is packed, or has other sizes.
    pub fn split_latents(&mut self, heads: i32, nope: i32, value: i32) -> Result<()> {
        let each = i64::from(nope) + i64::from(value);
        let rows = i64::from(heads) * each;
        self.split(".kv_b_proj.weight", |both| {
            if both.dtype == Dtype::U32 {
                return Err(Error::model("is quantised already"));
            }
            let (found, rank) = (i64::from(both.size(0)?), both.size(1)?);
            if both.shape.len() != 2 || found != rows {
                return Err(Error::model(format!(
                    "has the shape {:?}, expected {rows} rows",
                    both.shape
                )));
            }
            // No more than the rows, which the tensor has.
            let both = both.reshape(vec![heads, each as i32, rank])?;
            let keys = both.clone().slice(1, 0, nope)?.transpose(&[0, 2, 1])?;
            let values = both.slice(1, nope, each as i32)?;
            Ok(vec![(".embed_q.weight", keys), (".unembed_out.weight", values)])
        })
    }
}

/// An error that concerns the tensor `name`.
pub(super) fn of_tensor(name: &str, error: Error) -> Error {
    match error {
        Error::Core(error) => Error::Core(error),
        error if error.is_out_of_memory() => error,
        error => Error::model(format!("tensor `{name}`: {error}")),
    }
}

fn two_called(name: &str) -> Error {
    Error::model(format!("two tensors would be called `{name}`"))
}
