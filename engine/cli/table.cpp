#include "engine/cli/table.h"

#include <algorithm>
#include <fmt/format.h>

namespace heddle::cli {

std::string table(const Row& header, const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(header.size(), 0);
  const auto widen = [&](const Row& row) {
    for (std::size_t k = 0; k < row.size(); ++k) widths[k] = std::max(widths[k], row[k].size());
  };
  widen(header);
  for (const Row& row : rows) widen(row);
  std::string text;
  const auto print = [&](const Row& row) {
    std::string line = " ";
    for (std::size_t k = 0; k < row.size(); ++k)
      line += k + 1 == row.size() ? " " + row[k] : fmt::format(" {:<{}}", row[k], widths[k]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  print(header);
  for (const Row& row : rows) print(row);
  return text;
}

}  // namespace heddle::cli
