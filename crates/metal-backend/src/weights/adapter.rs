//! A LoRA adapter's tensors, handed to the projections that they belong to.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use mlx_ffi::Dtype;

use super::adapter_config::{AdapterConfig, CONFIG, Layout, is_end_of};
use super::source::TensorHeader;
use crate::error::{Error, Result};
use crate::files::ModelFiles;

/// An adapter's folder, and the pairs that no projection has taken yet.
pub(crate) struct Adapter {
    pub(super) files: ModelFiles,
    config: AdapterConfig,
    /// By the module's name without what wraps the language model.
    left: RefCell<BTreeMap<String, Pair>>,
    /// The base's own weights that PEFT saves beside the pairs of these modules, by the same names.
    copies: RefCell<BTreeMap<String, Factor>>,
    /// The targets of the config that no pair is for.
    bare: Vec<String>,
    /// The first of them that the model has, and its module.
    missing: RefCell<Option<(String, String)>>,
}

/// The two tensors of one module.
#[derive(Default)]
struct Pair {
    /// The module's name as the adapter has it.
    module: String,
    a: Option<Factor>,
    b: Option<Factor>,
}

/// One tensor of a pair.
pub(super) struct Factor {
    /// Its name in the file.
    pub name: String,
    pub header: TensorHeader,
}

/// A pair that was taken; its shapes fit.
pub(super) struct Taken {
    pub a: Factor,
    pub b: Factor,
    pub scale: f32,
    pub rank: i32,
    /// The tensors are `[r, in]` and `[out, r]` rather than `[in, r]` and `[r, out]`.
    pub transposed: bool,
}

impl Adapter {
    /// Reads an adapter's config and the names and shapes of its tensors.
    ///
    /// # Errors
    /// A file that is missing or damaged; what is not honoured, by name.
    pub fn open(folder: &Path) -> Result<Adapter> {
        let files = ModelFiles::Folder(folder.to_owned());
        let text = files.required_text(CONFIG)?;
        let config = AdapterConfig::parse(&text).map_err(|error| error.at(folder))?;
        let file = config.layout.weights_file();
        let tensors = files.headers_in(file)?;
        let (copies, tensors) = tensors
            .into_iter()
            .partition(|(name, _)| config.layout == Layout::Peft && copied_module(name).is_some());
        let left = pairs(config.layout, tensors).map_err(|error| error.at(&files.path(file)))?;
        let has = |target: &&String| left.values().any(|pair| is_end_of(target, &pair.module));
        let bare = config.targets.iter().filter(|target| !has(target)).cloned().collect();
        let adapter = Adapter {
            files,
            config,
            left: RefCell::new(left),
            copies: RefCell::new(by_module(copies)),
            bare,
            missing: RefCell::new(None),
        };
        adapter.check_layers().map_err(|error| error.at(folder))?;
        Ok(adapter)
    }

