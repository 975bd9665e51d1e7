//! A kernel in CUDA C++, which MLX compiles on the machine that runs it.

use std::ffi::{CStr, CString, c_char, c_int};

use super::constants::definitions;
use crate::error::{check, init, take};
use crate::stream::{current, current_index as stream_index};
use crate::vector::VectorArray;
use crate::{Array, Dtype, Error, Result, sys};

/// The body of a kernel with the names of its inputs and outputs.
pub(super) struct Source {
    pub(super) name: &'static CStr,
    pub(super) inputs: &'static [&'static CStr],
    pub(super) outputs: &'static [&'static CStr],
    pub(super) body: &'static str,
    /// The text before the body, outside of the function.
    pub(super) header: &'static str,
    /// Inputs may have any strides; otherwise MLX copies those that are not row-major.
    pub(super) takes_strides: bool,
    /// The inputs that it writes into; what it writes is read only through its results.
    pub(super) written: &'static [c_int],
}

/// A constant that a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Constant {
    Type(Dtype),
    Int(i32),
    /// The bits of a float, as an integer.
    Float(f32),
    Bool(bool),
}

/// How often a kernel runs, and what it is compiled for.
pub(super) struct Launch<'a> {
    /// Threads of the whole grid.
    pub(super) grid: [i32; 3],
    /// Threads of a block.
    pub(super) block: [i32; 3],
    pub(super) constants: &'a [(&'static CStr, Constant)],
    pub(super) outputs: &'a [(&'a [i32], Dtype)],
}

/// Launches that are kept for their repetition; a model has a few for each batch size.
const KEPT: usize = 128;

/// A kernel that can be launched. MLX keeps what it compiled.
pub(super) struct Kernel {
    raw: sys::mlx_fast_cuda_kernel,
    written: &'static [c_int],
    known: Vec<(Key, Known)>,
}

/// The key of a kept launch: launches with equal keys differ in their inputs alone.
#[derive(PartialEq)]
struct Key {
    stream: c_int,
    grid: [i32; 3],
    block: [i32; 3],
    constants: Vec<Constant>,
    inputs: Vec<(Dtype, bool)>,
    outputs: Vec<(Vec<i32>, Dtype)>,
}

impl Key {
    fn is_of(&self, stream: c_int, inputs: &[&Array], launch: &Launch<'_>) -> bool {
        let constants = launch.constants.iter().map(|(_, constant)| constant);
        let outputs = self.outputs.iter().map(|(shape, dtype)| (&shape[..], *dtype));
        let types = inputs.iter().map(|input| kind(input));
        (self.stream, self.grid, self.block) == (stream, launch.grid, launch.block)
            && self.constants.iter().eq(constants)
            && outputs.eq(launch.outputs.iter().copied())
            && self.inputs.iter().copied().eq(types)
    }

    fn of(stream: c_int, inputs: &[&Array], launch: &Launch<'_>) -> Key {
        let Launch { grid, block, constants, outputs } = *launch;
        Key {
            stream,
            grid,
            block,
            constants: constants.iter().map(|(_, constant)| *constant).collect(),
            inputs: inputs.iter().map(|input| kind(input)).collect(),
            outputs: outputs.iter().map(|(shape, dtype)| (shape.to_vec(), *dtype)).collect(),
        }
    }
}

/// The type of an input, and true for a scalar: a kernel's text depends on both.
fn kind(input: &Array) -> (Dtype, bool) {
    (input.dtype(), input.shape().is_empty())
}

impl Kernel {
    /// The kernel of `source`, whose launches ask for so many bytes of shared memory.
    ///
    /// # Errors
    /// An MLX without CUDA.
    pub(super) fn new(source: &Source, memory: c_int) -> Result<Kernel> {
        init();
        let inputs = Strings::of(source.inputs);
        let outputs = Strings::of(source.outputs);
        let (body, header) =
            (c_string(&bare(source.body))?, c_string(&(definitions() + &bare(source.header)))?);
        // SAFETY: names and texts live for the call, which copies them.
        let raw = unsafe {
            sys::mlx_fast_cuda_kernel_new(
                source.name.as_ptr(),
                inputs.0,
                outputs.0,
                body.as_ptr(),
                header.as_ptr(),
                !source.takes_strides,
                memory,
            )
        };
        let kernel = Kernel { raw, written: source.written, known: Vec::new() };
        if raw.ctx.is_null() { Err(take()) } else { Ok(kernel) }
    }

