//! `ml list`: the models in the hub's cache, or in a folder.

use std::path::{Path, PathBuf};

use hub::{Cache, Cached, Name, Settings};
use inference_core::{
    EmbeddingLoadOptions, EmbeddingModelInfo, ImageLoadOptions, ImageModelInfo, LoadOptions,
    ModelInfo, ModelKind, SpeechLoadOptions, SpeechModelInfo, TranscriptionLoadOptions,
    TranscriptionModelInfo, discover, unfinished,
};
use serde::Serialize;

use super::info::{
    EmbeddingFacts, Facts, ImageFacts, SpeechFacts, TranscriptionFacts, embedding_quantization,
    quantization, transcription_quantization,
};
use crate::args::ListArgs;
use crate::bytes;
use crate::failure::{Failure, Result};
use crate::output::{note, one_line, print, print_json};

/// Lists the models at and under `args.dir`, or those of the hub's cache.
///
/// # Errors
/// A folder that cannot be listed. One broken model among others is part of the list.
pub fn run(args: &ListArgs) -> Result<()> {
    let (models, none) = match &args.dir {
        Some(dir) => (
            in_folder(dir)?,
            format!(
                "no models in {}: a model folder has a config.json and .safetensors files, or is a .gguf file",
                dir.display()
            ),
        ),
        None => {
            let cache = Settings::from_env()?.cache;
            let models = Cache::new(&cache).models()?.into_iter().flat_map(in_cache).collect();
            (models, format!("no models in {}: `ml pull ORG/NAME` fetches one", cache.display()))
        }
    };
    for folder in args.dir.iter().flat_map(|dir| unfinished(dir)) {
        note(format_args!(
            "{} is no model: `ml quantise` works on it, or was interrupted, and its next run for the same folder removes it",
            folder.display()
        ));
    }
    if args.json {
        let rows: Vec<_> = models.iter().map(Row::new).collect();
        return print_json(&rows);
    }
    if models.is_empty() {
        note(none);
        return Ok(());
    }
    print(&table(&models))
}

/// A model of the list.
struct Listed {
    /// How `--model` takes it.
    label: String,
    path: PathBuf,
    /// Safetensors files, and their bytes.
    files: (usize, u64),
    /// Its entry in the hub's cache, if it is there.
    pulled: Option<Cached>,
    info: Result<Told, String>,
}

/// Facts of a model that can be used.
#[derive(Debug)]
enum Told {
    Text(Box<ModelInfo>),
    Image(ImageModelInfo),
    Embedding(Box<EmbeddingModelInfo>),
    Transcription(Box<TranscriptionModelInfo>),
    Speech(Box<SpeechModelInfo>),
}

impl Listed {
    fn new(label: String, path: PathBuf, files: (usize, u64), kind: ModelKind) -> Self {
        let described = match kind {
            ModelKind::Image => {
                let options = ImageLoadOptions::default();
                metal_backend::describe_image_model(&path, &options).map(Told::Image)
            }
            _ if metal_backend::is_embedding_model(&path) => {
                let options = EmbeddingLoadOptions::default();
                metal_backend::describe_embedding_model(&path, &options)
                    .map(|info| Told::Embedding(Box::new(info)))
            }
            _ if metal_backend::is_transcription_model(&path) => {
                let options = TranscriptionLoadOptions::default();
                metal_backend::describe_transcription_model(&path, &options)
                    .map(|info| Told::Transcription(Box::new(info)))
            }
            _ if metal_backend::is_speech_model(&path) => {
                metal_backend::describe_speech_model(&path, &SpeechLoadOptions::default())
                    .map(|info| Told::Speech(Box::new(info)))
            }
            _ => metal_backend::describe(&path, &LoadOptions::default())
                .map(|(info, _)| Told::Text(Box::new(info))),
        };
        let info = described.map_err(|error| Failure::from(error).to_string());
        Listed { label, path, files, pulled: None, info }
    }
}

fn in_folder(dir: &Path) -> Result<Vec<Listed>> {
    let models = discover(dir)?.into_iter().map(|model| {
        let label = model.path.display().to_string();
        Listed::new(label, model.path, (model.num_files, model.weight_bytes), model.kind)
    });
    Ok(models.collect())
}

/// A revision in the cache: its folder, and each model in a file of GGUF.
fn in_cache(revision: Cached) -> Vec<Listed> {
    let mut listed = Vec::new();
    if revision.missing.is_empty() {
        for (called, path) in &revision.in_gguf {
            let files = (1, std::fs::metadata(path).map_or(0, |file| file.len()));
            let named = |name: &Name| name.with_file(called).unwrap_or_else(|_| name.clone());
            let label = label(&revision, &named(&revision.name));
            let one = Listed::new(label, path.clone(), files, ModelKind::Text);
            listed.push(Listed { pulled: Some(revision.clone()), ..one });
        }
    }
    let has_folder = revision.folder.join("config.json").is_file();
    if listed.is_empty() || has_folder {
        listed.push(cached(revision));
    }
    listed
}

