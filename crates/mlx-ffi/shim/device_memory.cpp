#include "device_memory.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#if defined(__APPLE__)
#include <mach/mach.h>
#include <malloc/malloc.h>
#elif defined(__GLIBC__)
#include <malloc.h>
#endif

namespace {

using Handle = void*;

template <typename F>
bool find(void* library, F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

// CUDA's driver, which MLX's library brings along, without its headers; MLX uses the first device.
struct Driver {
  int (*free_and_total)(size_t* free, size_t* total);
  int (*synchronize)();
  int (*device)(int* device, int ordinal);
  int (*place)(char* text, int length, int device);
  int (*pool)(Handle* pool, int device);
  int (*trim)(Handle pool, size_t keep);
  int (*attribute)(Handle pool, int attribute, void* value);
  int (*set)(Handle pool, int attribute, void* value);
  int (*take)(uint64_t* address, size_t bytes);
  int (*let_go)(uint64_t address);
};

const Driver* driver() {
  static const std::optional<Driver> found = []() -> std::optional<Driver> {
    Driver all{};
    bool complete = find(RTLD_DEFAULT, all.free_and_total, "cuMemGetInfo_v2") &&
        find(RTLD_DEFAULT, all.synchronize, "cuCtxSynchronize") &&
        find(RTLD_DEFAULT, all.device, "cuDeviceGet") &&
        find(RTLD_DEFAULT, all.place, "cuDeviceGetPCIBusId") &&
        find(RTLD_DEFAULT, all.pool, "cuDeviceGetDefaultMemPool") &&
        find(RTLD_DEFAULT, all.trim, "cuMemPoolTrimTo") &&
        find(RTLD_DEFAULT, all.attribute, "cuMemPoolGetAttribute") &&
        find(RTLD_DEFAULT, all.set, "cuMemPoolSetAttribute") &&
        find(RTLD_DEFAULT, all.take, "cuMemAlloc_v2") && find(RTLD_DEFAULT, all.let_go, "cuMemFree_v2");
    return complete ? std::optional(all) : std::nullopt;
  }();
  return found ? &*found : nullptr;
}

// The pool that MLX allocates from; null where there is none.
Handle pool() {
  int device;
  Handle pool = nullptr;
  bool found = driver() && driver()->device(&device, 0) == 0 && driver()->pool(&pool, device) == 0;
  return found ? pool : nullptr;
}

// The library that counts memory by process.
class Nvml {
 public:
  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*start)();
    int (*by_place)(const char* place, Handle* device);
    int device;
    char place[32];
    bool started = library && find(library, start, "nvmlInit_v2") &&
        find(library, by_place, "nvmlDeviceGetHandleByPciBusId_v2") &&
        find(library, processes_, "nvmlDeviceGetComputeRunningProcesses_v3") && start() == 0;
    bool is_known = started && driver()->device(&device, 0) == 0 &&
        driver()->place(place, sizeof(place), device) == 0 && by_place(place, &device_) == 0;
    device_ = is_known ? device_ : nullptr;
  }

  // Zero where it does not know this process: in a container, it may know it by another number.
  size_t held() const {
    if (!device_) {
      return 0;
    }
    constexpr size_t MORE = 64;
    constexpr int TOO_FEW = 7;
    std::vector<Process> found(MORE);
    int result = TOO_FEW;
    for (int tries = 0; tries < 3 && result == TOO_FEW; tries++) {
      auto count = static_cast<unsigned>(found.size());
      result = processes_(device_, &count, found.data());
      found.resize(result == TOO_FEW ? count + MORE : count);
    }
    size_t bytes = 0;
    for (auto& process : found) {
      bool is_told = process.bytes != ~0ULL;
      bytes += result == 0 && is_told && process.id == static_cast<unsigned>(getpid()) ? process.bytes : 0;
    }
    return bytes;
  }

 private:
  // As its header declares it.
  struct Process {
    unsigned id;
    unsigned long long bytes;
    unsigned instances[2];
  };

  int (*processes_)(Handle device, unsigned* count, Process* processes){nullptr};
  Handle device_{nullptr};
};

size_t held_of_device() {
  if (!driver()) {
    return 0;
  }
  static const Nvml nvml;
  if (auto bytes = nvml.held()) {
    return bytes;
  }
  // Without what kernels, graphs and the driver itself take.
  return mlxrs_pooled_memory();
}

size_t held_of_machine() {
#if defined(__APPLE__)
  task_vm_info_data_t info;
  mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
  auto result = task_info(mach_task_self(), TASK_VM_INFO, reinterpret_cast<task_info_t>(&info), &count);
  return result == KERN_SUCCESS ? info.phys_footprint : 0;
#else
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
#endif
}

// What is left of a test's wish: allocations that succeed, then ones that fail.
std::atomic<size_t> to_skip{0};
std::atomic<size_t> to_fail{0};

// Takes one of `left`; false where there is none.
bool take(std::atomic<size_t>& left) {
  auto now = left.load();
  while (now > 0 && !left.compare_exchange_weak(now, now - 1)) {
  }
  return now > 0;
}

} // namespace

void mlxrs::may_allocate(size_t bytes) {
  if (to_fail.load(std::memory_order_relaxed) > 0 && !take(to_skip) && take(to_fail)) {
    // As MLX says it.
    throw std::runtime_error("[malloc] Unable to allocate " + std::to_string(bytes) + " bytes.");
  }
}

extern "C" void mlxrs_device_memory(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = 0;
  if (!driver() || driver()->free_and_total(free_bytes, total_bytes) != 0) {
    *free_bytes = *total_bytes = 0;
  }
}

extern "C" size_t mlxrs_held_memory(bool on_gpu) {
  auto bytes = on_gpu ? held_of_device() : 0;
  return bytes > 0 ? bytes : held_of_machine();
}

extern "C" size_t mlxrs_pooled_memory(void) {
  constexpr int RESERVED_NOW = 5;
  uint64_t bytes = 0;
  auto from = pool();
  return from && driver()->attribute(from, RESERVED_NOW, &bytes) == 0 ? bytes : 0;
}

extern "C" void mlxrs_keep_pool(void) {
  constexpr int RELEASE_THRESHOLD = 4;
  uint64_t all = UINT64_MAX;
  if (auto of = pool()) {
    driver()->set(of, RELEASE_THRESHOLD, &all);
  }
}

extern "C" void mlxrs_wait_for_device(void) {
  if (driver()) {
    driver()->synchronize();
  }
}

extern "C" void mlxrs_trim_memory(void) {
  if (auto from = pool()) {
    // What was freed is given back once the device has passed the place where it was.
    if (driver()->synchronize() == 0) {
      driver()->trim(from, 0);
    }
  }
}

extern "C" void mlxrs_trim_heap(void) {
#if defined(__APPLE__)
  malloc_zone_pressure_relief(nullptr, 0);
#elif defined(__GLIBC__)
  malloc_trim(0);
#endif
}

extern "C" void mlxrs_reserve_memory(size_t bytes) {
  static std::mutex mutex;
  static size_t held = 0;
  static uint64_t address = 0;
  std::lock_guard lock(mutex);
  if (!driver() || held == bytes) {
    return;
  }
  if (held > 0) {
    driver()->let_go(address);
    held = 0;
  }
  if (bytes > 0 && driver()->take(&address, bytes) == 0) {
    held = bytes;
  }
}

extern "C" void mlxrs_fail_allocations(size_t skip, size_t count) {
  to_skip = skip;
  to_fail = count;
}
