#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace heddle::base {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the UTF-8 character that `text` starts with; 0: it starts with none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t count = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < count) return 0;
  for (std::size_t k = 1; k < count; ++k)
    if ((byte(k) & 0xC0) != 0x80) return 0;
  // Longer than needed, halves of a pair, and numbers above U+10FFFF.
  const unsigned second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
    return 0;
  return count;
}

void print_text(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const std::size_t count = character_bytes(text);
    const char c = text[0];
    if (count == 0) {
      out += kReplacement;
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == 127 || (c >= 0 && c < ' ')) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += text.substr(0, count);
    }
    text.remove_prefix(std::max<std::size_t>(count, 1));
  }
  out += '"';
}

/// JSON has no infinities and no NaN.
void print_number(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  out += text;
}

void new_line(std::string& out, std::size_t level) {
  out += '\n';
  out.append(level, ' ');
}

}  // namespace

Json::Json(std::initializer_list<Member> members) : value_(Members(members)) {}

Json Json::array() {
  Json json;
  json.value_ = List();
  return json;
}

Json Json::object() {
  Json json;
  json.value_ = Members();
  return json;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Members();
  auto& members = std::get<Members>(value_);
  const auto found = std::ranges::find(members, key, &Member::first);
  if (found != members.end()) return found->second;
  return members.emplace_back(std::string(key), Json()).second;
}

void Json::push_back(Json value) {
  if (is_null()) value_ = List();
  std::get<List>(value_).push_back(std::move(value));
}

Json& Json::back() { return std::get<List>(value_).back(); }

std::string Json::dump() const {
  std::string out;
  print(out, 0);
  return out;
}

void Json::print(std::string& out, std::size_t level) const {
  const auto print_all = [&](const auto& entries, const char* brackets, auto&& print_one) {
    out += brackets[0];
    for (std::size_t k = 0; k < entries.size(); ++k) {
      if (k != 0) out += ',';
      new_line(out, level + 1);
      print_one(entries[k]);
    }
    if (!entries.empty()) new_line(out, level);
    out += brackets[1];
  };
  if (const auto* flag = std::get_if<bool>(&value_)) {
    out += *flag ? "true" : "false";
  } else if (const auto* integer = std::get_if<std::int64_t>(&value_)) {
    out += std::to_string(*integer);
  } else if (const auto* number = std::get_if<double>(&value_)) {
    print_number(out, *number);
  } else if (const auto* text = std::get_if<std::string>(&value_)) {
    print_text(out, *text);
  } else if (const auto* list = std::get_if<List>(&value_)) {
    print_all(*list, "[]", [&](const Json& entry) { entry.print(out, level + 1); });
  } else if (const auto* members = std::get_if<Members>(&value_)) {
    print_all(*members, "{}", [&](const Member& member) {
      print_text(out, member.first);
      out += ": ";
      member.second.print(out, level + 1);
    });
  } else {
    out += "null";
  }
}

}  // namespace heddle::base
