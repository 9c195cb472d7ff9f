#include "device/cuda/optional_library.h"

#include <utility>

#include "device/cuda/dynamic_library.h"
#include "heddle/error.h"

namespace heddle::device::cuda {

OptionalLibrary::OptionalLibrary(std::string name, Device& device, std::vector<std::string> paths)
    : device_(device), paths_(std::move(paths)), name_(std::move(name)) {}

bool OptionalLibrary::open() {
  const std::scoped_lock lock(mutex_);
  if (!std::exchange(tried_, true) && is_wanted()) {
    try {
      load();
      open_.store(true, std::memory_order_release);
    } catch (const DeviceLost&) {
      throw;
    } catch (const Error& error) {
      why_ = error.what();
    }
  }
  return is_open();
}

std::string OptionalLibrary::why() const {
  const std::scoped_lock lock(mutex_);
  return why_;
}

void OptionalLibrary::fail(const std::string& why) {
  note(why);
  open_.store(false, std::memory_order_release);
}

void OptionalLibrary::note(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  if (why_.empty()) why_ = why;
}

std::vector<std::string> optional_paths(const char* variable,
                                        const std::vector<std::string>& sonames) {
  const std::string path = environment(variable);
  if (path == "none") return {};
  return path.empty() ? toolkit_paths(sonames) : std::vector<std::string>{path};
}

}  // namespace heddle::device::cuda
