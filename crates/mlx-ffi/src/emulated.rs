//! Kernels for GPUs on a processor, where there is no GPU: threads of a block are contexts that
//! take turns.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read as _, Write as _};
#[cfg(test)]
use std::os::raw::c_int;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{env, fs, process};

use crate::cpu::operation::{Inputs, Outcome, View, operation};
use crate::custom_kernel::Launch;
use crate::stream::current;
use crate::{Array, Dtype, Error, Result, ops, sys};

/// The program that runs kernels, and what kernels know: all that their programs are made from.
const SOURCES: [&str; 4] = [
    include_str!("emulated/run.cpp"),
    include_str!("emulated/threads.h"),
    include_str!("cuda/emulated/kernel.h"),
    include_str!("metal/emulated/metal.h"),
];

/// The folders of these, where this crate lies.
const FOLDERS: [&str; 3] = ["src/emulated", "src/cuda/emulated", "src/metal/emulated"];

/// The orders in which warps of a block and blocks of a grid run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orders {
    /// Both, and the results must be equal.
    Equal,
    /// Both. The results of the first count.
    #[cfg(test)]
    Any,
    /// The first alone, where a kernel is a part of a larger computation.
    First,
}

/// A kernel as a processor runs it.
pub(crate) struct Program<'a> {
    pub(crate) name: &'a str,
    /// Its C++.
    pub(crate) text: &'a str,
    /// The inputs that it writes into.
    #[cfg(test)]
    pub(crate) written: &'a [c_int],
    pub(crate) orders: Orders,
}

impl Program<'_> {
    /// The outputs of a launch over row-major `inputs`, then the inputs that it wrote into.
    ///
    /// # Errors
    /// A text that does not compile; threads that wait for each other; what lies outside of
    /// buffers; results that depend on the order of warps.
    #[cfg(test)]
    pub(crate) fn launch(&self, inputs: &[Array], of: &Launch<'_>) -> Result<Vec<Array>> {
        let program = compiled(self.text)?;
        let mut told = Vec::new();
        of_launch(of, &mut told);
        for input in inputs {
            of_input(input.shape(), input.nbytes(), &mut told);
            input.read_bytes(|bytes| told.extend_from_slice(bytes))?;
        }
        let written = self.written.iter().map(|index| &inputs[*index as usize]);
        let written = written.map(|input| (input.shape(), input.dtype()));
        let results: Vec<(&[i32], Dtype)> = of.outputs.iter().copied().chain(written).collect();
        let bytes = results.iter().map(bytes_of).sum();
        let found = computed(&program, self.name, self.orders, &told, bytes)?;
        let mut rest = &found[..];
        let arrays = results.iter().map(|result| {
            let (own, others) = rest.split_at(bytes_of(result));
            rest = others;
            Array::from_bytes(own, result.0, result.1)
        });
        arrays.collect()
    }

    /// The outputs of a launch that writes into none of its `inputs`: one operation of MLX's graph
    /// on a CPU, whose bytes are seen as each output.
    ///
    /// # Errors
    /// As [`launch`](Self::launch); what a run finds is the error of the evaluation.
    pub(crate) fn launch_lazily(&self, inputs: &[&Array], of: &Launch<'_>) -> Result<Vec<Array>> {
        let program = compiled(self.text)?;
        let mut head = Vec::new();
        of_launch(of, &mut head);
        let sizes: Vec<usize> = of.outputs.iter().map(bytes_of).collect();
        let (name, orders) = (self.name.to_owned(), self.orders);
        let shapes: Vec<Vec<i32>> = inputs.iter().map(|input| input.shape().to_vec()).collect();
        let places = places(&sizes);
        let (all, of_closure) = (places.last().copied().unwrap_or(0), places.clone());
        let compute = move |inputs: &[View<'_>], out: &mut [u8]| {
            let mut told = head.clone();
            for (input, shape) in inputs.iter().zip(&shapes) {
                of_input(shape, input.bytes.len(), &mut told);
                told.extend_from_slice(input.bytes);
            }
            let found = computed(&program, &name, orders, &told, sizes.iter().sum())?;
            let mut rest = &found[..];
            for (size, place) in sizes.iter().zip(&of_closure) {
                let (own, others) = rest.split_at(*size);
                out[*place..][..*size].copy_from_slice(own);
                rest = others;
            }
            Ok(())
        };
        let whole = [all as i32];
        let outcome = Outcome::row_major(Dtype::U8, &whole);
        let bytes = operation(inputs, Inputs::RowMajor, outcome, compute)?;
        let arrays = of.outputs.iter().zip(&places).map(|(output, place)| {
            let own = (*place as i32, (place + bytes_of(output)) as i32);
            let part = ops::slice_axis(&bytes, 0, own.0, own.1)?;
            ops::reshape(&seen_as(&part, output.1)?, output.0)
        });
        arrays.collect()
    }
}

/// Values of another type that have these bytes.
fn seen_as(bytes: &Array, dtype: Dtype) -> Result<Array> {
    // SAFETY: the input outlives the call; the types of outputs are numbers, of which each pattern
    // of bits is one.
    Array::from_op(|out| unsafe { sys::mlx_view(out, bytes.raw(), dtype.raw(), current()) })
}

/// The place where each output begins among the bytes of all, a line of the cache for itself, and
/// the end of the last one.
fn places(sizes: &[usize]) -> Vec<usize> {
    let next = |at: usize, size: &usize| at + size.next_multiple_of(64);
    let ends = sizes.iter().scan(0, |at, size| {
        *at = next(*at, size);
        Some(*at)
    });
    std::iter::once(0).chain(ends).collect()
}

