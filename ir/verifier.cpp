#include "ir/verifier.h"

#include <fmt/format.h>
#include <map>
#include <unordered_set>

#include "heddle/error.h"
#include "ir/analysis/aliases.h"
#include "ir/analysis/unbacked.h"
#include "ir/environment.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

using Graphs = std::unordered_set<const Graph*>;

class Verifier {
 public:
  /// @param done  nested graphs that need not be looked at again
  Verifier(const Graph& graph, Stage stage, std::string_view pass, bool infers, Graphs& done)
      : graph_(graph),
        stage_(stage),
        pass_(pass),
        infers_(infers),
        done_(done),
        env_(environment_of(graph)) {
    const std::size_t count = graph.nodes().size();
    defined_.reserve(count);
    names_.reserve(count);
    storages_.reserve(count);
  }

  /// What inference gives follows from a node and the assumptions alone.
  void trust(const Graph& known) {
    if (known.assumptions().size() != graph_.assumptions().size()) return;
    for (const NodePtr& node : known.nodes()) known_.insert(node.get());
  }

  void run() {
    for (const NodePtr& node : graph_.nodes()) {
      check_order(*node);
      check_names(*node);
      check_schema(*node);
      if (infers_ && !known_.contains(node.get())) check_metadata(*node);
      check_storage(*node);
      if (stage_ == Stage::Reinplaced) check_versions(*node);
      defined_.insert(node.get());
    }
    check_results();
  }

 private:
  [[noreturn]] void fail(std::string rule, const Node& node, std::string expected,
                         std::string got) const {
    throw InvariantError(
        {.what = fmt::format("{}{}{}", pass_, pass_.empty() ? "" : ": ", std::move(rule)),
         .where = fmt::format("%{} = {}{}{}", node.name(), node.op_name(),
                              node.location().empty() ? "" : " from ", node.location().to_string()),
         .expected = std::move(expected),
         .got = std::move(got)});
  }

  void check_order(const Node& node) const {
    for (const Value& input : node.inputs()) {
      if (input && !defined_.contains(input.node))
        fail("V1 operands are defined before their use", node, "a node above", input.name());
    }
    for (const Value& first : node.after()) {
      if (!defined_.contains(first.node))
        fail("V2 order edges lead from nodes above", node, "a node above", first.name());
    }
  }

  void check_names(const Node& node) {
    for (const std::string& name : node.names()) {
      if (!names_.insert(name).second)
        fail("V3 names are unique", node, "one value of each name", "%" + name + " twice");
    }
  }

  void check_schema(const Node& node) {
    for (const auto& [name, attr] : node.attrs()) {
      const auto* nested = std::get_if<GraphRef>(&attr);
      if (!nested || !nested->graph) continue;
      for (const Value& input : nested->graph->inputs())
        if (is_donated(input))
          fail("V13 only arguments of the whole graph are donated", *input.node,
               "one that is not, in @" + nested->name, "a donated one");
      if (done_.insert(nested->graph.get()).second)
        Verifier(*nested->graph, stage_, pass_, infers_, done_).run();
    }
    for (const AttrSpec& spec : node.op().attrs) {
      const auto found = node.attrs().find(spec.name);
      if (found == node.attrs().end() || kind_of(found->second) != spec.kind)
        fail("V4 attributes follow the schema", node,
             fmt::format("{} of kind {}", spec.name, name_of(spec.kind)),
             found == node.attrs().end() ? "none" : std::string(name_of(kind_of(found->second))));
    }
  }

  std::vector<TensorMeta> inferred(const Node& node) {
    if (graph_.next_unbacked_symbol() != 0) {
      const std::vector<base::Symbol> defined = unbacked_defined(node);
      if (!defined.empty()) env_->next_unbacked_ = defined.front().id;
    }
    env_->late.clear();
    try {
      const InferContext context(node.op(), node.inputs(), node.attrs(), *env_, node.location());
      context.check_float8();
      return node.op().infer(context);
    } catch (const Error& error) {
      fail("V5 metadata is what inference gives", node, "no error", error.what());
    }
  }

  void check_metadata(const Node& node) {
    if (node.is_argument()) return;
    const std::vector<TensorMeta> metas = inferred(node);
    if (env_->assumptions.size() != graph_.assumptions().size())
      fail("V10 what inference assumes is recorded", node, "no new assumption",
           env_->assumptions.back().predicate.to_string());
    for (const Assumption& required : env_->late)
      if (std::ranges::find(node.late_requirements(), required.predicate, &Assumption::predicate) ==
          node.late_requirements().end())
        fail("V10 what inference requires of late sizes is recorded", node, "no new requirement",
             required.predicate.to_string());
    if (metas.size() != node.outputs().size())
      fail("V5 metadata is what inference gives", node, std::to_string(metas.size()) + " outputs",
           std::to_string(node.outputs().size()));
    for (std::size_t k = 0; k < metas.size(); ++k) {
      TensorMeta expected = metas[k];
      expected.device = node.output(k).device;
      if (!expected.same_layout(node.output(k)))
        fail("V5 metadata is what inference gives", node, expected.to_string(),
             node.output(k).to_string());
    }
  }

