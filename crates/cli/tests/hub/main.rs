//! The binary and a hub: pulling, listing, removing, and models by their names.

// A helper of a test may panic as the test itself may.
#![allow(clippy::unwrap_used)]

mod asking;
#[path = "../shared/mod.rs"]
mod shared;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fake_hub::{FakeHub, Fault};
use tempfile::TempDir;

const NAME: &str = "org/demo";
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo-model");
const PATIENCE: Duration = Duration::from_secs(60);

/// A hub with the demo model, and an empty cache.
struct Place {
    hub: FakeHub,
    home: TempDir,
    commit: String,
    weights: u64,
}

impl Place {
    fn new() -> Self {
        let files: Vec<_> = fs::read_dir(DEMO)
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().is_file())
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
            })
            .collect();
        let files: Vec<_> = files.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
        let hub = FakeHub::start();
        let commit = hub.add(NAME, &files);
        let weights = fs::metadata(format!("{DEMO}/model.safetensors")).unwrap().len();
        Place { hub, home: tempfile::tempdir().unwrap(), commit, weights }
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments);
        for variable in [
            "ML_MODEL",
            "ML_YES",
            "HF_HUB_CACHE",
            "HUGGINGFACE_HUB_CACHE",
            "HF_HUB_OFFLINE",
            "TRANSFORMERS_OFFLINE",
            "HF_TOKEN_PATH",
            "HUGGING_FACE_HUB_TOKEN",
        ] {
            command.env_remove(variable);
        }
        command.env("HOME", self.home.path()).env("HF_HOME", self.home.path());
        command.env("HF_ENDPOINT", self.hub.url());
        command.env("HF_TOKEN", "hf_secret");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, arguments: &[&str]) -> Child {
        self.command(env!("CARGO_BIN_EXE_ml"), arguments).spawn().unwrap()
    }

    /// Returns the stdout of `arguments`, which must succeed.
    fn done(&self, arguments: &[&str]) -> String {
        let (code, out, error) = said(self.start(arguments).wait_with_output().unwrap());
        assert_eq!(code, Some(0), "{arguments:?}: {error}");
        out
    }

    /// Returns the stderr of `arguments`, which must fail with 1.
    fn failed(&self, arguments: &[&str]) -> String {
        let (code, out, error) = said(self.start(arguments).wait_with_output().unwrap());
        assert_eq!((code, &*out), (Some(1), ""), "{arguments:?}: {error}");
        error
    }

    fn blobs(&self) -> std::path::PathBuf {
        self.home.path().join("hub/models--org--demo/blobs")
    }

    /// Ends a command by Ctrl-C once a part of its pull has come. Returns the bytes that stay.
    fn interrupted(&self, args: &[&str]) -> u64 {
        self.hub.next("/store/", Fault::Slow(20_000, Duration::from_millis(20)));
        let child = self.start(args);
        let started = Instant::now();
        while self.begun() < 300_000 {
            assert!(started.elapsed() < PATIENCE, "nothing comes");
            thread::sleep(Duration::from_millis(5));
        }
        let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(status.success());
        let (code, out, error) = said(child.wait_with_output().unwrap());
        assert_eq!((code, &*out), (Some(130), ""), "{error}");
        let begun = self.begun();
        assert!(begun >= 300_000 && begun < self.weights);
        begun
    }

    /// Bytes that have come of the weights.
    fn begun(&self) -> u64 {
        let blobs = fs::read_dir(self.blobs()).into_iter().flatten().flatten();
        let begun = blobs.filter(|blob| blob.path().extension().is_some_and(|e| e == "incomplete"));
        begun.map(|blob| blob.metadata().map_or(0, |data| data.len())).max().unwrap_or(0)
    }

    fn stored(&self) -> Vec<Option<usize>> {
        let seen = self.hub.seen().into_iter();
        seen.filter(|request| request.path.starts_with("/store/"))
            .map(|request| request.from)
            .collect()
    }
}

fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_model_is_pulled_used_by_its_name_listed_and_removed() {
    let place = Place::new();
    let generate =
        ["generate", "--model", NAME, "-t", "0", "-q", "-n", "8", "Tell me a story about a fox"];
    let error = place.failed(&generate);
    assert!(
        error.contains("there is no folder org/demo") && error.contains("`ml pull org/demo`"),
        "{error}"
    );
    assert_eq!(place.hub.seen(), [], "nothing is asked");

    let (code, out, error) = said(place.start(&["pull", NAME]).wait_with_output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    let folder = place.home.path().join("hub/models--org--demo/snapshots").join(&place.commit);
    assert_eq!(out, format!("{}\n", folder.display()));
    let lines: Vec<_> = error.lines().collect();
    assert!(lines[0].starts_with("org/demo: ") && lines[0].ends_with(" to fetch"), "{error}");
    assert!(lines.last().unwrap().ends_with(" came now"), "{error}");
    assert!(!error.contains('\x1b') && !error.contains("hf_secret"), "{error}");

    place.hub.forget();
    let here = place.done(&generate);
    let folder_alike =
        place.done(&["generate", "--model", DEMO, "-t", "0", "-q", "-n", "8", generate[8]]);
    assert_eq!(here, folder_alike);
    let described = place.done(&["info", "--model", "org/demo@main"]);
    assert!(described.contains("org/demo@main") && described.contains("qwen3"), "{described}");
    assert_eq!(place.hub.seen(), [], "nothing is asked");
    let listed: serde_json::Value = serde_json::from_str(&place.done(&["list", "--json"])).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["architecture"]), (&NAME.into(), &"qwen3".into()));
    assert_eq!(
        (&listed[0]["commit"], &listed[0]["error"]),
        (&place.commit.as_str().into(), &().into())
    );
    assert!(place.done(&["list"]).contains("  org/demo\n"));

    assert!(place.done(&["rm", NAME]).starts_with("removed org/demo: "));
    assert_eq!(place.done(&["list", "--json"]), "[]\n");
    assert!(place.failed(&["rm", NAME]).contains("org/demo is not in the cache"));
}

#[test]
fn a_short_name_stands_for_a_well_known_model() {
    let place = Place::new();
    let models: serde_json::Value =
        serde_json::from_str(&place.done(&["models", "--json"])).unwrap();
    let models = models.as_array().unwrap();
    let small = models.iter().find(|model| model["name"] == "qwen3-0.6b").unwrap();
    assert_eq!(small["repository"], "mlx-community/Qwen3-0.6B-4bit");
    assert!(small["fits"].is_boolean(), "{small}");
    let recommended = models.iter().filter(|model| model["recommended"] == true);
    assert!(recommended.count() <= 1, "{models:?}");
    let error = place.failed(&["pull", "qwen3-0.6b"]);
    assert!(error.contains("error: mlx-community/Qwen3-0.6B-4bit: the hub has no such"), "{error}");
    let error = place.failed(&["info", "--model", "qwen3-0.6b"]);
    assert!(error.contains("`ml pull qwen3-0.6b` or `--yes` fetches it"), "{error}");
}

#[test]
fn a_name_that_leads_out_of_the_cache_is_bad_usage() {
    let place = Place::new();
    for name in ["../x", "/etc/passwd", "a/../b", "a\\b", "org/demo@../../x", "demo"] {
        for command in ["pull", "rm"] {
            let (code, _, error) = said(place.start(&[command, name]).wait_with_output().unwrap());
            assert_eq!(code, Some(2), "{error}");
            assert!(error.contains("is no name of a model: expected ORG/NAME"), "{error}");
        }
    }
    assert_eq!(place.hub.seen(), []);
    assert_eq!(fs::read_dir(place.home.path()).unwrap().count(), 0);
}

#[test]
fn offline_what_is_here_works_and_the_rest_is_told() {
    let place = Place::new();
    place.done(&["pull", "-q", NAME]);
    place.hub.forget();
    let offline = |arguments: &[&str]| {
        let mut command = place.command(env!("CARGO_BIN_EXE_ml"), arguments);
        said(command.env("HF_HUB_OFFLINE", "1").output().unwrap())
    };
    assert_eq!(offline(&["info", "--model", NAME]).0, Some(0));
    let (code, _, error) = offline(&["pull", NAME]);
    assert_eq!(code, Some(1));
    assert!(error.contains("HF_HUB_OFFLINE is set: unset it"), "{error}");
    assert_eq!(place.hub.seen(), []);
}

#[test]
fn a_pull_that_ctrl_c_ended_goes_on() {
    let place = Place::new();
    let begun = place.interrupted(&["pull", NAME]);
    assert!(place.done(&["list"]).contains("`ml pull org/demo@"), "a beginning is told");
    place.done(&["pull", NAME]);
    assert_eq!(place.stored(), [None, Some(usize::try_from(begun).unwrap())]);
    place.done(&["info", "--model", NAME]);
}

