// Made by `cargo xtask bindings` from the headers of mlx-c; not to be edited.

#[doc = " A MLX string object."]
pub type mlx_string = mlx_string_;
pub type mlx_complex64_t = __BindgenComplex<f32>;
#[doc = " A N-dimensional array object."]
pub type mlx_array = mlx_array_;
#[doc = " Array element type."]
pub type mlx_dtype_ = ::std::os::raw::c_uint;
#[doc = " A string-to-array map"]
pub type mlx_map_string_to_array = mlx_map_string_to_array_;
#[doc = " A int optional."]
pub type mlx_optional_int = mlx_optional_int_;
#[doc = " A float optional."]
pub type mlx_optional_float = mlx_optional_float_;
#[doc = " A dtype optional."]
pub type mlx_optional_dtype = mlx_optional_dtype_;
#[doc = " A MLX device object."]
pub type mlx_device = mlx_device_;
#[doc = " A MLX vector of strings.\n Forward declaration to avoid circular references."]
pub type mlx_vector_string = mlx_vector_string_;
#[doc = " Device type."]
pub type mlx_device_type_ = ::std::os::raw::c_uint;
#[doc = " A MLX device info object.\n Contains key-value pairs with device properties.\n Keys vary by backend but common keys include:\n   - device_name (string): Device name\n   - architecture (string): Architecture identifier\n Additional keys may be present depending on the backend."]
pub type mlx_device_info = mlx_device_info_;
#[doc = " A MLX stream object."]
pub type mlx_stream = mlx_stream_;
#[doc = " A per-thread stream object.\n\n The same thread-local stream can be used from any number of threads; the\n stream's GPU command encoder is registered once per thread."]
pub type mlx_stream_thread_local = mlx_stream_thread_local_;
#[doc = " A vector of mlx_stream.\n Forward declaration to avoid circular references."]
pub type mlx_vector_stream = mlx_vector_stream_;
#[doc = " A vector of array."]
pub type mlx_vector_array = mlx_vector_array_;
#[doc = " A vector of vector_array."]
pub type mlx_vector_vector_array = mlx_vector_vector_array_;
#[doc = " A vector of int."]
pub type mlx_vector_int = mlx_vector_int_;
#[doc = " \\defgroup mlx_closure Closures\n MLX closure objects.\n/\n/**@{"]
pub type mlx_closure = mlx_closure_;
pub type mlx_closure_kwargs = mlx_closure_kwargs_;
pub type mlx_closure_value_and_grad = mlx_closure_value_and_grad_;
pub type mlx_closure_custom = mlx_closure_custom_;
pub type mlx_closure_custom_jvp = mlx_closure_custom_jvp_;
pub type mlx_closure_custom_vmap = mlx_closure_custom_vmap_;
#[doc = " A MLX distributed group object."]
pub type mlx_distributed_group = mlx_distributed_group_;
#[doc = " \\defgroup compile Compilation operations\n/\n/**@{"]
pub type mlx_compile_mode_ = ::std::os::raw::c_uint;
pub type mlx_compile_cache = mlx_compile_cache_;
#[doc = " \\defgroup mlx_error Error management\n/\n/**@{"]
pub type mlx_error_handler_func = ::std::option::Option<
    unsafe extern "C" fn(msg: *const ::std::os::raw::c_char, data: *mut ::std::os::raw::c_void),
>;
pub type mlx_fast_cuda_kernel_config = mlx_fast_cuda_kernel_config_;
pub type mlx_fast_cuda_kernel = mlx_fast_cuda_kernel_;
pub type mlx_fast_metal_kernel_config = mlx_fast_metal_kernel_config_;
pub type mlx_fast_metal_kernel = mlx_fast_metal_kernel_;
#[doc = " Computes `outputs` from `inputs`; called on the stream's thread. The first output is the result, the\n others are the inputs that it writes into, which are not among `inputs`. Returns 0, or 1 with a\n terminated text of at most `capacity` bytes in `message`. It must not unwind."]
pub type mlxrs_cpu_compute = ::std::option::Option<
    unsafe extern "C" fn(
        state: *const ::std::os::raw::c_void,
        inputs: *const mlxrs_cpu_view,
        count: usize,
        outputs: *const mlxrs_cpu_view,
        output_count: usize,
        message: *mut ::std::os::raw::c_char,
        capacity: usize,
    ) -> ::std::os::raw::c_int,
