//! An embedding model as the contract sees it.

use std::path::Path;
use std::sync::mpsc;

use inference_core::{
    CancelToken, EmbedInput, EmbedOptions, EmbeddingLoadOptions, EmbeddingModel,
    EmbeddingModelInfo, Embeddings, EngineStatus, Error, PairScores, Pooling, Result, ScoreOptions,
    TextPair,
};
use inference_text::Tokenizer;
use mlx_ffi::Device;

use super::checkpoint::Opened;
use super::network::Network;
use super::recipe::Recipe;
use super::rows_job::{RowsJob, Work};
use super::tokens::{QWEN_INSTRUCTION, Row, Texts};
use crate::engine::{Turns, device};
use crate::error::load as load_error;
use crate::kernels::Kernels;
use crate::weights::Totals;

/// A model on its thread, with its tokenizer.
pub(crate) struct MlxEmbeddingModel {
    info: EmbeddingModelInfo,
    texts: Texts,
    turns: Turns<RowsJob>,
}

impl MlxEmbeddingModel {
    /// Loads the model in `path`.
    ///
    /// # Errors
    /// An option that is not honoured; what is wrong with the files.
    pub fn load(
        path: &Path,
        options: &EmbeddingLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<MlxEmbeddingModel> {
        let (opened, texts, info) = described(path, options, device, kernels)?;
        let (options, queue_limit) = (options.clone(), options.queue_limit);
        let build = move || {
            let limit = device::begin(device, options.threads, options.memory_limit)?;
            let needed = opened.build(true)?.1.bytes;
            let remedy = "take a smaller or a packed model, or allow more memory";
            device::check_weights(needed, limit, remedy)?;
            let network = opened.build(false)?.0;
            if network.encoder.kernels().is_on_cuda() {
                network.warm_up(limit)?;
            }
            Ok((network, limit))
        };
        let turns = Turns::start("ml-embeddings", device, queue_limit, build)?;
        Ok(MlxEmbeddingModel { info, texts, turns })
    }

    /// Describes the model in a folder without reading weights.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn describe(
        path: &Path,
        options: &EmbeddingLoadOptions,
        device: Device,
        kernels: Kernels,
    ) -> Result<EmbeddingModelInfo> {
        described(path, options, device, kernels).map(|(_, _, info)| info)
    }
}

/// The files of a model, its text side, and what it is.
fn described(
    path: &Path,
    options: &EmbeddingLoadOptions,
    device: Device,
    kernels: Kernels,
) -> Result<(Opened, Texts, EmbeddingModelInfo)> {
    let mut recipe = Recipe::read(path)?;
    // A folder that is missing is told as one, before any file of it.
    recipe.files.required_text("config.json")?;
    let tokenizer = Tokenizer::from_files(&recipe.files).map_err(Error::from)?;
    if !recipe.has_modules && recipe.score_ids.is_none() {
        // Where the model generates, it is asked, and says yes or no.
        let answers = ["yes", "no"].map(|answer| tokenizer.token_to_id(answer));
        recipe.score_ids = answers[0].zip(answers[1]).map(|(yes, no)| [yes, no]);
    }
    let opened = Opened::new(recipe, options, device, kernels)?;
    let (network, totals) = opened.build(true)?;
    opened.check(&network, options)?;
    let info = info(&opened, &network, &totals, options)?;
    let sizes = [info.max_tokens, info.vocab_size];
    let asks = network.score_ids.is_some();
    let mut texts = Texts::new(tokenizer, sizes, opened.recipe.lower_case, asks, options.threads)
        .map_err(Error::from)?;
    if !opened.recipe.tells_kinds {
        texts.frame.forget_kinds();
    }
    Ok((opened, texts, info))
}

