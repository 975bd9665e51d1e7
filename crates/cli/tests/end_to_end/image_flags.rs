//! The flags of `ml image`: each is honoured, or refused by its name, and the file tells them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::Value;

use crate::{command, finish, interrupt, json, ml, text};

const FIXTURES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../metal-backend/tests/fixtures/images");

/// A folder with the paths of what goes into it.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Bench {
        Bench(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A safetensors file with the tensor `name` of zeros.
    fn noise(&self, name: &str, shape: [usize; 4]) -> String {
        let bytes = vec![0; 4 * shape.iter().product::<usize>()];
        let view = TensorView::new(Dtype::F32, shape.to_vec(), &bytes).unwrap();
        let file = safetensors::serialize([(name, view)], None).unwrap();
        fs::write(self.path("noise.safetensors"), file).unwrap();
        self.name("noise.safetensors")
    }
}

/// Arguments of a picture of 32 × 48 pixels in two steps, and `more`.
fn arguments<'a>(model: &'a str, output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let first = ["image", "Three white birds", "--model", model, "--output", output];
    let sizes = ["--width", "32", "--height", "48", "--steps", "2", "--backend", "cpu"];
    [&first, &sizes[..], more].concat()
}

fn model(name: &str) -> String {
    format!("{FIXTURES}/{name}")
}

/// The texts of a PNG.
fn texts(path: &Path) -> BTreeMap<String, String> {
    let bytes = fs::read(path).unwrap();
    let mut found = BTreeMap::new();
    let mut at = 8;
    while at + 8 <= bytes.len() {
        let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let data = &bytes[at + 8..at + 8 + length];
        if &bytes[at + 4..at + 8] == b"iTXt" {
            // The keyword, two flags, a language, the keyword in it, and the text.
            let mut parts = data.splitn(2, |byte| *byte == 0);
            let keyword = text(parts.next().unwrap());
            let rest = &parts.next().unwrap()[2..];
            let value = rest.splitn(3, |byte| *byte == 0).nth(2).unwrap();
            found.insert(keyword, text(value));
        }
        at += 12 + length;
    }
    found
}

#[test]
fn the_file_tells_all_that_makes_it_again() {
    let bench = Bench::new();
    let model = model("z_image");
    let (output, again) = (bench.name("a.png"), bench.name("b.png"));
    let more = ["--seed", "7", "--guidance", "2.5", "--negative-prompt", "größer", "--json"];
    let report = json(&arguments(&model, &output, &more));
    let told = texts(&bench.path("a.png"));
    assert_eq!(told["prompt"], "Three white birds");
    assert_eq!(told["negative_prompt"], "größer");
    assert_eq!((told["seed"].as_str(), &told["model"]), ("7", &model));
    let settings: Value = serde_json::from_str(&told["settings"]).unwrap();
    for key in ["width", "height", "steps", "guidance", "dtype", "device", "pipeline", "seed"] {
        assert!(!settings[key].is_null(), "{key}");
        assert_eq!(settings[key], report[key], "{key}");
    }
    for key in [
        "load_seconds",
        "encode_seconds",
        "denoise_seconds",
        "step_seconds",
        "decode_seconds",
        "total_seconds",
        "peak_memory_bytes",
        "prompt_tokens",
    ] {
        assert!(report[key].as_f64().is_some_and(|number| number > 0.0), "{key}: {report}");
    }
    assert_eq!((report["output"].as_str(), report["width"].as_u64()), (Some(&*output), Some(32)));
    assert_eq!(
        (report["height"].as_u64(), report["input_images"].clone()),
        (Some(48), Value::Array(vec![]))
    );

    let of = |key: &str| settings[key].to_string();
    let (width, height, steps, guidance) = (of("width"), of("height"), of("steps"), of("guidance"));
    let rebuilt = [
        "image",
        &told["prompt"],
        "--model",
        &told["model"],
        "--output",
        &again,
        "--negative-prompt",
        &told["negative_prompt"],
        "--seed",
        &told["seed"],
        "--width",
        &width,
        "--height",
        &height,
        "--steps",
        &steps,
        "--guidance",
        &guidance,
        "--backend",
        settings["device"].as_str().unwrap(),
        "--json",
    ];
    assert_eq!(json(&rebuilt)["sha256"], report["sha256"]);
    assert_eq!(fs::read(bench.path("a.png")).unwrap(), fs::read(bench.path("b.png")).unwrap());
}

