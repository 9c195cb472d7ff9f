#include "base/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <map>

#include "base/check.h"
#include "base/closest.h"
#include "heddle/error.h"

namespace heddle::base {
namespace {

using Kind = OptionSpec::Kind;

std::string accepted(const OptionSpec& spec) {
  switch (spec.kind) {
    case Kind::Bool:
      return "true or false";
    case Kind::Float:
      return "a finite number";
    case Kind::String:
      return "text";
    case Kind::Choice:
      return fmt::format("one of {}", fmt::join(spec.choices, ", "));
    case Kind::Int:
      break;
  }
  if (spec.least == INT64_MIN && spec.most == INT64_MAX) return "an integer";
  if (spec.most == INT64_MAX) return fmt::format("an integer, at least {}", spec.least);
  if (spec.least == INT64_MIN) return fmt::format("an integer, at most {}", spec.most);
  return fmt::format("an integer from {} to {}", spec.least, spec.most);
}

std::string print(const OptionValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  return fmt::format("{}", std::get<std::int64_t>(value));
}

template <typename Number>
std::optional<OptionValue> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<OptionValue> parse_bool(std::string_view text) {
  for (const std::string_view yes : {"true", "on", "1", "yes"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "off", "0", "no"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

std::optional<OptionValue> parse(Kind kind, std::string_view text) {
  switch (kind) {
    case Kind::Bool:
      return parse_bool(text);
    case Kind::Int:
      return parse_number<std::int64_t>(text);
    case Kind::Float:
      return parse_number<double>(text);
    case Kind::String:
    case Kind::Choice:
      return std::string(text);
  }
  check_failed(__FILE__, __LINE__, "an option of a known kind");
}

/// The value in the type of its kind, if it is one that the option takes.
std::optional<OptionValue> admit(const OptionSpec& spec, const OptionValue& value) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  const auto* text = std::get_if<std::string>(&value);
  bool takes = false;
  switch (spec.kind) {
    case Kind::Bool:
      takes = std::holds_alternative<bool>(value);
      break;
    case Kind::Int:
      takes = integer && spec.least <= *integer && *integer <= spec.most;
      break;
    case Kind::Float:
      if (integer) return static_cast<double>(*integer);
      takes = std::holds_alternative<double>(value) && std::isfinite(std::get<double>(value));
      break;
    case Kind::String:
      takes = text != nullptr;
      break;
    case Kind::Choice:
      takes = text && std::ranges::find(spec.choices, *text) != spec.choices.end();
      break;
  }
  return takes ? std::optional(value) : std::nullopt;
}

[[noreturn]] void refuse(const OptionSpec& spec, std::string_view where, const std::string& got) {
  throw OptionError({.what = fmt::format("option {}", spec.name),
                     .where = std::string(where),
                     .expected = accepted(spec),
                     .got = fmt::format("\"{}\"", got)});
}

OptionValue read(const OptionSpec& spec, std::string_view text, std::string_view where = {}) {
  if (const auto parsed = parse(spec.kind, text)) {
    if (auto value = admit(spec, *parsed)) return *std::move(value);
  }
  refuse(spec, where, std::string(text));
}

std::vector<std::string_view> names_of(std::span<const OptionSpec> table) {
  std::vector<std::string_view> names;
  for (const OptionSpec& spec : table) names.push_back(spec.name);
  std::ranges::sort(names);
  return names;
}

[[noreturn]] void refuse_name(std::span<const OptionSpec> table, std::string_view name) {
  const std::vector<std::string_view> names = names_of(table);
  const std::string_view near = closest(name, names);
  std::string got = fmt::format("\"{}\"", name);
  if (!near.empty()) got += fmt::format(" (did you mean \"{}\"?)", near);
  throw OptionError({.what = "unknown option",
                     .expected = fmt::format("one of {}", fmt::join(names, ", ")),
                     .got = std::move(got)});
}

/// Commas and backslashes inside a text value may not look like the separator.
std::string escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == ',' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

Options::Options(std::span<const OptionSpec> table) : table_(table) {
  values_.reserve(table.size());
  for (const OptionSpec& spec : table) {
    OptionValue value = read(spec, spec.default_text, "its default");
    if (!spec.environment.empty()) {
      const std::string variable(spec.environment);
      const char* text = std::getenv(variable.c_str());
      if (text != nullptr) value = read(spec, text, variable);
    }
    values_.push_back({std::move(value)});
  }
}

std::size_t Options::index_of(std::string_view name) const {
  const auto found = std::ranges::find(table_, name, &OptionSpec::name);
  if (found == table_.end()) refuse_name(table_, name);
  return static_cast<std::size_t>(found - table_.begin());
}

void Options::set(std::string_view name, std::string_view text) {
  const std::size_t index = index_of(name);
  values_[index] = {read(table_[index], text), true};
}

void Options::set(std::string_view name, const OptionValue& value) {
  const std::size_t index = index_of(name);
  auto admitted = admit(table_[index], value);
  if (!admitted) refuse(table_[index], {}, print(value));
  values_[index] = {*std::move(admitted), true};
}

const OptionValue& Options::value_of(std::string_view name) const {
  const auto found = std::ranges::find(table_, name, &OptionSpec::name);
  HD_CHECK(found != table_.end(), "no option " + std::string(name));
  return values_[static_cast<std::size_t>(found - table_.begin())].value;
}

namespace {

template <typename T>
const T& typed(const OptionValue& value, std::string_view name) {
  const T* typed_value = std::get_if<T>(&value);
  HD_CHECK(typed_value != nullptr, "option " + std::string(name) + " is of another kind");
  return *typed_value;
}

}  // namespace

bool Options::get_bool(std::string_view name) const { return typed<bool>(value_of(name), name); }

std::int64_t Options::get_int(std::string_view name) const {
  return typed<std::int64_t>(value_of(name), name);
}

double Options::get_float(std::string_view name) const {
  return typed<double>(value_of(name), name);
}

const std::string& Options::get_string(std::string_view name) const {
  return typed<std::string>(value_of(name), name);
}

bool Options::has(std::string_view name) const {
  return std::ranges::find(table_, name, &OptionSpec::name) != table_.end();
}

bool Options::is_set(std::string_view name) const { return values_[index_of(name)].is_set; }

std::string Options::canonical() const {
  std::map<std::string_view, std::string> changed;
  for (std::size_t i = 0; i < table_.size(); ++i) {
    const OptionSpec& spec = table_[i];
    if (values_[i].value == read(spec, spec.default_text)) continue;
    changed.emplace(spec.name, escape(print(values_[i].value)));
  }
  std::string text;
  for (const auto& [name, value] : changed) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  }
  return text;
}

Options Options::with(const Options& overrides) const {
  HD_CHECK(table_.data() == overrides.table_.data(), "options of two tables");
  Options result = *this;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (overrides.values_[i].is_set) result.values_[i] = overrides.values_[i];
  }
  return result;
}

std::string options_help(std::span<const OptionSpec> table) {
  std::string text;
  for (const OptionSpec& spec : table) {
    const std::string_view shown = spec.default_text.empty() ? "empty" : spec.default_text;
    text += fmt::format("  {}: {}; default {}", spec.name, accepted(spec), shown);
    if (!spec.environment.empty()) text += fmt::format("; environment {}", spec.environment);
    text += fmt::format("\n      {}\n", spec.help);
  }
  return text;
}

}  // namespace heddle::base