    /// The text of its config.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn config_text(&self) -> Result<String> {
        self.files.required_text(CONFIG)
    }

    /// The headers of the tensors that nothing has taken yet, by their names in the file.
    pub(super) fn headers(&self) -> BTreeMap<String, TensorHeader> {
        let left = self.left.borrow();
        let copies = self.copies.borrow();
        let factors = left.values().flat_map(|pair| [&pair.a, &pair.b]).flatten();
        factors
            .chain(copies.values())
            .map(|factor| (factor.name.clone(), factor.header.clone()))
            .collect()
    }

    /// There are tensors, and for no more layers than the config announces.
    fn check_layers(&self) -> Result<()> {
        let left = self.left.borrow();
        let file = self.config.layout.weights_file();
        if left.is_empty() {
            return Err(Error::model(format!("{file} holds no tensors")));
        }
        let layer = |name: &String| {
            let mut parts = name.split('.').skip_while(|part| *part != "layers");
            parts.nth(1).map(str::to_owned)
        };
        let layers: BTreeSet<String> = left.keys().filter_map(layer).collect();
        match self.config.num_layers {
            Some(stated) if layers.len() > stated => Err(Error::model(format!(
                "{CONFIG}: `num_layers` is {stated}, {file} has tensors for {} layers",
                layers.len()
            ))),
            _ => Ok(()),
        }
    }

    /// The pair for the module `path`, whose weight is of `shape`: `[out, in]`, or
    /// `[experts, out, in]`. Embeddings take as many values as the vocabulary has. `None` where the
    /// adapter has none.
    ///
    /// # Errors
    /// Shapes that do not fit the module or the rank; a tensor without its other half.
    pub(super) fn take(&self, path: &str, shape: &[i32]) -> Result<Option<Taken>> {
        let mut left = self.left.borrow_mut();
        let pair = left.remove(inner(path));
        let pair = pair.or_else(|| other_names(inner(path)).find_map(|name| left.remove(&name)));
        let file = self.files.path(self.config.layout.weights_file());
        self.check_copy(path, shape).map_err(|error| error.at(&file))?;
        let Some(pair) = pair else {
            self.miss(path, shape);
            return Ok(None);
        };
        self.check(pair, path, shape).map(Some).map_err(|error| error.at(&file))
    }

    /// Takes note of a module without a pair that the config names as a target. PEFT asks for one
    /// match of all targets, so one that the model does not have is none. PEFT's are modules of the
    /// release: of a module that has other names, and of experts that lie in one tensor, nothing is
    /// known.
    fn miss(&self, path: &str, shape: &[i32]) {
        let is_module = self.config.layout == Layout::MlxLm || shape.len() == 2;
        if !is_module || self.missing.borrow().is_some() {
            return;
        }
        let target = self.bare.iter().find(|target| {
            is_end_of(target, path) && other_names(path).all(|name| is_end_of(target, &name))
        });
        *self.missing.borrow_mut() = target.map(|target| (target.clone(), path.to_owned()));
    }

    /// Checks that the base's own weight of the module `path`, where the file has a copy of it, is
    /// as large as the model's.
    fn check_copy(&self, path: &str, shape: &[i32]) -> Result<()> {
        let Some(copy) = self.copies.borrow_mut().remove(inner(path)) else { return Ok(()) };
        let found = &copy.header.shape;
        // Embeddings are taken from the vocabulary to the values, and lie the other way round.
        if found == shape || found.iter().rev().eq(shape) {
            return Ok(());
        }
        Err(Error::model(format!(
            "tensor `{}` is of shape {found:?}, the model's `{path}` of shape {shape:?}: the adapter was trained on a base of another vocabulary",
            copy.name
        )))
    }

    /// Leaves out the pair for the module `path`, whose result the model does not use.
    pub(super) fn ignore(&self, path: &str) {
        self.left.borrow_mut().remove(inner(path));
    }

    fn check(&self, pair: Pair, path: &str, shape: &[i32]) -> Result<Taken> {
        let Pair { module, a, b } = pair;
        let (a, b) = match (a, b) {
            (Some(a), Some(b)) => (a, b),
            (found, other) => {
                let found = found.or(other).map_or(module, |factor| factor.name);
                return Err(Error::model(format!("tensor `{found}` is without its other half")));
            }
        };
        let rank = self.config.rank(&module);
        let &[ref experts @ .., output, input] = shape else {
            return Err(Error::model(format!("`{path}` is no matrix")));
        };
        let transposed = self.config.layout == Layout::Peft;
        // mlx-lm has those of experts as PEFT has all.
        let (of_a, of_b) = match transposed || !experts.is_empty() {
            true => ([rank, input], [output, rank]),
            false => ([input, rank], [rank, output]),
        };
        for (factor, expected) in [(&a, of_a), (&b, of_b)] {
            let expected = [experts, &expected].concat();
            let Factor { name, header } = factor;
            if header.shape != expected {
                return Err(Error::model(format!(
                    "tensor `{name}` has shape {:?}, expected {expected:?}: the model's `{path}` goes from {input} to {output} values, {CONFIG} says rank {rank}",
                    header.shape
                )));
            }
            if !header.dtype.is_float() {
                return Err(Error::model(format!(
                    "tensor `{name}` has the type {:?}, expected a floating-point type",
                    header.dtype
                )));
            }
        }
        Ok(Taken { a, b, scale: self.config.scale(&module), rank, transposed })
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// Pairs for modules that the model does not have; targets of the config that it has, without a
    /// pair.
    pub fn finish(&self) -> Result<()> {
        let left = self.left.borrow();
        let name = self.config.layout.weights_file();
        let file = self.files.path(name);
        let Some(first) = left.values().next() else {
            if let Some((target, module)) = &*self.missing.borrow() {
                let error = Error::model(format!(
                    "{CONFIG} names the target `{target}`, {name} has no tensors for it, and the model has `{module}`"
                ));
                return Err(error.at(&self.files.folder()));
            }
            if let Some(copy) = self.copies.borrow().values().next() {
                let error = Error::model(format!(
                    "tensor `{}` is the weight of a module that the model does not have",
                    copy.name
                ));
                return Err(error.at(&file));
            }
            return Ok(());
        };
        if let Some(pair) = left.values().find(|pair| is_of_experts(&pair.module)) {
            let error = Error::model(format!(
                "`{}` is a projection of experts; adapters of these are read in mlx-lm's layout, with one pair for all experts of a layer",
                pair.module
            ));
            return Err(error.at(&file));
        }
        let reason = match inner(&first.module) {
            "lm_head" => {
                "the output layer is the embeddings, and an adapter of it alone is not supported"
            }
            _ => "the adapter does not fit the model",
        };
        let error = Error::model(format!(
            "{} modules of the adapter are no projections of the model, the first is `{}`: {reason}",
            left.len(),
            first.module
        ));
        Err(error.at(&file))
    }
}

