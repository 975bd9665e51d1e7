//! The range of f16: a model that leaves it is refused, or computed in its own type.

use inference_core::{
    ChatOptions, ClassifyOptions, Dtype, Error, Message, Prompt, Result, TextModel,
};

use super::MlxModel;
use crate::error::{RANGE_OF_F16, is_beyond_f16, is_not_numbers};
use crate::kernels::Bf16;
use crate::load::EngineOptions;

/// Read once as it is and once as a chat: the largest activations stand at special tokens and at a
/// prompt's beginning.
const TEXT: &str =
    "The quick brown fox jumps over the lazy dog.\n\n1 + 1 = 2; größer, 狐狸, \u{1f98a}";

impl MlxModel {
    /// Loads a model and starts its engine. One of bf16 that leaves the range of f16, where that
    /// stands for bf16, is loaded once more as it is, and users are told.
    ///
    /// # Errors
    /// An option that is not honoured; what is wrong with the files.
    pub fn load(options: EngineOptions) -> Result<MlxModel> {
        if options.bf16 == Bf16::Itself {
            return MlxModel::load_as_told(options);
        }
        let as_stored = EngineOptions { bf16: Bf16::Itself, ..options.clone() };
        match MlxModel::load_as_told(options) {
            Err(error) if is_beyond_f16(&error) => {
                let model = MlxModel::load_as_told(as_stored)?;
                let told = "the model is computed in bf16, for which this GPU has no units, since it leaves";
                model.engine.notice(format!("{told} {RANGE_OF_F16}: {error}"));
                Ok(model)
            }
            done => done,
        }
    }

