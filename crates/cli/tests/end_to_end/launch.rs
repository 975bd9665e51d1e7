//! An agent on a server that runs as long as it does.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::channels::GptOss;
use crate::serve::{serve, wait_until_ready};
use crate::{command, finish, signal, text};

#[test]
fn a_model_is_served_while_the_agent_runs() {
    let model = GptOss::new();
    let folder = tempfile::tempdir().unwrap();
    let agent = folder.path().join("codex");
    // It stands for the agent, and tells what it was started with.
    fs::write(&agent, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 3\n").unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let launch = |model: &str| {
        let arguments = ["launch", "codex", "--model", model, "--model-name", "oss", "--", "hi"];
        command(&arguments).env("PATH", &path).output().unwrap()
    };
    let output = launch(&model.path(""));
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(said.contains("model=\"oss\"\n") && said.ends_with("hi\n"), "{said}");
    let (_, address) = said.split_once("base_url=\"http://").unwrap();
    let (address, _) = address.split_once("/v1\"").unwrap();
    assert!(TcpStream::connect(address).is_err(), "the server has ended");

    let output = launch("/nowhere");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere"), "{}", text(&output.stderr));
}

/// Stands for any agent: tells its arguments, its variables, and the settings that it would read.
const STAND_IN: &str = r#"#!/bin/sh
printf 'argument %s\n' "$@"
env
cat "$GEMINI_CLI_HOME/.gemini/settings.json" "$GEMINI_CLI_HOME/.gemini/GEMINI.md" \
  "$CRUSH_GLOBAL_DATA/crush.json" 2>/dev/null
case $1 in
--data-dir) cat "$2/settings/providers.json" ;;
--config) cat "$2" ;;
esac
printf "\nfolder %s\n" "${GEMINI_CLI_HOME:-${CRUSH_GLOBAL_DATA:-$2}}"
exit 3
"#;

/// Each agent with its program and what `--print` shows of its key.
const AGENTS: [(&str, &str, &str); 10] = [
    ("claude", "claude", " ANTHROPIC_AUTH_TOKEN=KEY "),
    ("codex", "codex", " ML_LAUNCH_CODEX_KEY=KEY "),
    ("gemini", "gemini", " GEMINI_API_KEY=KEY "),
    ("qwen", "qwen", " OPENAI_API_KEY=KEY "),
    ("opencode", "opencode", r#""apiKey":"KEY""#),
    ("crush", "crush", " ML_LAUNCH_CRUSH_KEY=KEY "),
    ("goose", "goose", " OPENAI_API_KEY=KEY "),
    ("aider", "aider", " OPENAI_API_KEY=KEY "),
    ("cline", "cline", r#""apiKey":"KEY""#),
    ("continue", "cn", r#""apiKey":"KEY""#),
];

/// Settings of Gemini CLI as a user has them, with a word that no screen shall show.
const SETTINGS: &str = r#"{ // mine
    "mcpServers": {"a": {"env": {"TOKEN": "hush"}}},
    "security": {"auth": {"selectedType": "oauth-personal"}}
}"#;

#[test]
fn each_agent_hears_of_the_server_and_leaves_its_users_files_as_they_are() {
    let (server, address) = serve(&["--model-name", "fox 1"]);
    wait_until_ready(&address);
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let own = home.join(".gemini/settings.json");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, SETTINGS).unwrap();
    fs::write(own.with_file_name("GEMINI.md"), "be brief").unwrap();
    for (agent, program, key) in AGENTS {
        put(&folder.path().join(program), STAND_IN);
        let url = format!("http://{address}");
        let launch = |more: &[&str]| {
            let mut launch = command(&["launch", agent, "--url", &url]);
            launch.args(more).env("ML_LAUNCH_API_KEY", "sesame").env("HOME", &home);
            for name in ["GEMINI_CLI_HOME", "CRUSH_GLOBAL_DATA", "GOOGLE_API_KEY"] {
                launch.env_remove(name);
            }
            if agent == "gemini" {
                // The links to what lies there begin elsewhere.
                launch.current_dir(folder.path()).env("GEMINI_CLI_HOME", "home");
            }
            let path = format!("{}:/usr/bin:/bin", folder.path().display());
            launch.env("PATH", path).env("OPENAI_ORGANIZATION", "x").output().unwrap()
        };
        let output = launch(&["--", "say hi"]);
        let (said, told) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(3), "{agent}: {told}");
        for word in [url.as_str(), "fox 1", "sesame", "argument say hi\n"] {
            assert!(said.contains(word), "{agent}: {word}: {said}");
        }
        assert!(!said.contains("ML_LAUNCH_API_KEY="), "{agent}: {said}");
        for own in ["hush", "be brief"] {
            assert_eq!(said.contains(own), agent == "gemini", "{agent}: {own}: {said}");
        }
        let made = said.lines().find_map(|line| line.strip_prefix("folder ")).unwrap();
        assert!(
            !made.contains("ml-launch-") || !fs::exists(made).unwrap(),
            "{agent}: {made} stays"
        );

        let output = launch(&["--print", "--", "say hi"]);
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{agent}: {}", text(&output.stderr));
        let command = shown.lines().last().unwrap();
        assert!(command.starts_with("env -u ML_LAUNCH_API_KEY"), "{agent}: {shown}");
        assert!(command.contains(&format!(" {program} ")), "{agent}: {shown}");
        assert!(command.ends_with(" 'say hi'") && shown.contains(&url), "{agent}: {shown}");
        assert!(shown.contains(key) && !shown.contains("sesame"), "{agent}: {key}: {shown}");
        assert!(!shown.contains("hush") && !shown.contains("oauth-personal"), "{agent}: {shown}");
    }
    assert_eq!(fs::read_to_string(&own).unwrap(), SETTINGS);
    let files = fs::read_dir(&home).unwrap().count();
    assert_eq!(files, 1, "the home has further files");
    signal(&server, "-TERM");
    finish(server);
}

/// Writes a program.
fn put(path: &Path, text: &str) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_folder_with_a_key_goes_with_the_agent_whatever_ends_it() {
    let (server, address) = serve(&[]);
    wait_until_ready(&address);
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("cline"), "#!/bin/sh\necho \"$2\"\nexec sleep 600\n");
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    for end in ["-QUIT", "-TERM"] {
        let mut launch = command(&["launch", "cline", "--url", &format!("http://{address}")]);
        let mut child = launch.env("PATH", &path).stdout(Stdio::piped()).spawn().unwrap();
        let mut made = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut made).unwrap();
        let made = Path::new(made.trim_end());
        assert!(made.join("settings/providers.json").exists(), "{}", made.display());
        signal(&child, end);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(1), "{end}: {status}");
        assert!(!made.exists(), "{end}: {} stays", made.display());
    }
    signal(&server, "-TERM");
    finish(server);
}

#[test]
fn what_would_be_served_is_printed_and_not_started() {
    let output =
        command(&["launch", "crush", "--print", "--model", "/nowhere/fox"]).output().unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        shown.starts_with("# as long as the agent: ml serve --model /nowhere/fox\n"),
        "{shown}"
    );
    assert!(shown.contains("http://127.0.0.1:PORT/v1") && shown.contains("\"fox\""), "{shown}");
    assert!(
        shown.contains("# FOLDER/crush.json") && shown.contains("CRUSH_GLOBAL_DATA=FOLDER"),
        "{shown}"
    );
}
