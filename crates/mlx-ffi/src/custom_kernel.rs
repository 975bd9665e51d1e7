//! Kernels whose text MLX compiles on the machine that runs them: the parts that CUDA and Metal
//! have in common.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use crate::error::check;
use crate::stream::current_index as stream_index;
use crate::vector::VectorArray;
use crate::{Activation, Array, Dtype, Error, Result, sys};

/// A constant that a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Constant {
    Type(Dtype),
    Int(i32),
    /// The bits of a float, as an integer.
    Float(f32),
    Bool(bool),
}

/// How often a kernel runs, and what it is compiled for.
pub(crate) struct Launch<'a> {
    /// Threads of the whole grid.
    pub(crate) grid: [i32; 3],
    /// Threads of a block.
    pub(crate) block: [i32; 3],
    pub(crate) constants: &'a [(&'static CStr, Constant)],
    pub(crate) outputs: &'a [(&'a [i32], Dtype)],
}

/// Values of four bytes that an array must have to be in a CUDA device's memory: MLX keeps arrays
/// of up to eight bytes in the host's, where each read takes a microsecond.
pub const ON_DEVICE: usize = 4;

thread_local! {
    static NOTHING: RefCell<Option<Array>> = const { RefCell::new(None) };
}

/// Whole numbers that nothing reads, made at their first use by a thread: what is brought from the
/// host waits for the device.
pub(crate) fn nothing() -> Result<Array> {
    NOTHING.with_borrow_mut(|known| {
        let array = match known.take() {
            Some(array) => array,
            None => Array::from_i32(&[0; ON_DEVICE], &[ON_DEVICE as i32])?,
        };
        known.insert(array).share()
    })
}

/// The constant that says whether rows have lengths of their own.
pub(crate) fn has_lengths(lengths: &[i32]) -> (&'static CStr, Constant) {
    (c"HAS_LENGTHS", Constant::Bool(!lengths.is_empty()))
}

/// Lengths on the device.
pub(crate) fn counts(lengths: &[i32]) -> Result<Array> {
    match lengths {
        [] => nothing(),
        lengths => Array::from_i32(lengths, &[lengths.len() as i32]),
    }
}

/// The only output of a launch.
pub(crate) fn first(outputs: Vec<Array>) -> Result<Array> {
    outputs.into_iter().next().ok_or_else(|| Error::new("the kernel has no output"))
}

/// Both outputs of a launch.
pub(crate) fn pair(found: Vec<Array>) -> Result<[Array; 2]> {
    <[Array; 2]>::try_from(found)
        .map_err(|found| Error::new(format!("{} results, expected two", found.len())))
}

/// An activation as kernels know it; 0 is none.
pub(crate) const fn code(activation: Activation) -> i32 {
    match activation {
        Activation::Silu => 1,
        Activation::GeluTanh => 2,
        Activation::Relu => 3,
        Activation::Gelu => 5,
        Activation::Sigmoid => 6,
        Activation::Softplus => 7,
        Activation::Identity => 8,
    }
}