impl Taken {
    /// Bytes of both tensors, held as `dtype` where it is given.
    pub fn bytes(&self, dtype: Option<Dtype>) -> u64 {
        [&self.a, &self.b].map(|factor| factor.header.bytes_as(dtype)).iter().sum()
    }
}

/// Returns true for the name of a single expert's module, as transformers has it.
fn is_of_experts(module: &str) -> bool {
    let mut parts = module.split('.').skip_while(|part| *part != "experts");
    parts.nth(1).is_some_and(|expert| expert.parse::<u32>().is_ok())
}

/// Parts of modules' names in released checkpoints, and as mlx-lm (LFM 2 MoE, Kimi Linear) or
/// transformers 5 (Kimi Linear, Laguna) calls them.
const RENAMED: [(&str, &str); 7] = [
    (".feed_forward.w1", ".feed_forward.gate_proj"),
    (".feed_forward.w2", ".feed_forward.down_proj"),
    (".feed_forward.w3", ".feed_forward.up_proj"),
    (".block_sparse_moe.", ".mlp."),
    (".self_attn.f_a_proj", ".self_attn.forget_gate.f_a_proj"),
    (".self_attn.f_b_proj", ".self_attn.forget_gate.f_b_proj"),
    (".mlp.shared_expert.", ".mlp.shared_experts."),
];

/// Other names that an adapter may have for the module `name`. mlx-lm gives its own names to a
/// released checkpoint, and PEFT knows those of the release alone.
fn other_names(name: &str) -> impl Iterator<Item = String> {
    let both_ways = RENAMED.iter().flat_map(|&(own, other)| [(own, other), (other, own)]);
    let named = both_ways.filter(move |(from, _)| name.contains(from));
    named.map(move |(from, to)| name.replace(from, to))
}

/// A module's name without what wraps the language model, which libraries name in different ways.
fn inner(path: &str) -> &str {
    let mut path = path;
    while let Some(rest) = WRAPPERS.iter().find_map(|wrapper| path.strip_prefix(wrapper)) {
        path = rest;
    }
    path
}

/// Modules around the language model. `backbone` is Nemotron H's, which transformers 5 calls
/// `model`.
const WRAPPERS: [&str; 3] = ["model.", "language_model.", "backbone."];

