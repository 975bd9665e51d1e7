//! Kokoro against the package `kokoro`: see `tests/fixtures/speech/make_kokoro.py`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{
    CancelToken, Error, Result, SpeakOptions, SpeechEvent, SpeechLoadOptions, SpeechModel,
    SpeechText, SpokenPiece,
};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::Value as Json;
use tempfile::TempDir;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/speech/kokoro")
}

fn load_from(folder: &Path) -> Result<Box<dyn SpeechModel>> {
    metal_backend::register().expect("the backends register");
    let options = SpeechLoadOptions { backend: Some("cpu".into()), ..SpeechLoadOptions::default() };
    inference_core::load_speech_model(folder, &options)
}

fn load() -> Box<dyn SpeechModel> {
    load_from(&fixture()).expect("the checkpoint loads")
}

fn phonemes(text: &str) -> SpeechText {
    SpeechText::Phonemes(text.into())
}

fn pieces(model: &dyn SpeechModel, text: &SpeechText, options: &SpeakOptions) -> Vec<SpokenPiece> {
    let mut pieces = Vec::new();
    for event in model.speak(text, options).expect("it is taken") {
        if let SpeechEvent::Piece(piece) = event.expect("it is said") {
            pieces.push(*piece);
        }
    }
    pieces
}

/// Compares what a model says with what the reference says.
fn compare(model: &dyn SpeechModel) {
    let text = fs::read_to_string(fixture().join("goldens.json")).expect("goldens");
    let goldens: Vec<Json> = serde_json::from_str(&text).expect("JSON");
    assert_eq!(goldens.len(), 3);
    for golden in goldens {
        let options = SpeakOptions {
            voice: golden["voice"].as_str().map(str::to_owned),
            speed: golden["speed"].as_f64().map(|speed| speed as f32),
            seed: golden["seed"].as_u64(),
            ..SpeakOptions::default()
        };
        let said = phonemes(golden["phonemes"].as_str().expect("a text"));
        let made = pieces(model, &said, &options);
        let [piece] = &made[..] else { panic!("{} pieces", made.len()) };
        // A frame of the tiny model has 60 samples.
        let frames: Vec<f64> = piece.seconds.iter().map(|time| (time * 400.0).round()).collect();
        let numbers = |key: &str| -> Vec<f64> {
            golden[key].as_array().expect("a list").iter().filter_map(Json::as_f64).collect()
        };
        assert_eq!(frames, numbers("frames"), "{said:?}");
        let expected = numbers("samples");
        assert_eq!(piece.sound.values.len(), expected.len(), "{said:?}");
        let pairs = piece.sound.values.iter().zip(&expected);
        let most = pairs.map(|(own, golden)| (f64::from(*own) - golden).abs()).fold(0.0, f64::max);
        assert!(most < 1e-3, "{said:?} differs by {most}");
    }
}

#[test]
fn lengths_and_samples_are_those_of_the_reference() {
    let model = load();
    let info = model.info();
    assert_eq!(info.voices, ["af_one", "bm_two"]);
    assert_eq!((info.sample_rate, info.max_phonemes), (24_000, 62));
    compare(model.as_ref());
}

