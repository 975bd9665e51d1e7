//! A folder's own words about a vendor's packing.

use serde_json::Value;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::ModelFiles;

const KEY: &str = "quantization_config";
/// Files beside older folders' `config.json` that say it, each with its method.
const FILES: [(&str, &str); 3] = [
    ("quantize_config.json", "gptq"),
    ("quant_config.json", "awq"),
    ("hf_quant_config.json", "modelopt"),
];

/// The tool whose form the tensors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Awq,
    /// GPTQ; its first version stores zeros less one.
    Gptq {
        is_first: bool,
    },
    /// The tensors themselves tell all.
    Others,
}

/// A vendor's packing, as a config describes it.
#[derive(Debug)]
pub(super) struct Method {
    pub tool: Tool,
    /// The name of the config, and the key, for messages.
    pub name: String,
    /// The bits of a code and the columns of a scale that the config allows, each with its key;
    /// empty where it says none. Columns may be all of a row (`None`).
    pub bits: Vec<i32>,
    pub groups: Vec<Option<i32>>,
    /// Modules may have other bits and groups than these.
    pub varies: bool,
    /// Modules that are not packed: parts of names, whole names, or their ends.
    pub unpacked: Vec<String>,
}

impl Method {
    /// The packing that `files` speak of; `None` where it is MLX's, transformers' own or none.
    ///
    /// # Errors
    /// A config that is damaged; a form of the packing that is not read.
    pub fn of(files: &ModelFiles) -> Result<Option<Method>> {
        let Some(text) = files.text("config.json")? else { return Ok(None) };
        let config = Config::parse("config.json", &text)?;
        let holders = [Some(config.clone()), config.object("text_config").ok().flatten()];
        let entry = |holder: Config| holder.object(KEY).transpose();
        if let Some(entry) = holders.into_iter().flatten().find_map(entry) {
            return Method::of_entry(&entry?, None);
        }
        if config.get("quantization").is_some() {
            return Ok(None);
        }
        for (name, method) in FILES {
            if let Some(text) = files.text(name)? {
                let entry = Config::parse(name, &text)?;
                let entry = entry.object("quantization")?.unwrap_or(entry);
                return Method::of_entry(&entry, Some(method));
            }
        }
        Ok(None)
    }

    fn of_entry(entry: &Config, method: Option<&str>) -> Result<Option<Method>> {
        let Some(name) = entry.opt_text("quant_method")?.or(method) else { return Ok(None) };
        match name {
            "awq" => awq(entry).map(Some),
            "gptq" => gptq(entry).map(Some),
            "auto-round" | "intel/auto-round" => auto_round(entry).map(Some),
            "compressed-tensors" => compressed(entry).map(Some),
            "modelopt" | "fbgemm_fp8" => model_opt(entry).map(Some),
            _ => Ok(None),
        }
    }

    /// Refuses a packed module that the config says is not packed.
    ///
    /// # Errors
    /// Such a module, by name.
    pub fn check_name(&self, module: &str) -> Result<()> {
        let says = |entry: &&String| match entry.strip_suffix('*') {
            Some(start) => module.starts_with(start),
            None => module == *entry || module.ends_with(&format!(".{entry}")),
        };
        match self.unpacked.iter().find(says) {
            None => Ok(()),
            Some(entry) => Err(Error::model(format!(
                "`{module}` is packed, but {} leaves `{entry}` unpacked: the config is that of another checkpoint",
                self.name
            ))),
        }
    }

    /// Refuses bits and columns that the config does not have.
    ///
    /// # Errors
    /// Such ones, with the module's name.
    pub fn check(&self, module: &str, bits: usize, group: usize, columns: usize) -> Result<()> {
        if self.varies {
            return Ok(());
        }
        if !self.bits.is_empty() && !self.bits.contains(&(bits as i32)) {
            return Err(Error::model(format!(
                "`{module}` has codes of {bits} bits, and {} says {:?}: the config does not fit the weights",
                self.name, self.bits
            )));
        }
        let fits = |of: &Option<i32>| match of {
            Some(of) => group == *of as usize || group == columns && *of as usize >= columns,
            None => group == columns,
        };
        if self.groups.is_empty() || self.groups.iter().any(fits) {
            return Ok(());
        }
        let known = self.groups.iter().map(|of| of.map_or("a row".to_owned(), |of| of.to_string()));
        Err(Error::model(format!(
            "`{module}` has a scale for {group} columns, and {} says {}: the config does not fit the weights",
            self.name,
            known.collect::<Vec<_>>().join(", ")
        )))
    }

    fn new(entry: &Config, tool: Tool) -> Method {
        Method {
            tool,
            name: entry.name().to_owned(),
            bits: Vec::new(),
            groups: Vec::new(),
            varies: false,
            unpacked: Vec::new(),
        }
    }

    fn with_numbers(mut self, entry: &Config, [bits, group]: [&str; 2]) -> Result<Method> {
        self.bits.extend(entry.opt_size(bits)?);
        self.groups.extend(group_of(entry, group)?);
        Ok(self)
    }
}

/// The columns that share a scale; -1 and 0 stand for all of a row.
fn group_of(entry: &Config, key: &str) -> Result<Option<Option<i32>>> {
    match entry.get(key).and_then(Value::as_i64) {
        Some(-1 | 0) => Ok(Some(None)),
        _ => Ok(entry.opt_size(key)?.map(Some)),
    }
}

