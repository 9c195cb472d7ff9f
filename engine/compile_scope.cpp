#include "engine/compile_scope.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <iostream>
#include <set>

#include "base/options.h"
#include "base/relabel.h"
#include "engine/annotations.h"
#include "engine/plan_check.h"
#include "heddle/error.h"
#include "ir/analysis/regions.h"
#include "ir/passes/control_deps.h"
#include "ir/passes/form_regions.h"
#include "ir/passes/order_sizes.h"
#include "ir/passes/resolve_sizes.h"
#include "ir/regions.h"
#include "ir/text.h"
#include "ir/text_order.h"
#include "jit/library.h"

namespace heddle::engine {

namespace {

using Kind = base::OptionSpec::Kind;

constexpr std::string_view kOnError[] = {"throw", "op_by_op"};

constexpr base::OptionSpec kRegionOptions[] = {
    {.name = "fuse", .kind = Kind::Bool, .default_text = "true"},
    {.name = "library", .kind = Kind::Bool, .default_text = "true"},
    {.name = "winograd", .kind = Kind::Bool, .default_text = "true"},
    {.name = "passes", .kind = Kind::String, .default_text = ""},
    {.name = "max_kernel_nodes",
     .kind = Kind::Int,
     .default_text = "256",
     .least = 1,
     .most = 1 << 20},
    {.name = "on_error", .kind = Kind::Choice, .default_text = "throw", .choices = kOnError},
};

base::Options options_of(const ir::RegionMark& mark) {
  base::Options options(kRegionOptions);
  for (const auto& [key, value] : mark.options) {
    std::visit(
        [&, &key = key](const auto& v) {
          if constexpr (requires { v->begin(); })
            throw OptionError({.what = "compile options: " + key,
                               .where = {},
                               .expected = "a flag, number or text",
                               .got = "a map"});
          else
            options.set(key, base::OptionValue(v));
        },
        value.value);
  }
  return options;
}

jit::UnitOptions unit_of(const base::Options& options, const EngineOptions& engine) {
  jit::UnitOptions unit;
  unit.fuse = options.is_set("fuse") ? options.get_bool("fuse") : engine.fuse;
  unit.library = options.is_set("library") ? options.get_bool("library") : engine.library;
  unit.winograd = options.is_set("winograd") ? options.get_bool("winograd") : may_use_winograd();
  unit.max_nodes = static_cast<std::size_t>(options.get_int("max_kernel_nodes"));
  return unit;
}

/// The pass that the option "passes" of a region names.
std::string_view region_pass(std::string_view name) {
  const std::string_view known = ir::pass_named(name).name;
  if (known == "form-regions" || known == "inline-regions")
    throw OptionError({.what = "compile options: passes",
                       .where = {},
                       .expected = "passes over the body of a region, which has none in it",
                       .got = std::string(name)});
  return known;
}

std::vector<std::string_view> pass_names(const base::Options& options) {
  const std::string& list = options.get_string("passes");
  if (list.empty()) {
    const auto usual = ir::default_pipeline();
    return {usual.begin(), usual.end()};
  }
  std::vector<std::string_view> names;
  std::string_view rest = list;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    names.push_back(region_pass(rest.substr(0, comma)));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return names;
}

/// The mark that the engine's predicate gives a node, else the node's own.
ir::MarkFunction mark_function(const EngineOptions& options) {
  return [&options](const ir::Node& node) -> std::optional<ir::RegionMark> {
    if (options.mark) {
      const std::string location = node.location().to_string();
      const auto value = options.mark({node.name(), node.op_name(), location});
      if (value) return ir::region_mark({{"compile", to_ir(*value)}}, node.location());
    }
    return ir::region_mark(node.annotations(), node.location());
  };
}

ir::PassPoint point_of(GraphPass::Point point) {
  return point == GraphPass::Point::First ? ir::PassPoint::First : ir::PassPoint::BeforeReinplace;
}

/// What a pass gave as text, whose calls may stand before those that they read and wait for.
ir::Graph parsed_in_any_order(const std::string& text, const ir::LiteralTable& literals) {
  try {
    return ir::parse(text, &literals);
  } catch (const ParseError&) {
    const std::string sorted = ir::in_order(text);
    if (sorted == text) throw;
    return ir::parse(sorted, &literals);
  }
}

/// What runs as the pass `name` of the embedder: what it throws says so.
std::function<ir::Graph(const ir::Graph&)> told_by_name(
    const std::string& name, std::function<ir::Graph(const ir::Graph&)> run) {
  return [label = "pass " + name, run = std::move(run)](const ir::Graph& graph) {
    try {
      return run(graph);
    } catch (const Error& error) {
      base::rethrow_labelled(error, label);
      throw;
    } catch (const std::exception& error) {
      std::throw_with_nested(InvariantError({.what = label,
                                             .where = {},
                                             .expected = "a graph",
                                             .got = std::string("an exception: ") + error.what()}));
    }
  };
}

/// The embedder's passes of one point as passes over graphs.
std::vector<ir::UserPass> user_passes(const EngineOptions& options, GraphPass::Point point) {
  std::vector<ir::UserPass> passes;
  for (const GraphPass& pass : options.passes) {
    if (pass.point != point) continue;
    if (!pass.run) {
      passes.push_back(
          {pass.name, point_of(point), told_by_name(pass.name, ir::pass_named(pass.name).run)});
      continue;
    }
    const auto run = [text_pass = pass.run](const ir::Graph& graph) {
      const std::string before = ir::print(graph);
      const std::string after = text_pass(before);
      if (after == before) return graph;
      const ir::LiteralTable literals = ir::named_literals(graph);
      return parsed_in_any_order(after, literals);
    };
    passes.push_back({pass.name, point_of(point), told_by_name(pass.name, run)});
  }
  return passes;
}

/// Without the passes that are of no use to what is compiled as `unit` says.
ir::PipelineOptions pipeline_of(const EngineOptions& options, const jit::UnitOptions& unit) {
  ir::PipelineOptions pipeline;
  pipeline.skip = options.skip_passes;
  pipeline.infer_again = wants_check(options);
  if (!unit.library || !jit::library_prefers_channels_last())
    for (const char* pass : {"wide-convs", "channels-last"}) pipeline.skip.emplace_back(pass);
  if (!unit.fuse) pipeline.skip.emplace_back("form-attention");
  pipeline.dump_dir = options.dump_dir;
  return pipeline;
}

/// One graph on its way: its regions' bodies are optimised in place of the old ones.
class ScopedCompile {
 public:
  explicit ScopedCompile(const EngineOptions& options) : options_(options) {}

