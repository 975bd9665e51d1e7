//! Kernels on a processor, for tests where there is no GPU.
#![allow(clippy::duplicate_mod, reason = "each test brings what it needs")]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use super::constants::definitions;
use super::kernel::Source;
use crate::custom_kernel::{Constant, Launch};
use crate::emulated::{Orders, Program, digest, failed};
use crate::{Array, Dtype, Result, ops};

/// Files of instructions that a processor lacks; `kernel.h` has the same functions.
const INSTRUCTIONS: [&str; 3] =
    [include_str!("chained.cu"), include_str!("tensor.cu"), include_str!("warpgroup.cu")];

/// The outputs of a launch, which a processor computes at once, with warps in both orders.
pub(super) fn launch(source: &Source, inputs: &[&Array], of: &Launch<'_>) -> Result<Vec<Array>> {
    let dense: Vec<Array> =
        inputs.iter().map(|input| ops::contiguous(input)).collect::<Result<_>>()?;
    let text = Text::of(source, &dense, of);
    if let Some(folder) = env::var_os(TEXTS) {
        write_for_device(Path::new(&folder), source, &text)?;
    }
    let name = source.name.to_string_lossy();
    let program = Program {
        name: &name,
        text: &text.for_processor(source),
        written: source.written,
        orders: if ORDERED_BY_ATOMICS.contains(&&*name) { Orders::Any } else { Orders::Equal },
    };
    program.launch(&dense, of)
}

/// Kernels whose results may stand in any order.
const ORDERED_BY_ATOMICS: [&str; 1] = ["arrange"];

fn type_of(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bf16 => "__nv_bfloat16",
        Dtype::F16 => "__half",
        Dtype::F32 => "float",
        Dtype::U32 => "uint32_t",
        Dtype::I32 => "int32_t",
        Dtype::U8 => "uint8_t",
        Dtype::Bool => "bool",
        other => panic!("no kernel takes {other:?}"),
    }
}

/// A kernel as MLX puts it together, and what gives it its arguments.
struct Text {
    /// From its parameters on.
    kernel: String,
    rest: String,
}

impl Text {
    /// The source that a processor runs.
    fn for_processor(&self, source: &Source) -> String {
        let header =
            INSTRUCTIONS.iter().fold(source.header.to_owned(), |text, part| text.replace(part, ""));
        let Text { kernel, rest } = self;
        format!(
            "#include \"kernel.h\"\n{}{header}\nstatic void kernel{kernel}{rest}",
            definitions()
        )
    }

    /// The source for NVIDIA's compiler.
    fn for_device(&self, source: &Source) -> String {
        let (header, kernel) = (source.header, &self.kernel);
        format!("{OF_DEVICE}{}{header}\nextern \"C\" __global__ void kernel{kernel}", definitions())
    }

    fn of(source: &Source, inputs: &[Array], of: &Launch<'_>) -> Text {
        let (mut all, mut call) = (String::from("("), String::new());
        let names = || source.inputs.iter().map(|name| name.to_string_lossy());
        for (at, (name, input)) in names().zip(inputs).enumerate() {
            let own = type_of(input.dtype());
            write!(all, "const {own}* {name}, ").expect("a string");
            write!(call, "reinterpret_cast<const {own}*>(inputs[{at}].data), ").expect("a string");
            for (part, kind, value) in [
                ("shape", "Ten<int32_t>", "shape"),
                ("strides", "Ten<int64_t>", "strides"),
                ("ndim", "int", "dims"),
            ] {
                if !input.shape().is_empty() && source.body.contains(&format!("{name}_{part}")) {
                    write!(all, "const {kind} {name}_{part}, ").expect("a string");
                    write!(call, "inputs[{at}].{value}, ").expect("a string");
                }
            }
        }
        for (at, (name, (_, dtype))) in source.outputs.iter().zip(of.outputs).enumerate() {
            let (name, own) = (name.to_string_lossy(), type_of(*dtype));
            let comma = if at == 0 { "" } else { ", " };
            write!(all, "{comma}{own}* {name}").expect("a string");
            write!(call, "{comma}reinterpret_cast<{own}*>(outputs[{at}])").expect("a string");
        }
        all.push_str(") {\n");
        for (name, constant) in of.constants {
            let name = name.to_string_lossy();
            let line = match *constant {
                Constant::Type(dtype) => format!("using {name} = {};\n", type_of(dtype)),
                Constant::Int(value) => format!("constexpr int {name} = {value};\n"),
                Constant::Float(value) => {
                    format!("constexpr int {name} = {};\n", value.to_bits() as i32)
                }
                Constant::Bool(value) => format!("constexpr bool {name} = {value};\n"),
            };
            all.push_str(&line);
        }
        all.push_str(source.body);
        all.push_str("\n}\n");
        let written: Vec<String> = source.written.iter().map(i32::to_string).collect();
        let [inputs, outputs, count] = [inputs.len(), of.outputs.len(), written.len()];
        // An array has a value.
        let written = [written, vec!["0".into()]].concat().join(", ");
        let rest = format!(
            "void run_thread(Input* inputs, unsigned char** outputs) {{
  kernel({call});
}}
extern const int OF_INPUTS = {inputs}, OF_OUTPUTS = {outputs}, OF_WRITTEN = {count};
extern const bool HAS_PARTIAL_BLOCKS = false;
extern const int WRITTEN[] = {{{written}}};\n"
        );
        Text { kernel: all, rest }
    }
}

/// Environment variable: a folder for the texts of kernels, for NVIDIA's compiler.
const TEXTS: &str = "ML_KERNEL_TEXTS";
/// Definitions before a kernel, for that compiler.
const OF_DEVICE: &str = include_str!("emulated/device.h");

fn write_for_device(folder: &Path, source: &Source, text: &Text) -> Result<()> {
    let text = text.for_device(source);
    let path = folder.join(format!("{}-{}.cu", source.name.to_string_lossy(), digest(&text)));
    if path.exists() { Ok(()) } else { fs::write(path, text).map_err(failed) }
}

#[path = "../../tests/cuda/arrays.rs"]
mod arrays;
#[path = "../../tests/cuda/attention.rs"]
mod attention;
#[path = "../../tests/cuda/draw.rs"]
mod draw;
#[path = "../../tests/cuda/experts.rs"]
mod experts;
#[path = "../../tests/cuda/latent.rs"]
mod latent;
#[path = "../../tests/cuda/matrix.rs"]
mod matrix;
#[path = "../../tests/cuda/on_cuda.rs"]
mod on_cuda;
#[path = "../../tests/cuda/pictures.rs"]
mod pictures;
#[path = "../../tests/plain/recurrent.rs"]
mod plain;
#[path = "../../tests/cuda/products.rs"]
mod products;
#[path = "../../tests/cuda/recurrent.rs"]
mod recurrent;
#[path = "../../tests/cuda/routing.rs"]
mod routing;
#[path = "../../tests/cuda/rows.rs"]
mod rows;
#[path = "../../tests/cuda/several_rows.rs"]
mod several_rows;
#[path = "../../tests/cuda/uniform.rs"]
mod uniform;
#[path = "../../tests/cuda/unpack.rs"]
mod unpack;
