// Attention of few queries in parts of the keys, so that more threads than heads have work.
#pragma once

#include "ir/graph.h"
#include "jit/program.h"

namespace heddle::jit {

/// Replaces attention whose queries and heads are few for their keys by attention over parts of them.
///
///   %y = attention(%q: f32[1, 32, 1, 128], %k: f32[1, 8, s0, 128], %v: f32[1, 8, s0, 128])
///     ==>
///   %a, %m, %t = attention_parts(%q, %k, %v) {part = 512}
///   %y = join_attention(%a, %m, %t)
///
/// Parts are larger, the more other tiles there are: with a batch and with queries of unknown number they are so many times as
/// large, so that what is a prompt at one call and a token at the next is in parts as the token. They depend on nothing but sizes:
/// results are the same for any number of threads.
///
/// Needs:  known sizes put in.
/// Leaves: all of CUDA's, whose blocks part the keys by themselves; queries that are as many as keys; known sizes of one part.
ir::Graph split_attention(const ir::Graph& graph, const LowerOptions& options);

}  // namespace heddle::jit
