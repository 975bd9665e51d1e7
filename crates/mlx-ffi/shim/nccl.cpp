#include "nccl.h"
#include "guarded.h"
#include "mlx_internals.h"
#include "peers.h"
#include "replay.h"

#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "mlx/c/private/distributed_group.h"
#include "mlx/distributed/distributed_impl.h"
#include "mlx/distributed/primitives.h"
#include "mlx/utils.h"

using namespace mlx::core;

namespace mlxrs {
namespace {

// As NCCL's header declares it.
struct Id {
  char bytes[MLXRS_NCCL_ID];
};

struct Nccl {
  int (*make_id)(Id* id);
  int (*join)(Handle* communicator, int size, Id id, int rank);
  int (*sum)(Address from, Address to, size_t count, int type, int operation, Handle communicator, Handle stream);
  int (*gather)(Address from, Address to, size_t count, int type, Handle communicator, Handle stream);
  int (*abort)(Handle communicator);
  const char* (*message)(int error);
};

// All of it, or nothing.
const Nccl* nccl() {
  static const std::optional<Nccl> found = []() -> std::optional<Nccl> {
    if (!cuda()) {
      return std::nullopt;
    }
    Nccl all{};
    // It is loaded with MLX's library; its names may not be those of the whole program.
    void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    auto find = [library](auto& function, const char* name) {
      auto* symbol = dlsym(library ? library : RTLD_DEFAULT, name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
      return function != nullptr;
    };
    bool complete = find(all.make_id, "ncclGetUniqueId") && find(all.join, "ncclCommInitRank") &&
        find(all.sum, "ncclAllReduce") && find(all.gather, "ncclAllGather") && find(all.abort, "ncclCommAbort") &&
        find(all.message, "ncclGetErrorString");
    return complete ? std::optional(all) : std::nullopt;
  }();
  return found ? &*found : nullptr;
}

void check_nccl(int result, const char* what) {
  if (result != 0) {
    throw std::runtime_error(std::string(what) + ": " + nccl()->message(result));
  }
}

constexpr int BYTES = 1;

std::optional<int> nccl_type(Dtype dtype) {
  constexpr int HALF = 6, FLOAT = 7, BFLOAT = 9;
  if (dtype == float32) {
    return FLOAT;
  }
  if (dtype == bfloat16) {
    return BFLOAT;
  }
  return dtype == float16 ? std::optional(HALF) : std::nullopt;
}

[[noreturn]] void refuse(const char* what) {
  throw std::runtime_error(std::string("ranks on GPUs ") + what);
}

} // namespace

// A group of MLX's. The communicator is never freed: graphs that MLX keeps refer to it until the process ends.
class NcclGroup : public distributed::detail::GroupImpl, public std::enable_shared_from_this<NcclGroup> {
 public:
  NcclGroup(Handle communicator, int rank, int size) : communicator_(communicator), rank_(rank), size_(size) {}

  Stream communication_stream(StreamOrDevice stream) override {
    return to_stream(stream, Device::gpu);
  }

  int rank() override {
    return rank_;
  }

  int size() override {
    return size_;
  }

  std::shared_ptr<GroupImpl> split(int, int) override {
    refuse("are not split into groups");
  }

  void all_sum(const array& input, array& output, Stream stream) override {
    come_in_order(stream);
    auto from = device_address_of(input), to = device_address_of(output);
    send_sum(from, to, input.size(), input.dtype(), false, stream_of(stream));
  }

  void all_gather(const array& input, array& output, Stream stream) override {
    come_in_order(stream);
    auto from = device_address_of(input), to = device_address_of(output);
    auto queue = stream_of(stream);
    call("ncclAllGather", [&] { return nccl()->gather(from, to, input.nbytes(), BYTES, communicator_, queue); });
  }

  void send(const array&, int, Stream) override {
    refuse("send nothing to one rank");
  }

  void recv(array&, int, Stream) override {
    refuse("receive nothing from one rank");
  }

  void all_max(const array&, array&, Stream) override {
    refuse("find no largest values");
  }

  void all_min(const array&, array&, Stream) override {
    refuse("find no smallest values");
  }

  void sum_scatter(const array&, array&, Stream) override {
    refuse("scatter no sums");
  }

  bool sums_by_kernel(size_t count, Dtype dtype) const {
    return uses_peers_ && peers_->sums(count * size_of(dtype));
  }

  void send_sum(Address from, Address to, size_t count, Dtype dtype, bool overlaps, Handle stream) {
    constexpr int SUM = 0;
    auto type = nccl_type(dtype);
    if (!type) {
      refuse("sum floats alone");
    }
    if (sums_by_kernel(count, dtype)) {
      {
        std::lock_guard lock(mutex_);
        check_there();
      }
      return peers_->sum(from, to, count * size_of(dtype), dtype, overlaps, stream);
    }
    call("ncclAllReduce", [&] { return nccl()->sum(from, to, count, *type, SUM, communicator_, stream); });
  }

  void give_up() {
    {
      std::lock_guard lock(mutex_);
      if (is_given_up_) {
        return;
      }
      is_given_up_ = true;
      if (peers_) {
        peers_->give_up();
      }
    }
    // It waits until nothing refers to the communicator any more, which may be at the end of the process.
    std::thread([self = shared_from_this()] { self->abort(); }).detach();
  }

