#include "cuda_blas.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>

namespace mlxrs {
namespace {

// As the library's header declares it.
struct Algorithm {
  uint64_t data[8];
};

struct Found {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

struct Blas {
  Handle handle;
  int (*create)(Handle* handle);
  int (*new_product)(Handle* product, int compute, int scale);
  int (*set_product)(Handle product, int attribute, const void* value, size_t bytes);
  int (*free_product)(Handle product);
  int (*new_layout)(Handle* layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
  int (*free_layout)(Handle layout);
  int (*new_preference)(Handle* preference);
  int (*set_preference)(Handle preference, int attribute, const void* value, size_t bytes);
  int (*free_preference)(Handle preference);
  int (*find)(
      Handle handle,
      Handle product,
      Handle a,
      Handle b,
      Handle c,
      Handle d,
      Handle preference,
      int wanted,
      Found* found,
      int* count);
  int (*check)(
      Handle handle,
      Handle product,
      Handle a,
      Handle b,
      Handle c,
      Handle d,
      const Algorithm* algorithm,
      Found* found);
  int (*multiply)(
      Handle handle,
      Handle product,
      const void* alpha,
      Address a,
      Handle of_a,
      Address b,
      Handle of_b,
      const void* beta,
      Address c,
      Handle of_c,
      Address d,
      Handle of_d,
      const Algorithm* algorithm,
      Address workspace,
      size_t bytes,
      Handle stream);
};

const Blas* blas() {
  static const std::optional<Blas> found = []() -> std::optional<Blas> {
    Blas all{};
    auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    bool complete = cuda() && find(all.create, "cublasLtCreate") &&
        find(all.new_product, "cublasLtMatmulDescCreate") &&
        find(all.set_product, "cublasLtMatmulDescSetAttribute") &&
        find(all.free_product, "cublasLtMatmulDescDestroy") &&
        find(all.new_layout, "cublasLtMatrixLayoutCreate") &&
        find(all.free_layout, "cublasLtMatrixLayoutDestroy") &&
        find(all.new_preference, "cublasLtMatmulPreferenceCreate") &&
        find(all.set_preference, "cublasLtMatmulPreferenceSetAttribute") &&
        find(all.free_preference, "cublasLtMatmulPreferenceDestroy") &&
        find(all.find, "cublasLtMatmulAlgoGetHeuristic") && find(all.check, "cublasLtMatmulAlgoCheck") &&
        find(all.multiply, "cublasLtMatmul") && all.create(&all.handle) == 0;
    return complete ? std::optional(all) : std::nullopt;
  }();
  return found ? &*found : nullptr;
}

void check_blas(int status, const char* what) {
  if (status != 0) {
    throw std::runtime_error(std::string(what) + " failed with status " + std::to_string(status));
  }
}

std::optional<int> type_of(mlx::core::Dtype dtype) {
  constexpr int HALF = 2, BFLOAT = 14;
  if (dtype == mlx::core::bfloat16) {
    return BFLOAT;
  }
  return dtype == mlx::core::float16 ? std::optional(HALF) : std::nullopt;
}

// What is made for one product, and freed with it.
struct Described {
  const Blas& b;
  Handle product{nullptr}, w{nullptr}, x{nullptr}, y{nullptr}, preference{nullptr};

