//! Checkpoints to quantise: what does not fit is told by name, and what is written loads.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use inference_core::{CancelToken, Error, LoadOptions};
use metal_backend::{QuantiseOptions, Quantised, packing, quantise};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::tiny;

/// Checkpoints with all forms that families are released in, below the folder of fixtures.
const MODELS: [&str; 35] = [
    "parity/models/cohere2",
    "parity/models/deepseek_v3",
    "parity/models/ernie4_5_moe",
    "parity/models/falcon_h1",
    "parity/models/gemma2",
    "parity/models/gemma3n",
    "parity/models/gemma4_e",
    "parity/models/gemma4_moe",
    "parity/models/glm4_moe",
    "parity/models/glm4_moe_lite",
    "parity/models/gpt_oss",
    "parity/models/granitemoehybrid",
    "parity/models/kimi_linear",
    "parity/models/laguna",
    "parity/models/lfm2",
    "parity/models/lfm2_moe",
    "parity/models/llama",
    "parity/models/minimax_m2",
    "parity/models/mixtral",
    "parity/models/muse_glimmer",
    "parity/models/nemotron_h",
    "parity/models/phi3",
    "parity/models/qwen2_moe",
    "parity/models/qwen3-4bit-g64",
    "parity/models/qwen3-fp8",
    "parity/models/qwen3_5",
    "parity/models/qwen3_5_moe",
    "parity/models/qwen3_moe",
    "parity/models/qwen3_next",
    "vision/models/gemma3",
    "vision/models/mistral3",
    "vision/models/qwen2_vl",
    "vision/models/qwen2_5_vl",
    "vision/models/qwen3_vl",
    "vision/models/qwen3_vl_moe",
];

/// The header of a tensor: its type as files spell it, and its shape.
type Form = (String, Vec<u64>);

/// A checkpoint whose weights are zeros, which take no room on a disk.
#[derive(Clone)]
struct Hollow {
    config: Value,
    tensors: BTreeMap<String, Form>,
    /// Its tower is kept.
    sees: bool,
}

impl Hollow {
    /// One of the forms of the fixture `name`.
    fn of(name: &str) -> Hollow {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        let config = fs::read_to_string(folder.join("config.json")).unwrap();
        let config = serde_json::from_str(&inference_text::json::standard_json(&config));
        let form = |(name, about): (String, Value)| {
            let shape = about["shape"].as_array()?.iter().filter_map(Value::as_u64).collect();
            Some((name, (about["dtype"].as_str()?.to_owned(), shape)))
        };
        let mut tensors = BTreeMap::new();
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for path in paths.filter(|path| path.extension().is_some_and(|end| end == "safetensors")) {
            let file = fs::read(path).unwrap();
            let end = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
            let header: Map<String, Value> = serde_json::from_slice(&file[8..end]).unwrap();
            tensors.extend(header.into_iter().filter_map(form));
        }
        Hollow { config: config.unwrap(), tensors, sees: name.starts_with("vision/") }
    }

    /// The tensor whose name ends so.
    fn tensor(&mut self, end: &str) -> &mut Form {
        self.tensors.iter_mut().find(|(name, _)| name.ends_with(end)).unwrap().1
    }

    fn write(&self, folder: &Path) {
        let (mut header, mut at) = (Map::new(), 0);
        for (name, (dtype, shape)) in &self.tensors {
            let bytes = shape.iter().product::<u64>() * size(dtype);
            let about = json!({"dtype": dtype, "shape": shape, "data_offsets": [at, at + bytes]});
            header.insert(name.clone(), about);
            at += bytes;
        }
        let header = serde_json::to_vec(&header).unwrap();
        let mut file = File::create(folder.join("model.safetensors")).unwrap();
        file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
        file.write_all(&header).unwrap();
        file.set_len(8 + header.len() as u64 + at).unwrap();
        fs::write(folder.join("config.json"), self.config.to_string()).unwrap();
        fs::write(folder.join("tokenizer.json"), tiny::tokenizer().to_string()).unwrap();
    }

    /// Quantises it: what is written loads, and a refusal names something and leaves nothing.
    fn quantised(&self) -> Result<Quantised, String> {
        let (source, home) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        self.write(source.path());
        let target = home.path().join("made");
        let run = || quantised_with(source.path(), &target, self.sees);
        match catch_unwind(AssertUnwindSafe(run)).expect("no panic") {
            Ok(made) => {
                let told = metal_backend::describe(&target, &on_cpu());
                told.unwrap_or_else(|error| panic!("it was written and does not load: {error}"));
                Ok(made)
            }
            Err(error) => {
                let left = fs::read_dir(home.path()).unwrap().count();
                let error = error.to_string();
                assert_eq!(left, 0, "{error}");
                let is_told = error.contains('`') || error.contains("nothing is left to quantise");
                assert!(is_told && !error.contains("unexpectedly"), "no name: {error}");
                Err(error)
            }
        }
    }

