//! Kernels on a processor, for tests where there is no GPU.
#![allow(clippy::duplicate_mod, reason = "each test brings what it needs")]

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{env, fs, process};

use super::constants::definitions;
use super::kernel::{Constant, Launch, Source};
use crate::{Array, Dtype, Error, Result, ops};

/// CUDA's functions for a processor, and the program that runs kernels.
const KERNEL: &str = include_str!("emulated/kernel.h");
const RUN: &str = include_str!("emulated/run.cpp");

/// Files of instructions that a processor lacks; `kernel.h` has the same functions.
const INSTRUCTIONS: [&str; 3] =
    [include_str!("chained.cu"), include_str!("tensor.cu"), include_str!("warpgroup.cu")];

/// The outputs of a launch, which a processor computes at once.
pub(super) fn launch(source: &Source, inputs: &[&Array], of: &Launch<'_>) -> Result<Vec<Array>> {
    let dense: Vec<Array> =
        inputs.iter().map(|input| ops::contiguous(input)).collect::<Result<_>>()?;
    let text = Text::of(source, &dense, of);
    if let Some(folder) = env::var_os(TEXTS) {
        write_for_device(Path::new(&folder), source, &text)?;
    }
    let program = compiled(&text.for_processor(source))?;
    let mut told = Vec::new();
    told.extend(of.grid.iter().chain(&of.block).flat_map(|threads| threads.to_ne_bytes()));
    for output in of.outputs {
        told.extend((bytes_of(output) as u64).to_ne_bytes());
    }
    for input in &dense {
        let mut shape = [0_i32; 10];
        let mut strides = [0_i64; 10];
        let dims = input.shape();
        let mut stride = 1;
        for (at, size) in dims.iter().enumerate().rev() {
            (shape[at], strides[at]) = (*size, stride);
            stride *= i64::from(*size);
        }
        told.extend(shape.iter().flat_map(|size| size.to_ne_bytes()));
        told.extend(strides.iter().flat_map(|stride| stride.to_ne_bytes()));
        told.extend((dims.len() as i32).to_ne_bytes());
        told.extend((input.nbytes() as u64).to_ne_bytes());
        input.read_bytes(|bytes| told.extend_from_slice(bytes))?;
    }
    let written = source.written.iter().map(|index| &dense[*index as usize]);
    let results: Vec<(&[i32], Dtype)> = of
        .outputs
        .iter()
        .copied()
        .chain(written.map(|input| (input.shape(), input.dtype())))
        .collect();
    let mut found = Vec::new();
    // Warps in one order, and in the other.
    for order in ["forwards", "backwards"] {
        let bytes = run(&program, order, &told).map_err(|why| {
            Error::new(format!("{} {order}: {why}", source.name.to_string_lossy()))
        })?;
        found.push(bytes);
    }
    let name = source.name.to_string_lossy();
    if found[0] != found[1] && !ORDERED_BY_ATOMICS.contains(&&*name) {
        return Err(Error::new(format!("{name}: what comes out depends on the order of warps")));
    }
    let mut rest = &found[0][..];
    results
        .iter()
        .map(|result| {
            let (own, others) = rest.split_at(bytes_of(result));
            rest = others;
            Array::from_bytes(own, result.0, result.1)
        })
        .collect()
}

fn bytes_of((shape, dtype): &(&[i32], Dtype)) -> usize {
    shape.iter().map(|size| *size as usize).product::<usize>() * dtype.size()
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

/// A digest of `of`, for the name of a file that is made from it.
fn digest(of: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The program of a text, which is compiled once.
fn compiled(text: &str) -> Result<PathBuf> {
    let here = env::current_exe().map_err(failed)?;
    let folder = here.parent().unwrap_or(Path::new("")).join("emulated");
    fs::create_dir_all(&folder).map_err(failed)?;
    let program = folder.join(digest((text, KERNEL, RUN)));
    if program.exists() {
        return Ok(program);
    }
    let own = folder.join(format!("{}-{:?}", process::id(), std::thread::current().id()));
    let cpp = own.with_extension("cpp");
    fs::write(&cpp, text).map_err(failed)?;
    compile(
        &[OsStr::new("-I"), &folder_of_sources(), cpp.as_os_str(), runner(&folder)?.as_os_str()],
        &own,
    )?;
    fs::rename(&own, &program).map_err(failed)?;
    fs::remove_file(&cpp).map_err(failed)?;
    Ok(program)
}

/// The object file that runs kernels, compiled once.
fn runner(folder: &Path) -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runner = folder.join(digest((KERNEL, RUN)) + ".o");
    if !runner.exists() {
        let own = folder.join(format!("{}.o", process::id()));
        let source = Path::new(&folder_of_sources()).join("run.cpp");
        compile(&[OsStr::new("-c"), source.as_os_str()], &own)?;
        fs::rename(own, &runner).map_err(failed)?;
    }
    Ok(runner)
}

fn folder_of_sources() -> OsString {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda/emulated").into()
}

fn compile(arguments: &[&OsStr], to: &Path) -> Result<()> {
    let output = Command::new("c++")
        .args([
            "-std=c++17",
            "-O1",
            "-w",
            "-fsanitize=alignment,bounds",
            "-fno-sanitize-recover=all",
        ])
        .args(arguments)
        .arg("-o")
        .arg(to)
        .output()
        .map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(format!("{arguments:?}: {told}")))
}

/// Runs a program with `input`, and returns its output.
fn run(program: &Path, order: &str, input: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let mut child = Command::new(program)
        .arg(order)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    // It reads all before it writes anything.
    let sent = child.stdin.take().map_or(Ok(()), |mut to| to.write_all(input));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let told = String::from_utf8_lossy(&output.stderr);
    match (sent, output.status.success()) {
        (Ok(()), true) => Ok(output.stdout),
        (sent, _) => Err(format!("{}, {sent:?}: {told}", output.status)),
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::new(error.to_string())
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