/// Refuses what `key` says unless it is one of `known`, in whatever case.
fn is_one_of(entry: &Config, key: &str, known: &[&str]) -> Result<()> {
    match entry.opt_text(key)? {
        Some(found) if !known.contains(&found.to_ascii_lowercase().as_str()) => {
            Err(entry.wrong(key, &found.into(), &known.join(" or ")))
        }
        _ => Ok(()),
    }
}

fn awq(entry: &Config) -> Result<Method> {
    is_one_of(entry, "version", &["gemm"])?;
    is_one_of(entry, "format", &["gemm"])?;
    let keys = if entry.get("w_bit").is_some() { "w_bit" } else { "bits" };
    let group = if entry.get("q_group_size").is_some() { "q_group_size" } else { "group_size" };
    let mut method = Method::new(entry, Tool::Awq).with_numbers(entry, [keys, group])?;
    if let Some(bits) = method.bits.iter().find(|bits| **bits != 4) {
        return Err(entry.wrong(keys, &(*bits).into(), "4"));
    }
    let names = entry.opt_texts("modules_to_not_convert")?.unwrap_or_default();
    method.unpacked = names.into_iter().map(str::to_owned).collect();
    Ok(method)
}

fn gptq(entry: &Config) -> Result<Method> {
    is_one_of(entry, "checkpoint_format", &["gptq", "gptq_v2"])?;
    is_one_of(entry, "format", &["gptq", "gptq_v2"])?;
    is_one_of(entry, "pack_dtype", &["int32"])?;
    if entry.opt_flag("is_marlin_format")?.unwrap_or(false) {
        return Err(entry.wrong("is_marlin_format", &true.into(), "false"));
    }
    let form = entry.opt_text("checkpoint_format")?.or(entry.opt_text("format")?);
    let tool = Tool::Gptq { is_first: form != Some("gptq_v2") };
    let method = Method::new(entry, tool).with_numbers(entry, ["bits", "group_size"])?;
    let varies = entry.object("dynamic").is_ok_and(|found| found.is_some());
    Ok(Method { varies, ..method })
}

fn auto_round(entry: &Config) -> Result<Method> {
    const FORM: &str = "packing_format";
    const KNOWN: [&str; 2] = ["auto_round:auto_gptq", "auto_round:auto_awq"];
    is_one_of(entry, FORM, &KNOWN)?;
    let tool = match entry.opt_text(FORM)? {
        Some(form) if form.eq_ignore_ascii_case(KNOWN[1]) => Tool::Awq,
        _ => Tool::Gptq { is_first: true },
    };
    let method = Method::new(entry, tool).with_numbers(entry, ["bits", "group_size"])?;
    let varies = entry.object("extra_config")?.is_some_and(|own| own.keys().next().is_some());
    Ok(Method { varies, ..method })
}

fn compressed(entry: &Config) -> Result<Method> {
    const FORMS: [&str; 9] = [
        "dense",
        "pack-quantized",
        "int-quantized",
        "naive-quantized",
        "float-quantized",
        "nvfp4-pack-quantized",
        "mxfp4-pack-quantized",
        "mxfp8-quantized",
        "mixed-precision",
    ];
    is_one_of(entry, "format", &FORMS)?;
    if let Some(sparse) = entry.object("sparsity_config")? {
        is_one_of(&sparse, "format", &["dense"])?;
    }
    const ROTATIONS: &str = "transform_config";
    match entry.get(ROTATIONS) {
        Some(found @ Value::Object(rotations)) if !rotations.is_empty() => {
            return Err(entry.wrong(ROTATIONS, found, "none: rotations are not read"));
        }
        _ => {}
    }
    let mut method = Method::new(entry, Tool::Others);
    let groups = entry.object("config_groups")?;
    for (all, name) in groups.iter().flat_map(|all| all.keys().map(move |name| (all, name))) {
        let Some(group) = all.object(name)? else { continue };
        is_one_of(&group, "format", &FORMS)?;
        let Some(weights) = group.object("weights")? else { continue };
        method.bits.extend(weights.opt_size("num_bits")?);
        method.groups.push(match weights.opt_text("strategy")? {
            Some("channel" | "tensor") => None,
            // What a block has is told by its scales.
            Some("block") => continue,
            _ => group_of(&weights, "group_size")?.flatten(),
        });
    }
    let ignored = entry.opt_texts("ignore")?.unwrap_or_default().into_iter();
    // Patterns say too much for a comparison of names.
    method.unpacked = ignored.filter(|name| !name.starts_with("re:")).map(str::to_owned).collect();
    Ok(method)
}

fn model_opt(entry: &Config) -> Result<Method> {
    let known = ["fp8", "nvfp4", "fp8_pb_wo", "fp8_pc_pt", "mixed_precision", "mxfp8"];
    is_one_of(entry, "quant_algo", &known)?;
    let method = Method::new(entry, Tool::Others);
    let mut unpacked = Vec::new();
    for key in ["ignore", "exclude_modules", "modules_to_not_convert"] {
        let names = entry.opt_texts(key)?.unwrap_or_default().into_iter();
        // Patterns within a name say too much for a comparison of names.
        let plain = names.filter(|name| !name.trim_end_matches('*').contains('*'));
        unpacked.extend(plain.map(str::to_owned));
    }
    Ok(Method { unpacked, ..method })
}
