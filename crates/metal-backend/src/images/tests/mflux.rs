//! Folders as mflux saves them make the pictures of diffusers' folders with the same weights.

use std::collections::BTreeMap;
use std::fs;

use mlx_ffi::{Dtype, QuantMode, Quantization, Quantized, dequantize, quantize};
use safetensors::serialize;
use safetensors::tensor::{Dtype as Stored, TensorView};
use tempfile::TempDir;

use super::golden::Golden;
use super::*;

const COMPONENTS: [&str; 3] = ["transformer", "text_encoder", "vae"];

type Tensors = BTreeMap<String, Array>;

/// The tensors of a component of a fixture.
fn tensors(name: &str, component: &str) -> Tensors {
    let files = ModelFiles::Folder(fixtures().join(name).join(component));
    let headers = files.headers().expect("weights");
    let read = |(name, header)| (name, files.read_tensor(&header).expect("a tensor"));
    headers.into_iter().map(read).collect()
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for file in fs::read_dir(from).expect("a folder").map(|file| file.expect("a file").path()) {
        let is_weight = file.extension().is_some_and(|end| end == "safetensors");
        if file.is_file() && !is_weight && !file.to_string_lossy().ends_with(".index.json") {
            fs::copy(&file, to.join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
}

fn written(tensors: &Tensors, path: &Path) {
    let parts: Vec<(&String, Stored, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, array)| {
            let dtype = match array.dtype() {
                Dtype::F32 => Stored::F32,
                Dtype::Bf16 => Stored::BF16,
                Dtype::U32 => Stored::U32,
                other => panic!("{name} is {other:?}"),
            };
            let shape = array.shape().iter().map(|&size| size as usize).collect();
            let array = ops::contiguous(array).expect("an array");
            array.eval().expect("values");
            (name, dtype, shape, array.read_bytes(<[u8]>::to_vec).expect("bytes"))
        })
        .collect();
    let views = parts.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("a tensor"))
    });
    fs::write(path, serialize(views, None).expect("a file")).expect("a file");
}

/// A copy of a fixture in diffusers' layout with other tensors.
fn diffusers(name: &str, of: impl Fn(&str) -> Tensors) -> TempDir {
    let copy = TempDir::new().expect("a folder");
    let source = fixtures().join(name);
    copied(&source, copy.path());
    let parts = ["scheduler", "tokenizer", "processor"];
    for part in parts.iter().chain(&COMPONENTS).filter(|part| source.join(part).is_dir()) {
        copied(&source.join(part), &copy.path().join(part));
    }
    for component in COMPONENTS {
        written(&of(component), &copy.path().join(component).join("model.safetensors"));
    }
    copy
}

/// A copy in a folder of mflux's, which says that it has 4 bits.
fn mflux(name: &str, of: impl Fn(&str) -> Tensors) -> TempDir {
    let copy = TempDir::new().expect("a folder");
    let source = fixtures().join(name);
    // The configs of the fixture are not those of the release.
    let parts = ["scheduler", "tokenizer", "processor"];
    for part in parts.iter().chain(&COMPONENTS).filter(|part| source.join(part).is_dir()) {
        copied(&source.join(part), &copy.path().join(part));
    }
    record(copy.path(), if name == "qwen_image_edit_plus" { "Qwen-Image-Edit-2509" } else { name });
    for component in COMPONENTS {
        let folder = copy.path().join(component);
        let mut own = Tensors::new();
        // mflux has no tower where nothing is edited.
        let is_left_out = |tensor: &str| name == "qwen_image" && tensor.starts_with("visual.");
        for (released, array) in of(component).into_iter().filter(|(name, _)| !is_left_out(name)) {
            let array = turned(&array, released.ends_with(".gamma"));
            own.insert(of_mflux(name, component, &released), array);
        }
        let twice: Vec<(String, Array)> = own
            .iter()
            .filter(|(name, _)| name.contains("visual.blocks."))
            .map(|(name, array)| (name.replace(".blocks.", ".blocks_"), array.share()))
            .map(|(name, array)| (name, array.expect("a share")))
            .collect();
        own.extend(twice);
        if component == "transformer" {
            let angles = Array::from_f32(&[0.5; 4], &[2, 2]).expect("values");
            own.insert("rope_embedder.freqs_cis.0".into(), angles);
        }
        written(&own, &folder.join("0.safetensors"));
        let map: BTreeMap<&String, &str> = own.keys().map(|name| (name, "0.safetensors")).collect();
        let metadata = serde_json::json!({"quantization_level": "4", "mflux_version": "0.24.0"});
        let index = serde_json::json!({"metadata": metadata, "weight_map": map});
        let path = folder.join("model.safetensors.index.json");
        fs::write(path, index.to_string()).expect("a file");
    }
    copy
}

