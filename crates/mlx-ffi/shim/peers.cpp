#include "peers.h"
#include "cuda_compiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>

using namespace mlx::core;

namespace mlxrs {
namespace {

// The kernel gets these as definitions before its text.
constexpr long long SMALL_THREADS = 256, SMALL_BLOCKS = 256, LARGE_BLOCKS = 128, LARGE_THREADS = 512;
constexpr long long LINE = 16, PACK = 16, UNIT = 8, FLAG = 4;
constexpr long long MOST_SMALL = SMALL_THREADS * SMALL_BLOCKS * UNIT;
// More is summed in parts.
constexpr long long MOST = 16 << 20;

struct PeerMemory {
  int (*take)(Address* address, size_t bytes);
  int (*fill)(Address address, unsigned char value, size_t bytes);
  int (*take_host)(void** memory, size_t bytes, unsigned flags);
  int (*handle)(PeerHandle* handle, Address address);
  int (*open)(Address* address, PeerHandle handle, unsigned flags);
  int (*wait)();
  int (*is_over)(Handle event);
  int (*download)(void* to, Address from, size_t bytes);
};

// All of it, or an error.
const PeerMemory& memory() {
  static const std::optional<PeerMemory> found = []() -> std::optional<PeerMemory> {
    PeerMemory all{};
    auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    bool complete = find(all.take, "cuMemAlloc_v2") && find(all.fill, "cuMemsetD8_v2") &&
        find(all.take_host, "cuMemHostAlloc") && find(all.handle, "cuIpcGetMemHandle") &&
        find(all.open, "cuIpcOpenMemHandle_v2") && find(all.wait, "cuCtxSynchronize") &&
        find(all.is_over, "cuEventQuery") && find(all.download, "cuMemcpyDtoH_v2");
    return complete ? std::optional(all) : std::nullopt;
  }();
  if (!cuda() || !found) {
    throw std::runtime_error("CUDA's driver opens no memory of other processes");
  }
  return *found;
}

// Where a rank's memory has what: lines, terms, sums, flags.
struct Layout {
  long long terms, sums, flags, end;

