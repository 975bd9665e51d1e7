#include "map_order.h"

#include <string>
#include <unordered_map>

#include "guarded.h"

extern "C" int mlxrs_map_order(const char* const* names, size_t count, size_t* order) {
  return mlxrs::guarded([&] {
    std::unordered_map<std::string, size_t> map;
    for (size_t i = 0; i < count; i++) {
      map.emplace(names[i], i);
    }
    for (const auto& entry : map) {
      *order++ = entry.second;
    }
  });
}
