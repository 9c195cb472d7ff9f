#include "jit/verdicts.h"

#include <algorithm>
#include <mutex>
#include <sstream>
#include <utility>

namespace heddle::jit {
namespace {

std::int64_t rounded(std::int64_t size) {
  if (size <= 16) return size;
  std::int64_t step = 16;
  while (size > 2 * step) step *= 2;
  return size <= step + step / 2 ? step + step / 2 : 2 * step;
}

}  // namespace

Verdicts::Class Verdicts::class_of(std::span<const std::int64_t> sizes) {
  Class result;
  for (const std::int64_t size : sizes) result.push_back(rounded(size));
  return result;
}

std::optional<std::uint32_t> Verdicts::find(std::span<const std::int64_t> sizes) const {
  const std::shared_lock lock(mutex_);
  if (variants_.empty()) return std::nullopt;
  const auto found = variants_.find(class_of(sizes));
  return found == variants_.end() ? std::nullopt : std::optional(found->second);
}

void Verdicts::set(std::span<const std::int64_t> sizes, std::uint32_t variant) {
  const std::scoped_lock lock(mutex_);
  variants_[class_of(sizes)] = variant;
}

void Verdicts::set(std::span<const std::int64_t> sizes, std::vector<Timing> timings) {
  const std::scoped_lock lock(mutex_);
  variants_[class_of(sizes)] = timings.front().variant;
  timings_[class_of(sizes)] = std::move(timings);
}

std::vector<Verdicts::Timing> Verdicts::timings(std::span<const std::int64_t> sizes) const {
  const std::shared_lock lock(mutex_);
  const auto found = timings_.find(class_of(sizes));
  return found == timings_.end() ? std::vector<Timing>() : found->second;
}

std::string Verdicts::to_text(std::span<const std::string> names) const {
  const std::shared_lock lock(mutex_);
  std::string text;
  for (const auto& [sizes, variant] : variants_) {
    for (const std::int64_t size : sizes) text += std::to_string(size) + " ";
    text += ": " + names[variant] + "\n";
  }
  return text;
}

void Verdicts::add_text(std::string_view text, std::span<const std::string> names) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const auto name = std::ranges::find(names, line.substr(colon + 2));
    if (name == names.end()) continue;
    Class sizes;
    std::istringstream numbers(line.substr(0, colon));
    for (std::int64_t size = 0; numbers >> size;) sizes.push_back(size);
    if (!numbers.eof()) continue;
    const std::scoped_lock lock(mutex_);
    variants_.try_emplace(std::move(sizes), static_cast<std::uint32_t>(name - names.begin()));
  }
}

}  // namespace heddle::jit