/// How `--model` takes a revision that is called `name`.
fn label(cached: &Cached, name: &Name) -> String {
    match (&cached.commit, cached.references.first()) {
        (Some(_), _) if cached.references.iter().any(|reference| reference == "main") => {
            name.to_string()
        }
        (Some(_), Some(reference)) => format!("{name}@{reference}"),
        (Some(commit), None) => format!("{name}@{commit}"),
        (None, _) => name.to_string(),
    }
}

/// A revision in the cache, whole or not, as a folder.
fn cached(cached: Cached) -> Listed {
    let (label, folder) = (label(&cached, &cached.name), cached.folder.clone());
    let found = discover(&folder).unwrap_or_default();
    let files = found.iter().find(|model| model.path == folder);
    let kind = files.map_or(ModelKind::Text, |model| model.kind);
    let files = files.map_or((0, cached.bytes), |model| (model.num_files, model.weight_bytes));
    let lacking = match (&cached.commit, &*cached.missing) {
        (Some(_), []) => None,
        (Some(_), missing) => Some(format!("{} not here", missing.join(", "))),
        (None, _) => Some("only the beginning is here".to_owned()),
    };
    let mut listed = match lacking {
        None => Listed::new(label, folder, files, kind),
        Some(lacking) => {
            let info = Err(format!("{lacking}: `ml pull {label}` fetches the rest"));
            Listed { label, path: folder, files, pulled: None, info }
        }
    };
    listed.pulled = Some(cached);
    listed
}

/// One object of `--json`.
#[derive(Serialize)]
struct Row<'a> {
    path: String,
    num_files: usize,
    file_bytes: u64,
    /// `null` where the model can be used.
    error: Option<&'a str>,
    #[serde(flatten)]
    pulled: Option<Pulled<'a>>,
    #[serde(flatten)]
    facts: Option<Facts>,
    #[serde(flatten)]
    image: Option<ImageFacts>,
    #[serde(flatten)]
    embedding: Option<EmbeddingFacts>,
    #[serde(flatten)]
    transcription: Option<TranscriptionFacts>,
    #[serde(flatten)]
    speech: Option<SpeechFacts>,
}

/// Further facts of a model in the hub's cache.
#[derive(Serialize)]
struct Pulled<'a> {
    name: String,
    /// `null` where only the beginning is here.
    commit: Option<&'a str>,
    references: &'a [String],
}

impl<'a> Row<'a> {
    fn new(model: &'a Listed) -> Self {
        let pulled = model.pulled.as_ref().map(|cached| Pulled {
            name: cached.name.to_string(),
            commit: cached.commit.as_deref(),
            references: &cached.references,
        });
        Row {
            path: model.path.display().to_string(),
            num_files: model.files.0,
            file_bytes: model.files.1,
            error: model.info.as_ref().err().map(String::as_str),
            pulled,
            facts: match &model.info {
                Ok(Told::Text(info)) => Some(Facts::from(info.as_ref())),
                _ => None,
            },
            image: match &model.info {
                Ok(Told::Image(info)) => Some(ImageFacts::from(info)),
                _ => None,
            },
            embedding: match &model.info {
                Ok(Told::Embedding(info)) => Some(EmbeddingFacts::from(info.as_ref())),
                _ => None,
            },
            transcription: match &model.info {
                Ok(Told::Transcription(info)) => Some(TranscriptionFacts::from(info.as_ref())),
                _ => None,
            },
            speech: match &model.info {
                Ok(Told::Speech(info)) => Some(SpeechFacts::from(info.as_ref())),
                _ => None,
            },
        }
    }
}

