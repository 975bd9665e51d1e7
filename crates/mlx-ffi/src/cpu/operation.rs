//! A Rust function as an operation of MLX's graph.

use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;

use crate::stream::current;
use crate::vector::VectorArray;
use crate::{Array, Dtype, Result, sys};

/// An input when the operation runs: any strides, but the last dimension is contiguous.
pub(super) struct View<'a> {
    /// From the first element to the end of the last.
    pub(super) bytes: &'a [u8],
    /// In elements.
    strides: &'a [i64],
}

impl View<'_> {
    /// The first `N` strides, which are not negative.
    pub(super) fn strides<const N: usize>(&self) -> [usize; N] {
        std::array::from_fn(|i| self.strides[i] as usize)
    }

    /// The strides of all dimensions but the last.
    pub(super) fn leading(&self) -> &[i64] {
        self.strides.split_last().map_or(&[], |(_, leading)| leading)
    }
}

/// An array's type, its shape, and its dimensions from the outermost in memory to the innermost.
pub(super) struct Outcome<'a> {
    pub(super) dtype: Dtype,
    pub(super) shape: &'a [i32],
    pub(super) order: &'a [c_int],
}

/// An operation that `compute` does, on the thread of the current stream: from the inputs to the
/// bytes of the result, each of which it must write.
///
/// # Errors
/// A stream of the GPU.
pub(super) fn operation<F>(inputs: &[&Array], outcome: Outcome<'_>, compute: F) -> Result<Array>
where
    F: Fn(&[View<'_>], &mut [u8]) -> Result<(), cpu_kernels::Error> + Send + Sync + 'static,
{
    let inputs = VectorArray::of(inputs)?;
    let Outcome { dtype, shape, order } = outcome;
    assert!(shape.len() == order.len(), "each dimension has its place");
    let result = sys::mlxrs_cpu_result {
        dtype: dtype.raw(),
        ndim: shape.len() as c_int,
        shape: shape.as_ptr(),
        order: order.as_ptr(),
    };
    let state = Box::into_raw(Box::new(compute)).cast::<c_void>();
    let kernel =
        sys::mlxrs_cpu_kernel_of { compute: Some(call::<F>), state, drop: Some(free::<F>) };
    // SAFETY: the inputs outlive the call, which takes shares of them; `result` points to as many
    // dimensions as it says. The state is an `F`, which `call` and `free` expect; the call owns it
    // from here on, and an `F` may be used and dropped on any thread.
    Array::from_op(|out| unsafe {
        sys::mlxrs_cpu_operation(out, inputs.0, result, kernel, current())
    })
}

extern "C" fn free<F>(state: *mut c_void) {
    // SAFETY: the state is a box of an `F`, and its owner drops it once.
    drop(unsafe { Box::from_raw(state.cast::<F>()) });
}

extern "C" fn call<F>(
    state: *const c_void,
    inputs: *const sys::mlxrs_cpu_view,
    count: usize,
    out: *const sys::mlxrs_cpu_view,
    message: *mut c_char,
    capacity: usize,
) -> c_int
where
    F: Fn(&[View<'_>], &mut [u8]) -> Result<(), cpu_kernels::Error>,
{
    let computed = catch_unwind(|| {
        // SAFETY: the state is an `F` that lives for the call.
        let compute = unsafe { &*state.cast::<F>() };
        let inputs = match count {
            0 => &[][..],
            // SAFETY: the shim passes `count` views.
            _ => unsafe { std::slice::from_raw_parts(inputs, count) },
        };
        // SAFETY: the buffers of the shim's views stay, and nobody writes to those of inputs.
        let views: Vec<View<'_>> = inputs.iter().map(|input| unsafe { view(input) }).collect();
        // SAFETY: the shim passes a view.
        let out = unsafe { &*out };
        // SAFETY: the result is dense and not empty, and nobody else knows of it yet. Its bytes are
        // written by the kernel before anyone reads them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(out.data.cast(), out.size) };
        compute(&views, bytes)
    });
    let text = match computed {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the CPU kernel failed unexpectedly".to_owned(),
    };
    // SAFETY: `message` has room for `capacity` zero bytes.
    unsafe { super::write_message(&text, message, capacity) };
    1
}

/// # Safety
/// `raw` describes a buffer and dimensions that stay and are not written to during `'a`.
unsafe fn view<'a>(raw: &sys::mlxrs_cpu_view) -> View<'a> {
    let ndim = raw.ndim as usize;
    // SAFETY: the caller's promise.
    let strides = unsafe { slice(raw.strides, ndim) };
    // SAFETY: the caller's promise.
    View { bytes: unsafe { slice(raw.data.cast_const().cast(), raw.size) }, strides }
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
