//! Which files of a repository a model needs: weights as safetensors once and the texts beside
//! them, or files of GGUF.

use std::collections::BTreeMap;

use crate::gguf;
use crate::index::{Index, are_of_one_set};
use crate::listing::{Listed, Listing};
use crate::{Error, Name, Result};

/// The file that says which shard has which tensor.
pub const INDEX: &str = "model.safetensors.index.json";

/// Configs, the tokenizer in all of its forms, and the chat template.
const TEXTS: [&str; 14] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "adapter_config.json",
];
/// A tokenizer in one file, and the other forms, which are needed where that is not there.
const TOKENIZER: &str = "tokenizer.json";
const OTHER_TOKENIZERS: [&str; 7] = [
    "tekken.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model.v3",
    "tokenizer.model.v7",
    "tiktoken.model",
    "qwen.tiktoken",
];
/// Further texts of embedding models: the list of their modules, prompts and limits.
const MODULES: &str = "modules.json";
const EMBEDDING_TEXTS: [&str; 3] =
    [MODULES, "config_sentence_transformers.json", "sentence_bert_config.json"];
/// Adapters have weights without an index.
const ADAPTERS: [&str; 2] = ["adapters.safetensors", "adapter_model.safetensors"];
/// The file that says of which components an image model is made, each a folder (diffusers'
/// layout).
pub const PIPELINE: &str = "model_index.json";
/// The first weights of an image model that mflux saved, which has no such file.
pub const SAVED_BY_MFLUX: &str = "transformer/0.safetensors";
/// Further texts of components.
const PIPELINE_TEXTS: [&str; 3] = [PIPELINE, "scheduler_config.json", "mflux_model.json"];
/// Prefixes of the names of components' weights.
const PIPELINE_WEIGHTS: [&str; 2] = ["model", "diffusion_pytorch_model"];
/// Most sets of shards that are completed: a model has one, or two.
const MOST_SETS: usize = 16;
/// Weights in other formats, which an error names.
const OTHER_WEIGHTS: [&str; 5] = [".bin", ".pth", ".pt", ".safetensors", ".npz"];

/// Prefixes of the names of a model's weights.
///
/// The second is that of older conversions; it counts where the first is not there.
const WEIGHTS: [&str; 2] = ["model", "weight"];
/// A model's weights where they are one file.
const WHOLE: &str = "model.safetensors";

/// The beginning and the end of the names of weights that `torch.save` wrote, and their index.
const PICKLED: [&str; 2] = ["pytorch_model", ".bin"];
const PICKLED_INDEX: &str = "pytorch_model.bin.index.json";

/// The files of `listing` that are needed, texts first; `index` is the content of [`INDEX`] where
/// it is listed. It is left out where it names what is not listed, and there are weights without
/// it.
///
/// # Errors
/// [`Error::NoWeights`], and [`Error::Listing`] for an index whose shards are not listed, nor other
/// weights, and for a model in GGUF of which parts are not listed.
pub fn needed(name: &Name, listing: &Listing, index: Option<&[u8]>) -> Result<Vec<Listed>> {
    if name.file().is_some() {
        return Ok(in_gguf(name, listing)?.unwrap_or_default());
    }
    let is_pipeline = |file: &Listed| [PIPELINE, SAVED_BY_MFLUX].contains(&&*file.path);
    if index.is_none() && listing.files.iter().any(is_pipeline) {
        return pipeline(name, listing);
    }
    let shards = index.map(|index| shards(listing, index));
    let has_index = matches!(shards, Some(Ok(_)));
    let mut weights = match shards {
        Some(Ok(shards)) => shards,
        Some(Err(reason)) => match whole_or_all(listing) {
            none if none.is_empty() => {
                return Err(Error::Listing { name: name.to_string(), reason });
            }
            weights => weights,
        },
        None => unindexed(listing),
    };
    if weights.is_empty() {
        if let Some(files) = in_gguf(name, listing)? {
            return Ok(files);
        }
        weights = pickled(listing);
        if weights.is_empty() {
            return Err(Error::NoWeights { name: name.to_string(), found: others(listing) });
        }
    }
    let has_tokenizer = listing.files.iter().any(|file| file.path == TOKENIZER);
    let has_modules = listing.files.iter().any(|file| file.path == MODULES);
    let is_pickled = weights.iter().any(|file| file.path.ends_with(PICKLED[1]));
    let is_text = |file: &&Listed| {
        let path = &*file.path;
        TEXTS.contains(&path)
            || !has_tokenizer && OTHER_TOKENIZERS.contains(&path)
            || has_index && path == INDEX
            || is_pickled && path == PICKLED_INDEX
            || has_modules && (EMBEDDING_TEXTS.contains(&path) || is_of_module(path))
    };
    let texts = listing.files.iter().filter(is_text).cloned();
    Ok(texts.chain(weights).collect())
}

