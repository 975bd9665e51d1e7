//! Embedding models: vectors of texts, and scores of pairs of texts. A model computes on a thread
//! of its own; what becomes of tokens' states is said by the model's own files.

mod batches;
mod checkpoint;
mod dense;
mod mlx_embeddings;
mod model;
mod network;
mod pooling;
mod recipe;
mod rows_job;
mod tokens;

pub(crate) use model::MlxEmbeddingModel;
