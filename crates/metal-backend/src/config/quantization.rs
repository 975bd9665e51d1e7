//! The config's entry for packed weights.

use mlx_ffi::{QuantMode, Quantization};
use serde_json::{Map, Value, json};

use super::Config;
use crate::error::{Error, Result};

/// The keys that it is under: MLX's, and that of transformers.
const KEYS: [&str; 2] = ["quantization", "quantization_config"];
/// The keys that say how a module is packed.
const PARTS: [&str; 3] = ["mode", "bits", "group_size"];

/// The methods of vendors whose tensors are read as MLX's.
pub(crate) const VENDORS: [&str; 7] = [
    "awq",
    "gptq",
    "compressed-tensors",
    "modelopt",
    "fbgemm_fp8",
    "auto-round",
    "intel/auto-round",
];

/// The object that speaks of packed weights. It is borrowed: it may have an entry for each of
/// thousands of modules, and is asked for each of them.
struct Packed<'a> {
    key: &'static str,
    fields: &'a Map<String, Value>,
    /// The mode of all modules without an entry, where `quant_method` says it.
    method: Option<&'a str>,
}

impl Config {
    /// The quantisation of the module at `path`, such as `model.layers.0.mlp.up_proj`: its own
    /// entry where it has one, else the checkpoint's. `None` where the config has no
    /// quantisation or says `false` for the module.
    ///
    /// # Errors
    /// Parameters that MLX does not have.
    pub fn quantization(&self, path: &str) -> Result<Option<Quantization>> {
        let Some(packed) = self.packed()? else { return Ok(None) };
        match packed.fields.get(path) {
            Some(Value::Bool(false)) => Ok(None),
            // An entry without a mode is affine, whatever the checkpoint's own mode is.
            Some(Value::Object(own)) => {
                let name = format!("{}: `{}`: `{path}`", self.name, packed.key);
                quantization_of(own, name).map(Some)
            }
            _ => self.usual(&packed).map(Some),
        }
    }

    /// The config with an entry of MLX's for each of these packed modules; that of the first one
    /// is that of modules without an entry.
    pub fn with_packings<'a>(
        mut self,
        modules: impl Iterator<Item = (&'a str, Quantization)>,
    ) -> Config {
        let entry = |way: Quantization| json!({"group_size": way.group_size, "bits": way.bits, "mode": way.mode.as_str()});
        let mut modules = modules.peekable();
        let Some((_, first)) = modules.peek().copied() else { return self };
        let mut all = entry(first);
        for (path, way) in modules.filter(|(_, way)| *way != first) {
            all[path] = entry(way);
        }
        self.fields.insert(KEYS[0].to_owned(), all);
        self
    }

    /// The checkpoint's own quantisation, for reports.
    pub fn default_quantization(&self) -> Result<Option<Quantization>> {
        self.packed()?.map(|packed| self.usual(&packed)).transpose()
    }

    /// How modules without an entry are packed.
    fn usual(&self, packed: &Packed<'_>) -> Result<Quantization> {
        let name = format!("{}: `{}`", self.name, packed.key);
        match packed.method {
            None => quantization_of(packed.fields, name),
            Some(method) => {
                let mut fields = parts(packed.fields);
                fields.insert("mode".into(), method.into());
                quantization_of(&fields, name)
            }
        }
    }

    fn packed(&self) -> Result<Option<Packed<'_>>> {
        let found = KEYS.into_iter().find_map(|key| Some((key, self.get(key)?)));
        let Some((key, found)) = found else { return Ok(None) };
        let Value::Object(fields) = found else { return Err(self.wrong(key, found, "an object")) };
        let packed = |method| Some(Packed { key, fields, method });
        if key == KEYS[0] {
            return Ok(packed(None));
        }
        let about = Config {
            name: format!("{}: `{key}`", self.name),
            fields: only(fields, &["quant_method", "fmt", "expert_dtype", "scale_fmt"]),
        };
        match about.opt_text("quant_method")? {
            None => Ok(packed(None)),
            // What it packs are experts (gpt-oss), and they are as MLX packs them.
            Some("mxfp4") => Ok(packed(Some("mxfp4"))),
            Some("fp8") => about.fp8_fields().map(|()| None),
            // Their tensors are given out as MLX's, and tell how they are packed.
            Some(method) if VENDORS.contains(&method) => Ok(None),
            Some(method) => Err(Error::model(format!(
                "{}: `quantization_config` has `quant_method` `{method}`; known are fp8, mxfp4, {}; take the checkpoint in one of these or unpacked",
                self.name,
                VENDORS.join(", ")
            ))),
        }
    }

    /// The object under `key` with these of its keys alone, so that no long list beside them is
    /// copied.
    pub(super) fn part_of(&self, key: &str, keys: &[&str]) -> Result<Option<Config>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(fields)) => {
                let name = format!("{}: `{key}`", self.name);
                Ok(Some(Config { name, fields: only(fields, keys) }))
            }
            Some(other) => Err(self.wrong(key, other, "an object")),
        }
    }
}

/// Reads how a module is packed from `fields`, which go by `name` in errors.
fn quantization_of(fields: &Map<String, Value>, name: String) -> Result<Quantization> {
    let entry = Config { name, fields: parts(fields) };
    let mode = match entry.opt_text("mode")? {
        None => QuantMode::Affine,
        Some(name) => QuantMode::from_name(name)
            .ok_or_else(|| entry.wrong("mode", &name.into(), "affine, mxfp4, mxfp8 or nvfp4"))?,
    };
    let usual = mode.usual();
    let quantization = Quantization {
        mode,
        bits: entry.opt_size("bits")?.unwrap_or(usual.bits),
        group_size: entry.opt_size("group_size")?.unwrap_or(usual.group_size),
    };
    quantization
        .validate_on_cpu()
        .map_err(|error| Error::model(format!("{}: {error}", entry.name)))?;
    Ok(quantization)
}

/// Keeps the keys that say how a module is packed, without the entries beside them.
fn parts(fields: &Map<String, Value>) -> Map<String, Value> {
    only(fields, &PARTS)
}

fn only(fields: &Map<String, Value>, keys: &[&str]) -> Map<String, Value> {
    let known = keys.iter().filter_map(|key| fields.get_key_value(*key));
    known.map(|(key, value)| (key.clone(), value.clone())).collect()
}
