// Nests that between them use everything the nest IR has, with data to run them on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jit/nest.h"

namespace heddle::tests {

/// Memory of one global buffer.
struct CorpusBuffer {
  DType dtype = DType::F32;
  std::vector<unsigned char> bytes;

  std::int64_t count() const;
  double number(std::int64_t k) const;
  void set(std::int64_t k, double value);
};

struct CorpusCase {
  jit::Nest nest;
  std::vector<std::int64_t> sizes;
  std::vector<CorpusBuffer> buffers;  ///< one for each global buffer
  double tolerance = 2e-6;            ///< relative, of floating results
};

inline std::string dtype_name(DType dtype) { return std::string(name_of(dtype)); }

/// A buffer of `count` elements: numbers of a few magnitudes, with zeros, infinities, NaNs and the
/// ends of integer ranges among them where `special`.
CorpusBuffer make_buffer(DType dtype, std::int64_t count, std::uint64_t seed, bool special);

std::vector<CorpusCase> scalar_corpus();
std::vector<CorpusCase> loop_corpus();
/// Both; every nest has another name.
std::vector<CorpusCase> corpus();

}  // namespace heddle::tests
