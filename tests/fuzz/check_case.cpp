#include "tests/fuzz/check_case.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <unistd.h>

#include "heddle/engine.h"
#include "ir/evaluate.h"
#include "ir/op.h"
#include "ir/text.h"
#include "tests/support/cuda_driver.h"

namespace heddle::fuzz {

using ir::Literal;

namespace {

Tensor tensor_of(const Literal& literal) {
  return Tensor::wrap_strided(const_cast<void*>(literal.data()), literal.dtype(), literal.sizes(),
                              literal.strides());
}

Literal literal_of(const Tensor& tensor) {
  Literal view(tensor.dtype(), {tensor.sizes().begin(), tensor.sizes().end()},
               {tensor.strides().begin(), tensor.strides().end()}, const_cast<void*>(tensor.data()),
               nullptr);
  return view.clone();
}

Engine engine_over(const ir::Graph& graph, const EngineOptions& options) {
  if (ir::named_literals(graph).empty()) return parse_ir(ir::print(graph), options);
  static int count = 0;
  const std::string stem = fmt::format("heddle_fuzz_{}_{}.hir", getpid(), count++);
  const std::filesystem::path path = std::filesystem::temp_directory_path() / stem;
  ir::save(graph, path.string());
  Engine engine = load_ir(path.string(), options);
  std::filesystem::remove(path);
  std::filesystem::remove(path.string() + ".bin");
  return engine;
}

/// The outputs, then what the states among the arguments hold.
std::vector<Literal> results_of(const ir::Graph& graph, const std::vector<Tensor>& outputs,
                                const std::vector<Literal>& arguments) {
  std::vector<Literal> results;
  for (const Tensor& output : outputs) results.push_back(literal_of(output.to(Device::cpu())));
  std::map<ir::Value, std::size_t> position;
  for (const ir::Value input : graph.inputs())
    if (graph.parameter(input.node) == nullptr) position.emplace(input, position.size());
  for (const auto& write : graph.write_backs())
    results.push_back(arguments[position.at(write.target)].clone());
  return results;
}

class EngineProduct : public Product {
 public:
  EngineProduct(const ir::Graph& graph, const EngineOptions& options)
      : engine_(engine_over(graph, options)), graph_(graph) {}

  std::vector<Literal> run(const std::vector<Literal>& arguments, bool into) override {
    std::vector<Tensor> inputs;
    for (const Literal& argument : arguments) inputs.push_back(tensor_of(argument));
    std::vector<Tensor> outputs;
    if (into) {
      outputs = empty_outputs(arguments);
      engine_.run_into(inputs, outputs);
    } else {
      outputs = engine_.run(inputs);
    }
    return results_of(graph_, outputs, arguments);
  }

 private:
  /// Outputs full of rubbish.
  std::vector<Tensor> empty_outputs(const std::vector<Literal>& arguments) const {
    const base::SymbolValues sizes = ir::bind_sizes(graph_, arguments);
    std::vector<Tensor> outputs;
    for (const ir::Value output : graph_.outputs()) {
      Sizes numbers;
      for (const ir::SymExpr& size : output.meta().sizes) numbers.push_back(size.evaluate(sizes));
      outputs.push_back(Tensor::empty(output.meta().dtype, numbers));
      std::memset(outputs.back().data(), 0x5a,
                  static_cast<std::size_t>(outputs.back().count()) * size_of(output.meta().dtype));
    }
    return outputs;
  }

  Engine engine_;
  ir::Graph graph_;
};

/// Every argument that is no state is the engine's.
class DonatingProduct : public Product {
 public:
  DonatingProduct(const ir::Graph& graph, EngineOptions options)
      : graph_(graph), engine_(engine_over(graph, donating(graph, std::move(options)))) {
    for (const ValueInfo& input : engine_.signature().inputs)
      donated_.push_back(engine_.options().donate.contains(input.name));
  }

  std::vector<Literal> run(const std::vector<Literal>& arguments, bool into) override {
    std::vector<Tensor> inputs;
    for (std::size_t k = 0; k < arguments.size(); ++k)
      inputs.push_back(donated_[k] ? given_away(arguments[k]) : tensor_of(arguments[k]));
    std::vector<Tensor> outputs;
    if (into) {
      outputs = places_for_outputs(arguments, inputs);
      engine_.run_into(inputs, outputs);
    } else {
      outputs = engine_.run(std::move(inputs));
    }
    return results_of(graph_, outputs, arguments);
  }

 private:
  /// A copy on the engine's device.
  Tensor given_away(const Literal& argument) const {
    const Tensor copy = tensor_of(argument).clone();
    const Device device = engine_.options().device;
    return device.is_cuda() ? copy.to(device) : copy;
  }

  static EngineOptions donating(const ir::Graph& graph, EngineOptions options) {
    for (std::size_t k = 0; k < graph.inputs().size(); ++k) {
      const ir::Value input = graph.inputs()[k];
      const bool state = std::ranges::any_of(
          graph.write_backs(), [&](const auto& write) { return write.target == input; });
      if (state || input.node->op_name() == "param") continue;
      options.donate.insert(graph.input_label(k).empty() ? input.node->name()
                                                         : graph.input_label(k));
    }
    return options;
  }

