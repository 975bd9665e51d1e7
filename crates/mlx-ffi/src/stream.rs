//! Devices and the stream that a thread's operations go to.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_int};
use std::sync::{Mutex, Once, PoisonError, RwLockWriteGuard, mpsc};
use std::thread;

use crate::device_turns::{self, between_evaluations};
use crate::error::{check, init, take};
use crate::{Error, Result, sys};

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    Cpu,
    /// The graphics processor: Metal or CUDA, whichever MLX was built for.
    Gpu,
}

/// A device, as MLX reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `cpu`, `metal` or `cuda`.
    pub backend: &'static str,
    /// The device's own name, or the architecture where it has none.
    pub name: String,
    /// The architecture of its processor, such as `applegpu_g13g` for an M1; `None` on a CPU.
    pub architecture: Option<String>,
    /// Bytes of memory on the device, where MLX knows.
    pub memory_size: Option<u64>,
    /// Bytes that arrays should stay within on Metal, and that may be wired at most.
    pub recommended_working_set: Option<u64>,
    /// The major number of what a CUDA device can compute, 9 for Hopper.
    pub compute_capability: Option<u64>,
}

impl Device {
    /// Returns true when the machine has one and this build of MLX can use it.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn is_available(self) -> Result<bool> {
        let handle = DeviceHandle::new(self)?;
        let mut available = false;
        // SAFETY: the out-pointer and the device live for the call.
        check(unsafe { sys::mlx_device_is_available(&mut available, handle.0) })?;
        Ok(available)
    }

    /// How many of them this process sees.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn count(self) -> Result<usize> {
        init();
        let mut count = 0;
        // SAFETY: the out-pointer lives for the call.
        check(unsafe { sys::mlx_device_count(&mut count, self.raw()) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The GPU where there is one, else the CPU.
    ///
    /// # Errors
    /// Those of MLX.
    pub fn best() -> Result<Device> {
        Ok(if Device::Gpu.is_available()? { Device::Gpu } else { Device::Cpu })
    }

    /// The device, as MLX reports it.
    ///
    /// # Errors
    /// Those of MLX; a device that is not there.
    pub fn info(self) -> Result<DeviceInfo> {
        if !self.is_available()? {
            return Err(Error::new(format!("no {self:?} device is available")));
        }
        let handle = DeviceHandle::new(self)?;
        // SAFETY: creates an empty handle.
        let mut info = InfoHandle(unsafe { sys::mlx_device_info_new() });
        // SAFETY: both handles live for the call.
        check(unsafe { sys::mlx_device_info_get(&mut info.0, handle.0) })?;
        let name = ["device_name", "architecture"].iter().find_map(|key| info.string(key));
        let architecture = (self == Device::Gpu).then(|| info.string("architecture")).flatten();
        Ok(DeviceInfo {
            backend: self.backend()?,
            architecture,
            name: name.unwrap_or_else(|| format!("{self:?}").to_lowercase()),
            memory_size: ["memory_size", "total_memory"].iter().find_map(|key| info.size(key)),
            compute_capability: info.size("compute_capability_major"),
            recommended_working_set: info.size("max_recommended_working_set_size"),
        })
    }

    fn backend(self) -> Result<&'static str> {
        if self == Device::Cpu {
            return Ok("cpu");
        }
        let mut metal = false;
        // SAFETY: the out-pointer lives for the call.
        check(unsafe { sys::mlx_metal_is_available(&mut metal) })?;
        Ok(if metal { "metal" } else { "cuda" })
    }

    fn raw(self) -> sys::mlx_device_type {
        match self {
            Device::Cpu => sys::MLX_CPU,
            Device::Gpu => sys::MLX_GPU,
        }
    }
}

/// An owned device handle.
struct DeviceHandle(sys::mlx_device);

impl DeviceHandle {
    fn new(device: Device) -> Result<Self> {
        init();
        // SAFETY: takes plain values.
        let handle = unsafe { sys::mlx_device_new_type(device.raw(), 0) };
        if handle.ctx.is_null() { Err(take()) } else { Ok(DeviceHandle(handle)) }
    }
}

impl Drop for DeviceHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_device_free(self.0) };
    }
}

