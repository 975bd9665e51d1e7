#include "cuda_replay.h"
#include "cuda_compiler.h"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "mlx/c/error.h"
#include "mlx/c/private/array.h"
#include "mlx/c/private/vector.h"
#include "mlx/ops.h"
#include "mlx/transforms.h"

namespace {

using namespace mlx::core;
using namespace mlxrs;

// Something else than a replay can hold.
struct Foreign : std::exception {};

// Bytes at which buffers begin.
constexpr size_t ALIGNED = 256;

size_t bytes_of(const array& a) {
  return (std::max<size_t>(a.nbytes(), 1) + ALIGNED - 1) / ALIGNED * ALIGNED;
}

bool are_alike(const array& a, const array& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype();
}

class Replay {
 public:
  // Nothing where kernels are still compiled.
  static std::unique_ptr<Replay> record(
      const array& output,
      const std::vector<array>& moving,
      const std::vector<array>& fixed,
      bool overlap) {
    auto replay = std::unique_ptr<Replay>(new Replay());
    replay->overlap_ = overlap && compute_major() >= 9;
    for (auto& a : moving) {
      replay->ids_[a.id()] = Place{Kind::Moving, replay->moving_.size()};
      replay->moving_.push_back(zeros(a.shape(), a.dtype(), output.primitive().stream()));
    }
    replay->visit(output);
    if (!replay->ready_) {
      return nullptr;
    }
    for (auto& a : fixed) {
      if (a.status() == array::Status::unscheduled) {
        throw Foreign{};
      }
      replay->fixed_.push_back(a);
      replay->addresses_.push_back(address_of(a));
    }
    replay->build(output);
    return replay;
  }

  ~Replay() {
    for (auto& sent : sent_) {
      if (sent.event) {
        cuda()->wait(sent.event);
        cuda()->free_event(sent.event);
      }
    }
    if (executable_) {
      cuda()->free_executable(executable_);
    }
  }

  std::optional<array> run(std::vector<array> moving, const std::vector<array>& fixed) {
    if (moving.size() != moving_.size() || fixed.size() != fixed_.size()) {
      return std::nullopt;
    }
    for (size_t i = 0; i < moving.size(); i++) {
      if (!are_alike(moving[i], moving_[i])) {
        return std::nullopt;
      }
    }
    for (size_t i = 0; i < fixed.size(); i++) {
      auto& a = fixed[i];
      bool is_there = a.status() != array::Status::unscheduled && are_alike(a, fixed_[i]) &&
          a.strides() == fixed_[i].strides() && address_of(a) == addresses_[i];
      if (!is_there) {
        return std::nullopt;
      }
    }
    for (size_t i = 0; i < leaves_.size(); i++) {
      if (address_of(leaves_[i]) != leaf_addresses_[i]) {
        return std::nullopt;
      }
    }
    bool is_moved = address_of(*buffer_) != made_;
    for (size_t i = 0; i < moving_.size(); i++) {
      is_moved = is_moved || address_of(moving_[i]) != moving_addresses_[i];
    }
    if (is_moved) {
      return std::nullopt;
    }
    // What comes before is on the stream once this returns.
    async_eval(moving);
    for (auto& a : moving) {
      if (!a.flags().row_contiguous) {
        return std::nullopt;
      }
    }
    // MLX does not know that these are read, so they are held until that is done.
    auto& sent = sent_[runs_++ % sent_.size()];
    check(cuda()->wait(sent.event), "cuEventSynchronize");
    auto stream = stream_of(stream_);
    for (size_t i = 0; i < moving.size(); i++) {
      check(
          cuda()->copy(address_of(moving_[i]), address_of(moving[i]), moving[i].nbytes(), stream),
          "cuMemcpyAsync");
    }
    check(cuda()->run(executable_, stream), "cuGraphLaunch");
    sent.moving = std::move(moving);
    check(cuda()->record(sent.event, stream), "cuEventRecord");
    return output_;
  }

 private:
  enum class Kind { Moving, Leaf, Made };

  // Where an array is: which moving one, which leaf, or an output of a launch.
  struct Place {
    Kind kind;
    size_t index;
    size_t output{0};
  };

  struct Argument {
    Place place;
    Shape shape;
    Strides strides;
    int32_t dims;
  };

  struct Launch {
    Kernel* kernel;
    Handle function;
    std::vector<Argument> inputs;
    std::vector<array> outputs;
    // Keeps the kernel.
    std::shared_ptr<Primitive> primitive;
  };

  Replay() = default;

