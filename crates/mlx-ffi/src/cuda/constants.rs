//! Numbers that kernels and those who launch them agree on. They are written here alone: kernels
//! get them as definitions before their text.

use cpu_kernels::{Activation, GELU_CUBE};

pub(super) use crate::custom_kernel::code;

/// Threads of a warp.
pub(super) const LANES: i32 = 32;
/// Warps of a block.
pub(super) const WARPS: i32 = 8;
/// Threads of a block.
pub(super) const THREADS: i32 = WARPS * LANES;
/// Warps of a block that multiplies with matrices of heads.
pub(super) const PRODUCT_WARPS: i32 = 4;
/// Warps of a block that multiplies one row of x, and its threads.
pub(super) const ONE_ROW_WARPS: i32 = 16;
pub(super) const ONE_ROW_THREADS: i32 = ONE_ROW_WARPS * LANES;
/// The most columns whose row of x a block can hold.
pub(super) const MOST_COLUMNS: i32 = 1 << 14;
/// The most columns whose row of x a block can hold as floats.
pub(super) const MOST_WIDE_COLUMNS: i32 = 10 << 10;
/// Columns that a lane multiplies at a time, of packed weights.
pub(super) const PACKED_VALUES: i32 = 16;
/// Columns that a lane multiplies at a time, of weights as they are.
pub(super) const DENSE_VALUES: i32 = 8;
/// How many warps may share a group of rows of weights, the most first; otherwise each has its own.
pub(super) const SPLITS: [i32; 3] = [8, 4, 2];

/// How many warps share a group, where there are so many groups and warps.
#[cfg(test)]
pub(super) fn split_for(groups: i32, warps: i32) -> i32 {
    SPLITS.into_iter().find(|split| groups * split <= warps).unwrap_or(1)
}

/// The gate of gpt-oss as kernels know it, beside the activations.
pub(super) const CLIPPED: i32 = 4;
/// Weights as they are, affine codes, and floats of four bits.
pub(super) const DENSE: i32 = 0;
pub(super) const AFFINE: i32 = 1;
pub(super) const FLOATS: i32 = 2;
/// The gate's rows and the others: in a matrix each, in one after the other, or in turn; or the
/// same ones.
pub(super) const SEPARATE: i32 = 0;
pub(super) const HALVES: i32 = 1;
pub(super) const INTERLEAVED: i32 = 2;
pub(super) const SAME: i32 = 3;
/// Threads of the block that sorts choices, and the most experts.
pub(super) const SORTING: i32 = 1024;
/// The most experts that a row chooses.
pub(super) const MOST_CHOICES: i32 = LANES;
/// Threads of the block that draws the id of a row.
pub(super) const DRAWING: i32 = 1024;
/// Positions of a prompt that a block attends for, and its threads: a warp for each sixteen.
pub(super) const QUERIES: i32 = 64;
pub(super) const ATTENDING: i32 = QUERIES / 16 * LANES;
/// The most blocks that share the keys of a row.
pub(super) const MOST_SPLITS: i32 = 128;
/// Numbers that say how the ids of a row are drawn.
pub(super) const SETTINGS: usize = 6;
/// Numbers that say where a row is placed.
pub(super) const PLACE_NUMBERS: usize = 6;

