//! A Rust function as an operation of MLX's graph.

use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;

use crate::stream::current;
use crate::vector::VectorArray;
use crate::{Array, Dtype, Error, Result, sys};

/// An input when the operation runs: any strides, but the last dimension is contiguous.
pub(crate) struct View<'a> {
    /// From the first element to the end of the last.
    pub(crate) bytes: &'a [u8],
    /// In elements.
    strides: &'a [i64],
}

/// An output likewise.
pub(super) struct ViewMut<'a> {
    /// From the first element to the end of the last.
    pub(super) bytes: &'a mut [u8],
    /// In elements.
    strides: &'a [i64],
}

impl<'a> View<'a> {
    /// The first `N` strides, which are not negative.
    pub(super) fn strides<const N: usize>(&self) -> [usize; N] {
        firsts(self.strides)
    }

    /// The bytes from column `first` on.
    pub(super) fn from(&self, first: usize, dtype: cpu_kernels::Dtype) -> &'a [u8] {
        self.bytes.get(first * dtype.size()..).unwrap_or(&[])
    }

    /// The strides of all dimensions but the last.
    pub(super) fn leading(&self) -> &[i64] {
        self.strides.split_last().map_or(&[], |(_, leading)| leading)
    }
}

impl ViewMut<'_> {
    /// The first `N` strides, which are not negative.
    pub(super) fn strides<const N: usize>(&self) -> [usize; N] {
        firsts(self.strides)
    }
}

/// Bytes as F32.
pub(super) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + Clone {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}

/// Returns true when `strides` are those of the first dimensions of a row-major array of `shape`.
/// The stride of a dimension of one entry says nothing.
pub(super) fn are_row_major<const N: usize>(strides: [usize; N], shape: &[usize]) -> bool {
    let behind = |at: usize| shape[at + 1..].iter().product::<usize>();
    (0..N).all(|at| shape[at] == 1 || strides[at] == behind(at))
}

fn firsts<const N: usize>(strides: &[i64]) -> [usize; N] {
    std::array::from_fn(|i| strides[i] as usize)
}

/// An array's type, its shape, and its dimensions from the outermost in memory to the innermost;
/// `None`: row-major.
pub(crate) struct Outcome<'a> {
    pub(super) dtype: Dtype,
    pub(super) shape: &'a [i32],
    pub(super) order: Option<&'a [c_int]>,
}

impl Outcome<'_> {
    pub(crate) fn row_major(dtype: Dtype, shape: &[i32]) -> Outcome<'_> {
        Outcome { dtype, shape, order: None }
    }
}

/// How an operation takes its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inputs {
    /// In any layout whose last dimension is contiguous.
    Strided,
    /// Row-major.
    RowMajor,
}