/// The files of the model in GGUF that `name` means.
fn in_gguf(name: &Name, listing: &Listing) -> Result<Option<Vec<Listed>>> {
    let paths = gguf::chosen(name, listing.files.iter().map(|file| &*file.path))?;
    let Some(paths) = paths else { return Ok(None) };
    if let Some(part) = gguf::lacking(paths.iter().copied()).first() {
        let reason = format!("it has parts of a model, and not {part}");
        return Err(Error::Listing { name: name.to_string(), reason });
    }
    let file = |path: &str| listing.files.iter().find(|file| file.path == path).cloned();
    Ok(Some(paths.into_iter().filter_map(file).collect()))
}

/// Returns true for a file of a sentence-transformers module: `2_Dense/model.safetensors`.
fn is_of_module(path: &str) -> bool {
    let Some((folder, file)) = path.split_once('/') else { return false };
    let number = folder.split_once('_').map_or("", |(number, _)| number);
    let is_numbered = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_numbered && ["config.json", "model.safetensors"].contains(&file)
}

/// The texts and the weights of each component; not those weights that are there in another type
/// too (`model.fp16.safetensors`).
fn pipeline(name: &Name, listing: &Listing) -> Result<Vec<Listed>> {
    let is_weight = |path: &str| {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        let stem = file.strip_suffix(".safetensors").unwrap_or_default();
        let is_plain = !stem.is_empty() && !stem.contains('.');
        // mflux numbers its files.
        let is_number = stem.bytes().all(|byte| byte.is_ascii_digit());
        !folder.is_empty()
            && !folder.contains('/')
            && is_plain
            && (is_number || PIPELINE_WEIGHTS.iter().any(|begin| stem.starts_with(begin)))
    };
    let is_text = |path: &str| {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        let is_index = PIPELINE_WEIGHTS
            .iter()
            .any(|begin| file.strip_prefix(begin) == Some(".safetensors.index.json"));
        !folder.contains('/')
            && (TEXTS.contains(&file) || PIPELINE_TEXTS.contains(&file) || is_index)
    };
    let those = |wanted: &dyn Fn(&str) -> bool| -> Vec<Listed> {
        listing.files.iter().filter(|file| wanted(&file.path)).cloned().collect()
    };
    let weights = those(&is_weight);
    if weights.is_empty() {
        return Err(Error::NoWeights { name: name.to_string(), found: others(listing) });
    }
    Ok(those(&is_text).into_iter().chain(weights).collect())
}

/// The shards that an index names, and those of their sets that it does not name.
///
/// # Errors
/// The reason for an index that cannot be read, or names what is not listed.
fn shards(listing: &Listing, index: &[u8]) -> Result<Vec<Listed>, String> {
    let index = Index::read(index).map_err(|error| format!("{INDEX}: {error}"))?;
    let listed: BTreeMap<&str, &Listed> =
        listing.files.iter().map(|file| (&*file.path, file)).collect();
    let mut found = BTreeMap::new();
    for shard in index.shards() {
        let file = listed
            .get(shard)
            .ok_or_else(|| format!("{INDEX} names {shard:?}, which is not in the repository"))?;
        found.insert(shard, *file);
    }
    // Sets are few: a name stands for its set where it is the first of it.
    let mut sets: Vec<&str> = Vec::new();
    for shard in found.keys() {
        if !sets.last().is_some_and(|last| are_of_one_set(last, shard)) {
            sets.push(shard);
        }
    }
    sets.truncate(MOST_SETS);
    let is_of_set = |path: &str| sets.iter().any(|shard| are_of_one_set(shard, path));
    found.extend(listed.into_iter().filter(|(path, _)| is_of_set(path)));
    Ok(found.into_values().cloned().collect())
}

/// The weights as one file where they are that, else without an index.
fn whole_or_all(listing: &Listing) -> Vec<Listed> {
    let whole = listing.files.iter().find(|file| file.path == WHOLE);
    whole.map_or_else(|| unindexed(listing), |whole| vec![whole.clone()])
}

/// Without an index: `model*.safetensors`, as the loader takes them, else `weight*.safetensors`,
/// else an adapter's.
fn unindexed(listing: &Listing) -> Vec<Listed> {
    let those = |wanted: &dyn Fn(&str) -> bool| -> Vec<Listed> {
        listing.files.iter().filter(|file| wanted(&file.path)).cloned().collect()
    };
    let named = WEIGHTS.iter().map(|begin| {
        those(&|path| {
            path.starts_with(begin) && path.ends_with(".safetensors") && !path.contains('/')
        })
    });
    let adapters = std::iter::once_with(|| those(&|path| ADAPTERS.contains(&path)));
    named.chain(adapters).find(|files| !files.is_empty()).unwrap_or_default()
}

