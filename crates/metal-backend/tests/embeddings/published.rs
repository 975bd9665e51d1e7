//! Files as their publishers have them: buffers that older programs save, and names of earlier
//! ones.

use std::fs;
use std::path::Path;

use inference_core::{Dtype, EmbedOptions, EmbeddingLoadOptions, Truncate};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as Stored, TensorView};

use crate::fixtures::{self, Fixture, distance, load};
use crate::refusals::copied;

/// A tensor that code counts: a name, whole numbers of 64 bits.
fn counted(name: &str, length: i64) -> (String, Stored, Vec<usize>, Vec<u8>) {
    let bytes = (0..length).flat_map(i64::to_le_bytes).collect();
    (name.to_owned(), Stored::I64, vec![1, length as usize], bytes)
}

/// A copy of a fixture with tensors that its code counts, under `prefix` and by themselves, and
/// norms of earlier names.
fn published(name: &str, prefix: &str) -> tempfile::TempDir {
    let copy = copied(name);
    let path = copy.path().join("model.safetensors");
    let file = fs::read(&path).expect("the weights are there");
    let tensors = SafeTensors::deserialize(&file).expect("weights");
    let renamed = |name: &str| match name.rsplit_once("LayerNorm.") {
        Some((before, "weight")) => format!("{before}LayerNorm.gamma"),
        Some((before, "bias")) => format!("{before}LayerNorm.beta"),
        _ => name.to_owned(),
    };
    let mut all: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| {
            (renamed(name), tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec())
        })
        .collect();
    all.push(counted(&format!("{prefix}embeddings.position_ids"), 512));
    all.push(counted(&format!("{prefix}embeddings.token_type_ids"), 512));
    let views = all.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).expect("values of the shape"))
    });
    fs::write(&path, safetensors::serialize(views, None).expect("weights")).expect("written");
    copy
}

#[test]
fn weights_that_torch_saved_make_the_vectors_of_those_in_safetensors() {
    let name = "qwen3_embedding";
    let options = EmbeddingLoadOptions { dtype: Some(Dtype::F32), ..Default::default() };
    let fixture = Fixture::new(name);
    let vectors = |folder: &Path| {
        let model = load(folder, &options).expect("the checkpoint loads");
        let truncate = EmbedOptions { truncate: Truncate::End, ..EmbedOptions::default() };
        model.embed(&fixture.inputs(), &truncate).expect("the texts fit").vectors
    };
    let expected = vectors(&fixtures::folder(name));
    for saved in ["whole", "shards", "views"] {
        let copy = copied(name);
        fs::remove_file(copy.path().join("model.safetensors")).expect("the weights are there");
        let pickled = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pickled");
        for file in fs::read_dir(pickled.join(saved)).expect("a fixture") {
            let file = file.expect("a file of it");
            fs::copy(file.path(), copy.path().join(file.file_name())).expect("copied");
        }
        assert_eq!(vectors(copy.path()), expected, "{saved}");
    }
}

#[test]
fn buffers_and_names_of_older_programs_change_no_vector_and_no_score() {
    let options = EmbeddingLoadOptions { dtype: Some(Dtype::F32), ..Default::default() };
    for (name, prefix) in
        [("bert", ""), ("bert", "bert."), ("xlm_roberta", ""), ("xlm_roberta", "roberta.")]
    {
        let fixture = Fixture::new(name);
        let model = load(published(name, prefix).path(), &options).expect(name);
        let truncate = EmbedOptions { truncate: Truncate::End, ..EmbedOptions::default() };
        let case = &fixture.cases()[0];
        let made = model.embed(&fixture.inputs(), &truncate).expect("the texts fit");
        for (found, expected) in made.vectors.iter().zip(fixtures::rows(&case["vectors"])) {
            let furthest = distance(found, &expected);
            assert!(furthest < 2e-5, "{name}, `{prefix}`: {furthest:e}");
        }
    }
    for (name, prefix) in [("bert_reranker", "bert."), ("xlm_roberta_reranker", "roberta.")] {
        let fixture = Fixture::new(name);
        let sound = fixture.load(EmbeddingLoadOptions::default());
        let model = load(published(name, prefix).path(), &options).expect(name);
        let of = |model: &dyn inference_core::EmbeddingModel| {
            model.score(&fixture.pairs(), &Default::default()).expect("the texts fit").logits
        };
        assert_eq!(of(&*model), of(&*sound), "{name}");
    }
}
