//! Kernels for Metal on a processor, for tests where there is no Metal.

use std::fmt::Write as _;

use super::text::{Source, header};
use crate::custom_kernel::{Constant, Launch, OF_CONSTANT_MEMORY};
use crate::emulated::{Orders, Program};
use crate::{Array, Dtype, Result};

/// The values that a thread may ask for, as MLX declares them.
const ATTRIBUTES: [(&str, &str); 7] = [
    ("simdgroup_index_in_threadgroup", "uint"),
    ("thread_index_in_simdgroup", "uint"),
    ("thread_index_in_threadgroup", "uint"),
    ("thread_position_in_grid", "uint3"),
    ("thread_position_in_threadgroup", "uint3"),
    ("threadgroup_position_in_grid", "uint3"),
    ("threads_per_threadgroup", "uint3"),
];

/// The outputs of a launch, lazily as those of any operation: in tests of this crate with SIMD
/// groups in both orders.
pub(super) fn launch(source: &Source, inputs: &[&Array], of: &Launch<'_>) -> Result<Vec<Array>> {
    let program = Program {
        name: &source.name.to_string_lossy(),
        text: &text(source, inputs, of),
        #[cfg(test)]
        written: &[],
        orders: if cfg!(test) { Orders::Equal } else { Orders::First },
    };
    program.launch_lazily(inputs, of)
}

fn type_of(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bf16 => "bfloat16_t",
        Dtype::F16 => "float16_t",
        Dtype::F32 => "float",
        Dtype::U32 => "uint32_t",
        Dtype::I32 => "int32_t",
        Dtype::U8 => "uint8_t",
        Dtype::Bool => "bool",
        other => panic!("no kernel takes {other:?}"),
    }
}

/// The kernel as MLX puts it together (`mlx/backend/common/metal_kernel.cpp` of 0.32), and its call
/// by each thread.
fn text(source: &Source, inputs: &[&Array], of: &Launch<'_>) -> String {
    let name = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
    let (mut parameters, mut call) = (Vec::new(), Vec::new());
    for (at, (own, input)) in source.inputs.iter().zip(inputs).enumerate() {
        let (own, of) = (name(own), type_of(input.dtype()));
        let is_small = input.size() < OF_CONSTANT_MEMORY;
        let memory = if is_small { "constant" } else { "device" };
        parameters.push(format!("const {memory} {of}* {own}"));
        call.push(format!("reinterpret_cast<const {of}*>(inputs[{at}].data)"));
        for (part, kind, value) in [
            ("shape", "const constant int*", "shape.of"),
            ("strides", "const constant int64_t*", "strides.of"),
            ("ndim", "const constant int&", "dims"),
        ] {
            if source.body.contains(&format!("{own}_{part}")) {
                parameters.push(format!("{kind} {own}_{part}"));
                call.push(format!("inputs[{at}].{value}"));
            }
        }
    }
    for (at, (own, (_, dtype))) in source.outputs.iter().zip(of.outputs).enumerate() {
        let dtype = type_of(*dtype);
        parameters.push(format!("device {dtype}* {}", name(own)));
        call.push(format!("reinterpret_cast<{dtype}*>(outputs[{at}])"));
    }
    for (attribute, kind) in ATTRIBUTES {
        if source.body.contains(attribute) {
            parameters.push(format!("{kind} {attribute}"));
            call.push(format!("emulated::{attribute}()"));
        }
    }
    let (mut kinds, mut values) = (Vec::new(), Vec::new());
    for (own, constant) in of.constants {
        let (kind, value) = match *constant {
            Constant::Type(dtype) => ("typename", type_of(dtype).to_owned()),
            Constant::Int(value) => ("int", value.to_string()),
            Constant::Float(value) => ("int", (value.to_bits() as i32).to_string()),
            Constant::Bool(value) => ("bool", value.to_string()),
        };
        kinds.push(format!("{kind} {}", name(own)));
        values.push(value);
    }
    let mut text = String::from("#include \"metal.h\"\n");
    let (kinds, parameters) = (kinds.join(", "), parameters.join(",\n  "));
    let _ = write!(
        text,
        "{}template <{kinds}>\nvoid kernel_of_metal(\n  {parameters}) {{\n{}\n}}\n",
        header(),
        source.body
    );
    let (values, call) = (values.join(", "), call.join(", "));
    let [inputs, outputs] = [inputs.len(), of.outputs.len()];
    let _ = write!(
        text,
        "void run_thread(Input* inputs, unsigned char** outputs) {{
  kernel_of_metal<{values}>({call});
}}
extern const int OF_INPUTS = {inputs}, OF_OUTPUTS = {outputs}, OF_WRITTEN = 0;
extern const int WRITTEN[] = {{0}};
extern const bool HAS_PARTIAL_BLOCKS = true;\n"
    );
    text
}

#[cfg(test)]
#[path = "../../tests/metal/mod.rs"]
mod kernels;