struct InfoHandle(sys::mlx_device_info);

impl InfoHandle {
    fn has(&self, key: &CStr, wants_string: bool) -> bool {
        let (mut exists, mut is_string) = (false, false);
        // SAFETY: the out-pointer, the handle and the key live for the call.
        let found = unsafe { sys::mlx_device_info_has_key(&mut exists, self.0, key.as_ptr()) };
        if check(found).is_err() || !exists {
            return false;
        }
        // SAFETY: as above.
        let kind = unsafe { sys::mlx_device_info_is_string(&mut is_string, self.0, key.as_ptr()) };
        check(kind).is_ok() && is_string == wants_string
    }

    fn string(&self, key: &str) -> Option<String> {
        let key = CString::new(key).ok()?;
        let mut value = std::ptr::null();
        if !self.has(&key, true) {
            return None;
        }
        // SAFETY: the out-pointer, the handle and the key live for the call.
        let status = unsafe { sys::mlx_device_info_get_string(&mut value, self.0, key.as_ptr()) };
        if check(status).is_err() || value.is_null() {
            return None;
        }
        // SAFETY: the string is terminated and belongs to the handle, which outlives this copy.
        Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }

    fn size(&self, key: &str) -> Option<u64> {
        let key = CString::new(key).ok()?;
        let mut value = 0;
        if !self.has(&key, false) {
            return None;
        }
        // SAFETY: the out-pointer, the handle and the key live for the call.
        let status = unsafe { sys::mlx_device_info_get_size(&mut value, self.0, key.as_ptr()) };
        check(status).is_ok().then_some(value as u64)
    }
}

impl Drop for InfoHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_device_info_free(self.0) };
    }
}

/// An owned stream handle.
struct StreamHandle(sys::mlx_stream);

impl StreamHandle {
    fn empty() -> Self {
        StreamHandle(sys::mlx_stream { ctx: std::ptr::null_mut() })
    }

    /// A stream that any thread may use.
    fn new(device: sys::mlx_device) -> Result<Self> {
        // SAFETY: the device lives for the call.
        let raw = unsafe { sys::mlx_stream_new_thread_unsafe(device) };
        if raw.ctx.is_null() { Err(take()) } else { Ok(StreamHandle(raw)) }
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once; MLX keeps the stream itself.
        unsafe { sys::mlx_stream_free(self.0) };
    }
}

// SAFETY: the handle owns a number and a device, plain data that no thread is tied to.
unsafe impl Send for StreamHandle {}

thread_local! {
    static STREAMS: RefCell<Streams> = const {
        RefCell::new(Streams { own: None, lent: None, is_lent: false })
    };
}

thread_local! {
    /// Held by a thread that ends. What MLX keeps of a device for each thread goes before it: it
    /// was made later.
    static ENDING: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
    static USES_GPU: Cell<bool> = const { Cell::new(false) };
}

/// Prepares this thread's end, as the last thing that it does: what MLX has of a CUDA device for
/// the thread goes then, and the device is waited for. So other threads evaluate nothing meanwhile,
/// and this one never does again.
pub fn end_thread() {
    if USES_GPU.get() {
        ENDING.with(|ending| *ending.borrow_mut() = between_evaluations());
    }
}

/// CPU streams that no thread uses. MLX gives each stream a thread of its own, which lives as long
/// as the process: a stream for each model that was ever loaded would add up.
static IDLE_ON_CPU: Mutex<Vec<StreamHandle>> = Mutex::new(Vec::new());

/// Gives MLX a main thread that does nothing, before any other has a stream.
///
/// The main thread is the first that starts MLX's scheduler. To it alone, what failed on a stream
/// is an error of whatever it queues next, even of the signal that an evaluation waits for: a later
/// wait for that array would never end.
fn start_scheduler() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let (started, has_started) = mpsc::channel::<()>();
        let main = move || {
            // The stream goes to the next thread; what fails here fails there again.
            let stream = DeviceHandle::new(Device::Cpu).and_then(|cpu| StreamHandle::new(cpu.0));
            if let Ok(stream) = stream {
                // SAFETY: the stream lives for the call.
                let _ = check(unsafe { sys::mlx_synchronize(stream.0) });
                IDLE_ON_CPU.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
            }
            drop(started);
            // Another thread could get the number of one that has ended, by which MLX knows it.
            loop {
                thread::park();
            }
        };
        // Without threads MLX has none for its streams either, and says so.
        let _ = thread::Builder::new().name("mlx".to_owned()).spawn(main);
        let _ = has_started.recv();
    });
}

