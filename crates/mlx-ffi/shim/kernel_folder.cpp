#include "kernel_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "mlx/version.h"

namespace mlxrs {
namespace {

namespace fs = std::filesystem;

// Where MLX looks for compiled kernels.
constexpr const char* VARIABLE = "MLX_PTX_CACHE_DIR";
// The most of a name that MLX puts into one part of a path.
constexpr size_t MOST_OF_A_NAME = 245;
// Begins the line in which we say what an image is; MLX passes over lines without a tab.
constexpr const char* MARK = "mlxrs ";

// FNV-1a.
std::string digest(const std::string& bytes) {
  uint64_t hash = 14695981039346656037u;
  for (unsigned char byte : bytes) {
    hash = (hash ^ byte) * 1099511628211u;
  }
  char text[17];
  snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::optional<std::string> read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  if (!file || !(all << file.rdbuf())) {
    return std::nullopt;
  }
  return all.str();
}

// Nobody sees a file that is not whole.
bool write(const fs::path& path, const std::string& bytes) {
  static std::atomic<unsigned> count{0};
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  auto part = path;
  part += "." + std::to_string(getpid()) + "-" + std::to_string(count++) + ".part";
  {
    std::ofstream file(part, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) {
      fs::remove(part, error);
      return false;
    }
  }
  fs::rename(part, path, error);
  if (error) {
    std::error_code ignored;
    fs::remove(part, ignored);
  }
  return !error;
}

void take_away(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
}

// The file of a module, as MLX names it.
fs::path path_of(const std::string& module) {
  fs::path path = std::getenv(VARIABLE);
  size_t at = 0;
  for (; module.size() - at > MOST_OF_A_NAME; at += MOST_OF_A_NAME) {
    path /= module.substr(at, MOST_OF_A_NAME);
  }
  return path / (module.substr(at) + ".ptx");
}

template <typename N>
N number_at(const std::string& bytes, size_t at) {
  N number = 0;
  memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

// Whether the file has all that its ELF header tells of.
bool is_whole(const fs::path& path) {
  constexpr size_t HEADER = 64;
  std::error_code error;
  auto size = fs::file_size(path, error);
  std::string header(HEADER, 0);
  std::ifstream file(path, std::ios::binary);
  if (error || !file.read(header.data(), HEADER) || header.compare(0, 4, "\x7f""ELF") != 0) {
    return false;
  }
  auto ends = [&](size_t offset, size_t each, size_t count) {
    return number_at<uint64_t>(header, offset) + uint64_t{number_at<uint16_t>(header, each)} * number_at<uint16_t>(header, count);
  };
  return ends(0x20, 0x36, 0x38) <= size && ends(0x28, 0x3a, 0x3c) <= size;
}

// MLX reads what it finds, also what a process left halfway that was ended meanwhile.
void sweep(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> bad;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    auto path = at->path();
    if (path.extension() != ".ptx") {
      continue;
    }
    auto names = read(fs::path(path).replace_extension(".txt"));
    if (!names || names->empty() || names->back() != '\n' || !is_whole(path)) {
      bad.push_back(path);
    }
  }
  std::for_each(bad.begin(), bad.end(), take_away);
}

// What GPUs and which driver there are. Where the system does not tell, the machine's name stands for them.
std::string machine() {
  auto text = read("/proc/driver/nvidia/version").value_or("");
  std::vector<std::string> models;
  std::error_code error;
  for (fs::directory_iterator at("/proc/driver/nvidia/gpus", error), end; !error && at != end; at.increment(error)) {
    std::istringstream lines(read(at->path() / "information").value_or(""));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("Model:")) {
        models.push_back(line);
      }
    }
  }
  std::sort(models.begin(), models.end());
  for (auto& model : models) {
    text += model;
  }
  if (text.empty()) {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    text = name.data();
  }
  return text;
}

} // namespace

void name_kernel_folder() {
#if defined(__linux__)
  auto variable = [](const char* name) -> std::string {
    auto* value = std::getenv(name);
    return value ? value : "";
  };
  if (std::getenv(VARIABLE) || access("/dev/nvidiactl", F_OK) != 0) {
    return;
  }
  auto cache = fs::path(variable("XDG_CACHE_HOME"));
  if (!cache.is_absolute()) {
    cache = fs::path(variable("HOME")) / ".cache";
  }
  if (cache.is_absolute()) {
    auto folder = cache / "ml-on-mlx" / "kernels" / (std::string(mlx::core::version()) + "-" + digest(machine()));
    setenv(VARIABLE, folder.c_str(), 0);
  }
#endif
}

bool has_kernel_folder() {
  static const bool has = [] {
    auto* named = std::getenv(VARIABLE);
    if (!named || !*named || strpbrk(named, "\"\\\n")) {
      return false;
    }
    std::error_code error;
    fs::create_directories(named, error);
    struct stat found;
    bool is_own = stat(named, &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
        (found.st_mode & (S_IWGRP | S_IWOTH)) == 0 && access(named, W_OK) == 0;
    if (is_own) {
      sweep(named);
    }
    return is_own;
  }();
  return has;
}

std::optional<std::string> file_of(const std::string& text) {
  if (!has_kernel_folder()) {
    return std::nullopt;
  }
  auto path = fs::path(std::getenv(VARIABLE)) / (digest(text) + ".cuh");
  if (read(path) != text && !write(path, text)) {
    return std::nullopt;
  }
  return path.string();
}

std::optional<Image> read_image(const std::string& module, const std::string& name, const std::string& maker) {
  if (!has_kernel_folder()) {
    return std::nullopt;
  }
  auto path = path_of(module);
  auto bytes = read(path);
  if (!bytes) {
    return std::nullopt;
  }
  std::istringstream lines(read(fs::path(path).replace_extension(".txt")).value_or(""));
  auto expected = MARK + maker + " " + digest(*bytes);
  Image image{std::move(*bytes), ""};
  bool is_known = false;
  for (std::string line; std::getline(lines, line);) {
    is_known |= line == expected;
    if (line.starts_with(name + "\t")) {
      image.lowered = line.substr(name.size() + 1);
    }
  }
  if (!is_known || image.lowered.empty()) {
    take_away(path);
    return std::nullopt;
  }
  return image;
}

void keep_image(
    const std::string& module,
    const std::string& name,
    const std::string& maker,
    const Image& image) {
  if (!has_kernel_folder()) {
    return;
  }
  auto path = path_of(module);
  auto names = name + "\t" + image.lowered + "\n" + MARK + maker + " " + digest(image.bytes) + "\n";
  // MLX looks for the image first.
  if (write(fs::path(path).replace_extension(".txt"), names)) {
    write(path, image.bytes);
  }
}

} // namespace mlxrs
