// Rows that read through the same indices, several at a time.
#pragma once

#include <cstdint>

#include "jit/nest_builder.h"

namespace heddle::jit {

/// Makes `body`, which is one element of the row `row`, that of this row and of the count - 1 after it. What does not depend on
/// the row is there once: where elements are looked up through indices that all rows share, as in images that are sampled
/// at the same places in each channel.
///
///   %1 = load index[i]; t0 = bind %1; %2 = load x[100*r+t0]; store y[64*r+i] = %2
///     ==>
///   %1 = load index[i]; t0 = bind %1; %2 = load x[100*r+t0]; %3 = load x[100*r+t0+100]; store y[64*r+i] = %2; …
///
/// Does nothing and returns false where rows share no indices, or hardly anything.
bool jam_rows(NestBuilder& builder, Block& body, Symbol row, std::int64_t count);

/// The same where `body` reduces in one serial loop, as of results that are neighbouring lanes: the loop reduces those of all rows,
/// so that what rows share is loaded once for all of them, and no sum waits for itself.
///
///   for k: %1 = load y[128*k+i]; %2 = load x[64*r+k]; %3 = sub(%1, %2); %4 = sum %3
///     ==>
///   for k: %1 = load y[128*k+i]; %2 = load x[64*r+k]; %3 = sub(%1, %2); %5 = load x[64*r+k+64]; %6 = sub(%1, %5);
///          %4 = sum %3, %7 = sum %6
///
/// Does nothing and returns false where there is no such loop, or it loads nothing for all rows alike.
bool jam_sums(NestBuilder& builder, Block& body, Symbol row, std::int64_t count);

}  // namespace heddle::jit