  void check_storage(const Node& node) {
    for (std::uint32_t k = 0; k < node.outputs().size(); ++k) {
      const Alias alias = alias_of(node, k);
      const StorageId storage = node.output(k).storage;
      if (alias.kind == Alias::Kind::Mutates && stage_ != Stage::Reinplaced)
        fail("V6 nothing mutates before reinplace", node, "a functional op", "a mutation");
      if (alias.kind == Alias::Kind::View || alias.kind == Alias::Kind::Mutates) {
        if (storage != node.input(alias.operand).meta().storage)
          fail("V7 a view shares its operand's storage", node, "the operand's storage", "another");
      } else if (alias.kind == Alias::Kind::SharesResult) {
        if (storage != node.output(alias.operand).storage)
          fail("V7 a result shares another's storage", node, "that result's storage", "another");
      } else if (!storages_.insert(storage).second || storage == 0) {
        fail("V7 a fresh result has storage of its own", node, "a storage of its own",
             "a shared one");
      }
    }
  }

  /// `reader` reads `value`: nothing has overwritten its storage since.
  void check_current(const Node& reader, const Value& value) const {
    const auto now = current_.find(value.meta().storage);
    const auto then = versions_.find(value);
    if (now == current_.end() || then == versions_.end() || now->second == then->second) return;
    fail("V11 an overwritten value is not read", reader, "the value that is there now",
         value.name());
  }

  void check_versions(const Node& node) {
    for (const Value& input : node.inputs())
      if (input) check_current(node, input);
    for (std::uint32_t k = 0; k < node.outputs().size(); ++k) {
      const Alias alias = alias_of(node, k);
      const StorageId storage = node.output(k).storage;
      std::uint32_t version = 0;
      if (alias.kind == Alias::Kind::View) {
        version = versions_[node.input(alias.operand)];
      } else if (alias.kind == Alias::Kind::Mutates) {
        check_target(node, alias.operand);
        version = ++current_[storage];
      } else {
        current_[storage] = 0;
      }
      versions_[node.value(k)] = version;
    }
  }

  void check_target(const Node& node, std::size_t operand) const {
    const Value target = node.input(operand);
    const Value base = whole_base(target);
    if (!base || base.node->op_name() == "param" || base.node->op_name() == "const")
      fail("V12 what is overwritten is a whole intermediate value or argument", node,
           "such a value", target.name());
    for (std::size_t k = 0; k < node.inputs().size(); ++k) {
      const bool shared =
          k != operand && node.input(k) && node.input(k).meta().storage == target.meta().storage;
      if (shared)
        fail("V12 no other operand shares what is overwritten", node, "a storage of its own",
             node.input(k).name());
    }
  }

  void check_results() const {
    for (const Value& output : graph_.outputs()) check_current(*output.node, output);
    for (const Graph::WriteBack& write : graph_.write_backs())
      check_current(*write.source.node, write.source);
    for (const Value& output : graph_.outputs()) {
      if (!defined_.contains(output.node))
        fail("V8 outputs are defined", *output.node, "a node of the graph", output.name());
    }
    for (const Graph::WriteBack& write : graph_.write_backs()) {
      if (!write.target.node->is_argument() || !defined_.contains(write.target.node) ||
          !defined_.contains(write.source.node))
        fail("V9 write-backs go from nodes of the graph to inputs", *write.target.node, "an input",
             write.target.name());
      if (is_donated(write.target))
        fail("V14 a donated argument is not written back to", *write.target.node,
             "one of the two: nobody reads what was donated", write.target.name());
      if (write.target.meta().dtype != write.source.meta().dtype ||
          write.target.meta().sizes != write.source.meta().sizes)
        fail("V9 a write-back fits its input", *write.source.node, write.target.meta().to_string(),
             write.source.meta().to_string());
    }
  }

  const Graph& graph_;
  Stage stage_;
  std::string_view pass_;
  bool infers_;  ///< metadata again
  Graphs& done_;
  std::shared_ptr<ShapeEnv> env_;
  std::unordered_set<const Node*> known_;  ///< with the metadata that inference gives
  std::unordered_set<const Node*> defined_;
  std::unordered_set<std::string_view> names_;
  std::unordered_set<StorageId> storages_;
  // Only of what may be overwritten:
  std::map<Value, std::uint32_t> versions_;  ///< how often its storage was overwritten before
  std::map<StorageId, std::uint32_t> current_;
};

}  // namespace

void verify(const Graph& graph, Stage stage, std::string_view after_pass, const Graph* known) {
  Graphs done;
  Verifier verifier(graph, stage, after_pass, /*infers=*/true, done);
  if (known != nullptr) verifier.trust(*known);
  verifier.run();
}

void verify_structure(const Graph& graph, Stage stage, std::string_view after_pass) {
  Graphs done;
  Verifier(graph, stage, after_pass, /*infers=*/false, done).run();
}

}  // namespace heddle::ir
