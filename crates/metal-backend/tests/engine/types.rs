//! The type of a model whose tensors have several.

use inference_core::TextModel;
use safetensors::tensor::Dtype;

use crate::alike::{logprobs, prompt};
use crate::tiny::{Checkpoint, Tensor};

/// `tensor` in BF16, rounded towards zero.
fn halved(tensor: &Tensor) -> Tensor {
    let high = |value: &[u8; 4]| [value[2], value[3]];
    let data = tensor.data.as_chunks::<4>().0.iter().flat_map(high).collect();
    Tensor { dtype: Dtype::BF16, data, ..tensor.clone() }
}

/// `tensor` of BF16 in F32.
fn doubled(tensor: &Tensor) -> Tensor {
    let wide = |value: &[u8; 2]| [0, 0, value[0], value[1]];
    let data = tensor.data.as_chunks::<2>().0.iter().flat_map(wide).collect();
    Tensor { dtype: Dtype::F32, data, ..tensor.clone() }
}

fn told(model: &dyn TextModel) -> (String, u64) {
    (model.info().dtype.clone(), model.info().kv_bytes_per_token)
}

#[test]
fn a_few_tensors_of_another_type_have_the_type_of_the_others() {
    let mut plain = Checkpoint::hybrid(4);
    plain.tensors.values_mut().for_each(|tensor| *tensor = halved(tensor));
    let expected = plain.model();
    assert_eq!(expected.info().dtype, "bf16");
    for part in ["norm.weight", "self_attn.q_proj", "layers.0.linear_attn.norm", "conv1d"] {
        let mut mixed = plain.clone();
        let of_part = |(name, _): &(&String, &mut Tensor)| name.contains(part);
        let chosen: Vec<_> = mixed.tensors.iter_mut().filter(of_part).collect();
        assert!(!chosen.is_empty(), "{part}");
        chosen.into_iter().for_each(|(_, tensor)| *tensor = doubled(tensor));
        let found = mixed.model();
        assert_eq!(told(&*found), told(&*expected), "{part}");
        let asked = prompt(1, 20);
        assert_eq!(logprobs(&*found, &asked), logprobs(&*expected, &asked), "{part}");
    }
}
