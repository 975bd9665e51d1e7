//! Towers, against transformers: see the `README.md` of `tests/fixtures/vision` and of `hearing`.

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{EncodedPicture, EncodedSound, LoadOptions};
use inference_text::Tokenizer;
use mlx_ffi::{Device, use_device};
use safetensors::SafeTensors;

use super::{EngineOptions, LoadedModel, config, load};
use crate::files::ModelFiles;
use crate::hearing::Hearing;
use crate::kernels::{Bf16, Kernels};
use crate::sight::{Input, Prepared, Sight};
use crate::weights::Checkpoint;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vision")
}

/// The checkpoint of `files` in float32.
fn loaded(files: &ModelFiles, kernels: Kernels) -> LoadedModel {
    use_device(Device::Cpu).expect("a CPU");
    let config = config(files).expect("a config");
    let dtype = Some(inference_core::Dtype::F32);
    let load_options = LoadOptions { dtype, ..LoadOptions::default() };
    let checkpoint = Checkpoint::open(files).expect("weights");
    let (files, device, bf16) = (files.clone(), Device::Cpu, Bf16::Itself);
    let options =
        EngineOptions { files, config, device, kernels, bf16, load: load_options, drafting: None };
    load(&options, &checkpoint, None).expect("it loads")
}

/// The distance of `found` from a tensor of `golden`.
fn away(found: &[f32], golden: &SafeTensors<'_>, name: &str) -> f32 {
    let expected = golden.tensor(name).expect("it has one");
    let expected = expected.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
    assert_eq!(found.len(), expected.len(), "{name}");
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// The distance of what the tower of `name` makes of each picture from what the reference makes of
/// it.
fn distances(name: &str, kernels: Kernels) -> Vec<(String, f32)> {
    let files = ModelFiles::Folder(root().join("models").join(name));
    let tokenizer = Tokenizer::from_files(&files).expect("a tokenizer");
    let config = config(&files).expect("a config");
    let sight = Sight::read(&config, &files, &tokenizer).expect("it sees");
    let loaded = loaded(&files, kernels);
    assert_eq!(loaded.description.info.unused_parts, Vec::<String>::new(), "{name}");
    let tower = loaded.model.tower.expect("a tower");
    let golden = fs::read(root().join(format!("golden/{name}.safetensors"))).expect("a golden");
    let golden = SafeTensors::deserialize(&golden).expect("tensors");
    let of_picture = |picture: &str| {
        let bytes = fs::read(root().join("pictures").join(picture)).expect("a picture");
        let prepared = sight.prepare(&EncodedPicture::new(bytes, picture)).expect("it is read");
        let Prepared { input: Input::Patches(patches), .. } = &*prepared else {
            panic!("a picture has patches");
        };
        let mut look = tower.begin(patches).expect("an entry");
        let features = loop {
            if let Some(features) = tower.advance(&mut look).expect("a block") {
                break features.to_vec_f32().expect("values");
            }
        };
        let golden_name = format!("{}.projected", picture.split('.').next().unwrap_or(picture));
        (format!("{name} {picture}"), away(&features, &golden, &golden_name))
    };
    ["rgb.png", "alpha.png", "turned.jpg", "grey_wide.png"].map(of_picture).into()
}

#[test]
fn pictures_have_the_vectors_of_the_reference() {
    let mut far = Vec::new();
    for name in [
        "gemma3",
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen3_5",
        "qwen3_vl",
        "qwen3_vl_moe",
        "gemma4_e",
        "gemma4_d",
        "mistral3",
    ] {
        for kernels in [Kernels::CPU, Kernels::Mlx] {
            for (picture, away) in distances(name, kernels) {
                println!("{picture}, {kernels:?}: {away:.1e}");
                far.extend((away >= 1e-3).then_some(picture));
            }
        }
    }
    assert_eq!(far, Vec::<String>::new());
}

#[test]
fn sounds_have_the_features_and_the_vectors_of_the_reference() {
    let root = root().with_file_name("hearing");
    for name in ["gemma4", "gemma3n"] {
        let files = ModelFiles::Folder(root.join("models").join(name));
        let tokenizer = Tokenizer::from_files(&files).expect("a tokenizer");
        let config = config(&files).expect("a config");
        let hearing = Hearing::read(&config, &files, &tokenizer).expect("it hears");
        let golden = fs::read(root.join(format!("golden/{name}.safetensors"))).expect("a golden");
        let golden = SafeTensors::deserialize(&golden).expect("tensors");
        for kernels in [Kernels::CPU, Kernels::Mlx] {
            let ears = loaded(&files, kernels).model.ears.expect("ears");
            for sound in ["talk", "word"] {
                let bytes = fs::read(root.join(format!("sounds/{sound}.wav"))).expect("a sound");
                let prepared = hearing.prepare(&EncodedSound::new(bytes, sound)).expect("is read");
                let Prepared { input: Input::Frames(frames), .. } = &*prepared else {
                    panic!("a sound has frames");
                };
                let of_frames = away(&frames.values, &golden, &format!("{sound}.features"));
                let mut listening = ears.begin(frames).expect("an entry");
                let vectors = loop {
                    if let Some(vectors) = ears.advance(&mut listening).expect("a block") {
                        break vectors.to_vec_f32().expect("values");
                    }
                };
                let of_vectors = away(&vectors, &golden, &format!("{sound}.projected"));
                println!("{name} {sound}, {kernels:?}: {of_frames:.1e}, {of_vectors:.1e}");
                // The reference transforms in f32, whose noise Gemma 3n hears in quiet bands.
                let most = if name == "gemma3n" { 3e-4 } else { 1e-4 };
                assert!(of_frames < most && of_vectors < 1e-3, "{name} {sound}");
            }
        }
    }
}
