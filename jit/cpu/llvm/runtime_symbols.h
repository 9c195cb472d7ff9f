// The functions that generated code may call. Nothing else of the process is visible to it.
#pragma once

#include <span>

namespace heddle::jit::cpu {

struct RuntimeSymbol {
  const char* name;
  void* address;
};

std::span<const RuntimeSymbol> runtime_symbols();

}  // namespace heddle::jit::cpu