    /// The outputs of a launch, lazily as those of any operation, then the inputs that it writes
    /// into as they are afterwards.
    ///
    /// # Errors
    /// A stream that is not of a CUDA device.
    pub(super) fn launch(&mut self, inputs: &[&Array], launch: &Launch<'_>) -> Result<Vec<Array>> {
        let stream = stream_index()?;
        let known = self.known.iter().position(|(key, _)| key.is_of(stream, inputs, launch));
        let list = VectorArray::of(inputs)?;
        let known = match known {
            Some(known) => known,
            None => {
                let made = self.made(&list, launch)?;
                if self.known.len() == KEPT {
                    self.known.remove(0);
                }
                self.known.push((Key::of(stream, inputs, launch), made));
                self.known.len() - 1
            }
        };
        let known = &self.known[known].1;
        // SAFETY: all handles live for the call.
        VectorArray::from_op(|out| unsafe { sys::mlxrs_launch_apply(out, known.0, list.0) })
    }

    /// A launch to be repeated: MLX puts the text of a kernel together whenever it is applied.
    fn made(&self, inputs: &VectorArray, launch: &Launch<'_>) -> Result<Known> {
        // SAFETY: makes an empty configuration.
        let config = Config(unsafe { sys::mlx_fast_cuda_kernel_config_new() });
        if config.0.ctx.is_null() {
            return Err(take());
        }
        let Launch { grid: [gx, gy, gz], block: [bx, by, bz], constants, outputs } = *launch;
        // SAFETY: the configuration is filled.
        check(unsafe { sys::mlx_fast_cuda_kernel_config_set_grid(config.0, gx, gy, gz) })?;
        // SAFETY: as above.
        check(unsafe { sys::mlx_fast_cuda_kernel_config_set_thread_group(config.0, bx, by, bz) })?;
        for (shape, dtype) in outputs {
            let (data, size) = (shape.as_ptr(), shape.len());
            // SAFETY: the pointer and the size describe the shape, which lives for the call.
            check(unsafe {
                sys::mlx_fast_cuda_kernel_config_add_output_arg(config.0, data, size, dtype.raw())
            })?;
        }
        for (name, constant) in constants {
            let name = name.as_ptr();
            let int = |value| {
                // SAFETY: the name lives for the call, which copies it.
                unsafe {
                    sys::mlx_fast_cuda_kernel_config_add_template_arg_int(config.0, name, value)
                }
            };
            check(match *constant {
                Constant::Int(value) => int(value),
                Constant::Float(value) => int(value.to_bits() as i32),
                // SAFETY: as above.
                Constant::Type(dtype) => unsafe {
                    let dtype = dtype.raw();
                    sys::mlx_fast_cuda_kernel_config_add_template_arg_dtype(config.0, name, dtype)
                },
                // SAFETY: as above.
                Constant::Bool(value) => unsafe {
                    sys::mlx_fast_cuda_kernel_config_add_template_arg_bool(config.0, name, value)
                },
            })?;
        }
        let mut outputs = VectorArray::empty();
        // SAFETY: all handles live for the call.
        check(unsafe {
            sys::mlx_fast_cuda_kernel_apply(&mut outputs.0, self.raw, inputs.0, config.0, current())
        })?;
        let mut known = Known(sys::mlxrs_launch { ctx: std::ptr::null_mut() });
        let (written, count) = (self.written.as_ptr(), self.written.len());
        // SAFETY: the outputs live for the call; the pointer and the count describe the indices.
        check(unsafe { sys::mlxrs_launch_new(&mut known.0, outputs.0, written, count) })?;
        Ok(known)
    }
}

/// A launch that MLX can repeat.
struct Known(sys::mlxrs_launch);

impl Drop for Known {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once; it may be null.
        unsafe { sys::mlxrs_launch_free(self.0) };
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_fast_cuda_kernel_free(self.raw) };
    }
}

struct Config(sys::mlx_fast_cuda_kernel_config);

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_fast_cuda_kernel_config_free(self.0) };
    }
}

struct Strings(sys::mlx_vector_string);

impl Strings {
    fn of(texts: &[&CStr]) -> Strings {
        let mut raw: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        // SAFETY: the pointer and the length describe terminated strings that live for the call,
        // which copies them.
        Strings(unsafe { sys::mlx_vector_string_new_data(raw.as_mut_ptr(), raw.len()) })
    }
}

impl Drop for Strings {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        let _: c_int = unsafe { sys::mlx_vector_string_free(self.0) };
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| Error::new(error.to_string()))
}

/// `source` without comments and indentation, where a text is hashed at every launch.
fn bare(source: &str) -> String {
    let lines = source.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::bare;

    #[test]
    fn only_code_is_compiled() {
        assert_eq!(bare("// What it does.\n\n  int a = 1; // one\n"), "int a = 1; // one");
    }
}
