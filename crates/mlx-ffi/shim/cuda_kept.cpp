#include "cuda_blas.h"
#include "cuda_compiler.h"
#include "dense.h"
#include "in_place.h"
#include "kept.h"
#include "nccl.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "mlx/ops.h"
#include "mlx/transforms.h"

using namespace mlx::core;

namespace mlxrs {
namespace {

// The kernel of a primitive, and the inputs that it writes into; throws for others.
std::pair<Kernel&, std::vector<int>> kernel_and_written(Primitive& primitive) {
  auto* in_place = dynamic_cast<InPlace*>(&primitive);
  auto* kernel = kernel_of(in_place ? in_place->kernel() : primitive);
  if (!kernel) {
    throw Foreign{primitive.name()};
  }
  return {*kernel, in_place ? in_place->written() : std::vector<int>{}};
}

// What `work` gives; where CUDA refuses, operations are as they were, and are not kept.
template <typename F>
auto or_foreign(F work) {
  try {
    return work();
  } catch (std::runtime_error& error) {
    throw Foreign{error.what()};
  }
}

// In the names of the kernels of `cuda::buffers` and `cuda::buffers_of_layers`.
constexpr const char* BUFFERS = "mlxrs_buffers";

// What products of a stream use, which run one after the other: all that this thread keeps and sends share it.
std::shared_ptr<array> workspace_of(Stream stream) {
  thread_local std::pair<Stream, std::weak_ptr<array>> last{stream, {}};
  auto workspace = last.first == stream ? last.second.lock() : nullptr;
  if (!workspace) {
    workspace = std::make_shared<array>(zeros({static_cast<int>(BLAS_WORKSPACE)}, uint8, stream));
    async_eval({*workspace});
    last = {stream, workspace};
  }
  return workspace;
}

// Parts of a pass that the host may be ahead of the device.
constexpr size_t UNDER_WAY = 4;

// Buffers of values. What is sent to a stream may use those of which no array is a view any more: it runs behind
// whatever read them, also where that is still under way. To fill a new one with zeros takes longer than many a layer's norms.
class Buffers {
 public:
  // The smallest one that fits and is not far too large.
  std::optional<array> take(int words) {
    auto best = all_.end();
    for (auto it = all_.begin(); it != all_.end(); it++) {
      bool is_unseen = it->data_shared_ptr().use_count() == 1;
      bool fits = is_unseen && it->shape(0) >= words && it->shape(0) / 2 <= words;
      if (fits && (best == all_.end() || it->shape(0) < best->shape(0))) {
        best = it;
      }
    }
    return best == all_.end() ? std::nullopt : std::optional(*best);
  }

  // As many as may be under way.
  void keep(array buffer) {
    if (all_.size() == UNDER_WAY) {
      all_.erase(all_.begin());
    }
    all_.push_back(std::move(buffer));
  }

  void clear() {
    all_.clear();
  }

 private:
  std::vector<array> all_;
};

// Those of intermediate values, and those of what is left, which arrays may be views of for long.
struct BuffersOfStream {
  Buffers passing;
  Buffers left;
};

// Launches of kernels, and products, as a graph of CUDA's.
class CudaKept : public Kept {
 public:
  // Products may use `workspace`, of BLAS_WORKSPACE bytes; without one, they get one. `buffers`, where there are such, are
  // of the same stream.
  explicit CudaKept(bool overlap, std::shared_ptr<array> workspace = nullptr, BuffersOfStream* buffers = nullptr)
      : overlap_(overlap && compute_major() >= 9), workspace_(std::move(workspace)), buffers_(buffers) {}

  ~CudaKept() override {
    for (auto& sent : sent_) {
      if (sent.event) {
        cuda()->wait(sent.event);
        cuda()->free_event(sent.event);
      }
    }
    if (executable_) {
      cuda()->free_executable(executable_);
    }
    if (graph_) {
      cuda()->free_graph(graph_);
    }
  }

