//! What Ollama's clients ask of the models: which there are, which are loaded, and what one is.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use inference_core::{Capabilities, EmbeddingModelInfo, ModelInfo};
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
use crate::pool::models::Makes;
use crate::pool::report::Report;
use crate::protocol::pictures::sight;
use crate::run::state::{State, since_1970};

/// The version of Ollama whose fields are known here. Clients ask for it to learn what they may send.
const VERSION: &str = "0.13.0";

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

/// `POST /api/show`: one model. It is not loaded for that, so that `tools` and `thinking` are told of models that
/// are loaded.
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

/// What stands for a digest: clients show its beginning and tell models apart by it.
fn digest(name: &str) -> String {
    let part = |number: u8| {
        let mut hasher = DefaultHasher::new();
        (number, name).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}

/// What is told of a model.
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
            if loaded.family != Family::Plain {
                told.capabilities.push("tools");
            }
            if loaded.effort != Effort::Unknown {
                told.capabilities.push("thinking");
            }
            told
        }
        (Some(Any::Embedding(model)), _) => of_embedding(model.info()),
        (None, Some((info, capabilities))) => of_text(info, capabilities),
        _ => Told {
            details: details("", 0, 0),
            info: Map::new(),
            capabilities: match known.makes {
                Makes::Text => vec!["completion"],
                Makes::Vectors => vec!["embedding"],
                Makes::Pictures => vec!["image"],
                Makes::Scores => Vec::new(),
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
    let layers = (info.num_layers, info.hidden_size, info.context_length);
    Told {
        details: details(&info.architecture, info.num_parameters, info.quant_bits),
        info: model_info(&info.architecture, info.num_parameters, layers),
        capabilities: can,
        context: info.context_length,
        is_on_gpu: is_gpu(&info.device),
    }
}

fn of_embedding(info: &EmbeddingModelInfo) -> Told {
    let layers = (info.num_layers, info.hidden_size, info.max_tokens);
    Told {
        details: details(&info.architecture, info.num_parameters, info.quant_bits),
        info: model_info(&info.architecture, info.num_parameters, layers),
        capabilities: if info.scores { Vec::new() } else { vec!["embedding"] },
        context: info.max_tokens,
        is_on_gpu: is_gpu(&info.device),
    }
}

fn is_gpu(device: &str) -> bool {
    !device.to_lowercase().contains("cpu")
}

fn details(family: &str, parameters: u64, bits: usize) -> Json {
    let size = match parameters {
        0 => String::new(),
        1_000_000_000.. => format!("{:.1}B", parameters as f64 / 1e9),
        _ => format!("{:.1}M", parameters as f64 / 1e6),
    };
    json!({
        "parent_model": "",
        "format": "safetensors",
        "family": family,
        "families": [family],
        "parameter_size": size,
        "quantization_level": if bits == 0 { String::new() } else { format!("{bits}-bit") },
    })
}

/// What Ollama calls `model_info`: keys of GGUF, with what is known for them.
fn model_info(family: &str, parameters: u64, layers: (usize, usize, usize)) -> Map<String, Json> {
    let (blocks, hidden, context) = layers;
    let of = |key: &str| format!("{family}.{key}");
    Map::from_iter([
        ("general.architecture".to_owned(), json!(family)),
        ("general.parameter_count".to_owned(), json!(parameters)),
        (of("block_count"), json!(blocks)),
        (of("embedding_length"), json!(hidden)),
        (of("context_length"), json!(context)),
    ])
}
