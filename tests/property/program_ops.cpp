#include "tests/property/program_ops.h"

#include <mutex>
#include <utility>

#include "tests/api/custom/ops.h"

namespace heddle::property {
namespace {

std::mutex notes_mutex;
std::vector<std::int64_t> notes;
std::vector<std::int64_t> effects;

void copy(const KernelTensor& from, const KernelTensor& to) {
  for (std::int64_t k = 0; k < from.count(); ++k) test::element(to, k) = test::element(from, k);
}

void take_effect(const KernelCall& call) {
  const std::scoped_lock lock(notes_mutex);
  effects.push_back(call.integer("tag"));
}

std::vector<TensorType> type_of_kept(const ShapeCall& call) {
  return {TensorType{call.tensor(0).dtype, {call.unbacked()}}};
}

std::vector<Sizes> sizes_of_kept(const KernelCall& call) {
  std::int64_t count = 0;
  for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
    count += test::element(call.tensor(0), k) > 0 ? 1 : 0;
  return {{count}};
}

void keep_positive(const KernelCall& call) {
  std::int64_t next = 0;
  for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
    if (test::element(call.tensor(0), k) > 0)
      test::element(call.results[0], next++) = test::element(call.tensor(0), k);
}

}  // namespace

std::vector<std::int64_t> take_effects() {
  const std::scoped_lock lock(notes_mutex);
  return std::exchange(effects, {});
}

std::vector<std::int64_t> take_notes() {
  const std::scoped_lock lock(notes_mutex);
  return std::exchange(notes, {});
}

const RegisteredOp& note() {
  static const RegisteredOp op =
      register_op({.schema = "prop::note(Tensor x, int id) -> Tensor",
                   .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; },
                   .cpu =
                       [](const KernelCall& call) {
                         copy(call.tensor(0), call.results[0]);
                         const std::scoped_lock lock(notes_mutex);
                         notes.push_back(call.integer("id"));
                       }});
  return op;
}

const RegisteredOp& keep() {
  static const RegisteredOp op = register_op({.schema = "prop::keep(Tensor x) -> Tensor",
                                              .shape = type_of_kept,
                                              .cpu = keep_positive,
                                              .sizes = sizes_of_kept});
  return op;
}

const RegisteredOp& log() {
  static const RegisteredOp op =
      register_op({.schema = "prop::log(Tensor x, int tag) -> Tensor",
                   .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; },
                   .cpu =
                       [](const KernelCall& call) {
                         copy(call.tensor(0), call.results[0]);
                         take_effect(call);
                       },
                   .pure = false});
  return op;
}

const RegisteredOp& mark() {
  static const RegisteredOp op =
      register_op({.schema = "prop::mark(Tensor x, int tag) -> ()",
                   .shape = [](const ShapeCall&) { return std::vector<TensorType>(); },
                   .cpu = take_effect,
                   .pure = false});
  return op;
}

const RegisteredOp& bump() {
  static const RegisteredOp op =
      register_op({.schema = "prop::bump_(Tensor(a!) x, int tag) -> Tensor(a!)",
                   .shape = {},
                   .cpu =
                       [](const KernelCall& call) {
                         for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                           test::element(call.tensor(0), k) += 1;
                         take_effect(call);
                       },
                   .pure = false});
  return op;
}

const RegisteredOp& keep_log() {
  static const RegisteredOp op =
      register_op({.schema = "prop::keep_log(Tensor x, int tag) -> Tensor",
                   .shape = type_of_kept,
                   .cpu =
                       [](const KernelCall& call) {
                         keep_positive(call);
                         take_effect(call);
                       },
                   .sizes = sizes_of_kept,
                   .pure = false});
  return op;
}

}  // namespace heddle::property
