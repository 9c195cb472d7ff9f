// The user's own ops: registered once, called in traced callables, eagerly, and from IR text.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "heddle/cuda_text.h"
#include "heddle/error.h"
#include "heddle/kernel_call.h"
#include "heddle/ops.h"
#include "heddle/tensor.h"

namespace heddle {

/// The kernel of a custom op failed: names the op, the node, and what the kernel said.
class HEDDLE_API CustomOpError : public Error {
 public:
  explicit CustomOpError(Parts parts);
  CustomOpError(const CustomOpError&) = default;
  CustomOpError& operator=(const CustomOpError&) = default;
  ~CustomOpError() override;
};

/// Element type and sizes of a tensor that does not exist yet.
struct TensorType {
  DType dtype = f32;
  std::vector<SymInt> sizes;
};

/// What a shape function sees. Tensor arguments are counted in schema order, attributes are named.
/// Comparing sizes here assumes the outcome for the graph, as in a traced callable.
class HEDDLE_API ShapeCall {
 public:
  bool has(std::size_t argument) const;  ///< false: an optional tensor that was not given
  TensorType tensor(std::size_t argument) const;
  std::vector<TensorType> list(std::size_t argument) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::string text(std::string_view name) const;
  DType dtype(std::string_view name) const;
  std::vector<std::int64_t> integers(std::string_view name) const;
  SymInt size(std::string_view name) const;  ///< of a SymInt argument
  std::vector<SymInt> sizes(std::string_view name) const;
  /// A new size that depends on the elements of the arguments: CustomOp::sizes tells it at run time.
  SymInt unbacked() const;
  /// @throws ShapeError "<op>: <what>: expected …, got …".
  [[noreturn]] void fail(std::string what, std::string expected, std::string got) const;

  struct State;
  explicit ShapeCall(State& state) : state_(state) {}

 private:
  State& state_;
};

/// A custom op: what register_op() takes.
///
/// The schema says what is written, "Tensor(a!) counts", and what shares bytes, "Tensor(a) x" with
/// "-> Tensor(a)". In a traced callable a written tensor is read and has a new value afterwards; the engine
/// copies it first only where the old value is still needed. Results share no bytes with arguments but
/// where the schema says so.
struct CustomOp {
  std::string schema;  ///< "moe::route(Tensor x, Tensor(a!) counts, int k) -> (Tensor, Tensor)"
  /// Types of the results. May be empty where there is none but the written first argument.
  std::function<std::vector<TensorType>(const ShapeCall&)> shape;
  /// Called from any thread, by several at once for different requests, and with parts of [0, extent).
  std::function<void(const KernelCall&)> cpu;
  /// Bytes of workspace for one thread; addresses in the call are null. Empty: none.
  std::function<std::int64_t(const KernelCall&)> workspace_bytes{};
  /// Independent iterations that threads may share; addresses are null. Empty: one.
  std::function<std::int64_t(const KernelCall&)> extent{};
  /// Slow and obvious, for the reference device. Empty: the CPU kernel.
  std::function<void(const KernelCall&)> reference{};
  /// Sizes of the results, in order, where they depend on values (see ShapeCall::unbacked). Called before the
  /// kernel, with the elements of the arguments and without results; what it says must be what the shape
  /// function said of the results.
  std::function<std::vector<Sizes>(const KernelCall&)> sizes{};
  /// Queues the work of all iterations on `stream` (a CUstream) and waits for nothing. Called with the device's
  /// context current, by one thread a request. What it throws is a CustomOpError. Empty: not on CUDA.
  std::function<void(const KernelCall&, void* stream)> cuda{};
  /// Texts that `cuda` and `cuda_sizes` launch: compiled with the graphs that the op is in, by prepare() or in the
  /// background where those are, so that no call waits for NVRTC. One that does not compile is a CustomOpError then.
  /// Others are compiled at their first launch.
  std::vector<CudaText> cuda_texts{};
  /// On CUDA in place of `sizes`, which needs copies of all arguments on the host: queues on `stream` work that
  /// writes the sizes of the results, one after another, to `told`, on the device. The engine copies these few
  /// numbers and waits for that one stream.
  std::function<void(const KernelCall&, std::int64_t* told, void* stream)> cuda_sizes{};
  bool pure = true;  ///< equal calls give equal results, and unused ones may go
  /// What `cuda` queues may be captured as a part of a graph of the device, and replayed: it depends on nothing but
  /// addresses, sizes and attributes, comes on the one stream that `cuda` gets, and neither allocates nor waits. Then
  /// `cuda` is called again only for other addresses or sizes. False, and of ops that are not pure: its steps part
  /// graphs, and each run calls it.
  bool capturable = true;
  bool collective = false;  ///< talks to other processes: writes are not analysed
};

/// An argument of call(): a tensor, nothing for an optional one, a list of tensors, or an attribute; with the
/// line it stands on.
class HEDDLE_API CallArg {
 public:
  CallArg(const Tensor& tensor, At line = At::current())  // NOLINT: implicit on purpose
      : value(tensor), where(line) {}
  CallArg(std::nullptr_t, At line = At::current()) : value(Tensor()), where(line) {}  // NOLINT
  CallArg(std::vector<Tensor> tensors, At line = At::current())                       // NOLINT
      : value(std::move(tensors)), where(line) {}
  template <typename T>
    requires std::constructible_from<OpAttr, T> && (!std::integral<T>) &&
                 (!std::convertible_to<T, std::string>) && (!std::convertible_to<T, Tensor>)
  CallArg(T v, At line = At::current())  // NOLINT
      : value(OpAttr(std::move(v))), where(line) {}
  template <std::integral T>
  CallArg(T v, At line = At::current()) : value(integral(v)), where(line) {}  // NOLINT
  CallArg(std::string text, At line = At::current())                          // NOLINT
      : value(OpAttr(std::move(text))), where(line) {}
  CallArg(const char* text, At line = At::current())  // NOLINT
      : CallArg(std::string(text), line) {}