/// The weights that `torch.save` wrote, which count where there are no others: one file of all
/// before its parts.
fn pickled(listing: &Listing) -> Vec<Listed> {
    let [start, end] = PICKLED;
    let is_one = |file: &&Listed| {
        let path = &*file.path;
        path.starts_with(start) && path.ends_with(end) && !path.contains('/')
    };
    let files: Vec<Listed> = listing.files.iter().filter(is_one).cloned().collect();
    let whole = files.iter().find(|file| file.path == PICKLED.concat()).cloned();
    whole.map_or(files, |whole| vec![whole])
}

/// ` but model.pth, x.bin`, for the error.
fn others(listing: &Listing) -> String {
    let is_weight = |file: &&Listed| OTHER_WEIGHTS.iter().any(|end| file.path.ends_with(end));
    let found: Vec<_> =
        listing.files.iter().filter(is_weight).take(3).map(|file| &*file.path).collect();
    if found.is_empty() { String::new() } else { format!(", but {}", found.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::{INDEX, needed};
    use crate::hash::Hash;
    use crate::listing::{Listed, Listing};

    fn chosen(paths: &[&str], index: Option<&str>) -> crate::Result<Vec<String>> {
        let file = |path: &&str| Listed {
            path: (*path).to_owned(),
            size: Some(1),
            hash: Some(Hash::GitSha1("a".repeat(40))),
        };
        let files = paths.iter().map(file).collect();
        let listing = Listing { commit: "c".into(), files };
        let files = needed(&"a/b".parse().unwrap(), &listing, index.map(str::as_bytes))?;
        Ok(files.into_iter().map(|file| file.path).collect())
    }

    #[test]
    fn weights_are_fetched_once_and_papers_not_at_all() {
        let paths = [
            "README.md",
            "config.json",
            "model.safetensors",
            "pytorch_model.bin",
            "m.gguf",
            "tokenizer.json",
            "consolidated.safetensors",
            "onnx/model.safetensors",
            "original/consolidated.00.pth",
            "modeling_x.py",
        ];
        assert_eq!(
            chosen(&paths, None).unwrap(),
            ["config.json", "tokenizer.json", "model.safetensors"]
        );
    }

    #[test]
    fn of_an_embedding_model_its_modules_come_too() {
        let paths = [
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "2_Dense/model.safetensors",
            "2_Dense/pytorch_model.bin",
            "config.json",
            "config_sentence_transformers.json",
            "model.safetensors",
            "modules.json",
            "onnx/config.json",
            "sentence_bert_config.json",
        ];
        let whole: Vec<_> = paths
            .iter()
            .filter(|path| {
                !path.starts_with("onnx")
                    && !path.ends_with(".bin")
                    && **path != "model.safetensors"
            })
            .chain(&["model.safetensors"])
            .collect();
        assert_eq!(
            chosen(&paths, None).unwrap(),
            *whole.iter().map(|path| **path).collect::<Vec<_>>()
        );
        let without: Vec<_> = paths.into_iter().filter(|path| *path != "modules.json").collect();
        assert_eq!(chosen(&without, None).unwrap(), ["config.json", "model.safetensors"]);
    }

    #[test]
    fn tokenizers_in_other_forms_come_where_there_is_none_in_one_file() {
        let others = ["qwen.tiktoken", "spiece.model", "tekken.json", "tokenizer.model"];
        let without = [&others[..], &["model.safetensors"]].concat();
        assert_eq!(chosen(&without, None).unwrap(), without);
        let with = [&others[..], &["tokenizer.json", "model.safetensors"]].concat();
        let taken = ["tokenizer.model", "tokenizer.json", "model.safetensors"];
        assert_eq!(chosen(&with, None).unwrap(), taken);
    }

    #[test]
    fn an_index_says_which_shards() {
        let index = r#"{"metadata": {}, "weight_map": {"b": "model-2.safetensors", "a": "model-1.safetensors",
                        "c": "model-2.safetensors"}}"#;
        let paths = [INDEX, "model-1.safetensors", "model-2.safetensors", "model-old.safetensors"];
        let files = chosen(&paths, Some(index)).unwrap();
        assert_eq!(files, [INDEX, "model-1.safetensors", "model-2.safetensors"]);
        let set = [INDEX, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        let names_one = r#"{"weight_map": {"a": "model-00001-of-00002.safetensors"}}"#;
        assert_eq!(chosen(&set, Some(names_one)).unwrap(), set);
    }

    #[test]
    fn an_index_of_other_weights_is_left_out() {
        let sharded = ["model-1.safetensors", "model-2.safetensors"];
        for (weights, taken) in [
            (&["model.safetensors", "model-old.safetensors"][..], &["model.safetensors"][..]),
            (&sharded, &sharded),
            (&["weights.00.safetensors", "x.safetensors"], &["weights.00.safetensors"]),
        ] {
            let paths = [&[INDEX, "config.json"], weights].concat();
            for index in [
                r#"{"weight_map": {"a": "../../x"}}"#,
                r#"{"weight_map": {"a": "model-3.safetensors", "b": "model-1.safetensors"}}"#,
                r#"{"weight_map": {"a": 1}}"#,
                "[]",
                "",
            ] {
                let found = chosen(&paths, Some(index)).unwrap();
                assert_eq!(found, [&["config.json"], taken].concat(), "{index}");
            }
        }
        for outside in ["../../x", "model-3.safetensors"] {
            let index = format!(r#"{{"weight_map": {{"a": "{outside}"}}}}"#);
            let error = chosen(&[INDEX, "x.bin"], Some(&index)).unwrap_err().to_string();
            assert!(error.contains("is not in the repository"), "{error}");
        }
    }

    #[test]
    fn parts_in_gguf_that_are_not_listed_are_named() {
        let error = chosen(&["m-00001-of-00002.gguf"], None).unwrap_err().to_string();
        assert!(error.ends_with("and not m-00002-of-00002.gguf"), "{error}");
    }

    #[test]
    fn a_repository_without_safetensors_is_told_with_what_it_has() {
        let error = chosen(&["config.json", "model.pth"], None).unwrap_err().to_string();
        assert!(
            error.contains("has no .safetensors or .gguf files of a model, nor pytorch_model*.bin, but model.pth"),
            "{error}"
        );
        assert_eq!(chosen(&["config.json", "x-q4.gguf"], None).unwrap(), ["x-q4.gguf"]);
        let adapter = ["adapter_config.json", "adapters.safetensors"];
        assert_eq!(chosen(&adapter, None).unwrap(), adapter);
    }

    #[test]
    fn pickled_weights_come_where_there_are_no_others() {
        let index = "pytorch_model.bin.index.json";
        let parts =
            ["config.json", index, "pytorch_model-00001-of-2.bin", "pytorch_model-00002-of-2.bin"];
        assert_eq!(chosen(&parts, None).unwrap(), parts);
        let whole =
            ["config.json", "pytorch_model.bin", "training_args.bin", "x/pytorch_model.bin"];
        assert_eq!(chosen(&whole, None).unwrap(), whole[..2]);
        for other in ["model.safetensors", "x-q4.gguf"] {
            let with = [&parts[..], &["pytorch_model.bin", other]].concat();
            let found = chosen(&with, None).unwrap();
            assert!(found.contains(&other.to_owned()), "{found:?}");
            assert!(found.iter().all(|path| !path.contains("pytorch")), "{found:?}");
        }
    }

    #[test]
    fn what_mflux_saved_comes_with_its_numbered_weights() {
        let paths = [
            "README.md",
            "mflux_model.json",
            "text_encoder/0.safetensors",
            "text_encoder/model.safetensors.index.json",
            "tokenizer/chat_template.jinja",
            "tokenizer/tokenizer.json",
            "transformer/0.safetensors",
            "transformer/1.safetensors",
            "vae/0.safetensors",
        ];
        assert_eq!(
            chosen(&paths, None).unwrap(),
            [
                "mflux_model.json",
                "text_encoder/model.safetensors.index.json",
                "tokenizer/chat_template.jinja",
                "tokenizer/tokenizer.json",
                "text_encoder/0.safetensors",
                "transformer/0.safetensors",
                "transformer/1.safetensors",
                "vae/0.safetensors",
            ]
        );
    }

    #[test]
    fn of_a_pipeline_all_components_come_each_weight_once() {
        let paths = [
            "README.md",
            "assets/fox.png",
            "model_index.json",
            "scheduler/scheduler_config.json",
            "text_encoder/config.json",
            "text_encoder/model-00001-of-00002.safetensors",
            "text_encoder/model.fp16.safetensors",
            "text_encoder/model.safetensors.index.json",
            "tokenizer/merges.txt",
            "transformer/diffusion_pytorch_model.safetensors",
            "vae/deep/model.safetensors",
            "vae/diffusion_pytorch_model.bin",
        ];
        let chosen = chosen(&paths, None).unwrap();
        assert_eq!(
            chosen,
            [
                "model_index.json",
                "scheduler/scheduler_config.json",
                "text_encoder/config.json",
                "text_encoder/model.safetensors.index.json",
                "tokenizer/merges.txt",
                "text_encoder/model-00001-of-00002.safetensors",
                "transformer/diffusion_pytorch_model.safetensors",
            ]
        );
    }
}
