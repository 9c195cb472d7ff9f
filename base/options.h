// Options: one declarative table drives setting, reading, the environment, help and cache keys.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heddle::base {

using OptionValue = std::variant<bool, std::int64_t, double, std::string>;

/// One row of an option table.
struct OptionSpec {
  enum class Kind : std::uint8_t { Bool, Int, Float, String, Choice };

  std::string_view name;  ///< "max_arena_bytes"
  Kind kind = Kind::Bool;
  std::string_view default_text;   ///< what set() would take: "true", "4", "auto"
  std::string_view environment{};  ///< "HEDDLE_…", or empty: not read from the environment
  std::string_view help{};         ///< one line
  std::span<const std::string_view> choices{};  ///< of a Choice
  std::int64_t least = INT64_MIN;               ///< of an Int, inclusive
  std::int64_t most = INT64_MAX;                ///< of an Int, inclusive
};

/// The values of the options of one table. A plain value: a region that overrides options copies it
/// and sets some. An option has, first of all that exist: the value set, the value in the
/// environment, the default.
///
/// Threads: as a std::string. Cost: construction reads the environment; get is a search by name.
class Options {
 public:
  /// Reads the environment.
  ///
  /// @param table  stays alive as long as this object and its copies.
  /// @throws OptionError: an environment variable holds a value that its option does not take.
  explicit Options(std::span<const OptionSpec> table);

  /// Sets an option from text, as on a command line: Bool takes true, false, on, off, 1, 0, yes, no.
  /// @throws OptionError naming the option: unknown, with the closest known one, or with the values
  ///         that it accepts.
  void set(std::string_view name, std::string_view text);
  /// Keeps a literal from turning into a bool.
  void set(std::string_view name, const char* text) { set(name, std::string_view(text)); }
  void set(std::string_view name, const std::string& text) { set(name, std::string_view(text)); }
  /// Sets an option from a value of its kind; an Int is fine for a Float.
  void set(std::string_view name, const OptionValue& value);
  void set(std::string_view name, bool value) { set(name, OptionValue(value)); }
  void set(std::string_view name, int value) { set(name, OptionValue(std::int64_t{value})); }
  void set(std::string_view name, std::int64_t value) { set(name, OptionValue(value)); }
  void set(std::string_view name, double value) { set(name, OptionValue(value)); }

  /// Typed reads. HD_CHECK that the table has `name` with that kind.
  bool get_bool(std::string_view name) const;
  std::int64_t get_int(std::string_view name) const;
  double get_float(std::string_view name) const;
  const std::string& get_string(std::string_view name) const;  ///< of a String or a Choice

  bool has(std::string_view name) const;
  /// Whether set() gave the option its value.
  bool is_set(std::string_view name) const;

  /// "a=1,b=auto": the options whose value is not the default, by name. Equal texts mean equal
  /// values, so it serves as a part of cache keys.
  std::string canonical() const;

  /// A copy with what `overrides` set on top; the way into a region.
  Options with(const Options& overrides) const;

  friend bool operator==(const Options& a, const Options& b) { return a.values_ == b.values_; }

 private:
  struct Entry {
    OptionValue value;
    bool is_set = false;
    friend bool operator==(const Entry& a, const Entry& b) { return a.value == b.value; }
  };

  std::size_t index_of(std::string_view name) const;  ///< throws OptionError
  const OptionValue& value_of(std::string_view name) const;

  std::span<const OptionSpec> table_;
  std::vector<Entry> values_;  ///< in the order of the table
};

/// The table as text for a terminal: name, values, default, environment variable, help.
std::string options_help(std::span<const OptionSpec> table);

}  // namespace heddle::base
