//! `ml ps`, `ml stop` and `ml show`: the models of a running server.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use super::serve::API_KEY;
use crate::args::{AtArgs, PsArgs, ShowArgs, StopArgs};
use crate::failure::{Failure, Result};
use crate::output::{counted, note, one_line, print, print_json, print_line};
use crate::remote::{Remote, unloading};
use crate::{bytes, files, times};

/// How long an unload is waited for, and how long between two looks at it.
const UNLOADS: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);

/// Lists the models that are loaded.
///
/// # Errors
/// No server answers, or it refuses.
pub fn ps(args: &PsArgs) -> Result<()> {
    let server = at(&args.at)?;
    let models = models(&server)?;
    let is_here = |model: &&Json| !matches!(model["state"].as_str(), Some("unloaded" | "failed"));
    let here: Vec<&Json> = models.iter().filter(is_here).collect();
    if args.json {
        return print_json(&here);
    }
    if here.is_empty() {
        let count = counted(models.len(), "model");
        note(format_args!("{}: none of its {count} is loaded; a request loads one", server.url));
        return Ok(());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    print(&table(&here, now))
}

/// Unloads a model, or ends the server.
///
/// # Errors
/// No server answers, it has no such model, or it refuses.
pub fn stop(args: &StopArgs) -> Result<()> {
    let server = at(&args.at)?;
    let Some(name) = &args.model else {
        let told = server.post("/shutdown", &json!({}))?;
        let running = told["running"].as_u64().unwrap_or(0);
        let rest = match running {
            0 => String::new(),
            _ => format!(
                "; {} may end within {} s",
                counted(running as usize, "request"),
                told["drain_seconds"]
            ),
        };
        note(format_args!("{} ends{rest}", server.url));
        return Ok(());
    };
    let before = named(&server, name)?;
    if before["state"] != "loaded" {
        let state = before["state"].as_str().unwrap_or("not loaded");
        note(format_args!("{name} is {state}"));
        return Ok(());
    }
    if before["pinned"] == true {
        let reason = "it is pinned, or the server's only model, and stays loaded";
        return Err(Failure::Other(format!(
            "{name}: {reason}: `ml stop --server` ends the server"
        )));
    }
    server.post("/api/generate", &unloading(name))?;
    let begun = Instant::now();
    loop {
        let state = named(&server, name)?["state"].clone();
        if state != "loaded" && state != "unloading" {
            note(format_args!("{name} is unloaded"));
            return Ok(());
        }
        if begun.elapsed() > UNLOADS {
            note(format_args!("{name} is unloaded once its requests have ended"));
            return Ok(());
        }
        thread::sleep(AGAIN);
    }
}

/// Tells what the server's models are.
///
/// # Errors
/// No server answers, it has no such model, or it refuses.
pub fn show(args: &ShowArgs) -> Result<()> {
    let server = at(&args.at)?;
    let models = match &args.model {
        Some(name) => vec![named(&server, name)?],
        None => models(&server)?,
    };
    if args.json {
        return print_json(&models);
    }
    for (at, model) in models.iter().enumerate() {
        if at > 0 {
            print("\n")?;
        }
        facts(model).iter().try_for_each(print_line)?;
    }
    Ok(())
}

/// The server that `args` name.
fn at(args: &AtArgs) -> Result<Remote> {
    let from_file = match &args.api_key_file {
        Some(path) => {
            let text = files::read(path)?;
            text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
        }
        None => None,
    };
    let key = from_file.or_else(|| std::env::var(API_KEY).ok().filter(|key| !key.is_empty()));
    let absent = "start one with `ml serve`, or name its address with --url";
    let wants_key = "set ML_SERVE_API_KEY, or give --api-key-file";
    let server = Remote::new(&args.url, key, absent, wants_key);
    match &args.tls_ca {
        Some(path) => server.trusting(path),
        None => Ok(server),
    }
}

fn models(server: &Remote) -> Result<Vec<Json>> {
    let list = server.get("/v1/models")?;
    Ok(list["data"].as_array().cloned().unwrap_or_default())
}

fn named(server: &Remote, name: &str) -> Result<Json> {
    let models = models(server)?;
    let known: Vec<&str> = models.iter().filter_map(|model| model["id"].as_str()).collect();
    let Some(place) = known.iter().position(|known| *known == name) else {
        let known = known.join(", ");
        return Err(Failure::Usage(format!(
            "{} has no model `{name}`; it has {known}",
            server.url
        )));
    };
    Ok(models[place].clone())
}

/// The table of models at `now`, since 1970.
fn table(models: &[&Json], now: Duration) -> String {
    let head = ["MODEL", "STATE", "MEMORY", "DEVICE", "CONTEXT", "LOADED", "UNLOADS"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(models.iter().map(|model| {
        let text = |value: &Json| value.as_str().map_or_else(|| "-".to_owned(), one_line);
        let loaded = model["loaded_at"].as_u64().map(Duration::from_secs);
        let unloads = model["unloads_in"].as_u64().map(Duration::from_secs);
        [
            text(&model["id"]),
            text(&model["state"]),
            model["bytes"].as_u64().map_or_else(|| "-".to_owned(), bytes::human),
            text(&model["info"]["device"]),
            model["max_model_len"].as_u64().map_or_else(|| "-".to_owned(), |len| len.to_string()),
            loaded.map_or_else(
                || "-".to_owned(),
                |loaded| format!("{} ago", times::human(now.saturating_sub(loaded))),
            ),
            match (model["pinned"] == true, unloads) {
                (true, _) => "never".to_owned(),
                (false, Some(time)) => format!("in {}", times::human(time)),
                (false, None) => "for memory".to_owned(),
            },
        ]
    }));
    aligned(&rows)
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Lines about a model.
fn facts(model: &Json) -> Vec<String> {
    let info = &model["info"];
    let mut lines = vec![one_line(model["id"].as_str().unwrap_or("?"))];
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(format!("  {name:<14}{}", one_line(&value)));
        }
    };
    let text = |value: &Json| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let list = |value: &Json| {
        let items = value.as_array()?.iter().filter_map(Json::as_str);
        Some(items.collect::<Vec<_>>().join(", "))
    };
    add("state", text(&model["state"]));
    add("error", text(&model["error"]));
    add("architecture", text(&info["architecture"]).or(text(&info["pipeline"])));
    add("parameters", info["num_parameters"].as_u64().map(bytes::parameters));
    add("weights", info["weight_bytes"].as_u64().map(bytes::human));
    let bits = info["quant_bits"].as_u64().filter(|bits| *bits > 0);
    let quantisation = text(&info["file_quantization"]).or(bits.map(|bits| format!("{bits} bits")));
    add("quantisation", quantisation);
    add("context", model["max_model_len"].as_u64().map(|tokens| format!("{tokens} tokens")));
    add("takes", list(&model["input_modalities"]));
    add("makes", list(&model["output_modalities"]));
    add(
        "computes",
        text(&info["dtype"])
            .zip(text(&info["device"]))
            .map(|(dtype, device)| format!("{dtype} on {device}")),
    );
    let refused = model["capabilities"].as_object().map(|features| {
        let refused = features.iter().filter(|(_, feature)| feature["supported"] == false);
        refused.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    });
    add("does not", refused.filter(|names| !names.is_empty()));
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{facts, table};

    #[test]
    fn loaded_models_have_a_line_each() {
        let model = json!({
            "id": "a\u{1b}[2J", "state": "loaded", "bytes": 1 << 20, "loaded_at": 940, "unloads_in": 300,
            "pinned": false, "max_model_len": 2048, "info": {"device": "cpu"},
        });
        let pinned = json!({"id": "b", "state": "loading", "pinned": true});
        let lines = table(&[&model, &pinned], Duration::from_secs(1000));
        let expected = "MODEL  STATE    MEMORY   DEVICE  CONTEXT  LOADED        UNLOADS\n\
                        a [2J  loaded   1.0 MiB  cpu     2048     1 min 0 s ago  in 5 min 0 s\n\
                        b      loading  -        -       -        -             never\n";
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&lines), words(expected));
        let starts = lines.lines().map(|line| line.find("loaded").or(line.find("loading")));
        assert_eq!(starts.skip(1).collect::<Vec<_>>(), [Some(7), Some(7)]);
    }

    #[test]
    fn what_a_model_is_is_told_as_far_as_it_is_known() {
        let model = json!({
            "id": "fox", "state": "unloaded", "max_model_len": 64,
            "info": {"architecture": "llama", "num_parameters": 1_500_000_000_u64, "quant_bits": 4},
            "capabilities": {"chat": {"supported": true}, "images": {"supported": false}},
        });
        let lines = facts(&model);
        assert_eq!(lines[0], "fox");
        let line = |name: &str| lines.iter().find(|line| line.trim().starts_with(name));
        assert_eq!(line("parameters").unwrap(), "  parameters    1.5B");
        assert!(line("quantisation").unwrap().ends_with("4 bits"));
        assert!(line("does not").unwrap().ends_with("images"));
        assert_eq!(line("weights"), None);
    }
}
