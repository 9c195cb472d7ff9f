// What a program does that makes one of several cases again and again: PROGRAM CASE CALLS, or PROGRAM --list.
#pragma once

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

namespace heddle::bench {

/// Makes `call(k)` for k from 0 to `calls`. scripts/count_instructions counts what this function does and nothing else, so its name
/// stays and it is not inlined.
template <typename Call>
[[gnu::noinline]] void counted_calls(int calls, Call&& call) {
  for (int k = 0; k < calls; ++k) call(k);
}

/// Calls `make(case, calls)` for what the arguments name. @return the program's exit status.
template <typename Case, typename Make>
int make_chosen_case(int argc, char** argv, const std::map<std::string, Case>& cases, Make&& make) {
  if (argc == 2 && std::string_view(argv[1]) == "--list") {
    for (const auto& [name, unused] : cases) std::cout << name << '\n';
    return 0;
  }
  const auto found = argc == 3 ? cases.find(argv[1]) : cases.end();
  if (found == cases.end()) {
    std::cerr << "usage: " << argv[0] << " CASE CALLS, with a CASE of --list\n";
    return 2;
  }
  make(found->second, std::atoi(argv[2]));
  return 0;
}

}  // namespace heddle::bench