    /// Asserts that it is refused with a message that holds every one of `parts`.
    #[track_caller]
    fn refused(&self, parts: &[&str]) {
        let error = self.quantised().map(|_| ()).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "no `{part}` in: {error}");
        }
    }
}

/// Bytes of a value.
fn size(dtype: &str) -> u64 {
    match dtype {
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" => 1,
        "U16" | "I16" | "F16" | "BF16" => 2,
        "U32" | "I32" | "F32" => 4,
        _ => 8,
    }
}

fn on_cpu() -> LoadOptions {
    LoadOptions { backend: Some("cpu".into()), ..LoadOptions::default() }
}

fn quantised(source: &Path, target: &Path) -> Result<Quantised, Error> {
    quantised_with(source, target, false)
}

fn quantised_with(source: &Path, target: &Path, keep_vision: bool) -> Result<Quantised, Error> {
    metal_backend::register()?;
    let options = QuantiseOptions {
        default: packing("affine", Some(4), Some(32))?,
        recipe: None,
        rules: Vec::new(),
        keep_vision,
        dtype: None,
        backend: Some("cpu".into()),
    };
    quantise(source, target, &options, &CancelToken::new(), &mut |_, _| {})
}

#[test]
fn what_does_not_fit_its_family_is_told_with_the_tensors_name() {
    let changed = |model: &str, end: &str, change: fn(&mut Form)| {
        let mut hollow = Hollow::of(model);
        change(hollow.tensor(end));
        hollow
    };
    let both = "experts.gate_up_proj";
    let moe = "parity/models/qwen3_5_moe";
    changed(moe, both, |form| form.1 = vec![64]).refused(&[both, "[64]", "dimensions"]);
    changed(moe, both, |form| form.1[1] += 1).refused(&[both, "rows along axis 1"]);
    let turned = "vision/models/qwen3_vl_moe";
    changed(turned, both, |form| form.1 = vec![64, 32]).refused(&[both, "3 dimensions"]);
    let oss = "parity/models/gpt_oss";
    let blocks = "experts.gate_up_proj_blocks";
    for dtype in ["I64", "BOOL", "BF16", "F8_E4M3", "I8"] {
        let mut hollow = Hollow::of(oss);
        hollow.tensor(blocks).0 = dtype.into();
        hollow.refused(&[blocks]);
    }
    changed(oss, blocks, |form| form.1.push(1)).refused(&[blocks, "whole words"]);
    let norm = "q_norm.weight";
    changed("parity/models/qwen3_5", norm, |form| form.0 = "I32".into()).refused(&[norm]);
    let experts = "experts.0.up_proj.weight";
    changed("parity/models/qwen3_moe", experts, |form| form.1[0] += 1)
        .refused(&["switch_mlp.up_proj.weight", "experts have the shapes"]);
    changed("parity/models/llama", norm_of_layers(), |form| form.1 = vec![0])
        .refused(&[norm_of_layers(), "no values"]);
}

fn norm_of_layers() -> &'static str {
    "layers.0.input_layernorm.weight"
}

#[test]
fn numbers_of_a_config_that_no_model_has_are_refused() {
    let with = |model: &str, key: &str, value: Value| {
        let mut hollow = Hollow::of(model);
        hollow.config[key] = value;
        hollow
    };
    // 65,536 heads of 65,536 values are 0 rows in 32 bits.
    let mut wide = with("parity/models/deepseek_v3", "num_attention_heads", json!(65_536));
    wide.config["qk_nope_head_dim"] = json!(32_768);
    wide.config["v_head_dim"] = json!(32_768);
    wide.refused(&["kv_b_proj.weight", "expected 4294967296 rows"]);
    let mut many = with("parity/models/falcon_h1", "mamba_n_groups", json!(i32::MAX));
    many.config["mamba_d_state"] = json!(i32::MAX);
    many.refused(&["in_proj.weight", "rows"]);
    with("parity/models/falcon_h1", "mamba_d_ssm", json!(i32::MAX)).refused(&["in_proj.weight"]);
    with("parity/models/llama", "num_hidden_layers", json!(i32::MAX)).refused(&["layers"]);
    let mut lending = Hollow::of("parity/models/gemma4_e");
    lending.config["text_config"]["num_kv_shared_layers"] = json!(-1);
    lending.refused(&["`num_kv_shared_layers`"]);
}

