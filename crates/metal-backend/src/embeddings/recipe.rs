//! How vectors and scores are made, as a model's own files state it: sentence-transformers' modules
//! and prompts.

use std::path::Path;

use inference_core::Pooling;
use serde_json::Value;

use super::dense::{Dense, DensePlace, config_in};
use super::mlx_embeddings;
use crate::config::Config;
use crate::error::{Error, Result, load};
use crate::files::ModelFiles;

/// The list of modules in the folder of sentence-transformers.
const MODULES: &str = "modules.json";
/// The keys of older files, one for each pooling.
const FLAGS: [(&str, Pooling); 6] = [
    ("pooling_mode_cls_token", Pooling::Cls),
    ("pooling_mode_max_tokens", Pooling::Max),
    ("pooling_mode_mean_tokens", Pooling::Mean),
    ("pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrt),
    ("pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
    ("pooling_mode_lasttoken", Pooling::Last),
];
/// More than this is what tokenizers state that have no limit.
const NO_LIMIT: f64 = 1e9;

/// How vectors and scores are made, as the model's own files state it.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// The folder of the transformer.
    pub files: ModelFiles,
    /// There is a list of modules.
    pub has_modules: bool,
    pub pooling: Option<Pooling>,
    /// The tokens of a prompt count for the pooling.
    pub include_prompt: bool,
    /// The projections behind the pooling, in their order.
    pub dense: Vec<Dense>,
    /// Vectors get the length 1 in the end.
    pub normalizes: bool,
    /// The ids whose logits make a score: for yes, and for no.
    pub score_ids: Option<[u32; 2]>,
    /// The most tokens of a text, where the files say.
    pub max_tokens: Option<usize>,
    /// Texts are made lower case.
    pub lower_case: bool,
    /// The model gets as input which text of a pair a token belongs to.
    pub tells_kinds: bool,
    pub prompts: Vec<(String, String)>,
    pub default_prompt: Option<String>,
    pub similarity: Option<String>,
}

impl Recipe {
    /// Reads the files in `folder`.
    ///
    /// # Errors
    /// A file that is damaged; a module that is not known, by name.
    pub fn read(folder: &Path) -> Result<Recipe> {
        let root = ModelFiles::Folder(folder.to_owned());
        let mut recipe = Recipe {
            files: root.clone(),
            has_modules: false,
            pooling: None,
            include_prompt: true,
            dense: Vec::new(),
            normalizes: false,
            score_ids: None,
            max_tokens: None,
            lower_case: false,
            tells_kinds: true,
            prompts: Vec::new(),
            default_prompt: None,
            similarity: None,
        };
        recipe.dense = mlx_embeddings::projections(&root)?;
        if !recipe.dense.is_empty() {
            // As its program does, which copied no folders of modules at first.
            recipe.has_modules = true;
            (recipe.pooling, recipe.normalizes) = (Some(Pooling::Mean), true);
        } else if let Some(text) = root.text(MODULES)? {
            recipe.has_modules = true;
            recipe.read_modules(folder, &text).map_err(|error| error.at(&root.path(MODULES)))?;
        }
        recipe.read_prompts(&root)?;
        recipe.read_limits()?;
        Ok(recipe)
    }

    /// Returns true when projections lie among the model's weights.
    pub fn has_own_dense(&self) -> bool {
        self.dense.iter().any(|dense| matches!(dense.place, DensePlace::Weights(_)))
    }

    fn read_modules(&mut self, folder: &Path, text: &str) -> Result<()> {
        let modules: Value = serde_json::from_str(text).map_err(|e| Error::model(e.to_string()))?;
        let modules = modules.as_array().ok_or_else(|| Error::model("is no list of modules"))?;
        for module in modules {
            let part = |key: &str| module.get(key).and_then(Value::as_str);
            let kind = part("type").ok_or_else(|| Error::model("a module has no `type`"))?;
            let path = part("path").unwrap_or_default();
            let inside = folder.join(path);
            // Else a file could make others readable.
            let is_inside = Path::new(path).components().all(|part| {
                matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir)
            });
            if !is_inside {
                return Err(Error::model(format!("module path `{path}` leads out of the folder")));
            }
            match kind.rsplit('.').next().unwrap_or(kind) {
                "Transformer" => self.files = ModelFiles::Folder(inside),
                "Pooling" => self.read_pooling(&inside)?,
                "Normalize" => self.normalizes = true,
                "Dense" if self.normalizes => {
                    return Err(Error::model("module Dense behind Normalize; before it works"));
                }
                "Dense" => self.dense.push(Dense::read(inside)?),
                "LogitScore" => self.read_score(&inside)?,
                // It does something in training alone.
                "Dropout" => {}
                other => {
                    return Err(Error::model(format!(
                        "module `{other}` is not known; Transformer, Pooling, Dense, Normalize, LogitScore work"
                    )));
                }
            }
        }
        Ok(())
    }

    fn read_pooling(&mut self, folder: &Path) -> Result<()> {
        let config = config_in(folder)?;
        let modes = match config.get("pooling_mode") {
            Some(Value::String(mode)) => vec![mode.parse()?],
            Some(Value::Array(_)) => {
                let modes = config.opt_texts("pooling_mode")?.unwrap_or_default();
                modes.into_iter().map(|mode| Ok(mode.parse()?)).collect::<Result<_>>()?
            }
            _ => {
                let mut modes = Vec::new();
                for (key, pooling) in FLAGS {
                    if config.opt_flag(key)?.unwrap_or(false) {
                        modes.push(pooling);
                    }
                }
                if modes.is_empty() { vec![Pooling::Mean] } else { modes }
            }
        };
        let [pooling] = modes.as_slice() else {
            return Err(Error::model(format!("{} poolings at once; one works", modes.len())));
        };
        self.pooling = Some(*pooling);
        self.include_prompt = config.opt_flag("include_prompt")?.unwrap_or(true);
        Ok(())
    }

    fn read_score(&mut self, folder: &Path) -> Result<()> {
        let config = config_in(folder)?;
        let id = |key| Ok::<_, Error>(config.opt_index(key)?.map(|id| id as u32));
        let ids = id("true_token_id")?.zip(id("false_token_id")?);
        let (yes, no) = ids.ok_or_else(|| {
            Error::model("LogitScore without `true_token_id` and `false_token_id`")
        })?;
        self.score_ids = Some([yes, no]);
        Ok(())
    }

    fn read_prompts(&mut self, root: &ModelFiles) -> Result<()> {
        const NAME: &str = "config_sentence_transformers.json";
        let Some(text) = root.text(NAME)? else { return Ok(()) };
        let mut read = || -> Result<()> {
            let config = Config::parse(NAME, &text)?;
            if let Some(Value::Object(prompts)) = config.get("prompts") {
                for (name, prompt) in prompts {
                    let wrong = || config.wrong("prompts", prompt, "a text for each name");
                    let prompt = prompt.as_str().ok_or_else(wrong)?;
                    self.prompts.push((name.clone(), prompt.to_owned()));
                }
            }
            self.prompts.sort();
            self.default_prompt = config.opt_text("default_prompt_name")?.map(str::to_owned);
            self.similarity = config.opt_text("similarity_fn_name")?.map(str::to_owned);
            Ok(())
        };
        read().map_err(|error| load(&root.path(NAME), error))
    }

    /// The limits of the transformer's own folder.
    fn read_limits(&mut self) -> Result<()> {
        let files = self.files.clone();
        let config = |name: &str| -> Result<Option<Config>> {
            let text = files.text(name)?;
            let parsed = text.map(|text| Config::parse(name, &text)).transpose();
            parsed.map_err(|error| error.at(&files.path(name)))
        };
        if let Some(own) = config("sentence_bert_config.json")? {
            self.max_tokens = own.opt_size("max_seq_length")?.map(|size| size as usize);
            self.lower_case = own.opt_flag("do_lower_case")?.unwrap_or(false);
        }
        let Some(tokenizer) = config("tokenizer_config.json")? else { return Ok(()) };
        if self.max_tokens.is_none() {
            let limit = tokenizer.get("model_max_length").and_then(Value::as_f64);
            let limit = limit.filter(|limit| (1.0..NO_LIMIT).contains(limit));
            self.max_tokens = limit.map(|limit| limit as usize);
        }
        let names = tokenizer.opt_texts("model_input_names");
        let names = names.map_err(|error| error.at(&files.path("tokenizer_config.json")))?;
        self.tells_kinds = names.is_none_or(|names| names.contains(&"token_type_ids"));
        Ok(())
    }

    /// Values of a text's vector where a token's has `hidden_size`.
    ///
    /// # Errors
    /// A projection that does not fit what comes before it.
    pub fn dimensions(&self, hidden_size: i32) -> Result<i32> {
        let mut size = hidden_size;
        for dense in &self.dense {
            if dense.input != size {
                let reason =
                    format!("`in_features` is {}, and vectors have {size} values", dense.input);
                let DensePlace::Folder(folder) = &dense.place else {
                    return Err(Error::model(reason));
                };
                return Err(load(&folder.join("config.json"), reason));
            }
            size = dense.output;
        }
        Ok(size)
    }
}