  void wait() override {
    for (auto& sent : sent_) {
      check(cuda()->wait(sent.event), "cuEventSynchronize");
      sent.read.clear();
    }
  }

 private:
  Known known(const array& a) override {
    if (dynamic_cast<Dense*>(a.primitive_ptr().get())) {
      auto is_fit = [](const array& of) {
        return of.status() == array::Status::unscheduled || of.flags().row_contiguous;
      };
      auto& inputs = a.inputs();
      if (!multiplies(a.dtype()) || !std::all_of(inputs.begin(), inputs.end(), is_fit)) {
        throw Foreign{"a product of another type, or of gaps"};
      }
      return {true, {}};
    }
    if (group_of_sum(*a.primitive_ptr())) {
      auto& input = a.inputs()[0];
      bool is_fit = input.status() == array::Status::unscheduled || input.flags().row_contiguous;
      if (!is_fit || !sums(a.dtype())) {
        throw Foreign{"a sum of another type, or of gaps"};
      }
      return {true, {}};
    }
    auto [kernel, written] = kernel_and_written(*a.primitive_ptr());
    for (auto& input : a.inputs()) {
      bool is_there = input.status() != array::Status::unscheduled;
      // What is not there yet is row-major: our own kernels make it.
      bool is_fit = !is_there || input.flags().row_contiguous ||
          (!copies_of(kernel) && is_dense(input.shape(), input.strides()));
      if (!is_fit) {
        throw Foreign{"gaps in an input of " + name_of(kernel)};
      }
    }
    auto found = or_foreign([&] { return function_of(kernel); });
    if (found.is_impossible) {
      throw Foreign{"no image of " + name_of(kernel)};
    }
    return {found.function != nullptr, written};
  }

  uint64_t address(const array& a) const override {
    return device_address_of(a);
  }

  Strides strides(const array& a) const override {
    return a.strides();
  }

  void keep(std::vector<Operation> operations, const std::vector<size_t>& following) override {
    or_foreign([&] { capture(operations, following); });
  }

  void change(size_t index, const Operation& operation) override {
    Call call(operation);
    auto node = call.node(function_of(call.kernel).function);
    check(cuda()->change_kernel(executable_, nodes_[index], &node), "cuGraphExecKernelNodeSetParams");
  }

  bool takes_views() const override {
    return true;
  }

  // All that our kernels know of a length, they take from the shape of one of their inputs; of what is as long, they take the
  // strides alone.
  bool takes_length(const Operation& operation, size_t input) const override {
    auto* kernel = is_product(operation) ? nullptr : &kernel_and_written(*operation.primitive).first;
    return kernel && std::get<1>(takes_of(*kernel)[input]);
  }

  static bool is_product(const Operation& of) {
    return dynamic_cast<Dense*>(of.primitive.get()) != nullptr;
  }

  static bool is_sum(const Operation& of) {
    return group_of_sum(*of.primitive) != nullptr;
  }

  // The kernel of a graph that was sent to a captured stream last.
  static Handle last_node(Handle stream) {
    constexpr int ACTIVE = 1;
    int status = 0;
    uint64_t id = 0;
    size_t count = 0;
    Handle graph = nullptr;
    const Handle* dependencies = nullptr;
    check(cuda()->capture_info(stream, &status, &id, &graph, &dependencies, &count), "cuStreamGetCaptureInfo");
    if (status != ACTIVE || count != 1) {
      throw std::runtime_error("a captured stream has no last kernel");
    }
    return dependencies[0];
  }

