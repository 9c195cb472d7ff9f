#include "ir/text_cursor.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "heddle/error.h"
#include "ir/text_number.h"

namespace heddle::ir {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)); }

}  // namespace

TextCursor::TextCursor(std::string_view text, std::string_view file) : text_(text), file_(file) {
  lines_.push_back(0);
  for (std::size_t k = 0; k < text.size(); ++k)
    if (text[k] == '\n') lines_.push_back(k + 1);
}

void TextCursor::skip_space() {
  while (position_ < text_.size()) {
    if (is_space(text_[position_])) {
      ++position_;
    } else if (text_.substr(position_, 2) == "//") {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else {
      return;
    }
  }
}

bool TextCursor::at_end() {
  skip_space();
  return position_ == text_.size();
}

char TextCursor::peek() {
  skip_space();
  return position_ < text_.size() ? text_[position_] : '\0';
}

std::string_view TextCursor::peek_word() {
  skip_space();
  std::size_t end = position_;
  while (end < text_.size() && is_word(text_[end])) ++end;
  return text_.substr(position_, end - position_);
}

bool TextCursor::accept(std::string_view token) {
  skip_space();
  const bool matches =
      is_word(token.front()) ? peek_word() == token : text_.substr(position_).starts_with(token);
  if (matches) position_ += token.size();
  return matches;
}

void TextCursor::expect(std::string_view token) {
  if (!accept(token)) fail("'" + std::string(token) + "'");
}

std::string_view TextCursor::word(std::string_view expected) {
  const std::string_view result = peek_word();
  if (result.empty()) fail(std::string(expected));
  position_ += result.size();
  return result;
}

std::string_view TextCursor::name(char sigil, std::string_view expected) {
  if (peek() != sigil) fail(std::string(expected));
  ++position_;
  if (position_ >= text_.size() || !is_word(text_[position_])) fail(std::string(expected));
  return word(expected);
}

std::string_view TextCursor::number(std::string_view expected) {
  skip_space();
  std::size_t end = position_;
  if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
  while (end < text_.size()) {
    const bool exponent_sign = (text_[end] == '-' || text_[end] == '+') &&
                               (text_[end - 1] == 'e' || text_[end - 1] == 'E');
    if (!is_word(text_[end]) && !exponent_sign) break;
    ++end;
  }
  const std::string_view result = text_.substr(position_, end - position_);
  if (!float_value(result)) fail(std::string(expected));
  position_ = end;
  return result;
}

std::string TextCursor::string() {
  if (peek() != '"') fail("a string");
  const std::size_t start = position_++;
  std::string result;
  while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\n') {
    char c = text_[position_++];
    if (c == '\\' && position_ < text_.size()) {
      c = text_[position_++];
      if (c == 'n') c = '\n';
      if (c == 't') c = '\t';
      if (c == 'x') {
        const std::string digits(text_.substr(position_, 2));
        if (digits.size() != 2 || !std::isxdigit(static_cast<unsigned char>(digits[0])) ||
            !std::isxdigit(static_cast<unsigned char>(digits[1])))
          fail("two hexadecimal digits");
        c = static_cast<char>(std::stoi(digits, nullptr, 16));
        position_ += 2;
      }
    }
    result += c;
  }
  if (position_ >= text_.size() || text_[position_] != '"')
    fail_at(start, "syntax", "a string that ends on its line", {});
  ++position_;
  return result;
}

std::string_view TextCursor::until(std::string_view ends) {
  skip_space();
  const std::size_t start = position_;
  int depth = 0;
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (depth == 0 && ends.find(c) != std::string_view::npos) break;
    if (c == '(') ++depth;
    if (c == ')') --depth;
    ++position_;
  }
  std::string_view result = text_.substr(start, position_ - start);
  while (!result.empty() && is_space(result.back())) result.remove_suffix(1);
  return result;
}

void TextCursor::skip_block() {
  const std::size_t start = position_;
  int depth = 0;
  while (!at_end()) {
    const char c = text_[position_];
    if (c == '"') {
      string();
      continue;
    }
    ++position_;
    if (c == '{') ++depth;
    if (c == '}' && --depth == 0) return;
  }
  fail_at(start, "syntax", "a '}' that closes this", "the end");
}

std::string TextCursor::here() {
  if (at_end()) return "the end";
  const std::string_view word = peek_word();
  if (!word.empty()) return "'" + std::string(word) + "'";
  const auto byte = static_cast<unsigned char>(text_[position_]);
  return byte < ' ' ? fmt::format("'\\x{:02x}'", byte) : fmt::format("'{}'", text_[position_]);
}

std::string TextCursor::where(std::size_t position) const {
  const auto next = std::ranges::upper_bound(lines_, position);
  const auto line = next - lines_.begin();
  std::string text = std::to_string(line) + ":" + std::to_string(position - *(next - 1) + 1);
  return file_.empty() ? text : std::string(file_) + ":" + text;
}

void TextCursor::fail(std::string expected, std::string got) {
  if (got.empty()) got = here();
  fail_at(position_, "syntax", std::move(expected), std::move(got));
}

void TextCursor::fail_at(std::size_t position, std::string what, std::string expected,
                         std::string got) {
  throw ParseError({.what = std::move(what),
                    .where = where(position),
                    .expected = std::move(expected),
                    .got = std::move(got)});
}

}  // namespace heddle::ir
