// What an engine's options mean where they leave something to the environment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/engine.h"
#include "scheduler/capture.h"

namespace heddle::engine {

// Each throws OptionError naming the variable whose text is none of those it may have.

/// EngineOptions::threads, HEDDLE_THREADS or as many as the process has processors (base/processors.h).
int thread_count(const EngineOptions& options);
/// EngineOptions::specialise_after, HEDDLE_SPECIALISE_AFTER or 0.
int calls_before_specialising(const EngineOptions& options);
/// EngineOptions::streams, HEDDLE_STREAMS or 4.
std::uint32_t stream_count(const EngineOptions& options);
/// EngineOptions::cuda_graphs, HEDDLE_CUDA_GRAPHS or yes.
bool wants_graphs(const EngineOptions& options);
/// HEDDLE_DEVICE_MEMORY_CAP in bytes; 0: there is none.
std::size_t device_memory_cap();
/// HEDDLE_PINNED_MEMORY_CAP in bytes; 0: there is none.
std::size_t pinned_memory_cap();
/// HEDDLE_L2_CACHE in bytes, or this machine's for one core, or 512 KiB where that is not known.
std::int64_t second_level_cache();
/// EngineOptions::autotune, HEDDLE_AUTOTUNE or whether the device is a real one.
bool wants_autotune(const EngineOptions& options);
/// EngineOptions::keep_constants, HEDDLE_KEEP_CONSTANTS or yes.
bool keeps_constants(const EngineOptions& options);
/// EngineOptions::flush_subnormals, HEDDLE_FLUSH_SUBNORMALS or no.
bool flushes_subnormals(const EngineOptions& options);
/// Which steps go into graphs: HEDDLE_GRAPH_MIN_KERNELS, and none of those of ops in HEDDLE_GRAPH_SPLIT_OPS or with sizes in
/// HEDDLE_GRAPH_UNSAFE_SIZES, names with commas between, nor with any symbolic size if HEDDLE_GRAPH_SPLIT_DYNAMIC is 1.
scheduler::CaptureOptions capture_options();

}  // namespace heddle::engine
