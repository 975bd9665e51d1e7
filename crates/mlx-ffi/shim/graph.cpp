#include "graph.h"
#include "guarded.h"

#include <string>
#include <unordered_set>
#include <vector>

#include "mlx/c/private/string.h"
#include "mlx/c/private/vector.h"
#include "mlx/primitives.h"

// Exceptions become a call of the error handler, as everywhere in mlx-c.
extern "C" int mlxrs_operations(mlx_string* res, const mlx_vector_array arrays) {
  return mlxrs::guarded([&] {
    auto& roots = mlx_vector_array_get_(arrays);
    std::vector<mlx::core::array> open(roots.begin(), roots.end());
    std::unordered_set<const mlx::core::Primitive*> seen;
    std::string names;
    while (!open.empty()) {
      auto of = std::move(open.back());
      open.pop_back();
      if (of.status() != mlx::core::array::Status::unscheduled || !of.has_primitive()) {
        continue;
      }
      // All outputs of an operation share it.
      if (seen.insert(&of.primitive()).second) {
        names.append(of.primitive().name()).append("\n");
        open.insert(open.end(), of.inputs().begin(), of.inputs().end());
      }
    }
    mlx_string_set_(*res, names);
  });
}