/// The fixture with other names and other weights.
fn rewritten(change: impl Fn(&str, &TensorView<'_>) -> (String, Vec<usize>, Vec<u8>)) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = fs::read(fixture().join("model.safetensors")).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("they are whole");
    let changed: Vec<_> = tensors
        .tensors()
        .into_iter()
        .map(|(name, view)| (view.dtype(), change(&name, &view)))
        .collect();
    let views: HashMap<String, TensorView<'_>> = changed
        .iter()
        .map(|(dtype, (name, shape, data))| {
            (name.clone(), TensorView::new(*dtype, shape.clone(), data).expect("it fits"))
        })
        .collect();
    let file = folder.path().join("kokoro-v1_0.safetensors");
    safetensors::serialize_to_file(views, None, &file).expect("it is written");
    fs::copy(fixture().join("config.json"), folder.path().join("config.json")).expect("a config");
    fs::create_dir(folder.path().join("voices")).expect("a folder");
    for voice in ["af_one.safetensors", "bm_two.safetensors"] {
        let file = Path::new("voices").join(voice);
        fs::copy(fixture().join(&file), folder.path().join(&file)).expect("a voice");
    }
    folder
}

/// The last two of three dimensions exchanged.
fn turned(view: &TensorView<'_>) -> (Vec<usize>, Vec<u8>) {
    let [rows, columns, taps] = view.shape()[..] else { panic!("it is no kernel") };
    let size = view.data().len() / (rows * columns * taps);
    let mut data = Vec::with_capacity(view.data().len());
    for (row, tap) in (0..rows).flat_map(|row| (0..taps).map(move |tap| (row, tap))) {
        for column in 0..columns {
            let at = ((row * columns + column) * taps + tap) * size;
            data.extend_from_slice(&view.data()[at..at + size]);
        }
    }
    (vec![rows, taps, columns], data)
}

#[test]
fn names_and_layouts_of_other_programs_make_the_same_model() {
    let of_torch = rewritten(|name, view| {
        let (part, rest) = name.split_once('.').expect("a part");
        let rest = rest
            .replace("weight_g", "parametrizations.weight.original0")
            .replace("weight_v", "parametrizations.weight.original1");
        (format!("{part}.module.{rest}"), view.shape().to_vec(), view.data().to_vec())
    });
    compare(load_from(of_torch.path()).expect("it loads").as_ref());
    let of_mlx = rewritten(|name, view| {
        let (shape, data) = match name.ends_with("weight_v") || name.ends_with("_proj.weight") {
            true => turned(view),
            false => (view.shape().to_vec(), view.data().to_vec()),
        };
        let mut name = name.to_owned();
        for (torch, mlx) in [
            ("weight_ih_l0_reverse", "Wx_backward"),
            ("weight_hh_l0_reverse", "Wh_backward"),
            ("bias_ih_l0_reverse", "bias_ih_backward"),
            ("bias_hh_l0_reverse", "bias_hh_backward"),
            ("weight_ih_l0", "Wx_forward"),
            ("weight_hh_l0", "Wh_forward"),
            ("bias_ih_l0", "bias_ih_forward"),
            ("bias_hh_l0", "bias_hh_forward"),
            ("gamma", "weight"),
            ("beta", "bias"),
        ] {
            if name.ends_with(torch) {
                name = name.replace(torch, mlx);
            }
        }
        (name, shape, data)
    });
    compare(load_from(of_mlx.path()).expect("it loads").as_ref());
}

#[test]
fn long_phonemes_are_said_in_pieces_and_voices_are_mixed() {
    let model = load();
    let text = "həlˈO wˈɜɹld, ".repeat(12);
    let options = SpeakOptions { voice: Some("af_one,bm_two".into()), ..SpeakOptions::default() };
    let made = pieces(model.as_ref(), &phonemes(&text), &options);
    assert!(made.len() >= 3 && made.iter().all(|piece| piece.phonemes.chars().count() <= 62));
    let all: String = made.iter().map(|piece| piece.phonemes.clone() + " ").collect();
    assert_eq!(all.trim(), text.trim());
    let whole = model.speak(&phonemes(&text), &options).expect("it is taken");
    let (sound, metrics) = whole.finish().expect("it is said");
    let seconds = sound.values.len() as f64 / 24_000.0;
    assert!((metrics.seconds - seconds).abs() < 1e-9 && metrics.pieces == made.len());
    assert!(sound.values.iter().all(|value| value.is_finite()));
}

#[test]
fn what_cannot_be_said_is_refused_by_name() {
    let model = load();
    let voice = |voice: &str| SpeakOptions { voice: Some(voice.into()), ..SpeakOptions::default() };
    for (text, options, reason) in [
        (phonemes(" "), SpeakOptions::default(), "`text`"),
        (SpeechText::Plain("\u{7} … !".into()), SpeakOptions::default(), "`text`"),
        (phonemes("A"), voice("../af_one"), "af_one, bm_two"),
        (phonemes("A"), SpeakOptions { speed: Some(9.0), ..voice("af_one") }, "`speed`"),
    ] {
        let refused = model.speak(&text, &options).expect_err("it is refused").to_string();
        assert!(refused.contains(reason), "{refused}");
    }
    let unknown = model.speak(&phonemes("ΩΩ"), &voice("af_one")).expect("it is taken");
    assert!(matches!(unknown.finish(), Err(Error::InvalidOption { option: "text", .. })));
    let cancel = CancelToken::new();
    cancel.cancel();
    let options = SpeakOptions { cancel, ..SpeakOptions::default() };
    let cancelled = model.speak(&phonemes("A"), &options).expect("it is taken");
    assert_eq!(cancelled.finish(), Err(Error::Cancelled));
    model.close();
    assert_eq!(model.speak(&phonemes("A"), &voice("af_one")).map(drop), Err(Error::Closed));
}

#[test]
fn files_of_torch_are_refused_with_the_way_to_save_them_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(fixture().join("config.json"), folder.path().join("config.json")).expect("a config");
    fs::write(folder.path().join("kokoro-v1_0.pth"), b"PK").expect("a file");
    let error = load_from(folder.path()).map(drop).expect_err("no safetensors").to_string();
    assert!(error.contains("kokoro-v1_0.pth") && error.contains("save_file"), "{error}");
    let weights = fixture().join("model.safetensors");
    fs::copy(weights, folder.path().join("model.safetensors")).expect("weights");
    fs::create_dir(folder.path().join("voices")).expect("a folder");
    fs::write(folder.path().join("voices/af_heart.pt"), b"PK").expect("a file");
    let error = load_from(folder.path()).map(drop).expect_err("no voices").to_string();
    assert!(error.contains("af_heart.pt") && error.contains("save_file"), "{error}");
}