  void capture(const std::vector<Operation>& operations, const std::vector<size_t>& following) {
    auto& c = *cuda();
    for (auto index : following) {
      auto& operation = operations[index];
      if (is_product(operation) || is_sum(operation) || !c.capture_info || !c.change_kernel) {
        throw std::runtime_error("an operation that cannot be changed later");
      }
    }
    constexpr unsigned NON_BLOCKING = 1;
    // A library may load its kernels, or ask for memory, as it is called for the first time.
    constexpr int RELAXED = 2;
    if (!workspace_ && std::any_of(operations.begin(), operations.end(), is_product)) {
      workspace_ = workspace_of(this->stream());
    }
    Handle stream, graph = nullptr;
    check(c.new_stream(&stream, NON_BLOCKING), "cuStreamCreate");
    int result = c.capture(stream, RELAXED);
    std::string refused;
    try {
      for (size_t i = 0; i < operations.size() && result == 0; i++) {
        // NCCL's kernels tell nothing of their end.
        bool is_behind_ours = i > 0 && !is_of_nccl(operations[i - 1]);
        result = launch(operations[i], is_behind_ours && overlap_, stream);
        if (result == 0 && nodes_.size() < following.size() && following[nodes_.size()] == i) {
          nodes_.push_back(last_node(stream));
        }
      }
    } catch (std::runtime_error& error) {
      constexpr int OUT_OF_MEMORY = 2;
      result = OUT_OF_MEMORY;
      refused = std::string(", ") + error.what();
    }
    int ended = c.end_capture(stream, &graph);
    if (result == 0 && ended == 0) {
      result = c.instantiate(&executable_, graph, 0);
    }
    if (graph && following.empty()) {
      c.free_graph(graph);
    } else {
      // Its kernels are named by those of the graph that it was made of.
      graph_ = graph;
    }
    c.free_stream(stream);
    check(result == 0 ? ended : result, ("a graph of launches" + refused).c_str());
    constexpr unsigned WITHOUT_TIMES = 2;
    for (auto& sent : sent_) {
      check(c.new_event(&sent.event, WITHOUT_TIMES), "cuEventCreate");
    }
  }

  array make_words(int count, bool is_left) override {
    if (!buffers_) {
      return Kept::make_words(count, is_left);
    }
    auto& buffers = is_left ? buffers_->left : buffers_->passing;
    auto found = buffers.take(count);
    if (!found) {
      found = Kept::make_words(count, is_left);
      buffers.keep(*found);
    }
    return *found;
  }

  void send_once(const std::vector<Operation>& operations) override {
    auto queue = stream_of(stream());
    auto all = [&] {
      for (auto& operation : operations) {
        check(launch(operation, false, queue), "cuLaunchKernelEx");
      }
    };
    if (std::any_of(operations.begin(), operations.end(), is_sum)) {
      // Other ranks have sent the same, and nothing may be summed twice.
      all();
    } else {
      or_foreign(all);
    }
  }

  static size_t count_of(const Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies<size_t>());
  }

  static bool is_of_nccl(const Operation& of) {
    auto* ranks = group_of_sum(*of.primitive);
    return ranks && !sums_by_kernel(*ranks, count_of(of.inputs[0].shape), of.inputs[0].dtype);
  }

  // What a kernel is called with.
  struct Call {
    struct Values {
      Address address;
      std::array<int32_t, KERNEL_DIMS> shape{};
      std::array<int64_t, KERNEL_DIMS> strides{};
      int32_t dims{0};
    };

