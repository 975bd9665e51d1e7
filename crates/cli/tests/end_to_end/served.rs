//! `ml ps`, `ml stop`, `ml show` and `ml service`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use serde_json::{Value, json};

use crate::serve::{answered, serve, serve_by, wait_until_ready};
use crate::{command, finish, interrupt, ml, text};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo-model");

/// A command that asks the server at `address`.
fn asked(address: &str, arguments: &[&str]) -> Output {
    ml(&[arguments, &["--url", &format!("http://{address}")]].concat())
}

#[test]
fn a_running_server_tells_of_its_models_and_unloads_them() {
    let models = [format!("one={DEMO}"), format!("two={DEMO}")];
    let arguments = ["--model", &models[0], "--model", &models[1], "--allow-shutdown"];
    let (child, address) = serve(&arguments);
    wait_until_ready(&address);
    let none = asked(&address, &["ps"]);
    assert!(none.status.success() && none.stdout.is_empty());
    assert!(text(&none.stderr).contains("none of its 2 models is loaded"));

    let body = json!({"model": "two", "prompt": "Once", "max_tokens": 2});
    answered(&address, "/v1/completions", &body);
    let loaded = text(&asked(&address, &["ps"]).stdout);
    let lines: Vec<&str> = loaded.lines().collect();
    assert!(lines[0].starts_with("MODEL") && lines[1].starts_with("two"), "{loaded}");
    assert!(
        lines[1].contains("loaded") && lines[1].contains("ago") && lines.len() == 2,
        "{loaded}"
    );
    let told: Value = serde_json::from_slice(&asked(&address, &["ps", "--json"]).stdout).unwrap();
    assert_eq!(told[0]["id"], "two");
    assert!(told[0]["loaded_at"].as_u64() > Some(0));

    let shown = text(&asked(&address, &["show", "two"]).stdout);
    assert!(shown.starts_with("two\n") && shown.contains("context"), "{shown}");
    let shown = text(&asked(&address, &["show"]).stdout);
    assert!(shown.starts_with("one\n") && shown.contains("\ntwo\n"), "{shown}");
    let unknown = asked(&address, &["show", "three"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("no model `three`; it has one, two"));

    assert!(text(&asked(&address, &["stop", "two"]).stderr).contains("two is unloaded"));
    assert!(text(&asked(&address, &["stop", "two"]).stderr).contains("two is unloaded"));
    assert!(text(&asked(&address, &["ps"]).stderr).contains("none of its 2"));

    let ended = asked(&address, &["stop", "--server"]);
    assert!(text(&ended.stderr).contains("ends"), "{}", text(&ended.stderr));
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn a_server_is_ended_only_where_it_allows_that() {
    let (child, address) = serve_by(command(&[]), &[]);
    wait_until_ready(&address);
    let refused = asked(&address, &["stop", "--server"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--allow-shutdown"), "{}", text(&refused.stderr));
    let stays = asked(&address, &["stop", "demo"]);
    assert_eq!(stays.status.code(), Some(1));
    assert!(text(&stays.stderr).contains("stays loaded"), "{}", text(&stays.stderr));
    interrupt(&child);
    let (code, _, error) = finish(child);
    assert_eq!(code, Some(0), "{error}");
    // Its first line was read already.
    for told in ["page ", "API ", "model ", "limits ", "ready "] {
        assert!(error.lines().any(|line| line.trim().starts_with(told)), "{told}: {error}");
    }
    let gone = asked(&address, &["ps"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).contains("no server listens there; start one with `ml serve`"));
}

#[test]
fn a_service_is_a_file_that_is_taken_away_again() {
    let home = tempfile::tempdir().unwrap();
    let service = |arguments: &[&str]| {
        let mut command = command(&[&["service"], arguments].concat());
        // Nothing that starts services.
        command.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME").env("PATH", "/nowhere");
        command.output().unwrap()
    };
    let refused = service(&["install", "--", "--prot", "1"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("ml serve: unexpected argument '--prot'"));
    assert_eq!(service(&["status"]).status.code(), Some(1));

    let installed = service(&["install", "--", "--port", "8123"]);
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    assert!(text(&installed.stderr).contains("type: "), "{}", text(&installed.stderr));
    let path = match cfg!(target_os = "macos") {
        true => home.path().join("Library/LaunchAgents/ml-on-mlx.serve.plist"),
        false => home.path().join(".config/systemd/user/ml.service"),
    };
    assert!(fs::read_to_string(&path).unwrap().contains("8123"));
    assert!(service(&["install"]).status.success());
    assert!(!fs::read_to_string(&path).unwrap().contains("8123"));
    assert!(service(&["status"]).status.success());
    assert!(service(&["remove"]).status.success());
    assert!(!path.exists());

    fs::write(&path, "of somebody else").unwrap();
    for arguments in [&["install"][..], &["remove"]] {
        let refused = service(arguments);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains("is not of `ml service`"));
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "of somebody else");
}

#[test]
fn the_system_is_told_of_a_service_and_of_its_end() {
    let home = tempfile::tempdir().unwrap();
    let tools = home.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let told = home.path().join("told");
    // Notes its arguments. The service does not start while there is a file `refuse`.
    for name in ["systemctl", "launchctl"] {
        let text = format!(
            "#!/bin/sh\necho \"$*\" >>'{}'\ncase $* in *restart*|*bootstrap*) [ ! -e '{}' ];; esac\n",
            told.display(),
            home.path().join("refuse").display()
        );
        fs::write(tools.join(name), text).unwrap();
        fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let service = |arguments: &[&str]| {
        let mut command = command(&[&["service"], arguments].concat());
        command.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME").env("PATH", &tools);
        let output = command.output().unwrap();
        let lines = fs::read_to_string(&told).unwrap_or_default();
        let _ = fs::remove_file(&told);
        (output.status.code(), text(&output.stderr), lines)
    };
    let begins =
        if cfg!(target_os = "macos") { "bootstrap gui/" } else { "--user restart ml.service" };
    let ends =
        if cfg!(target_os = "macos") { "bootout gui/" } else { "--user disable --now ml.service" };
    let has = |lines: &str, start: &str| lines.lines().any(|line| line.starts_with(start));

    let (code, said, lines) = service(&["install", "--", "--port", "8123"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(has(&lines, begins) && said.contains("the server runs"), "{lines}{said}");
    let (code, said, lines) = service(&["status"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(lines.lines().count() == 2 && said.contains("log: "), "{lines}{said}");
    let (code, said, lines) = service(&["remove"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(has(&lines, ends) && said.contains("removed "), "{lines}{said}");

    fs::write(home.path().join("refuse"), "").unwrap();
    let (code, said, _) = service(&["install"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("it ended with exit status: 1"), "{said}");

    let (code, said, _) = service(&["install", "--", "--model-name", "a\nb"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("\"a\\nb\" has a control character"), "{said}");
}
