//! The plan of a conversion: every tensor with its form, before any weight is read.

use std::collections::{BTreeMap, BTreeSet};

use mlx_ffi::{Dtype, QuantMode, Quantization};
use serde_json::{Map, Value as Json};

use super::families;
use super::options::QuantiseOptions;
use super::order::compare;
use super::precision::{Choice, Mixed, Precision, entry, keeps_type};
use super::sight;
use super::tensors::Tensors;
use super::value::Value;
use super::written::Planned;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::load::mlx_dtype;
use crate::weights::Checkpoint;

/// A tensor of the source in its new form.
pub(super) struct Item {
    pub name: String,
    pub value: Value,
    /// How it is packed; the tensor is a module's `weight` then.
    pub packing: Option<Quantization>,
}

/// Everything that is written into weight files.
pub(super) struct Plan {
    /// In mlx-lm's order.
    pub items: Vec<Item>,
    /// `quantization` of the new `config.json`.
    pub quantization: Json,
    /// How many numbers the model has, as mlx-lm counts them.
    pub parameters: u64,
    /// Tensors that are not part of the result.
    pub left_out: Vec<String>,
    /// Modules whose rows no groups divide, which stay as they are.
    pub narrow: Vec<String>,
}

impl Plan {
    /// Plans the conversion of a checkpoint of the `model_type` `family`.
    ///
    /// # Errors
    /// Tensors that do not fit the config; options that do not fit the model.
    pub fn new(
        family: &str,
        config: &Config,
        checkpoint: &Checkpoint,
        options: &QuantiseOptions,
    ) -> Result<Plan> {
        let mut tensors = Tensors::of(checkpoint, config.fp8_format()?)?;
        let seeing = match options.keep_vision {
            true => sight::take(family, config, &mut tensors)?,
            false => BTreeMap::new(),
        };
        families::arrange(family, config, &mut tensors)?;
        let config = &families::with_packed_names(family, config);
        let kept: BTreeSet<String> = seeing.keys().cloned().collect();
        tensors.all.extend(seeing);
        if let Some(dtype) = float_type(config, options)? {
            tensors.change(|name, value| {
                let is_cast = value.dtype.is_float() && !keeps_type(family, name);
                Ok(is_cast.then(|| value.clone().cast(dtype)))
            })?;
        }
        let Tensors { all, left_out } = tensors;
        let mut items: Vec<Item> =
            all.into_iter().map(|(name, value)| Item { name, value, packing: None }).collect();
        items.sort_by(|a, b| compare(family, &a.name, &b.name));
        if let Some(Item { name, value, .. }) = items.iter().find(|item| item.value.elements() == 0)
        {
            let shape = &value.shape;
            return Err(Error::model(format!(
                "tensor `{name}` has the shape {shape:?}: no values"
            )));
        }
        let recipe = options.recipe.map(|recipe| {
            if options.default.mode != QuantMode::Affine {
                return Err(Error::model("a mixed recipe is affine; leave the other mode out"));
            }
            let text = config.of_text()?;
            let own = items.iter().filter(|item| !kept.contains(&item.name));
            let paths = own.filter_map(|item| item.name.strip_suffix(".weight"));
            Mixed::new(recipe, text.size("num_hidden_layers")?, paths)
        });
        let precision = Precision {
            family,
            default: options.default,
            recipe: recipe.transpose()?,
            rules: &options.rules,
        };
        let mut entries = Entries::new(config, options.default)?;
        let packed: BTreeSet<String> = items
            .iter()
            .filter_map(|item| item.name.strip_suffix(".scales").map(str::to_owned))
            .collect();
        let mut narrow = Vec::new();
        for item in &mut items {
            let Some(path) = item.name.strip_suffix(".weight") else { continue };
            if packed.contains(path) || kept.contains(&item.name) {
                continue;
            }
            match precision.choose(path, &item.value)? {
                Choice::Leave => {}
                Choice::Narrow => narrow.push(path.to_owned()),
                Choice::Pack(quantization) => {
                    entries.add_usual(path, quantization);
                    item.packing = Some(quantization);
                }
                Choice::Own(quantization, names_mode) => {
                    entries.add(path, quantization, names_mode);
                    item.packing = Some(quantization);
                }
            }
        }
        let unused = options.rules.iter().find(|rule| {
            let own = items.iter().filter(|item| !kept.contains(&item.name));
            let mut paths = own.filter_map(|item| item.name.strip_suffix(".weight"));
            !paths.any(|path| rule.matches(path))
        });
        if let Some(rule) = unused {
            return Err(Error::model(format!(
                "no module of the model fits `{}`; modules are called as `{}`",
                rule.pattern,
                items.iter().find_map(|item| item.name.strip_suffix(".weight")).unwrap_or("-")
            )));
        }
        let parameters = parameters(&items, config)?;
        let quantization = Json::Object(entries.fields);
        Ok(Plan { items, quantization, parameters, left_out, narrow })
    }

