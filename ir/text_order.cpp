#include "ir/text_order.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <queue>
#include <vector>

#include "heddle/error.h"

namespace heddle::ir {

namespace {

/// One line with a call.
struct Call {
  std::string_view line;
  std::vector<std::string_view> results;
  std::vector<std::string_view> reads;  ///< waits too
};

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

/// Gives each "%name" that is in no quotes and no comment, with the place of its "%", to `visit`.
template <typename F>
void each_name(std::string_view line, F&& visit) {
  bool quoted = false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (quoted && line[at] == '\\') {
      ++at;
    } else if (line[at] == '"') {
      quoted = !quoted;
    } else if (!quoted && line.substr(at).starts_with("//")) {
      return;
    } else if (!quoted && line[at] == '%') {
      std::size_t end = at + 1;
      while (end < line.size() && in_name(line[end])) ++end;
      visit(at, line.substr(at, end - at));
      at = end - 1;
    }
  }
}

bool is_call(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos) return false;
  line.remove_prefix(first);
  for (const std::string_view other : {"//", "}", "graph ", "assume ", "return", "write_back "})
    if (line.starts_with(other)) return false;
  return line.find('=') != std::string_view::npos || line.find('(') != std::string_view::npos;
}

Call call_in(std::string_view line) {
  const std::size_t equals = line.find('=');
  const bool has_results = equals < line.find('(');
  Call call{line, {}, {}};
  each_name(line, [&](std::size_t at, std::string_view name) {
    (has_results && at < equals ? call.results : call.reads).push_back(name);
  });
  return call;
}

/// Calls of one graph, one after another.
class Block {
 public:
  void add(std::string_view line) { calls_.push_back(call_in(line)); }

  void append_to(std::string& text) {
    link();
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t k = 0; k < calls_.size(); ++k)
      if (before_[k].empty()) ready.push(k);
    std::vector<std::size_t> unmet;
    for (const auto& firsts : before_) unmet.push_back(firsts.size());
    std::size_t done = 0;
    for (; !ready.empty(); ++done) {
      const std::size_t next = ready.top();
      ready.pop();
      text.append(calls_[next].line).push_back('\n');
      for (const std::size_t k : after_[next])
        if (--unmet[k] == 0) ready.push(k);
    }
    if (done < calls_.size()) fail(unmet);
    calls_.clear();
  }

 private:
  void link() {
    std::map<std::string_view, std::size_t> maker;
    for (std::size_t k = 0; k < calls_.size(); ++k)
      for (const std::string_view name : calls_[k].results) maker.emplace(name, k);
    before_.assign(calls_.size(), {});
    after_.assign(calls_.size(), {});
    for (std::size_t k = 0; k < calls_.size(); ++k) {
      for (const std::string_view name : calls_[k].reads) {
        const auto found = maker.find(name);
        if (found == maker.end()) continue;
        before_[k].push_back(found->second);
        after_[found->second].push_back(k);
      }
    }
  }

  std::string name_of(std::size_t call) const {
    const auto& results = calls_[call].results;
    return results.empty() ? std::string(calls_[call].line) : std::string(results[0]);
  }

  /// Goes back from any call that is left, to one that is left, until one comes again.
  [[noreturn]] void fail(const std::vector<std::size_t>& unmet) const {
    const auto is_left = [&](std::size_t call) { return unmet[call] != 0; };
    std::size_t at = 0;
    while (!is_left(at)) ++at;
    std::vector<std::size_t> path;
    while (std::ranges::find(path, at) == path.end()) {
      path.push_back(at);
      at = *std::ranges::find_if(before_[at], is_left);
    }
    std::string cycle = name_of(at);
    for (std::size_t k = path.size(); k-- > 0 && path[k] != at;)
      cycle += " before " + name_of(path[k]);
    throw CycleError({.what = "order",
                      .where = {},
                      .expected = "no cycle",
                      .got = cycle + " before " + name_of(at)});
  }

  std::vector<Call> calls_;
  std::vector<std::vector<std::size_t>> before_, after_;  ///< by call
};

}  // namespace

std::string in_order(std::string_view text) {
  std::string result;
  Block block;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (is_call(line)) {
      block.add(line);
      continue;
    }
    block.append_to(result);
    result.append(line).push_back('\n');
  }
  block.append_to(result);
  return result;
}

}  // namespace heddle::ir