#[test]
fn what_belongs_together_is_not_written_in_parts() {
    let without = |model: &str, part: &str| {
        let mut hollow = Hollow::of(model);
        let before = hollow.tensors.len();
        hollow.tensors.retain(|name, _| !name.contains(part));
        assert!(hollow.tensors.len() < before, "{part}");
        hollow
    };
    for (model, part, told) in [
        ("parity/models/llama", "layers.0.mlp.up_proj", "layers.0.mlp.up_proj.weight"),
        ("parity/models/qwen3_moe", "layers.1.mlp.experts.2.", "layers.1.mlp.switch_mlp"),
        ("parity/models/gpt_oss", "layers.0.mlp.experts.down_proj_blocks", "down_proj.weight"),
        ("parity/models/gpt_oss", "layers.0.mlp.experts.down_proj_scales", "down_proj"),
        ("parity/models/qwen3-fp8", "layers.0.mlp.up_proj.weight_scale_inv", "up_proj.weight"),
        ("vision/models/gemma3", "layers.0.self_attn.q_proj", "layers.0.self_attn.q_proj"),
    ] {
        without(model, part).refused(&[told]);
    }
}

/// Numbers of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound.max(1)
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Changes a tensor's form, its name, or whether it is there.
fn change_tensor(hollow: &mut Hollow, random: &mut Random) -> String {
    const TYPES: [&str; 12] = [
        "BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "U16", "F16", "BF16", "F32", "U32", "I64", "F64",
    ];
    let names: Vec<String> = hollow.tensors.keys().cloned().collect();
    let name = random.one_of(&names).clone();
    let (dtype, shape) = hollow.tensors.get_mut(&name).unwrap();
    let axis = random.below(shape.len());
    let what = random.below(13);
    match what {
        0 => drop(shape.pop()),
        1 => shape.push(1),
        2 => *shape = vec![shape.iter().product()],
        3 => shape.clear(),
        4 => shape.reverse(),
        5 => shape.insert(0, 1),
        6..=9 if shape.is_empty() => {}
        6 => shape[axis] = 0,
        7 => shape[axis] += 1,
        8 => shape[axis] /= 2,
        9 => shape[axis] = shape[axis].min(8) * 3,
        10 => *dtype = (*random.one_of(&TYPES)).to_owned(),
        11 => drop(hollow.tensors.remove(&name)),
        _ => {
            let form = hollow.tensors[&name].clone();
            let new = match random.below(4) {
                0 => name.replacen("layers.0.", "layers.00.", 1),
                1 => name.replacen("model.", "", 1),
                2 => name.replacen("experts.1.", "experts.01.", 1),
                _ => format!("{name}.scales"),
            };
            hollow.tensors.insert(new, form);
        }
    }
    format!("{name} {what}")
}

/// Changes a value of the config, or takes it away.
fn change_config(hollow: &mut Hollow, random: &mut Random) -> String {
    let inner = ["text_config", "vision_config", "rope_scaling", "quantization"];
    let inner =
        inner.into_iter().find(|key| random.below(3) == 0 && hollow.config[key].is_object());
    let fields = match inner {
        Some(key) => hollow.config[key].as_object_mut().unwrap(),
        None => hollow.config.as_object_mut().unwrap(),
    };
    // Ids of tokens are the tokenizer's, which is copied as it is.
    let keys = fields.keys().filter(|key| !key.ends_with("_token_id"));
    let keys: Vec<String> = keys.cloned().collect();
    let key = random.one_of(&keys).clone();
    let values = [
        json!(0),
        json!(1),
        json!(-1),
        json!(3),
        json!(65_536),
        json!(i32::MAX),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(0.5),
        json!(null),
        json!("x"),
        json!([]),
        json!({}),
        json!(true),
        json!(false),
    ];
    let value = random.one_of(&values).clone();
    let told = format!("{key} = {value}");
    match random.below(8) {
        0 => drop(fields.shift_remove(&key)),
        _ => drop(fields.insert(key, value)),
    }
    told
}

#[test]
fn a_thousand_changes_of_checkpoints_are_refused_by_name_or_load() {
    let mut random = Random(20_261_128);
    let (mut refused, mut loaded) = (0, 0);
    for model in MODELS {
        let sound = Hollow::of(model);
        let packed = sound.quantised();
        let is_packed_already = model.contains("-4bit");
        assert_eq!(packed.is_err(), is_packed_already, "{model}: {packed:?}");
        for _ in 0..32 {
            let mut hollow = sound.clone();
            let mut changes = Vec::new();
            for _ in 0..1 + random.below(2) {
                changes.push(match random.below(3) {
                    0 => change_config(&mut hollow, &mut random),
                    _ => change_tensor(&mut hollow, &mut random),
                });
            }
            let run = || hollow.quantised().is_ok();
            match catch_unwind(AssertUnwindSafe(run)) {
                Ok(true) => loaded += 1,
                Ok(false) => refused += 1,
                Err(_) => panic!("{model}: {changes:?}"),
            }
        }
    }
    assert!(refused > 500 && loaded > 100, "{refused} refused, {loaded} loaded");
}

