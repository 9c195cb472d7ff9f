// Custom ops of random programs, and what they log.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/heddle.h"

namespace heddle::property {

/// Ids that prop::note kernels have logged since the last call, in the order in which they ran.
std::vector<std::int64_t> take_notes();

/// Tags that kernels of ops with effects have logged since the last call, in the order in which they ran: one a call,
/// so one an iteration.
std::vector<std::int64_t> take_effects();

/// prop::keep(Tensor x) -> Tensor: the positive elements of a vector, in order.
const RegisteredOp& keep();

/// prop::note(Tensor x, int id) -> Tensor: gives x, and logs its id when it runs.
const RegisteredOp& note();

/// Ops with effects: each logs its tag when it runs.
///   prop::log(Tensor x, int tag) -> Tensor            gives x
///   prop::mark(Tensor x, int tag) -> ()
///   prop::bump_(Tensor(a!) x, int tag) -> Tensor(a!)   x += 1
///   prop::keep_log(Tensor x, int tag) -> Tensor       what prop::keep gives
const RegisteredOp& log();
const RegisteredOp& mark();
const RegisteredOp& bump();
const RegisteredOp& keep_log();

}  // namespace heddle::property
