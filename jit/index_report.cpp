#include "jit/index_report.h"

#include <atomic>
#include <fmt/format.h>
#include <utility>

namespace heddle::jit {

namespace {
thread_local IndexReport last_report;
}  // namespace

void report_index(std::int32_t* status, std::int32_t check, std::int64_t from_front,
                  std::int64_t last) {
  std::int32_t none = 0;
  if (!std::atomic_ref(*status).compare_exchange_strong(none, check, std::memory_order_relaxed))
    return;
  const std::int64_t size = last + 1;
  std::int64_t index = from_front;
  if (index < 0) __builtin_sub_overflow(from_front, size, &index);
  last_report = {check, index, size};
}

IndexReport take_index_report() { return std::exchange(last_report, {}); }

IndexError index_error(const Program& program, std::int32_t status, const IndexReport& report) {
  const RuntimeCheck& check = program.checks[static_cast<std::size_t>(status) - 1];
  const bool told = report.check == status;
  return IndexError(
      {.what = check.what,
       .where = check.where,
       .expected = told ? fmt::format("[{}, {})", -report.size, report.size) : std::string(),
       .got = told ? std::to_string(report.index) : std::string()});
}

}  // namespace heddle::jit
