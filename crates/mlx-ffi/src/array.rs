//! The array: a lazy value on a device.

mod host;

use std::ffi::c_int;
use std::fmt;

use crate::device_turns::evaluating;
use crate::error::{check, init, take};
use crate::stream::{current, synchronize};
use crate::{Error, Result, sys};

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// Truth value.
    Bool,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// IEEE floating point, 16 bits.
    F16,
    /// Floating point, 32 bits.
    F32,
    /// Floating point, 64 bits; on the CPU only.
    F64,
    /// Brain floating point, 16 bits.
    Bf16,
    /// Complex, two times 32 bits.
    Complex64,
}

impl Dtype {
    /// Each type with mlx-c's number for it, in the order of the enum.
    const RAW: [(Dtype, sys::mlx_dtype); 14] = [
        (Dtype::Bool, sys::MLX_BOOL),
        (Dtype::U8, sys::MLX_UINT8),
        (Dtype::U16, sys::MLX_UINT16),
        (Dtype::U32, sys::MLX_UINT32),
        (Dtype::U64, sys::MLX_UINT64),
        (Dtype::I8, sys::MLX_INT8),
        (Dtype::I16, sys::MLX_INT16),
        (Dtype::I32, sys::MLX_INT32),
        (Dtype::I64, sys::MLX_INT64),
        (Dtype::F16, sys::MLX_FLOAT16),
        (Dtype::F32, sys::MLX_FLOAT32),
        (Dtype::F64, sys::MLX_FLOAT64),
        (Dtype::Bf16, sys::MLX_BFLOAT16),
        (Dtype::Complex64, sys::MLX_COMPLEX64),
    ];

    pub(crate) fn raw(self) -> sys::mlx_dtype {
        Dtype::RAW[self as usize].1
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::U8 | Dtype::I8 => 1,
            Dtype::U16 | Dtype::I16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U32 | Dtype::I32 | Dtype::F32 => 4,
            Dtype::U64 | Dtype::I64 | Dtype::F64 | Dtype::Complex64 => 8,
        }
    }

    /// Returns true for floating-point types of 16 bits.
    pub fn is_half(self) -> bool {
        matches!(self, Dtype::Bf16 | Dtype::F16)
    }

    /// Returns true for real floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, Dtype::F16 | Dtype::F32 | Dtype::F64 | Dtype::Bf16)
    }
}

/// A value on a device: shape, type, and data or the operations that will produce it.
///
/// Dropping it frees its buffer at once unless another array still needs it.
///
/// An allocation that fails on the CPU ends the process: MLX does not look at what it was given.
/// So a size that comes from outside is checked before it becomes a shape.
pub struct Array {
    /// Never empty in an `Array` that has left this module.
    raw: sys::mlx_array,
}

impl Array {
    /// Runs `call` on an empty handle and takes what it stores there. The handle is the guard:
    /// freeing an empty one does nothing.
    pub(crate) fn from_op(call: impl FnOnce(*mut sys::mlx_array) -> c_int) -> Result<Array> {
        init();
        let mut out = Array::empty();
        check(call(&mut out.raw))?;
        out.filled()
    }

    /// The two arrays that `call` fills, or its error.
    pub(crate) fn pair_from_op(
        call: impl FnOnce(*mut sys::mlx_array, *mut sys::mlx_array) -> c_int,
    ) -> Result<(Array, Array)> {
        init();
        let (mut first, mut second) = (Array::empty(), Array::empty());
        check(call(&mut first.raw, &mut second.raw))?;
        Ok((first.filled()?, second.filled()?))
    }

    fn empty() -> Array {
        Array { raw: sys::mlx_array { ctx: std::ptr::null_mut() } }
    }

    /// Constructors that return a handle fail by returning an empty one. MLX multiplies dimensions
    /// without looking for an overflow, as where operands broadcast, and would compute a smaller
    /// array.
    fn filled(self) -> Result<Array> {
        if self.raw.ctx.is_null() {
            return Err(take());
        }
        check_size(self.shape())?;
        Ok(self)
    }

