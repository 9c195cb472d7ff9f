#include "ir/analysis/stream_pin.h"

#include <limits>

#include "heddle/error.h"

namespace heddle::ir {

std::optional<std::uint32_t> pinned_stream(const Node& node) {
  const auto found = node.annotations().find("stream");
  if (found == node.annotations().end()) return std::nullopt;
  const auto* number = std::get_if<std::int64_t>(&found->second.value);
  if (number == nullptr || *number < 0 || *number > std::numeric_limits<std::int32_t>::max())
    throw OptionError({.what = "annotation stream of %" + node.name(),
                       .where = node.location().to_string(),
                       .expected = "the number of a stream",
                       .got = number == nullptr ? "no number" : std::to_string(*number)});
  return static_cast<std::uint32_t>(*number);
}

}  // namespace heddle::ir