    explicit Call(const Operation& operation) : kernel(kernel_and_written(*operation.primitive).first) {
      auto& [primitive, inputs, outputs] = operation;
      values.resize(inputs.size() + outputs.size());
      arguments.reserve(4 * inputs.size() + outputs.size());
      auto& takes = takes_of(kernel);
      for (size_t i = 0; i < inputs.size(); i++) {
        auto& input = inputs[i];
        auto& value = values[i];
        auto [shape, strides, dims] = takes[i];
        value.address = input.address;
        arguments.push_back(&value.address);
        if (shape) {
          std::copy(input.shape.begin(), input.shape.end(), value.shape.begin());
          arguments.push_back(value.shape.data());
        }
        if (strides) {
          std::copy(input.strides.begin(), input.strides.end(), value.strides.begin());
          arguments.push_back(value.strides.data());
        }
        if (dims) {
          value.dims = static_cast<int32_t>(input.shape.size());
          arguments.push_back(&value.dims);
        }
      }
      for (size_t i = 0; i < outputs.size(); i++) {
        auto& value = values[inputs.size() + i];
        value.address = outputs[i].address;
        arguments.push_back(&value.address);
      }
      auto [gx, gy, gz] = grid_of(kernel);
      auto [bx, by, bz] = block_of(kernel);
      auto blocks = [](int threads, int of) { return static_cast<unsigned>((threads + of - 1) / of); };
      auto extent = [](int threads, int of) { return static_cast<unsigned>(std::min(threads, of)); };
      grid = {blocks(gx, bx), blocks(gy, by), blocks(gz, bz)};
      block = {extent(gx, bx), extent(gy, by), extent(gz, bz)};
    }

    NodeLaunch node(Handle function) {
      return {
          function,
          {grid[0], grid[1], grid[2]},
          {block[0], block[1], block[2]},
          static_cast<unsigned>(memory_of(kernel)),
          arguments.data(),
          nullptr,
          nullptr,
          nullptr};
    }

    // Arguments are where the values are.
    Call(const Call&) = delete;

    Kernel& kernel;
    std::vector<Values> values;
    std::vector<void*> arguments;
    std::array<unsigned, 3> grid;
    std::array<unsigned, 3> block;
  };

  int launch(const Operation& operation, bool overlaps, Handle stream) {
    auto& [primitive, inputs, outputs] = operation;
    if (auto* ranks = group_of_sum(*primitive)) {
      auto& [from, dtype, shape, strides] = inputs[0];
      sum(*ranks, from, outputs[0].address, count_of(shape), dtype, overlaps, stream);
      return 0;
    }
    if (is_product(operation)) {
      auto& w = inputs[1];
      int in = w.shape[1], out = w.shape[0];
      int rows = 1;
      for (size_t i = 0; i + 1 < outputs[0].shape.size(); i++) {
        rows *= outputs[0].shape[i];
      }
      Product product{rows, in, out, w.dtype, inputs[0].address, w.address, outputs[0].address};
      multiply(product, device_address_of(*workspace_), stream);
      return 0;
    }
    Call call(operation);
    // It may begin before the one before it has ended: kernels wait where they have to.
    constexpr int PROGRAMMATIC_STREAM_SERIALIZATION = 6;
    Attribute overlap{PROGRAMMATIC_STREAM_SERIALIZATION, {1}};
    auto& [gx, gy, gz] = call.grid;
    auto& [bx, by, bz] = call.block;
    Config config{{gx, gy, gz}, {bx, by, bz}, static_cast<unsigned>(memory_of(call.kernel)), stream, &overlap, overlaps};
    return cuda()->launch(&config, function_of(call.kernel).function, call.arguments.data(), nullptr);
  }

  void send(std::vector<array> moving, const std::vector<uint64_t>& places, std::vector<array> held) override {
    // MLX does not know that these are read, so they are held until that is done.
    auto& sent = sent_[runs_++ % sent_.size()];
    check(cuda()->wait(sent.event), "cuEventSynchronize");
    auto queue = stream_of(stream());
    sent.read = std::move(held);
    sent.read.insert(sent.read.end(), moving.begin(), moving.end());
    try {
      for (size_t i = 0; i < moving.size(); i++) {
        check(cuda()->copy(places[i], device_address_of(moving[i]), moving[i].nbytes(), queue), "cuMemcpyAsync");
      }
      check(cuda()->run(executable_, queue), "cuGraphLaunch");
      check(cuda()->record(sent.event, queue), "cuEventRecord");
    } catch (...) {
      // A part may be on its way, and no event tells when it is through.
      cuda()->wait_for_stream(queue);
      throw;
    }
  }

