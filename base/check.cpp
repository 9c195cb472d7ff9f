#include "base/check.h"

namespace heddle {

InternalError::~InternalError() = default;

namespace base {

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  std::string text =
      std::string(file) + ":" + std::to_string(line) + ": check failed: " + condition;
  if (!detail.empty()) text += "\n" + detail;
  throw InternalError(text);
}

}  // namespace base
}  // namespace heddle
