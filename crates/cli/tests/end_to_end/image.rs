//! `ml image` from beginning to end, with the tiny pipelines of the backend's fixtures.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::{command, finish, interrupt, json, ml, text};

const FIXTURES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/images");

fn model(name: &str) -> String {
    format!("{FIXTURES}/{name}")
}

/// A folder of the test's own, with the noise of a golden in `noise.safetensors`.
fn folder(golden: &str, case: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(format!("{FIXTURES}/golden/{golden}.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let noise = tensors.tensor(&format!("{case}.initial_latents")).unwrap();
    let view = TensorView::new(noise.dtype(), noise.shape().to_vec(), noise.data()).unwrap();
    let file = safetensors::serialize([("latents", view)], None).unwrap();
    fs::write(folder.path().join("noise.safetensors"), file).unwrap();
    folder
}

fn decoded(path: &Path) -> pictures::Picture {
    let limits = pictures::Limits::default();
    pictures::Picture::decode(&fs::read(path).unwrap(), &limits).unwrap()
}

fn at(folder: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = folder.path().join(name);
    (path.clone(), path.display().to_string())
}

#[test]
fn a_picture_from_given_noise_is_that_of_diffusers_and_its_file_tells_how_it_was_made() {
    let folder = folder("z_image", "square");
    let (_, noise) = at(&folder, "noise.safetensors");
    let (path, output) = at(&folder, "fox.png");
    let report = json(&[
        "image",
        "A red circle under a yellow sky",
        "--model",
        &model("z_image"),
        "--width",
        "64",
        "--height",
        "64",
        "--steps",
        "4",
        "--guidance",
        "0",
        "--latents",
        &noise,
        "--backend",
        "cpu",
        "--dtype",
        "f32",
        "--output",
        &output,
        "--json",
    ]);
    let (found, expected) =
        (decoded(&path), decoded(Path::new(&format!("{FIXTURES}/golden/z_image/square.png"))));
    assert_eq!((found.width(), found.height()), (64, 64));
    let apart = found.rgb().iter().zip(expected.rgb()).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(apart <= Some(1), "{apart:?}");
    assert_eq!((report["width"].as_u64(), report["steps"].as_u64()), (Some(64), Some(4)));
    assert!(report["seed"].is_null());
    assert_eq!(report["sha256"].as_str().unwrap().len(), 64);
    assert!(report["peak_memory_bytes"].as_u64().unwrap() > 0);
    let [step, all] =
        ["step_seconds", "denoise_seconds"].map(|name| report[name].as_f64().unwrap());
    assert!(0.0 < step && step <= all);
    let file = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
    assert!(file.contains("A red circle under a yellow sky") && file.contains("ZImagePipeline"));
}

/// Arguments of a small picture.
fn small<'a>(model: &'a str, output: &'a str, seed: &'a str) -> Vec<&'a str> {
    let mut arguments = vec!["image", "Three white birds", "--model", model, "--output", output];
    arguments.extend(["--width", "48", "--height", "64", "--steps", "2", "--backend", "cpu"]);
    arguments.extend(["--seed", seed]);
    arguments
}

