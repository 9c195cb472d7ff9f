// What was measured of kernels and library calls that have several variants: which is the fastest, by class of sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::jit {

/// The variant to take for each class of sizes that was measured.
///
/// Sizes are of one class when each rounds up to the same number: up to 16 itself, above 2^k or 3 * 2^k. So a variant
/// is measured at most twice for each doubling of a size.
///
/// Threads: any.
class Verdicts {
 public:
  /// Nothing: not measured.
  std::optional<std::uint32_t> find(std::span<const std::int64_t> sizes) const;
  /// What a variant took when it was measured, in microseconds; the least of them is the fastest.
  struct Timing {
    std::uint32_t variant = 0;
    double microseconds = 0;
  };
  void set(std::span<const std::int64_t> sizes, std::uint32_t variant);
  /// @param timings  of one variant at least; the first one is the fastest
  void set(std::span<const std::int64_t> sizes, std::vector<Timing> timings);
  /// Of all variants that this process measured, the fastest first; empty: it measured none.
  std::vector<Timing> timings(std::span<const std::int64_t> sizes) const;

  /// A line for each class: its sizes, a colon, the variant's name.
  std::string to_text(std::span<const std::string> names) const;
  /// Takes what to_text() gave of classes that are not known. Lines that are broken or name no variant are skipped.
  void add_text(std::string_view text, std::span<const std::string> names);

 private:
  using Class = std::vector<std::int64_t>;
  static Class class_of(std::span<const std::int64_t> sizes);

  mutable std::shared_mutex mutex_;
  std::map<Class, std::uint32_t> variants_;       ///< under `mutex_`
  std::map<Class, std::vector<Timing>> timings_;  ///< under `mutex_`
};

}  // namespace heddle::jit