/// The module whose weight the tensor `name` is, where PEFT saves the base's own beside an adapter:
/// the output layer's and the embeddings', of which one is a target.
fn copied_module(name: &str) -> Option<&str> {
    let module = name.strip_prefix("base_model.model.")?.strip_suffix(".weight")?;
    let module = module.strip_suffix(".base_layer").unwrap_or(module);
    ["lm_head", "embed_tokens"].iter().any(|end| is_end_of(end, module)).then_some(module)
}

fn by_module(copies: BTreeMap<String, TensorHeader>) -> BTreeMap<String, Factor> {
    let copy = |(name, header): (String, TensorHeader)| {
        let module = inner(copied_module(&name)?).to_owned();
        Some((module, Factor { name, header }))
    };
    copies.into_iter().filter_map(copy).collect()
}

fn pairs(
    layout: Layout,
    tensors: BTreeMap<String, TensorHeader>,
) -> Result<BTreeMap<String, Pair>> {
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    for (name, header) in tensors {
        let (module, is_a) = module(layout, &name)?;
        let module = module.to_owned();
        let pair = pairs.entry(inner(&module).to_owned()).or_default();
        let factor = if is_a { &mut pair.a } else { &mut pair.b };
        if let Some(other) = factor {
            return Err(Error::model(format!(
                "tensors `{}` and `{name}` are for the same module",
                other.name
            )));
        }
        *factor = Some(Factor { name, header });
        pair.module = module;
    }
    Ok(pairs)
}

/// The module of a tensor, and whether it is the first factor.
fn module(layout: Layout, name: &str) -> Result<(&str, bool)> {
    let (prefix, a, b) = match layout {
        Layout::MlxLm => ("", ".lora_a", ".lora_b"),
        Layout::Peft => ("base_model.model.", ".lora_A.weight", ".lora_B.weight"),
    };
    let module = name.strip_prefix(prefix).and_then(|rest| {
        let first = rest.strip_suffix(a).map(|module| (module, true));
        first.or_else(|| rest.strip_suffix(b).map(|module| (module, false)))
    });
    module.ok_or_else(|| {
        let known = format!("expected `{prefix}…{a}` or `{prefix}…{b}`");
        let what = match layout {
            Layout::Peft if name.contains("lora_embedding_") => {
                ": an adapter of the embeddings is read in mlx-lm's layout only"
            }
            _ => "",
        };
        Error::model(format!("tensor `{name}` is not supported, {known}{what}"))
    })
}

#[cfg(test)]
mod tests {
    use super::{copied_module, inner, other_names};

    #[test]
    fn modules_have_the_names_of_releases_and_of_libraries() {
        for (own, others) in [
            ("backbone.layers.3.mixer.q_proj", "model.layers.3.mixer.q_proj"),
            (
                "model.layers.1.mlp.shared_expert.up_proj",
                "model.layers.1.mlp.shared_experts.up_proj",
            ),
            ("model.layers.0.self_attn.f_a_proj", "model.layers.0.self_attn.forget_gate.f_a_proj"),
            ("model.layers.0.feed_forward.w1", "model.layers.0.feed_forward.gate_proj"),
        ] {
            for (own, other) in [(own, others), (others, own)] {
                let same = inner(own) == inner(other);
                let named = other_names(inner(own)).any(|name| name == inner(other));
                assert!(same || named, "{own} {other}");
            }
        }
    }

    #[test]
    fn only_the_embeddings_and_the_output_layer_are_copies_of_the_base() {
        let module = |name| copied_module(name);
        assert_eq!(module("base_model.model.lm_head.base_layer.weight"), Some("lm_head"));
        let embedding = "base_model.model.model.embed_tokens.weight";
        assert_eq!(module(embedding), Some("model.embed_tokens"));
        assert_eq!(module("base_model.model.lm_head.lora_A.weight"), None);
        assert_eq!(
            module("base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight"),
            None
        );
    }
}
