// All that we use of MLX and its headers do not promise. It is known of one release, MLXRS_MLX_VERSION,
// which the build defines; whoever uses any of it asks `internals_are_known` first.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mlx/array.h"
#include "mlx/fast_primitives.h"
#include "mlx/primitives.h"
#include "mlx/stream.h"

namespace mlxrs {

// Whether the library that is loaded is the release that the rest of this file describes.
bool internals_are_known();

// A kernel as MLX keeps it.
using Kernel = mlx::core::fast::CustomKernel;

// The kernel of a primitive; null for others. MLX's library does not export what a cast would look at,
// so it is told by its name.
Kernel* kernel_of(mlx::core::Primitive& primitive);

// What the class of a kernel keeps to itself.
std::string& text_of(Kernel& kernel);
const std::string& name_of(const Kernel& kernel);
const std::tuple<int, int, int>& grid_of(const Kernel& kernel);
const std::tuple<int, int, int>& block_of(const Kernel& kernel);
// Bytes of shared memory that it takes beside what it names.
int memory_of(const Kernel& kernel);
// For each input, whether the kernel takes its shape, its strides and the number of its dimensions: one
// argument each, in this order, behind the address.
const std::vector<std::tuple<bool, bool, bool>>& takes_of(const Kernel& kernel);
// Whether inputs must be row-major.
bool copies_of(const Kernel& kernel);

// What MLX puts before the text of a kernel.
constexpr std::string_view KERNEL_HEADS[] = {
    "#include \"mlx/backend/cuda/device/utils.cuh\"",
    "#include <cooperative_groups.h>",
    "namespace cg = cooperative_groups;"};
// Where the function of a kernel is, and what it is compiled with beside the architecture and CUDA's headers.
constexpr std::string_view KERNEL_NAMESPACE = "mlx::core::cu::";
constexpr const char* KERNEL_OPTION = "--device-as-default-execution-space";
// Dimensions that a shape or strides have as arguments: int32_t and int64_t each.
constexpr size_t KERNEL_DIMS = 10;

// `mlx::core::cu::get_command_encoder`, which no header of the variants without CUDA declares; it returns a
// reference to an encoder.
constexpr const char* GET_ENCODER = "_ZN3mlx4core2cu19get_command_encoderENS0_6StreamE";
using GetEncoder = void* (*)(mlx::core::Stream stream);

// What is done in a graph, as encoders keep it.
struct EncodedNode {
  void* node;
  std::string type;
  std::string id;
};

using Tasks = std::vector<std::function<void()>>;

// What is done behind what a CUDA stream was sent, by a thread.
struct Worker {
  std::weak_ptr<void> self;
  std::mutex mutex;
  std::condition_variable changed;
  // Batches of tasks that were given to it, and those that are due.
  uint64_t committed;
  uint64_t signaled;
  void* signal_stream;
  struct {
    void* handle;
    void* device;
    int flags;
  } signal_event;
  bool stops;
  Tasks pending;
  std::map<uint64_t, Tasks> tasks;
  std::thread thread;
};

static_assert(sizeof(void*) != 8 || sizeof(std::mutex) != 40 || sizeof(Worker) == 240);

// What a CUDA stream is sent, and how it was sent before.
struct Encoder {
  void* device;
  void* stream;
  // What is prepared.
  void* graph;
  std::shared_ptr<void> worker;
  int node_count;
  bool in_concurrent;
  std::vector<void*> from_nodes;
  std::vector<void*> to_nodes;
  std::string nodes_key;
  std::string deps_key;
  std::vector<EncodedNode> concurrent_nodes;
  std::vector<std::shared_ptr<void>> temporaries;
  // Graphs that were sent, by their form.
  struct {
    const char* variable;
    size_t misses;
    std::list<std::pair<std::string, void*>> newest_first;
    std::unordered_map<std::string, void*> by_key;
    size_t capacity;
  } sent;
  std::vector<std::uintptr_t> active_deps;
  std::vector<std::uintptr_t> active_outputs;
  std::unordered_map<std::uintptr_t, EncodedNode> node_map;
  size_t bytes;
  bool is_updatable;
  int max_ops;
  int max_mb;
};

static_assert(sizeof(void*) != 8 || sizeof(std::string) != 32 || sizeof(Encoder) == 440);

// CUDA's stream of such an encoder.
inline void* stream_of_encoder(void* encoder) {
  return static_cast<Encoder*>(encoder)->stream;
}

// Where an array that is evaluated lies on a CUDA device.
inline uint64_t device_address_of(const mlx::core::array& a) {
  // A buffer begins with the address.
  auto data = *static_cast<const uint64_t*>(a.buffer().ptr());
  return data + a.offset();
}

} // namespace mlxrs