    /// Refuses f16 for a model whose activations leave its range. Only short prompts are tried:
    /// longer ones that leave it are errors of their requests, which name bf16.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(super) fn check_range(&self, asked: Option<Dtype>) -> Result<()> {
        if asked != Some(Dtype::F16) && self.info.in_place_of.is_none() {
            return Ok(());
        }
        let chat = self.render_chat(&[Message::user(TEXT)], &ChatOptions::default());
        let prompts = [Some(TEXT.into()), chat.ok().map(|chat| chat.prompt())];
        let options = ClassifyOptions { labels: vec!["a".into()], ..ClassifyOptions::default() };
        for prompt in prompts.iter().flatten() {
            match self.classify(std::slice::from_ref::<Prompt>(prompt), &options) {
                Err(error) if is_not_numbers(&error) => {
                    return Err(Error::InvalidOption {
                        option: "dtype",
                        reason: format!(
                            "the model's activations leave {RANGE_OF_F16}, so that its logits are \
                             no numbers: take bf16 or f32"
                        ),
                    });
                }
                // A context that is too short for the text says nothing of the range.
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use inference_core::{GenerateOptions, LoadOptions};
    use mlx_ffi::Device;
    use safetensors::tensor::{Dtype as Stored, TensorView};

    use super::*;
    use crate::files::ModelFiles;
    use crate::kernels::Kernels;
    use crate::load;
    use crate::weights::Checkpoint;

    const CONFIG: &str = r#"{"model_type": "qwen3", "hidden_size": 8, "num_hidden_layers": 1,
        "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
        "vocab_size": 40, "rms_norm_eps": 1e-6, "max_position_embeddings": 4096,
        "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}"#;

    /// The id of which [`checkpoint`] may have a large value; no text has it.
    const LARGE: usize = 38;

    /// A checkpoint of bf16 whose last norm has `largest` as its weights.
    fn checkpoint(folder: &Path, largest: f32) {
        checkpoint_with(folder, largest, 0.5);
    }

    /// [`checkpoint`], of which the embedding of [`LARGE`] begins with `of_id`.
    fn checkpoint_with(folder: &Path, largest: f32, of_id: f32) {
        let random = ModelFiles::Random(CONFIG.into());
        for name in ["config.json", "tokenizer.json"] {
            let text = random.text(name).expect("it can be read").expect("it is there");
            fs::write(folder.join(name), text.as_bytes()).expect("the folder takes the file");
        }
        let layer = |part: &str| format!("model.layers.0.{part}.weight");
        let shapes = [
            ("model.embed_tokens.weight".to_owned(), vec![40, 8]),
            ("lm_head.weight".to_owned(), vec![40, 8]),
            ("model.norm.weight".to_owned(), vec![8]),
            (layer("input_layernorm"), vec![8]),
            (layer("post_attention_layernorm"), vec![8]),
            (layer("self_attn.q_proj"), vec![8, 8]),
            (layer("self_attn.k_proj"), vec![4, 8]),
            (layer("self_attn.v_proj"), vec![4, 8]),
            (layer("self_attn.o_proj"), vec![8, 8]),
            (layer("self_attn.q_norm"), vec![4]),
            (layer("self_attn.k_norm"), vec![4]),
            (layer("mlp.gate_proj"), vec![16, 8]),
            (layer("mlp.up_proj"), vec![16, 8]),
            (layer("mlp.down_proj"), vec![8, 16]),
        ];
        let bytes = |(name, shape): &(String, Vec<usize>)| {
            let value = match name.as_str() {
                "model.norm.weight" => largest,
                "lm_head.weight" => 1.0 / 512.0,
                _ => 0.5,
            };
            // The upper half of an f32.
            let bytes = |value: f32| [value.to_le_bytes()[2], value.to_le_bytes()[3]];
            let mut all = bytes(value).repeat(shape.iter().product());
            if name == "model.embed_tokens.weight" {
                all[LARGE * 8 * 2..][..2].copy_from_slice(&bytes(of_id));
            }
            all
        };
        let all: Vec<_> = shapes.iter().map(|of| (of.0.clone(), of.1.clone(), bytes(of))).collect();
        let views = all.iter().map(|(name, shape, bytes)| {
            let view = TensorView::new(Stored::BF16, shape.clone(), bytes);
            (name.clone(), view.expect("bytes of the shape"))
        });
        let file = safetensors::serialize(views, None).expect("weights");
        fs::write(folder.join("model.safetensors"), file).expect("the folder takes the file");
    }

    fn options(files: ModelFiles, bf16: Bf16, dtype: Option<Dtype>) -> EngineOptions {
        let config = load::config(&files).expect("a config");
        let load = LoadOptions { dtype, ..LoadOptions::default() };
        let (device, kernels) = (Device::Cpu, Kernels::Mlx);
        EngineOptions { files, config, device, kernels, bf16, load, drafting: None }
    }

    /// The types in which the checkpoint is computed and of which it is, and what users are told.
    fn loaded(folder: &Path, bf16: Bf16, dtype: Option<Dtype>) -> [String; 3] {
        let files = ModelFiles::Folder(folder.to_owned());
        let model = MlxModel::load(options(files, bf16, dtype)).expect("it loads");
        let generate = GenerateOptions { max_tokens: Some(2), ..GenerateOptions::default() };
        let answer = model.generate(&Prompt::Ids(vec![3, 5]), &generate).expect("it begins");
        assert_eq!(answer.filter(|token| token.is_ok()).count(), 2);
        let info = model.info().clone();
        let notices = model.notices();
        let told = notices.iter().find(|notice| notice.contains("bf16")).cloned();
        [info.dtype, info.in_place_of.unwrap_or_default(), told.unwrap_or_default()]
    }

    #[test]
    fn f16_stands_for_bf16_where_the_device_has_no_units_for_that() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        checkpoint(folder.path(), 2.0);
        let as_f16 = loaded(folder.path(), Bf16::AsF16, None);
        assert_eq!(as_f16, ["f16", "bf16", ""]);
        assert_eq!(loaded(folder.path(), Bf16::Itself, None), ["bf16", "", ""]);
        assert_eq!(loaded(folder.path(), Bf16::AsF16, Some(Dtype::F32)), ["f32", "", ""]);
        let files = ModelFiles::Folder(folder.path().to_owned());
        let described = MlxModel::describe(&options(files, Bf16::AsF16, None));
        let info = described.expect("it is described").0;
        assert_eq!((&*info.dtype, info.in_place_of.as_deref()), ("f16", Some("bf16")));
    }

    #[test]
    fn a_model_beyond_f16_stays_in_bf16_and_that_is_told() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        checkpoint(folder.path(), 131_072.0);
        let [dtype, in_place_of, told] = loaded(folder.path(), Bf16::AsF16, None);
        assert_eq!([dtype.as_str(), &in_place_of], ["bf16", ""]);
        assert!(told.contains("no units") && told.contains("`model.norm.weight`"), "{told}");
        // Where the user asks for f16, it is refused.
        let files = ModelFiles::Folder(folder.path().to_owned());
        let refused = MlxModel::load(options(files, Bf16::Itself, Some(Dtype::F16)));
        let Err(error) = refused else { panic!("a weight is beyond f16") };
        assert!(is_beyond_f16(&error), "{error}");
    }

