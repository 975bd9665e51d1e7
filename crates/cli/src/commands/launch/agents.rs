//! Variables and arguments that point each agent to a server.

mod files;
mod gemini;

use std::ffi::OsString;

use serde_json::json;

use self::files::{cline, continued, crush};
use self::gemini::gemini;
use super::server::Served;
use super::setup::Setup;
use crate::args::Agent;
use crate::failure::Result;

/// The variable in which Codex finds the key.
const CODEX_KEY: &str = "ML_LAUNCH_CODEX_KEY";

/// The program of `agent`, and the command that installs it.
pub fn program(agent: Agent) -> (&'static str, &'static str) {
    match agent {
        Agent::Claude => ("claude", "npm install -g @anthropic-ai/claude-code"),
        Agent::Codex => ("codex", "npm install -g @openai/codex"),
        Agent::Opencode => ("opencode", "npm install -g opencode-ai"),
        Agent::Qwen => ("qwen", "npm install -g @qwen-code/qwen-code"),
        Agent::Aider => ("aider", "pipx install aider-chat"),
        Agent::Gemini => ("gemini", "npm install -g @google/gemini-cli"),
        Agent::Crush => ("crush", "npm install -g @charmland/crush"),
        Agent::Goose => ("goose", "brew install block-goose-cli"),
        Agent::Cline => ("cline", "npm install -g cline"),
        Agent::Continue => ("cn", "npm install -g @continuedev/cli"),
    }
}

/// Returns the setup of `agent` for the `served` model, with `key` where the server wants one.
///
/// # Errors
/// Settings of its user that cannot be read.
pub fn setup(agent: Agent, served: &Served, key: Option<&str>) -> Result<Setup> {
    Ok(match agent {
        Agent::Qwen => qwen(served, key),
        Agent::Aider => aider(served, key),
        Agent::Claude => claude(served, key),
        Agent::Codex => codex(served, key),
        Agent::Opencode => opencode(served, key),
        Agent::Goose => goose(served, key),
        Agent::Gemini => gemini(served, key)?,
        Agent::Crush => crush(served, key),
        Agent::Cline => cline(served, key),
        Agent::Continue => continued(served, key),
    })
}

/// Claude Code takes all of it from variables.
fn claude(served: &Served, key: Option<&str>) -> Setup {
    let mut variables = vec![
        ("ANTHROPIC_BASE_URL", served.url.clone()),
        ("ANTHROPIC_AUTH_TOKEN", key.unwrap_or("none").to_owned()),
        // What only Anthropic's servers have: betas, tools that come later, reports.
        ("CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS", "1".to_owned()),
        ("ENABLE_TOOL_SEARCH", "false".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        // A line in front of the prompt that changes, so that no cache would find it.
        ("CLAUDE_CODE_ATTRIBUTION_HEADER", "0".to_owned()),
    ];
    for name in [
        "ANTHROPIC_MODEL",
        "ANTHROPIC_DEFAULT_FABLE_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "CLAUDE_CODE_SUBAGENT_MODEL",
    ] {
        variables.push((name, served.model.clone()));
    }
    if served.context > 0 {
        variables.push(("CLAUDE_CODE_MAX_CONTEXT_TOKENS", served.context.to_string()));
    }
    // A key for Anthropic's own servers is not for this one.
    Setup { variables, removed: &["ANTHROPIC_API_KEY"], ..Setup::default() }
}

/// Codex takes it from `-c NAME=VALUE`, whose values are TOML.
fn codex(served: &Served, key: Option<&str>) -> Setup {
    // A JSON string is one of TOML.
    let text = |text: &str| json!(text).to_string();
    let mut provider =
        format!("{{name=\"ml\",base_url={},wire_api=\"responses\"", text(&served.base()));
    let mut variables = Vec::new();
    if let Some(key) = key {
        provider += &format!(",env_key={}", text(CODEX_KEY));
        variables.push((CODEX_KEY, key.to_owned()));
    }
    provider.push('}');
    let mut settings = vec![
        "model_provider=\"ml\"".to_owned(),
        format!("model_providers.ml={provider}"),
        format!("model={}", text(&served.model)),
        // The server runs no search, and its one model has no others to hand work to.
        "web_search=\"disabled\"".to_owned(),
        "features.multi_agent=false".to_owned(),
    ];
    if served.context > 0 {
        settings.push(format!("model_context_window={}", served.context));
    }
    let arguments = settings.into_iter().flat_map(|setting| ["-c".into(), setting.into()]);
    Setup { variables, arguments: arguments.collect(), ..Setup::default() }
}

/// opencode takes it from a variable that holds a file of settings.
fn opencode(served: &Served, key: Option<&str>) -> Setup {
    let mut model = json!({"name": served.model});
    if served.context > 0 {
        model["limit"] = json!({"context": served.context, "output": served.context / 4});
    }
    let name = format!("ml/{}", served.model);
    let settings = json!({
        "$schema": "https://opencode.ai/config.json",
        "provider": {"ml": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "ml",
            "options": {"baseURL": served.base(), "apiKey": key.unwrap_or("none")},
            "models": {served.model.clone(): model},
        }},
        "model": name,
        "small_model": name,
    });
    let variables = vec![("OPENCODE_CONFIG_CONTENT", settings.to_string())];
    Setup { variables, ..Setup::default() }
}

