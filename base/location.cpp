#include "base/location.h"

namespace heddle::base {

std::string Location::to_string() const {
  if (line == 0) return file;
  const std::size_t slash = file.find_last_of('/');
  const std::string name = slash == std::string::npos ? file : file.substr(slash + 1);
  return name + ":" + std::to_string(line);
}

}  // namespace heddle::base