  // The layers of a model share their kernels, and comparing texts takes long.
  Compiled function_of(Kernel& kernel) {
    auto found = functions_.find(&kernel);
    if (found == functions_.end()) {
      // What they allocate stays.
      if (name_of(kernel).find(BUFFERS) != std::string::npos) {
        throw Foreign{"buffers that are made"};
      }
      auto known = compiled(kernel, overlap_);
      if (!known.function) {
        return known;
      }
      found = functions_.emplace(&kernel, known).first;
    }
    return found->second;
  }

  // What the last runs have read, until their events.
  struct Sent {
    Handle event{nullptr};
    std::vector<array> read;
  };

  bool overlap_;
  // Of kernels that the operations hold.
  std::unordered_map<Kernel*, Compiled> functions_;
  // Of all products: they run one after the other.
  std::shared_ptr<array> workspace_;
  BuffersOfStream* buffers_;
  std::array<Sent, 2> sent_;
  size_t runs_{0};
  Handle executable_{nullptr};
  // Those that may be changed, of the graph that it was made of.
  std::vector<Handle> nodes_;
  Handle graph_{nullptr};
};

// What was launched, by the events behind it.
class CudaDispatched : public Dispatched {
 public:
  ~CudaDispatched() override {
    for (auto& sent : sent_) {
      if (sent.event) {
        cuda()->wait(sent.event);
        cuda()->free_event(sent.event);
      }
    }
  }

  mlxrs_outcome send(const std::vector<array>& outputs, const mlxrs_agreement& ranks) override {
    auto of_stream = std::find_if(outputs.begin(), outputs.end(), [](const array& a) { return a.has_primitive(); });
    if (of_stream == outputs.end()) {
      return MLXRS_DONE;
    }
    auto stream = of_stream->primitive().stream();
    if (stream.device != Device::gpu) {
      return agreed(ranks, MLXRS_IMPOSSIBLE);
    }
    if (!workspace_) {
      workspace_ = workspace_of(stream);
    }
    auto& sent = oldest();
    CudaKept kept(false, workspace_, &buffers_);
    try {
      if (auto outcome = kept.dispatch(outputs, ranks); outcome != MLXRS_DONE) {
        return outcome;
      }
      sends_++;
      sent.held = kept.held();
      check(cuda()->record(sent.event, stream_of(stream)), "cuEventRecord");
    } catch (...) {
      // Something may have been launched, and no event tells when it is through.
      cuda()->wait_for_stream(stream_of(stream));
      throw;
    }
    return MLXRS_DONE;
  }

  void wait() override {
    for (auto& sent : sent_) {
      if (sent.event) {
        check(cuda()->wait(sent.event), "cuEventSynchronize");
        sent.held.clear();
      }
    }
  }

  void rest() override {
    buffers_ = {};
  }

 private:
  // What was launched last reads and writes, until its event.
  struct Sent {
    Handle event{nullptr};
    std::vector<array> held;
  };

  // The one that was sent the longest ago, which is through.
  Sent& oldest() {
    auto& sent = sent_[sends_ % sent_.size()];
    if (sent.event) {
      check(cuda()->wait(sent.event), "cuEventSynchronize");
      sent.held.clear();
    } else {
      constexpr unsigned WITHOUT_TIMES = 2;
      check(cuda()->new_event(&sent.event, WITHOUT_TIMES), "cuEventCreate");
    }
    return sent;
  }

  std::array<Sent, UNDER_WAY> sent_;
  size_t sends_{0};
  std::shared_ptr<array> workspace_;
  BuffersOfStream buffers_;
};

} // namespace

std::unique_ptr<Dispatched> dispatched_on_cuda() {
  return cuda() ? std::make_unique<CudaDispatched>() : nullptr;
}

std::unique_ptr<Kept> kept_on_cuda(bool overlap) {
  return cuda() ? std::make_unique<CudaKept>(overlap) : nullptr;
}

} // namespace mlxrs