  Layout(long long size, long long capacity) {
    auto parts = LARGE_BLOCKS * size * capacity * PACK;
    terms = 2 * SMALL_BLOCKS * size * SMALL_THREADS * LINE;
    sums = terms + parts;
    flags = sums + parts;
    end = flags + 2 * LARGE_BLOCKS * size * FLAG;
  }
};

long long over(long long count, long long by) {
  return (count + by - 1) / by;
}

} // namespace

Peers::Peers(int rank, int size, const char* text)
    : rank_(rank), size_(size), capacity_(over(over(MOST / PACK, size), LARGE_BLOCKS)) {
  auto& m = memory();
  std::string whole;
  for (auto [name, value] : std::initializer_list<std::pair<const char*, long long>>{
           {"RANKS", size},
           {"SMALL_THREADS", SMALL_THREADS},
           {"SMALL_BLOCKS", SMALL_BLOCKS},
           {"LARGE_THREADS", LARGE_THREADS},
           {"LARGE_BLOCKS", LARGE_BLOCKS}}) {
    whole += std::string("#define ") + name + " " + std::to_string(value) + "\n";
  }
  function_ = function_of_text("all_sum", whole + text);
  auto numbers = (SMALL_BLOCKS + LARGE_BLOCKS) * sizeof(unsigned);
  auto end = Layout(size, capacity_).end;
  constexpr unsigned PORTABLE_AND_MAPPED = 3;
  check(m.take(&memory_, end), "cuMemAlloc");
  check(m.take(&numbers_, numbers), "cuMemAlloc");
  check(m.take_host(reinterpret_cast<void**>(&is_given_up_), sizeof(int), PORTABLE_AND_MAPPED), "cuMemHostAlloc");
  *is_given_up_ = 0;
  check(m.fill(memory_, 0, end), "cuMemsetD8");
  check(m.fill(numbers_, 0, numbers), "cuMemsetD8");
  // Others may write as soon as they know the handle.
  check(m.wait(), "cuCtxSynchronize");
}

PeerHandle Peers::handle() const {
  PeerHandle own{};
  check(memory().handle(&own, memory_), "cuIpcGetMemHandle");
  return own;
}

void Peers::open(const std::vector<PeerHandle>& all) {
  constexpr unsigned ENABLE_PEER_ACCESS = 1;
  std::vector<Address> places;
  for (int rank = 0; rank < size_; rank++) {
    Address place = memory_;
    if (rank != rank_) {
      check(memory().open(&place, all[rank], ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle");
    }
    places.push_back(place);
  }
  Layout layout(size_, capacity_);
  for (auto offset : {0ll, layout.terms, layout.sums, layout.flags}) {
    for (auto place : places) {
      seen_.push_back(place + offset);
    }
  }
  seen_.push_back(numbers_);
  // Memory of the host has one address everywhere.
  seen_.push_back(reinterpret_cast<uint64_t>(is_given_up_));
  seen_.push_back(capacity_);
  seen_.push_back(rank_);
}

void Peers::try_out() {
  auto& m = memory();
  auto& c = *cuda();
  // Of each kind one.
  constexpr size_t SIZES[] = {4096, 2 << 20};
  constexpr size_t MOST_BYTES = SIZES[1];
  constexpr std::chrono::seconds LONGEST{5};
  constexpr unsigned NON_BLOCKING = 1, WITHOUT_TIMES = 2;
  constexpr int NOT_READY = 600;
  auto value = [](size_t i) { return static_cast<float>(i % 1000 + 1); };
  std::vector<float> own(MOST_BYTES / sizeof(float)), found(own.size());
  for (size_t i = 0; i < own.size(); i++) {
    own[i] = value(i) * static_cast<float>(rank_ + 1);
  }
  Address from, to;
  Handle stream, event;
  check(m.take(&from, MOST_BYTES), "cuMemAlloc");
  check(m.take(&to, MOST_BYTES), "cuMemAlloc");
  check(m.fill(to, 0, MOST_BYTES), "cuMemsetD8");
  check(m.wait(), "cuCtxSynchronize");
  check(c.new_stream(&stream, NON_BLOCKING), "cuStreamCreate");
  check(c.new_event(&event, WITHOUT_TIMES), "cuEventCreate");
  check(c.upload(from, own.data(), MOST_BYTES, stream), "cuMemcpyHtoDAsync");
  for (auto bytes : SIZES) {
    sum(from, to, bytes, float32, false, stream);
    check(c.record(event, stream), "cuEventRecord");
    auto until = std::chrono::steady_clock::now() + LONGEST;
    int state;
    while ((state = m.is_over(event)) == NOT_READY && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (state == NOT_READY) {
      give_up();
      check(c.wait_for_stream(stream), "cuStreamSynchronize");
      throw std::runtime_error("what a GPU writes into the memory of another one does not arrive");
    }
    check(state, "cuEventQuery");
    check(m.download(found.data(), to, bytes), "cuMemcpyDtoH");
    for (size_t i = 0; i < bytes / sizeof(float); i++) {
      if (found[i] != value(i) * static_cast<float>(size_ * (size_ + 1) / 2)) {
        throw std::runtime_error("sums of GPUs that write into each other's memory are wrong");
      }
    }
  }
  c.free_event(event);
  c.free_stream(stream);
  c.let_go(from);
  c.let_go(to);
}

bool Peers::sums(size_t bytes) const {
  return bytes > 0 && bytes % PACK == 0;
}

void Peers::sum(Address from, Address to, size_t bytes, Dtype dtype, bool overlaps, Handle stream) {
  if ((from | to) % PACK != 0) {
    throw std::runtime_error("ranks on GPUs sum arrays that begin at whole 16 bytes alone");
  }
  int type = dtype == float32 ? 0 : dtype == float16 ? 1 : 2;
  for (size_t done = 0; done < bytes; done += MOST) {
    long long part = std::min<long long>(bytes - done, MOST);
    // What is sent to everyone whole grows with the ranks.
    int is_small = part * (size_ - 1) <= MOST_SMALL;
    Address in = from + done, out = to + done;
    void* arguments[] = {&in, &out, &part, &type, &is_small, seen_.data()};
    auto blocks = is_small ? over(part / UNIT, SMALL_THREADS) : LARGE_BLOCKS;
    constexpr int PROGRAMMATIC_STREAM_SERIALIZATION = 6;
    Attribute overlap{PROGRAMMATIC_STREAM_SERIALIZATION, {1}};
    auto threads = static_cast<unsigned>(is_small ? SMALL_THREADS : LARGE_THREADS);
    Config config{{static_cast<unsigned>(blocks), 1, 1}, {threads, 1, 1}, 0, stream, &overlap, overlaps};
    check(cuda()->launch(&config, function_, arguments, nullptr), "cuLaunchKernelEx");
  }
}

void Peers::give_up() {
  __atomic_store_n(is_given_up_, 1, __ATOMIC_RELEASE);
}

} // namespace mlxrs
