//! Checkpoints as programs convert them: names of transformers 5 and of mlx-vlm, packed towers, and
//! towers that `ml quantise` keeps.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use inference_core::{CancelToken, LoadOptions, Prompt, TextModel};
use metal_backend::{QuantiseOptions, packing, quantise};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::fixtures::{MODELS, Seeing, distance, greedy, ids};

/// Numbers that share a scale.
const GROUP: usize = 32;

/// A tensor of a file: its type, its shape and its bytes.
#[derive(Clone, Debug, PartialEq)]
struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

type Tensors = BTreeMap<String, Tensor>;

impl Tensor {
    fn of_f32(shape: Vec<usize>, values: &[f32]) -> Tensor {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { dtype: Dtype::F32, shape, bytes }
    }

    fn words(&self) -> Vec<u32> {
        let words = self.bytes.chunks_exact(4);
        words.map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// Its values; those of bf16 are the upper halves of f32.
    fn values(&self) -> Vec<f32> {
        match self.dtype {
            Dtype::BF16 => {
                let halves = self.bytes.chunks_exact(2);
                halves.map(|half| f32::from_le_bytes([0, 0, half[0], half[1]])).collect()
            }
            _ => self.words().into_iter().map(f32::from_bits).collect(),
        }
    }

    /// With the second axis last.
    fn channels_last(&self) -> Tensor {
        let (rows, channels) = (self.shape[0], self.shape[1]);
        let inside: usize = self.shape[2..].iter().product();
        let values = self.values();
        let mut turned = Vec::with_capacity(values.len());
        for row in values.chunks_exact(channels * inside).take(rows) {
            for place in 0..inside {
                turned.extend((0..channels).map(|channel| row[channel * inside + place]));
            }
        }
        let shape = [&self.shape[..1], &self.shape[2..], &[channels]].concat();
        Tensor::of_f32(shape, &turned)
    }
}

/// A copy of a checkpoint.
struct Copy(TempDir);

impl Copy {
    /// The files of `folder`, with other tensors and with `change` made to its config.
    fn of(folder: &Path, tensors: &Tensors, change: impl Fn(&mut Json)) -> Copy {
        let copy = tempfile::tempdir().unwrap();
        for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            let is_of_weights = [".safetensors", ".safetensors.index.json"]
                .iter()
                .any(|end| file.to_string_lossy().ends_with(end));
            if !is_of_weights {
                fs::copy(&file, copy.path().join(file.file_name().unwrap())).unwrap();
            }
        }
        let config = copy.path().join("config.json");
        let mut fields = serde_json::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
        change(&mut fields);
        fs::write(config, fields.to_string()).unwrap();
        let views = tensors.iter().map(|(name, tensor)| {
            let Tensor { dtype, shape, bytes } = tensor;
            (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        fs::write(copy.path().join("model.safetensors"), serialize(views, None).unwrap()).unwrap();
        Copy(copy)
    }

    fn load(&self, seeing: &Seeing) -> Box<dyn TextModel> {
        seeing.load_from(self.0.path(), LoadOptions::default())
    }
}

fn tensors(folder: &Path) -> Tensors {
    let bytes = fs::read(folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let own = |tensor: &TensorView<'_>| Tensor {
        dtype: tensor.dtype(),
        shape: tensor.shape().to_vec(),
        bytes: tensor.data().to_vec(),
    };
    file.iter().map(|(name, tensor)| (name.to_owned(), own(&tensor))).collect()
}

fn renamed(all: Tensors, name: impl Fn(&str) -> String) -> Tensors {
    all.into_iter().map(|(old, tensor)| (name(&old), tensor)).collect()
}

/// The name that mlx-vlm has for what is released as `name`.
fn of_mlx_vlm(model: &str, name: &str) -> String {
    let name = name.replacen("model.language_model.", "language_model.model.", 1);
    let name = name.replacen("model.visual.", "vision_tower.", 1);
    let name = match name.strip_prefix("visual.") {
        Some(own) => format!("vision_tower.{own}"),
        None if model.starts_with("qwen2") => name.replacen("model.", "language_model.model.", 1),
        None => name,
    };
    let name = match name.strip_prefix("model.") {
        Some(own) if model.starts_with("gemma4") => own.to_owned(),
        _ => name,
    };
    if name.starts_with("lm_head.") {
        return format!("language_model.{name}");
    }
    match model {
        "mistral3" => name.replacen("vision_tower.", "vision_tower.vision_model.", 1),
        _ => name,
    }
}

/// The name that transformers 5 has for what is released as `name`.
fn of_transformers_5(model: &str, name: &str) -> String {
    if model.starts_with("qwen2") {
        let name = name.replacen("model.", "model.language_model.", 1);
        return name.replacen("visual.", "model.visual.", 1);
    }
    for (released, newer) in [
        ("language_model.model.", "model.language_model."),
        ("language_model.lm_head.", "lm_head."),
        ("vision_tower.vision_model.", "model.vision_tower."),
        ("vision_tower.", "model.vision_tower."),
        ("multi_modal_projector.", "model.multi_modal_projector."),
    ] {
        if let Some(rest) = name.strip_prefix(released) {
            return format!("{newer}{rest}");
        }
    }
    name.to_owned()
}

/// Makes a config with all keys beside each other what transformers 5 saves of it.
fn nest(config: &mut Json) {
    let fields = config.as_object_mut().unwrap();
    let is_outer = |key: &str| {
        let ends = ["_token_id", "_config", "architectures", "model_type", "tie_word_embeddings"];
        !key.contains("os_") && ends.iter().any(|end| key.ends_with(end))
    };
    let mut text: serde_json::Map<String, Json> = fields.clone();
    text.retain(|key, _| !is_outer(key));
    fields.retain(|key, _| is_outer(key));
    let sections = text.remove("rope_scaling").unwrap()["mrope_section"].take();
    let theta = text.remove("rope_theta").unwrap();
    text.insert(
        "rope_parameters".into(),
        json!({"type": "mrope", "rope_type": "default", "mrope_section": sections, "rope_theta": theta}),
    );
    fields["vision_config"]["rope_parameters"] = json!({"rope_type": "axial", "rope_theta": 1e4});
    fields.insert("text_config".into(), Json::Object(text));
}

fn sees(name: &str) -> bool {
    ["vision", "visual", "multi_modal_projector"].iter().any(|part| name.contains(part))
}

/// Every matrix of towers and projectors that whole groups fit into, packed to 4 bits as affine
/// groups.
fn with_packed_towers(all: &Tensors) -> Tensors {
    let mut packed = Tensors::new();
    for (name, tensor) in all {
        let columns = tensor.shape.last().copied().unwrap_or(1);
        // Norms have one axis; kernels over patches and bare tables are no module that mlx packs.
        let Some(path) = name
            .strip_suffix(".weight")
            .filter(|_| sees(name) && tensor.shape.len() == 2 && columns % GROUP == 0)
        else {
            packed.insert(name.clone(), tensor.clone());
            continue;
        };
        let rows = tensor.shape[0];
        let (mut words, mut scales, mut biases) = (Vec::new(), Vec::new(), Vec::new());
        for group in tensor.values().chunks_exact(GROUP) {
            let least = group.iter().copied().fold(f32::MAX, f32::min);
            let most = group.iter().copied().fold(f32::MIN, f32::max);
            let scale = ((most - least) / 15.0).max(1e-7);
            let level = |value: &f32| ((value - least) / scale).round() as u32;
            let word = |eight: &[f32]| {
                let levels = eight.iter().map(level).enumerate();
                levels.fold(0_u32, |word, (at, level)| word | level << (4 * at))
            };
            words.extend(group.chunks_exact(8).map(word));
            scales.push(scale);
            biases.push(least);
        }
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let weight = Tensor { dtype: Dtype::U32, shape: vec![rows, columns / 8], bytes };
        packed.insert(name.clone(), weight);
        let shape = || vec![rows, columns / GROUP];
        packed.insert(format!("{path}.scales"), Tensor::of_f32(shape(), &scales));
        packed.insert(format!("{path}.biases"), Tensor::of_f32(shape(), &biases));
    }
    packed
}

/// All weights of a checkpoint, with nothing packed.
fn unpacked(all: &Tensors) -> Tensors {
    let mut plain = all.clone();
    let paths = all.keys().filter_map(|name| name.strip_suffix(".scales"));
    for path in paths {
        let part = |end| plain.get(&format!("{path}.{end}")).cloned();
        let [weight, scales, biases] = ["weight", "scales", "biases"].map(|end| part(end).unwrap());
        let levels =
            weight.words().into_iter().flat_map(|word| (0..8).map(move |at| word >> (4 * at) & 15));
        let (scales, biases) = (scales.values(), biases.values());
        let value =
            |(at, level): (usize, u32)| scales[at / GROUP] * level as f32 + biases[at / GROUP];
        let values: Vec<f32> = levels.enumerate().map(value).collect();
        let mut shape = weight.shape;
        *shape.last_mut().unwrap() *= 8;
        plain.insert(format!("{path}.weight"), Tensor::of_f32(shape, &values));
        plain.remove(&format!("{path}.scales"));
        plain.remove(&format!("{path}.biases"));
    }
    plain
}

fn is_packed(config: &mut Json) {
    config["quantization"] = json!({"group_size": GROUP, "bits": 4});
}

/// Holds the tokens and the logits behind each case's prompt to those of another model.
fn compare(seeing: &Seeing, model: &dyn TextModel, expected: &dyn TextModel, what: &str) {
    for (case, golden) in seeing.cases() {
        let said = |model: &dyn TextModel| {
            let prompt: Prompt = seeing.rendered(model, golden).prompt();
            greedy(model, &prompt)
        };
        let (found, wanted) = (said(model), said(expected));
        let logits = |tokens: &[inference_core::Token]| tokens[0].logits.clone().unwrap();
        let away = distance(&logits(&found), &logits(&wanted));
        // Packed weights are summed in another order than plain ones. The small models make much of
        // that: of Gemma 4, the portable kernels' logits are 4e-3 apart, those of AVX-512 7e-3.
        assert!(away < 4.0 * seeing.tolerance(), "{what}, {case}: {away:.1e}");
        let tokens = |said: Vec<inference_core::Token>| {
            said.iter().map(|token| token.id).collect::<Vec<u32>>()
        };
        assert_eq!(tokens(found), tokens(wanted), "{what}, {case}");
    }
}

#[test]
fn packed_towers_lead_to_the_tokens_of_the_unpacked_ones() {
    for name in MODELS {
        let seeing = Seeing::new(name);
        let released = renamed(tensors(&seeing.folder()), |tensor| of_mlx_vlm(name, tensor));
        let packed = with_packed_towers(&released);
        let count = packed.keys().filter(|tensor| tensor.ends_with(".scales")).count();
        assert!(count > 8, "{name}: {count}");
        let plain = unpacked(&packed);
        assert!(plain.keys().eq(released.keys()), "{name}");
        let packed = Copy::of(&seeing.folder(), &packed, is_packed).load(&seeing);
        let plain = Copy::of(&seeing.folder(), &plain, |_| {}).load(&seeing);
        compare(&seeing, packed.as_ref(), plain.as_ref(), name);
        // Four bits are not what was released.
        let (_, case) = seeing.cases().next().unwrap();
        let prompt = seeing.rendered(packed.as_ref(), case).prompt();
        let logits = greedy(packed.as_ref(), &prompt)[0].logits.clone().unwrap();
        let (case, _) = seeing.cases().next().unwrap();
        let away = distance(&logits, &seeing.last_logits(case));
        assert!(away > seeing.tolerance(), "{name}: {away:.1e}");
    }
}

#[test]
fn other_programs_names_mean_the_same() {
    type Rename = fn(&str, &str) -> String;
    let ways: [(&str, Rename); 2] =
        [("transformers 5", of_transformers_5), ("mlx-vlm", of_mlx_vlm)];
    for name in MODELS {
        let seeing = Seeing::new(name);
        for (program, rename) in ways {
            let mut all = renamed(tensors(&seeing.folder()), |tensor| rename(name, tensor));
            let kernel = |name: &str, tensor: &Tensor| sees(name) && tensor.shape.len() > 3;
            if program == "mlx-vlm" {
                for (name, tensor) in &mut all {
                    if kernel(name, tensor) {
                        *tensor = tensor.channels_last();
                    }
                }
            }
            // What programs of training save beside the weights.
            let tower = all.keys().find(|name| sees(name) && name.contains("tower"));
            let tower = tower.or_else(|| all.keys().find(|name| name.contains("visual"))).unwrap();
            let root = &tower[..tower
                .find("tower.")
                .map_or(tower.find("visual.").unwrap_or(0) + 7, |at| at + 6)];
            let inner = if tower.contains("vision_model.") { "vision_model." } else { "" };
            let buffer = format!("{root}{inner}rotary_pos_emb.inv_freq");
            all.insert(buffer, Tensor::of_f32(vec![8], &[0.5; 8]));
            let change = |config: &mut Json| {
                if program == "transformers 5" && name.starts_with("qwen2") {
                    nest(config);
                }
            };
            let model = Copy::of(&seeing.folder(), &all, change).load(&seeing);
            assert!(
                model.info().unused_parts.is_empty(),
                "{name}: {:?}",
                model.info().unused_parts
            );
            for (case, golden) in seeing.cases() {
                let prompt = seeing.rendered(model.as_ref(), golden).prompt();
                let said = greedy(model.as_ref(), &prompt);
                let away = distance(said[0].logits.as_ref().unwrap(), &seeing.last_logits(case));
                assert!(away < seeing.tolerance(), "{name} of {program}, {case}: {away:.1e}");
                let found: Vec<u32> = said.iter().map(|token| token.id).collect();
                assert!(ids(&golden["greedy"]).starts_with(&found), "{name} of {program}, {case}");
            }
        }
    }
}

fn quantised(source: &Path, target: &Path, keep_vision: bool) -> metal_backend::Quantised {
    let options = QuantiseOptions {
        default: packing("affine", Some(4), Some(GROUP as i32)).unwrap(),
        recipe: None,
        rules: Vec::new(),
        keep_vision,
        dtype: None,
        backend: Some("cpu".into()),
    };
    quantise(source, target, &options, &CancelToken::new(), &mut |_, _| {}).unwrap()
}

#[test]
fn a_tower_that_is_kept_sees_as_before() {
    let home = tempfile::tempdir().unwrap();
    for name in MODELS {
        let seeing = Seeing::new(name);
        let target = home.path().join(name);
        let made = quantised(&seeing.folder(), &target, true);
        assert!(made.left_out.iter().all(|name| !sees(name)), "{name}: {:?}", made.left_out);
        let found = tensors(&target);
        let released = tensors(&seeing.folder());
        let mut kept = 0;
        for (old, tensor) in released.iter().filter(|(old, _)| sees(old)) {
            let new = of_mlx_vlm(name, old);
            let is_kernel = tensor.shape.len() > 3;
            let expected = if is_kernel { tensor.channels_last() } else { tensor.clone() };
            let found = found.get(&new).unwrap_or_else(|| panic!("{name}: {new} is missing"));
            assert_eq!(found.shape, expected.shape, "{name}: {new}");
            assert_eq!(found.values(), expected.values(), "{name}: {new}");
            kept += 1;
        }
        assert!(kept > 20, "{name}: {kept}");
        let packed = seeing.load_from(&target, LoadOptions::default());
        let is_plain = |config: &mut Json| {
            config.as_object_mut().unwrap().retain(|key, _| !key.starts_with("quantization"));
        };
        let plain = Copy::of(&target, &unpacked(&found), is_plain).load(&seeing);
        compare(&seeing, packed.as_ref(), plain.as_ref(), name);
    }
}

#[test]
fn a_tower_is_left_out_where_nobody_keeps_it_and_a_model_without_one_has_none_to_keep() {
    let home = tempfile::tempdir().unwrap();
    let seeing = Seeing::new("gemma3");
    let made = quantised(&seeing.folder(), &home.path().join("reads"), false);
    assert!(made.left_out.iter().filter(|name| sees(name)).count() > 20);
    let reads = home.path().join("reads");
    let options = QuantiseOptions {
        default: packing("affine", Some(4), Some(GROUP as i32)).unwrap(),
        recipe: None,
        rules: Vec::new(),
        keep_vision: true,
        dtype: None,
        backend: Some("cpu".into()),
    };
    let target = home.path().join("none");
    let error = quantise(&reads, &target, &options, &CancelToken::new(), &mut |_, _| {});
    let error = error.unwrap_err().to_string();
    assert!(error.contains("`keep_vision`: the model has no vision tower"), "{error}");
    assert!(!target.exists());
}
