//! Our kernels for Metal, run on a processor, against plain arithmetic.

#[path = "../plain/recurrent.rs"]
mod plain;

use mlx_ffi::{Activation, Array, Device, Dtype, Result, metal, use_device};
use plain::Kernels;

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

const KERNELS: Kernels = Kernels {
    convolution: |x, state, filter, lengths| both(metal::convolution(x, state, filter, lengths)),
    delta: |rule| both(metal::delta(rule)),
    scan: |of| both(metal::scan(of)),
    norm_and_gate: |x, by| metal::norm_and_gate(x, by).map(|found| found.expect("a kernel")),
    gated: |activation, [gate, up], sizes| {
        let found = metal::gated(activation, gate, Some(up), sizes);
        found.map(|found| found.expect("a kernel"))
    },
};

fn both(found: Result<Option<[Array; 2]>>) -> Result<[Array; 2]> {
    found.map(|found| found.expect("a kernel"))
}

#[test]
fn convolutions_are_those_of_plain_arithmetic() {
    use_device(Device::Cpu).expect("a CPU");
    for dtype in DTYPES {
        for (b, l, lengths) in
            [(1, 1, &[][..]), (5, 1, &[]), (1, 30, &[]), (3, 9, &[]), (3, 9, &[9, 4, 0])]
        {
            for (taps, has_bias, is_silu) in [(4, false, true), (3, true, false)] {
                let kind = (has_bias, is_silu);
                let sizes = [b, l, if has_bias { 300 } else { 45 }, taps];
                plain::convolution(&KERNELS, sizes, kind, dtype, lengths).expect("a convolution");
            }
        }
    }
}

#[test]
fn the_delta_rule_is_that_of_plain_arithmetic() {
    use_device(Device::Cpu).expect("a CPU");
    for dtype in DTYPES {
        let heads = [[2, 4, 128, 128], [3, 3, 50, 21], [1, 1, 256, 40]];
        for &heads in if dtype == Dtype::F32 { &heads[..] } else { &heads[..1] } {
            let cases: [(i32, i32, &[i32]); 5] =
                [(1, 1, &[]), (2, 5, &[3, 5]), (1, 37, &[]), (3, 9, &[9, 4, 0]), (2, 16, &[])];
            for (b, l, lengths) in cases {
                // One decay for a head, or one for each column of its state.
                for decays in [1, heads[2]] {
                    plain::delta(&KERNELS, [b, l], heads, decays, dtype, lengths).expect("a rule");
                }
            }
        }
    }
}

#[test]
fn the_selective_scan_is_that_of_plain_arithmetic() {
    use_device(Device::Cpu).expect("a CPU");
    for dtype in DTYPES {
        let sizes = [[4, 2, 64, 128], [3, 1, 13, 16], [2, 2, 8, 200]];
        for &sizes in if dtype == Dtype::F32 { &sizes[..] } else { &sizes[..1] } {
            let cases: [(i32, i32, &[i32]); 4] =
                [(1, 1, &[]), (4, 1, &[]), (1, 50, &[]), (3, 9, &[9, 4, 0])];
            for (b, l, lengths) in cases {
                plain::scan(&KERNELS, [b, l], sizes, dtype, lengths).expect("a scan");
            }
        }
    }
}

#[test]
fn norms_beside_gates_are_those_of_plain_arithmetic() {
    use_device(Device::Cpu).expect("a CPU");
    for dtype in DTYPES {
        for (b, l, groups, size) in [(1, 1, 4, 128), (3, 2, 3, 41), (2, 2, 2, 1536)] {
            for (of_groups, gate_is_first) in [(false, false), (true, true), (true, false)] {
                let activation = if gate_is_first { Activation::Silu } else { Activation::Sigmoid };
                let (sizes, kind) = ([b, l, groups, size], (of_groups, gate_is_first, activation));
                plain::norm_and_gate(&KERNELS, sizes, kind, dtype).expect("a norm");
            }
        }
    }
}

#[test]
fn a_value_of_a_gate_is_for_as_many_columns_as_it_says() {
    use_device(Device::Cpu).expect("a CPU");
    let gates = [Activation::Silu, Activation::Sigmoid, Activation::Softplus, Activation::Identity];
    for dtype in DTYPES {
        for each in [1, 4, 32] {
            for activation in gates {
                plain::gated(&KERNELS, activation, dtype, each).expect("a gate");
            }
        }
    }
}

#[test]
fn operands_that_no_kernel_knows_are_left_to_others() {
    use_device(Device::Cpu).expect("a CPU");
    let x = Array::from_f32(&[0.0; 12], &[1, 2, 6]).expect("values");
    let heads = |at| mlx_ffi::step::Heads { array: &x, at };
    let found = metal::gated(Activation::Gelu, heads(0), Some(heads(3)), [3, 1]);
    assert!(found.expect("an answer").is_none(), "Metal has no error function");
    let found = metal::gated(Activation::Silu, heads(0), Some(heads(4)), [3, 1]);
    assert!(found.expect("an answer").is_none(), "columns behind the last one");
    let whole = mlx_ffi::ops::astype(&x, Dtype::I32).expect("whole numbers");
    let of = mlx_ffi::step::Heads { array: &whole, at: 0 };
    let found = metal::gated(Activation::Silu, of, None, [3, 1]);
    assert!(found.expect("an answer").is_none(), "whole numbers");
}
