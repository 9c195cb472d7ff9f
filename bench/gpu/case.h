// A case of the GPU suite: a graph in IR text and inputs in files, which Heddle and its peers read alike.
//
// A case is a folder with `case.json` and `graph.hir`:
//
//   {"name": "softmax_f32_1m", "rotate": true, "flops": 0, "bytes": 8388608,
//    "inputs": [{"name": "x", "dtype": "f32", "sizes": [1024, 1024], "kind": "normal", "scale": 1.0, "state": false}]}
//
// kind      normal: about N(0, scale); ones: 1 + 0.1 * that; index: integers in [0, scale)
// state     the graph writes it back: it is compared too
// rotate    calls go round several sets of tensors, so that no call finds its data in a cache
//
// Input k lies in `input<k>.bin`, row-major, little endian. The file holds kPeriod elements at most; longer tensors
// repeat them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cuda_runtime.h"
#include "heddle/heddle.h"

namespace heddle::bench::gpu {

/// No power of two, so that no column of a matrix is constant.
inline constexpr std::int64_t kPeriod = (std::int64_t{1} << 20) - 3;
/// Elements of one output that are compared: all, or as many that lie evenly among them.
inline constexpr std::int64_t kSamples = std::int64_t{1} << 17;

struct CaseInput {
  std::string name;
  DType dtype = f32;
  Sizes sizes;
  std::string kind;
  double scale = 1;
  bool state = false;

  std::int64_t count() const;
};

struct Case {
  std::string folder;
  std::string graph;  ///< IR text
  std::vector<CaseInput> inputs;
  bool rotate = false;
};

/// @throws std::runtime_error naming the file that is missing or the field that is wrong.
Case read_case(const std::string& folder);
/// Writes the files of the inputs. The same elements for the same case, on every machine.
void write_inputs(const Case& one);
/// The tensors of the files, on the host.
std::vector<Tensor> read_inputs(const Case& one);
/// Those on a CUDA device: one period comes from the file, and the rest is copied there.
std::vector<Tensor> read_inputs_to(const Case& one, engine::CudaRuntime& runtime);
/// `name`.f32 in `folder`: the elements that are compared, as f32.
void write_samples(const std::string& folder, const std::string& name, const Tensor& tensor);

}  // namespace heddle::bench::gpu