/// The description of the model.
fn info(
    opened: &Opened,
    network: &Network,
    totals: &Totals,
    options: &EmbeddingLoadOptions,
) -> Result<EmbeddingModelInfo> {
    let Opened { recipe, config, device, .. } = opened;
    let encoder = &network.encoder;
    let [hidden_size, _] = encoder.widths();
    let pooling = options.pooling.or(recipe.pooling);
    let max_tokens = [recipe.max_tokens, encoder.max_positions().map(|most| most as usize)];
    let own = max_tokens.into_iter().flatten().min().unwrap_or(i32::MAX as usize);
    let max_tokens = match options.max_tokens {
        Some(wanted) if wanted > own => {
            let reason = format!("{wanted} exceeds the model's own {own} tokens");
            return Err(Error::InvalidOption { option: "max_tokens", reason });
        }
        wanted => wanted.unwrap_or(own),
    };
    // What is wrong with it is told where nothing is packed too.
    config.default_quantization().map_err(|error| load_error(&recipe.files.folder(), error))?;
    let dimensions = recipe.dimensions(hidden_size)? as usize;
    Ok(EmbeddingModelInfo {
        architecture: config.opt_text("model_type")?.unwrap_or_default().to_owned(),
        dimensions: pooling.is_some().then_some(dimensions),
        pooling,
        normalizes: recipe.normalizes || !recipe.has_modules,
        scores: network.scores(),
        instruction: network.score_ids.map(|_| QWEN_INSTRUCTION.to_owned()),
        max_tokens,
        prompts: recipe.prompts.clone(),
        default_prompt: recipe.default_prompt.clone(),
        similarity: recipe.similarity.clone(),
        vocab_size: encoder.vocab_size() as usize,
        num_layers: encoder.num_layers(),
        hidden_size: hidden_size as usize,
        num_parameters: totals.parameters,
        weight_bytes: totals.bytes,
        stored_as: recipe.files.stored_as(),
        quant_bits: totals.packings().first().map_or(0, |packing| packing.bits),
        dtype: format!("{:?}", encoder.dtype()).to_lowercase(),
        device: device.info().map_err(crate::error::Error::from)?.backend.to_owned(),
    })
}

impl MlxEmbeddingModel {
    /// Runs `work` on rows, and returns a result for each in their order.
    fn run(&self, rows: Vec<Row>, work: Work, cancel: &CancelToken) -> Result<Vec<Vec<f32>>> {
        let (reply, answer) = mpsc::channel();
        self.turns.submit(RowsJob { rows, work, cancel: cancel.clone(), reply })?;
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    /// How vectors are pooled.
    ///
    /// # Errors
    /// A model that makes none.
    fn pooling(&self) -> Result<Pooling> {
        self.info.pooling.ok_or_else(|| Error::Unsupported {
            what: "embeddings".into(),
            reason: "the model scores pairs, and its files name no pooling for vectors: take an embedding model, or name one (`--pooling`)".into(),
        })
    }
}

impl EmbeddingModel for MlxEmbeddingModel {
    fn info(&self) -> &EmbeddingModelInfo {
        &self.info
    }

    fn embed(&self, inputs: &[EmbedInput], options: &EmbedOptions) -> Result<Embeddings> {
        self.turns.check_open()?;
        options.validate()?;
        let pooling = self.pooling()?;
        let whole = self.info.dimensions.unwrap_or(0);
        if let Some(wanted) = options.dimensions.filter(|wanted| *wanted > whole) {
            let reason = format!("{wanted} exceeds the model's own {whole}");
            return Err(Error::InvalidOption { option: "dimensions", reason });
        }
        let prompt = self.info.prompt(options)?;
        let row = |texts: &Texts, input: &EmbedInput| texts.row(input, prompt, options);
        let rows = self.texts.rows(inputs, row)?;
        let tokens = rows.iter().map(|row| row.ids.len()).collect();
        let mut vectors = self.run(rows, Work::Vectors(pooling), &options.cancel)?;
        let normalizes = options.normalize.unwrap_or(self.info.normalizes);
        for vector in &mut vectors {
            vector.truncate(options.dimensions.unwrap_or(whole));
            if normalizes {
                normalize(vector);
            }
        }
        Ok(Embeddings { vectors, tokens })
    }

