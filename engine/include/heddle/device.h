// Where tensors live and graphs run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "heddle/export.h"

namespace heddle {

/// A device by kind and index.
class HEDDLE_API Device {
 public:
  enum class Kind : std::uint8_t {
    Cpu,
    Cuda,
    CudaSim,    ///< the CUDA device over a simulated driver; for tests
    Reference,  ///< the reference evaluator: slow; for comparison only, never chosen by itself
  };

  Device() = default;
  static Device cpu() { return {Kind::Cpu, 0}; }
  static Device cuda(int index = 0) { return {Kind::Cuda, index}; }
  /// The CUDA device over the simulated driver at $HEDDLE_CUDA_SIM_PATH, or beside the library.
  static Device cuda_sim() { return {Kind::CudaSim, 0}; }
  static Device reference() { return {Kind::Reference, 0}; }
  /// CUDA device 0 if there is one that the engine can use, else the CPU.
  static Device best_available();
  /// "cpu", "cuda", "cuda:1", "cuda-sim", "reference". @throws OptionError.
  static Device parse(std::string_view text);

  Kind kind() const { return kind_; }
  int index() const { return index_; }
  /// Whether memory of the device is not the host's: CUDA, real or simulated.
  bool is_cuda() const { return kind_ == Kind::Cuda || kind_ == Kind::CudaSim; }
  std::string to_string() const;
  friend bool operator==(const Device&, const Device&) = default;

 private:
  Device(Kind kind, int index) : kind_(kind), index_(index) {}
  Kind kind_ = Kind::Cpu;
  int index_ = 0;
};

}  // namespace heddle