  PeerHandle offer(const char* text) {
    std::lock_guard lock(mutex_);
    peers_ = std::make_unique<Peers>(rank_, size_, text);
    return peers_->handle();
  }

  void open(const std::vector<PeerHandle>& all) {
    peers_->open(all);
  }

  void try_peers() {
    peers_->try_out();
  }

  void use_peers() {
    uses_peers_ = true;
  }

 private:
  void check_there() const {
    if (is_given_up_) {
      refuse("compute nothing together any more: another one is lost");
    }
  }

  // MLX orders what it sends by the buffers that are read and written, and ranks must exchange in one order.
  void come_in_order(Stream stream) {
    auto& encoder = *static_cast<Encoder*>(cuda()->encoder(stream));
    // Without graphs, MLX takes note of no buffers, and all comes in order.
    if (!encoder.active_outputs.empty()) {
      auto id = reinterpret_cast<std::uintptr_t>(this);
      encoder.active_deps.push_back(id);
      encoder.active_outputs.push_back(id);
    }
  }

  template <typename F>
  void call(const char* what, F work) {
    {
      std::lock_guard lock(mutex_);
      check_there();
      under_way_++;
    }
    int result = work();
    {
      std::lock_guard lock(mutex_);
      under_way_--;
    }
    changed_.notify_all();
    check_nccl(result, what);
  }

  void abort() {
    mlxrs_relax_captures();
    // A call that waits for a lost rank ends by this alone.
    constexpr std::chrono::seconds LONGEST{2};
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, LONGEST, [this] { return under_way_ == 0; });
    }
    nccl()->abort(communicator_);
  }

  Handle communicator_;
  int rank_, size_;
  // Where devices reach each other's memory.
  std::unique_ptr<Peers> peers_;
  bool uses_peers_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  // Calls of NCCL.
  int under_way_{0};
  bool is_given_up_{false};
};

NcclGroup* group_of_sum(Primitive& primitive) {
  if (!internals_are_known() || std::string_view(primitive.name()) != "Sum AllReduce") {
    return nullptr;
  }
  auto& group = static_cast<distributed::AllReduce&>(primitive).group();
  return dynamic_cast<NcclGroup*>(group.raw_group().get());
}

bool sums(Dtype dtype) {
  return nccl_type(dtype).has_value();
}

bool sums_by_kernel(const NcclGroup& group, size_t count, Dtype dtype) {
  return group.sums_by_kernel(count, dtype);
}

void sum(NcclGroup& group, Address from, Address to, size_t count, Dtype dtype, bool overlaps, Handle stream) {
  group.send_sum(from, to, count, dtype, overlaps, stream);
}

namespace {

NcclGroup* group_of(const mlx_distributed_group group) {
  return dynamic_cast<NcclGroup*>(static_cast<distributed::Group*>(group.ctx)->raw_group().get());
}

} // namespace

} // namespace mlxrs

extern "C" bool mlxrs_nccl_is_there(void) {
  return mlxrs::nccl() != nullptr;
}

extern "C" int mlxrs_nccl_id(unsigned char* id) {
  return mlxrs::guarded([&] {
    mlxrs::Id made{};
    mlxrs::check_nccl(mlxrs::nccl()->make_id(&made), "ncclGetUniqueId");
    std::memcpy(id, made.bytes, sizeof(made.bytes));
  });
}

extern "C" int mlxrs_nccl_join(mlx_distributed_group* res, const unsigned char* id, int rank, int size) {
  return mlxrs::guarded([&] {
    mlxrs::Id known{};
    std::memcpy(known.bytes, id, sizeof(known.bytes));
    mlxrs::Handle communicator = nullptr;
    mlxrs::check_nccl(mlxrs::nccl()->join(&communicator, size, known, rank), "ncclCommInitRank");
    auto group = std::make_shared<mlxrs::NcclGroup>(communicator, rank, size);
    mlx_distributed_group_set_(*res, distributed::Group(std::move(group)));
  });
}

extern "C" int mlxrs_peers_offer(const mlx_distributed_group group, const char* text, unsigned char* handle) {
  return mlxrs::guarded([&] {
    auto own = mlxrs::group_of(group)->offer(text);
    std::memcpy(handle, own.bytes, sizeof(own.bytes));
  });
}

extern "C" int mlxrs_peers_open(const mlx_distributed_group group, const unsigned char* handles) {
  return mlxrs::guarded([&] {
    auto* own = mlxrs::group_of(group);
    std::vector<mlxrs::PeerHandle> all(own->size());
    std::memcpy(all.data(), handles, all.size() * MLXRS_PEER_HANDLE);
    own->open(all);
  });
}

extern "C" int mlxrs_peers_try(const mlx_distributed_group group) {
  return mlxrs::guarded([&] { mlxrs::group_of(group)->try_peers(); });
}

extern "C" void mlxrs_peers_use(const mlx_distributed_group group) {
  mlxrs::group_of(group)->use_peers();
}

extern "C" void mlxrs_nccl_give_up(const mlx_distributed_group group) {
  if (auto* own = mlxrs::group_of(group)) {
    own->give_up();
  }
}
