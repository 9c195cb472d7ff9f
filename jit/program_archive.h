// Lowered graphs as bytes and back (base/archive.h).
#pragma once

#include "base/archive.h"
#include "jit/program.h"

namespace heddle::jit {

/// Whether bytes tell all of `program`: no step of it, or of programs nested in it, calls an op of the embedder's.
bool can_archive(const Program& program);
/// Of the constants of programs nested in `program`, which are written with it.
std::size_t nested_constant_bytes(const Program& program);

/// All but graphs, which are empty when they are read.
void fields(base::ArchiveWriter& archive, const Program& program);
void fields(base::ArchiveReader& archive, Program& program);

}  // namespace heddle::jit
