#include "mlx_internals.h"

#include <type_traits>

#include "mlx/version.h"

namespace mlxrs {
namespace {

// A member of a class, whoever may name it: an explicit instantiation may name what is private.
template <typename Tag, auto Member>
struct Open {
  friend constexpr auto member(Tag) {
    return Member;
  }
};

#define MLXRS_OPEN(Tag, field)                       \
  struct Tag {                                       \
    friend constexpr auto member(Tag);               \
  };                                                 \
  template struct Open<Tag, &Kernel::field>;

MLXRS_OPEN(Text, source_)
MLXRS_OPEN(Name, name_)
MLXRS_OPEN(Grid, grid_)
MLXRS_OPEN(Block, threadgroup_)
MLXRS_OPEN(Takes, shape_infos_)
MLXRS_OPEN(Memory, shared_memory_)
MLXRS_OPEN(Copies, ensure_row_contiguous_)

template <typename Tag, typename Type>
constexpr bool IS = std::is_same_v<decltype(member(Tag{})), Type Kernel::*>;

using Three = std::tuple<int, int, int>;

static_assert(IS<Text, std::string>, "a kernel's text is a string");
static_assert(IS<Name, std::string>, "a kernel's name is a string");
static_assert(IS<Grid, Three>, "a grid is three numbers of threads");
static_assert(IS<Block, Three>, "a block is three numbers of threads");
static_assert(
    IS<Takes, std::vector<std::tuple<bool, bool, bool>>>,
    "each input has three facts: shape, strides, dimensions");
static_assert(IS<Memory, int>, "shared memory is a number of bytes");
static_assert(IS<Copies, bool>, "whether inputs are copied is one fact");
static_assert(std::is_base_of_v<mlx::core::Primitive, Kernel>, "a kernel is a primitive");
static_assert(sizeof(mlx::core::ShapeElem) == sizeof(int32_t), "shapes are of 32 bits");
static_assert(
    std::is_same_v<mlx::core::Strides::value_type, int64_t>,
    "strides are of 64 bits");
static_assert(sizeof(void*) == sizeof(uint64_t), "an address is of 64 bits");

} // namespace

bool internals_are_known() {
  static const bool known = std::string_view(mlx::core::version()) == MLXRS_MLX_VERSION;
  return known;
}

Kernel* kernel_of(mlx::core::Primitive& primitive) {
  bool is_kernel = internals_are_known() && std::string_view(primitive.name()) == "CustomKernel";
  return is_kernel ? static_cast<Kernel*>(&primitive) : nullptr;
}

std::string& text_of(Kernel& kernel) {
  return kernel.*member(Text{});
}

const std::string& name_of(const Kernel& kernel) {
  return kernel.*member(Name{});
}

const std::tuple<int, int, int>& grid_of(const Kernel& kernel) {
  return kernel.*member(Grid{});
}

const std::tuple<int, int, int>& block_of(const Kernel& kernel) {
  return kernel.*member(Block{});
}

const std::vector<std::tuple<bool, bool, bool>>& takes_of(const Kernel& kernel) {
  return kernel.*member(Takes{});
}

int memory_of(const Kernel& kernel) {
  return kernel.*member(Memory{});
}

bool copies_of(const Kernel& kernel) {
  return kernel.*member(Copies{});
}

} // namespace mlxrs
