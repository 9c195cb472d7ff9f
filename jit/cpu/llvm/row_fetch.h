// Which loads of a nest that works on rows ask for the next row too.
#pragma once

#include <unordered_map>

#include "jit/nest.h"

namespace heddle::jit::cpu {

/// Loads that fetch ahead into the first-level cache, each with the elements from what it reads to its like in the next row:
/// of a nest whose vector loops go through a row of a buffer several times.
///
///   parallel i0 < 512
///     vector i1 < 1024: load b0[1024*i0+i1]        from the shared cache or memory
///     vector i2 < 1024: load b0[1024*i0+i2], exp   from the first-level cache: fetches b0[1024*i0+i2+1024]
///
/// Processors fetch ahead by themselves too, but begin anew at each page, which a row may be, and late where loops end
/// and begin. It is the second loop over a row that has nothing to wait for; it fetches where a function computed by
/// a polynomial leaves time. Short rows follow each other in a page, and long ones would push each other out.
///
/// And loads of pieces of rows far below each other, as tiles that are turned have them: the next iteration's piece is fetched.
///
///   parallel i0 < 98
///     serial i1 < 64
///       vector i2 < 32: load b0[32*i0+3136*i1+i2]  fetches b0[32*i0+3136*i1+i2+32]
///
/// And loads of single elements that go on with a loop around vectors, as a convolution of an image's few channels reads a row of
/// each of them at once, more rows than the processor follows:
///
///   parallel i0 < 400
///     serial i1 < 38
///       vector i2 < 16
///         serial i3 < 3: load b1[1216*i0+16*i1+608*i3]   fetches b1[1216*i0+16*i1+608*i3+128]
///
/// @param rows  that the nest goes through at a time (row_strips.h): fetched is the one so many rows on.
/// Cost: quadratic in the reads of the outermost loops, which are few.
std::unordered_map<const LoadStmt*, SymExpr> row_fetches(const Nest& nest, std::int64_t rows = 1);

}  // namespace heddle::jit::cpu
