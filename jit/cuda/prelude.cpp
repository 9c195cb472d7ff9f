#include "jit/cuda/prelude.h"

#include <map>
#include <set>
#include <vector>

#include "base/check.h"

namespace heddle::jit::cuda {
namespace {

/// Text between two blank lines.
struct Piece {
  std::string_view text;
  std::set<std::size_t> needs;  ///< earlier pieces
};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Calls `found` with every identifier in `code` that begins with hd_, leaving out comments.
template <typename Found>
void for_each_name(std::string_view code, Found found) {
  for (std::size_t k = 0; k < code.size();) {
    if (code.substr(k).starts_with("//")) {
      k = std::min(code.find('\n', k), code.size());
    } else if (is_word(code[k])) {
      const std::size_t begin = k;
      while (k < code.size() && is_word(code[k])) ++k;
      const std::string_view word = code.substr(begin, k - begin);
      if (word.starts_with("hd_")) found(word);
    } else {
      ++k;
    }
  }
}

class Prelude {
 public:
  Prelude() {
    std::string_view rest = prelude_text();
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find("\n\n"), rest.size());
      add(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 2, rest.size()));
    }
  }

  std::string pieces_for(std::string_view code) const {
    std::set<std::size_t> wanted;
    for_each_name(code, [&](std::string_view name) {
      const auto defined = definitions_.find(name);
      HD_CHECK(defined != definitions_.end(), "the prelude has no " + std::string(name));
      want(defined->second, wanted);
    });
    std::string text;
    for (const std::size_t k : wanted) {
      text += pieces_[k].text;
      text += "\n\n";
    }
    return text;
  }

 private:
  void add(std::string_view text) {
    Piece piece{text, {}};
    for_each_name(text, [&](std::string_view name) {
      const std::size_t defined = definitions_.try_emplace(name, pieces_.size()).first->second;
      if (defined != pieces_.size()) piece.needs.insert(defined);
    });
    pieces_.push_back(std::move(piece));
  }

  void want(std::size_t k, std::set<std::size_t>& wanted) const {
    if (!wanted.insert(k).second) return;
    for (const std::size_t needed : pieces_[k].needs) want(needed, wanted);
  }

  std::vector<Piece> pieces_;
  std::map<std::string_view, std::size_t> definitions_;
};

}  // namespace

std::string prelude_for(std::string_view code) {
  static const Prelude prelude;
  return prelude.pieces_for(code);
}

}  // namespace heddle::jit::cuda
