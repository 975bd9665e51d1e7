//! Functions of arrays that MLX traces once and fuses.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{check, init, take};
use crate::vector::VectorArray;
use crate::{Array, Error, Result, sys};

type Function = dyn Fn(&[Array]) -> Result<Vec<Array>>;

thread_local! {
    /// What failed inside the function; MLX itself only learns that something did.
    static FAILURE: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// A compiled function. On a CPU, MLX builds it with the system's C++ compiler at its first call.
pub struct Compiled {
    compiled: Closure,
}

impl Compiled {
    /// Compiles `function`, which must depend on its arguments alone. With `shapeless`, one trace
    /// serves every shape.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn new(
        function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static,
        shapeless: bool,
    ) -> Result<Compiled> {
        init();
        let payload: Box<Box<Function>> = Box::new(Box::new(function));
        // SAFETY: the payload is a leaked box that `release` frees exactly once; `call` and
        // `release` do not unwind.
        let closure = Closure(unsafe {
            sys::mlx_closure_new_func_payload(
                Some(call),
                Box::into_raw(payload).cast(),
                Some(release),
            )
        });
        if closure.0.ctx.is_null() {
            return Err(take());
        }
        // SAFETY: creates an empty handle.
        let mut compiled = Closure(unsafe { sys::mlx_closure_new() });
        // SAFETY: both handles live for the call; MLX keeps its own reference to the closure.
        check(unsafe { sys::mlx_compile(&mut compiled.0, closure.0, shapeless) })?;
        Ok(Compiled { compiled })
    }

    /// Applies the function.
    ///
    /// # Errors
    /// What failed in the function or in MLX.
    pub fn call(&self, arguments: &[&Array]) -> Result<Vec<Array>> {
        let arguments = VectorArray::of(arguments)?;
        // SAFETY: all handles live for the call.
        let results = VectorArray::from_op(|out| unsafe {
            sys::mlx_closure_apply(out, self.compiled.0, arguments.0)
        });
        let failure = FAILURE.try_with(|failure| failure.borrow_mut().take()).ok().flatten();
        results.map_err(|error| failure.unwrap_or(error))
    }
}

struct Closure(sys::mlx_closure);

impl Drop for Closure {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_closure_free(self.0) };
    }
}

extern "C" fn call(
    out: *mut sys::mlx_vector_array,
    arguments: sys::mlx_vector_array,
    payload: *mut c_void,
) -> c_int {
    let body = || -> Result<()> {
        // Borrowed from the caller, so never dropped here.
        let list = std::mem::ManuallyDrop::new(VectorArray(arguments));
        // SAFETY: the payload is the box leaked in `new`, alive as long as the closure.
        let function = unsafe { &*payload.cast::<Box<Function>>() };
        let results = function(&list.to_arrays()?)?;
        let results = VectorArray::of(&results.iter().collect::<Vec<_>>())?;
        // SAFETY: `out` is mlx-c's own list, alive for the call.
        check(unsafe { sys::mlx_vector_array_set(out, results.0) })
    };
    // A panic must not cross into C++.
    let result = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|payload| Err(panicked(payload.as_ref())));
    match result {
        Ok(()) => 0,
        Err(error) => {
            // Without the thread's locals MLX's own text has to do.
            let _ = FAILURE.try_with(|failure| *failure.borrow_mut() = Some(error));
            1
        }
    }
}

fn panicked(payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Error::new(format!("the compiled function panicked: {}", text.unwrap_or("no message")))
}

extern "C" fn release(payload: *mut c_void) {
    // SAFETY: the payload is the box leaked in `new`; mlx-c calls this once.
    let payload = unsafe { Box::from_raw(payload.cast::<Box<Function>>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
}
