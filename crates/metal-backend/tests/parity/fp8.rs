//! Weights of 8 bits with scales: what they compute is what numpy computes.

use inference_core::{Dtype, LoadOptions};

use crate::fixtures::{
    Checkpoint, distance, first_logits, greedy, ids, json, numbers, run, token_ids,
};

fn agrees_with_numpy(name: &str) {
    let golden = json(&format!("golden/{name}.json"));
    let checkpoint = Checkpoint::new(name);
    let (info, _) = checkpoint.describe(LoadOptions::default());
    let model = checkpoint.load(LoadOptions::default());
    let native = checkpoint.load_native(LoadOptions::default());
    assert_eq!((&*native.info().dtype, &*model.info().dtype), ("bf16", "f32"));
    assert_eq!(&info, native.info());
    // The weights are held as what they stand for.
    assert_eq!(native.info().weight_bytes, 2 * native.info().num_parameters);
    assert_eq!(model.info().weight_bytes, 4 * model.info().num_parameters);
    for prompt in golden["prompts"].as_array().unwrap() {
        let asked = ids(&prompt["ids"]);
        let expected = numbers(&prompt["logits"]);
        let far = distance(&first_logits(&*model, &asked), &expected);
        assert!(far < 1e-3, "{name}: {far:e}");
        let far = distance(&first_logits(&*native, &asked), &expected);
        assert!(far < 0.5, "{name} in bf16: {far:e}");
        let tokens = token_ids(&run(&*model, &asked, &greedy(24)));
        assert_eq!(tokens, ids(&prompt["tokens"]), "{name}");
    }
}

#[test]
fn scales_of_blocks_are_those_of_numpy() {
    agrees_with_numpy("qwen3-fp8");
}

#[test]
fn scales_of_whole_tensors_are_those_of_numpy() {
    agrees_with_numpy("qwen3-fp8-tensor");
}

#[test]
fn another_type_than_the_releases_is_computed_in() {
    let options = LoadOptions { dtype: Some(Dtype::F16), ..LoadOptions::default() };
    let model = Checkpoint::new("qwen3-fp8").load_native(options);
    assert_eq!(model.info().dtype, "f16");
}
