//! `ml list`: the model folders in a folder.

use inference_core::{DiscoveredModel, LoadOptions, ModelInfo, discover};
use serde::Serialize;

use super::info::{Facts, quantization};
use crate::args::ListArgs;
use crate::bytes;
use crate::failure::{Failure, Result};
use crate::output::{note, print, print_json};

/// Lists the models at and under `args.dir`.
///
/// # Errors
/// A folder that cannot be listed. One broken model among others is part of the list.
pub fn run(args: &ListArgs) -> Result<()> {
    let options = LoadOptions::default();
    let described = discover(&args.dir)?.into_iter().map(|model| {
        let info = metal_backend::describe(&model.path, &options).map(|(info, _)| info);
        let info = info.map_err(|error| Failure::from(error).to_string());
        (model, info)
    });
    let models: Vec<_> = described.collect();
    if args.json {
        let rows: Vec<_> = models.iter().map(|(model, info)| Row::new(model, info)).collect();
        return print_json(&rows);
    }
    if models.is_empty() {
        note(format_args!(
            "no models in {}: a model folder has a config.json and .safetensors files",
            args.dir.display()
        ));
        return Ok(());
    }
    print(&table(&models))
}

/// One object of `--json`.
#[derive(Serialize)]
struct Row {
    path: String,
    num_files: usize,
    file_bytes: u64,
    /// `null` where the model can be used.
    error: Option<String>,
    #[serde(flatten)]
    facts: Option<Facts>,
}

impl Row {
    fn new(model: &DiscoveredModel, info: &Result<ModelInfo, String>) -> Self {
        Row {
            path: model.path.display().to_string(),
            num_files: model.num_files,
            file_bytes: model.weight_bytes,
            error: info.as_ref().err().cloned(),
            facts: info.as_ref().ok().map(Facts::from),
        }
    }
}

fn table(models: &[(DiscoveredModel, Result<ModelInfo, String>)]) -> String {
    let header = ["SIZE", "PARAMS", "CONTEXT", "ARCHITECTURE", "QUANTISATION", "PATH"];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(models.iter().map(|(model, info)| match info {
        Ok(info) => [
            bytes::human(model.weight_bytes),
            bytes::parameters(info.num_parameters),
            info.context_length.to_string(),
            info.architecture.clone(),
            quantization(info),
            model.path.display().to_string(),
        ],
        Err(_) => {
            let path = model.path.display().to_string();
            let dash = || "-".to_owned();
            [bytes::human(model.weight_bytes), dash(), dash(), "broken".into(), dash(), path]
        }
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..header.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let (path, cells) = row.split_last().expect("a row has six cells");
        for (cell, width) in cells.iter().zip(&widths) {
            text += &format!("{cell:<width$}  ");
        }
        text += &format!("{path}\n");
        if let Some(Err(error)) = index.checked_sub(1).map(|model| &models[model].1) {
            text += &format!("  error: {error}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use inference_core::{DiscoveredModel, ModelInfo};

    use super::{Row, table};

    fn example() -> Vec<(DiscoveredModel, Result<ModelInfo, String>)> {
        let found = |name: &str| DiscoveredModel {
            path: PathBuf::from(name),
            num_files: 1,
            weight_bytes: 4 << 20,
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
            (found("m/good"), Ok(info)),
            (found("m/bad"), Err("config.json: no `vocab_size`".into())),
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
    }

    #[test]
    fn the_objects_tell_good_from_broken() {
        let objects: Vec<_> = example()
            .iter()
            .map(|(model, info)| serde_json::to_value(Row::new(model, info)).unwrap())
            .collect();
        assert_eq!(objects[0]["architecture"], "qwen3");
        assert!(objects[0]["error"].is_null());
        assert_eq!(objects[1]["path"], "m/bad");
        assert_eq!(objects[1]["error"], "config.json: no `vocab_size`");
        assert!(objects[1].get("architecture").is_none());
    }
}