/// Qwen Code takes the server from variables, and the rest from flags, which count before what its
/// user chose by a dialogue.
fn qwen(served: &Served, key: Option<&str>) -> Setup {
    let variables = vec![
        ("OPENAI_BASE_URL", served.base()),
        ("OPENAI_API_KEY", key.unwrap_or("none").to_owned()),
        ("OPENAI_MODEL", served.model.clone()),
    ];
    let flags = ["--auth-type", "openai", "--model", served.model.as_str()];
    let arguments = flags.map(OsString::from).into();
    Setup { variables, removed: &["QWEN_MODEL"], arguments, folder: None }
}

/// Aider takes the server and its models from flags, which count before a folder's `.env`. It knows
/// nothing of a model that it has no list of, and would warn of that.
fn aider(served: &Served, key: Option<&str>) -> Setup {
    let variables = vec![
        ("OPENAI_API_BASE", served.base()),
        ("OPENAI_API_KEY", key.unwrap_or("none").to_owned()),
    ];
    let model = format!("openai/{}", served.model);
    let base = served.base();
    let flags = [
        "--model",
        &model,
        "--weak-model",
        &model,
        "--openai-api-base",
        &base,
        "--no-show-model-warnings",
    ];
    let removed = &["AIDER_OPENAI_API_BASE", "AIDER_OPENAI_API_KEY"];
    Setup { variables, removed, arguments: flags.map(OsString::from).into(), folder: None }
}

/// goose takes all of it from variables, which count before its file and its keyring.
fn goose(served: &Served, key: Option<&str>) -> Setup {
    let mut variables = vec![
        ("GOOSE_PROVIDER", "openai".to_owned()),
        ("GOOSE_MODEL", served.model.clone()),
        // For titles and the like; otherwise it asks for one of OpenAI's.
        ("GOOSE_FAST_MODEL", served.model.clone()),
        ("OPENAI_HOST", served.url.clone()),
        ("OPENAI_BASE_PATH", "v1/chat/completions".to_owned()),
        ("OPENAI_API_KEY", key.unwrap_or("none").to_owned()),
    ];
    if served.context > 0 {
        variables.push(("GOOSE_CONTEXT_LIMIT", served.context.to_string()));
    }
    let removed = &["OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT"];
    Setup { variables, removed, ..Setup::default() }
}

/// Returns the variable by which `agent` is told of a file with authorities to trust.
pub fn trust(agent: Agent) -> &'static str {
    match agent {
        Agent::Claude
        | Agent::Opencode
        | Agent::Qwen
        | Agent::Gemini
        | Agent::Cline
        | Agent::Continue => "NODE_EXTRA_CA_CERTS",
        Agent::Codex => "CODEX_CA_CERTIFICATE",
        Agent::Aider | Agent::Crush | Agent::Goose => "SSL_CERT_FILE",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::{CODEX_KEY, setup};
    use crate::args::Agent;
    use crate::commands::launch::server::Served;

    fn served() -> Served {
        Served { url: "http://127.0.0.1:1".into(), model: "a \"b\"".into(), context: 40000 }
    }

    #[test]
    fn claude_code_is_told_by_variables() {
        let setup = setup(Agent::Claude, &served(), Some("key")).unwrap();
        let of = |name: &str| {
            let found = setup.variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(of("ANTHROPIC_BASE_URL"), Some("http://127.0.0.1:1"));
        assert_eq!(of("ANTHROPIC_AUTH_TOKEN"), Some("key"));
        assert_eq!(of("ANTHROPIC_DEFAULT_HAIKU_MODEL"), Some("a \"b\""));
        assert_eq!(of("CLAUDE_CODE_MAX_CONTEXT_TOKENS"), Some("40000"));
        assert!(setup.arguments.is_empty());
    }

    #[test]
    fn codex_is_told_by_settings_and_its_key_by_a_variable() {
        let told = setup(Agent::Codex, &served(), Some("key")).unwrap();
        let arguments: Vec<_> = told.arguments.iter().filter_map(|a| a.to_str()).collect();
        assert!(arguments.contains(&"model=\"a \\\"b\\\"\""), "{arguments:?}");
        assert!(!arguments.iter().any(|argument| argument.contains("=\"key\"")), "{arguments:?}");
        assert_eq!(told.variables, [(CODEX_KEY, "key".to_owned())]);
        let without = setup(Agent::Codex, &served(), None).unwrap();
        assert!(!format!("{without:?}").contains("env_key"));
    }

    #[test]
    fn qwen_code_and_aider_are_told_by_variables_and_flags() {
        let arguments = |agent| {
            let told = setup(agent, &served(), Some("key")).unwrap();
            let of = |name: &str| {
                told.variables.iter().find(|(other, _)| *other == name).map(|(_, v)| v.clone())
            };
            assert_eq!(of("OPENAI_API_KEY").as_deref(), Some("key"));
            let base = of("OPENAI_BASE_URL").or(of("OPENAI_API_BASE"));
            assert_eq!(base.as_deref(), Some("http://127.0.0.1:1/v1"));
            told.arguments.iter().map(|a| a.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(arguments(Agent::Qwen), ["--auth-type", "openai", "--model", "a \"b\""]);
        assert_eq!(arguments(Agent::Aider)[..2], ["--model", "openai/a \"b\""]);
    }

    #[test]
    fn opencode_is_told_by_a_file_in_a_variable() {
        let setup = setup(Agent::Opencode, &served(), None).unwrap();
        let settings: Json = serde_json::from_str(&setup.variables[0].1).unwrap();
        assert_eq!(settings["model"], "ml/a \"b\"");
        let provider = &settings["provider"]["ml"];
        assert_eq!(provider["options"]["baseURL"], "http://127.0.0.1:1/v1");
        assert_eq!(provider["models"]["a \"b\""]["limit"]["context"], 40000);
    }
}
