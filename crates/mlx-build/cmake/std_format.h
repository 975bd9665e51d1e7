// Stands in for <format> where the compiler has none (gcc before 13).
// mlx-c calls std::format in five error messages, each with plain `{}` only.
#pragma once
#include <sstream>
#include <string>
#include <string_view>

namespace std {

inline void mlxrs_format_next(ostringstream& out, string_view text) {
  out << text;
}

template <typename First, typename... Rest>
void mlxrs_format_next(
    ostringstream& out,
    string_view text,
    const First& first,
    const Rest&... rest) {
  auto hole = text.find("{}");
  if (hole == string_view::npos) {
    out << text;
    return;
  }
  out << text.substr(0, hole) << first;
  mlxrs_format_next(out, text.substr(hole + 2), rest...);
}

template <typename... Args>
string format(string_view text, const Args&... args) {
  ostringstream out;
  mlxrs_format_next(out, text, args...);
  return out.str();
}

} // namespace std