/// The streams of a thread.
struct Streams {
    /// The default one that MLX made for this thread.
    own: Option<StreamHandle>,
    /// Of the CPU; it goes to another thread that wants one when this thread ends. Not before:
    /// arrays that this thread has not evaluated yet would run beside those of the other thread,
    /// and each would get the errors of both.
    lent: Option<StreamHandle>,
    /// Operations go to `lent`, not to `own`.
    is_lent: bool,
}

impl Streams {
    fn current(&self) -> Option<sys::mlx_stream> {
        let stream = if self.is_lent { &self.lent } else { &self.own };
        stream.as_ref().map(|stream| stream.0)
    }

    /// Uses MLX's default for this thread.
    fn take_own(&mut self, device: sys::mlx_device) -> Result<()> {
        start_scheduler();
        if self.own.is_none() {
            let mut stream = StreamHandle::empty();
            // SAFETY: the out-pointer holds an empty handle, which the call fills.
            check(unsafe { sys::mlx_get_default_stream(&mut stream.0, device) })?;
            // SAFETY: the stream lives for the call, and is this thread's.
            check(unsafe { sys::mlxrs_replace_worker(stream.0) })?;
            self.own = Some(stream);
        }
        self.is_lent = false;
        Ok(())
    }

    /// Uses an idle stream on the CPU or a new one, which becomes the thread's default.
    fn take_lent(&mut self, device: sys::mlx_device) -> Result<()> {
        start_scheduler();
        if self.lent.is_none() {
            let idle = IDLE_ON_CPU.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let stream = match idle {
                Some(stream) => stream,
                None => StreamHandle::new(device)?,
            };
            // What the thread before left on it, a failure too, is not this thread's.
            // SAFETY: the stream lives for the call.
            let _ = check(unsafe { sys::mlx_synchronize(stream.0) });
            // SAFETY: the stream lives for the call, which copies its number.
            check(unsafe { sys::mlx_set_default_stream(stream.0) })?;
            self.lent = Some(stream);
        }
        self.is_lent = true;
        Ok(())
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if let Some(stream) = self.lent.take() {
            IDLE_ON_CPU.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        }
    }
}

/// Sends this thread's operations from now on to its stream on `device`, the same one each time. A
/// thread that never calls this uses MLX's default device.
///
/// # Errors
/// Those of MLX; a device that is not there.
pub fn use_device(device: Device) -> Result<()> {
    if device == Device::Gpu {
        // Before MLX makes anything for this thread.
        ENDING.with(|_| ());
        USES_GPU.set(true);
    }
    if !device.is_available()? {
        return Err(Error::new(format!("no {device:?} device is available")));
    }
    let handle = DeviceHandle::new(device)?;
    if device == Device::Gpu {
        if device.info().is_ok_and(|info| info.backend == "cuda") {
            device_turns::begin();
        }
        // SAFETY: it takes nothing, and concerns this thread alone.
        unsafe { sys::mlxrs_relax_captures() };
        // SAFETY: it takes nothing; the device's driver was asked for it above, so it has begun.
        unsafe { sys::mlxrs_keep_pool() };
    }
    STREAMS.with(|streams| {
        let mut streams = streams.borrow_mut();
        match device {
            Device::Cpu => streams.take_lent(handle.0),
            Device::Gpu => streams.take_own(handle.0),
        }
    })
}

/// Waits until everything that this thread has queued is done.
///
/// # Errors
/// Those of MLX.
pub fn synchronize() -> Result<()> {
    // SAFETY: the stream handle lives as long as the thread.
    check(unsafe { sys::mlx_synchronize(current()) })
}

