//! Discovery: which folders count as models.

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{DiscoveredModel, Error, ModelKind, discover, model_kind};

/// A folder of the test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("discover-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Writes a file of `bytes` zeros.
    fn file(&self, path: &str, bytes: usize) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![0; bytes]).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(folder: &Folder) -> Vec<String> {
    let found = discover(&folder.0).unwrap();
    found.iter().map(|m| m.path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_model_has_a_config_and_at_least_one_safetensors_file() {
    let folder = Folder::new("needs");
    folder.file("both/config.json", 2);
    folder.file("both/model.safetensors", 10);
    folder.file("no-weights/config.json", 2);
    folder.file("no-weights/model.bin", 10);
    folder.file("no-config/model.safetensors", 10);
    folder.file("empty-name/config.json", 2);
    folder.file("empty-name/safetensors", 10);
    fs::create_dir_all(folder.0.join("folders/config.json")).unwrap();
    folder.file("folders/model.safetensors", 10);
    folder.file("loose.safetensors", 10);
    assert_eq!(names(&folder), ["both"]);
}

#[test]
fn pickled_weights_are_those_of_a_folder_without_safetensors() {
    let folder = Folder::new("pickled");
    folder.file("parts/config.json", 2);
    folder.file("parts/pytorch_model-00001-of-00002.bin", 10);
    folder.file("parts/pytorch_model-00002-of-00002.bin", 20);
    folder.file("parts/training_args.bin", 40);
    folder.file("twice/config.json", 2);
    folder.file("twice/pytorch_model.bin", 10);
    folder.file("twice/model.safetensors", 7);
    let found = discover(&folder.0).unwrap();
    let sizes: Vec<_> = found.iter().map(|m| (m.num_files, m.weight_bytes)).collect();
    assert_eq!(sizes, [(2, 30), (1, 7)]);
}

#[test]
fn a_file_of_gguf_is_a_model_by_itself_and_so_is_a_folder_with_one_or_each_of_several() {
    let folder = Folder::new("gguf");
    folder.file("loose.gguf", 5);
    folder.file("one/model.GGUF", 10);
    folder.file("two/a.gguf", 10);
    folder.file("two/b.gguf", 10);
    folder.file("both/config.json", 2);
    folder.file("both/model.gguf", 10);
    fs::create_dir_all(folder.0.join("folder.gguf")).unwrap();
    let found = discover(&folder.0).unwrap();
    let paths: Vec<_> = found.iter().map(|model| (model.path.clone(), model.num_files)).collect();
    let expected = ["loose.gguf", "one", "two/a.gguf", "two/b.gguf"];
    assert_eq!(paths, expected.map(|name| (folder.0.join(name), 1)));
    let one = discover(&folder.0.join("one")).unwrap();
    assert_eq!(one[0].path, folder.0.join("one/model.GGUF"));
    let two = discover(&folder.0.join("two")).unwrap();
    assert_eq!(two.iter().map(|model| model.weight_bytes).collect::<Vec<_>>(), [10, 10]);
    assert_eq!(model_kind(&folder.0.join("loose.gguf")), Some(ModelKind::Text));
    assert_eq!(model_kind(&folder.0.join("two")), None);
    assert_eq!(model_kind(&folder.0.join("folder.gguf")), None);
}

#[test]
fn models_are_sorted_with_their_files_counted_and_added_up() {
    let folder = Folder::new("sums");
    for model in ["b", "a"] {
        folder.file(&format!("{model}/config.json"), 2);
        folder.file(&format!("{model}/model-00001-of-00002.safetensors"), 10);
        folder.file(&format!("{model}/model-00002-of-00002.safetensors"), 7);
        folder.file(&format!("{model}/tokenizer.json"), 100);
    }
    let model = |name: &str| DiscoveredModel {
        path: folder.0.join(name),
        kind: ModelKind::Text,
        num_files: 2,
        weight_bytes: 17,
    };
    assert_eq!(discover(&folder.0), Ok(vec![model("a"), model("b")]));
}

#[test]
fn the_folder_itself_may_be_a_model() {
    let folder = Folder::new("itself");
    folder.file("config.json", 2);
    folder.file("model.safetensors", 10);
    let found = discover(&folder.0).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, folder.0);
}

#[test]
fn only_one_level_is_searched() {
    let folder = Folder::new("level");
    folder.file("deep/model/config.json", 2);
    folder.file("deep/model/model.safetensors", 10);
    assert_eq!(names(&folder), [""; 0]);
}

#[test]
fn an_empty_folder_has_no_models_and_a_missing_one_is_an_error_that_names_it() {
    let folder = Folder::new("empty");
    assert_eq!(discover(&folder.0), Ok(vec![]));
    let missing = folder.0.join("missing");
    match discover(&missing) {
        Err(Error::Load { path, .. }) => assert_eq!(Path::new(&path), missing),
        other => panic!("expected an error, found {other:?}"),
    }
}

#[test]
fn a_folder_of_components_is_an_image_model_with_the_weights_of_all() {
    let folder = Folder::new("components");
    folder.file("fox/model_index.json", 2);
    folder.file("fox/transformer/config.json", 2);
    folder.file("fox/transformer/diffusion_pytorch_model.safetensors", 30);
    folder.file("fox/vae/diffusion_pytorch_model.safetensors", 12);
    folder.file("empty/model_index.json", 2);
    // What mflux saves has no index.
    folder.file("hen/transformer/0.safetensors", 30);
    folder.file("hen/text_encoder/0.safetensors", 7);
    folder.file("hen/vae/0.safetensors", 5);
    folder.file("part/transformer/0.safetensors", 30);
    let found = discover(&folder.0).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[1].kind, found[1].num_files, found[1].weight_bytes),
        (ModelKind::Image, 3, 42)
    );
    assert_eq!(model_kind(&found[1].path), Some(ModelKind::Image));
    assert_eq!(model_kind(&folder.0.join("part")), None);
    assert_eq!(
        (found[0].kind, found[0].num_files, found[0].weight_bytes),
        (ModelKind::Image, 2, 42)
    );
}
