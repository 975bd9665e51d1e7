//! Queries, keys and attention weights are those of transformers.

use inference_core::{
    AttentionSnapshot, CancelToken, Error, Feature, InspectOptions, LayerAttention, LoadOptions,
    Prompt, TextModel,
};

use crate::fixtures::{Checkpoint, Golden, distance, greedy, ids, run};

/// The largest distance of a weight, of an entropy, and of a query's or key's value.
const TOLERANCE: f32 = 1e-4;

fn weights_of(layers: &[usize]) -> InspectOptions {
    InspectOptions { layers: Some(layers.to_vec()), weights: true, ..InspectOptions::default() }
}

fn inspect(model: &dyn TextModel, ids: &[u32], options: &InspectOptions) -> AttentionSnapshot {
    let inspector = model.attention_inspector().expect("it can be looked at");
    inspector.inspect_attention(&Prompt::Ids(ids.to_vec()), options).expect("it runs")
}

fn prompt(name: &str, prompt: &str) -> Vec<u32> {
    ids(&Golden::new(name).json["prompts"][prompt]["ids"])
}

fn agrees_with_transformers(name: &str, options: LoadOptions) {
    let golden = Golden::new("attention");
    let layers = golden.json["models"][name].as_array().expect("layers");
    let layers: Vec<usize> = layers.iter().map(|l| l.as_u64().expect("a layer") as usize).collect();
    let ids = prompt(name, golden.json["prompt"].as_str().expect("a prompt"));
    let model = Checkpoint::new(name).load(options);
    let snapshot = inspect(model.as_ref(), &ids, &weights_of(&layers));
    let told: Vec<usize> = snapshot.layers.iter().map(|told| told.layer).collect();
    assert_eq!((told, snapshot.seq_len), (layers, ids.len()));
    for told in &snapshot.layers {
        let LayerAttention { layer, keys, queries, positions, .. } = told;
        assert_eq!(*positions, (0..ids.len()).collect::<Vec<_>>());
        let weights = told.weights.as_ref().expect("they were asked for");
        let parts = [
            ("queries", queries),
            ("keys", keys),
            ("weights", &weights.values),
            ("entropy", &weights.entropy),
        ];
        for (part, values) in parts {
            let expected = golden.logits(&format!("{name}.layers.{layer}.{part}"));
            let far = distance(values, &expected.expect("it is there"));
            eprintln!("{name} layer {layer}: {part} within {far:.1e} of transformers'");
            assert!(far <= TOLERANCE, "{name} layer {layer}: {part} {far:e}");
        }
    }
}

#[test]
fn attention_of_each_kind_is_that_of_transformers() {
    for name in ["qwen3", "gemma3_text", "gemma2", "gpt_oss"] {
        agrees_with_transformers(name, LoadOptions::default());
    }
}

#[test]
fn attention_in_small_chunks_is_that_of_transformers() {
    for name in ["qwen3", "gemma3_text", "gpt_oss"] {
        let options = LoadOptions { prefill_chunk: Some(7), ..LoadOptions::default() };
        agrees_with_transformers(name, options);
    }
}

#[test]
fn a_window_hides_what_lies_before_it() {
    let model = Checkpoint::new("gemma3_text").load(LoadOptions::default());
    let ids = prompt("gemma3_text", "long");
    let all = inspect(model.as_ref(), &ids, &InspectOptions::default());
    assert_eq!(all.layers.len(), model.info().num_layers);
    assert!(all.layers.iter().all(|layer| layer.weights.is_none()));
    let snapshot = inspect(model.as_ref(), &ids, &weights_of(&[5, 0]));
    let n = ids.len();
    for (told, window) in snapshot.layers.iter().zip([n, 16]) {
        assert_eq!(told.queries, all.layers[told.layer].queries);
        for head in 0..told.n_heads {
            let weights = told.head_weights(head).expect("its weights");
            for (query, row) in weights.chunks_exact(n).enumerate() {
                let seen = (query + 1).saturating_sub(window)..=query;
                let inside: f32 = row[seen.clone()].iter().sum();
                assert!((inside - 1.0).abs() < 1e-5, "layer {} query {query}", told.layer);
                let hidden = row.iter().enumerate().filter(|(key, _)| !seen.contains(key));
                assert!(hidden.into_iter().all(|(_, weight)| *weight == 0.0));
            }
        }
    }
}

#[test]
fn one_who_looks_changes_no_generation() {
    assert!(model_supports_it());
    let model = Checkpoint::new("llama").load(LoadOptions::default());
    let ids = prompt("llama", "code");
    let alone = run(model.as_ref(), &ids, &greedy(24));
    let generation = model.generate(&Prompt::Ids(ids.clone()), &greedy(24)).expect("it starts");
    let first = inspect(model.as_ref(), &ids, &weights_of(&[1]));
    let beside: Vec<_> = generation.collect::<Result<_, _>>().expect("it ends well");
    assert_eq!(alone, beside);
    assert_eq!(first, inspect(model.as_ref(), &ids, &weights_of(&[1])));
    let metrics = model.metrics().expect("of the inspection");
    assert_eq!((metrics.prompt_tokens, metrics.generated_tokens), (ids.len(), 0));
    assert!(metrics.peak_memory_bytes > 0);
}

fn model_supports_it() -> bool {
    let model = Checkpoint::new("llama").load(LoadOptions::default());
    model.capabilities().require(Feature::InspectAttention).is_ok()
}

#[test]
fn what_cannot_be_shown_is_refused_by_name() {
    let model = Checkpoint::new("llama").load(LoadOptions::default());
    let inspector = model.attention_inspector().expect("it can be looked at");
    let refused = |ids: Vec<u32>, options: &InspectOptions| {
        inspector.inspect_attention(&Prompt::Ids(ids), options).expect_err("it is refused")
    };
    let layers = |layers: &[usize]| refused(vec![1], &weights_of(layers)).to_string();
    assert!(layers(&[0, 99]).contains("no layer 99"), "{}", layers(&[0, 99]));
    assert!(layers(&[1, 1]).contains("layer 1 twice"));
    assert_eq!(refused(Vec::new(), &InspectOptions::default()), Error::EmptyPrompt);
    let cancel = CancelToken::new();
    cancel.cancel();
    let cancelled = InspectOptions { cancel, ..InspectOptions::default() };
    assert_eq!(refused(vec![1; 50], &cancelled), Error::Cancelled);
    model.close();
    assert_eq!(refused(vec![1], &InspectOptions::default()), Error::Closed);
}
