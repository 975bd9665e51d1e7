//! Towers, against transformers: see `tests/fixtures/vision/README.md`.

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{EncodedPicture, LoadOptions};
use inference_text::Tokenizer;
use mlx_ffi::{Device, use_device};
use safetensors::SafeTensors;

use super::{EngineOptions, config, load};
use crate::files::ModelFiles;
use crate::kernels::Kernels;
use crate::sight::Sight;
use crate::weights::Checkpoint;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vision")
}

/// The distance of what the tower of `name` makes of each picture from what the reference makes of
/// it.
fn distances(name: &str, kernels: Kernels) -> Vec<(String, f32)> {
    use_device(Device::Cpu).expect("a CPU");
    let files = ModelFiles::Folder(root().join("models").join(name));
    let tokenizer = Tokenizer::from_files(&files).expect("a tokenizer");
    let config = config(&files).expect("a config");
    let dtype = Some(inference_core::Dtype::F32);
    let load_options = LoadOptions { dtype, ..LoadOptions::default() };
    let sight = Sight::read(&config, &files, &tokenizer).expect("it sees");
    let checkpoint = Checkpoint::open(&files).expect("weights");
    let device = Device::Cpu;
    let options =
        EngineOptions { files, config, device, kernels, load: load_options, drafting: None };
    let loaded = load(&options, &checkpoint, None).expect("it loads");
    assert_eq!(loaded.description.info.unused_parts, Vec::<String>::new(), "{name}");
    let tower = loaded.model.tower.expect("a tower");
    let golden = fs::read(root().join(format!("golden/{name}.safetensors"))).expect("a golden");
    let golden = SafeTensors::deserialize(&golden).expect("tensors");
    let of_picture = |picture: &str| {
        let bytes = fs::read(root().join("pictures").join(picture)).expect("a picture");
        let prepared = sight.prepare(&EncodedPicture::new(bytes, picture)).expect("it is read");
        let mut look = tower.begin(&prepared.patches).expect("an entry");
        let features = loop {
            if let Some(features) = tower.advance(&mut look).expect("a block") {
                break features.to_vec_f32().expect("values");
            }
        };
        let expected = golden
            .tensor(&format!("{}.projected", picture.split('.').next().unwrap_or(picture)))
            .expect("it has one");
        let expected = expected.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
        assert_eq!(features.len(), expected.len(), "{name} {picture}");
        let away = features.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        (format!("{name} {picture}"), away)
    };
    ["rgb.png", "alpha.png", "turned.jpg", "grey_wide.png"].map(of_picture).into()
}

#[test]
fn pictures_have_the_vectors_of_the_reference() {
    let mut far = Vec::new();
    for name in
        ["gemma3", "qwen3_5", "qwen3_vl", "qwen3_vl_moe", "gemma4_e", "gemma4_d", "mistral3"]
    {
        for kernels in [Kernels::CPU, Kernels::Mlx] {
            for (picture, away) in distances(name, kernels) {
                println!("{picture}, {kernels:?}: {away:.1e}");
                far.extend((away >= 1e-3).then_some(picture));
            }
        }
    }
    assert_eq!(far, Vec::<String>::new());
}