  OptimisedGraph run(const ir::Graph& given) {
    const bool whole = options_.scope != CompileScope::Annotated;
    result_.rest.fuse = options_.fuse && whole;
    result_.rest.library = options_.library;
    result_.rest.winograd = may_use_winograd();
    const ir::Graph traced = user_passes_on(ir::order_sizes(ir::resolve_sizes(given)));
    if (options_.scope == CompileScope::Unmarked) {
      finish(ir::run_passes(traced, ir::default_pipeline(), pipeline_of(options_, result_.rest),
                            &result_.passes));
      return std::move(result_);
    }
    const ir::Graph formed = ir::form_regions(traced, mark_function(options_));
    std::set<const ir::Graph*> checked;
    check_options(formed, checked);
    const ir::Graph outside =
        whole ? ir::run_passes(formed, ir::default_pipeline(), pipeline_of(options_, result_.rest),
                               &result_.passes)
              : ir::run_passes(formed, kOneByOne, pipeline_of(options_, result_.rest),
                               &result_.passes);
    finish(compile_regions(outside));
    return std::move(result_);
  }

 private:
  /// What a graph must go through even where nothing is optimised.
  static constexpr std::string_view kOneByOne[] = {"decompose", "dce"};
  static constexpr std::string_view kAtTheEnd[] = {"dce", "reinplace"};

  ir::Graph user_passes_on(const ir::Graph& traced) {
    ir::PipelineOptions pipeline = pipeline_of(options_, result_.rest);
    pipeline.user_passes = user_passes(options_, GraphPass::Point::First);
    if (!options_.control_deps.empty())
      pipeline.user_passes.push_back({"control-deps", ir::PassPoint::First, [&](const auto& graph) {
                                        return ir::control_deps(graph, options_.control_deps);
                                      }});
    return ir::run_passes(traced, {}, pipeline, &result_.passes);
  }

  /// The passes over the whole graph, when every region has had its own.
  void finish(const ir::Graph& graph) {
    ir::PipelineOptions pipeline = pipeline_of(options_, result_.rest);
    pipeline.user_passes = user_passes(options_, GraphPass::Point::BeforeReinplace);
    result_.graph = ir::run_passes(graph, kAtTheEnd, pipeline, &result_.passes);
  }

  static ir::RegionMark mark_of(const ir::Node& call) {
    if (auto mark = ir::region_mark(call.annotations(), call.location())) return *std::move(mark);
    throw OptionError({.what = "a region's call",
                       .where = "%" + call.name(),
                       .expected = "the annotation compile",
                       .got = "none"});
  }

  /// All options of all regions, before anything is compiled.
  static void check_options(const ir::Graph& graph, std::set<const ir::Graph*>& checked) {
    if (!checked.insert(&graph).second) return;
    for (const ir::NodePtr& node : graph.nodes()) {
      if (node->op_name() == "region")
        pass_names(options_of(mark_of(*node)));
      else
        for (const ir::GraphRef* nested : ir::regions_of(*node))
          check_options(*nested->graph, checked);
    }
  }

