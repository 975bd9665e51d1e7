//! The fixtures: checkpoints put together in a folder of their own, and what is expected of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use inference_core::{
    Capabilities, GenerateOptions, LoadOptions, ModelInfo, Prompt, TextModel, Token,
};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::Value as Json;
use tempfile::TempDir;

#[path = "seeded.rs"]
mod seeded;

/// The folder of the fixtures.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parity")
}

/// The JSON in a file of the fixtures.
pub fn json(path: &str) -> Json {
    let text = fs::read_to_string(root().join(path)).expect("the fixture is there");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

/// Names of architectures that are others under a name of their own.
const ALIASES: [(&str, &str); 4] = [
    ("iquestcoder", "llama"),
    ("joyai_llm_flash", "deepseek_v3"),
    ("kimi_k2", "deepseek_v3"),
    ("xverse", "llama"),
];

/// A model folder: the weights and config of `models/<name>` with the tokenizer that belongs to it.
pub struct Checkpoint {
    folder: TempDir,
}

impl Checkpoint {
    pub fn new(name: &str) -> Checkpoint {
        if let Some((_, own)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
            let checkpoint = Checkpoint::new(own);
            let mut config = checkpoint.config();
            config["model_type"] = name.into();
            return checkpoint.with_config(&config);
        }
        let whole = name.strip_suffix("_text");
        if let Some(whole) = whole.filter(|_| !root().join(format!("models/{name}")).exists()) {
            return Checkpoint::new(whole).bare();
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let sources = match json("tokenizers.json")[name].as_str() {
            Some(tokenizer) => vec![format!("tokenizers/{tokenizer}"), format!("models/{name}")],
            // Models that see have theirs beside the weights.
            None => vec![format!("../vision/models/{name}")],
        };
        for source in sources {
            for entry in fs::read_dir(root().join(source)).expect("the fixture is there") {
                let entry = entry.expect("a readable folder");
                let to = folder.path().join(entry.file_name());
                fs::copy(entry.path(), to).expect("the temporary folder takes the file");
            }
        }
        let plan = folder.path().join("weights.json");
        if plan.exists() {
            seeded::write(folder.path());
            fs::remove_file(plan).expect("it was copied");
        }
        Checkpoint { folder }
    }

    /// A small Llama in a vendor's packing.
    pub fn vendor(name: &str) -> Checkpoint {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let models = root().join("models/vendors");
        for (from, to) in [
            (root().join("tokenizers/qwen/tokenizer.json"), "tokenizer.json"),
            (models.join("shared.safetensors"), "model-shared.safetensors"),
            (models.join(name).join("config.json"), "config.json"),
            (models.join(name).join("packed.safetensors"), "model-packed.safetensors"),
        ] {
            fs::copy(from, folder.path().join(to)).expect("the fixture is there");
        }
        Checkpoint { folder }
    }

    /// The language part by itself: the config under `text_config`, and its tensors' names.
    fn bare(self) -> Checkpoint {
        let path = self.folder.path().join("config.json");
        let text = fs::read_to_string(&path).expect("the config is there");
        let whole: Json = serde_json::from_str(&text).expect("the config is JSON");
        fs::write(path, whole["text_config"].to_string()).expect("the folder takes the file");
        self.renamed(|name| match name.strip_prefix("model.") {
            None => Some(name.to_owned()),
            Some(rest) => rest.strip_prefix("language_model.").map(|rest| format!("model.{rest}")),
        })
    }

    /// Tensors under the names that `named` gives them, without those that it leaves out.
    pub fn renamed(self, named: impl Fn(&str) -> Option<String>) -> Checkpoint {
        let path = self.folder.path().join("model.safetensors");
        let file = fs::read(&path).expect("the weights are there");
        let tensors = SafeTensors::deserialize(&file).expect("weights");
        let named = tensors.iter().filter_map(|(name, tensor)| Some((named(name)?, tensor)));
        let bytes = safetensors::serialize(named, None).expect("weights");
        fs::write(path, bytes).expect("the folder takes the file");
        self
    }

    /// Its config.
    pub fn config(&self) -> Json {
        let text = fs::read_to_string(self.folder().join("config.json")).expect("it has one");
        serde_json::from_str(&text).expect("it is JSON")
    }

    /// Replaces each tensor by those that `change` makes of it, in F32.
    pub fn with_tensors(self, change: impl Fn(Tensor) -> Vec<Tensor>) -> Checkpoint {
        self.with_bytes(|tensor| change(tensor).into_iter().map(Tensor::in_f32).collect())
    }

    /// Replaces all tensors by those that `change` makes of them, in F32.
    pub fn with_all(self, change: impl FnOnce(Vec<Tensor>) -> Vec<Tensor>) -> Checkpoint {
        self.rewritten(|all| change(all).into_iter().map(Tensor::in_f32).collect())
    }

    /// Replaces each tensor by those that `change` makes of it, in types of their own.
    pub fn with_bytes(self, change: impl Fn(Tensor) -> Vec<Bytes>) -> Checkpoint {
        self.rewritten(|all| all.into_iter().flat_map(change).collect())
    }

    fn rewritten(self, change: impl FnOnce(Vec<Tensor>) -> Vec<Bytes>) -> Checkpoint {
        let path = self.folder.path().join("model.safetensors");
        let file = fs::read(&path).expect("the weights are there");
        let tensors = SafeTensors::deserialize(&file).expect("weights");
        let tensors = tensors.iter().map(|(name, tensor)| Tensor {
            name: name.to_owned(),
            shape: tensor.shape().to_vec(),
            values: floats(&tensor),
        });
        let written = change(tensors.collect());
        let views = written.iter().map(|Bytes { name, dtype, shape, bytes }| {
            let view = TensorView::new(*dtype, shape.clone(), bytes);
            (name, view.expect("values of the shape"))
        });
        let bytes = safetensors::serialize(views, None).expect("weights");
        fs::write(path, bytes).expect("the folder takes the file");
        self
    }

    /// Replaces the checkpoint's config and keeps its weights.
    pub fn with_config(self, config: &Json) -> Checkpoint {
        let path = self.folder.path().join("config.json");
        fs::write(path, config.to_string()).expect("the temporary folder takes the file");
        self
    }

    /// Loads it in float32 as `options` say.
    pub fn load(&self, options: LoadOptions) -> Box<dyn TextModel> {
        self.load_native(LoadOptions { dtype: Some(inference_core::Dtype::F32), ..options })
    }

    /// Loads it in its own type.
    pub fn load_native(&self, options: LoadOptions) -> Box<dyn TextModel> {
        self.try_load(options).expect("the checkpoint loads")
    }

    /// Why it does not load in its own type.
    pub fn refusal(&self) -> String {
        let loaded = self.try_load(LoadOptions::default());
        loaded.err().map(|error| error.to_string()).unwrap()
    }

    /// Describes it without its weights.
    pub fn describe(&self, options: LoadOptions) -> (ModelInfo, Capabilities) {
        let options = LoadOptions { backend: Some(backend()), ..options };
        metal_backend::describe(self.folder(), &options).expect("the checkpoint is sound")
    }

    /// Returns the folder of its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ids and names of the tokens that its text leaves out, in the tokenizer's order.
    pub fn special_tokens(&self) -> Vec<(u32, String)> {
        let text = fs::read_to_string(self.folder().join("tokenizer.json"));
        let tokenizer: Json = serde_json::from_str(&text.expect("it has one")).expect("it is JSON");
        let added = tokenizer["added_tokens"].as_array().expect("a list of tokens");
        let special = added.iter().filter(|token| token["special"] == true);
        special
            .map(|token| {
                let id = token["id"].as_u64().expect("an added token has an id");
                (id as u32, token["content"].as_str().expect("and a name").to_owned())
            })
            .collect()
    }

    /// Loads it in its own type.
    ///
    /// # Errors
    /// Why it does not load.
    pub fn try_load(&self, options: LoadOptions) -> inference_core::Result<Box<dyn TextModel>> {
        metal_backend::register().expect("the names are free");
        let options = LoadOptions { backend: Some(backend()), ..options };
        inference_core::load_model(self.folder.path(), &options)
    }
}

/// A tensor of a checkpoint.
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

impl Tensor {
    /// It as a file has it in F32.
    pub fn in_f32(self) -> Bytes {
        let bytes = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Bytes { name: self.name, dtype: safetensors::Dtype::F32, shape: self.shape, bytes }
    }
}

/// A tensor as a file has it.
pub struct Bytes {
    pub name: String,
    pub dtype: safetensors::Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// The values of a tensor in F32 or BF16.
fn floats(tensor: &TensorView<'_>) -> Vec<f32> {
    let data = tensor.data();
    match tensor.dtype() {
        safetensors::Dtype::F32 => data
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            .collect(),
        // The upper half of a float32.
        safetensors::Dtype::BF16 => data
            .chunks_exact(2)
            .map(|bytes| f32::from_le_bytes([0, 0, bytes[0], bytes[1]]))
            .collect(),
        // Packed values, which whoever changes them reads for himself.
        safetensors::Dtype::U8 => Vec::new(),
        other => panic!("fixtures are F32 or BF16, not {other:?}"),
    }
}

/// The backend that the tests load models with: `cpu` unless `PARITY_BACKEND` names another.
pub fn backend() -> String {
    std::env::var("PARITY_BACKEND").unwrap_or_else(|_| "cpu".into())
}

/// The model that the tests of invariants share.
pub fn tiny() -> &'static dyn TextModel {
    static MODEL: OnceLock<Box<dyn TextModel>> = OnceLock::new();
    &**MODEL.get_or_init(|| Checkpoint::new("llama").load(LoadOptions::default()))
}

/// The expected outputs of a model.
pub struct Golden {
    pub json: Json,
    tensors: Vec<u8>,
}

impl Golden {
    pub fn new(name: &str) -> Golden {
        let tensors = fs::read(root().join(format!("golden/{name}.safetensors")));
        let tensors = tensors.expect("the fixture is there");
        Golden { json: json(&format!("golden/{name}.json")), tensors }
    }

    pub fn prompts(&self) -> impl Iterator<Item = (&str, &Json)> {
        let prompts = self.json["prompts"].as_object().expect("goldens have prompts");
        prompts.iter().map(|(name, prompt)| (name.as_str(), prompt))
    }

    /// The tokens after `prompt` by one way of running, where the golden has them. Ways that lead
    /// to the same are kept once.
    pub fn run<'a>(&self, prompt: &'a Json, variant: &str) -> Option<&'a Json> {
        let as_base = self.json.get("as_base").and_then(Json::as_array);
        let is_base = as_base.is_some_and(|ways| ways.iter().any(|way| way == variant));
        prompt["greedy"].get(if is_base { "base" } else { variant })
    }

    /// The values of a tensor, where the golden has it.
    pub fn logits(&self, name: &str) -> Option<Vec<f32>> {
        let tensors = SafeTensors::deserialize(&self.tensors).expect("the fixture is sound");
        let tensor = tensors.tensor(name).ok()?;
        Some(floats(&tensor))
    }
}