#[test]
fn equal_seeds_make_equal_files_and_steps_are_told_on_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let model = model("z_image");
    let paint = |name: &str, seed: &str| {
        let (path, output) = at(&folder, name);
        let made = ml(&small(&model, &output, seed));
        let told = text(&made.stderr);
        assert!(made.status.success() && told.contains("step 2 of 2"), "{told}");
        assert!(made.stdout.is_empty() && told.contains(&format!("seed {seed}")), "{told}");
        fs::read(path).unwrap()
    };
    let (first, again, other) = (paint("a.png", "7"), paint("b.png", "7"), paint("c.png", "8"));
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[test]
fn what_cannot_be_done_is_named_by_its_flag_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (path, output) = at(&folder, "fox.png");
    let model = model("z_image");
    let refused = |more: &[&str], code: i32| {
        let made = ml(&[small(&model, &output, "1"), more.to_vec()].concat());
        assert_eq!(made.status.code(), Some(code), "{}", text(&made.stderr));
        assert!(!path.exists());
        text(&made.stderr)
    };
    let base = |flag: &str, value: &str| {
        let mut arguments = small(&model, &output, "1");
        let place = arguments.iter().position(|argument| *argument == flag).unwrap();
        arguments[place + 1] = value;
        let made = ml(&arguments);
        assert_eq!(made.status.code(), Some(2), "{}", text(&made.stderr));
        assert!(!path.exists());
        text(&made.stderr)
    };
    let told = base("--width", "100");
    assert!(told.contains("--width") && told.contains("96 and 112"), "{told}");
    let told = base("--steps", "0");
    assert!(told.contains("--steps"), "{told}");
    let told = refused(&["--negative-prompt", "dark"], 2);
    assert!(told.contains("--negative-prompt") && told.contains("guidance"), "{told}");
    let told = refused(&["--quantise", "5"], 2);
    assert!(told.contains("--quantise"), "{told}");
    let told = refused(&["--memory-limit", "100KiB"], 1);
    assert!(told.contains("needs") && told.contains("free"), "{told}");
    let missing = format!("{FIXTURES}/golden");
    let told = ml(&small(&missing, &output, "1"));
    assert!(text(&told.stderr).contains("model_index.json"), "{}", text(&told.stderr));
    let told = ml(&["image", "a fox", "--output", "no/such/folder/fox.png", "--model", &model]);
    assert!(text(&told.stderr).contains("no/such/folder"), "{}", text(&told.stderr));
}

#[test]
fn ctrl_c_ends_a_picture_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, output) = at(&folder, "fox.png");
    let model = model("z_image");
    let mut arguments = small(&model, &output, "1");
    let place = arguments.iter().position(|argument| *argument == "--steps").unwrap();
    arguments[place + 1] = "1000";
    let child = command(&arguments).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    interrupt(&child);
    let (code, out, error) = finish(child);
    assert_eq!(code, Some(130), "{error}");
    assert!(out.is_empty() && !error.contains("panicked"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{path:?}");
}

#[test]
fn info_and_list_know_the_components_of_a_pipeline() {
    let model = model("z_image");
    let info = json(&["info", "--model", &model, "--backend", "cpu", "--json"]);
    assert_eq!(info["pipeline"], "ZImagePipeline");
    let components = info["components"].as_array().unwrap();
    let transformer = components.iter().find(|part| part["name"] == "transformer").unwrap();
    assert_eq!(transformer["class"], "ZImageTransformer2DModel");
    assert!(transformer["parameters"].as_u64().unwrap() > 400_000);
    let told = text(&ml(&["info", "--model", &model, "--backend", "cpu"]).stdout);
    assert!(told.contains("pipeline       ZImagePipeline") && told.contains("  vae "), "{told}");
    let refused = ml(&["info", "--model", &model, "--kv-bits", "4"]);
    assert_eq!(refused.status.code(), Some(2));
    let list = json(&["list", FIXTURES, "--json"]);
    let listed = list.as_array().unwrap().iter().find(|row| row["path"] == model.as_str());
    assert_eq!(listed.unwrap()["pipeline"], "ZImagePipeline");
    let table = text(&ml(&["list", FIXTURES]).stdout);
    assert!(table.contains("ZImagePipeline"), "{table}");
}

#[test]
fn a_server_makes_pictures_beside_its_text_model() {
    use std::io::{BufRead, BufReader, Read, Write};
    let model = model("z_image");
    let arguments =
        ["serve", "--port", "0", "--backend", "cpu", "--image-model", &model, "--log", "off"];
    let mut child = command(&arguments).spawn().unwrap();
    let mut address = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    while !address.starts_with("http://") {
        address.clear();
        assert!(stderr.read_line(&mut address).unwrap() > 0, "no address");
    }
    let address = address.trim().trim_start_matches("http://").to_owned();
    let body = r#"{"prompt": "a fox", "size": "32x48", "steps": 1, "seed": 3}"#;
    let post = || {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let head = "POST /v1/images/generations HTTP/1.1\r\nhost: localhost\r\n\
            connection: close\r\ncontent-type: application/json\r\n";
        write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let mut answer = post();
    while answer.starts_with("HTTP/1.1 503") {
        std::thread::sleep(std::time::Duration::from_millis(50));
        answer = post();
    }
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("32x48"), "{answer}");
    interrupt(&child);
    assert_eq!(finish(child).0, Some(0));
}