  /// Donated arguments of the outputs' sizes, each once, else memory of their own.
  std::vector<Tensor> places_for_outputs(const std::vector<Literal>& arguments,
                                         std::vector<Tensor> inputs) const {
    const base::SymbolValues sizes = ir::bind_sizes(graph_, arguments);
    std::vector<Tensor> outputs;
    for (const ir::Value output : graph_.outputs()) {
      Sizes numbers;
      for (const ir::SymExpr& size : output.meta().sizes) numbers.push_back(size.evaluate(sizes));
      Tensor place;
      for (std::size_t k = 0; k < inputs.size() && !place.defined(); ++k)
        if (donated_[k] && inputs[k].defined() && inputs[k].dtype() == output.meta().dtype &&
            std::ranges::equal(inputs[k].sizes(), numbers))
          std::swap(place, inputs[k]);
      if (!place.defined()) place = Tensor::empty(output.meta().dtype, numbers);
      outputs.push_back(std::move(place));
    }
    return outputs;
  }

  ir::Graph graph_;
  Engine engine_;
  std::vector<bool> donated_;
};

bool equal(double got, double want, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::abs(got - want) <= tolerance;
}

/// The first element of `got` that is further from `want` than the quality allows.
std::string difference(const Literal& got, const Literal& want, const Quality& quality) {
  if (got.dtype() != want.dtype() || got.sizes() != want.sizes())
    return fmt::format("{}[{}] in place of {}[{}]", name_of(got.dtype()),
                       fmt::join(got.sizes(), ", "), name_of(want.dtype()),
                       fmt::join(want.sizes(), ", "));
  for (std::int64_t k = 0; k < want.count(); ++k) {
    if (!is_floating(want.dtype())) {
      if (got.at_int(k) != want.at_int(k))
        return fmt::format("element {} is {}, not {}", k, got.at_int(k), want.at_int(k));
    } else if (!equal(got.at(k), want.at(k), quality.error)) {
      return fmt::format("element {} is {}, not {} (allowed error {})", k, got.at(k), want.at(k),
                         quality.error);
    }
  }
  return {};
}

bool same_bits(const Literal& a, const Literal& b) {
  return a.sizes() == b.sizes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

}  // namespace

std::unique_ptr<Product> compile_with_engine(const ir::Graph& graph, int threads) {
  EngineOptions options;
  options.threads = threads;
  return std::make_unique<EngineProduct>(graph, options);
}

std::unique_ptr<Product> compile_donating(const ir::Graph& graph, int threads) {
  EngineOptions options;
  options.threads = threads;
  return std::make_unique<DonatingProduct>(graph, options);
}

namespace {

/// Runs each call twice, on equal arguments: the second time as a graph of the device.
class TwiceProduct : public Product {
 public:
  explicit TwiceProduct(std::unique_ptr<Product> inner) : inner_(std::move(inner)) {}
  std::vector<Literal> run(const std::vector<Literal>& arguments, bool into) override {
    std::vector<Literal> same;
    for (const Literal& argument : arguments) same.push_back(argument.clone());
    inner_->run(same, into);
    return inner_->run(arguments, into);
  }

 private:
  std::unique_ptr<Product> inner_;
};

}  // namespace

namespace {

template <typename Product>
std::unique_ptr<fuzz::Product> compile_on_cuda_as(const ir::Graph& graph, int streams) {
  EngineOptions options;
  options.device = test::on_simulator() ? Device::cuda_sim() : Device::cuda();
  options.streams = streams;
  options.cuda_graphs = streams > 1;
  auto product = std::make_unique<Product>(graph, options);
  if (streams == 1) return product;
  return std::make_unique<TwiceProduct>(std::move(product));
}

}  // namespace

std::unique_ptr<Product> compile_on_cuda(const ir::Graph& graph, int streams) {
  return compile_on_cuda_as<EngineProduct>(graph, streams);
}

std::unique_ptr<Product> compile_donating_on_cuda(const ir::Graph& graph, int streams) {
  return compile_on_cuda_as<DonatingProduct>(graph, streams);
}

std::optional<Failure> check_case(const Case& subject, const Compile& compile) {
  std::size_t call = 0;
  try {
    const std::unique_ptr<Product> one = compile(subject.graph, 1);
    const std::unique_ptr<Product> two = compile(subject.graph, 2);
    for (; call < subject.calls.size(); ++call) {
      const bool into = subject.calls[call].into;
      const auto want = ir::evaluate(subject.graph, arguments_of(subject, call));
      const auto got = one->run(arguments_of(subject, call), into);
      const auto again = two->run(arguments_of(subject, call), into);
      if (got.size() != want.size())
        return Failure{Failure::Kind::Type, call, 0, "number of outputs"};
      for (std::size_t k = 0; k < want.size(); ++k) {
        const std::string wrong = difference(got[k], want[k], subject.qualities[k]);
        if (!wrong.empty()) return Failure{Failure::Kind::Wrong, call, k, wrong};
        if (!same_bits(got[k], again[k]))
          return Failure{
              Failure::Kind::Threads, call, k,
              "2 threads differ from 1: " + difference(again[k], want[k], subject.qualities[k])};
      }
    }
  } catch (const std::exception& error) {
    return Failure{Failure::Kind::Thrown, call, 0, error.what()};
  }
  return std::nullopt;
}

}  // namespace heddle::fuzz
