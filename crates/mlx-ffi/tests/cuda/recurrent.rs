//! Our kernels for layers with a recurrent state on CUDA against plain arithmetic.

use mlx_ffi::{Activation, Dtype, cuda};

use super::on_cuda::use_cuda;
use super::plain::{self, Kernels};

const KERNELS: Kernels = Kernels {
    convolution: |x, state, filter, lengths| {
        assert!(cuda::takes_convolution(x, state, filter, lengths));
        cuda::convolution(x, state, filter, lengths)
    },
    delta: |rule| {
        assert!(cuda::takes_delta(rule));
        cuda::delta(rule)
    },
    scan: |of| {
        assert!(cuda::takes_scan(of));
        cuda::scan(of)
    },
    norm_and_gate: |x, by| {
        assert!(cuda::takes_norm_and_gate(x, by));
        cuda::norm_and_gate(x, by)
    },
    gated: |activation, [gate, up], [count, each]| cuda::gated(activation, gate, up, count, each),
};

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn convolutions_are_those_of_plain_arithmetic() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for (b, l, lengths) in
            [(1, 1, &[][..]), (5, 1, &[]), (1, 300, &[]), (3, 9, &[]), (3, 9, &[9, 4, 1])]
        {
            for (taps, has_bias, is_silu) in [(4, false, true), (3, true, false)] {
                let kind = (has_bias, is_silu);
                plain::convolution(&KERNELS, [b, l, 96, taps], kind, dtype, lengths)
                    .expect("a convolution");
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn the_delta_rule_is_that_of_plain_arithmetic() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for heads in [[2, 4, 128, 128], [1, 2, 64, 64], [3, 3, 64, 24]] {
            for (b, l, lengths) in
                [(1, 1, &[][..]), (1, 200, &[]), (3, 9, &[9, 4, 1]), (2, 70, &[33, 70])]
            {
                // One decay for a head, or one for each column of its state.
                for decays in [1, heads[2]] {
                    plain::delta(&KERNELS, [b, l], heads, decays, dtype, lengths).expect("a rule");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn the_selective_scan_is_that_of_plain_arithmetic() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for sizes in [[4, 2, 64, 128], [3, 1, 24, 64], [2, 2, 8, 256]] {
            let cases: [(i32, i32, &[i32]); 5] =
                [(1, 1, &[]), (4, 1, &[]), (1, 150, &[]), (3, 9, &[9, 4, 1]), (2, 70, &[33, 70])];
            for (b, l, lengths) in cases {
                plain::scan(&KERNELS, [b, l], sizes, dtype, lengths).expect("a scan");
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn norms_beside_gates_are_those_of_plain_arithmetic() {
    use_cuda();
    for dtype in [Dtype::Bf16, Dtype::F16] {
        for (b, l, groups, size) in [(1, 1, 4, 128), (3, 2, 3, 40), (2, 5, 2, 1536)] {
            for (of_groups, gate_is_first) in [(false, false), (true, true), (true, false)] {
                for activation in [Activation::Silu, Activation::Sigmoid] {
                    let kind = (of_groups, gate_is_first, activation);
                    plain::norm_and_gate(&KERNELS, [b, l, groups, size], kind, dtype)
                        .expect("a norm");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn a_value_of_a_gate_is_for_as_many_columns_as_it_says() {
    use_cuda();
    let gates = [Activation::Silu, Activation::Sigmoid, Activation::Softplus, Activation::Identity];
    for (dtype, each) in [
        (Dtype::Bf16, 1),
        (Dtype::F32, 1),
        (Dtype::F16, 4),
        (Dtype::F32, 16),
        (Dtype::Bf16, 32),
        (Dtype::F16, 64),
    ] {
        for activation in gates {
            plain::gated(&KERNELS, activation, dtype, each).expect("a gate");
        }
    }
}