    /// The tensors of the files, in mlx-lm's order.
    pub fn planned(&self, family: &str) -> Vec<Planned> {
        let mut planned: Vec<Planned> = self.items.iter().flat_map(Item::planned).collect();
        planned.sort_by(|a, b| compare(family, &a.name, &b.name));
        planned
    }
}

impl Item {
    /// The tensors that it becomes.
    pub fn planned(&self) -> Vec<Planned> {
        let Value { shape, dtype, .. } = &self.value;
        let own = |name: &str, dtype, shape| Planned { name: name.to_owned(), dtype, shape };
        let Some(Quantization { mode, bits, group_size }) = self.packing else {
            return vec![own(&self.name, *dtype, shape.clone())];
        };
        let path = self.name.strip_suffix("weight").unwrap_or(&self.name);
        let with_last = |last: i32| {
            let mut shape = shape.clone();
            if let Some(size) = shape.last_mut() {
                *size = last;
            }
            shape
        };
        let columns = shape.last().copied().unwrap_or(0);
        let words = (i64::from(columns) * i64::from(bits) / 32) as i32;
        let weight = own(&self.name, Dtype::U32, with_last(words));
        let of_groups =
            |name, dtype| own(&format!("{path}{name}"), dtype, with_last(columns / group_size));
        match mode {
            QuantMode::Affine => {
                vec![weight, of_groups("scales", *dtype), of_groups("biases", *dtype)]
            }
            _ => vec![weight, of_groups("scales", Dtype::U8)],
        }
    }
}

/// `quantization` of a config as it grows.
struct Entries {
    fields: Map<String, Json>,
    /// The source has packed modules already, so that each new one needs an entry.
    each: bool,
}

impl Entries {
    fn new(config: &Config, default: Quantization) -> Result<Entries> {
        let existing = config.default_quantization()?;
        let own = config.object("quantization")?;
        let first = entry(existing.unwrap_or(default), true);
        let fields = match own {
            Some(own) => own.into_fields(),
            None => first.as_object().cloned().unwrap_or_default(),
        };
        Ok(Entries { fields, each: existing.is_some() })
    }

    fn add_usual(&mut self, path: &str, quantization: Quantization) {
        if self.each {
            self.add(path, quantization, true);
        }
    }

    fn add(&mut self, path: &str, quantization: Quantization, names_mode: bool) {
        self.fields.insert(path.to_owned(), entry(quantization, names_mode));
    }
}

/// The type to cast to: what the user asks for, else what the config names in the places that
/// mlx-lm reads.
fn float_type(config: &Config, options: &QuantiseOptions) -> Result<Option<Dtype>> {
    let text = config.object("text_config")?;
    let named = match config.opt_text("torch_dtype")? {
        Some(name) => Some(name.to_owned()),
        None => text
            .map(|text| text.opt_text("dtype").map(|name| name.map(str::to_owned)))
            .transpose()?
            .flatten(),
    };
    Ok(options.dtype.map(mlx_dtype).or(match named.as_deref() {
        Some("float32") => Some(Dtype::F32),
        Some("float16") => Some(Dtype::F16),
        Some("bfloat16") => Some(Dtype::Bf16),
        _ => None,
    }))
}

/// The model's numbers as mlx-lm counts them: those of modules without parts, packed ones unpacked
/// and without their scales.
fn parameters(items: &[Item], config: &Config) -> Result<u64> {
    let mut modules: BTreeMap<&str, Vec<(&str, &Item)>> = BTreeMap::new();
    for item in items {
        let (module, own) = item.name.rsplit_once('.').unwrap_or(("", &item.name));
        modules.entry(module).or_default().push((own, item));
    }
    let is_leaf = |module: &str| {
        let inner = format!("{module}.");
        let next = modules.range(inner.as_str()..).next();
        next.is_none_or(|(name, _)| !name.starts_with(&inner))
    };
    let mut total = 0;
    for (module, tensors) in modules.iter().filter(|(module, _)| is_leaf(module)) {
        let is_packed =
            tensors.iter().any(|(own, item)| *own == "scales" || item.packing.is_some());
        for (own, item) in tensors {
            let elements = item.value.elements();
            total += match (*own, is_packed, item.packing) {
                ("weight", true, None) => {
                    let bits = config.quantization(module)?.map_or(4, |packing| packing.bits);
                    elements * 32 / bits as u64
                }
                ("weight" | "bias", ..) | (_, false, _) => elements,
                _ => 0,
            };
        }
    }
    Ok(total)
}
