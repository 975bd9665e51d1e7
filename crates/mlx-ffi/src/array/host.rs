//! Elements of arrays in the memory of the host.

use half::{bf16, f16};

use super::{Array, Dtype, as_bytes, check, current, sys, take};
use crate::device_turns::has_cuda;
use crate::{Error, Result};

impl Array {
    /// A copy of `values`, row by row, rounded to `dtype`, which is one of F32, F16 and BF16.
    ///
    /// # Errors
    /// Another type; otherwise those of [`from_bytes`](Self::from_bytes).
    pub fn from_floats(values: &[f32], shape: &[i32], dtype: Dtype) -> Result<Array> {
        let halves = |half: fn(f32) -> u16| -> Result<Array> {
            let halves: Vec<u16> = values.iter().map(|value| half(*value)).collect();
            Array::from_bytes(as_bytes(&halves), shape, dtype)
        };
        match dtype {
            Dtype::F32 => Array::from_f32(values, shape),
            Dtype::F16 => halves(|value| f16::from_f32(value).to_bits()),
            Dtype::Bf16 => halves(|value| bf16::from_f32(value).to_bits()),
            _ => Err(Error::new(format!("floats do not become {dtype:?}"))),
        }
    }

    /// The value of a one-element array, as f32.
    ///
    /// # Errors
    /// More or fewer elements; what failed while computing it.
    pub fn item_f32(&self) -> Result<f32> {
        self.check_single()?;
        Ok(self.to_vec_f32()?[0])
    }

    /// The value of a one-element array, as u32.
    ///
    /// # Errors
    /// More or fewer elements; what failed while computing it.
    pub fn item_u32(&self) -> Result<u32> {
        self.check_single()?;
        Ok(self.to_vec_u32()?[0])
    }

    /// All elements in row-major order, converted to f32; waits for the device.
    ///
    /// # Errors
    /// A failure while computing the value.
    pub fn to_vec_f32(&self) -> Result<Vec<f32>> {
        if let Some(values) = self.widened()? {
            return Ok(values);
        }
        let array = self.host_copy(Dtype::F32)?;
        // SAFETY: the array is f32, evaluated and contiguous.
        array.copy_out(|raw| unsafe { sys::mlx_array_data_float32(raw) })
    }

    /// Those of 16 bits in the memory of a CUDA device: CUDA takes a hundredth of a second to load
    /// MLX's conversions, in each process.
    fn widened(&self) -> Result<Option<Vec<f32>>> {
        if !has_cuda() || self.size() == 0 {
            return Ok(None);
        }
        let widen: fn(u16) -> f32 = match self.dtype() {
            Dtype::F16 => |bits| f16::from_bits(bits).to_f32(),
            Dtype::Bf16 => |bits| bf16::from_bits(bits).to_f32(),
            _ => return Ok(None),
        };
        let array = self.host_copy(self.dtype())?;
        let halves = array.downloaded::<u16>(array.size())?;
        Ok(halves.map(|halves| halves.into_iter().map(widen).collect()))
    }

    /// All elements in row-major order, converted to u32; waits for the device.
    ///
    /// # Errors
    /// A failure while computing the value.
    pub fn to_vec_u32(&self) -> Result<Vec<u32>> {
        let array = self.host_copy(Dtype::U32)?;
        // SAFETY: the array is u32, evaluated and contiguous.
        array.copy_out(|raw| unsafe { sys::mlx_array_data_uint32(raw) })
    }

    /// Lets `read` look at the elements' bytes, in row-major order and as the host has them; waits
    /// for the device.
    ///
    /// # Errors
    /// A failure while computing the value.
    pub fn read_bytes<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let array = self.host_copy(self.dtype())?;
        match array.downloaded::<u8>(array.nbytes())? {
            Some(bytes) => Ok(read(&bytes)),
            None => array.bytes().map(read),
        }
    }

    fn check_single(&self) -> Result<()> {
        if self.size() == 1 {
            return Ok(());
        }
        Err(Error::new(format!("expected one element, found an array of shape {:?}", self.shape())))
    }

    /// The value as `dtype`, evaluated and row-contiguous.
    fn host_copy(&self, dtype: Dtype) -> Result<Array> {
        let typed = if self.dtype() == dtype { self.share()? } else { self.cast(dtype)? };
        typed.eval()?;
        let mut row_contiguous = false;
        // SAFETY: the array is evaluated, which its flags require.
        check(unsafe { sys::_mlx_array_is_row_contiguous(&mut row_contiguous, typed.raw) })?;
        if row_contiguous {
            return Ok(typed);
        }
        let packed = Array::from_op(|out| {
            // SAFETY: the input outlives the call.
            unsafe { sys::mlx_contiguous(out, typed.raw, false, current()) }
        })?;
        packed.eval()?;
        Ok(packed)
    }

    /// The bytes of a row-major array, once it is evaluated. For a GPU's memory that the host sees
    /// too.
    ///
    /// # Errors
    /// Those of MLX; another layout.
    pub(crate) fn bytes(&self) -> Result<&[u8]> {
        self.eval()?;
        let mut is_row_major = false;
        // SAFETY: the array is evaluated, and the out-pointer is ours.
        check(unsafe { sys::_mlx_array_is_row_contiguous(&mut is_row_major, self.raw) })?;
        if !is_row_major {
            return Err(Error::new(format!("{self:?} is not row-major")));
        }
        // SAFETY: the array is evaluated; MLX does not look at its type.
        let data = unsafe { sys::mlx_array_data_uint8(self.raw) };
        match self.nbytes() {
            0 => Ok(&[]),
            _ if data.is_null() => Err(take()),
            // SAFETY: the elements of a row-major array lie side by side, and `self` keeps them.
            // What operations write into in place are caches alone, whose bytes nobody asks for.
            size => Ok(unsafe { std::slice::from_raw_parts(data, size) }),
        }
    }

    /// The bytes of a row-major array, which is evaluated, as `count` values; `None` where it does
    /// not lie in the memory of a CUDA device. Values of `T` may be of any bytes.
    fn downloaded<T: Copy>(&self, count: usize) -> Result<Option<Vec<T>>> {
        debug_assert_eq!(count * size_of::<T>(), self.nbytes());
        let mut values: Vec<T> = Vec::with_capacity(count);
        let mut done = false;
        // SAFETY: there is room for all bytes of the array, which is evaluated.
        check(unsafe {
            sys::mlxrs_array_download(&mut done, self.raw, values.as_mut_ptr().cast(), current())
        })?;
        if !done {
            return Ok(None);
        }
        // SAFETY: all of them were written.
        unsafe { values.set_len(count) };
        Ok(Some(values))
    }

    /// Copies `size()` elements. Where the host sees them, `data` tells where they are.
    fn copy_out<T: Copy>(&self, data: impl FnOnce(sys::mlx_array) -> *const T) -> Result<Vec<T>> {
        let size = self.size();
        if size == 0 {
            return Ok(Vec::new());
        }
        if let Some(values) = self.downloaded(size)? {
            return Ok(values);
        }
        let data = data(self.raw);
        if data.is_null() {
            return Err(take());
        }
        // SAFETY: `data` points to the `size` elements of an evaluated row-contiguous array of
        // this type, which `self` keeps alive while they are copied.
        Ok(unsafe { std::slice::from_raw_parts(data, size) }.to_vec())
    }
}
