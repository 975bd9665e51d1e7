#include "cuda_kernel.h"

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
MLXRS_OPEN(Copies, ensure_row_contiguous_)

} // namespace

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

bool copies_of(const Kernel& kernel) {
  return kernel.*member(Copies{});
}

} // namespace mlxrs