/// Writes what mflux tells of a model that it saved.
fn record(folder: &Path, name: &str) {
    let text = serde_json::json!({"model_name": name, "base_model": null}).to_string();
    fs::write(folder.join("mflux_model.json"), text).expect("a file");
}

/// Kernels with the channels last, and the gammas of norms as lists.
fn turned(array: &Array, is_gamma: bool) -> Array {
    let shape = array.shape().to_vec();
    let turned = match shape.len() {
        _ if is_gamma => ops::reshape(array, &shape[..1]),
        4 => ops::transpose(array, &[0, 2, 3, 1]),
        5 => ops::transpose(array, &[0, 2, 3, 4, 1]),
        _ => array.share(),
    };
    ops::contiguous(&turned.expect("a view")).expect("an array")
}

/// mflux's name for a released tensor.
fn of_mflux(name: &str, component: &str, whole: &str) -> String {
    let pairs: &[(&str, &str)] = match (name, component) {
        ("z_image", "transformer") => &[
            ("t_embedder.mlp.0.", "t_embedder.linear1."),
            ("t_embedder.mlp.2.", "t_embedder.linear2."),
            (".2-1.adaLN_modulation.1.", ".2-1.adaLN_modulation.0."),
        ],
        ("z_image", "text_encoder") => &[("model.", "")],
        ("z_image", _) => &[
            (".conv_in.", ".conv_in.conv."),
            (".conv_out.", ".conv_out.conv."),
            (".conv_norm_out.", ".conv_norm_out.norm."),
        ],
        (_, "transformer") => &[
            (".attn.to_out.0.", ".attn.attn_to_out.0."),
            (".img_mod.1.", ".img_mod_linear."),
            (".txt_mod.1.", ".txt_mod_linear."),
            (".img_mlp.net.0.proj.", ".img_ff.mlp_in."),
            (".img_mlp.net.2.", ".img_ff.mlp_out."),
            (".txt_mlp.net.0.proj.", ".txt_ff.mlp_in."),
            (".txt_mlp.net.2.", ".txt_ff.mlp_out."),
        ],
        (_, "text_encoder") => &[
            ("model.", "encoder."),
            ("visual.", "encoder.visual."),
            (".merger.mlp.0.", ".merger.mlp_0."),
            (".merger.mlp.2.", ".merger.mlp_1."),
        ],
        _ => &[
            (".up_blocks.", ".up_block"),
            (".resample.1.", ".resample_conv."),
            (".conv_shortcut.", ".skip_conv.conv3d."),
            (".conv_in.", ".conv_in.conv3d."),
            (".conv_out.", ".conv_out.conv3d."),
            (".conv1.", ".conv1.conv3d."),
            (".conv2.", ".conv2.conv3d."),
            ("quant_conv.", "quant_conv.conv3d."),
            (".time_conv.", ".time_conv.conv3d."),
            (".gamma", ".weight"),
        ],
    };
    let by_level = whole.strip_prefix("encoder.down_blocks.").map(|rest| {
        // Of each level two resnets, then what halves it.
        let (index, rest) = rest.split_once('.').expect("a place in the list");
        let index: usize = index.parse().expect("a number");
        match (index / 3, index % 3) {
            (level, 2) => format!("encoder.down_blocks.{level}.downsamplers.0.{rest}"),
            (level, place) => format!("encoder.down_blocks.{level}.resnets.{place}.{rest}"),
        }
    });
    let released = by_level.filter(|_| component == "vae" && name != "z_image");
    let released = released.as_deref().unwrap_or(whole);
    // Each part stands in a name once at most.
    pairs.iter().fold(released.to_owned(), |name, (ours, theirs)| name.replacen(ours, theirs, 1))
}

