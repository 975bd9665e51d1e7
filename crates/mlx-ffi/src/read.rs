//! Arrays whose values lie in a file, or in several others.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::slice;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::{Array, Device, Dtype, Error, Result, ops, sys};

/// Bytes that a thread reads at a time: enough that handing them out costs nothing, so few that all
/// threads end at about the same time.
const PIECE: usize = 1 << 20;
/// Threads that read one array: a disk wants several requests at once, however few cores there are;
/// more make neither it nor the memory faster.
const THREADS: RangeInclusive<usize> = 4..=8;

/// The memory that the system writes to as it reads.
#[derive(Clone, Copy)]
enum Way {
    /// To where it is wanted.
    Direct,
    /// To a buffer of the thread's own, from which it is copied: a system may refuse to write to
    /// memory that a driver moves between the host and a GPU.
    Copied,
}

impl Array {
    /// The array of `dtype` and `shape` whose values lie in `file` from byte `offset` on, in native
    /// byte order. Several threads read them into the array's own memory; they are never held
    /// twice.
    ///
    /// # Errors
    /// A negative dimension, or a size beyond the address space; what the system says; a file that
    /// ends before the values do; a Bool that is neither 0 nor 1.
    pub fn read(file: &File, offset: u64, shape: &[i32], dtype: Dtype) -> Result<Array> {
        let bytes = bytes_of(shape, dtype)?;
        // The bytes of a Bool are looked at before MLX gets them.
        if bytes == 0 || dtype == Dtype::Bool {
            let mut data = vec![MaybeUninit::new(0); bytes];
            read_all(file, offset, &mut data, Way::Direct).map_err(failed)?;
            // SAFETY: all of them were initialised above, and `MaybeUninit<u8>` is laid out as u8.
            let data = unsafe { slice::from_raw_parts(data.as_ptr().cast::<u8>(), bytes) };
            return Array::from_bytes(data, shape, dtype);
        }
        let moves = cfg!(target_os = "linux") && Device::Gpu.is_available()?;
        let way = if moves { Way::Copied } else { Way::Direct };
        filled(shape, dtype, |memory| read_all(file, offset, memory, way))
    }

    /// The array of `dtype` and `shape` whose values lie in the `segments` of `file`, in turn: each
    /// is where it begins, and its bytes. Nothing else of the file is read.
    ///
    /// # Errors
    /// As [`read`](Self::read); segments of more or fewer bytes than the array has; the type Bool.
    pub fn read_segments(
        file: &File,
        segments: &[(u64, usize)],
        shape: &[i32],
        dtype: Dtype,
    ) -> Result<Array> {
        let bytes = bytes_of(shape, dtype)?;
        let all = segments.iter().try_fold(0_usize, |all, (_, bytes)| all.checked_add(*bytes));
        if all != Some(bytes) || dtype == Dtype::Bool {
            return Err(Error::new(format!(
                "segments of {all:?} bytes are no array of {dtype:?} and shape {shape:?}"
            )));
        }
        let moves = cfg!(target_os = "linux") && Device::Gpu.is_available()?;
        let way = if moves { Way::Copied } else { Way::Direct };
        filled(shape, dtype, |memory| {
            let mut pieces = Vec::with_capacity(segments.len());
            let mut left = memory;
            for (offset, bytes) in segments {
                let (own, rest) = left.split_at_mut(*bytes);
                left = rest;
                pieces.extend(
                    (0..)
                        .zip(own.chunks_mut(PIECE))
                        .map(|(number, piece)| (offset + number * PIECE as u64, piece)),
                );
            }
            let most = pieces.len();
            read_pieces(file, pieces.into_iter(), most, way)
        })
    }

    /// The rows of all `parts`, which are row-major and alike but for their first dimension, in
    /// turn. Several threads copy them, on a CPU.
    ///
    /// # Errors
    /// No parts, or such as do not fit; those of MLX.
    pub fn joined(parts: &[&Array]) -> Result<Array> {
        let misfit = || Error::new(format!("these have no common rows: {parts:?}"));
        let first = parts.first().ok_or_else(misfit)?;
        let [_, rest @ ..] = first.shape() else { return Err(misfit()) };
        let mut rows = 0_i32;
        let mut bytes = Vec::with_capacity(parts.len());
        for part in parts {
            let [own, like @ ..] = part.shape() else { return Err(misfit()) };
            if like != rest || part.dtype() != first.dtype() {
                return Err(misfit());
            }
            rows = rows.checked_add(*own).ok_or_else(misfit)?;
            bytes.push(part.bytes()?);
        }
        let shape = [&[rows], rest].concat();
        if bytes.iter().all(|bytes| bytes.is_empty()) {
            return ops::zeros(&shape, first.dtype());
        }
        filled(&shape, first.dtype(), |memory| {
            let mut pieces = Vec::new();
            let mut left = memory;
            for bytes in bytes {
                let (own, after) = left.split_at_mut(bytes.len());
                pieces.extend(own.chunks_mut(PIECE).zip(bytes.chunks(PIECE)));
                left = after;
            }
            let threads = cores().min(*THREADS.end()).min(pieces.len());
            on_threads(threads, pieces.into_iter(), || {
                |(to, from): (&mut [MaybeUninit<u8>], &[u8])| {
                    to.write_copy_of_slice(from);
                    Ok(())
                }
            })
        })
    }
}

