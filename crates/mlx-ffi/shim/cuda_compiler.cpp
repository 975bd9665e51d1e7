#include "cuda_compiler.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "kernel_folder.h"
#include "replay.h"

namespace mlxrs {
namespace {

// Where CUDA's headers are, as MLX looks for them.
std::string headers() {
  namespace fs = std::filesystem;
  std::error_code error;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(cuda()->encoder), &info) && info.dli_fname) {
    auto root = fs::path(info.dli_fname).parent_path().parent_path().parent_path();
    int major = 0, minor = 0;
    cuda()->version(&major, &minor);
    auto path = root / "nvidia" / (major < 13 ? "cuda_runtime" : "cu13") / "include";
    if (fs::exists(path, error)) {
      return path.string();
    }
  }
  for (auto variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (auto home = std::getenv(variable)) {
      return (fs::path(home) / "include").string();
    }
  }
  return "/usr/local/cuda/include";
}

// The most registers of a thread of a kernel of which a multiprocessor has shared memory for two blocks: they then have their registers
// too. 0: as many as there are.
int most_registers(const Kernel& kernel) {
  constexpr int MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81, REGISTERS_OF_MULTIPROCESSOR = 64 << 10, MOST = 255, OF_SYSTEM_AND_NAMED = 3 << 10;
  int memory = memory_of(kernel);
  bool has_room = 2 * (memory + OF_SYSTEM_AND_NAMED) <= mlxrs_device_number(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  int most = REGISTERS_OF_MULTIPROCESSOR / (2 * std::get<0>(block_of(kernel)));
  return memory > 0 && has_room && most < MOST ? most : 0;
}

struct Entry {
  std::atomic<bool> done{false};
  // Empty where the compiler refused.
  Image image;
  // Beside others, and alone.
  Handle functions[2]{nullptr, nullptr};
  std::thread thread;
};

std::string architecture() {
  return "--gpu-architecture=sm_" + std::to_string(compute_major()) + std::to_string(compute_minor()) +
      (compute_major() >= 9 ? "a" : "");
}

// Whether the process ends, so that what is compiled is of no use.
std::atomic<bool> ends{false};

// The image of a kernel, from the folder or compiled; empty where the compiler refuses.
Image image_of(const std::string& name, const std::string& text, const std::string& arch, int registers = 0) {
  auto& c = *cuda();
  // As MLX names what it compiles.
  std::stringstream module;
  module << name << "_" << std::hex << std::hash<std::string>{}(text);
  int major = 0, minor = 0;
  c.version(&major, &minor);
  auto most = "--maxrregcount=" + std::to_string(registers);
  auto maker = arch + " " + std::to_string(major) + "." + std::to_string(minor) + (registers > 0 ? " " + most : "");
  auto full = std::string(KERNEL_NAMESPACE) + name;
  if (auto known = read_image(module.str(), full, maker)) {
    return *known;
  }
  Image image;
  Handle program = nullptr;
  if (c.new_program(&program, text.c_str(), "replay.cu", 0, nullptr, nullptr) == 0) {
    auto include = "--include-path=" + headers();
    const char* options[] = {KERNEL_OPTION, arch.c_str(), include.c_str(), most.c_str()};
    size_t size = 0;
    const char* lowered = nullptr;
    if (c.ask) {
      c.ask(program, [](void*, void*) -> int { return ends; }, nullptr);
    }
    if (c.name(program, full.c_str()) == 0 && c.compile(program, registers > 0 ? 4 : 3, options) == 0 &&
        c.lowered(program, full.c_str(), &lowered) == 0 && c.size(program, &size) == 0) {
      image.lowered = lowered;
      image.bytes.resize(size);
      if (c.image(program, image.bytes.data()) != 0) {
        image.bytes.clear();
      }
    }
    c.free_program(&program);
  }
  if (!image.bytes.empty()) {
    keep_image(module.str(), full, maker, image);
  }
  return image;
}

Handle loaded(const Image& image, bool overlap, int memory = 0) {
  Handle module, function;
  check(cuda()->load(&module, image.bytes.data()), "cuModuleLoadData");
  check(cuda()->function(&function, module, image.lowered.c_str()), "cuModuleGetFunction");
  if (memory > 0) {
    constexpr int MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
    check(cuda()->set(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, memory), "cuFuncSetAttribute");
  }
  if (overlap) {
    // A multiprocessor shares its memory out anew only once it is empty: kernels that overlap ask for
    // the same share.
    constexpr int PREFERRED_SHARED_MEMORY_CARVEOUT = 9, ALL = 100;
    check(cuda()->set(function, PREFERRED_SHARED_MEMORY_CARVEOUT, ALL), "cuFuncSetAttribute");
  }
  return function;
}

void compile(Entry& kernel, const std::string& name, const std::string& text, const std::string& arch, int registers) {
  try {
    kernel.image = image_of(name, text, arch, registers);
  } catch (std::exception&) {
    kernel.image = {};
  }
  kernel.done = true;
  kernel.done.notify_all();
}

// Kernels by name and text.
class Kernels {
 public:
  void end() {
    ends = true;
    std::lock_guard lock(mutex_);
    for (auto& [key, kernel] : all_) {
      if (kernel.thread.joinable()) {
        kernel.thread.join();
      }
    }
  }

  Compiled get(Kernel& kernel, bool overlap) {
    std::lock_guard lock(mutex_);
    auto& entry = begun(kernel);
    if (!entry.done) {
      return {nullptr, false};
    }
    if (entry.image.bytes.empty()) {
      return {nullptr, true};
    }
    auto& function = entry.functions[overlap];
    if (!function) {
      function = loaded(entry.image, overlap, memory_of(kernel));
    }
    return {function, false};
  }

  // The kernel, on its way.
  Entry& begin(Kernel& kernel) {
    std::lock_guard lock(mutex_);
    return begun(kernel);
  }

 private:
  Entry& begun(Kernel& kernel) {
    auto key = std::make_pair(name_of(kernel), text_of(kernel));
    auto [found, is_new] = all_.try_emplace(key);
    auto& entry = found->second;
    if (is_new) {
      try {
        entry.thread = std::thread([&entry, key, arch = architecture(), registers = most_registers(kernel)] {
          compile(entry, key.first, key.second, arch, registers);
        });
      } catch (...) {
        all_.erase(found);
        throw;
      }
    }
    return entry;
  }

  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Entry> all_;
};

// They live as long as anything that uses them. Compilations that run as the process ends are given up.
Kernels& kernels() {
  static auto* all = new Kernels();
  static struct Last {
    ~Last() {
      all->end();
    }
  } last;
  return *all;
}

} // namespace

Compiled compiled(Kernel& kernel, bool overlap) {
  return kernels().get(kernel, overlap);
}

Handle function_of_text(const std::string& name, const std::string& text) {
  auto image = image_of(name, text, architecture());
  if (image.bytes.empty()) {
    throw std::runtime_error("the compiler of CUDA refuses the kernel " + name);
  }
  return loaded(image, true);
}

void begin_to_compile(Kernel& kernel) {
  if (cuda() && has_kernel_folder()) {
    kernels().begin(kernel);
  }
}

void wait_for_image(Kernel& kernel) {
  if (cuda() && has_kernel_folder()) {
    kernels().begin(kernel).done.wait(false);
  }
}

} // namespace mlxrs