fn table(models: &[Listed]) -> String {
    let header = ["SIZE", "PARAMS", "CONTEXT", "ARCHITECTURE", "QUANTISATION", "MODEL"];
    let mut rows = vec![header.map(str::to_owned)];
    let cells = |model: &Listed| {
        let size = bytes::human(model.files.1);
        let label = model.label.clone();
        let dash = || "-".to_owned();
        match &model.info {
            Ok(Told::Image(info)) => [
                size,
                bytes::parameters(info.components.iter().map(|part| part.num_parameters).sum()),
                dash(),
                info.pipeline.clone(),
                match info.quant_bits {
                    0 => format!("none, {}", info.dtype),
                    bits => format!("{bits} bits"),
                },
                label,
            ],
            Ok(Told::Embedding(info)) => [
                size,
                bytes::parameters(info.num_parameters),
                info.max_tokens.to_string(),
                info.architecture.clone(),
                embedding_quantization(info),
                label,
            ],
            Ok(Told::Transcription(info)) => [
                size,
                bytes::parameters(info.num_parameters),
                info.max_tokens.to_string(),
                info.architecture.clone(),
                transcription_quantization(info),
                label,
            ],
            Ok(Told::Speech(info)) => [
                size,
                bytes::parameters(info.num_parameters),
                info.max_phonemes.to_string(),
                info.architecture.clone(),
                format!("none, {}", info.dtype),
                label,
            ],
            Ok(Told::Text(info)) => [
                size,
                bytes::parameters(info.num_parameters),
                info.context_length.to_string(),
                info.architecture.clone(),
                quantization(info),
                label,
            ],
            Err(_) => [size, dash(), dash(), "broken".into(), dash(), label],
        }
    };
    rows.extend(models.iter().map(|model| cells(model).map(|cell| one_line(&cell))));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..header.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let [cells @ .., label] = row;
        for (cell, width) in cells.iter().zip(&widths) {
            text += &format!("{cell:<width$}  ");
        }
        text += &format!("{label}\n");
        if let Some(Err(error)) = index.checked_sub(1).map(|model| &models[model].info) {
            text += &format!("  error: {}\n", one_line(error));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use hub::Cached;
    use inference_core::ModelInfo;

    use super::{Listed, Row, Told, cached, table};

    fn example() -> Vec<Listed> {
        let listed = |name: &str, info| Listed {
            label: name.to_owned(),
            path: PathBuf::from(name),
            files: (1, 4 << 20),
            pulled: None,
            info,
        };
        let info = ModelInfo {
            architecture: "qwen3".into(),
            num_parameters: 7_350_000,
            context_length: 2048,
            quant_bits: 4,
            quant_group: 64,
            ..Default::default()
        };
        vec![
            listed("m/good", Ok(Told::Text(Box::new(info)))),
            listed("m/bad", Err("config.json: no `vocab_size`".into())),
            listed("m/\x1b[31mred", Err("config.json: `model_type` is \x1b[2J".into())),
        ]
    }

    #[test]
    fn a_broken_folder_is_listed_with_its_error() {
        let table = table(&example());
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].starts_with("SIZE"), "{table}");
        assert!(lines[1].contains("qwen3") && lines[1].ends_with("m/good"), "{table}");
        assert!(lines[2].contains("broken") && lines[2].ends_with("m/bad"), "{table}");
        assert_eq!(lines[3], "  error: config.json: no `vocab_size`");
        assert!(lines[4].ends_with("m/ [31mred"), "{table:?}");
        assert_eq!(lines[5], "  error: config.json: `model_type` is  [2J");
    }

    #[test]
    fn the_objects_tell_good_from_broken() {
        let objects: Vec<_> =
            example().iter().map(|model| serde_json::to_value(Row::new(model)).unwrap()).collect();
        assert_eq!(objects[0]["architecture"], "qwen3");
        assert!(objects[0]["error"].is_null());
        assert!(objects[0].get("commit").is_none());
        assert_eq!(objects[1]["path"], "m/bad");
        assert_eq!(objects[1]["error"], "config.json: no `vocab_size`");
        assert!(objects[1].get("architecture").is_none());
    }

    #[test]
    fn what_is_not_whole_is_told_with_the_remedy() {
        let of = |commit: Option<&str>, reference: Option<&str>, missing: &[&str]| {
            cached(Cached {
                name: "org/name".parse().unwrap(),
                commit: commit.map(str::to_owned),
                references: reference.map(str::to_owned).into_iter().collect(),
                folder: PathBuf::from("no/such/folder"),
                bytes: 7,
                in_gguf: Vec::new(),
                missing: missing.iter().map(|file| (*file).to_owned()).collect(),
            })
        };
        let listed = of(Some("c0"), Some("v2"), &["a.safetensors", "b"]);
        assert_eq!(listed.label, "org/name@v2");
        let remedy = "`ml pull org/name@v2` fetches the rest";
        assert_eq!(
            listed.info.as_ref().unwrap_err(),
            &format!("a.safetensors, b not here: {remedy}")
        );
        let row = serde_json::to_value(Row::new(&listed)).unwrap();
        assert_eq!((&row["name"], &row["commit"]), (&"org/name".into(), &"c0".into()));
        assert_eq!(of(Some("c0"), None, &["b"]).label, "org/name@c0");
        assert_eq!(of(Some("c0"), Some("main"), &["b"]).label, "org/name");
        let begun = of(None, None, &[]);
        assert!(
            begun.info.unwrap_err().starts_with("only the beginning is here: `ml pull org/name`")
        );
        assert_eq!(begun.files, (0, 7));
    }
}