/// An operation that `compute` does, on the thread of the current stream: from the inputs to the
/// bytes of the result, each of which it must write.
///
/// # Errors
/// A stream of the GPU.
pub(crate) fn operation<F>(
    inputs: &[&Array],
    layout: Inputs,
    outcome: Outcome<'_>,
    compute: F,
) -> Result<Array>
where
    F: Fn(&[View<'_>], &mut [u8]) -> Result<()> + Send + Sync + 'static,
{
    let compute = move |inputs: &[View<'_>], outputs: &mut [ViewMut<'_>]| match outputs {
        // What was queued behind it runs all the same, and may take the result for indices.
        [out] => compute(inputs, out.bytes).inspect_err(|_| out.bytes.fill(0)),
        _ => Err(Error::new("an operation of one result has another number of them")),
    };
    let [out] = in_place(inputs, layout, &[], outcome, compute)?;
    Ok(out)
}

/// An operation on the CPU that also writes into those inputs whose indices are `written`, in any
/// layout whose last dimension is contiguous: the result, then these as they are afterwards. They
/// share the buffers of the inputs, which must not be read where they are written. `compute` gets
/// the other inputs, and all of these outputs.
///
/// # Errors
/// A stream of the GPU.
pub(super) fn in_place<F, const N: usize>(
    inputs: &[&Array],
    layout: Inputs,
    written: &[c_int],
    outcome: Outcome<'_>,
    compute: F,
) -> Result<[Array; N]>
where
    F: Fn(&[View<'_>], &mut [ViewMut<'_>]) -> Result<()> + Send + Sync + 'static,
{
    let inputs = VectorArray::of(inputs)?;
    let Outcome { dtype, shape, order } = outcome;
    let order = order.map_or_else(|| (0..shape.len() as c_int).collect(), <[c_int]>::to_vec);
    assert!(shape.len() == order.len(), "each dimension has its place");
    let form = sys::mlxrs_cpu_form {
        dtype: dtype.raw(),
        ndim: shape.len() as c_int,
        shape: shape.as_ptr(),
        order: order.as_ptr(),
        row_major: layout == Inputs::RowMajor,
        written: written.as_ptr(),
        written_count: written.len(),
    };
    let state = Box::into_raw(Box::new(compute)).cast::<c_void>();
    let kernel = sys::mlxrs_cpu_kernel { compute: Some(call::<F>), state, drop: Some(free::<F>) };
    // SAFETY: the inputs outlive the call, which takes shares of them; `form` points to as many
    // dimensions and indices as it says. The state is an `F`, which `call` and `free` expect; the
    // call owns it from here on, and an `F` may be used and dropped on any thread.
    let outputs = VectorArray::from_op(|out| unsafe {
        sys::mlxrs_cpu_operation(out, inputs.0, form, kernel, current())
    })?;
    <[Array; N]>::try_from(outputs)
        .map_err(|outputs| Error::new(format!("an operation gave {} results", outputs.len())))
}

extern "C" fn free<F>(state: *mut c_void) {
    // SAFETY: the state is a box of an `F`, and its owner drops it once.
    drop(unsafe { Box::from_raw(state.cast::<F>()) });
}

extern "C" fn call<F>(
    state: *const c_void,
    inputs: *const sys::mlxrs_cpu_view,
    count: usize,
    outputs: *const sys::mlxrs_cpu_view,
    output_count: usize,
    message: *mut c_char,
    capacity: usize,
) -> c_int
where
    F: Fn(&[View<'_>], &mut [ViewMut<'_>]) -> Result<()>,
{
    let computed = catch_unwind(|| {
        // SAFETY: the state is an `F` that lives for the call.
        let compute = unsafe { &*state.cast::<F>() };
        // SAFETY: the shim passes as many views as it says.
        let (inputs, outputs) = unsafe { (slice(inputs, count), slice(outputs, output_count)) };
        // SAFETY: the buffers of the shim's views stay, and nobody writes to those of inputs.
        let inputs: Vec<View<'_>> = inputs.iter().map(|input| unsafe { view(input) }).collect();
        // SAFETY: nobody else knows of the result yet, whose bytes are written before anyone reads
        // them; those that are written in place are not among the inputs, are arrays of their own,
        // and are read by tasks of this thread alone.
        let mut outputs: Vec<ViewMut<'_>> =
            outputs.iter().map(|output| unsafe { view_mut(output) }).collect();
        compute(&inputs, &mut outputs)
    });
    let text = match computed {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the CPU kernel failed unexpectedly".to_owned(),
    };
    let length = text.len().min(capacity.saturating_sub(1));
    // SAFETY: `message` has room for `capacity` zero bytes; this fills all but the last at most.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), message, length) };
    1
}

/// # Safety
/// `raw` describes a buffer and dimensions that stay and are not written to during `'a`.
unsafe fn view<'a>(raw: &sys::mlxrs_cpu_view) -> View<'a> {
    // SAFETY: the caller's promise.
    let strides = unsafe { slice(raw.strides, raw.ndim as usize) };
    // SAFETY: the caller's promise.
    View { bytes: unsafe { slice(raw.data.cast_const().cast(), raw.size) }, strides }
}

/// # Safety
/// `raw` describes a buffer that stays and is used by nobody else during `'a`, and dimensions that
/// stay.
unsafe fn view_mut<'a>(raw: &sys::mlxrs_cpu_view) -> ViewMut<'a> {
    // SAFETY: the caller's promise.
    let strides = unsafe { slice(raw.strides, raw.ndim as usize) };
    let bytes = match raw.size {
        0 => &mut [][..],
        // SAFETY: the caller's promise.
        size => unsafe { std::slice::from_raw_parts_mut(raw.data.cast(), size) },
    };
    ViewMut { bytes, strides }
}

/// # Safety
/// `data` points to `count` elements that stay and are not written to, unless there are none.
unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data, count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_refuses_is_the_error_of_the_evaluation() -> Result<()> {
        let x = Array::from_f32(&[1.0, 2.0], &[2])?;
        for text in ["no such row", &"long ".repeat(100)] {
            let text = text.to_owned();
            let outcome = Outcome::row_major(Dtype::F32, &[2]);
            let refused = text.clone();
            let made = operation(&[&x], Inputs::Strided, outcome, move |_, _| {
                Err(Error::new(refused.clone()))
            })?;
            let error = made.eval().expect_err("refused").to_string();
            assert!(error.len() < 256 && text.starts_with(&error), "{error}");
            assert_eq!(x.to_vec_f32()?, [1.0, 2.0]);
        }
        Ok(())
    }

    #[test]
    fn what_is_written_in_place_is_the_input_afterwards() -> Result<()> {
        let x = Array::from_f32(&[1.0, 2.0, 3.0], &[3])?;
        let buffer = Array::from_f32(&[0.0; 3], &[3])?;
        let outcome = Outcome::row_major(Dtype::F32, &[3]);
        let [copy, buffer] =
            in_place(&[&buffer, &x], Inputs::Strided, &[0], outcome, |inputs, outputs| {
                let [x] = inputs else { return Err(Error::new("one input is left")) };
                outputs.iter_mut().for_each(|output| output.bytes.copy_from_slice(x.bytes));
                Ok(())
            })?;
        assert_eq!(buffer.to_vec_f32()?, [1.0, 2.0, 3.0]);
        assert_eq!(copy.to_vec_f32()?, [1.0, 2.0, 3.0]);
        Ok(())
    }
}