>;
#[doc = " A kernel with its grid and the shapes and types of its outputs."]
pub type mlxrs_launch = mlxrs_launch_;
#[doc = " What came of the wish to repeat operations, or to send them."]
pub type mlxrs_outcome_ = ::std::os::raw::c_uint;
#[doc = " Ranks that compute together, and must repeat and send the same operations."]
pub type mlxrs_agreement = mlxrs_agreement_;
#[doc = " Operations of ours, one after the other, over buffers that stay where they are."]
pub type mlxrs_replay = mlxrs_replay_;
#[doc = " Operations that are sent to a CUDA device one after the other, past MLX."]
pub type mlxrs_dispatcher = mlxrs_dispatcher_;
#[derive(PartialEq, Copy, Clone, Hash, Debug, Default)]
#[repr(C)]
pub struct __BindgenComplex<T> {
    pub re: T,
    pub im: T,
}
#[doc = " A MLX string object."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_string_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A N-dimensional array object."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_array_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A string-to-array map"]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_map_string_to_array_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A int optional."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_optional_int_ {
    pub value: ::std::os::raw::c_int,
    pub has_value: bool,
}
#[doc = " A float optional."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_optional_float_ {
    pub value: f32,
    pub has_value: bool,
}
#[doc = " A dtype optional."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_optional_dtype_ {
    pub value: mlx_dtype,
    pub has_value: bool,
}
#[doc = " A MLX device object."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_device_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A MLX device info object.\n Contains key-value pairs with device properties.\n Keys vary by backend but common keys include:\n   - device_name (string): Device name\n   - architecture (string): Architecture identifier\n Additional keys may be present depending on the backend."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_device_info_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A MLX stream object."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_stream_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A per-thread stream object.\n\n The same thread-local stream can be used from any number of threads; the\n stream's GPU command encoder is registered once per thread."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_stream_thread_local_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A vector of array."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_vector_array_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A vector of vector_array."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_vector_vector_array_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A vector of int."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_vector_int_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A vector of string."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_vector_string_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A vector of stream."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_vector_stream_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " \\defgroup mlx_closure Closures\n MLX closure objects.\n/\n/**@{"]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_closure_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_closure_kwargs_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_closure_value_and_grad_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_closure_custom_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_closure_custom_jvp_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_closure_custom_vmap_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " A MLX distributed group object."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_distributed_group_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_compile_cache_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_fast_cuda_kernel_config_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_fast_cuda_kernel_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_fast_metal_kernel_config_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlx_fast_metal_kernel_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " An array as a kernel sees it. Values of the last dimension lie side by side."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlxrs_cpu_view {
    #[doc = " The first element."]
    pub data: *mut ::std::os::raw::c_void,
    #[doc = " Bytes from there to the end of the last element."]
    pub size: usize,
    pub dtype: mlx_dtype,
    pub ndim: ::std::os::raw::c_int,
    pub shape: *const ::std::os::raw::c_int,
    #[doc = " In elements, none negative."]
    pub strides: *const i64,
}
#[doc = " What computes an operation: a function, its state, and how that ends."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlxrs_cpu_kernel {
    pub compute: mlxrs_cpu_compute,
    pub state: *mut ::std::os::raw::c_void,
    pub drop: ::std::option::Option<unsafe extern "C" fn(state: *mut ::std::os::raw::c_void)>,
}
#[doc = " What an operation takes and gives."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlxrs_cpu_form {
    #[doc = " The type of the result."]
    pub dtype: mlx_dtype,
    #[doc = " Its shape."]
    pub ndim: ::std::os::raw::c_int,
    pub shape: *const ::std::os::raw::c_int,
    #[doc = " Its dimensions from the outermost in memory to the innermost."]
    pub order: *const ::std::os::raw::c_int,
    #[doc = " Whether inputs that are not row-major are copied first; otherwise it is those alone whose last\n dimension is not contiguous."]
    pub row_major: bool,
    #[doc = " The inputs that it writes into, which are as it needs them."]
    pub written: *const ::std::os::raw::c_int,
    pub written_count: usize,
}
#[doc = " A kernel with its grid and the shapes and types of its outputs."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlxrs_launch_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " Ranks that compute together, and must repeat and send the same operations."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlxrs_agreement_ {
    #[doc = " What comes of it in all ranks where it is `own` in this one: the last outcome of any. Negative where they cannot be\n asked. Null where there is one rank."]
    pub agree: ::std::option::Option<
        unsafe extern "C" fn(
            data: *mut ::std::os::raw::c_void,
            own: ::std::os::raw::c_int,
        ) -> ::std::os::raw::c_int,
    >,
    pub data: *mut ::std::os::raw::c_void,
    #[doc = " What is impossible in this rank is an error that says why."]
    pub is_strict: bool,
}
#[doc = " Operations of ours, one after the other, over buffers that stay where they are."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlxrs_replay_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
#[doc = " Operations that are sent to a CUDA device one after the other, past MLX."]
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct mlxrs_dispatcher_ {
    pub ctx: *mut ::std::os::raw::c_void,
}
pub const MLX_BOOL: mlx_dtype_ = 0;
pub const MLX_UINT8: mlx_dtype_ = 1;
pub const MLX_UINT16: mlx_dtype_ = 2;
pub const MLX_UINT32: mlx_dtype_ = 3;
pub const MLX_UINT64: mlx_dtype_ = 4;
pub const MLX_INT8: mlx_dtype_ = 5;
pub const MLX_INT16: mlx_dtype_ = 6;
pub const MLX_INT32: mlx_dtype_ = 7;
pub const MLX_INT64: mlx_dtype_ = 8;
pub const MLX_FLOAT16: mlx_dtype_ = 9;
pub const MLX_FLOAT32: mlx_dtype_ = 10;
pub const MLX_FLOAT64: mlx_dtype_ = 11;
pub const MLX_BFLOAT16: mlx_dtype_ = 12;
pub const MLX_COMPLEX64: mlx_dtype_ = 13;
pub const MLX_CPU: mlx_device_type_ = 0;
pub const MLX_GPU: mlx_device_type_ = 1;
pub const MLX_COMPILE_MODE_DISABLED: mlx_compile_mode_ = 0;
pub const MLX_COMPILE_MODE_NO_SIMPLIFY: mlx_compile_mode_ = 1;
pub const MLX_COMPILE_MODE_NO_FUSE: mlx_compile_mode_ = 2;
pub const MLX_COMPILE_MODE_ENABLED: mlx_compile_mode_ = 3;
pub const MLXRS_DONE: mlxrs_outcome_ = 0;
pub const MLXRS_NOT_YET: mlxrs_outcome_ = 1;
pub const MLXRS_IMPOSSIBLE: mlxrs_outcome_ = 2;
#[doc = " \\defgroup compile Compilation operations\n/\n/**@{"]
pub use self::mlx_compile_mode_ as mlx_compile_mode;
#[doc = " Device type."]
pub use self::mlx_device_type_ as mlx_device_type;
#[doc = " Array element type."]
pub use self::mlx_dtype_ as mlx_dtype;
#[doc = " What came of the wish to repeat operations, or to send them."]
pub use self::mlxrs_outcome_ as mlxrs_outcome;
unsafe extern "C" {
    #[doc = " Returns a new empty string."]
    pub fn mlx_string_new() -> mlx_string;
    #[doc = " Returns a new string, copying contents from `str`, which must end with `\\0`."]
    pub fn mlx_string_new_data(str_: *const ::std::os::raw::c_char) -> mlx_string;
    #[doc = " Set string to src string."]
    pub fn mlx_string_set(str_: *mut mlx_string, src: mlx_string) -> ::std::os::raw::c_int;
    #[doc = " Returns a pointer to the string contents.\n The pointer is valid for the life duration of the string."]
    pub fn mlx_string_data(str_: mlx_string) -> *const ::std::os::raw::c_char;
    #[doc = " Free string."]
    pub fn mlx_string_free(str_: mlx_string) -> ::std::os::raw::c_int;
    pub static mut mlx_array_empty: mlx_array;
    #[doc = " Size of given mlx_dtype datatype in bytes."]
    pub fn mlx_dtype_size(dtype: mlx_dtype) -> usize;
    #[doc = " Get array description."]
    pub fn mlx_array_tostring(str_: *mut mlx_string, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " New empty array."]
    pub fn mlx_array_new() -> mlx_array;
    #[doc = " Free an array."]
    pub fn mlx_array_free(arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " New array from a bool scalar."]
    pub fn mlx_array_new_bool(val: bool) -> mlx_array;
    #[doc = " New array from a int scalar."]
    pub fn mlx_array_new_int(val: ::std::os::raw::c_int) -> mlx_array;
    #[doc = " New array from a float32 scalar."]
    pub fn mlx_array_new_float32(val: f32) -> mlx_array;
    #[doc = " New array from a float scalar.\n Same as float32."]
    pub fn mlx_array_new_float(val: f32) -> mlx_array;
    #[doc = " New array from a float64 scalar."]
    pub fn mlx_array_new_float64(val: f64) -> mlx_array;
    #[doc = " New array from a double scalar.\n Same as float64."]
    pub fn mlx_array_new_double(val: f64) -> mlx_array;
    #[doc = " New array from a complex scalar."]
    pub fn mlx_array_new_complex(real_val: f32, imag_val: f32) -> mlx_array;
    #[doc = " New array from existing buffer.\n @param data A buffer which will be copied.\n @param shape Shape of the array.\n @param dim Number of dimensions (size of `shape`).\n @param dtype Type of array elements."]
    pub fn mlx_array_new_data(
        data: *const ::std::os::raw::c_void,
        shape: *const ::std::os::raw::c_int,
        dim: ::std::os::raw::c_int,
        dtype: mlx_dtype,
    ) -> mlx_array;
    #[doc = " New array from existing buffer.\n @param data A buffer which will be copied.\n @param shape Shape of the array.\n @param dim Number of dimensions (size of `shape`).\n @param dtype Type of array elements.\n @param dtor Callback for when the buffer is no longer needed."]
    pub fn mlx_array_new_data_managed(
        data: *mut ::std::os::raw::c_void,
        shape: *const ::std::os::raw::c_int,
        dim: ::std::os::raw::c_int,
        dtype: mlx_dtype,
        dtor: ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void)>,
    ) -> mlx_array;
    #[doc = " New array from existing buffer.\n @param data A buffer which will be copied.\n @param shape Shape of the array.\n @param dim Number of dimensions (size of `shape`).\n @param dtype Type of array elements.\n @param payload Payload pointer passed to the `dtor` callback instead of\n `data`.\n @param dtor Callback for when the buffer is no longer needed."]
    pub fn mlx_array_new_data_managed_payload(
        data: *mut ::std::os::raw::c_void,
        shape: *const ::std::os::raw::c_int,
        dim: ::std::os::raw::c_int,
        dtype: mlx_dtype,
        payload: *mut ::std::os::raw::c_void,
        dtor: ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void)>,
    ) -> mlx_array;
    #[doc = " Set array to provided src array."]
    pub fn mlx_array_set(arr: *mut mlx_array, src: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Set array to a bool scalar."]
    pub fn mlx_array_set_bool(arr: *mut mlx_array, val: bool) -> ::std::os::raw::c_int;
    #[doc = " Set array to a int scalar."]
    pub fn mlx_array_set_int(
        arr: *mut mlx_array,
        val: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    #[doc = " Set array to a float32 scalar."]
    pub fn mlx_array_set_float32(arr: *mut mlx_array, val: f32) -> ::std::os::raw::c_int;
    #[doc = " Set array to a float scalar."]
    pub fn mlx_array_set_float(arr: *mut mlx_array, val: f32) -> ::std::os::raw::c_int;
    #[doc = " Set array to a float64 scalar."]
    pub fn mlx_array_set_float64(arr: *mut mlx_array, val: f64) -> ::std::os::raw::c_int;
    #[doc = " Set array to a double scalar."]
    pub fn mlx_array_set_double(arr: *mut mlx_array, val: f64) -> ::std::os::raw::c_int;
    #[doc = " Set array to a complex scalar."]
    pub fn mlx_array_set_complex(
        arr: *mut mlx_array,
        real_val: f32,
        imag_val: f32,
    ) -> ::std::os::raw::c_int;
    #[doc = " Set array to specified data and shape.\n @param arr Destination array.\n @param data A buffer which will be copied.\n @param shape Shape of the array.\n @param dim Number of dimensions (size of `shape`).\n @param dtype Type of array elements."]
    pub fn mlx_array_set_data(
        arr: *mut mlx_array,
        data: *const ::std::os::raw::c_void,
        shape: *const ::std::os::raw::c_int,
        dim: ::std::os::raw::c_int,
        dtype: mlx_dtype,
    ) -> ::std::os::raw::c_int;
    #[doc = " The size of the array's datatype in bytes."]
    pub fn mlx_array_itemsize(arr: mlx_array) -> usize;
    #[doc = " Number of elements in the array."]
    pub fn mlx_array_size(arr: mlx_array) -> usize;
    #[doc = " The number of bytes in the array."]
    pub fn mlx_array_nbytes(arr: mlx_array) -> usize;
    #[doc = " The array's dimension."]
    pub fn mlx_array_ndim(arr: mlx_array) -> usize;
    #[doc = " The shape of the array.\n Returns: a pointer to the sizes of each dimension."]
    pub fn mlx_array_shape(arr: mlx_array) -> *const ::std::os::raw::c_int;
    #[doc = " The strides of the array.\n Returns: a pointer to the sizes of each dimension."]
    pub fn mlx_array_strides(arr: mlx_array) -> *const usize;
    #[doc = " The shape of the array in a particular dimension."]
    pub fn mlx_array_dim(arr: mlx_array, dim: ::std::os::raw::c_int) -> ::std::os::raw::c_int;
    #[doc = " The array element type."]
    pub fn mlx_array_dtype(arr: mlx_array) -> mlx_dtype;
    #[doc = " Evaluate the array."]
    pub fn mlx_array_eval(arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_bool(res: *mut bool, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_uint8(res: *mut u8, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_uint16(res: *mut u16, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_uint32(res: *mut u32, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_uint64(res: *mut u64, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_int8(res: *mut i8, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_int16(res: *mut i16, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_int32(res: *mut i32, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_int64(res: *mut i64, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_float32(res: *mut f32, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_float64(res: *mut f64, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Access the value of a scalar array."]
    pub fn mlx_array_item_complex64(
        res: *mut mlx_complex64_t,
        arr: mlx_array,
    ) -> ::std::os::raw::c_int;
    #[doc = " Returns a pointer to the array data, cast to `bool*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_bool(arr: mlx_array) -> *const bool;
    #[doc = " Returns a pointer to the array data, cast to `uint8_t*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_uint8(arr: mlx_array) -> *const u8;
    #[doc = " Returns a pointer to the array data, cast to `uint16_t*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_uint16(arr: mlx_array) -> *const u16;
    #[doc = " Returns a pointer to the array data, cast to `uint32_t*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_uint32(arr: mlx_array) -> *const u32;
    #[doc = " Returns a pointer to the array data, cast to `uint64_t*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_uint64(arr: mlx_array) -> *const u64;
    #[doc = " Returns a pointer to the array data, cast to `int8_t*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_int8(arr: mlx_array) -> *const i8;
    #[doc = " Returns a pointer to the array data, cast to `int16_t*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_int16(arr: mlx_array) -> *const i16;
    #[doc = " Returns a pointer to the array data, cast to `int32_t*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_int32(arr: mlx_array) -> *const i32;
    #[doc = " Returns a pointer to the array data, cast to `int64_t*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_int64(arr: mlx_array) -> *const i64;
    #[doc = " Returns a pointer to the array data, cast to `float32*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_float32(arr: mlx_array) -> *const f32;
    #[doc = " Returns a pointer to the array data, cast to `float64*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_float64(arr: mlx_array) -> *const f64;
    #[doc = " Returns a pointer to the array data, cast to `_Complex*`.\n Array must be evaluated, otherwise returns NULL."]
    pub fn mlx_array_data_complex64(arr: mlx_array) -> *const mlx_complex64_t;
    #[doc = " Check if the array is available.\n Internal function: use at your own risk."]
    pub fn _mlx_array_is_available(res: *mut bool, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Wait on the array to be available. After this `_mlx_array_is_available`\n returns `true`. Internal function: use at your own risk."]
    pub fn _mlx_array_wait(arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Whether the array is contiguous in memory.\n Internal function: use at your own risk."]
    pub fn _mlx_array_is_contiguous(res: *mut bool, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Whether the array's rows are contiguous in memory.\n Internal function: use at your own risk."]
    pub fn _mlx_array_is_row_contiguous(res: *mut bool, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Whether the array's columns are contiguous in memory.\n Internal function: use at your own risk."]
    pub fn _mlx_array_is_col_contiguous(res: *mut bool, arr: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Returns a new empty device."]
    pub fn mlx_device_new() -> mlx_device;
    #[doc = " Returns a new device of specified `type`, with specified `index`."]
    pub fn mlx_device_new_type(type_: mlx_device_type, index: ::std::os::raw::c_int) -> mlx_device;
    #[doc = " Free a device."]
    pub fn mlx_device_free(dev: mlx_device) -> ::std::os::raw::c_int;
    #[doc = " Set device to provided src device."]
    pub fn mlx_device_set(dev: *mut mlx_device, src: mlx_device) -> ::std::os::raw::c_int;
    #[doc = " Get device description."]
    pub fn mlx_device_tostring(str_: *mut mlx_string, dev: mlx_device) -> ::std::os::raw::c_int;
    #[doc = " Check if devices are the same."]
    pub fn mlx_device_equal(lhs: mlx_device, rhs: mlx_device) -> bool;
    #[doc = " Returns the index of the device."]
    pub fn mlx_device_get_index(
        index: *mut ::std::os::raw::c_int,
        dev: mlx_device,
    ) -> ::std::os::raw::c_int;
    #[doc = " Returns the type of the device."]
    pub fn mlx_device_get_type(
        type_: *mut mlx_device_type,
        dev: mlx_device,
    ) -> ::std::os::raw::c_int;
    #[doc = " Returns the default MLX device."]
    pub fn mlx_get_default_device(dev: *mut mlx_device) -> ::std::os::raw::c_int;
    #[doc = " Set the default MLX device."]
    pub fn mlx_set_default_device(dev: mlx_device) -> ::std::os::raw::c_int;
    #[doc = " Check if device is available."]
    pub fn mlx_device_is_available(avail: *mut bool, dev: mlx_device) -> ::std::os::raw::c_int;
    #[doc = " Get the number of available devices for a device type."]
    pub fn mlx_device_count(
        count: *mut ::std::os::raw::c_int,
        type_: mlx_device_type,
    ) -> ::std::os::raw::c_int;
    #[doc = " Returns a new empty device info object."]
    pub fn mlx_device_info_new() -> mlx_device_info;
    #[doc = " Get device information for a device."]
    pub fn mlx_device_info_get(
        info: *mut mlx_device_info,
        dev: mlx_device,
    ) -> ::std::os::raw::c_int;
    #[doc = " Free a device info object."]
    pub fn mlx_device_info_free(info: mlx_device_info) -> ::std::os::raw::c_int;
    #[doc = " Check if a key exists in the device info.\n Returns 0 on success, 1 on error.\n Sets *exists to true if the key exists, false otherwise."]
    pub fn mlx_device_info_has_key(
        exists: *mut bool,
        info: mlx_device_info,
        key: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    #[doc = " Check if a value is a string type.\n Returns 0 on success, 1 on error.\n Sets *is_string to true if the value is a string, false if it's a size_t."]
    pub fn mlx_device_info_is_string(
        is_string: *mut bool,
        info: mlx_device_info,
        key: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    #[doc = " Get a string value from device info.\n Returns 0 on success, 1 on error, 2 if key not found or wrong type."]
    pub fn mlx_device_info_get_string(
        value: *mut *const ::std::os::raw::c_char,
        info: mlx_device_info,
        key: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    #[doc = " Get a size_t value from device info.\n Returns 0 on success, 1 on error, 2 if key not found or wrong type."]
    pub fn mlx_device_info_get_size(
        value: *mut usize,
        info: mlx_device_info,
        key: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    #[doc = " Get all keys from device info.\n Returns 0 on success, 1 on error."]
    pub fn mlx_device_info_get_keys(
        keys: *mut mlx_vector_string,
        info: mlx_device_info,
    ) -> ::std::os::raw::c_int;
    #[doc = " Returns a new empty stream."]
    pub fn mlx_stream_new() -> mlx_stream;
    #[doc = " Returns a new stream on a device."]
    pub fn mlx_stream_new_device(dev: mlx_device) -> mlx_stream;
    #[doc = " Returns a new stream on a device that can be used from any thread.\n\n Streams are otherwise thread affine: a stream's GPU command encoder is\n registered per thread, so evaluating on a stream from a thread other than\n the one that created it fails. Streams returned here are registered\n globally instead.\n\n MLX applies no synchronization to these streams -- it is the caller's\n responsibility to ensure there are no data races on them."]
    pub fn mlx_stream_new_thread_unsafe(dev: mlx_device) -> mlx_stream;
    #[doc = " Returns a new per-thread stream on a device.\n\n Streams created this way are unique per thread: evaluating the same\n `mlx_stream_thread_local` from different threads yields distinct streams."]
    pub fn mlx_stream_thread_local_new(dev: mlx_device) -> mlx_stream_thread_local;
    #[doc = " Set a per-thread stream to the provided src stream."]
    pub fn mlx_stream_thread_local_set(
        tls: *mut mlx_stream_thread_local,
        src: mlx_stream_thread_local,
    ) -> ::std::os::raw::c_int;
    #[doc = " Free a per-thread stream."]
    pub fn mlx_stream_thread_local_free(tls: mlx_stream_thread_local) -> ::std::os::raw::c_int;
    #[doc = " Returns the concrete stream backing a per-thread stream on the current\n thread."]
    pub fn mlx_stream_from_thread_local(
        res: *mut mlx_stream,
        tls: mlx_stream_thread_local,
    ) -> ::std::os::raw::c_int;
    #[doc = " Get the vector of available streams."]
    pub fn mlx_get_streams(res: *mut mlx_vector_stream) -> ::std::os::raw::c_int;
    #[doc = " Set stream to provided src stream."]
    pub fn mlx_stream_set(stream: *mut mlx_stream, src: mlx_stream) -> ::std::os::raw::c_int;
    #[doc = " Free a stream."]
    pub fn mlx_stream_free(stream: mlx_stream) -> ::std::os::raw::c_int;
    #[doc = " Get stream description."]
    pub fn mlx_stream_tostring(str_: *mut mlx_string, stream: mlx_stream) -> ::std::os::raw::c_int;
    #[doc = " Check if streams are the same."]
    pub fn mlx_stream_equal(lhs: mlx_stream, rhs: mlx_stream) -> bool;
    #[doc = " Return the device of the stream."]
    pub fn mlx_stream_get_device(dev: *mut mlx_device, stream: mlx_stream)
    -> ::std::os::raw::c_int;
    #[doc = " Return the index of the stream."]
    pub fn mlx_stream_get_index(
        index: *mut ::std::os::raw::c_int,
        stream: mlx_stream,
    ) -> ::std::os::raw::c_int;
    #[doc = " Synchronize with the provided stream."]
    pub fn mlx_synchronize(stream: mlx_stream) -> ::std::os::raw::c_int;
    #[doc = " Synchronize with the default stream."]
    pub fn mlx_synchronize_default() -> ::std::os::raw::c_int;
    #[doc = " Synchronize with the stream corresponding to the current thread."]
    pub fn mlx_synchronize_thread_local(tls: mlx_stream_thread_local) -> ::std::os::raw::c_int;
    #[doc = " Destroy all streams created in the current thread."]
    pub fn mlx_clear_streams() -> ::std::os::raw::c_int;
    #[doc = " Returns the default stream on the given device."]
    pub fn mlx_get_default_stream(
        stream: *mut mlx_stream,
        dev: mlx_device,
    ) -> ::std::os::raw::c_int;
    #[doc = " Set default stream."]
    pub fn mlx_set_default_stream(stream: mlx_stream) -> ::std::os::raw::c_int;
    #[doc = " Returns the current default CPU stream."]
    pub fn mlx_default_cpu_stream_new() -> mlx_stream;
    #[doc = " Returns the current default GPU stream."]
    pub fn mlx_default_gpu_stream_new() -> mlx_stream;
    pub fn mlx_vector_array_new() -> mlx_vector_array;
    pub fn mlx_vector_array_set(
        vec: *mut mlx_vector_array,
        src: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_array_free(vec: mlx_vector_array) -> ::std::os::raw::c_int;
    pub fn mlx_vector_array_new_data(data: *const mlx_array, size: usize) -> mlx_vector_array;
    pub fn mlx_vector_array_new_value(val: mlx_array) -> mlx_vector_array;
    pub fn mlx_vector_array_set_data(
        vec: *mut mlx_vector_array,
        data: *const mlx_array,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_array_set_value(
        vec: *mut mlx_vector_array,
        val: mlx_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_array_append_data(
        vec: mlx_vector_array,
        data: *const mlx_array,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_array_append_value(
        vec: mlx_vector_array,
        val: mlx_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_array_size(vec: mlx_vector_array) -> usize;
    pub fn mlx_vector_array_get(
        res: *mut mlx_array,
        vec: mlx_vector_array,
        idx: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_vector_array_new() -> mlx_vector_vector_array;
    pub fn mlx_vector_vector_array_set(
        vec: *mut mlx_vector_vector_array,
        src: mlx_vector_vector_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_vector_array_free(vec: mlx_vector_vector_array) -> ::std::os::raw::c_int;
    pub fn mlx_vector_vector_array_new_data(
        data: *const mlx_vector_array,
        size: usize,
    ) -> mlx_vector_vector_array;
    pub fn mlx_vector_vector_array_new_value(val: mlx_vector_array) -> mlx_vector_vector_array;
    pub fn mlx_vector_vector_array_set_data(
        vec: *mut mlx_vector_vector_array,
        data: *const mlx_vector_array,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_vector_array_set_value(
        vec: *mut mlx_vector_vector_array,
        val: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_vector_array_append_data(
        vec: mlx_vector_vector_array,
        data: *const mlx_vector_array,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_vector_array_append_value(
        vec: mlx_vector_vector_array,
        val: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_vector_array_size(vec: mlx_vector_vector_array) -> usize;
    pub fn mlx_vector_vector_array_get(
        res: *mut mlx_vector_array,
        vec: mlx_vector_vector_array,
        idx: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_int_new() -> mlx_vector_int;
    pub fn mlx_vector_int_set(
        vec: *mut mlx_vector_int,
        src: mlx_vector_int,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_int_free(vec: mlx_vector_int) -> ::std::os::raw::c_int;
    pub fn mlx_vector_int_new_data(data: *mut ::std::os::raw::c_int, size: usize)
    -> mlx_vector_int;
    pub fn mlx_vector_int_new_value(val: ::std::os::raw::c_int) -> mlx_vector_int;
    pub fn mlx_vector_int_set_data(
        vec: *mut mlx_vector_int,
        data: *mut ::std::os::raw::c_int,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_int_set_value(
        vec: *mut mlx_vector_int,
        val: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_int_append_data(
        vec: mlx_vector_int,
        data: *mut ::std::os::raw::c_int,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_int_append_value(
        vec: mlx_vector_int,
        val: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_int_size(vec: mlx_vector_int) -> usize;
    pub fn mlx_vector_int_get(
        res: *mut ::std::os::raw::c_int,
        vec: mlx_vector_int,
        idx: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_string_new() -> mlx_vector_string;
    pub fn mlx_vector_string_set(
        vec: *mut mlx_vector_string,
        src: mlx_vector_string,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_string_free(vec: mlx_vector_string) -> ::std::os::raw::c_int;
    pub fn mlx_vector_string_new_data(
        data: *mut *const ::std::os::raw::c_char,
        size: usize,
    ) -> mlx_vector_string;
    pub fn mlx_vector_string_new_value(val: *const ::std::os::raw::c_char) -> mlx_vector_string;
    pub fn mlx_vector_string_set_data(
        vec: *mut mlx_vector_string,
        data: *mut *const ::std::os::raw::c_char,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_string_set_value(
        vec: *mut mlx_vector_string,
        val: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_string_append_data(
        vec: mlx_vector_string,
        data: *mut *const ::std::os::raw::c_char,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_string_append_value(
        vec: mlx_vector_string,
        val: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_string_size(vec: mlx_vector_string) -> usize;
    pub fn mlx_vector_string_get(
        res: *mut *mut ::std::os::raw::c_char,
        vec: mlx_vector_string,
        idx: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_stream_new() -> mlx_vector_stream;
    pub fn mlx_vector_stream_set(
        vec: *mut mlx_vector_stream,
        src: mlx_vector_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_stream_free(vec: mlx_vector_stream) -> ::std::os::raw::c_int;
    pub fn mlx_vector_stream_new_data(data: *const mlx_stream, size: usize) -> mlx_vector_stream;
    pub fn mlx_vector_stream_new_value(val: mlx_stream) -> mlx_vector_stream;
    pub fn mlx_vector_stream_set_data(
        vec: *mut mlx_vector_stream,
        data: *const mlx_stream,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_stream_set_value(
        vec: *mut mlx_vector_stream,
        val: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_stream_append_data(
        vec: mlx_vector_stream,
        data: *const mlx_stream,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_stream_append_value(
        vec: mlx_vector_stream,
        val: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vector_stream_size(vec: mlx_vector_stream) -> usize;
    pub fn mlx_vector_stream_get(
        res: *mut mlx_stream,
        vec: mlx_vector_stream,
        idx: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_new() -> mlx_closure;
    pub fn mlx_closure_free(cls: mlx_closure) -> ::std::os::raw::c_int;
    pub fn mlx_closure_new_func(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: mlx_vector_array,
            ) -> ::std::os::raw::c_int,
        >,
    ) -> mlx_closure;
    pub fn mlx_closure_new_func_payload(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: mlx_vector_array,
                arg3: *mut ::std::os::raw::c_void,
            ) -> ::std::os::raw::c_int,
        >,
        payload: *mut ::std::os::raw::c_void,
        dtor: ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void)>,
    ) -> mlx_closure;
    pub fn mlx_closure_set(cls: *mut mlx_closure, src: mlx_closure) -> ::std::os::raw::c_int;
    pub fn mlx_closure_apply(
        res: *mut mlx_vector_array,
        cls: mlx_closure,
        input: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_new_unary(
        fun: ::std::option::Option<
            unsafe extern "C" fn(arg1: *mut mlx_array, arg2: mlx_array) -> ::std::os::raw::c_int,
        >,
    ) -> mlx_closure;
    pub fn mlx_closure_kwargs_new() -> mlx_closure_kwargs;
    pub fn mlx_closure_kwargs_free(cls: mlx_closure_kwargs) -> ::std::os::raw::c_int;
    pub fn mlx_closure_kwargs_new_func(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: mlx_vector_array,
                arg3: mlx_map_string_to_array,
            ) -> ::std::os::raw::c_int,
        >,
    ) -> mlx_closure_kwargs;
    pub fn mlx_closure_kwargs_new_func_payload(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: mlx_vector_array,
                arg3: mlx_map_string_to_array,
                arg4: *mut ::std::os::raw::c_void,
            ) -> ::std::os::raw::c_int,
        >,
        payload: *mut ::std::os::raw::c_void,
        dtor: ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void)>,
    ) -> mlx_closure_kwargs;
    pub fn mlx_closure_kwargs_set(
        cls: *mut mlx_closure_kwargs,
        src: mlx_closure_kwargs,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_kwargs_apply(
        res: *mut mlx_vector_array,
        cls: mlx_closure_kwargs,
        input_0: mlx_vector_array,
        input_1: mlx_map_string_to_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_value_and_grad_new() -> mlx_closure_value_and_grad;
    pub fn mlx_closure_value_and_grad_free(
        cls: mlx_closure_value_and_grad,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_value_and_grad_new_func(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: *mut mlx_vector_array,
                arg3: mlx_vector_array,
            ) -> ::std::os::raw::c_int,
        >,
    ) -> mlx_closure_value_and_grad;
    pub fn mlx_closure_value_and_grad_new_func_payload(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: *mut mlx_vector_array,
                arg3: mlx_vector_array,
                arg4: *mut ::std::os::raw::c_void,
            ) -> ::std::os::raw::c_int,
        >,
        payload: *mut ::std::os::raw::c_void,
        dtor: ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void)>,
    ) -> mlx_closure_value_and_grad;
    pub fn mlx_closure_value_and_grad_set(
        cls: *mut mlx_closure_value_and_grad,
        src: mlx_closure_value_and_grad,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_value_and_grad_apply(
        res_0: *mut mlx_vector_array,
        res_1: *mut mlx_vector_array,
        cls: mlx_closure_value_and_grad,
        input: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_custom_new() -> mlx_closure_custom;
    pub fn mlx_closure_custom_free(cls: mlx_closure_custom) -> ::std::os::raw::c_int;
    pub fn mlx_closure_custom_new_func(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: mlx_vector_array,
                arg3: mlx_vector_array,
                arg4: mlx_vector_array,
            ) -> ::std::os::raw::c_int,
        >,
    ) -> mlx_closure_custom;
    pub fn mlx_closure_custom_new_func_payload(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: mlx_vector_array,
                arg3: mlx_vector_array,
                arg4: mlx_vector_array,
                arg5: *mut ::std::os::raw::c_void,
            ) -> ::std::os::raw::c_int,
        >,
        payload: *mut ::std::os::raw::c_void,
        dtor: ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void)>,
    ) -> mlx_closure_custom;
    pub fn mlx_closure_custom_set(
        cls: *mut mlx_closure_custom,
        src: mlx_closure_custom,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_custom_apply(
        res: *mut mlx_vector_array,
        cls: mlx_closure_custom,
        input_0: mlx_vector_array,
        input_1: mlx_vector_array,
        input_2: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_custom_jvp_new() -> mlx_closure_custom_jvp;
    pub fn mlx_closure_custom_jvp_free(cls: mlx_closure_custom_jvp) -> ::std::os::raw::c_int;
    pub fn mlx_closure_custom_jvp_new_func(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: mlx_vector_array,
                arg3: mlx_vector_array,
                arg4: *const ::std::os::raw::c_int,
                _num: usize,
            ) -> ::std::os::raw::c_int,
        >,
    ) -> mlx_closure_custom_jvp;
    pub fn mlx_closure_custom_jvp_new_func_payload(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: mlx_vector_array,
                arg3: mlx_vector_array,
                arg4: *const ::std::os::raw::c_int,
                _num: usize,
                arg5: *mut ::std::os::raw::c_void,
            ) -> ::std::os::raw::c_int,
        >,
        payload: *mut ::std::os::raw::c_void,
        dtor: ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void)>,
    ) -> mlx_closure_custom_jvp;
    pub fn mlx_closure_custom_jvp_set(
        cls: *mut mlx_closure_custom_jvp,
        src: mlx_closure_custom_jvp,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_custom_jvp_apply(
        res: *mut mlx_vector_array,
        cls: mlx_closure_custom_jvp,
        input_0: mlx_vector_array,
        input_1: mlx_vector_array,
        input_2: *const ::std::os::raw::c_int,
        input_2_num: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_custom_vmap_new() -> mlx_closure_custom_vmap;
    pub fn mlx_closure_custom_vmap_free(cls: mlx_closure_custom_vmap) -> ::std::os::raw::c_int;
    pub fn mlx_closure_custom_vmap_new_func(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: *mut mlx_vector_int,
                arg3: mlx_vector_array,
                arg4: *const ::std::os::raw::c_int,
                _num: usize,
            ) -> ::std::os::raw::c_int,
        >,
    ) -> mlx_closure_custom_vmap;
    pub fn mlx_closure_custom_vmap_new_func_payload(
        fun: ::std::option::Option<
            unsafe extern "C" fn(
                arg1: *mut mlx_vector_array,
                arg2: *mut mlx_vector_int,
                arg3: mlx_vector_array,
                arg4: *const ::std::os::raw::c_int,
                _num: usize,
                arg5: *mut ::std::os::raw::c_void,
            ) -> ::std::os::raw::c_int,
        >,
        payload: *mut ::std::os::raw::c_void,
        dtor: ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void)>,
    ) -> mlx_closure_custom_vmap;
    pub fn mlx_closure_custom_vmap_set(
        cls: *mut mlx_closure_custom_vmap,
        src: mlx_closure_custom_vmap,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_closure_custom_vmap_apply(
        res_0: *mut mlx_vector_array,
        res_1: *mut mlx_vector_int,
        cls: mlx_closure_custom_vmap,
        input_0: mlx_vector_array,
        input_1: *const ::std::os::raw::c_int,
        input_1_num: usize,
    ) -> ::std::os::raw::c_int;
    #[doc = " Create an empty group."]
    pub fn mlx_distributed_group_new() -> mlx_distributed_group;
    #[doc = " Free the group."]
    pub fn mlx_distributed_group_free(group: mlx_distributed_group) -> ::std::os::raw::c_int;
    #[doc = " Initialize distributed."]
    pub fn mlx_distributed_init(
        res: *mut mlx_distributed_group,
        strict: bool,
        bk: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    #[doc = " Get the rank."]
    pub fn mlx_distributed_group_rank(group: mlx_distributed_group) -> ::std::os::raw::c_int;
    #[doc = " Get the group size."]
    pub fn mlx_distributed_group_size(group: mlx_distributed_group) -> ::std::os::raw::c_int;
    #[doc = " Split the group."]
    pub fn mlx_distributed_group_split(
        res: *mut mlx_distributed_group,
        group: mlx_distributed_group,
        color: ::std::os::raw::c_int,
        key: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    #[doc = " Check if distributed is available."]
    pub fn mlx_distributed_is_available(bk: *const ::std::os::raw::c_char) -> bool;
    pub fn mlx_compile_cache_new() -> mlx_compile_cache;
    pub fn mlx_compile_cache_free(cache: mlx_compile_cache) -> ::std::os::raw::c_int;
    pub fn mlx_compile(
        res: *mut mlx_closure,
        fun: mlx_closure,
        shapeless: bool,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_detail_compile(
        res: *mut mlx_closure,
        fun: mlx_closure,
        fun_id: usize,
        shapeless: bool,
        constants: *const u64,
        constants_num: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_detail_compile_cache(res: *mut mlx_compile_cache) -> ::std::os::raw::c_int;
    pub fn mlx_detail_compile_clear_cache(cache: mlx_compile_cache) -> ::std::os::raw::c_int;
    pub fn mlx_detail_compile_erase(
        cache: mlx_compile_cache,
        fun_id: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_disable_compile() -> ::std::os::raw::c_int;
    pub fn mlx_enable_compile() -> ::std::os::raw::c_int;
    pub fn mlx_set_compile_mode(mode: mlx_compile_mode) -> ::std::os::raw::c_int;
    #[doc = " \\defgroup cuda Cuda specific operations\n/\n/**@{"]
    pub fn mlx_cuda_is_available(res: *mut bool) -> ::std::os::raw::c_int;
    #[doc = " \\defgroup distributed Distributed collectives\n/\n/**@{"]
    pub fn mlx_distributed_all_gather(
        res: *mut mlx_array,
        x: mlx_array,
        group: mlx_distributed_group,
        S: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_distributed_all_max(
        res: *mut mlx_array,
        x: mlx_array,
        group: mlx_distributed_group,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_distributed_all_min(
        res: *mut mlx_array,
        x: mlx_array,
        group: mlx_distributed_group,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_distributed_all_sum(
        res: *mut mlx_array,
        x: mlx_array,
        group: mlx_distributed_group,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_distributed_recv(
        res: *mut mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        src: ::std::os::raw::c_int,
        group: mlx_distributed_group,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_distributed_recv_like(
        res: *mut mlx_array,
        x: mlx_array,
        src: ::std::os::raw::c_int,
        group: mlx_distributed_group,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_distributed_send(
        res: *mut mlx_array,
        x: mlx_array,
        dst: ::std::os::raw::c_int,
        group: mlx_distributed_group,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_distributed_sum_scatter(
        res: *mut mlx_array,
        x: mlx_array,
        group: mlx_distributed_group,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    #[doc = " Set the error handler."]
    pub fn mlx_set_error_handler(
        handler: mlx_error_handler_func,
        data: *mut ::std::os::raw::c_void,
        dtor: ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void)>,
    );
    #[doc = " Throw an error."]
    pub fn _mlx_error(
        file: *const ::std::os::raw::c_char,
        line: ::std::os::raw::c_int,
        fmt: *const ::std::os::raw::c_char,
        ...
    );
    #[doc = " \\defgroup fast Fast custom operations\n/\n/**@{"]
    pub fn mlx_fast_cross_entropy(
        res: *mut mlx_array,
        logits: mlx_array,
        targets: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_cuda_kernel_config_new() -> mlx_fast_cuda_kernel_config;
    pub fn mlx_fast_cuda_kernel_config_free(cls: mlx_fast_cuda_kernel_config);
    pub fn mlx_fast_cuda_kernel_config_add_output_arg(
        cls: mlx_fast_cuda_kernel_config,
        shape: *const ::std::os::raw::c_int,
        size: usize,
        dtype: mlx_dtype,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_cuda_kernel_config_set_grid(
        cls: mlx_fast_cuda_kernel_config,
        grid1: ::std::os::raw::c_int,
        grid2: ::std::os::raw::c_int,
        grid3: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_cuda_kernel_config_set_thread_group(
        cls: mlx_fast_cuda_kernel_config,
        thread1: ::std::os::raw::c_int,
        thread2: ::std::os::raw::c_int,
        thread3: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_cuda_kernel_config_set_init_value(
        cls: mlx_fast_cuda_kernel_config,
        value: f32,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_cuda_kernel_config_set_verbose(
        cls: mlx_fast_cuda_kernel_config,
        verbose: bool,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_cuda_kernel_config_add_template_arg_dtype(
        cls: mlx_fast_cuda_kernel_config,
        name: *const ::std::os::raw::c_char,
        dtype: mlx_dtype,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_cuda_kernel_config_add_template_arg_int(
        cls: mlx_fast_cuda_kernel_config,
        name: *const ::std::os::raw::c_char,
        value: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_cuda_kernel_config_add_template_arg_bool(
        cls: mlx_fast_cuda_kernel_config,
        name: *const ::std::os::raw::c_char,
        value: bool,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_cuda_kernel_new(
        name: *const ::std::os::raw::c_char,
        input_names: mlx_vector_string,
        output_names: mlx_vector_string,
        source: *const ::std::os::raw::c_char,
        header: *const ::std::os::raw::c_char,
        ensure_row_contiguous: bool,
        shared_memory: ::std::os::raw::c_int,
    ) -> mlx_fast_cuda_kernel;
    pub fn mlx_fast_cuda_kernel_free(cls: mlx_fast_cuda_kernel);
    pub fn mlx_fast_cuda_kernel_apply(
        outputs: *mut mlx_vector_array,
        cls: mlx_fast_cuda_kernel,
        inputs: mlx_vector_array,
        config: mlx_fast_cuda_kernel_config,
        stream: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_layer_norm(
        res: *mut mlx_array,
        x: mlx_array,
        weight: mlx_array,
        bias: mlx_array,
        eps: f32,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_metal_kernel_config_new() -> mlx_fast_metal_kernel_config;
    pub fn mlx_fast_metal_kernel_config_free(cls: mlx_fast_metal_kernel_config);
    pub fn mlx_fast_metal_kernel_config_add_output_arg(
        cls: mlx_fast_metal_kernel_config,
        shape: *const ::std::os::raw::c_int,
        size: usize,
        dtype: mlx_dtype,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_metal_kernel_config_set_grid(
        cls: mlx_fast_metal_kernel_config,
        grid1: ::std::os::raw::c_int,
        grid2: ::std::os::raw::c_int,
        grid3: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_metal_kernel_config_set_thread_group(
        cls: mlx_fast_metal_kernel_config,
        thread1: ::std::os::raw::c_int,
        thread2: ::std::os::raw::c_int,
        thread3: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_metal_kernel_config_set_init_value(
        cls: mlx_fast_metal_kernel_config,
        value: f32,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_metal_kernel_config_set_verbose(
        cls: mlx_fast_metal_kernel_config,
        verbose: bool,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_metal_kernel_config_add_template_arg_dtype(
        cls: mlx_fast_metal_kernel_config,
        name: *const ::std::os::raw::c_char,
        dtype: mlx_dtype,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_metal_kernel_config_add_template_arg_int(
        cls: mlx_fast_metal_kernel_config,
        name: *const ::std::os::raw::c_char,
        value: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_metal_kernel_config_add_template_arg_bool(
        cls: mlx_fast_metal_kernel_config,
        name: *const ::std::os::raw::c_char,
        value: bool,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_metal_kernel_new(
        name: *const ::std::os::raw::c_char,
        input_names: mlx_vector_string,
        output_names: mlx_vector_string,
        source: *const ::std::os::raw::c_char,
        header: *const ::std::os::raw::c_char,
        ensure_row_contiguous: bool,
        atomic_outputs: bool,
    ) -> mlx_fast_metal_kernel;
    pub fn mlx_fast_metal_kernel_free(cls: mlx_fast_metal_kernel);
    pub fn mlx_fast_metal_kernel_apply(
        outputs: *mut mlx_vector_array,
        cls: mlx_fast_metal_kernel,
        inputs: mlx_vector_array,
        config: mlx_fast_metal_kernel_config,
        stream: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_rms_norm(
        res: *mut mlx_array,
        x: mlx_array,
        weight: mlx_array,
        eps: f32,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_rope(
        res: *mut mlx_array,
        x: mlx_array,
        dims: ::std::os::raw::c_int,
        traditional: bool,
        base: mlx_optional_float,
        scale: f32,
        offset: ::std::os::raw::c_int,
        freqs: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_rope_dynamic(
        res: *mut mlx_array,
        x: mlx_array,
        dims: ::std::os::raw::c_int,
        traditional: bool,
        base: mlx_optional_float,
        scale: f32,
        offset: mlx_array,
        freqs: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_fast_scaled_dot_product_attention(
        res: *mut mlx_array,
        queries: mlx_array,
        keys: mlx_array,
        values: mlx_array,
        scale: f32,
        mask_mode: *const ::std::os::raw::c_char,
        mask_arr: mlx_array,
        sinks: mlx_array,
        force_fused: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    #[doc = " \\defgroup linalg Linear algebra operations\n/\n/**@{"]
    pub fn mlx_linalg_cholesky(
        res: *mut mlx_array,
        a: mlx_array,
        upper: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_cholesky_inv(
        res: *mut mlx_array,
        a: mlx_array,
        upper: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_cross(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_det(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_eig(
        res_0: *mut mlx_array,
        res_1: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_eigh(
        res_0: *mut mlx_array,
        res_1: *mut mlx_array,
        a: mlx_array,
        UPLO: *const ::std::os::raw::c_char,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_eigvals(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_eigvalsh(
        res: *mut mlx_array,
        a: mlx_array,
        UPLO: *const ::std::os::raw::c_char,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_inv(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_lu(
        res: *mut mlx_vector_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_lu_factor(
        res_0: *mut mlx_array,
        res_1: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_norm(
        res: *mut mlx_array,
        a: mlx_array,
        ord: f64,
        axis: *const ::std::os::raw::c_int,
        axis_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_norm_matrix(
        res: *mut mlx_array,
        a: mlx_array,
        ord: *const ::std::os::raw::c_char,
        axis: *const ::std::os::raw::c_int,
        axis_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_norm_l2(
        res: *mut mlx_array,
        a: mlx_array,
        axis: *const ::std::os::raw::c_int,
        axis_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_pinv(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_qr(
        res_0: *mut mlx_array,
        res_1: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_slogdet(
        res_0: *mut mlx_array,
        res_1: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_solve(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_solve_triangular(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        upper: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_svd(
        res: *mut mlx_vector_array,
        a: mlx_array,
        compute_uv: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linalg_tri_inv(
        res: *mut mlx_array,
        a: mlx_array,
        upper: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    #[doc = " \\defgroup memory Memory operations\n/\n/**@{"]
    pub fn mlx_clear_cache() -> ::std::os::raw::c_int;
    pub fn mlx_get_active_memory(res: *mut usize) -> ::std::os::raw::c_int;
    pub fn mlx_get_cache_memory(res: *mut usize) -> ::std::os::raw::c_int;
    pub fn mlx_get_memory_limit(res: *mut usize) -> ::std::os::raw::c_int;
    pub fn mlx_get_peak_memory(res: *mut usize) -> ::std::os::raw::c_int;
    pub fn mlx_reset_peak_memory() -> ::std::os::raw::c_int;
    pub fn mlx_set_cache_limit(res: *mut usize, limit: usize) -> ::std::os::raw::c_int;
    pub fn mlx_set_memory_limit(res: *mut usize, limit: usize) -> ::std::os::raw::c_int;
    pub fn mlx_set_wired_limit(res: *mut usize, limit: usize) -> ::std::os::raw::c_int;
    #[doc = " \\defgroup metal Metal specific operations\n/\n/**@{"]
    pub fn mlx_metal_get_metallib_path(res: *mut mlx_string) -> ::std::os::raw::c_int;
    pub fn mlx_metal_is_available(res: *mut bool) -> ::std::os::raw::c_int;
    pub fn mlx_metal_set_metallib_path(
        path: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_metal_start_capture(path: *const ::std::os::raw::c_char) -> ::std::os::raw::c_int;
    pub fn mlx_metal_stop_capture() -> ::std::os::raw::c_int;
    #[doc = " \\defgroup ops Core array operations\n/\n/**@{"]
    pub fn mlx_abs(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_add(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_addmm(
        res: *mut mlx_array,
        c: mlx_array,
        a: mlx_array,
        b: mlx_array,
        alpha: f32,
        beta: f32,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_all_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_all_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_all(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_allclose(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        rtol: f64,
        atol: f64,
        equal_nan: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_any_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_any_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_any(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_arange(
        res: *mut mlx_array,
        start: f64,
        stop: f64,
        step: f64,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_arccos(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_arccosh(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_arcsin(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_arcsinh(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_arctan(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_arctan2(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_arctanh(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_argmax_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_argmax(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_argmin_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_argmin(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_argpartition_axis(
        res: *mut mlx_array,
        a: mlx_array,
        kth: ::std::os::raw::c_int,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_argpartition(
        res: *mut mlx_array,
        a: mlx_array,
        kth: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_argsort_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_argsort(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_array_equal(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        equal_nan: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_as_strided(
        res: *mut mlx_array,
        a: mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        strides: *const i64,
        strides_num: usize,
        offset: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_astype(
        res: *mut mlx_array,
        a: mlx_array,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_atleast_1d(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_atleast_2d(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_atleast_3d(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_bartlett(
        res: *mut mlx_array,
        M: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_bitwise_and(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_bitwise_invert(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_bitwise_or(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_bitwise_xor(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_blackman(
        res: *mut mlx_array,
        M: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_block_masked_mm(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        block_size: ::std::os::raw::c_int,
        mask_out: mlx_array,
        mask_lhs: mlx_array,
        mask_rhs: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_broadcast_arrays(
        res: *mut mlx_vector_array,
        inputs: mlx_vector_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_broadcast_to(
        res: *mut mlx_array,
        a: mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_ceil(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_clip(
        res: *mut mlx_array,
        a: mlx_array,
        a_min: mlx_array,
        a_max: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_concatenate_axis(
        res: *mut mlx_array,
        arrays: mlx_vector_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_concatenate(
        res: *mut mlx_array,
        arrays: mlx_vector_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_conjugate(res: *mut mlx_array, a: mlx_array, s: mlx_stream)
    -> ::std::os::raw::c_int;
    pub fn mlx_contiguous(
        res: *mut mlx_array,
        a: mlx_array,
        allow_col_major: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_conv1d(
        res: *mut mlx_array,
        input: mlx_array,
        weight: mlx_array,
        stride: ::std::os::raw::c_int,
        padding: ::std::os::raw::c_int,
        dilation: ::std::os::raw::c_int,
        groups: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_conv2d(
        res: *mut mlx_array,
        input: mlx_array,
        weight: mlx_array,
        stride_0: ::std::os::raw::c_int,
        stride_1: ::std::os::raw::c_int,
        padding_0: ::std::os::raw::c_int,
        padding_1: ::std::os::raw::c_int,
        dilation_0: ::std::os::raw::c_int,
        dilation_1: ::std::os::raw::c_int,
        groups: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_conv3d(
        res: *mut mlx_array,
        input: mlx_array,
        weight: mlx_array,
        stride_0: ::std::os::raw::c_int,
        stride_1: ::std::os::raw::c_int,
        stride_2: ::std::os::raw::c_int,
        padding_0: ::std::os::raw::c_int,
        padding_1: ::std::os::raw::c_int,
        padding_2: ::std::os::raw::c_int,
        dilation_0: ::std::os::raw::c_int,
        dilation_1: ::std::os::raw::c_int,
        dilation_2: ::std::os::raw::c_int,
        groups: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_conv_general(
        res: *mut mlx_array,
        input: mlx_array,
        weight: mlx_array,
        stride: *const ::std::os::raw::c_int,
        stride_num: usize,
        padding_lo: *const ::std::os::raw::c_int,
        padding_lo_num: usize,
        padding_hi: *const ::std::os::raw::c_int,
        padding_hi_num: usize,
        kernel_dilation: *const ::std::os::raw::c_int,
        kernel_dilation_num: usize,
        input_dilation: *const ::std::os::raw::c_int,
        input_dilation_num: usize,
        groups: ::std::os::raw::c_int,
        flip: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_conv_transpose1d(
        res: *mut mlx_array,
        input: mlx_array,
        weight: mlx_array,
        stride: ::std::os::raw::c_int,
        padding: ::std::os::raw::c_int,
        dilation: ::std::os::raw::c_int,
        output_padding: ::std::os::raw::c_int,
        groups: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_conv_transpose2d(
        res: *mut mlx_array,
        input: mlx_array,
        weight: mlx_array,
        stride_0: ::std::os::raw::c_int,
        stride_1: ::std::os::raw::c_int,
        padding_0: ::std::os::raw::c_int,
        padding_1: ::std::os::raw::c_int,
        dilation_0: ::std::os::raw::c_int,
        dilation_1: ::std::os::raw::c_int,
        output_padding_0: ::std::os::raw::c_int,
        output_padding_1: ::std::os::raw::c_int,
        groups: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_conv_transpose3d(
        res: *mut mlx_array,
        input: mlx_array,
        weight: mlx_array,
        stride_0: ::std::os::raw::c_int,
        stride_1: ::std::os::raw::c_int,
        stride_2: ::std::os::raw::c_int,
        padding_0: ::std::os::raw::c_int,
        padding_1: ::std::os::raw::c_int,
        padding_2: ::std::os::raw::c_int,
        dilation_0: ::std::os::raw::c_int,
        dilation_1: ::std::os::raw::c_int,
        dilation_2: ::std::os::raw::c_int,
        output_padding_0: ::std::os::raw::c_int,
        output_padding_1: ::std::os::raw::c_int,
        output_padding_2: ::std::os::raw::c_int,
        groups: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_copy(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_cos(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_cosh(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_count_nonzero_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_count_nonzero_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_count_nonzero(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_cummax_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        reverse: bool,
        inclusive: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_cummax(
        res: *mut mlx_array,
        a: mlx_array,
        reverse: bool,
        inclusive: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_cummin_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        reverse: bool,
        inclusive: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_cummin(
        res: *mut mlx_array,
        a: mlx_array,
        reverse: bool,
        inclusive: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_cumprod_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        reverse: bool,
        inclusive: bool,
        dtype: mlx_optional_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_cumprod(
        res: *mut mlx_array,
        a: mlx_array,
        reverse: bool,
        inclusive: bool,
        dtype: mlx_optional_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_cumsum_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        reverse: bool,
        inclusive: bool,
        dtype: mlx_optional_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_cumsum(
        res: *mut mlx_array,
        a: mlx_array,
        reverse: bool,
        inclusive: bool,
        dtype: mlx_optional_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_degrees(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_depends(
        res: *mut mlx_vector_array,
        inputs: mlx_vector_array,
        dependencies: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_dequantize(
        res: *mut mlx_array,
        w: mlx_array,
        scales: mlx_array,
        biases: mlx_array,
        group_size: mlx_optional_int,
        bits: mlx_optional_int,
        mode: *const ::std::os::raw::c_char,
        global_scale: mlx_array,
        dtype: mlx_optional_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_diag(
        res: *mut mlx_array,
        a: mlx_array,
        k: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_diagonal(
        res: *mut mlx_array,
        a: mlx_array,
        offset: ::std::os::raw::c_int,
        axis1: ::std::os::raw::c_int,
        axis2: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_diff(
        res: *mut mlx_array,
        a: mlx_array,
        n: ::std::os::raw::c_int,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_divide(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_divmod(
        res: *mut mlx_vector_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_einsum(
        res: *mut mlx_array,
        subscripts: *const ::std::os::raw::c_char,
        operands: mlx_vector_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_equal(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_erf(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_erfinv(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_exp(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_expand_dims_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_expand_dims(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_expm1(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_eye(
        res: *mut mlx_array,
        n: ::std::os::raw::c_int,
        m: ::std::os::raw::c_int,
        k: ::std::os::raw::c_int,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_flatten(
        res: *mut mlx_array,
        a: mlx_array,
        start_axis: ::std::os::raw::c_int,
        end_axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_flip_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_flip_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_flip(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_floor(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_floor_divide(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_from_fp8(
        res: *mut mlx_array,
        x: mlx_array,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_full(
        res: *mut mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        vals: mlx_array,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_full_like(
        res: *mut mlx_array,
        a: mlx_array,
        vals: mlx_array,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_gather(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_vector_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        slice_sizes: *const ::std::os::raw::c_int,
        slice_sizes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_gather_single(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        axis: ::std::os::raw::c_int,
        slice_sizes: *const ::std::os::raw::c_int,
        slice_sizes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_gather_mm(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        lhs_indices: mlx_array,
        rhs_indices: mlx_array,
        sorted_indices: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_gather_qmm(
        res: *mut mlx_array,
        x: mlx_array,
        w: mlx_array,
        scales: mlx_array,
        biases: mlx_array,
        lhs_indices: mlx_array,
        rhs_indices: mlx_array,
        transpose: bool,
        group_size: mlx_optional_int,
        bits: mlx_optional_int,
        mode: *const ::std::os::raw::c_char,
        sorted_indices: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_gather_qqmm(
        res: *mut mlx_array,
        x: mlx_array,
        w: mlx_array,
        scales_w: mlx_array,
        lhs_indices: mlx_array,
        rhs_indices: mlx_array,
        group_size: mlx_optional_int,
        bits: mlx_optional_int,
        mode: *const ::std::os::raw::c_char,
        global_scale_x: mlx_array,
        global_scale_w: mlx_array,
        sorted_indices: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_greater(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_greater_equal(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_hadamard_transform(
        res: *mut mlx_array,
        a: mlx_array,
        scale: mlx_optional_float,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_hamming(
        res: *mut mlx_array,
        M: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_hanning(
        res: *mut mlx_array,
        M: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_identity(
        res: *mut mlx_array,
        n: ::std::os::raw::c_int,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_imag(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_inner(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_isclose(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        rtol: f64,
        atol: f64,
        equal_nan: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_isfinite(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_isinf(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_isnan(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_isneginf(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_isposinf(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_kron(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_left_shift(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_less(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_less_equal(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linspace_endpoint(
        res: *mut mlx_array,
        start: f64,
        stop: f64,
        num: ::std::os::raw::c_int,
        endpoint: bool,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_linspace(
        res: *mut mlx_array,
        start: f64,
        stop: f64,
        num: ::std::os::raw::c_int,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_log(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_log10(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_log1p(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_log2(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_logaddexp(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_logcumsumexp_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        reverse: bool,
        inclusive: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_logcumsumexp(
        res: *mut mlx_array,
        a: mlx_array,
        reverse: bool,
        inclusive: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_logical_and(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_logical_not(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_logical_or(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_logical_xor(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_logsumexp_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_logsumexp_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_logsumexp(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_masked_scatter(
        res: *mut mlx_array,
        a: mlx_array,
        mask: mlx_array,
        src: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_matmul(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_max_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_max_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_max(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_maximum(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_mean_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_mean_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_mean(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_median_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_median_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_median(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_meshgrid(
        res: *mut mlx_vector_array,
        arrays: mlx_vector_array,
        sparse: bool,
        indexing: *const ::std::os::raw::c_char,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_min_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_min_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_min(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_minimum(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_moveaxis(
        res: *mut mlx_array,
        a: mlx_array,
        source: ::std::os::raw::c_int,
        destination: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_multiply(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_nan_to_num(
        res: *mut mlx_array,
        a: mlx_array,
        nan: f32,
        posinf: mlx_optional_float,
        neginf: mlx_optional_float,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_negative(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_not_equal(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_number_of_elements(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        inverted: bool,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_ones(
        res: *mut mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_ones_like_dtype(
        res: *mut mlx_array,
        a: mlx_array,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_ones_like(res: *mut mlx_array, a: mlx_array, s: mlx_stream)
    -> ::std::os::raw::c_int;
    pub fn mlx_outer(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_pad(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        low_pad_size: *const ::std::os::raw::c_int,
        low_pad_size_num: usize,
        high_pad_size: *const ::std::os::raw::c_int,
        high_pad_size_num: usize,
        pad_value: mlx_array,
        mode: *const ::std::os::raw::c_char,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_pad_symmetric(
        res: *mut mlx_array,
        a: mlx_array,
        pad_width: ::std::os::raw::c_int,
        pad_value: mlx_array,
        mode: *const ::std::os::raw::c_char,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_partition_axis(
        res: *mut mlx_array,
        a: mlx_array,
        kth: ::std::os::raw::c_int,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_partition(
        res: *mut mlx_array,
        a: mlx_array,
        kth: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_positive(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_power(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_prod_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_prod_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_prod(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_put_along_axis(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        values: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_qqmm(
        res: *mut mlx_array,
        x: mlx_array,
        w: mlx_array,
        w_scales: mlx_array,
        group_size: mlx_optional_int,
        bits: mlx_optional_int,
        mode: *const ::std::os::raw::c_char,
        global_scale_x: mlx_array,
        global_scale_w: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_quantize(
        res: *mut mlx_vector_array,
        w: mlx_array,
        group_size: mlx_optional_int,
        bits: mlx_optional_int,
        mode: *const ::std::os::raw::c_char,
        global_scale: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_quantized_matmul(
        res: *mut mlx_array,
        x: mlx_array,
        w: mlx_array,
        scales: mlx_array,
        biases: mlx_array,
        transpose: bool,
        group_size: mlx_optional_int,
        bits: mlx_optional_int,
        mode: *const ::std::os::raw::c_char,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_radians(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_real(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_reciprocal(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_remainder(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_repeat_axis(
        res: *mut mlx_array,
        arr: mlx_array,
        repeats: ::std::os::raw::c_int,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_repeat(
        res: *mut mlx_array,
        arr: mlx_array,
        repeats: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_reshape(
        res: *mut mlx_array,
        a: mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_right_shift(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_roll_axis(
        res: *mut mlx_array,
        a: mlx_array,
        shift: *const ::std::os::raw::c_int,
        shift_num: usize,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_roll_axes(
        res: *mut mlx_array,
        a: mlx_array,
        shift: *const ::std::os::raw::c_int,
        shift_num: usize,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_roll(
        res: *mut mlx_array,
        a: mlx_array,
        shift: *const ::std::os::raw::c_int,
        shift_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_round(
        res: *mut mlx_array,
        a: mlx_array,
        decimals: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_rsqrt(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_scatter(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_vector_array,
        updates: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_scatter_single(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        updates: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_scatter_add(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_vector_array,
        updates: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_scatter_add_single(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        updates: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_scatter_add_axis(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        values: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_scatter_max(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_vector_array,
        updates: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_scatter_max_single(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        updates: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_scatter_min(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_vector_array,
        updates: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_scatter_min_single(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        updates: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_scatter_prod(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_vector_array,
        updates: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_scatter_prod_single(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        updates: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_searchsorted(
        res: *mut mlx_array,
        sorted_sequence: mlx_array,
        values: mlx_array,
        side: *const ::std::os::raw::c_char,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_segmented_mm(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        segments: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_sigmoid(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_sign(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_sin(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_sinh(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_slice(
        res: *mut mlx_array,
        a: mlx_array,
        start: *const ::std::os::raw::c_int,
        start_num: usize,
        stop: *const ::std::os::raw::c_int,
        stop_num: usize,
        strides: *const ::std::os::raw::c_int,
        strides_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_slice_dynamic(
        res: *mut mlx_array,
        a: mlx_array,
        start: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        slice_size: *const ::std::os::raw::c_int,
        slice_size_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_slice_update(
        res: *mut mlx_array,
        src: mlx_array,
        update: mlx_array,
        start: *const ::std::os::raw::c_int,
        start_num: usize,
        stop: *const ::std::os::raw::c_int,
        stop_num: usize,
        strides: *const ::std::os::raw::c_int,
        strides_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_slice_update_dynamic(
        res: *mut mlx_array,
        src: mlx_array,
        update: mlx_array,
        start: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_slice_update_add(
        res: *mut mlx_array,
        src: mlx_array,
        update: mlx_array,
        start: *const ::std::os::raw::c_int,
        start_num: usize,
        stop: *const ::std::os::raw::c_int,
        stop_num: usize,
        strides: *const ::std::os::raw::c_int,
        strides_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_slice_update_max(
        res: *mut mlx_array,
        src: mlx_array,
        update: mlx_array,
        start: *const ::std::os::raw::c_int,
        start_num: usize,
        stop: *const ::std::os::raw::c_int,
        stop_num: usize,
        strides: *const ::std::os::raw::c_int,
        strides_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_slice_update_min(
        res: *mut mlx_array,
        src: mlx_array,
        update: mlx_array,
        start: *const ::std::os::raw::c_int,
        start_num: usize,
        stop: *const ::std::os::raw::c_int,
        stop_num: usize,
        strides: *const ::std::os::raw::c_int,
        strides_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_slice_update_prod(
        res: *mut mlx_array,
        src: mlx_array,
        update: mlx_array,
        start: *const ::std::os::raw::c_int,
        start_num: usize,
        stop: *const ::std::os::raw::c_int,
        stop_num: usize,
        strides: *const ::std::os::raw::c_int,
        strides_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_softmax_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        precise: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_softmax_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        precise: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_softmax(
        res: *mut mlx_array,
        a: mlx_array,
        precise: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_sort_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_sort(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_split(
        res: *mut mlx_vector_array,
        a: mlx_array,
        num_splits: ::std::os::raw::c_int,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_split_sections(
        res: *mut mlx_vector_array,
        a: mlx_array,
        indices: *const ::std::os::raw::c_int,
        indices_num: usize,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_sqrt(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_square(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_squeeze_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_squeeze_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_squeeze(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_stack_axis(
        res: *mut mlx_array,
        arrays: mlx_vector_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_stack(
        res: *mut mlx_array,
        arrays: mlx_vector_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_std_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        ddof: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_std_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        ddof: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_std(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        ddof: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_stop_gradient(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_subtract(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_sum_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_sum_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_sum(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_swapaxes(
        res: *mut mlx_array,
        a: mlx_array,
        axis1: ::std::os::raw::c_int,
        axis2: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_take_axis(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_take(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_take_along_axis(
        res: *mut mlx_array,
        a: mlx_array,
        indices: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_tan(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_tanh(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_tensordot(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        axes_a: *const ::std::os::raw::c_int,
        axes_a_num: usize,
        axes_b: *const ::std::os::raw::c_int,
        axes_b_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_tensordot_axis(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_tile(
        res: *mut mlx_array,
        arr: mlx_array,
        reps: *const ::std::os::raw::c_int,
        reps_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_to_fp8(res: *mut mlx_array, x: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_topk_axis(
        res: *mut mlx_array,
        a: mlx_array,
        k: ::std::os::raw::c_int,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_topk(
        res: *mut mlx_array,
        a: mlx_array,
        k: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_trace_axes(
        res: *mut mlx_array,
        a: mlx_array,
        offset: ::std::os::raw::c_int,
        axis1: ::std::os::raw::c_int,
        axis2: ::std::os::raw::c_int,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_trace(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_transpose_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_transpose(res: *mut mlx_array, a: mlx_array, s: mlx_stream)
    -> ::std::os::raw::c_int;
    pub fn mlx_tri(
        res: *mut mlx_array,
        n: ::std::os::raw::c_int,
        m: ::std::os::raw::c_int,
        k: ::std::os::raw::c_int,
        type_: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_tril(
        res: *mut mlx_array,
        x: mlx_array,
        k: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_triu(
        res: *mut mlx_array,
        x: mlx_array,
        k: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_trunc(res: *mut mlx_array, a: mlx_array, s: mlx_stream) -> ::std::os::raw::c_int;
    pub fn mlx_unflatten(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_unstack_axis(
        res: *mut mlx_vector_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_unstack(
        res: *mut mlx_vector_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_var_axes(
        res: *mut mlx_array,
        a: mlx_array,
        axes: *const ::std::os::raw::c_int,
        axes_num: usize,
        keepdims: bool,
        ddof: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_var_axis(
        res: *mut mlx_array,
        a: mlx_array,
        axis: ::std::os::raw::c_int,
        keepdims: bool,
        ddof: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_var(
        res: *mut mlx_array,
        a: mlx_array,
        keepdims: bool,
        ddof: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vecdot(
        res: *mut mlx_array,
        a: mlx_array,
        b: mlx_array,
        axis: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_view(
        res: *mut mlx_array,
        a: mlx_array,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_where(
        res: *mut mlx_array,
        condition: mlx_array,
        x: mlx_array,
        y: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_zeros(
        res: *mut mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_zeros_like_dtype(
        res: *mut mlx_array,
        a: mlx_array,
        dtype: mlx_dtype,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_zeros_like(
        res: *mut mlx_array,
        a: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    #[doc = " \\defgroup random Random number operations\n/\n/**@{"]
    pub fn mlx_random_bernoulli(
        res: *mut mlx_array,
        p: mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_bits(
        res: *mut mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        width: ::std::os::raw::c_int,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_categorical_shape(
        res: *mut mlx_array,
        logits: mlx_array,
        axis: ::std::os::raw::c_int,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_categorical_num_samples(
        res: *mut mlx_array,
        logits_: mlx_array,
        axis: ::std::os::raw::c_int,
        num_samples: ::std::os::raw::c_int,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_categorical(
        res: *mut mlx_array,
        logits: mlx_array,
        axis: ::std::os::raw::c_int,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_gumbel(
        res: *mut mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_key(res: *mut mlx_array, seed: u64) -> ::std::os::raw::c_int;
    pub fn mlx_random_laplace(
        res: *mut mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        loc: f32,
        scale: f32,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_multivariate_normal(
        res: *mut mlx_array,
        mean: mlx_array,
        cov: mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_normal_broadcast(
        res: *mut mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        loc: mlx_array,
        scale: mlx_array,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_normal(
        res: *mut mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        loc: f32,
        scale: f32,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_permutation(
        res: *mut mlx_array,
        x: mlx_array,
        axis: ::std::os::raw::c_int,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_permutation_arange(
        res: *mut mlx_array,
        x: ::std::os::raw::c_int,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_randint(
        res: *mut mlx_array,
        low: mlx_array,
        high: mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_seed(seed: u64) -> ::std::os::raw::c_int;
    pub fn mlx_random_split_num(
        res: *mut mlx_array,
        key: mlx_array,
        num: ::std::os::raw::c_int,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_split(
        res_0: *mut mlx_array,
        res_1: *mut mlx_array,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_truncated_normal(
        res: *mut mlx_array,
        lower: mlx_array,
        upper: mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_random_uniform(
        res: *mut mlx_array,
        low: mlx_array,
        high: mlx_array,
        shape: *const ::std::os::raw::c_int,
        shape_num: usize,
        dtype: mlx_dtype,
        key: mlx_array,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    #[doc = " \\defgroup transforms Transform operations\n/\n/**@{"]
    pub fn mlx_async_eval(outputs: mlx_vector_array) -> ::std::os::raw::c_int;
    pub fn mlx_checkpoint(res: *mut mlx_closure, fun: mlx_closure) -> ::std::os::raw::c_int;
    pub fn mlx_custom_function(
        res: *mut mlx_closure,
        fun: mlx_closure,
        fun_vjp: mlx_closure_custom,
        fun_jvp: mlx_closure_custom_jvp,
        fun_vmap: mlx_closure_custom_vmap,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_custom_vjp(
        res: *mut mlx_closure,
        fun: mlx_closure,
        fun_vjp: mlx_closure_custom,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_eval(outputs: mlx_vector_array) -> ::std::os::raw::c_int;
    pub fn mlx_jvp(
        res_0: *mut mlx_vector_array,
        res_1: *mut mlx_vector_array,
        fun: mlx_closure,
        primals: mlx_vector_array,
        tangents: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_value_and_grad(
        res: *mut mlx_closure_value_and_grad,
        fun: mlx_closure,
        argnums: *const ::std::os::raw::c_int,
        argnums_num: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_vjp(
        res_0: *mut mlx_vector_array,
        res_1: *mut mlx_vector_array,
        fun: mlx_closure,
        primals: mlx_vector_array,
        cotangents: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    #[doc = " \\defgroup transforms_impl Implementation detail operations\n/\n/**@{"]
    pub fn mlx_detail_vmap_replace(
        res: *mut mlx_vector_array,
        inputs: mlx_vector_array,
        s_inputs: mlx_vector_array,
        s_outputs: mlx_vector_array,
        in_axes: *const ::std::os::raw::c_int,
        in_axes_num: usize,
        out_axes: *const ::std::os::raw::c_int,
        out_axes_num: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_detail_vmap_trace(
        res_0: *mut mlx_vector_array,
        res_1: *mut mlx_vector_array,
        fun: mlx_closure,
        inputs: mlx_vector_array,
        in_axes: *const ::std::os::raw::c_int,
        in_axes_num: usize,
    ) -> ::std::os::raw::c_int;
    pub fn mlx_version(str_: *mut mlx_string) -> ::std::os::raw::c_int;
    #[doc = " Makes an array of `dtype` and `shape` in MLX's own memory, with nothing written there yet, and\n tells where that is. Nothing may read the array before all of it was written. Where MLX has no\n GPU, it begins at a line of the cache, and lies in large pages if the system has them.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_array_allocate(
        res: *mut mlx_array,
        data: *mut *mut ::std::os::raw::c_void,
        shape: *const ::std::os::raw::c_int,
        dim: usize,
        dtype: mlx_dtype,
    ) -> ::std::os::raw::c_int;
    #[doc = " An operation on the CPU stream `s`, computed lazily by `kernel`, whose state it owns from the\n call on, whatever becomes of it. The state is used and dropped on any thread. `res` gets the\n result, then each written input as it is afterwards; that one shares the buffer of the input, which\n must not be read where it is written. Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_cpu_operation(
        res: *mut mlx_vector_array,
        inputs: mlx_vector_array,
        form: mlxrs_cpu_form,
        kernel: mlxrs_cpu_kernel,
        s: mlx_stream,
    ) -> ::std::os::raw::c_int;
    #[doc = " The launch that `outputs` are of, all outputs of one call of mlx_fast_cuda_kernel_apply. `written`\n are the `count` inputs that the kernel writes into.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_launch_new(
        res: *mut mlxrs_launch,
        outputs: mlx_vector_array,
        written: *const ::std::os::raw::c_int,
        count: usize,
    ) -> ::std::os::raw::c_int;
    #[doc = " The launch that `outputs` are of, all outputs of one call of mlx_fast_metal_kernel_apply.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_launch_of(
        res: *mut mlxrs_launch,
        outputs: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    #[doc = " The same launch over other inputs of the same types: the outputs, then each written input as it is\n afterwards. That one shares the buffer of the input, which must not be read where it is written.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_launch_apply(
        res: *mut mlx_vector_array,
        launch: mlxrs_launch,
        inputs: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    pub fn mlxrs_launch_free(launch: mlxrs_launch);
    #[doc = " `x wᵀ` for `x` of `[…, in]` and `w` of `[out, in]`, of one type: `[…, out]`. MLX multiplies; a replay on\n CUDA lets cuBLASLt multiply.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_dense(
        res: *mut mlx_array,
        x: mlx_array,
        w: mlx_array,
        stream: mlx_stream,
    ) -> ::std::os::raw::c_int;
    #[doc = " Takes the operation and its inputs from `a`, which was evaluated or sent to its device.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_array_detach(a: mlx_array) -> ::std::os::raw::c_int;
    #[doc = " Bytes of a CUDA device that no process holds, and that it has. Zero for both where there is no CUDA,\n or where this thread has not used the device yet."]
    pub fn mlxrs_device_memory(free_bytes: *mut usize, total_bytes: *mut usize);
    #[doc = " Bytes that this process holds: of the CUDA device, where `on_gpu` and there is one, else of the\n machine's memory. Zero where nobody tells."]
    pub fn mlxrs_held_memory(on_gpu: bool) -> usize;
    #[doc = " Bytes of a CUDA device that its pool has taken for arrays, those that are free for the next ones included."]
    pub fn mlxrs_pooled_memory() -> usize;
    #[doc = " Lets CUDA's pool keep what was freed until mlxrs_trim_memory. By itself it would give memory back whenever\n anybody waits for anything: also what MLX has freed while a kernel still uses it, since MLX frees on another\n stream than it computes on; and taking it anew costs milliseconds."]
    pub fn mlxrs_keep_pool();
    #[doc = " Waits for all that the process has sent to its CUDA device; whether that failed is said to whoever comes next."]
    pub fn mlxrs_wait_for_device();
    #[doc = " Gives back to the system what CUDA's pool keeps of memory that was freed. It waits for the device."]
    pub fn mlxrs_trim_memory();
    #[doc = " Gives back to the system what the C library keeps of memory that was freed, where it can be asked to."]
    pub fn mlxrs_trim_heap();
    #[doc = " Holds so many bytes of the CUDA device from now on, and nothing where there are not so many. Drivers take\n memory for kernels when these are first used, and MLX does not outlive it where there is none: what is\n held is there to be let go of before that."]
    pub fn mlxrs_reserve_memory(bytes: usize);
    #[doc = " Lets `skip` allocations of the shim succeed and the `count` ones after them fail, on any thread; for\n tests of what comes after a failure. Zero for `count` ends it."]
    pub fn mlxrs_fail_allocations(skip: usize, count: usize);
    #[doc = " Sees to it that this file is linked, which sets what MLX needs as the program is loaded: before it has\n threads that could read the environment meanwhile."]
    pub fn mlxrs_environment();
    #[doc = " The names of the operations that the values of `arrays` still wait for, each once, a line each.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_operations(
        res: *mut mlx_string,
        arrays: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    #[doc = " Writes the order in which MLX, given the tensors called `names` one after the other, writes them into a\n safetensors file: that of the standard library's hash map. `order` has room for `count` indices."]
    pub fn mlxrs_map_order(
        names: *const *const ::std::os::raw::c_char,
        count: usize,
        order: *mut usize,
    ) -> ::std::os::raw::c_int;
    #[doc = " Whether NCCL is there, and an MLX whose internals are known."]
    pub fn mlxrs_nccl_is_there() -> bool;
    #[doc = " Fills the MLXRS_NCCL_ID bytes of `id` for a new group, in one of its ranks.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_nccl_id(id: *mut ::std::os::raw::c_uchar) -> ::std::os::raw::c_int;
    #[doc = " The group with this `id`, once all of its `size` ranks are there. Sums and gathers run on the device's stream, and may be\n among what mlxrs_replay_new and mlxrs_dispatch take. The group holds memory of the device as long as the process lives.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_nccl_join(
        res: *mut mlx_distributed_group,
        id: *const ::std::os::raw::c_uchar,
        rank: ::std::os::raw::c_int,
        size: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    #[doc = " Makes memory that the other ranks of `group` write into when they sum, and fills the MLXRS_PEER_HANDLE bytes of `handle`.\n `text` is the kernel that sums.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_peers_offer(
        group: mlx_distributed_group,
        text: *const ::std::os::raw::c_char,
        handle: *mut ::std::os::raw::c_uchar,
    ) -> ::std::os::raw::c_int;
    #[doc = " Opens the memory of the others, by the `handles` of all ranks.\n Returns 0, or 1 after the error handler has been called: this device does not reach another one."]
    pub fn mlxrs_peers_open(
        group: mlx_distributed_group,
        handles: *const ::std::os::raw::c_uchar,
    ) -> ::std::os::raw::c_int;
    #[doc = " Sums what is known beforehand in this way. All ranks have to have opened it, and all have to call it at the same time.\n Returns 0, or 1 after the error handler has been called: what they write does not arrive within five seconds, or not as it was."]
    pub fn mlxrs_peers_try(group: mlx_distributed_group) -> ::std::os::raw::c_int;
    #[doc = " Lets sums go this way from now on. All ranks have to have opened it, and all have to call it."]
    pub fn mlxrs_peers_use(group: mlx_distributed_group);
    #[doc = " Lets what waits on the device for other ranks end, with any values, and lets later sums and gathers of the group fail.\n Any thread may call it, and does not wait for it."]
    pub fn mlxrs_nccl_give_up(group: mlx_distributed_group);
    #[doc = " Drops what was prepared for `stream`, of this thread, and never sent, waits for what was sent, gives\n unused memory back and sees that an operation succeeds. Arrays of evaluations that have failed stay\n without values.\n Returns 0, or 1 after the error handler has been called: then the thread must not use the stream any\n more, and must not end, since MLX would use it then."]
    pub fn mlxrs_recover(stream: mlx_stream) -> ::std::os::raw::c_int;
    #[doc = " Lets this thread wait for a CUDA device, and ask it for memory, while MLX captures operations on another\n thread: otherwise that capture fails, and MLX ends the process."]
    pub fn mlxrs_relax_captures();
    #[doc = " A number of the CUDA device, as cuDeviceGetAttribute has it; 0 where there is no device, or nobody tells."]
    pub fn mlxrs_device_number(attribute: ::std::os::raw::c_int) -> ::std::os::raw::c_int;
    #[doc = " The operations that make `output`, which is not evaluated, of `moving`, which are not either, of `fixed`\n and of whatever else is evaluated. MLXRS_DONE: `res` has them. MLXRS_NOT_YET while kernels are compiled for this, which\n takes a second on other threads: then it is worth another try. MLXRS_IMPOSSIBLE where something else than operations of\n mlxrs_launch_apply, mlxrs_dense, mlxrs_cpu_operation and sums of a group of mlxrs_nccl_join is among them; or where CUDA\n has no memory left for it. With `overlap` a kernel for CUDA begins before the one before it has ended, as far as it\n does not read what that one writes. With `follows` the `fixed` arrays, which are row-major, may be others each time. All ranks of `agreement` ask for it at the same time, and get the same outcome.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_replay_new(
        res: *mut mlxrs_replay,
        outcome: *mut mlxrs_outcome,
        output: mlx_array,
        moving: mlx_vector_array,
        fixed: mlx_vector_array,
        overlap: bool,
        follows: bool,
        agreement: mlxrs_agreement,
    ) -> ::std::os::raw::c_int;
    #[doc = " Whether mlxrs_replay_run repeats the operations for these arrays.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_replay_fits(
        res: *mut bool,
        replay: mlxrs_replay,
        moving: mlx_vector_array,
        fixed: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    #[doc = " Sends the operations to the device for other `moving` of the same shapes and types, behind all that was\n sent before; the moving arrays are of the same stream. `res` gets the output, which has the same buffer\n each time, or nothing where one of the other arrays is not in the buffer that it was in; of `fixed` ones that are\n followed, where one has another shape. Those of four dimensions may be longer along the third, all that were of one shape\n alike, where operations take the length from what they are given.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_replay_run(
        res: *mut mlx_vector_array,
        replay: mlxrs_replay,
        moving: mlx_vector_array,
        fixed: mlx_vector_array,
    ) -> ::std::os::raw::c_int;
    #[doc = " Waits for what it has sent, and lets go of what that read.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_replay_wait(replay: mlxrs_replay) -> ::std::os::raw::c_int;
    #[doc = " Waits for what it has sent."]
    pub fn mlxrs_replay_free(replay: mlxrs_replay);
    #[doc = " A dispatcher, to which nothing is possible where there is no CUDA.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_dispatcher_new(res: *mut mlxrs_dispatcher) -> ::std::os::raw::c_int;
    #[doc = " Sends the operations that make `outputs`, behind all that was sent before, and sets `res`. MLXRS_DONE: the\n outputs count as evaluated; operations of the same stream may read them, anybody else only after\n mlxrs_dispatcher_wait. Otherwise they are as they were: MLXRS_NOT_YET while kernels are compiled for this, on\n other threads; MLXRS_IMPOSSIBLE where operations other than those that mlxrs_replay_new takes stand between\n such ones. What does not need them is evaluated before. All ranks of `agreement` ask for it at the same time, and get\n the same outcome.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_dispatch(
        res: *mut mlxrs_outcome,
        dispatcher: mlxrs_dispatcher,
        outputs: mlx_vector_array,
        agreement: mlxrs_agreement,
    ) -> ::std::os::raw::c_int;
    #[doc = " Waits for what was sent.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_dispatcher_wait(dispatcher: mlxrs_dispatcher) -> ::std::os::raw::c_int;
    #[doc = " Gives up the memory that it keeps for what is dispatched next."]
    pub fn mlxrs_dispatcher_rest(dispatcher: mlxrs_dispatcher);
    #[doc = " Waits for what was sent."]
    pub fn mlxrs_dispatcher_free(dispatcher: mlxrs_dispatcher);
    #[doc = " Makes an array of `dtype` and `shape` with the bytes of `data` in memory of the CUDA device that `stream` is of.\n `done` stays false where there is none, and where MLX's own way is better: for arrays of up to eight bytes, and for\n large ones unless they are read `soon`. MLX puts them into managed memory, which comes to the device as a kernel first reads it. Where another\n process has taken the device's memory by then, that read is an illegal access, and no kernel of the process runs\n any more. Here it is this call that fails, for want of memory.\n Only operations of this thread may read the array before mlxrs_wait_for_upload.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_array_upload(
        res: *mut mlx_array,
        done: *mut bool,
        data: *const ::std::os::raw::c_void,
        shape: *const ::std::os::raw::c_int,
        dim: usize,
        dtype: mlx_dtype,
        soon: bool,
        stream: mlx_stream,
    ) -> ::std::os::raw::c_int;
    #[doc = " Waits until the host may read an array, where that is one that this thread has uploaded, or a part of such."]
    pub fn mlxrs_wait_for_upload(a: mlx_array);
    #[doc = " Copies the bytes of an array, which is evaluated and row-major, to `to`. `done` stays false where it does not lie in memory of\n the CUDA device that `stream` is of. MLX moves what the host reads to managed memory, and gives that to a later array of the same size: the kernel\n that writes it waits for the page, some 100 us.\n Returns 0, or 1 after the error handler has been called."]
    pub fn mlxrs_array_download(
        done: *mut bool,
        a: mlx_array,
        to: *mut ::std::os::raw::c_void,
        stream: mlx_stream,
    ) -> ::std::os::raw::c_int;
    #[doc = " Has another thread give back what this thread's `stream` of a CUDA device is through with. That of MLX is busy from its first\n task on: it never waits for the next one, and holds the lock that each commit needs. Without effect where nothing is known\n of MLX's own, and for a stream that has one already."]
    pub fn mlxrs_replace_worker(stream: mlx_stream) -> ::std::os::raw::c_int;
}