/// Makes this thread's stream usable again after something has failed on it, such as for want of
/// memory: drops what was prepared and never sent, waits for what was sent, and gives back what is
/// not used. Arrays whose evaluation has failed have no values, and neither has what was made of
/// them.
///
/// # Errors
/// Why nothing can be computed any more. Then the thread must not use arrays, nor end: MLX would
/// use the device for it, and end the process.
pub fn recover() -> Result<()> {
    let _between = between_evaluations();
    // SAFETY: the stream handle lives as long as the thread.
    check(unsafe { sys::mlxrs_recover(current()) })
}

/// The version of the MLX library that is loaded.
///
/// # Errors
/// Those of MLX.
pub fn mlx_version() -> Result<String> {
    init();
    // SAFETY: creates an empty handle.
    let mut text = StringHandle(unsafe { sys::mlx_string_new() });
    // SAFETY: the handle lives for the call.
    check(unsafe { sys::mlx_version(&mut text.0) })?;
    // SAFETY: the handle lives for the call.
    let data = unsafe { sys::mlx_string_data(text.0) };
    if data.is_null() {
        return Err(take());
    }
    // SAFETY: the string is terminated and belongs to the handle, which outlives this copy.
    Ok(unsafe { CStr::from_ptr(data) }.to_string_lossy().into_owned())
}

struct StringHandle(sys::mlx_string);

impl Drop for StringHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once.
        unsafe { sys::mlx_string_free(self.0) };
    }
}

/// The stream that this thread's operations go to, made at its first use. It belongs to the
/// thread and stays valid until its end.
///
/// If MLX cannot give one, or the thread is at its end, the handle is empty and the operation that
/// takes it fails.
pub(crate) fn current() -> sys::mlx_stream {
    const NONE: sys::mlx_stream = sys::mlx_stream { ctx: std::ptr::null_mut() };
    let stream = STREAMS.try_with(|streams| {
        let mut streams = streams.borrow_mut();
        if let Some(stream) = streams.current() {
            return stream;
        }
        init();
        let mut device = DeviceHandle(sys::mlx_device { ctx: std::ptr::null_mut() });
        // SAFETY: the out-pointer holds an empty handle, which the call fills.
        let status = unsafe { sys::mlx_get_default_device(&mut device.0) };
        match check(status).and_then(|()| streams.take_own(device.0)) {
            Ok(()) => streams.current().unwrap_or(NONE),
            Err(_) => NONE,
        }
    });
    stream.unwrap_or(NONE)
}

/// The number of this thread's current stream.
///
/// # Errors
/// Those of MLX.
pub(crate) fn current_index() -> Result<c_int> {
    let mut index = 0;
    // SAFETY: the stream lives as long as this thread; the out-pointer is ours.
    check(unsafe { sys::mlx_stream_get_index(&mut index, current()) })?;
    Ok(index)
}

thread_local! {
    /// The stream that was asked for last, and whether it is one of CUDA.
    static ON_CUDA: Cell<Option<(c_int, bool)>> = const { Cell::new(None) };
}

/// Returns true when this thread's current stream is one of CUDA.
///
/// # Errors
/// Those of MLX.
pub fn on_cuda() -> Result<bool> {
    let stream = current_index()?;
    if let Some((known, on_cuda)) = ON_CUDA.get()
        && known == stream
    {
        return Ok(on_cuda);
    }
    let on_cuda = !on_cpu()? && Device::Gpu.info()?.backend == "cuda";
    ON_CUDA.set(Some((stream, on_cuda)));
    Ok(on_cuda)
}

/// Returns true when this thread's current stream is one of the CPU.
///
/// # Errors
/// Those of MLX.
pub fn on_cpu() -> Result<bool> {
    let mut device = DeviceHandle(sys::mlx_device { ctx: std::ptr::null_mut() });
    // SAFETY: the out-pointer holds an empty handle, which the call fills; the stream lives as long
    // as this thread.
    check(unsafe { sys::mlx_stream_get_device(&mut device.0, current()) })?;
    let mut kind = sys::MLX_CPU;
    // SAFETY: the device was filled; the out-pointer is ours.
    check(unsafe { sys::mlx_device_get_type(&mut kind, device.0) })?;
    Ok(kind == sys::MLX_CPU)
}