    fn score(&self, pairs: &[TextPair], options: &ScoreOptions) -> Result<PairScores> {
        self.turns.check_open()?;
        if !self.info.scores {
            return Err(Error::Unsupported {
                what: "scores".into(),
                reason: "the model embeds texts and scores no pairs: take a reranker".into(),
            });
        }
        let instruction = match (&options.instruction, &self.info.instruction) {
            (Some(_), None) => {
                return Err(Error::Unsupported {
                    what: "instruction".into(),
                    reason: "the model was trained without; leave it out".into(),
                });
            }
            (wanted, own) => wanted.as_deref().or(own.as_deref()).unwrap_or_default(),
        };
        let row = |texts: &Texts, pair: &TextPair| texts.pair(pair, instruction, options.truncate);
        let rows = self.texts.rows(pairs, row)?;
        let tokens = rows.iter().map(|row| row.ids.len()).collect();
        let scores = self.run(rows, Work::Logits, &options.cancel)?;
        Ok(PairScores { logits: scores.into_iter().flatten().collect(), tokens })
    }

    fn status(&self) -> EngineStatus {
        self.turns.status()
    }

    fn close(&self) {
        self.turns.close();
    }
}

impl Drop for MlxEmbeddingModel {
    fn drop(&mut self) {
        self.turns.close();
    }
}

/// Gives a vector the length 1.
fn normalize(vector: &mut [f32]) {
    // What torch divides by at least.
    const LEAST: f64 = 1e-12;
    let squares: f64 = vector.iter().map(|value| f64::from(*value).powi(2)).sum();
    let length = squares.sqrt().max(LEAST);
    vector.iter_mut().for_each(|value| *value = (f64::from(*value) / length) as f32);
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Texts of many lengths, so that some groups have padding.
    fn texts() -> Vec<EmbedInput> {
        let words = ["the", "fox", "runs", "through", "snow", "to", "sea"];
        let text = |count: usize| {
            let words: Vec<&str> = (0..count).map(|at| words[(3 * at + count) % 7]).collect();
            EmbedInput::Text(words.join(" "))
        };
        [1, 30, 2, 29, 3, 12, 28, 2, 11, 1, 25].into_iter().map(text).collect()
    }

    fn model(name: &str, pooling: Pooling) -> MlxEmbeddingModel {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let folder = root.join("tests/fixtures/embeddings/models").join(name);
        let options = EmbeddingLoadOptions {
            dtype: Some(inference_core::Dtype::F32),
            pooling: Some(pooling),
            ..EmbeddingLoadOptions::default()
        };
        MlxEmbeddingModel::load(&folder, &options, Device::Cpu, Kernels::Mlx).expect("it loads")
    }

    #[test]
    fn texts_that_are_padded_have_the_vectors_that_they_have_alone() {
        for name in ["bert", "xlm_roberta", "qwen3_embedding", "embedding_gemma", "modernbert"] {
            for pooling in [Pooling::Mean, Pooling::Max, Pooling::Last] {
                let model = model(name, pooling);
                let options = EmbedOptions { prompt: Some("a ".into()), ..EmbedOptions::default() };
                let together = model.embed(&texts(), &options).expect("the texts fit");
                for (text, vector) in texts().iter().zip(&together.vectors) {
                    let alone = model.embed(std::slice::from_ref(text), &options).expect("it fits");
                    let distances = alone.vectors[0].iter().zip(vector).map(|(a, b)| (a - b).abs());
                    let furthest = distances.fold(0.0, f32::max);
                    assert!(furthest < 1e-5, "{name}, {pooling:?}, {text:?}: {furthest}");
                }
            }
        }
    }
}