  explicit Described(const Blas& b) : b(b) {}
  Described(const Described&) = delete;
  ~Described() {
    auto free = [](auto function, Handle handle) {
      if (handle) {
        function(handle);
      }
    };
    free(b.free_product, product);
    free(b.free_layout, w);
    free(b.free_layout, x);
    free(b.free_layout, y);
    free(b.free_preference, preference);
  }
};

// The largest power of two up to 256 that divides an address.
uint32_t alignment(Address address) {
  return static_cast<uint32_t>(std::min<Address>(address & (~address + 1), 256));
}

// In the library's order, column by column, `w` is `[in, out]`, `x` `[in, rows]` and `y` `[out, rows]`.
void describe(Described& of, const Product& p) {
  constexpr int COMPUTE_F32 = 68, SCALE_F32 = 0, TRANSPOSE_A = 3, TRANSPOSED = 1;
  auto& b = of.b;
  int type = type_of(p.dtype).value();
  check_blas(b.new_product(&of.product, COMPUTE_F32, SCALE_F32), "cublasLtMatmulDescCreate");
  check_blas(
      b.set_product(of.product, TRANSPOSE_A, &TRANSPOSED, sizeof(int)), "cublasLtMatmulDescSetAttribute");
  check_blas(b.new_layout(&of.w, type, p.in, p.out, p.in), "cublasLtMatrixLayoutCreate");
  check_blas(b.new_layout(&of.x, type, p.in, p.rows, p.in), "cublasLtMatrixLayoutCreate");
  check_blas(b.new_layout(&of.y, type, p.out, p.rows, p.out), "cublasLtMatrixLayoutCreate");
}

std::optional<Algorithm> found_for(Described& of, const uint32_t* alignments) {
  constexpr int MOST_WORKSPACE = 1, LEAST_ALIGNMENT = 5;
  auto& b = of.b;
  check_blas(b.new_preference(&of.preference), "cublasLtMatmulPreferenceCreate");
  size_t most = BLAS_WORKSPACE;
  check_blas(
      b.set_preference(of.preference, MOST_WORKSPACE, &most, sizeof(most)),
      "cublasLtMatmulPreferenceSetAttribute");
  for (int i = 0; i < 4; i++) {
    check_blas(
        b.set_preference(of.preference, LEAST_ALIGNMENT + i, &alignments[i], sizeof(uint32_t)),
        "cublasLtMatmulPreferenceSetAttribute");
  }
  Found found{};
  int count = 0;
  check_blas(
      b.find(b.handle, of.product, of.w, of.x, of.y, of.y, of.preference, 1, &found, &count),
      "cublasLtMatmulAlgoGetHeuristic");
  return count > 0 ? std::optional(found.algorithm) : std::nullopt;
}

// Rows whose products have the kernel of so many: the library chooses among some hundred by the exact number, and CUDA takes some
// milliseconds to load each of them in every process. No two prompts are of one length. A product of very many takes long enough itself.
int of_class(const Product& p) {
  constexpr int MOST_EXACT = 128, MOST = 2048, CLASSES = 8, WHOLE = 64;
  if (p.rows <= MOST_EXACT || p.rows > MOST || p.in % WHOLE != 0 || p.out % WHOLE != 0) {
    return p.rows;
  }
  int step = MOST_EXACT / CLASSES;
  while (2 * CLASSES * step <= p.rows) {
    step *= 2;
  }
  return (p.rows + step - 1) / step * step;
}

// Whether a kernel that was found for another number of rows computes this one.
bool computes(const Described& of, const Algorithm& algorithm) {
  Found found{};
  auto status = of.b.check(of.b.handle, of.product, of.w, of.x, of.y, of.y, &algorithm, &found);
  return status == 0 && found.state == 0 && found.workspace <= BLAS_WORKSPACE;
}

// A product with the kernel that was found for it.
struct Known {
  Described described;
  Algorithm algorithm;

  Known(const Blas& b, const Product& p) : described(b) {
    describe(described, p);
  }
};

// Asking takes longer than most products, and descriptions as long, so what was found is kept, for so many products.
constexpr size_t KEPT = 1024;

// What a kernel is found for: rows, sizes, type and alignments.
using Key = std::tuple<int, int, int, int, uint32_t, uint32_t, uint32_t>;

// What was found, for KEPT keys at most. It is never freed: the library may be gone before it.
template <typename Value>
class Store {
 public:
  const Value* find(const Key& key) const {
    auto found = all_->find(key);
    return found == all_->end() ? nullptr : &found->second;
  }

  const Value& keep(const Key& key, Value value) {
    if (all_->size() == KEPT) {
      all_->clear();
    }
    return all_->emplace(key, std::move(value)).first->second;
  }

 private:
  std::map<Key, Value>* all_ = new std::map<Key, Value>();
};

std::shared_ptr<const Known> known_for(const Blas& b, const Product& p) {
  static std::mutex mutex;
  static Store<std::shared_ptr<const Known>> products;
  static Store<std::optional<Algorithm>> classes;
  uint32_t alignments[] = {alignment(p.w), alignment(p.x), alignment(p.y), alignment(p.y)};
  auto key_of = [&](int rows) {
    return Key{rows, p.in, p.out, *type_of(p.dtype), alignments[0], alignments[1], alignments[2]};
  };
  std::lock_guard lock(mutex);
  if (auto found = products.find(key_of(p.rows))) {
    return *found;
  }
  auto known = std::make_shared<Known>(b, p);
  Product like = p;
  like.rows = of_class(p);
  std::optional<Algorithm> algorithm;
  if (like.rows != p.rows) {
    auto of_like = classes.find(key_of(like.rows));
    if (!of_like) {
      Described of(b);
      describe(of, like);
      of_like = &classes.keep(key_of(like.rows), found_for(of, alignments));
    }
    if (*of_like && computes(known->described, **of_like)) {
      algorithm = *of_like;
    }
  }
  if (!algorithm) {
    algorithm = found_for(known->described, alignments);
  }
  if (!algorithm) {
    throw std::runtime_error("cuBLASLt has no kernel for a product");
  }
  known->algorithm = *algorithm;
  return products.keep(key_of(p.rows), std::move(known));
}

} // namespace

bool multiplies(mlx::core::Dtype dtype) {
  return type_of(dtype).has_value() && blas() != nullptr;
}

void multiply(const Product& p, Address workspace, Handle stream) {
  auto& b = *blas();
  auto known = known_for(b, p);
  auto& of = known->described;
  const float one = 1, zero = 0;
  check_blas(
      b.multiply(
          b.handle, of.product, &one, p.w, of.w, p.x, of.x, &zero, p.y, of.y, p.y, of.y, &known->algorithm, workspace,
          BLAS_WORKSPACE, stream),
      "cublasLtMatmul");
}

} // namespace mlxrs
