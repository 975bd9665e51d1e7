//! An agent on a server that runs as long as it does.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use crate::channels::GptOss;
use crate::{command, text};

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