    #[test]
    fn a_request_that_leaves_f16_names_the_type_that_does_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        checkpoint_with(folder.path(), 32_768.0, 4096.0);
        let files = ModelFiles::Folder(folder.path().to_owned());
        let model = MlxModel::load(options(files, Bf16::AsF16, None)).expect("it loads");
        assert_eq!(model.info().dtype, "f16", "{:?}", model.notices());
        let prompt = Prompt::Ids(vec![3, LARGE as u32]);
        let answer = model.generate(&prompt, &GenerateOptions::default()).expect("it begins");
        let failed = answer.filter_map(|token| token.err()).next().expect("an error").to_string();
        assert!(failed.contains("no numbers") && failed.contains("--dtype bfloat16"), "{failed}");
        let classify = ClassifyOptions { labels: vec!["a".into()], ..ClassifyOptions::default() };
        let failed = model.classify(&[prompt], &classify).expect_err("an error").to_string();
        assert!(failed.contains("--dtype bfloat16"), "{failed}");
    }

    /// A released checkpoint in the type that stands for bf16, with `changed` bytes of the first
    /// tensor of that name at its beginning: its type, and the one that was replaced.
    fn released(name: &str, changed: Option<(&str, &[u8])>) -> Result<[String; 2]> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parity/models");
        let folder = tempfile::tempdir().expect("a temporary folder");
        for file in ["config.json", "model.safetensors"] {
            let mut bytes = fs::read(root.join(name).join(file)).expect("the checkpoint has it");
            if let Some((tensor, new)) = changed.filter(|_| file == "model.safetensors") {
                let (length, header) =
                    safetensors::SafeTensors::read_metadata(&bytes).expect("a header");
                let info = header.info(tensor).expect("it has the tensor");
                let start = 8 + length + info.data_offsets.0;
                bytes[start..][..new.len()].copy_from_slice(new);
            }
            fs::write(folder.path().join(file), bytes).expect("the folder takes the file");
        }
        let options = options(ModelFiles::Folder(folder.path().to_owned()), Bf16::AsF16, None);
        let checkpoint = Checkpoint::open(&options.files).expect("weights");
        mlx_ffi::use_device(Device::Cpu).expect("a CPU");
        let info = load::load(&options, &checkpoint, None)?.description.info;
        Ok([info.dtype, info.in_place_of.unwrap_or_default()])
    }

    /// Why the checkpoint is beyond f16.
    fn refused(name: &str, tensor: &str, bytes: &[u8]) -> String {
        let error = released(name, Some((tensor, bytes))).expect_err("it is beyond f16");
        assert!(is_beyond_f16(&error), "{error}");
        error.to_string()
    }

    #[test]
    fn a_model_that_sees_stays_in_bf16() {
        assert_eq!(released("gemma3", None).expect("it loads"), ["bf16", ""]);
        assert_eq!(released("gemma3_text", None).expect("it loads"), ["f16", "bf16"]);
    }

    #[test]
    fn packed_weights_are_held_to_the_range_of_f16() {
        assert_eq!(released("qwen3-4bit-g64", None).expect("it loads"), ["f16", "bf16"]);
        let scales = "model.layers.0.self_attn.q_proj.scales";
        // The bits of 16384.
        let large = refused("qwen3-4bit-g64", scales, &[0x80, 0x46]);
        assert!(large.contains("q_proj` is packed with values"), "{large}");
    }

    #[test]
    fn weights_of_8_bits_are_held_to_the_range_of_f16() {
        assert_eq!(released("qwen3-fp8", None).expect("it loads"), ["f16", "bf16"]);
        let scales = "model.layers.0.self_attn.q_proj.weight_scale_inv";
        let large = refused("qwen3-fp8", scales, &1e6f32.to_le_bytes());
        assert!(large.contains("q_proj.weight` has values beyond"), "{large}");
    }
}
