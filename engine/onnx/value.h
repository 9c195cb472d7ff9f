// What a value of a model is while its nodes are walked.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/onnx/reals.h"
#include "heddle/tensor.h"

namespace heddle::onnx {

using SymInts = std::vector<SymInt>;
using Ints = std::vector<std::int64_t>;

/// Integers known while tracing (symbolic sizes among them), row-major, of a value with `sizes`.
struct KnownInts {
  SymInts ints;
  Ints sizes;
};

/// The elements of a computed vector of integers, those that are known while tracing.
using KnownParts = std::vector<std::optional<SymInt>>;
/// Whether some of them are known and some are not.
bool is_late(const KnownParts& parts);

/// How numbers of less than a byte lie in a tensor of bytes: the first in the lowest bits, the last byte padded.
struct Packing {
  std::int64_t bits;  ///< 2 or 4
  bool is_signed;
  bool is_real;  ///< FLOAT4E2M1
  Ints sizes;    ///< of the tensor of numbers
};

/// The numbers of `bytes`, as i8, u8 or f8e4m3fn, on the host.
Tensor unpacked(const Tensor& bytes, const Packing& packing);

/// A tensor, a few integers known while tracing, or both; or a sequence of such. Shape arithmetic stays on the known integers; an op on
/// tensors gets a tensor made of them.
class Value {
 public:
  Value() = default;
  Value(Tensor tensor);  // NOLINT: implicit on purpose
  /// Known integers: a vector, or a scalar when `scalar`.
  static Value of_ints(SymInts ints, bool scalar, DType dtype = i64);
  /// Known integers of any rank, as the padding of a model is built from pairs; numbers wrap to `dtype`.
  static Value of_known(KnownInts known, DType dtype);
  /// A constant of the model, with data: one float or byte is a number to the graph and no parameter, so that kernels have it
  /// in their code.
  static Value of_constant(Tensor tensor);
  /// A computed tensor, a scalar or vector, whose elements follow from sizes: `reals` are read where a number is needed.
  static Value of_reals(Tensor tensor, Reals reals);
  /// A computed vector of integers of which some are known.
  static Value of_parts(Tensor tensor, KnownParts parts);
  /// Numbers of less than a byte: as a tensor they are i8 or u8, which the graph computes from `bytes` where it reads them, or
  /// f8e4m3fn, of which a copy is made here.
  static Value of_packed(Tensor bytes, Packing packing);
  /// A list of tensors whose number is known while tracing. It has elements(), and none of what tensors have.
  static Value of_sequence(std::vector<Value> elements);
  /// Tensors of one type, the slices of `rows` along its first dimension: their number may be what only the run tells.
  static Value of_rows(Tensor rows);
  /// The maps that an output of the model is, one for each row of `tensor`: nothing else reads them.
  static Value of_maps(Tensor tensor);
  /// An input of the graph, called `name`.
  static Value of_input(Tensor tensor, std::string name);

  bool defined() const { return state_ != nullptr; }
  bool is_sequence() const;
  /// Of a sequence: whether it is a list.
  bool is_listed() const;
  const std::vector<Value>& elements() const;
  /// The elements of a sequence as slices of one tensor. @throws UnsupportedError where a list has none, or elements of several types.
  Tensor rows() const;
  bool is_maps() const;
  /// Whether the elements, i64, are codes of strings.
  bool is_text() const;
  /// The same value, of such.
  Value as_text() const;
  DType dtype() const;
  /// 2 or 4, where ONNX's element type has so few of the dtype's bits; else 0.
  std::int64_t bits() const;
  /// The same value, of an ONNX element type of so many bits.
  Value with_bits(std::int64_t bits) const;
  std::int64_t rank() const;
  SymInts shape() const;
  /// The tensor, made from the integers or the number at the first call; in a region at each.
  Tensor tensor() const;
  /// The tensor if it has data already.
  std::optional<Tensor> concrete() const;
  /// Whether the elements are reals that follow from sizes.
  bool has_reals() const;
  /// The elements as reals: those that follow from sizes, or those of a small floating scalar or vector with data.
  std::optional<Reals> reals() const;
  /// The integers of a scalar or vector if they are known: also those of a small integer tensor with data.
  std::optional<SymInts> ints() const;
  /// The elements of a vector of integers of a known length, those that are known; nothing of others.
  std::optional<KnownParts> parts() const;
  /// The integers of any rank, where arithmetic on them takes the place of arithmetic on tensors.
  std::optional<KnownInts> known_ints() const;
  /// Whether that is so of a scalar or vector.
  bool is_shape_like() const;
  /// The graph input that this value is; empty if it is computed.
  const std::string& input_name() const;
  /// The graph input that this value is or that alone, with constants and sizes, it is computed from; empty otherwise.
  const std::string& source() const;
  /// Says so of a value that was just computed from `operands`.
  void note_source(std::span<const Value> operands);

 private:
  /// Whether its elements become known at run time only.
  bool is_computed() const;
  /// Numbers of less than a byte as a tensor of the graph.
  Tensor unpacked_tensor() const;
  /// The number of one element as a tensor of the graph.
  Tensor number_tensor() const;

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace heddle::onnx