  Place visit(const array& a) {
    if (auto known = ids_.find(a.id()); known != ids_.end()) {
      return known->second;
    }
    if (a.status() != array::Status::unscheduled) {
      auto place = Place{Kind::Leaf, leaves_.size()};
      leaves_.push_back(a);
      ids_[a.id()] = place;
      return place;
    }
    if (!a.has_primitive()) {
      throw Foreign{};
    }
    auto primitive = a.primitive_ptr();
    std::vector<int> written;
    auto* kernel = kernel_of(*primitive);
    if (auto* in_place = dynamic_cast<InPlace*>(primitive.get())) {
      kernel = kernel_of(in_place->kernel());
      written = in_place->written();
    }
    if (!kernel) {
      throw Foreign{};
    }
    Launch launch{kernel, nullptr, {}, {}, primitive};
    auto& takes = takes_of(*kernel);
    for (size_t i = 0; i < a.inputs().size(); i++) {
      auto& input = a.inputs()[i];
      auto place = visit(input);
      if (copies_of(*kernel) && place.kind == Kind::Leaf && !input.flags().row_contiguous) {
        throw Foreign{};
      }
      Argument argument{place, {}, {}, 0};
      if (std::get<0>(takes[i])) {
        argument.shape = input.shape();
      }
      if (std::get<1>(takes[i])) {
        argument.strides = input.strides();
      }
      argument.dims = static_cast<int32_t>(input.ndim());
      launch.inputs.push_back(std::move(argument));
    }
    auto found = compiled(*kernel, overlap_);
    if (found.is_impossible) {
      throw Foreign{};
    }
    launch.function = found.function;
    ready_ = ready_ && found.function;
    stream_ = primitive->stream();
    auto outputs = a.outputs();
    size_t own = outputs.size() - written.size();
    for (size_t i = 0; i < own; i++) {
      ids_[outputs[i].id()] = Place{Kind::Made, launches_.size(), i};
    }
    for (size_t i = 0; i < written.size(); i++) {
      ids_[outputs[own + i].id()] = launch.inputs.at(written[i]).place;
    }
    launch.outputs.assign(outputs.begin(), outputs.begin() + own);
    launches_.push_back(std::move(launch));
    return ids_.at(a.id());
  }

