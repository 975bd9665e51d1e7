//! EmbeddingGemma as mlx-embeddings writes it: one file of weights, with the projections among
//! them.

use std::fs;
use std::path::Path;

use inference_core::{Dtype, EmbedOptions, EmbeddingLoadOptions};
use metal_backend::QuantiseOptions;
use safetensors::SafeTensors;
use tempfile::TempDir;

use crate::fixtures::{Fixture, distance, folder, load};
use crate::quantised::{ROUNDING, cosine, names, options, quantised, unpack};

const NAME: &str = "embedding_gemma";

/// Writes the fixture into `target` as that tool does: weights under its names, and the files of
/// the folder itself, without the folders of modules.
fn converted(target: &Path) {
    fs::create_dir(target).expect("a folder");
    let source = folder(NAME);
    for file in fs::read_dir(&source).expect("the fixture") {
        let file = file.expect("a file").path();
        if file.extension().is_some_and(|kind| kind == "json") {
            fs::copy(&file, target.join(file.file_name().expect("a name"))).expect("it is copied");
        }
    }
    let read = |path: &str| fs::read(source.join(path)).expect("weights");
    let [own, first, second] =
        ["", "2_Dense/", "3_Dense/"].map(|part| read(&format!("{part}model.safetensors")));
    let [own, first, second] = [&own, &first, &second]
        .map(|bytes| SafeTensors::deserialize(bytes).expect("they are whole"));
    let under = |prefix: &str, name: &str| match name.strip_prefix("linear.") {
        Some(part) => format!("{prefix}{part}"),
        None if name.starts_with("model.") => name.to_owned(),
        None => format!("model.{name}"),
    };
    let all = [("", &own), ("dense.0.", &first), ("dense.1.", &second)];
    let views = all.into_iter().flat_map(|(prefix, file)| {
        file.iter().map(move |(name, view)| (under(prefix, name), view))
    });
    safetensors::serialize_to_file(views, None, &target.join("model.safetensors"))
        .expect("it can be written");
}

fn vectors(folder: &Path) -> Vec<Vec<f32>> {
    let options = EmbeddingLoadOptions { dtype: Some(Dtype::F32), ..Default::default() };
    let model = load(folder, &options).expect("the conversion loads");
    let inputs = Fixture::new(NAME).inputs();
    model.embed(&inputs, &EmbedOptions::default()).expect("the texts fit").vectors
}

#[test]
fn a_conversion_has_the_vectors_of_its_source() {
    let home = TempDir::new().expect("a folder");
    let made = home.path().join("made");
    converted(&made);
    let expected = vectors(&folder(NAME)).concat();
    assert!(distance(&vectors(&made).concat(), &expected) < ROUNDING);
    // Older ones have no list of modules either.
    fs::remove_file(made.join("modules.json")).expect("a list");
    assert!(distance(&vectors(&made).concat(), &expected) < ROUNDING);
}

#[test]
fn a_packed_conversion_is_computed_with_as_what_it_stands_for() {
    let home = TempDir::new().expect("a folder");
    let [made, packed] = ["made", "packed"].map(|name| home.path().join(name));
    converted(&made);
    let options = QuantiseOptions { dtype: Some(Dtype::Bf16), ..options("affine", Some(8)) };
    quantised(&made, &packed, &options).expect("it is packed");
    for part in ["dense.0.scales", "dense.1.weight", "model.embed_tokens.scales"] {
        assert!(names(&packed).contains(&part.to_owned()), "{part}");
    }
    let of_packed = vectors(&packed);
    for (one, other) in of_packed.iter().zip(&vectors(&made)) {
        assert!(cosine(one, other) > 0.995);
    }
    unpack(&packed, 8);
    assert!(distance(&of_packed.concat(), &vectors(&packed).concat()) < ROUNDING);
}

#[test]
fn a_projection_of_another_size_is_named() {
    let home = TempDir::new().expect("a folder");
    let made = home.path().join("made");
    converted(&made);
    let path = made.join("model.safetensors");
    let bytes = fs::read(&path).expect("weights");
    let tensors = SafeTensors::deserialize(&bytes).expect("they are whole");
    let swapped = tensors.iter().map(|(name, view)| {
        let name = match name {
            "dense.0.weight" => "dense.1.weight",
            "dense.1.weight" => "dense.0.weight",
            name => name,
        };
        (name.to_owned(), view)
    });
    safetensors::serialize_to_file(swapped, None, &path).expect("it can be written");
    let error = load(&made, &EmbeddingLoadOptions::default()).err().expect("refused").to_string();
    assert!(error.contains("`dense.0.weight`"), "{error}");
}