fn failed(error: io::Error) -> Error {
    Error::new(error.to_string())
}

/// The bytes of an array.
///
/// # Errors
/// A negative dimension, or a size beyond the address space.
fn bytes_of(shape: &[i32], dtype: Dtype) -> Result<usize> {
    shape
        .iter()
        .try_fold(dtype.size(), |size, &dim| size.checked_mul(usize::try_from(dim).ok()?))
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(|| Error::new(format!("no array has the shape {shape:?}")))
}

/// An array whose bytes `fill` writes, all of them unless it fails. Nobody else sees the array, or
/// its memory, before.
///
/// # Errors
/// Those of MLX and of `fill`; an array without elements.
fn filled(
    shape: &[i32],
    dtype: Dtype,
    fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<()>,
) -> Result<Array> {
    let bytes = bytes_of(shape, dtype)?;
    if bytes == 0 {
        return Err(Error::new(format!("an array of shape {shape:?} has nothing to be filled")));
    }
    let mut data = std::ptr::null_mut();
    let array = Array::from_op(|out| {
        // SAFETY: `shape` lives for the call, which reads as many sizes as it is told of.
        unsafe {
            sys::mlxrs_array_allocate(out, &mut data, shape.as_ptr(), shape.len(), dtype.raw())
        }
    })?;
    // SAFETY: the allocation has `bytes` bytes by the array's shape and type, which nobody else
    // knows of before this returns, and `array` keeps it as long as the slice is used.
    fill(unsafe { slice::from_raw_parts_mut(data.cast::<MaybeUninit<u8>>(), bytes) })
        .map_err(failed)?;
    Ok(array)
}

/// Fills `memory` from `file`.
fn read_all(file: &File, offset: u64, memory: &mut [MaybeUninit<u8>], way: Way) -> io::Result<()> {
    let count = memory.len().div_ceil(PIECE);
    let pieces = (0..).zip(memory.chunks_mut(PIECE));
    let pieces = pieces.map(|(number, piece)| (offset + number * PIECE as u64, piece));
    read_pieces(file, pieces, count, way)
}

/// Fills pieces of at most [`PIECE`] bytes from `file`; each begins at an offset of its own. There
/// are `count`.
fn read_pieces<'a>(
    file: &File,
    pieces: impl Iterator<Item = (u64, &'a mut [MaybeUninit<u8>])> + Send,
    count: usize,
    way: Way,
) -> io::Result<()> {
    let threads = cores().clamp(*THREADS.start(), *THREADS.end()).min(count);
    on_threads(threads, pieces, || {
        let mut buffer = match way {
            Way::Direct => Vec::new(),
            Way::Copied => vec![MaybeUninit::uninit(); PIECE],
        };
        move |(from, piece): (u64, &mut [MaybeUninit<u8>])| match way {
            Way::Direct => read_piece(file, from, piece),
            Way::Copied => {
                let buffer = &mut buffer[..piece.len()];
                read_piece(file, from, buffer)?;
                piece.copy_from_slice(buffer);
                Ok(())
            }
        }
    })
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Calls what `worker` makes, once for each of so many threads, with each of `pieces`, until one
/// fails.
fn on_threads<T: Send, W: FnMut(T) -> io::Result<()>>(
    threads: usize,
    pieces: impl Iterator<Item = T> + Send,
    worker: impl Fn() -> W + Sync,
) -> io::Result<()> {
    let pieces = Mutex::new(pieces);
    let work = || {
        let mut work = worker();
        loop {
            let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(piece) = next else { return Ok(()) };
            work(piece)?;
        }
    };
    thread::scope(|scope| {
        // A thread that cannot be had leaves its pieces to the others.
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let own = work();
        let joined = others.into_iter().map(|thread| thread.join());
        let panicked = |_| Err(io::Error::other("a thread of several panicked"));
        joined.map(|result| result.unwrap_or_else(panicked)).fold(own, Result::and)
    })
}

fn read_piece(file: &File, offset: u64, mut piece: &mut [MaybeUninit<u8>]) -> io::Result<()> {
    let mut offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    while !piece.is_empty() {
        // SAFETY: the descriptor is open as long as `file` lives; the call writes at most as many
        // bytes as the piece has.
        let count = unsafe {
            libc::pread(file.as_raw_fd(), piece.as_mut_ptr().cast(), piece.len(), offset)
        };
        match usize::try_from(count) {
            Ok(0) => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends early"));
            }
            Ok(count) => {
                piece = &mut piece[count..];
                offset += count as libc::off_t;
            }
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn both_ways_read_the_same() {
        let values: Vec<u8> = (0..3 * PIECE as u32 + 5).map(|at| (at >> 9) as u8).collect();
        let mut file = tempfile::tempfile().expect("a temporary folder");
        file.write_all(&values).expect("a writable file");
        for way in [Way::Direct, Way::Copied] {
            let mut memory = vec![MaybeUninit::new(0); values.len() - 3];
            read_all(&file, 3, &mut memory, way).expect("the file is long enough");
            // SAFETY: all bytes were initialised, with zeros at the latest.
            let read = memory.iter().map(|byte| unsafe { byte.assume_init() });
            assert!(read.eq(values[3..].iter().copied()));
            assert!(read_all(&file, 4, &mut memory, way).is_err(), "one byte more than there is");
        }
    }
}