/// The matrices of a component that groups of 32 fit into, packed; mflux gives the modulation of
/// pictures 8 bits.
fn packed(name: &str, component: &str) -> Tensors {
    let mut all = tensors(name, component);
    let names: Vec<String> = all.keys().cloned().collect();
    for name in names {
        let (Some(path), array) = (name.strip_suffix(".weight"), &all[&name]) else { continue };
        let shape = array.shape().to_vec();
        if component == "vae" || shape.len() != 2 || shape[1] % 32 != 0 {
            continue;
        }
        let bits = if path.contains("img_mod") { 8 } else { 4 };
        let quantization = Quantization { mode: QuantMode::Affine, bits, group_size: 32 };
        let Quantized { weight, scales, biases, .. } =
            quantize(array, quantization).expect("a packed matrix");
        all.insert(format!("{path}.scales"), scales);
        all.insert(format!("{path}.biases"), biases.expect("affine groups have some"));
        all.insert(name, weight);
    }
    all
}

/// The tensors of a component with the values of [`packed`], and nothing packed.
fn unpacked(name: &str, component: &str) -> Tensors {
    let mut all = packed(name, component);
    let paths: Vec<String> =
        all.keys().filter_map(|name| name.strip_suffix(".scales")).map(str::to_owned).collect();
    for path in paths {
        let mut part = |end: &str| all.remove(&format!("{path}.{end}")).expect("a part");
        let bits = if path.contains("img_mod") { 8 } else { 4 };
        let quantization = Quantization { mode: QuantMode::Affine, bits, group_size: 32 };
        let matrix = Quantized {
            weight: part("weight"),
            scales: part("scales"),
            biases: Some(part("biases")),
            quantization,
        };
        let plain = dequantize(&matrix, Dtype::F32).expect("a matrix");
        all.insert(format!("{path}.weight"), plain);
    }
    all
}

fn picture(folder: &Path, name: &'static str, options: &ImageLoadOptions) -> Vec<u8> {
    let mut studio = Studio::at(folder, name, options, Kernels::CPU);
    let golden = Golden::read(name);
    let case = golden.cases().into_iter().next().expect("a case");
    studio.paint(&case.request(), &mut Seen::default()).expect("a picture").picture.rgb
}

fn farthest(a: &[u8], b: &[u8]) -> u8 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().expect("pixels")
}

#[test]
fn a_folder_of_mflux_makes_the_pictures_of_diffusers() {
    for name in ["z_image", "qwen_image"] {
        use_device(Device::Cpu).expect("a CPU");
        let folder = mflux(name, |component| tensors(name, component));
        let mut studio =
            Studio::at(folder.path(), name, &ImageLoadOptions::default(), Kernels::CPU);
        let golden = Golden::read(name);
        studio.check(&golden.cases().into_iter().next().expect("a case"));
        let info = &studio.planner.info;
        assert_eq!(info.quant_bits, 4);
        assert!(info.pipeline.starts_with(if name == "z_image" { "ZImage" } else { "QwenImage" }));
        assert!(info.components.iter().all(|component| !component.class.is_empty()));
    }
}

#[test]
fn packed_weights_of_mflux_make_the_pictures_of_the_unpacked_ones() {
    for name in ["z_image", "qwen_image"] {
        use_device(Device::Cpu).expect("a CPU");
        let options = ImageLoadOptions::default();
        let small = mflux(name, |component| packed(name, component));
        let plain = diffusers(name, |component| unpacked(name, component));
        let (found, expected) =
            (picture(small.path(), name, &options), picture(plain.path(), name, &options));
        assert!(farthest(&found, &expected) <= 1, "{name}");
        // Fewer bits make another picture than all bits.
        let whole = picture(&fixtures().join(name), name, &options);
        assert_ne!(found, whole, "{name}");
    }
}

#[test]
fn what_mflux_does_not_tell_is_asked_for() {
    use_device(Device::Cpu).expect("a CPU");
    let folder = mflux("z_image", |component| tensors("z_image", component));
    fs::remove_dir_all(folder.path().join("scheduler")).expect("a folder");
    let open = || {
        let opened = PipelineFolder::open(folder.path());
        let opened = opened.and_then(|opened| opened.config("scheduler", "scheduler_config.json"));
        opened.map_err(|error| error.to_string())
    };
    let record = |name: &str| record(folder.path(), name);
    record("my-own");
    assert!(open().expect_err("no schedule").contains("scheduler/scheduler_config.json"));
    record("z-image-turbo");
    assert_eq!(open().expect("a schedule").opt_positive("shift").ok(), Some(Some(3.0)));
    record("z-image");
    assert_eq!(open().expect("a schedule").opt_positive("shift").ok(), Some(Some(6.0)));
}