pub fn ids(value: &Json) -> Vec<u32> {
    let list = value.as_array().expect("a list of ids");
    list.iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

pub fn numbers(value: &Json) -> Vec<f32> {
    let list = value.as_array().expect("a list of numbers");
    list.iter().map(|number| number.as_f64().expect("a number") as f32).collect()
}

/// `max_tokens` of the most likely tokens with their log probabilities, past any end of sequence.
pub fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(max_tokens),
        temperature: Some(0.0),
        ignore_eos: true,
        logprobs: true,
        ..GenerateOptions::default()
    }
}

/// Every token of a generation.
#[track_caller]
pub fn run(model: &dyn TextModel, prompt: &[u32], options: &GenerateOptions) -> Vec<Token> {
    let generation = model.generate(&Prompt::Ids(prompt.to_vec()), options).expect("it starts");
    generation.collect::<Result<_, _>>().expect("it ends well")
}

/// The logits from which the first token after `prompt` is chosen.
#[track_caller]
pub fn first_logits(model: &dyn TextModel, prompt: &[u32]) -> Vec<f32> {
    let options = GenerateOptions { logits: true, ..greedy(1) };
    run(model, prompt, &options).remove(0).logits.expect("they were asked for")
}

pub fn token_ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

pub fn logprobs(tokens: &[Token]) -> Vec<f32> {
    tokens.iter().map(|token| token.logprob.expect("it was asked for")).collect()
}

/// The largest distance between two lists of the same length.
#[track_caller]
pub fn distance(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let distances = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
    // A NaN must not pass for a small distance.
    distances.fold(0.0, |most, d| if d <= most { most } else { d })
}
