//! Answers of Ollama's API about models: the list, the loaded ones, and the details of one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{
    Capabilities, EmbeddingModelInfo, ImageModelInfo, ModelInfo, SpeechModelInfo, StoredAs,
    TranscriptionModelInfo,
};
use inference_text::Effort;
use inference_text::answer::Family;
use serde_json::{Map, Value as Json, json};

use super::ask::meant;
use super::{tables, time};
use crate::error::Result;
use crate::fields::table::check;
use crate::http::body;
use crate::http::response::json_response;
use crate::pool::known::Known;
use crate::pool::loaded::Any;
use crate::pool::models::{Described, Makes};
use crate::pool::report::Report;
use crate::protocol::pictures::sight;
use crate::run::state::{State, since_1970};

/// The version of Ollama whose fields are known here. Clients ask for it to learn what they may
/// send.
const VERSION: &str = "0.21.0";

/// Seconds since 1970 of a time that never comes, for models that stay.
const NEVER: Duration = Duration::from_secs(253_402_300_799);

/// `GET /api/version`.
///
/// # Errors
/// None.
pub async fn version() -> Result<Response> {
    Ok(json_response(StatusCode::OK, &json!({"version": VERSION})))
}

/// `GET /api/tags`: all models.
///
/// # Errors
/// 503 while the server ends, and before it is ready where no request waits for that.
pub async fn tags(Shared(state): Shared<Arc<State>>) -> Result<Response> {
    state.pool.check_open()?;
    state.pool.refresh().await;
    let model = |report: &Report| {
        let known = &report.known;
        let mut object = named(known, report, told(known, report).details);
        object["modified_at"] = json!(time::rfc3339(Duration::from_secs(state.created)));
        object
    };
    let models: Vec<Json> = state.pool.reports().iter().map(model).collect();
    Ok(json_response(StatusCode::OK, &json!({"models": models})))
}

/// `GET /api/ps`: the models that are loaded.
///
/// # Errors
/// As [`tags`].
pub async fn ps(Shared(state): Shared<Arc<State>>) -> Result<Response> {
    state.pool.check_open()?;
    let model = |report: &Report| {
        let known = &report.known;
        let Told { details, context, is_on_gpu, .. } = told(known, report);
        let mut object = named(known, report, details);
        let size = object["size"].clone();
        object["size_vram"] = if is_on_gpu { size } else { json!(0) };
        let ends = report.due.map_or(NEVER, |due| since_1970() + due);
        object["expires_at"] = json!(time::rfc3339(ends));
        object["context_length"] = json!(context);
        object
    };
    let reports = state.pool.reports();
    let loaded = reports.iter().filter(|report| report.model.is_some());
    Ok(json_response(StatusCode::OK, &json!({"models": loaded.map(model).collect::<Vec<_>>()})))
}

