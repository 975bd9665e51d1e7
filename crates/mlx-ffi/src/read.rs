//! Arrays whose values lie in a file.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::slice;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::{Array, Dtype, Error, Result, sys};

/// Bytes that a thread reads at a time: enough that handing them out costs nothing, so few that all
/// threads end at about the same time.
const PIECE: usize = 1 << 20;
/// Threads that read one array: a disk wants several requests at once, however few cores there are;
/// more make neither it nor the memory faster.
const THREADS: RangeInclusive<usize> = 4..=8;

impl Array {
    /// The array of `dtype` and `shape` whose values lie in `file` from byte `offset` on, in native
    /// byte order. Several threads read them, straight into the array's own memory.
    ///
    /// # Errors
    /// A negative dimension, or a size beyond the address space; what the system says; a file that
    /// ends before the values do; a Bool that is neither 0 nor 1.
    pub fn read(file: &File, offset: u64, shape: &[i32], dtype: Dtype) -> Result<Array> {
        let bytes = shape
            .iter()
            .try_fold(dtype.size(), |size, &dim| size.checked_mul(usize::try_from(dim).ok()?))
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(|| Error::new(format!("no array has the shape {shape:?}")))?;
        let failed = |error: io::Error| Error::new(error.to_string());
        // The bytes of a Bool are looked at before MLX gets them.
        if bytes == 0 || dtype == Dtype::Bool {
            let mut data = vec![MaybeUninit::new(0); bytes];
            read_all(file, offset, &mut data).map_err(failed)?;
            // SAFETY: all of them were initialised above, and `MaybeUninit<u8>` is laid out as u8.
            let data = unsafe { slice::from_raw_parts(data.as_ptr().cast::<u8>(), bytes) };
            return Array::from_bytes(data, shape, dtype);
        }
        let mut data = std::ptr::null_mut();
        let array = Array::from_op(|out| {
            // SAFETY: `shape` lives for the call, which reads as many sizes as it is told of.
            unsafe {
                sys::mlxrs_array_allocate(out, &mut data, shape.as_ptr(), shape.len(), dtype.raw())
            }
        })?;
        // SAFETY: the allocation has `bytes` bytes, which nobody else knows of until this returns;
        // the array keeps them alive.
        let memory = unsafe { slice::from_raw_parts_mut(data.cast::<MaybeUninit<u8>>(), bytes) };
        // Where it fails, the array goes unread.
        read_all(file, offset, memory).map_err(failed)?;
        Ok(array)
    }
}

/// Fills `memory` from `file`.
fn read_all(file: &File, offset: u64, memory: &mut [MaybeUninit<u8>]) -> io::Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.clamp(*THREADS.start(), *THREADS.end()).min(memory.len().div_ceil(PIECE));
    let pieces = Mutex::new((0..).zip(memory.chunks_mut(PIECE)));
    let read = || {
        loop {
            let next = pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, piece)) = next else { return Ok(()) };
            read_piece(file, offset + number * PIECE as u64, piece)?;
        }
    };
    thread::scope(|scope| {
        // A thread that cannot be had leaves its pieces to the others.
        let start = |_| thread::Builder::new().spawn_scoped(scope, read).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let own = read();
        let joined = others.into_iter().map(|thread| thread.join());
        let panicked = |_| Err(io::Error::other("a reading thread panicked"));
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