#[test]
fn two_processes_fetch_each_file_once() {
    let place = Place::new();
    place.hub.always("/store/", Fault::Slow(100_000, Duration::from_millis(10)));
    let children = [(); 2].map(|()| place.start(&["pull", NAME]));
    let results = children.map(|child| said(child.wait_with_output().unwrap()));
    assert!(results.iter().all(|(code, _, _)| *code == Some(0)), "{results:?}");
    assert_eq!(results[0].1, results[1].1);
    assert_eq!(place.stored(), [None], "{results:?}");
}

#[test]
fn a_disk_that_is_full_is_told_and_a_later_pull_goes_on() {
    let place = Place::new();
    // A limit of file sizes is a full disk for one process; 512-byte blocks, or 1024-byte ones.
    let limited =
        format!("trap '' XFSZ; ulimit -f 600; exec {} pull {NAME}", env!("CARGO_BIN_EXE_ml"));
    let (code, out, error) = said(place.command("sh", &["-c", &limited]).output().unwrap());
    assert_eq!((code, &*out), (Some(1), ""), "{error}");
    assert!(
        error.contains(".incomplete: file too large") && error.contains("pull again"),
        "{error}"
    );
    let begun = place.begun();
    assert!(begun >= 300_000 && begun < place.weights, "{begun}");
    place.done(&["pull", NAME]);
    assert_eq!(place.stored(), [None, Some(usize::try_from(begun).unwrap())]);
}

#[test]
fn a_gated_model_is_told_in_one_line() {
    let place = Place::new();
    place.hub.always("/resolve/", Fault::refusal(403, "GatedRepo"));
    let error = place.failed(&["pull", NAME]);
    let told = error.lines().last().unwrap();
    assert!(told.starts_with("error: org/demo: its owners let in only who asked"), "{error}");
    assert!(!error.contains("hf_secret"), "{error}");
}

#[test]
fn one_of_a_repositorys_files_of_gguf_is_pulled_and_used_by_its_name() {
    let place = Place::new();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/gguf");
    let bytes = |name: &str| fs::read(format!("{fixtures}/{name}.gguf")).unwrap();
    let (four, eight) = (bytes("qwen3"), bytes("qwen2"));
    let commit = place.hub.add(
        "org/small-GGUF",
        &[("README.md", b"#"), ("small-Q4_1.gguf", &four), ("small-Q8_0.gguf", &eight)],
    );
    let error = place.failed(&["pull", "-q", "org/small-GGUF"]);
    assert!(error.contains("several models in files of GGUF"), "{error}");
    assert!(error.contains("org/small-GGUF:Q4_1; there are Q4_1, Q8_0"), "{error}");
    let cache = place.home.path().join("hub/models--org--small-GGUF/snapshots").join(commit);
    let name = "org/small-GGUF:Q4_1";
    let out = place.done(&["pull", "-q", name]);
    assert_eq!(out, format!("{}\n", cache.join("small-Q4_1.gguf").display()));
    for name in [name, "org/small-GGUF"] {
        let answer = ["generate", "--model", name, "--raw", "-q", "-n", "4", "--ignore-eos", "A"];
        assert!(!place.done(&answer).is_empty(), "{name}");
    }
    place.done(&["pull", "-q", "org/small-GGUF:q8_0"]);
    let error = place.failed(&["info", "--model", "org/small-GGUF"]);
    assert!(error.contains("there are Q4_1, Q8_0"), "{error}");
    let listed: serde_json::Value = serde_json::from_str(&place.done(&["list", "--json"])).unwrap();
    let architectures: Vec<_> =
        listed.as_array().unwrap().iter().map(|m| &m["architecture"]).collect();
    assert_eq!(architectures, ["qwen3", "qwen2"], "{listed}");
    let table = place.done(&["list"]);
    assert!(table.contains(name) && table.contains("org/small-GGUF:Q8_0"), "{table}");
    let error = place.failed(&["rm", name]);
    assert!(error.contains("`ml rm org/small-GGUF` removes all of them"), "{error}");
    place.done(&["rm", "org/small-GGUF"]);
    // The only file is the whole model.
    place.done(&["pull", "-q", name]);
    place.done(&["rm", name]);
    assert!(place.failed(&["info", "--model", name]).contains("ml pull"));
}
