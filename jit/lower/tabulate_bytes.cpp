// Chains of operations on one byte become tables.
#include <set>
#include <unordered_map>

#include "ir/ops/host_scalar.h"
#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"
#include "jit/program.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;
using ir::ops::HostScalar;

/// What a table must save at least, in simple operations on a vector of 32-bit elements. Reading one takes 5 where registers hold
/// it; else some 3 for each element.
int least_cost(const LowerOptions& options) {
  constexpr int kOfRegisters = 24;
  constexpr int kOfElement = 3;
  constexpr int kElementBytes = 4;
  if (options.byte_tables) return kOfRegisters;
  return kOfElement * static_cast<int>(options.vector_bytes) / kElementBytes;
}

int cost_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::Div:
    case ScalarOp::Sqrt:
    case ScalarOp::Reciprocal:
    case ScalarOp::Rsqrt:
      return 8;
    default:
      return op >= ScalarOp::Exp && op <= ScalarOp::Sigmoid ? 20 : 1;
  }
}

class ByteTabulator {
 public:
  explicit ByteTabulator(int least) : least_(least) {}

  /// Puts tables, still without their values, in the place of chains.
  void run(Block& block) {
    for (Stmt& statement : block) {
      if (auto* apply = std::get_if<ApplyStmt>(&statement.node)) {
        note(statement, apply->result, apply->dtype);
      } else if (auto* convert = std::get_if<ConvertStmt>(&statement.node)) {
        note(statement, convert->result, convert->dtype);
      } else if (const auto* constant = std::get_if<ConstStmt>(&statement.node)) {
        constants_.emplace(constant->result, number(*constant));
      } else if (const auto* load = std::get_if<LoadStmt>(&statement.node)) {
        if (is_byte(load->dtype)) begin(load->result, load->dtype);
      } else if (auto* loop = std::get_if<ForStmt>(&statement.node)) {
        run(*loop->body);
      } else if (auto* branch = std::get_if<IfStmt>(&statement.node)) {
        run(*branch->body);
      }
    }
  }

  /// Works out the values of the tables that are left.
  void fill(Block& block) {
    for (Stmt& statement : block) {
      if (auto* table = std::get_if<TableStmt>(&statement.node)) table->values = values_of(*table);
      if (auto* loop = std::get_if<ForStmt>(&statement.node)) fill(*loop->body);
      if (auto* branch = std::get_if<IfStmt>(&statement.node)) fill(*branch->body);
    }
  }

 private:
  /// What is known of a scalar that one byte decides: which, and how it is made of it.
  struct Made {
    ScalarId byte;
    Stmt how;
  };

  static HostScalar number(const ConstStmt& s) {
    return is_floating(s.dtype) ? HostScalar::of_real(s.dtype, s.number)
                                : HostScalar::of_integer(s.dtype, s.integer);
  }

  void begin(ScalarId byte, DType dtype) { bytes_.emplace(byte, dtype); }

  void note(Stmt& statement, ScalarId result, DType dtype) {
    const auto byte = decided_by(statement);
    if (!byte) {
      if (is_byte(dtype)) begin(result, dtype);
      return;
    }
    made_.emplace(result, Made{*byte, statement});
    if (!is_byte(dtype)) return;
    std::vector<ScalarId> chain;
    std::set<ScalarId> seen;
    if (collect(result, chain, seen) < least_) return;
    statement = {TableStmt{result, dtype, *byte, {}}};
  }

  /// The one byte that the operands depend on; nothing where there is none, or several, or anything else.
  std::optional<ScalarId> decided_by(Stmt& statement) const {
    std::optional<ScalarId> byte;
    bool one = true;
    std::visit(
        [&](auto& node) {
          visit_uses(node, [&](ScalarId id) {
            if (constants_.contains(id)) return;
            const auto made = made_.find(id);
            const ScalarId root = made == made_.end() ? id : made->second.byte;
            one = one && bytes_.contains(root) && (!byte || *byte == root);
            byte = root;
          });
        },
        statement.node);
    return one ? byte : std::nullopt;
  }

  /// What makes `id` of its byte, in order. @return what it costs
  int collect(ScalarId id, std::vector<ScalarId>& chain, std::set<ScalarId>& seen) {
    const auto made = made_.find(id);
    if (made == made_.end() || !seen.insert(id).second) return 0;
    int cost = 1;
    if (const auto* apply = std::get_if<ApplyStmt>(&made->second.how.node))
      cost = cost_of(apply->op);
    std::visit(
        [&](auto& node) {
          visit_uses(node, [&](ScalarId operand) { cost += collect(operand, chain, seen); });
        },
        made->second.how.node);
    chain.push_back(id);
    return cost;
  }

  /// One of the operations that make a byte of another: its operands and its result are slots.
  struct Step {
    const Stmt* how;
    std::vector<std::size_t> operands;
    std::size_t result;
  };

  std::string values_of(const TableStmt& s) {
    std::vector<ScalarId> chain;
    std::set<ScalarId> seen;
    collect(s.result, chain, seen);
    std::vector<HostScalar> slots(1);  // the byte
    std::unordered_map<ScalarId, std::size_t> slot_of{{s.operand, 0}};
    const auto slot = [&](ScalarId id) {
      const auto [found, added] = slot_of.emplace(id, slots.size());
      if (added) slots.push_back(constants_.contains(id) ? constants_.at(id) : HostScalar());
      return found->second;
    };
    std::vector<Step> steps;
    for (const ScalarId id : chain) {
      Stmt& how = made_.at(id).how;
      Step& step = steps.emplace_back(Step{&how, {}, slot(id)});
      const auto use = [&](ScalarId operand) { step.operands.push_back(slot(operand)); };
      std::visit([&](auto& node) { visit_uses(node, use); }, how.node);
    }
    std::string values;
    for (int pattern = 0; pattern < 256; ++pattern) {
      slots[0] = HostScalar::of_integer(bytes_.at(s.operand), pattern);
      for (const Step& step : steps) slots[step.result] = evaluated(step, slots);
      values.push_back(static_cast<char>(slots[steps.back().result].integer));
    }
    return values;
  }

  static HostScalar evaluated(const Step& step, const std::vector<HostScalar>& slots) {
    if (const auto* convert = std::get_if<ConvertStmt>(&step.how->node))
      return ir::ops::convert(slots[step.operands[0]], convert->dtype);
    std::vector<HostScalar> operands;
    for (const std::size_t k : step.operands) operands.push_back(slots[k]);
    return ir::ops::apply(std::get<ApplyStmt>(step.how->node).op, operands);
  }

  const int least_;  ///< what a chain costs that a table replaces
  std::unordered_map<ScalarId, HostScalar> constants_;
  std::unordered_map<ScalarId, DType> bytes_;  ///< that are not made of one other byte
  std::unordered_map<ScalarId, Made> made_;
};

}  // namespace

void tabulate_bytes(Nest& nest, const LowerOptions& options) {
  ByteTabulator tabulator(least_cost(options));
  tabulator.run(nest.body);
  drop_unused(nest.body);
  tabulator.fill(nest.body);
}

}  // namespace heddle::jit