#[test]
fn modules_whose_rows_are_no_whole_groups_stay_unpacked_and_are_told() {
    let home = TempDir::new().unwrap();
    let made = |hidden: usize, inner: usize, name: &str| {
        let source = tiny::Checkpoint::with_sizes(1, hidden, inner).write();
        let target = home.path().join(name);
        let made = quantised(source.path(), &target).unwrap();
        tiny::load(&target, &LoadOptions::default()).unwrap();
        let config = fs::read(target.join("config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        // No module has an entry, as mlx-lm writes it.
        assert_eq!(config["quantization"].as_object().unwrap().len(), 3, "{config}");
        made
    };
    let none = made(8, 16, "none");
    assert_eq!((none.packed, none.narrow.len()), (0, 8));
    let some = made(32, 40, "some");
    assert_eq!(some.narrow, ["model.layers.0.self_attn.o_proj", "model.layers.0.mlp.down_proj"]);
    assert!(some.packed > 0);
}

#[test]
fn numbers_of_the_config_keep_their_digits() {
    let text = r#"{"rope_theta": 1e6, "rms_norm_eps": 1e-05, "a": 0.30000000000000004,
        "b": 0.00026041666666666666, "c": 1000000000000000000000, "d": -Infinity, "e": 2.0}"#;
    let mut checkpoint = tiny::Checkpoint::with_sizes(1, 32, 64);
    let config = checkpoint.config.as_object_mut().unwrap();
    config.retain(|key, _| !["rope_theta", "rms_norm_eps"].contains(&key.as_str()));
    let own = checkpoint.config.to_string();
    let both = format!("{},{}", own.strip_suffix('}').unwrap(), text.strip_prefix('{').unwrap());
    let source = checkpoint.file("config.json", both).write();
    let home = TempDir::new().unwrap();
    let target = home.path().join("made");
    quantised(source.path(), &target).unwrap();
    let found = fs::read_to_string(target.join("config.json")).unwrap();
    for line in [
        r#""rope_theta": 1000000.0,"#,
        r#""rms_norm_eps": 1e-05,"#,
        r#""a": 0.30000000000000004,"#,
        r#""b": 0.00026041666666666666,"#,
        r#""c": 1000000000000000000000,"#,
        // As mlx-lm writes it.
        r#""__float__": "-Infinity""#,
        r#""e": 2.0,"#,
    ] {
        assert!(found.contains(line), "no {line} in {found}");
    }
}

#[test]
fn what_older_programs_save_beside_the_weights_is_no_part_of_the_result() {
    let scale = || tiny::Tensor::f32(&[0.5], &[1]);
    let ids = tiny::Tensor::zeros(safetensors::Dtype::I64, &[1, 16]);
    let source = tiny::Checkpoint::with_sizes(1, 32, 64)
        .tensor("model.layers.0.self_attn.rotary_emb.inv_freq", tiny::Tensor::noise("a", &[2]))
        .tensor("model.rotary_emb.inv_freq", tiny::Tensor::noise("a", &[2]))
        .tensor("model.position_ids", ids)
        .tensor("model.layers.0.self_attn.masked_bias", scale())
        .tensor("model.layers.0.self_attn.k_scale", scale())
        .tensor("model.layers.0.self_attn.v_scale", scale())
        .write();
    let home = TempDir::new().unwrap();
    let target = home.path().join("made");
    let made = quantised(source.path(), &target).unwrap();
    assert_eq!(made.left_out.len(), 6, "{:?}", made.left_out);
    tiny::load(&target, &LoadOptions::default()).unwrap();
}

#[test]
fn a_result_within_the_models_own_folder_is_refused() {
    let source = TempDir::new().unwrap();
    Hollow::of("parity/models/llama").write(source.path());
    let before = tiny::listing(source.path());
    let targets: [PathBuf; 2] = [source.path().join("made"), source.path().join("a/../made")];
    for target in targets {
        let error = quantised(source.path(), &target).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("name another place"), "{error}");
    }
    let names = |files: &[(String, u64, _)]| files.iter().map(|f| f.0.clone()).collect::<Vec<_>>();
    let after = tiny::listing(source.path());
    assert!(names(&after).iter().all(|name| name == "a" || names(&before).contains(name)));
}