/// `POST /api/show`: one model. It is not loaded for that, so that `tools` and `thinking` are told
/// of models that are loaded.
///
/// # Errors
/// 404 for a name that no model has, and as [`tags`].
pub async fn show(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response> {
    state.pool.check_open()?;
    let (body, _) = body::undeclared_object(&state, request).await?;
    let mut reader = check(&[tables::SHOW], &state.config.limits, body)?;
    let [model, older] = [reader.text("model")?, reader.text("name")?];
    let asked = reader.need("model", model.or(older))?;
    reader.finish()?;
    let report = state.pool.get(meant(&state, &asked)).await?;
    let told = told(&report.known, &report);
    let object = json!({
        "modelfile": "",
        "parameters": "",
        "template": "",
        "license": "",
        "details": told.details,
        "model_info": told.info,
        "capabilities": told.capabilities,
        "modified_at": time::rfc3339(Duration::from_secs(state.created)),
    });
    Ok(json_response(StatusCode::OK, &object))
}

fn named(known: &Known, report: &Report, details: Json) -> Json {
    json!({
        "name": &*known.name,
        "model": &*known.name,
        "size": report.bytes.or(known.bytes()).unwrap_or(0),
        "digest": digest(&known.name),
        "details": details,
    })
}

/// The placeholder of a digest, made from the name. Clients show its beginning and tell models
/// apart by it.
fn digest(name: &str) -> String {
    let part = |number: u8| {
        let mut hasher = DefaultHasher::new();
        (number, name).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}

/// The details of a model.
struct Told {
    details: Json,
    info: Map<String, Json>,
    capabilities: Vec<&'static str>,
    context: usize,
    is_on_gpu: bool,
}

fn told(known: &Known, report: &Report) -> Told {
    match (&report.model, &known.described) {
        (Some(Any::Text(loaded)), _) => {
            let mut told = of_text(loaded.model.info(), loaded.model.capabilities());
            if loaded.family != Family::Plain || loaded.tools_in.is_some() {
                told.capabilities.push("tools");
            }
            if loaded.effort != Effort::Unknown {
                told.capabilities.push("thinking");
            }
            told
        }
        (Some(Any::Embedding(model)), _) => of_embedding(model.info()),
        (Some(Any::Image(model)), _) => of_image(model.info()),
        (Some(Any::Transcription(model)), _) => of_transcription(model.info()),
        (Some(Any::Speech(model)), _) => of_speech(model.info()),
        (None, Some(Described::Text(info, capabilities))) => of_text(info, capabilities),
        (None, Some(Described::Embedding(info))) => of_embedding(info),
        (None, Some(Described::Image(info))) => of_image(info),
        (None, Some(Described::Transcription(info))) => of_transcription(info),
        (None, Some(Described::Speech(info))) => of_speech(info),
        (None, None) => Told {
            details: Weights::default().details(),
            info: Map::new(),
            capabilities: match known.makes {
                Makes::Text => vec!["completion"],
                Makes::Vectors => vec!["embedding"],
                Makes::Pictures => vec!["image"],
                Makes::Scores | Makes::Transcripts | Makes::Speech => Vec::new(),
            },
            context: 0,
            is_on_gpu: false,
        },
    }
}

fn of_text(info: &ModelInfo, capabilities: &Capabilities) -> Told {
    let mut can = vec!["completion"];
    if sight(capabilities).is_ok() {
        can.push("vision");
    }
    let weights = Weights {
        family: &info.architecture,
        parameters: info.num_parameters,
        format: &info.stored_as.format,
        level: level(&info.stored_as, info.quant_bits),
    };
    Told {
        details: weights.details(),
        info: weights.info([info.num_layers, info.hidden_size, info.context_length]),
        capabilities: can,
        context: info.context_length,
        is_on_gpu: is_gpu(&info.device),
    }
}

fn of_embedding(info: &EmbeddingModelInfo) -> Told {
    let weights = Weights {
        family: &info.architecture,
        parameters: info.num_parameters,
        format: &info.stored_as.format,
        level: level(&info.stored_as, info.quant_bits),
    };
    Told {
        details: weights.details(),
        info: weights.info([info.num_layers, info.hidden_size, info.max_tokens]),
        capabilities: if info.scores { Vec::new() } else { vec!["embedding"] },
        context: info.max_tokens,
        is_on_gpu: is_gpu(&info.device),
    }
}

fn of_transcription(info: &TranscriptionModelInfo) -> Told {
    let weights = Weights {
        family: &info.architecture,
        parameters: info.num_parameters,
        format: &info.stored_as.format,
        level: level(&info.stored_as, info.quant_bits),
    };
    Told {
        details: weights.details(),
        info: weights.info([info.num_layers[1], info.hidden_size, info.max_tokens]),
        // Ollama has no word for it.
        capabilities: Vec::new(),
        context: info.max_tokens,
        is_on_gpu: is_gpu(&info.device),
    }
}

fn of_speech(info: &SpeechModelInfo) -> Told {
    let weights = Weights {
        family: &info.architecture,
        parameters: info.num_parameters,
        format: &info.stored_as.format,
        level: level(&info.stored_as, 0),
    };
    Told {
        details: weights.details(),
        info: Map::new(),
        // Ollama has no word for it.
        capabilities: Vec::new(),
        context: info.max_phonemes,
        is_on_gpu: is_gpu(&info.device),
    }
}

/// A model that makes pictures: it has several networks, of which none is the model.
fn of_image(info: &ImageModelInfo) -> Told {
    let parameters = info.components.iter().map(|component| component.num_parameters).sum();
    let level = level(&StoredAs::default(), info.quant_bits);
    let weights = Weights { family: &info.pipeline, parameters, format: "safetensors", level };
    Told {
        details: weights.details(),
        info: Map::new(),
        capabilities: vec!["image"],
        context: 0,
        is_on_gpu: is_gpu(&info.device),
    }
}

fn is_gpu(device: &str) -> bool {
    !device.to_lowercase().contains("cpu")
}

/// The way in which weights are quantised: as their files call it, else by the bits of most.
fn level(stored_as: &StoredAs, bits: usize) -> String {
    match (stored_as.quantization.as_str(), bits) {
        ("", 0) => String::new(),
        ("", bits) => format!("{bits}-bit"),
        (name, _) => name.to_owned(),
    }
}

/// The weights of a model, as Ollama tells of them.
#[derive(Debug, Default)]
struct Weights<'a> {
    family: &'a str,
    parameters: u64,
    format: &'a str,
    /// The way in which they are quantised.
    level: String,
}

impl Weights<'_> {
    /// Ollama's `details`.
    fn details(&self) -> Json {
        let size = match self.parameters {
            0 => String::new(),
            1_000_000_000.. => format!("{:.1}B", self.parameters as f64 / 1e9),
            _ => format!("{:.1}M", self.parameters as f64 / 1e6),
        };
        json!({
            "parent_model": "",
            "format": self.format,
            "family": self.family,
            "families": [self.family],
            "parameter_size": size,
            "quantization_level": self.level,
        })
    }

    /// Ollama's `model_info`: keys of GGUF, with what is known for them. `sizes` are
    /// layers, the width of a token's vector, and the context.
    fn info(&self, sizes: [usize; 3]) -> Map<String, Json> {
        let [blocks, hidden, context] = sizes;
        let of = |key: &str| format!("{}.{key}", self.family);
        Map::from_iter([
            ("general.architecture".to_owned(), json!(self.family)),
            ("general.parameter_count".to_owned(), json!(self.parameters)),
            (of("block_count"), json!(blocks)),
            (of("embedding_length"), json!(hidden)),
            (of("context_length"), json!(context)),
        ])
    }
}
