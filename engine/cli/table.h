// Text in columns.
#pragma once

#include <string>
#include <vector>

namespace heddle::cli {

using Row = std::vector<std::string>;

/// Columns as wide as their widest cell; the last one is not padded. Each line is indented by two.
std::string table(const Row& header, const std::vector<Row>& rows);

}  // namespace heddle::cli
