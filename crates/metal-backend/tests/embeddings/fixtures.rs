//! The fixtures: checkpoints, and what sentence-transformers makes of texts with them.

use std::fs;
use std::path::{Path, PathBuf};

use inference_core::{Dtype, EmbedInput, EmbeddingLoadOptions, EmbeddingModel, TextPair};
use serde_json::Value as Json;

/// Models that embed texts.
pub const EMBEDDERS: [&str; 6] =
    ["bert", "bert_truncated", "xlm_roberta", "qwen3_embedding", "embedding_gemma", "modernbert"];

/// Models that score pairs.
pub const RERANKERS: [&str; 4] =
    ["bert_reranker", "xlm_roberta_reranker", "qwen3_reranker", "modernbert_reranker"];

/// One model and its golden.
pub struct Fixture {
    name: String,
    pub golden: Json,
}

/// The folder of a fixture's model.
pub fn folder(name: &str) -> PathBuf {
    root().join("models").join(name)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/embeddings")
}

impl Fixture {
    pub fn new(name: &str) -> Fixture {
        let path = root().join("golden").join(format!("{name}.json"));
        let text = fs::read_to_string(path).expect("the golden is there");
        Fixture { name: name.to_owned(), golden: serde_json::from_str(&text).expect("it is JSON") }
    }

    /// Loads it in float32.
    pub fn load(&self, options: EmbeddingLoadOptions) -> Box<dyn EmbeddingModel> {
        let options = EmbeddingLoadOptions { dtype: Some(Dtype::F32), ..options };
        load(&folder(&self.name), &options).expect("the checkpoint loads")
    }

    /// The golden's cases; one that has no list of them is one itself.
    pub fn cases(&self) -> Vec<Json> {
        match self.golden["cases"].as_array() {
            Some(cases) => cases.clone(),
            None => vec![self.golden.clone()],
        }
    }

    pub fn texts(&self) -> Vec<String> {
        let texts = self.golden["texts"].as_array().expect("texts");
        texts.iter().map(|text| text.as_str().expect("a text").to_owned()).collect()
    }

    pub fn inputs(&self) -> Vec<EmbedInput> {
        self.texts().into_iter().map(EmbedInput::Text).collect()
    }

    pub fn pairs(&self) -> Vec<TextPair> {
        let query = self.golden["query"].as_str().expect("a query");
        let pair = |document| TextPair { query: query.to_owned(), document };
        self.texts().into_iter().map(pair).collect()
    }
}

/// Loads a folder.
pub fn load(
    folder: &Path,
    options: &EmbeddingLoadOptions,
) -> inference_core::Result<Box<dyn EmbeddingModel>> {
    let _ = metal_backend::register();
    inference_core::load_embedding_model(folder, options)
}

/// The numbers of a list.
pub fn values(json: &Json) -> Vec<f32> {
    let values = json.as_array().expect("numbers");
    values.iter().map(|value| value.as_f64().expect("a number") as f32).collect()
}

/// The lists of a list.
pub fn rows(json: &Json) -> Vec<Vec<f32>> {
    json.as_array().expect("rows").iter().map(values).collect()
}

/// The largest distance.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}