  /// `graph` with the regions in it, and in what is nested in it, compiled and put in place of their calls.
  ir::Graph compile_regions(const ir::Graph& graph) {
    return ir::inline_regions(ir::rewrite(
        graph,
        [&](ir::Rewriter& rewriter,
            const ir::NodePtr& node) -> std::optional<std::vector<ir::Value>> {
          ir::Attrs attrs = node->attrs();
          if (!compile_nested(*node, attrs)) return {};
          const auto inputs = rewriter.map(node->inputs());
          rewriter.builder().context.names.assign(node->names().begin(), node->names().end());
          const ir::Node* call = rewriter.builder().call(node->op(), inputs, std::move(attrs));
          std::vector<ir::Value> values;
          for (std::uint32_t k = 0; k < call->outputs().size(); ++k)
            values.push_back(call->value(k));
          return values;
        }));
  }

  /// Replaces the graphs of a node that have regions in them, or are one.
  bool compile_nested(const ir::Node& node, ir::Attrs& attrs) {
    const bool is_region = node.op_name() == "region";
    bool changed = false;
    for (auto& [name, attr] : attrs) {
      auto* ref = std::get_if<ir::GraphRef>(&attr);
      if (ref == nullptr) continue;
      std::shared_ptr<const ir::Graph> made = is_region ? body_of(node) : nested_of(ref->graph);
      changed = changed || made != ref->graph;
      ref->graph = std::move(made);
    }
    return changed;
  }

  std::shared_ptr<const ir::Graph> nested_of(const std::shared_ptr<const ir::Graph>& graph) {
    auto [at, fresh] = nested_.try_emplace(graph.get());
    if (!fresh) return at->second;
    const ir::Graph made = compile_regions(*graph);
    return at->second = made.identical(*graph) ? graph : std::make_shared<const ir::Graph>(made);
  }

  struct CompiledBody {
    ir::RegionMark mark;
    std::string call;  ///< name of the first call
    std::shared_ptr<const ir::Graph> body;
  };

  /// The compiled body of a region: made once for each mark, however many places hold its call.
  std::shared_ptr<const ir::Graph> body_of(const ir::Node& call) {
    const ir::RegionMark mark = mark_of(call);
    std::vector<CompiledBody>& known = bodies_[&call.graph("body")];
    const auto at = std::ranges::find(known, mark, &CompiledBody::mark);
    if (at == known.end()) {
      known.push_back({mark, call.name(), std::make_shared<const ir::Graph>(compile_region(call))});
      return known.back().body;
    }
    result_.copies.emplace(call.name(), at->call);
    result_.units.insert_or_assign(call.name(), result_.units.at(at->call));
    return at->body;
  }

  ir::Graph compile_region(const ir::Node& call) {
    const ir::RegionMark mark = mark_of(call);
    const base::Options options = options_of(mark);
    RegionInfo info{call.name(), mark.id, from_ir(mark.options), {}, false};
    const bool may_fall_back = options.get_string("on_error") == "op_by_op";
    if (may_fall_back) result_.may_fall_back.push_back(info.name);
    jit::UnitOptions unit = unit_of(options, options_);
    ir::Graph body = call.graph("body");
    const auto run_op_by_op = [&](std::string_view why) {
      log_fallback(options_, info, why);
      info.fell_back = true;
      unit.fuse = false;
      body = ir::run_passes(call.graph("body"), kOneByOne, pipeline_of(options_, unit),
                            &result_.passes);
    };
    try {
      if (options_.on_region_compile) options_.on_region_compile(info);
      body =
          ir::run_passes(body, pass_names(options), pipeline_of(options_, unit), &result_.passes);
      // Composites that the chosen passes left are no kernels.
      body = ir::run_passes(body, kOneByOne, pipeline_of(options_, unit), &result_.passes);
    } catch (const std::exception& error) {
      if (!may_fall_back) throw;
      run_op_by_op(error.what());
    } catch (...) {  // on_region_compile is the embedder's
      if (!may_fall_back) throw;
      run_op_by_op("an exception that is no std::exception");
    }
    for (const ir::NodePtr& node : body.nodes())
      if (ir::may_be_marked(*node)) info.nodes.push_back(node->name());
    result_.units.insert_or_assign(info.name, unit);
    result_.regions.push_back(std::move(info));
    return body;
  }

  const EngineOptions& options_;
  OptimisedGraph result_;
  std::map<const ir::Graph*, std::shared_ptr<const ir::Graph>> nested_;  ///< by the graph before
  std::map<const ir::Graph*, std::vector<CompiledBody>> bodies_;         ///< by the body before
};

}  // namespace

bool may_use_winograd() {
  const char* text = std::getenv("HEDDLE_WINOGRAD");
  return text == nullptr || std::string_view(text) != "0";
}

void log_line(const EngineOptions& options, const std::string& line) {
  if (options.log)
    options.log(line);
  else
    std::cerr << line << '\n';
}

void log_fallback(const EngineOptions& options, const RegionInfo& region, std::string_view why) {
  log_line(options, fmt::format("heddle: {}{}{} runs op by op: {}", region.name,
                                region.id.empty() ? "" : " ", region.id, why));
}

OptimisedGraph optimise(const ir::Graph& traced, const EngineOptions& options) {
  return ScopedCompile(options).run(traced);
}

}  // namespace heddle::engine
