#include "upload.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "cuda_driver.h"
#include "guarded.h"
#include "mlx/allocator.h"
#include "mlx/c/private/array.h"
#include "mlx/c/private/enums.h"
#include "mlx/c/private/stream.h"

using namespace mlx::core;

namespace mlxrs {
namespace {

// MLX keeps what is not larger in memory that the device reads in place.
constexpr size_t SMALL = 8;
// More is copied by the page, and moves by itself.
constexpr size_t LARGE = 1 << 20;

// As MLX's allocator keeps it; without a device, the memory is managed.
struct CudaBuffer {
  void* data;
  size_t size;
  int device;
};

// Behind the last upload of this thread.
struct Uploaded {
  Handle event{nullptr};
  bool is_pending{false};
};
thread_local Uploaded uploaded;

// The buffers of what was uploaded, by any thread: the host may not read them before the upload's event.
class UploadBuffers {
 public:
  void add(const void* buffer) {
    std::lock_guard lock(mutex_);
    all_.insert(buffer);
  }

  void remove(const void* buffer) {
    std::lock_guard lock(mutex_);
    all_.erase(buffer);
  }

  bool has(const void* buffer) {
    std::lock_guard lock(mutex_);
    return all_.count(buffer) > 0;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<const void*> all_;
};

// Arrays may be given back until the process ends.
UploadBuffers& buffers() {
  static auto* all = new UploadBuffers;
  return *all;
}

// The stream on which memory is given back. As long as anything reads an array, MLX or we hold it.
Handle free_stream() {
  static Handle stream = [] {
    Handle made = nullptr;
    constexpr unsigned NON_BLOCKING = 1;
    check(cuda()->new_stream(&made, NON_BLOCKING), "cuStreamCreate");
    return made;
  }();
  return stream;
}

void give_back(allocator::Buffer buffer) {
  std::unique_ptr<CudaBuffer> of(static_cast<CudaBuffer*>(buffer.ptr()));
  buffers().remove(of.get());
  auto address = reinterpret_cast<Address>(of->data);
  // What the host has read was moved to managed memory.
  if (of->device < 0) {
    cuda()->let_go(address);
  } else {
    cuda()->let_go_async(address, free_stream());
  }
}

// Null on a thread that has not used the device: then the array is not for it.
Handle queue_of(Stream stream) {
  try {
    return stream_of(stream);
  } catch (std::exception&) {
    return nullptr;
  }
}

array upload(const void* data, const Shape& shape, Dtype dtype, size_t bytes, Handle queue) {
  auto& c = *cuda();
  // Whoever gives it back must not fail.
  free_stream();
  if (!uploaded.event) {
    constexpr unsigned WITHOUT_TIMES = 2;
    check(c.new_event(&uploaded.event, WITHOUT_TIMES), "cuEventCreate");
  }
  Address address = 0;
  check(c.take(&address, bytes, queue), "cuMemAllocAsync");
  auto* buffer = new CudaBuffer{reinterpret_cast<void*>(address), bytes, 0};
  buffers().add(buffer);
  array result(allocator::Buffer(buffer), shape, dtype, give_back);
  check(c.upload(address, data, bytes, queue), "cuMemcpyHtoDAsync");
  check(c.record(uploaded.event, queue), "cuEventRecord");
  uploaded.is_pending = true;
  return result;
}

// What brings bytes to the host, for one thread after the other. It stays until the process ends.
class Downloads {
 public:
  // The thread is in the device's context. False where there is no memory for it.
  bool copy(Address from, void* to, size_t bytes) {
    std::lock_guard lock(mutex_);
    auto& c = *cuda();
    constexpr unsigned NON_BLOCKING = 1;
    bool is_ready = (stream_ || c.new_stream(&stream_, NON_BLOCKING) == 0) &&
        (staging_ || c.take_of_host(&staging_, STAGED) == 0);
    if (!is_ready) {
      return false;
    }
    // The driver copies to memory of its own first where it is not told to.
    bool is_staged = bytes <= STAGED;
    check(c.download(is_staged ? staging_ : to, from, bytes, stream_), "cuMemcpyDtoHAsync");
    check(c.wait_for_stream(stream_), "cuStreamSynchronize");
    if (is_staged) {
      std::memcpy(to, staging_, bytes);
    }
    return true;
  }

 private:
  static constexpr size_t STAGED = 1 << 16;
  std::mutex mutex_;
  Handle stream_{nullptr};
  void* staging_{nullptr};
};

Downloads& downloads() {
  static auto* all = new Downloads;
  return *all;
}

} // namespace
} // namespace mlxrs

extern "C" int mlxrs_array_upload(
    mlx_array* res,
    bool* done,
    const void* data,
    const int* shape,
    size_t dim,
    mlx_dtype dtype,
    bool soon,
    const mlx_stream stream) {
  return mlxrs::guarded([&] {
    *done = false;
    auto& of = mlx_stream_get_(stream);
    auto type = mlx_dtype_to_cpp(dtype);
    size_t bytes = size_of(type);
    for (size_t i = 0; i < dim; i++) {
      bytes *= shape[i];
    }
    bool is_fit = of.device == Device::gpu && bytes > mlxrs::SMALL && (soon || bytes <= mlxrs::LARGE) && mlxrs::cuda();
    if (auto queue = is_fit ? mlxrs::queue_of(of) : nullptr) {
      mlx_array_set_(*res, mlxrs::upload(data, Shape(shape, shape + dim), type, bytes, queue));
      *done = true;
    }
  });
}

extern "C" void mlxrs_wait_for_upload(const mlx_array a) {
  auto& uploaded = mlxrs::uploaded;
  auto& of = mlx_array_get_(a);
  // What operations make of it, MLX waits for.
  bool is_there = of.status() != array::Status::unscheduled && of.data_shared_ptr() != nullptr;
  if (uploaded.is_pending && is_there && mlxrs::buffers().has(of.buffer().ptr())) {
    mlxrs::cuda()->wait(uploaded.event);
    uploaded.is_pending = false;
  }
}

extern "C" int mlxrs_array_download(bool* done, const mlx_array a, void* to, const mlx_stream stream) {
  return mlxrs::guarded([&] {
    *done = false;
    auto& of = mlx_array_get_(a);
    auto& queue = mlx_stream_get_(stream);
    if (queue.device != Device::gpu || !mlxrs::cuda() || of.nbytes() == 0) {
      return;
    }
    auto* buffer = static_cast<mlxrs::CudaBuffer*>(of.buffer().ptr());
    // Whoever asks for the stream is in its device's context.
    if (buffer && buffer->device >= 0 && mlxrs::queue_of(queue)) {
      *done = mlxrs::downloads().copy(mlxrs::device_address_of(of), to, of.nbytes());
    }
  });
}