/// Declares `Config`, a launch as mlx-c takes it. Both kinds of kernels have the same functions
/// under different names.
macro_rules! kernel_config {
    (
        of: $of:ident, new: $new:ident, free: $free:ident, grid: $grid:ident, block: $block:ident,
        output: $output:ident, int: $int:ident, dtype: $dtype:ident, boolean: $boolean:ident,
    ) => {
        struct Config(crate::sys::$of);

        impl Config {
            fn of(launch: &Launch<'_>) -> crate::Result<Config> {
                use crate::error::{check, take};
                // SAFETY: makes an empty configuration.
                let config = Config(unsafe { crate::sys::$new() });
                if config.0.ctx.is_null() {
                    return Err(take());
                }
                let raw = config.0;
                let Launch { grid: [gx, gy, gz], block: [bx, by, bz], constants, outputs } =
                    *launch;
                // SAFETY: the configuration is filled.
                check(unsafe { crate::sys::$grid(raw, gx, gy, gz) })?;
                // SAFETY: as above.
                check(unsafe { crate::sys::$block(raw, bx, by, bz) })?;
                for (shape, dtype) in outputs {
                    let (data, size) = (shape.as_ptr(), shape.len());
                    // SAFETY: the pointer and the size describe the shape, which lives for the
                    // call.
                    check(unsafe { crate::sys::$output(raw, data, size, dtype.raw()) })?;
                }
                for (name, constant) in constants {
                    let name = name.as_ptr();
                    // SAFETY: the name lives for the call, which copies it.
                    let int = |value| unsafe { crate::sys::$int(raw, name, value) };
                    check(match *constant {
                        Constant::Int(value) => int(value),
                        Constant::Float(value) => int(value.to_bits() as i32),
                        // SAFETY: as above.
                        Constant::Type(of) => unsafe { crate::sys::$dtype(raw, name, of.raw()) },
                        // SAFETY: as above.
                        Constant::Bool(value) => unsafe { crate::sys::$boolean(raw, name, value) },
                    })?;
                }
                Ok(config)
            }
        }

        impl Drop for Config {
            fn drop(&mut self) {
                // SAFETY: the handle is owned and freed once.
                unsafe { crate::sys::$free(self.0) };
            }
        }
    };
}
pub(crate) use kernel_config;

/// From so many values on an input of a kernel for Metal is in the device's memory (MLX 0.32).
pub(crate) const OF_CONSTANT_MEMORY: usize = 8;

/// Launches that are kept for their repetition; a model has a few for each batch size.
const KEPT: usize = 128;

/// The key of a kept launch: launches with equal keys differ in their inputs alone.
#[derive(PartialEq)]
struct Key {
    stream: c_int,
    grid: [i32; 3],
    block: [i32; 3],
    constants: Vec<Constant>,
    inputs: Vec<Kind>,
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

/// The parts of an input that a kernel's text depends on: its type, true for a scalar, and true for
/// the few values that Metal has in its constant memory.
type Kind = (Dtype, bool, bool);

fn kind(input: &Array) -> Kind {
    (input.dtype(), input.shape().is_empty(), input.size() < OF_CONSTANT_MEMORY)
}

/// The launches of a kernel that are kept.
#[derive(Default)]
pub(crate) struct Kept(Vec<(Key, Known)>);

impl Kept {
    /// The outputs of a launch, then the inputs that it writes into. `make` makes it at its first
    /// use.
    pub(crate) fn apply(
        &mut self,
        inputs: &[&Array],
        launch: &Launch<'_>,
        make: impl FnOnce(&VectorArray) -> Result<Known>,
    ) -> Result<Vec<Array>> {
        let stream = stream_index()?;
        let known = self.0.iter().position(|(key, _)| key.is_of(stream, inputs, launch));
        let list = VectorArray::of(inputs)?;
        let known = match known {
            Some(known) => known,
            None => {
                let made = make(&list)?;
                if self.0.len() == KEPT {
                    self.0.remove(0);
                }
                self.0.push((Key::of(stream, inputs, launch), made));
                self.0.len() - 1
            }
        };
        let known = &self.0[known].1;
        // SAFETY: all handles live for the call.
        VectorArray::from_op(|out| unsafe { sys::mlxrs_launch_apply(out, known.0, list.0) })
    }
}

/// A launch that MLX can repeat.
pub(crate) struct Known(sys::mlxrs_launch);

impl Known {
    /// The launch that `call` makes.
    pub(crate) fn new(call: impl FnOnce(*mut sys::mlxrs_launch) -> c_int) -> Result<Known> {
        let mut known = Known(sys::mlxrs_launch { ctx: std::ptr::null_mut() });
        check(call(&mut known.0))?;
        Ok(known)
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once; it may be null.
        unsafe { sys::mlxrs_launch_free(self.0) };
    }
}

/// A list of texts as mlx-c takes it.
pub(crate) struct Strings(pub(crate) sys::mlx_vector_string);

impl Strings {
    pub(crate) fn of(texts: &[&CStr]) -> Strings {
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

/// `text` as C takes it.
pub(crate) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| Error::new(error.to_string()))
}

/// `source` without comments and indentation, where a text is hashed at every launch.
pub(crate) fn bare(source: &str) -> String {
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
