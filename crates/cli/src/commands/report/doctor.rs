//! The diagnosis of `ml doctor`, without what is private.

use serde_json::{Map, Value, json};

/// Fields of the object of `ml doctor --json` that a report has.
const KEPT: [&str; 6] = ["healthy", "version", "system", "backends", "checks", "architectures"];

/// The part of what `ml doctor --json` printed that a report has; `None` where it is no object.
pub fn kept(stdout: &str) -> Option<Value> {
    let Ok(Value::Object(mut all)) = serde_json::from_str(stdout) else { return None };
    let mut kept = Map::new();
    for name in KEPT {
        kept.extend(all.remove(name).map(|value| (name.to_owned(), value)));
    }
    // Where the build for CUDA lies is nobody's affair.
    if let Some(Value::Object(mut cuda)) = all.remove("cuda") {
        cuda.remove("folder");
        kept.insert("cuda".to_owned(), cuda.into());
    }
    if let Some(architectures) = kept.get_mut("architectures") {
        *architectures = json!(architectures.as_array().map_or(0, Vec::len));
    }
    Some(kept.into())
}

/// The checks that failed.
pub fn failed(diagnosis: &Value) -> Vec<String> {
    let checks = diagnosis["checks"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    checks
        .filter(|check| check["ok"] != true)
        .map(|check| format!("{}: {}", text(&check["name"]), text(&check["detail"])))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{failed, kept};

    #[test]
    fn folders_are_left_out_and_failed_checks_are_told() {
        let printed = json!({
            "healthy": false, "architectures": ["llama", "qwen3"], "models_folder": "/u/hub",
            "chat_history": {"file": "/u/h"}, "espeak_ng": "/u/e",
            "cuda": {"folder": "/u/c", "driver": "580"}, "system": {"device": "cpu"},
            "checks": [{"name": "mlx", "ok": true, "detail": "0.32"},
                       {"name": "generation", "ok": false, "detail": "no memory"}],
        });
        let kept = kept(&printed.to_string()).unwrap();
        assert!(!kept.to_string().contains("/u/"), "{kept}");
        assert_eq!((&kept["architectures"], &kept["cuda"]["driver"]), (&json!(2), &json!("580")));
        assert_eq!(failed(&kept), ["generation: no memory"]);
    }
}