  /// Stands for an argument that the caller did not write.
  struct Omitted {};
  CallArg(Omitted) : value(Tensor()), omitted(true) {}  // NOLINT

  std::variant<Tensor, std::vector<Tensor>, OpAttr> value;
  bool omitted = false;
  At where;

 private:
  template <typename T>
  static OpAttr integral(T v) {
    if constexpr (std::is_same_v<T, bool>)
      return v;
    else
      return static_cast<std::int64_t>(v);
  }
};

/// Calls a custom op: arguments by position in the order of its schema; attributes with a default may be
/// left out at the end. Tensors that the op writes have their new values afterwards.
/// @return the schema's results. An op that only writes its first argument and returns it returns that;
///         one that returns nothing and writes nothing gives an empty tensor that after() can name.
/// @throws UnsupportedError for an unknown op; ArgumentError naming the argument that does not fit.
HEDDLE_API std::vector<Tensor> call(std::string_view op, std::initializer_list<CallArg> arguments,
                                    At where = At::current());
HEDDLE_API std::vector<Tensor> call(std::string_view op, std::span<const CallArg> arguments,
                                    At where = At::current());

/// A registered op as a callable of up to twelve arguments: route(x, counts, nullptr, 2).
class HEDDLE_API RegisteredOp {
 public:
  explicit RegisteredOp(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  using Omitted = CallArg::Omitted;
  std::vector<Tensor> operator()(const CallArg& a = Omitted(), const CallArg& b = Omitted(),
                                 const CallArg& c = Omitted(), const CallArg& d = Omitted(),
                                 const CallArg& e = Omitted(), const CallArg& f = Omitted(),
                                 const CallArg& g = Omitted(), const CallArg& h = Omitted(),
                                 const CallArg& i = Omitted(), const CallArg& j = Omitted(),
                                 const CallArg& k = Omitted(), const CallArg& l = Omitted()) const;

 private:
  std::string name_;
};

/// Registers `op` for as long as the process lives.
/// @throws ParseError for a schema that does not parse, naming the column; ArgumentError for a name that is
///         taken or a function that is missing.
HEDDLE_API RegisteredOp register_op(CustomOp op);

}  // namespace heddle