#[test]
fn each_type_computes_and_another_one_is_refused() {
    let bench = Bench::new();
    let model = model("z_image");
    let output = bench.name("fox.png");
    let made = |dtype: &str| {
        let report =
            json(&arguments(&model, &output, &["--seed", "1", "--dtype", dtype, "--json"]));
        assert!(texts(&bench.path("fox.png"))["settings"].contains(&format!("\"{dtype}\"")));
        (report["dtype"].clone(), report["sha256"].clone())
    };
    let [f32, bf16, f16] = ["f32", "bf16", "f16"].map(made);
    assert_eq!([&f32.0, &bf16.0, &f16.0], ["f32", "bf16", "f16"]);
    assert!(f32.1 != bf16.1 && f32.1 != f16.1);
    let refused = ml(&arguments(&model, &output, &["--dtype", "f64"]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--dtype"), "{}", text(&refused.stderr));
}

#[test]
fn noise_that_does_not_fit_is_refused_and_nothing_is_written() {
    let bench = Bench::new();
    let model = model("z_image");
    let output = bench.name("fox.png");
    let refused = |more: &[&str], expected: &[&str]| {
        let made = ml(&arguments(&model, &output, more));
        let told = text(&made.stderr);
        assert!(!made.status.success() && !bench.path("fox.png").exists(), "{more:?}: {told}");
        assert!(expected.iter().all(|part| told.contains(part)), "{more:?}: {told}");
    };
    let noise = bench.noise("latents", [1, 16, 8, 8]);
    refused(&["--latents", &noise], &["latents", "[1, 16, 6, 4]"]);
    let fits = bench.noise("latents", [1, 16, 6, 4]);
    refused(&["--latents", &fits, "--seed", "1"], &["--latents", "--seed"]);
    let made = ml(&arguments(&model, &bench.name("good.png"), &["--latents", &fits]));
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(!texts(&bench.path("good.png")).contains_key("seed"));
    let other = bench.noise("noise", [1, 16, 6, 4]);
    refused(&["--latents", &other], &["noise.safetensors", "`latents`"]);
    refused(&["--latents", &bench.name("none")], &["none"]);
}

#[test]
fn a_size_that_is_refused_names_the_nearest_good_ones() {
    let bench = Bench::new();
    let model = model("z_image");
    let output = bench.name("fox.png");
    for (flag, size, expected) in [
        ("--width", "1000", vec!["--width", "992 and 1008"]),
        ("--height", "17", vec!["--height", "16 and 32"]),
        ("--height", "1", vec!["--height", "16"]),
        ("--width", "99999", vec!["--width", "8192"]),
        ("--height", "0", vec!["--height"]),
        ("--width", "-16", vec!["--width"]),
    ] {
        let mut all = arguments(&model, &output, &[]);
        let place = all.iter().position(|argument| *argument == flag).unwrap();
        all[place + 1] = size;
        let made = ml(&all);
        let told = text(&made.stderr);
        assert_eq!(made.status.code(), Some(2), "{flag} {size}: {told}");
        assert!(expected.iter().all(|part| told.contains(part)), "{flag} {size}: {told}");
        assert!(!bench.path("fox.png").exists());
    }
}

#[test]
fn a_flag_that_would_change_nothing_or_cannot_be_is_refused_by_name() {
    let bench = Bench::new();
    let (z_image, edit) = (model("z_image"), model("qwen_image_edit"));
    let output = bench.name("fox.png");
    let picture = format!("{FIXTURES}/golden/z_image/square.png");
    for (model, more, expected) in [
        (&z_image, vec!["--input-image", &picture], "--input-image"),
        (&edit, vec![], "--input-image"),
        (&z_image, vec!["--guidance", "-1"], "--guidance"),
        (&z_image, vec!["--guidance", "NaN"], "--guidance"),
        (&z_image, vec!["--guidance-truncation", "2", "--guidance", "3"], "--guidance-truncation"),
        (&z_image, vec!["--seed", "-1"], "--seed"),
        (&z_image, vec!["--quantise", "3"], "--quantise"),
    ] {
        let made = ml(&arguments(model, &output, &more));
        let told = text(&made.stderr);
        assert_eq!(made.status.code(), Some(2), "{more:?}: {told}");
        assert!(told.contains(expected), "{more:?}: {told}");
        assert!(!bench.path("fox.png").exists(), "{more:?}");
    }
    for name in ["fox.jpg", "fox.WEBP", "fox.gif"] {
        let made = ml(&arguments(&z_image, &bench.name(name), &[]));
        let told = text(&made.stderr);
        assert!(!made.status.success() && told.contains("a PNG is written"), "{name}: {told}");
        assert!(told.contains("fox.png") && !bench.path(name).exists(), "{name}: {told}");
    }
}

#[test]
fn an_interruption_leaves_the_picture_of_before() {
    let bench = Bench::new();
    let model = model("z_image");
    let output = bench.name("fox.png");
    fs::write(bench.path("fox.png"), b"before").unwrap();
    let mut all = arguments(&model, &output, &["--seed", "1"]);
    let place = all.iter().position(|argument| *argument == "--steps").unwrap();
    all[place + 1] = "1000";
    let mut child = command(&all).spawn().unwrap();
    // Once steps are told, it is between two of them.
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("step ") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
        assert!(read > 0, "it ended before its first step");
    }
    interrupt(&child);
    assert_eq!(finish(child).0, Some(130));
    assert_eq!(fs::read(bench.path("fox.png")).unwrap(), b"before");
    assert_eq!(fs::read_dir(bench.0.path()).unwrap().count(), 1);
}