  // The addresses of all outputs in one buffer, parts of which serve again once nothing reads them.
  size_t place_outputs(const Place& kept, std::vector<std::vector<size_t>>& offsets) {
    std::vector<std::vector<size_t>> last_reads;
    for (size_t i = 0; i < launches_.size(); i++) {
      last_reads.emplace_back(launches_[i].outputs.size(), i);
      for (auto& input : launches_[i].inputs) {
        if (input.place.kind == Kind::Made) {
          last_reads[input.place.index][input.place.output] = i;
        }
      }
    }
    last_reads[kept.index][kept.output] = launches_.size();
    struct Part {
      size_t offset, bytes, last_read;
    };
    std::vector<Part> parts;
    size_t end = 0;
    for (size_t i = 0; i < launches_.size(); i++) {
      offsets.emplace_back();
      for (size_t j = 0; j < launches_[i].outputs.size(); j++) {
        auto bytes = bytes_of(launches_[i].outputs[j]);
        auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& part) {
          return part.bytes == bytes && part.last_read < i;
        });
        if (part == parts.end()) {
          parts.push_back({end, bytes, 0});
          part = parts.end() - 1;
          end += bytes;
        }
        part->last_read = last_reads[i][j];
        offsets.back().push_back(part->offset);
      }
    }
    return end;
  }

  void build(const array& output) {
    auto kept = ids_.at(output.id());
    if (kept.kind != Kind::Made) {
      throw Foreign{};
    }
    std::vector<std::vector<size_t>> offsets;
    auto size = place_outputs(kept, offsets);
    // A view of the output's part, so that the rest is what it is.
    auto bytes = zeros({static_cast<int>(size)}, uint8, stream_);
    auto all = moving_;
    all.push_back(bytes);
    async_eval(all);
    made_ = address_of(bytes);
    buffer_ = bytes;
    auto at = offsets[kept.index][kept.output];
    array result(output.shape(), output.dtype(), nullptr, {});
    result.copy_shared_buffer(
        *buffer_, result.strides(), {true, true, false}, result.size(), static_cast<int64_t>(at / result.itemsize()));
    result.set_status(array::Status::available);
    output_ = result;
    for (auto& leaf : leaves_) {
      leaf_addresses_.push_back(address_of(leaf));
    }
    capture(offsets);
    for (auto& a : moving_) {
      moving_addresses_.push_back(address_of(a));
    }
    constexpr unsigned WITHOUT_TIMES = 2;
    for (auto& sent : sent_) {
      check(cuda()->new_event(&sent.event, WITHOUT_TIMES), "cuEventCreate");
    }
    // The launches of this pass are MLX's, and the arrays between them too.
    launches_.clear();
    ids_.clear();
  }

  void capture(const std::vector<std::vector<size_t>>& offsets) {
    auto& c = *cuda();
    constexpr unsigned NON_BLOCKING = 1;
    constexpr int THREAD_LOCAL = 1;
    Handle stream, graph = nullptr;
    check(c.new_stream(&stream, NON_BLOCKING), "cuStreamCreate");
    int result = c.capture(stream, THREAD_LOCAL);
    for (size_t i = 0; i < launches_.size() && result == 0; i++) {
      result = send(launches_[i], offsets, i, stream);
    }
    int ended = c.end_capture(stream, &graph);
    if (result == 0 && ended == 0) {
      result = c.instantiate(&executable_, graph, 0);
    }
    if (graph) {
      c.free_graph(graph);
    }
    c.free_stream(stream);
    check(result == 0 ? ended : result, "a graph of launches");
  }

  int send(const Launch& launch, const std::vector<std::vector<size_t>>& offsets, size_t index, Handle stream) {
    // Dimensions as the kernels' texts have them.
    constexpr size_t DIMS = 10;
    struct Values {
      Address address;
      std::array<int32_t, DIMS> shape{};
      std::array<int64_t, DIMS> strides{};
      int32_t dims{0};
    };
    std::vector<Values> values(launch.inputs.size() + launch.outputs.size());
    std::vector<void*> arguments;
    auto& takes = takes_of(*launch.kernel);
    for (size_t i = 0; i < launch.inputs.size(); i++) {
      auto& input = launch.inputs[i];
      auto& value = values[i];
      switch (input.place.kind) {
        case Kind::Moving:
          value.address = address_of(moving_[input.place.index]);
          break;
        case Kind::Leaf:
          value.address = leaf_addresses_[input.place.index];
          break;
        case Kind::Made:
          value.address = made_ + offsets[input.place.index][input.place.output];
          break;
      }
      arguments.push_back(&value.address);
      if (std::get<0>(takes[i])) {
        std::copy(input.shape.begin(), input.shape.end(), value.shape.begin());
        arguments.push_back(value.shape.data());
      }
      if (std::get<1>(takes[i])) {
        std::copy(input.strides.begin(), input.strides.end(), value.strides.begin());
        arguments.push_back(value.strides.data());
      }
      if (std::get<2>(takes[i])) {
        value.dims = input.dims;
        arguments.push_back(&value.dims);
      }
    }
    for (size_t i = 0; i < launch.outputs.size(); i++) {
      auto& value = values[launch.inputs.size() + i];
      value.address = made_ + offsets[index][i];
      arguments.push_back(&value.address);
    }
    auto [gx, gy, gz] = grid_of(*launch.kernel);
    auto [bx, by, bz] = block_of(*launch.kernel);
    auto blocks = [](int threads, int block) { return static_cast<unsigned>((threads + block - 1) / block); };
    auto extent = [](int threads, int block) { return static_cast<unsigned>(std::min(threads, block)); };
    // It may begin before the one before it has ended: kernels wait where they have to.
    constexpr int PROGRAMMATIC_STREAM_SERIALIZATION = 6;
    Attribute overlap{PROGRAMMATIC_STREAM_SERIALIZATION, {1}};
    Config config{
        {blocks(gx, bx), blocks(gy, by), blocks(gz, bz)},
        {extent(gx, bx), extent(gy, by), extent(gz, bz)},
        0,
        stream,
        &overlap,
        index > 0 && overlap_};
    return cuda()->launch(&config, launch.function, arguments.data(), nullptr);
  }

  bool overlap_{false};
  Stream stream_{default_stream(Device::gpu)};
  bool ready_{true};
  std::unordered_map<std::uintptr_t, Place> ids_;
  std::vector<array> moving_;
  std::vector<Address> moving_addresses_;
  std::vector<array> leaves_;
  std::vector<Address> leaf_addresses_;
  std::vector<Launch> launches_;
  std::vector<array> fixed_;
  std::vector<Address> addresses_;
  std::optional<array> buffer_;
  Address made_{0};
  std::optional<array> output_;
  // What the last runs have read, until their events.
  struct Sent {
    Handle event{nullptr};
    std::vector<array> moving;
  };
  std::array<Sent, 2> sent_;
  size_t runs_{0};
  Handle executable_{nullptr};
};

} // namespace

extern "C" int mlxrs_replay_new(
    mlxrs_replay* res,
    bool* pending,
    const mlx_array output,
    const mlx_vector_array moving,
    const mlx_vector_array fixed,
    bool overlap) {
  try {
    res->ctx = nullptr;
    *pending = false;
    auto& a = mlx_array_get_(output);
    if (!cuda() || !a.has_primitive() || a.primitive().stream().device != Device::gpu) {
      return 0;
    }
    auto replay =
        Replay::record(a, mlx_vector_array_get_(moving), mlx_vector_array_get_(fixed), overlap);
    *pending = !replay;
    res->ctx = replay.release();
  } catch (std::exception&) {
    // The operations themselves are as they were, so that nothing is lost but time.
  }
  return 0;
}

extern "C" int mlxrs_replay_run(
    mlx_vector_array* res,
    mlxrs_replay replay,
    const mlx_vector_array moving,
    const mlx_vector_array fixed) {
  try {
    auto output = static_cast<Replay*>(replay.ctx)->run(
        mlx_vector_array_get_(moving), mlx_vector_array_get_(fixed));
    std::vector<array> found;
    if (output) {
      found.push_back(*output);
    }
    mlx_vector_array_set_(*res, std::move(found));
  } catch (std::exception& e) {
    mlx_error("%s", e.what());
    return 1;
  }
  return 0;
}

extern "C" void mlxrs_replay_free(mlxrs_replay replay) {
  delete static_cast<Replay*>(replay.ctx);
}
