// A position in IR text: skips space and comments, takes words, fails with line and column.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::ir {

class TextCursor {
 public:
  TextCursor(std::string_view text, std::string_view file);

  std::size_t position() const { return position_; }
  void seek(std::size_t position) { position_ = position; }
  std::string_view text() const { return text_; }

  bool at_end();
  /// The next character after space and comments; 0 at the end.
  char peek();
  /// Takes `token` if it comes next. A word is taken whole or not at all.
  bool accept(std::string_view token);
  void expect(std::string_view token);
  /// The next word of letters, digits, '_' and '.'; fails with `expected` if there is none.
  std::string_view word(std::string_view expected);
  /// The same without moving; empty if there is none.
  std::string_view peek_word();
  /// A name after '%' or '@'.
  std::string_view name(char sigil, std::string_view expected);
  /// A number with its sign, or nan, inf, -inf.
  std::string_view number(std::string_view expected);
  std::string string();
  /// Text up to the first of `ends` outside parentheses, without trailing space; may be empty.
  std::string_view until(std::string_view ends);
  /// Moves behind the brace that closes the one at the position.
  void skip_block();

  /// What stands here, for messages: "'foo'", "the end".
  std::string here();
  [[noreturn]] void fail(std::string expected, std::string got = {});
  [[noreturn]] void fail_at(std::size_t position, std::string what, std::string expected,
                            std::string got);
  /// "3:8", after "file:" where a file is known.
  std::string where(std::size_t position) const;

 private:
  void skip_space();

  std::string_view text_;
  std::string_view file_;
  std::size_t position_ = 0;
  std::vector<std::size_t> lines_;  ///< where each line starts
};

}  // namespace heddle::ir