/// The definitions that stand before the text of each kernel.
pub(super) fn definitions() -> String {
    let split = SPLITS.iter().fold(String::new(), |text, split| {
        format!("{text}(groups) * {split} <= (warps) ? {split} : ")
    });
    let numbers = [
        ("WARPS", WARPS),
        ("THREADS", THREADS),
        ("PRODUCT_WARPS", PRODUCT_WARPS),
        ("ONE_ROW_WARPS", ONE_ROW_WARPS),
        ("ONE_ROW_THREADS", ONE_ROW_THREADS),
        ("MOST_COLUMNS", MOST_COLUMNS),
        ("MOST_WIDE_COLUMNS", MOST_WIDE_COLUMNS),
        ("PACKED_VALUES", PACKED_VALUES),
        ("DENSE_VALUES", DENSE_VALUES),
        ("SILU", code(Activation::Silu)),
        ("GELU_TANH", code(Activation::GeluTanh)),
        ("RELU", code(Activation::Relu)),
        ("GELU", code(Activation::Gelu)),
        ("SIGMOID", code(Activation::Sigmoid)),
        ("SOFTPLUS", code(Activation::Softplus)),
        ("IDENTITY", code(Activation::Identity)),
        ("CLIPPED", CLIPPED),
        ("DENSE", DENSE),
        ("AFFINE", AFFINE),
        ("FLOATS", FLOATS),
        ("SEPARATE", SEPARATE),
        ("HALVES", HALVES),
        ("INTERLEAVED", INTERLEAVED),
        ("SAME", SAME),
        ("SORTING", SORTING),
        ("DRAWING", DRAWING),
        ("QUERIES", QUERIES),
        ("ATTENDING", ATTENDING),
        ("MOST_SPLITS", MOST_SPLITS),
        ("SETTINGS", SETTINGS as i32),
        ("PLACE_NUMBERS", PLACE_NUMBERS as i32),
    ];
    let numbers = numbers.map(|(name, value)| format!("#define {name} {value}\n")).concat();
    format!(
        "{numbers}#define GELU_CUBE {GELU_CUBE:?}f\n#define SPLIT_FOR(groups, warps) ({split}1)\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_get_each_number_once() {
        let text = definitions();
        let names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(1)).collect();
        assert!(names.iter().all(|name| names.iter().filter(|other| other == &name).count() == 1));
        assert!(text.contains("#define THREADS 256\n") && text.contains("GELU_CUBE 0.044715f\n"));
        let split = "#define SPLIT_FOR(groups, warps) ((groups) * 8 <= (warps) ? 8 : \
                     (groups) * 4 <= (warps) ? 4 : (groups) * 2 <= (warps) ? 2 : 1)\n";
        assert!(text.ends_with(split), "{text}");
    }

    #[test]
    fn no_kernel_writes_a_shared_number_again() {
        for source in [
            include_str!("add_parts.cu"),
            include_str!("all_sum.cu"),
            include_str!("arrange.cu"),
            include_str!("chained.cu"),
            include_str!("choose.cu"),
            include_str!("chunk_attention.cu"),
            include_str!("chunk_tiles.cu"),
            include_str!("combine.cu"),
            include_str!("common.cu"),
            include_str!("convolution.cu"),
            include_str!("convolution_step.cu"),
            include_str!("convolved.cu"),
            include_str!("copy.cu"),
            include_str!("copy_positions.cu"),
            include_str!("delta.cu"),
            include_str!("delta_chunk.cu"),
            include_str!("delta_tiles.cu"),
            include_str!("draw.cu"),
            include_str!("drawing.cu"),
            include_str!("expert_common.cu"),
            include_str!("expert_rows.cu"),
            include_str!("expert_stream.cu"),
            include_str!("gate.cu"),
            include_str!("grouped.cu"),
            include_str!("head.cu"),
            include_str!("head_product.cu"),
            include_str!("head_products.cu"),
            include_str!("heads.cu"),
            include_str!("join.cu"),
            include_str!("largest.cu"),
            include_str!("latent_attention.cu"),
            include_str!("latent_parts.cu"),
            include_str!("latent_queries.cu"),
            include_str!("modulated.cu"),
            include_str!("norm_gate.cu"),
            include_str!("one_row.cu"),
            include_str!("one_row_by_lanes.cu"),
            include_str!("picture_heads.cu"),
            include_str!("place.cu"),
            include_str!("recurrent_tiles.cu"),
            include_str!("residual.cu"),
            include_str!("route.cu"),
            include_str!("scan.cu"),
            include_str!("scan_chunk.cu"),
            include_str!("scan_tiles.cu"),
            include_str!("several_rows.cu"),
            include_str!("softmax.cu"),
            include_str!("step_attention.cu"),
            include_str!("step_lanes.cu"),
            include_str!("step_tiles.cu"),
            include_str!("sum.cu"),
            include_str!("take.cu"),
            include_str!("take_buffers.cu"),
            include_str!("tensor.cu"),
            include_str!("times.cu"),
            include_str!("unpack.cu"),
            include_str!("warpgroup.cu"),
        ] {
            for name in definitions().lines().filter_map(|line| line.split([' ', '(']).nth(1)) {
                let again = [format!(" {name} ="), format!("#define {name}")];
                assert!(!again.iter().any(|text| source.contains(text)), "{name}");
            }
        }
    }

    #[test]
    fn no_constant_of_a_launch_has_the_name_of_a_shared_number() {
        let text = definitions();
        let names: Vec<&str> =
            text.lines().filter_map(|line| line.split([' ', '(']).nth(1)).collect();
        for source in [
            include_str!("attention.rs"),
            include_str!("buffers.rs"),
            include_str!("chunk.rs"),
            include_str!("dense.rs"),
            include_str!("draw.rs"),
            include_str!("expert_stream.rs"),
            include_str!("experts.rs"),
            include_str!("latent.rs"),
            include_str!("one_row.rs"),
            include_str!("pictures.rs"),
            include_str!("place.rs"),
            include_str!("product.rs"),
            include_str!("recurrent.rs"),
            include_str!("routing.rs"),
            include_str!("rows.rs"),
            include_str!("several_rows.rs"),
            include_str!("take.rs"),
            include_str!("unpack.rs"),
        ] {
            let constants = source.split("(c\"").skip(1).filter_map(|rest| rest.split('"').next());
            for constant in constants {
                assert!(!names.contains(&constant), "{constant}");
            }
        }
    }
}