    /// The values as another type.
    pub(crate) fn cast(&self, dtype: Dtype) -> Result<Array> {
        // SAFETY: the input outlives the call; mlx-c only reads it.
        Array::from_op(|out| unsafe { sys::mlx_astype(out, self.raw, dtype.raw(), current()) })
    }

    /// The handle, for the length of a call.
    pub(crate) fn raw(&self) -> sys::mlx_array {
        self.raw
    }

    /// A copy of `bytes` as an array of `dtype` and `shape`, native byte order.
    ///
    /// # Errors
    /// A negative dimension, a shape that does not need exactly `bytes.len()` bytes, or a Bool that
    /// is neither 0 nor 1.
    pub fn from_bytes(bytes: &[u8], shape: &[i32], dtype: Dtype) -> Result<Array> {
        Array::copied(bytes, shape, dtype, false)
    }

    /// An array of f32 values that are read soon and not kept: a CUDA device has them all at once,
    /// where other large arrays come to it by the page. MLX does not count their memory there.
    ///
    /// # Errors
    /// A shape that does not hold exactly `values.len()` values; no memory on the device.
    pub fn passing_f32(values: &[f32], shape: &[i32]) -> Result<Array> {
        Array::copied(as_bytes(values), shape, Dtype::F32, true)
    }

    fn copied(bytes: &[u8], shape: &[i32], dtype: Dtype, soon: bool) -> Result<Array> {
        init();
        let expected = shape
            .iter()
            .try_fold(dtype.size(), |size, &dim| size.checked_mul(usize::try_from(dim).ok()?));
        if expected != Some(bytes.len()) {
            return Err(Error::new(format!(
                "{} bytes given for an array of shape {shape:?} and type {dtype:?}",
                bytes.len()
            )));
        }
        // C++ may assume that a bool is one of the two.
        if dtype == Dtype::Bool && bytes.iter().any(|&byte| byte > 1) {
            return Err(Error::new("a byte of a Bool array is neither 0 nor 1"));
        }
        let rank = c_int::try_from(shape.len()).map_err(|_| Error::new("too many dimensions"))?;
        let mut uploaded = false;
        let mut array = Array::empty();
        let (out, data) = (&mut array.raw, bytes.as_ptr().cast());
        let (dims, type_) = (shape.as_ptr(), dtype.raw());
        // SAFETY: data and shape live for the call, which copies both, and the length was checked
        // above.
        check(unsafe {
            let rank = shape.len();
            sys::mlxrs_array_upload(out, &mut uploaded, data, dims, rank, type_, soon, current())
        })?;
        if uploaded {
            return array.filled();
        }
        // SAFETY: data and shape live for the call, which copies both, bytewise and so at any
        // alignment; the length was checked against the shape above.
        let raw = unsafe {
            sys::mlx_array_new_data(bytes.as_ptr().cast(), shape.as_ptr(), rank, dtype.raw())
        };
        Array { raw }.filled()
    }

    /// An array of f32 values.
    ///
    /// # Errors
    /// A shape that does not hold exactly `values.len()` values.
    pub fn from_f32(values: &[f32], shape: &[i32]) -> Result<Array> {
        Array::from_bytes(as_bytes(values), shape, Dtype::F32)
    }

    /// An array of i32 values.
    ///
    /// # Errors
    /// A shape that does not hold exactly `values.len()` values.
    pub fn from_i32(values: &[i32], shape: &[i32]) -> Result<Array> {
        Array::from_bytes(as_bytes(values), shape, Dtype::I32)
    }

    /// An array of u32 values.
    ///
    /// # Errors
    /// A shape that does not hold exactly `values.len()` values.
    pub fn from_u32(values: &[u32], shape: &[i32]) -> Result<Array> {
        Array::from_bytes(as_bytes(values), shape, Dtype::U32)
    }

