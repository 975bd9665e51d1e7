//! Agents that take their server from files alone: each gets a folder of this one run.

use serde_json::json;

use crate::commands::launch::server::Served;
use crate::commands::launch::setup::{File, Folder, Setup, Told};

/// The variable in which Crush finds the key.
const CRUSH_KEY: &str = "ML_LAUNCH_CRUSH_KEY";

/// Crush takes it from the file with what its user chose by a dialogue, which counts before its
/// settings.
pub fn crush(served: &Served, key: Option<&str>) -> Setup {
    let mut model = json!({"id": served.model, "name": served.model});
    if served.context > 0 {
        model["context_window"] = json!(served.context);
        model["default_max_tokens"] = json!(served.context / 4);
    }
    let chosen = json!({"model": served.model, "provider": "ml"});
    let key_of = if key.is_some() { format!("${CRUSH_KEY}") } else { "none".to_owned() };
    let settings = json!({
        "providers": {"ml": {
            "name": "ml",
            "type": "openai-compat",
            "base_url": served.base(),
            "api_key": key_of,
            "models": [model],
        }},
        "models": {"large": chosen, "small": chosen},
    });
    let file = File { path: "crush.json", text: settings.to_string(), shown: None };
    Setup {
        // Nothing is asked of a list of others' models.
        variables: [("CRUSH_DISABLE_PROVIDER_AUTO_UPDATE", "1".to_owned())]
            .into_iter()
            .chain(key.map(|key| (CRUSH_KEY, key.to_owned())))
            .collect(),
        folder: Some(Folder {
            file,
            told: Told::Variable("CRUSH_GLOBAL_DATA"),
            beside: None,
            kept: &[],
        }),
        ..Setup::default()
    }
}

/// Cline takes it from the folder of its state. With one of its own it also leaves no server of
/// Cline's behind, which would go on with these settings.
pub fn cline(served: &Served, key: Option<&str>) -> Setup {
    let provider = "openai-compatible";
    let settings = json!({
        "version": 1,
        "lastUsedProvider": provider,
        "modes": {},
        "providers": {provider: {
            "settings": {
                "provider": provider,
                "apiKey": key.unwrap_or("none"),
                "model": served.model,
                "baseUrl": served.base(),
            },
            "updatedAt": "2026-01-01T00:00:00.000Z",
            "tokenSource": "manual",
        }},
    });
    let file = File { path: "settings/providers.json", text: settings.to_string(), shown: None };
    let folder = Folder { file, told: Told::Flag("--data-dir"), beside: None, kept: &[] };
    Setup { folder: Some(folder), ..Setup::default() }
}

/// Continue takes it from a file. Its YAML may be JSON.
pub fn continued(served: &Served, key: Option<&str>) -> Setup {
    let mut model = json!({
        "name": served.model,
        "provider": "openai",
        "model": served.model,
        "apiBase": served.base(),
        "apiKey": key.unwrap_or("none"),
        "roles": ["chat", "edit", "apply"],
    });
    if served.context > 0 {
        model["defaultCompletionOptions"] = json!({"contextLength": served.context});
    }
    let settings = json!({"name": "ml", "version": "1.0.0", "schema": "v1", "models": [model]});
    let file = File { path: "config.yaml", text: settings.to_string(), shown: None };
    let folder = Folder { file, told: Told::FlagOfFile("--config"), beside: None, kept: &[] };
    Setup { folder: Some(folder), ..Setup::default() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value as Json, json};

    use super::{CRUSH_KEY, cline, continued, crush};
    use crate::commands::launch::server::Served;
    use crate::commands::launch::setup::Folder;

    fn served() -> Served {
        Served { url: "http://127.0.0.1:1".into(), model: "a \"b\"".into(), context: 40000 }
    }

    fn settings(folder: &Folder) -> Json {
        serde_json::from_str(&folder.file.text).unwrap()
    }

    #[test]
    fn crush_finds_its_key_in_a_variable() {
        let told = crush(&served(), Some("key"));
        assert!(told.variables.contains(&(CRUSH_KEY, "key".to_owned())));
        let folder = told.folder.unwrap();
        assert_eq!(folder.variable(), Some("CRUSH_GLOBAL_DATA"));
        let settings = settings(&folder);
        let provider = &settings["providers"]["ml"];
        assert_eq!(provider["api_key"], "$ML_LAUNCH_CRUSH_KEY");
        assert_eq!(
            (&provider["models"][0]["id"], &provider["base_url"]),
            (&json!("a \"b\""), &json!("http://127.0.0.1:1/v1"))
        );
        assert_eq!(settings["models"]["small"], json!({"model": "a \"b\"", "provider": "ml"}));
        let without = crush(&served(), None);
        assert_eq!(without.variables.len(), 1);
        assert!(without.folder.unwrap().file.text.contains("\"api_key\":\"none\""));
    }

    #[test]
    fn cline_and_continue_are_told_by_flags() {
        let folder = cline(&served(), Some("key")).folder.unwrap();
        assert_eq!(folder.arguments(Path::new("/f")), ["--data-dir", "/f"]);
        let provider = &settings(&folder)["providers"]["openai-compatible"]["settings"];
        assert_eq!((&provider["apiKey"], &provider["model"]), (&json!("key"), &json!("a \"b\"")));
        let folder = continued(&served(), None).folder.unwrap();
        assert_eq!(folder.arguments(Path::new("/f")), ["--config", "/f/config.yaml"]);
        let model = &settings(&folder)["models"][0];
        assert_eq!(model["apiBase"], "http://127.0.0.1:1/v1");
        assert_eq!(model["defaultCompletionOptions"]["contextLength"], 40000);
    }
}
