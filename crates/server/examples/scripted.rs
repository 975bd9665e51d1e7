//! A server whose model does what a script tells it, for tests of agents: `scripted SCRIPT.json`.
//!
//! The script is a list of steps, `{"call": NAME, "arguments": {…}}` or `{"say": TEXT}`. A request
//! with tools gets the step of the number of tool results that it has; one without tools gets `ok`.
//! The server prints its address on stderr.

use std::process::ExitCode;

use fake_model::FakeModel;
use inference_core::TextModel;
use inference_server::{Config, serve};
use serde_json::{Value as Json, json};

/// Tokens of the context, which agents fill with long instructions.
const CONTEXT: usize = 1 << 20;

fn main() -> ExitCode {
    let script = std::env::args().nth(1).ok_or("usage: scripted SCRIPT.json".to_owned());
    let steps = script.and_then(|path| steps(&path));
    let served = steps.and_then(|steps| {
        let config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            model: "scripted".into(),
            ..Config::default()
        };
        let load = move || Ok(Box::new(model(steps)) as Box<dyn TextModel>);
        let said = |address| eprintln!("listening on http://{address}");
        serve(config, load, said).map_err(|error| error.to_string())
    });
    match served {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads the model's output at each step from the script at `path`.
fn steps(path: &str) -> Result<Vec<&'static str>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let script: Vec<Json> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let step = |step: Json| -> Result<&'static str, String> {
        let said = match (step["say"].as_str(), step["call"].as_str()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(name)) => {
                let call = json!({"name": name, "arguments": step["arguments"]});
                format!("<tool_call>\n{call}\n</tool_call>")
            }
            (None, None) => return Err(format!("a step says or calls something, not {step}")),
        };
        // It is said for as long as the process lives.
        Ok(said.leak())
    };
    script.into_iter().map(step).collect()
}

fn model(steps: Vec<&'static str>) -> FakeModel {
    let mut model = FakeModel { calls: true, ..FakeModel::default() };
    model.info.context_length = CONTEXT;
    model.answers = Some(Box::new(move |prompt| {
        // The template writes the tools first.
        if !prompt.starts_with("Object(") {
            return vec!["ok"];
        }
        let results = prompt.matches("<tool>").count();
        vec![steps.get(results).copied().unwrap_or("The script is over.")]
    }));
    model
}
