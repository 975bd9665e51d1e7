//! The input of a chat template: its source and the messages.

use super::template::meter::MAX_DEPTH;
use crate::TextError;
use crate::files::{self, Files};
use serde_json::{Map, Value as Json};

/// Everything below walks values by recursion.
pub(super) fn check_depth(name: impl FnOnce() -> String, value: &Json) -> Result<(), TextError> {
    fn within(value: &Json, depth: usize) -> bool {
        match value {
            Json::Array(items) => depth > 0 && items.iter().all(|item| within(item, depth - 1)),
            Json::Object(map) => depth > 0 && map.values().all(|item| within(item, depth - 1)),
            _ => true,
        }
    }
    if within(value, MAX_DEPTH) {
        return Ok(());
    }
    let reason = format!("is nested more than {MAX_DEPTH} levels deep");
    Err(TextError::Input { name: name(), reason })
}

pub(super) fn strings<'a>(value: &'a Json, out: &mut Vec<&'a str>) {
    match value {
        Json::String(text) => out.push(text),
        Json::Array(items) => items.iter().for_each(|item| strings(item, out)),
        Json::Object(map) => map.iter().for_each(|(key, item)| {
            out.push(key);
            strings(item, out);
        }),
        _ => {}
    }
}

/// A message as transformers passes it on: without null keys, its reasoning under both names.
pub(super) fn message((index, message): (usize, &Json)) -> Result<Json, TextError> {
    let Json::Object(given) = message else {
        return Err(TextError::Input {
            name: format!("messages[{index}]"),
            reason: "is no object".into(),
        });
    };
    let mut given: Map<_, _> =
        given.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect();
    let reasoning = ["reasoning_content", "thinking", "reasoning"]
        .iter()
        .find_map(|key| given.get(*key))
        .cloned();
    if let Some(reasoning) = reasoning {
        if !given.contains_key("thinking") {
            given.shift_insert(0, "thinking".into(), reasoning.clone());
        }
        given.insert("reasoning_content".into(), reasoning);
    }
    Ok(Json::Object(given))
}

/// The name of the template that a processor has beside the tokenizer's. Files may have two that
/// differ, of which this one alone writes pictures (Qwen 2.5 VL).
pub(super) const OF_PROCESSOR: &str = "of the processor";

/// Returns true where a message has a picture or a sound: a part of its content that is no text.
pub(super) fn shows(messages: &[Json]) -> bool {
    let is_shown =
        |part: &Json| part.get("type").and_then(Json::as_str).is_some_and(|kind| kind != "text");
    messages.iter().any(|message| {
        message
            .get("content")
            .and_then(Json::as_array)
            .is_some_and(|parts| parts.iter().any(is_shown))
    })
}

/// Names and sources of a folder's templates, in the order of precedence that transformers has.
pub(super) fn template_sources(dir: &dyn Files) -> Result<Vec<(String, String)>, TextError> {
    let mut sources = Vec::new();
    if let Some(source) = files::read_text(dir, "chat_template.jinja")? {
        sources.push(("default".to_owned(), source));
    }
    if let Some(folder) = dir.on_disk()
        && let Ok(entries) = std::fs::read_dir(folder.join("additional_chat_templates"))
    {
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|ext| ext == "jinja")) {
            let name =
                path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            sources.extend(files::read_text_at(path)?.map(|source| (name, source)));
        }
    }
    if !sources.is_empty() {
        return Ok(sources);
    }
    for file in ["tokenizer_config.json", "chat_template.json"] {
        let path = dir.path(file);
        let Some(config) = files::read_object(dir, file)? else {
            continue;
        };
        match config.get("chat_template") {
            None | Some(Json::Null) => {}
            Some(own) if !sources.is_empty() => {
                let is_new = |own: &&str| sources.iter().all(|(_, source)| source != own);
                if let Some(own) = own.as_str().filter(is_new) {
                    sources.push((OF_PROCESSOR.to_owned(), own.to_owned()));
                }
            }
            Some(Json::String(source)) => sources.push(("default".to_owned(), source.clone())),
            Some(Json::Array(list)) => {
                for entry in list {
                    let text = |key: &str| entry.get(key).and_then(Json::as_str).map(str::to_owned);
                    let pair = text("name").zip(text("template"));
                    sources.push(pair.ok_or_else(|| {
                        files::invalid(
                            &path,
                            "an entry of `chat_template` has no `name` and `template`",
                        )
                    })?);
                }
            }
            Some(_) => {
                return Err(files::invalid(
                    &path,
                    "`chat_template` is neither a string nor a list",
                ));
            }
        }
    }
    Ok(sources)
}
