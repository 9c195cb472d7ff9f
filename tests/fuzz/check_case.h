// Runs a case through a product and compares with the reference evaluator.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/random_case.h"

namespace heddle::fuzz {

/// Something that compiles a graph and runs it.
class Product {
 public:
  virtual ~Product() = default;
  /// Outputs in order, then what became of the arguments that the graph writes back to.
  virtual std::vector<ir::Literal> run(const std::vector<ir::Literal>& arguments, bool into) = 0;
};
/// A product over `graph` whose calls use `threads` threads.
using Compile = std::function<std::unique_ptr<Product>(const ir::Graph& graph, int threads)>;

/// The public engine, made from the graph's text.
std::unique_ptr<Product> compile_with_engine(const ir::Graph& graph, int threads);
/// The same with every argument donated that the graph does not write back to: each call hands over handles, or lets an
/// output lie where an argument of as many bytes does.
std::unique_ptr<Product> compile_donating(const ir::Graph& graph, int threads);
/// The same on the CUDA device of tests/support/cuda_driver.h, with that many streams; with several of them as graphs
/// of the device.
std::unique_ptr<Product> compile_on_cuda(const ir::Graph& graph, int streams);
/// Both at once: arguments lie on the device.
std::unique_ptr<Product> compile_donating_on_cuda(const ir::Graph& graph, int streams);

struct Failure {
  enum class Kind : std::uint8_t { Wrong, Threads, Thrown, Type } kind = Kind::Wrong;
  std::size_t call = 0;
  std::size_t output = 0;
  std::string what;
};

/// The first thing that is wrong; nothing if all is right.
std::optional<Failure> check_case(const Case& subject, const Compile& compile);

}  // namespace heddle::fuzz