    /// A scalar of `dtype`.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn scalar(value: f32, dtype: Dtype) -> Result<Array> {
        init();
        // SAFETY: takes a plain value.
        let raw = unsafe { sys::mlx_array_new_float32(value) };
        let scalar = Array { raw }.filled()?;
        if dtype == Dtype::F32 { Ok(scalar) } else { scalar.cast(dtype) }
    }

    /// Another handle on the same value; the data is shared.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn share(&self) -> Result<Array> {
        // SAFETY: both handles live for the call.
        Array::from_op(|out| unsafe { sys::mlx_array_set(out, self.raw) })
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[i32] {
        // SAFETY: the handle is not empty.
        let rank = unsafe { sys::mlx_array_ndim(self.raw) };
        // SAFETY: the handle is not empty.
        let data = unsafe { sys::mlx_array_shape(self.raw) };
        if rank == 0 || data.is_null() {
            return &[];
        }
        // SAFETY: mlx-c returns a pointer to `rank` dimensions, which belong to the array; nothing
        // assigns to a filled handle, so they stay where they are while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(data, rank) }
    }

    /// The dimensions of an array whose rank is known.
    ///
    /// # Errors
    /// Another rank than `N`.
    pub fn dims<const N: usize>(&self) -> Result<[i32; N]> {
        let shape = self.shape();
        shape.try_into().map_err(|_| {
            Error::new(format!("expected {N} dimensions, found {}: {shape:?}", shape.len()))
        })
    }

    /// Rows of a matrix that has any number of leading dimensions, at most `i32::MAX`; none of a
    /// scalar.
    pub fn rows(&self) -> i32 {
        let Some((_, leading)) = self.shape().split_last() else { return 0 };
        let product = |rows: i32, &dim: &i32| rows.saturating_mul(dim);
        leading.iter().fold(1, product)
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        // SAFETY: the handle is not empty.
        let raw = unsafe { sys::mlx_array_dtype(self.raw) };
        let found = Dtype::RAW.iter().find(|(_, number)| *number == raw);
        found.expect("mlx-c has no types beside those of the table").0
    }

    /// The number of elements.
    pub fn size(&self) -> usize {
        // SAFETY: the handle is not empty.
        unsafe { sys::mlx_array_size(self.raw) }
    }

    /// The bytes that the elements take.
    pub fn nbytes(&self) -> usize {
        // SAFETY: the handle is not empty.
        unsafe { sys::mlx_array_nbytes(self.raw) }
    }

    /// Computes the value and waits for it.
    ///
    /// # Errors
    /// Failures of any operation that the value needs, or of one queued before by
    /// [`async_eval`](crate::async_eval). MLX reports a failure once: an array whose computation
    /// failed holds arbitrary bytes from then on, and reads of it succeed. So it is dropped, with
    /// all that was queued together with it.
    pub fn eval(&self) -> Result<()> {
        let evaluated = {
            let _evaluating = evaluating();
            // SAFETY: the handle is not empty.
            settle(unsafe { sys::mlx_array_eval(self.raw) })
        };
        // SAFETY: the handle is not empty.
        unsafe { sys::mlxrs_wait_for_upload(self.raw) };
        evaluated
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once; an empty one is a no-op.
        unsafe { sys::mlx_array_free(self.raw) };
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({:?}, {:?})", self.shape(), self.dtype())
    }
}

/// Turns the status of a call that runs kernels into a result. MLX keeps a failure for the stream
/// and for the value: what is left of it would be reported to the next call that waits.
pub(crate) fn settle(status: c_int) -> Result<()> {
    let result = check(status);
    if result.is_err() {
        // The failure is known already.
        let _ = synchronize();
    }
    result
}

/// The bytes of plain numbers.
fn as_bytes<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: callers pass floats and whole numbers only, which have no padding; the slice covers
    // exactly the bytes of `values` and borrows them.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Refuses a shape that MLX would miscount: it multiplies the dimensions without looking for an
/// overflow, and lets `reshape` have -2. A dimension of -1 is left to MLX.
pub(crate) fn check_size(shape: &[i32]) -> Result<()> {
    let size = shape.iter().try_fold(LARGEST_ELEMENT, |size, &dim| match dim {
        -1 => Some(size),
        _ => size.checked_mul(usize::try_from(dim).ok()?),
    });
    // Strides and offsets are signed.
    if size.is_some_and(|size| isize::try_from(size).is_ok()) {
        return Ok(());
    }
    Err(Error::new(format!("no array can have the shape {shape:?}")))
}

/// Bytes of the largest type.
const LARGEST_ELEMENT: usize = 8;