#[test]
fn a_vae_computes_in_the_type_of_its_weights() {
    let name = "z_image";
    use_device(Device::Cpu).expect("a CPU");
    let half = diffusers(name, |component| {
        let mut all = tensors(name, component);
        if component == "vae" {
            let narrow = |array: &mut Array| {
                *array = ops::astype(array, Dtype::Bf16).expect("bf16");
            };
            all.values_mut().for_each(narrow);
        }
        all
    });
    let bytes = |folder: &Path| {
        let folder = PipelineFolder::open(folder).expect("a pipeline");
        let options = ImageLoadOptions::default();
        Pipeline::open(&folder, &options, Kernels::CPU).expect("sound files").sizes.vae
    };
    let whole = fixtures().join(name);
    // Norms are in F32 always.
    assert!(bytes(half.path()) * 10 < bytes(&whole) * 7);
    let options = ImageLoadOptions::default();
    let (found, expected) = (picture(half.path(), name, &options), picture(&whole, name, &options));
    assert_ne!(found, expected);
    assert!(farthest(&found, &expected) <= 24, "{}", farthest(&found, &expected));
}

#[test]
fn a_folder_of_mflux_edits_pictures_as_diffusers_does() {
    for (name, case) in [("qwen_image_edit", "tall"), ("qwen_image_edit_plus", "two")] {
        use_device(Device::Cpu).expect("a CPU");
        let folder = mflux(name, |component| tensors(name, component));
        let mut studio =
            Studio::at(folder.path(), name, &ImageLoadOptions::default(), Kernels::CPU);
        studio.check_steps(&Golden::read(name).case(case), 1);
        record(folder.path(), "my-own");
        let error = PipelineFolder::open(folder.path()).expect_err("no release").to_string();
        assert!(error.contains("mflux_model.json"), "{error}");
    }
}

#[test]
fn the_tower_sees_a_picture_of_mflux_as_large_as_the_release_says() {
    use_device(Device::Cpu).expect("a CPU");
    let folder = mflux("qwen_image_edit", |component| tensors("qwen_image_edit", component));
    let golden = Golden::read("qwen_image_edit");
    let request = golden.case("wide").request();
    let seen = |folder: &Path| {
        let studio = Studio::at(folder, "qwen_image_edit", &Default::default(), Kernels::CPU);
        studio.planner.plan(&request).expect("a plan").edited[0].cells
    };
    let few = seen(folder.path());
    fs::remove_dir_all(folder.path().join("processor")).expect("a folder");
    let many = seen(folder.path());
    // The fixture's own limit is 50 176 pixels; that of the release is beyond the 1 048 576 of a
    // picture.
    assert!(few[0] * few[1] * 784 <= 50_176);
    assert!(many[0] * many[1] * 784 > 1_003_520, "{many:?}");
}

#[test]
fn packed_weights_of_mflux_edit_pictures_as_the_unpacked_ones_do() {
    let name = "qwen_image_edit";
    use_device(Device::Cpu).expect("a CPU");
    let first_step = |folder: &Path| {
        let mut studio = Studio::at(folder, name, &ImageLoadOptions::default(), Kernels::CPU);
        let mut seen = Seen { last: Some(1), ..Seen::default() };
        let request = Golden::read(name).case("tall").request();
        let made = studio.paint(&request, &mut seen).map_err(Error::from);
        assert!(matches!(made, Err(Error::Cancelled)));
        seen.latents.remove(0)
    };
    let small = mflux(name, |component| packed(name, component));
    let plain = diffusers(name, |component| unpacked(name, component));
    let (found, expected) = (first_step(small.path()), first_step(plain.path()));
    let far = golden::farthest(&found, &expected);
    assert!(far < 2e-4, "{far}");
    let whole = first_step(&fixtures().join(name));
    assert!(golden::farthest(&found, &whole) > 1e-3);
}