/// The bytes that the program gives, with warps in the orders that are wanted.
fn computed(
    program: &Path,
    name: &str,
    orders: Orders,
    told: &[u8],
    bytes: usize,
) -> Result<Vec<u8>> {
    let run = |order| {
        run(program, order, told, bytes).map_err(|why| Error::new(format!("{name} {order}: {why}")))
    };
    let found = run("forwards")?;
    if orders != Orders::First && run("backwards")? != found && orders == Orders::Equal {
        return Err(Error::new(format!("{name}: what comes out depends on the order of warps")));
    }
    Ok(found)
}

/// A launch as its program reads it, up to its inputs.
fn of_launch(of: &Launch<'_>, told: &mut Vec<u8>) {
    told.extend(of.grid.iter().chain(&of.block).flat_map(|threads| threads.to_ne_bytes()));
    for output in of.outputs {
        told.extend((bytes_of(output) as u64).to_ne_bytes());
    }
}

/// A row-major input as its program reads it, up to its bytes.
fn of_input(dims: &[i32], bytes: usize, told: &mut Vec<u8>) {
    let mut shape = [0_i32; 10];
    let mut strides = [0_i64; 10];
    let mut stride = 1;
    for (at, size) in dims.iter().enumerate().rev() {
        (shape[at], strides[at]) = (*size, stride);
        stride *= i64::from(*size);
    }
    told.extend(shape.iter().flat_map(|size| size.to_ne_bytes()));
    told.extend(strides.iter().flat_map(|stride| stride.to_ne_bytes()));
    told.extend((dims.len() as i32).to_ne_bytes());
    told.extend((bytes as u64).to_ne_bytes());
}

fn bytes_of((shape, dtype): &(&[i32], Dtype)) -> usize {
    shape.iter().map(|size| *size as usize).product::<usize>() * dtype.size()
}

/// A digest of `of`, for the name of a file that is made from it.
pub(crate) fn digest(of: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The program of a text, which is compiled once.
fn compiled(text: &str) -> Result<PathBuf> {
    let here = env::current_exe().map_err(failed)?;
    let folder = here.parent().unwrap_or(Path::new("")).join("emulated");
    fs::create_dir_all(&folder).map_err(failed)?;
    let program = folder.join(digest((text, SOURCES)));
    if program.exists() {
        return Ok(program);
    }
    let own = folder.join(format!("{}-{:?}", process::id(), std::thread::current().id()));
    let cpp = own.with_extension("cpp");
    fs::write(&cpp, text).map_err(failed)?;
    compile(&[&cpp, &runner(&folder)?], &[], &own)?;
    fs::rename(&own, &program).map_err(failed)?;
    fs::remove_file(&cpp).map_err(failed)?;
    Ok(program)
}

/// The object file that runs kernels, compiled once.
fn runner(folder: &Path) -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runner = folder.join(digest(SOURCES) + ".o");
    if !runner.exists() {
        let own = folder.join(format!("{}.o", process::id()));
        compile(&[&folder_of_sources(FOLDERS[0]).join("run.cpp")], &["-c"], &own)?;
        fs::rename(own, &runner).map_err(failed)?;
    }
    Ok(runner)
}

fn folder_of_sources(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn compile(sources: &[&Path], options: &[&str], to: &Path) -> Result<()> {
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-O1", "-w", "-fsanitize=alignment,bounds"]);
    command.arg("-fno-sanitize-recover=all").args(options);
    for folder in FOLDERS {
        command.arg("-I").arg(folder_of_sources(folder));
    }
    let output = command.args(sources).arg("-o").arg(to).output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(format!("{sources:?}: {told}")))
}

/// The most programs that wait for their next launch.
const MOST_WAITING: usize = 32;

/// Programs that wait for their next launch, with the order of their warps.
static WAITING: Mutex<Vec<(PathBuf, &str, Child)>> = Mutex::new(Vec::new());

/// Runs a launch by a program, and returns so many bytes of output.
fn run(
    program: &Path,
    order: &'static str,
    input: &[u8],
    output: usize,
) -> std::result::Result<Vec<u8>, String> {
    let waiting = || WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let known = {
        let mut all = waiting();
        let at = all.iter().position(|(own, of, _)| own == program && *of == order);
        at.map(|at| all.swap_remove(at).2)
    };
    let mut child = match known {
        Some(child) => child,
        None => Command::new(program)
            .arg(order)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?,
    };
    let (Some(to), Some(from)) = (child.stdin.as_mut(), child.stdout.as_mut()) else {
        return Err("a program without pipes".into());
    };
    // It reads all before it writes anything.
    let sent = to.write_all(input).and_then(|()| to.flush());
    let mut found = vec![0; output];
    if sent.is_ok() && from.read_exact(&mut found).is_ok() {
        let mut all = waiting();
        all.push((program.to_owned(), order, child));
        let oldest = (all.len() > MOST_WAITING).then(|| all.remove(0));
        drop(all);
        if let Some((_, _, mut oldest)) = oldest {
            drop(oldest.stdin.take());
            oldest.wait().map_err(|error| error.to_string())?;
        }
        return Ok(found);
    }
    let ended = child.wait_with_output().map_err(|error| error.to_string())?;
    Err(format!("{}, {sent:?}: {}", ended.status, String::from_utf8_lossy(&ended.stderr)))
}

pub(crate) fn failed(error: std::io::Error) -> Error {
    Error::new(error.to_string())
}
