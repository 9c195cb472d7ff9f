#include "jit/cuda/coarse_values.h"

#include <algorithm>
#include <vector>

namespace heddle::jit::cuda {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;

/// What reads a scalar.
struct Readers {
  std::vector<const ApplyStmt*> applies;
  std::vector<const ConvertStmt*> converts;
  bool others = false;     ///< something else, a store or a reduction for one
  bool has_steps = false;  ///< something of that tells numbers from their neighbours
  std::size_t count = 0;
};

/// Operations and conversions of a nest in order, and what reads their results.
class ReaderFinder {
 public:
  explicit ReaderFinder(const Nest& nest) : nest_(nest) { add(nest.body); }

  std::vector<std::pair<const ApplyStmt*, const ConvertStmt*>> made;  ///< either
  std::map<ScalarId, Readers> readers;
  std::set<ScalarId> ones;

 private:
  void add(const Block& block) {
    for (const Stmt& statement : block)
      std::visit([this](const auto& node) { note(node); }, statement.node);
  }
  void use(ScalarId id, bool has_steps) {
    if (id == kNoScalar) return;
    readers[id].others = true;
    readers[id].has_steps |= has_steps;
  }
  void note(const ConstStmt& s) {
    if (s.dtype == DType::F32 && s.number == 1) ones.insert(s.result);
  }
  void note(const GivenStmt&) {}
  void note(const ApplyStmt& s) {
    made.emplace_back(&s, nullptr);
    for (const ScalarId id : s.operands) {
      readers[id].applies.push_back(&s);
      ++readers[id].count;
    }
  }
  void note(const ConvertStmt& s) {
    made.emplace_back(nullptr, &s);
    readers[s.operand].converts.push_back(&s);
    ++readers[s.operand].count;
  }
  void note(const BindStmt& s) {
    use(s.operand, true);
    use(s.mask, true);
  }
  void note(const BitsStmt& s) { use(s.operand, true); }
  void note(const LoadStmt& s) { use(s.mask, true); }
  void note(const StoreStmt& s) {
    use(s.operand, !is_floating(nest_.buffers[s.buffer].dtype));
    use(s.mask, true);
  }
  void note(const IfStmt& s) {
    use(s.condition, true);
    add(*s.body);
  }
  void note(const ForStmt& s) {
    for (const LoopReduction& reduction : s.reductions) {
      const bool arg = reduction.op == ReduceOp::ArgMax || reduction.op == ReduceOp::ArgMin;
      for (const ScalarId id : reduction.contributions)
        use(id, arg || !is_floating(reduction.dtype));
      use(reduction.mask, true);
    }
    for (const LoopCarried& carried : s.carried) {
      use(carried.initial, true);
      use(carried.next, true);
    }
    add(*s.body);
  }
  void note(const auto&) {}

  const Nest& nest_;
};

/// Whether small changes of operands change the result but little, or as much as they would if it was rounded.
bool is_continuous(ScalarOp op) {
  switch (op) {
    case ScalarOp::Neg:
    case ScalarOp::Abs:
    case ScalarOp::Sqrt:
    case ScalarOp::Rsqrt:
    case ScalarOp::Reciprocal:
    case ScalarOp::Exp:
    case ScalarOp::Exp2:
    case ScalarOp::Expm1:
    case ScalarOp::Sin:
    case ScalarOp::Cos:
    case ScalarOp::Tanh:
    case ScalarOp::Erf:
    case ScalarOp::Sigmoid:
    case ScalarOp::Add:
    case ScalarOp::Sub:
    case ScalarOp::Mul:
    case ScalarOp::Div:
    case ScalarOp::Max:
    case ScalarOp::Min:
    case ScalarOp::Fma:
      return true;
    default:
      return false;
  }
}

bool keeps_share(ScalarOp op) {
  return op == ScalarOp::Mul || op == ScalarOp::Div || op == ScalarOp::Neg || op == ScalarOp::Abs ||
         op == ScalarOp::Reciprocal;
}

/// Whether nothing that follows has steps. `smooth` has what is known of later scalars.
bool is_smooth(const Readers& readers, const std::set<ScalarId>& smooth) {
  return !readers.has_steps && std::ranges::all_of(readers.applies, [&](const ApplyStmt* reader) {
    return is_floating(reader->dtype) && is_continuous(reader->op) &&
           smooth.count(reader->result) != 0;
  }) && std::ranges::all_of(readers.converts, [&](const ConvertStmt* reader) {
    return is_floating(reader->dtype) && smooth.count(reader->result) != 0;
  });
}

}  // namespace

CoarseValues::CoarseValues(const Nest& nest) {
  ReaderFinder found(nest);
  std::set<ScalarId> smooth;
  std::map<ScalarId, const ApplyStmt*> tanhs;
  for (const auto& [apply, convert] : found.made)
    if (apply != nullptr && apply->op == ScalarOp::Tanh) tanhs[apply->result] = apply;
  const auto only_keeps_share = [&](const Readers& readers) {
    return !readers.others && readers.count != 0 &&
           std::ranges::all_of(readers.applies,
                               [&](const ApplyStmt* reader) {
                                 return reader->dtype == DType::F32 && keeps_share(reader->op) &&
                                        has(reader->result);
                               }) &&
           std::ranges::all_of(readers.converts, [&](const ConvertStmt* reader) {
             return reader->dtype == DType::BF16 && smooth.count(reader->result) != 0;
           });
  };
  // Uses come after definitions.
  for (auto at = found.made.rbegin(); at != found.made.rend(); ++at) {
    const ScalarId result = at->first != nullptr ? at->first->result : at->second->result;
    const Readers& readers = found.readers[result];
    if (is_smooth(readers, smooth)) smooth.insert(result);
    const ApplyStmt* s = at->first;
    if (s == nullptr) continue;
    if (s->dtype == DType::BF16 && smooth.count(result) != 0) coarse_.insert(result);
    if (s->dtype != DType::F32 || !only_keeps_share(readers)) continue;
    coarse_.insert(result);
    if (s->op != ScalarOp::Add) continue;
    for (const std::size_t k : {0, 1}) {
      const auto tanh = tanhs.find(s->operands[k]);
      if (tanh == tanhs.end() || found.ones.count(s->operands[1 - k]) == 0) continue;
      const Readers& of_tanh = found.readers[s->operands[k]];
      if (of_tanh.count != 1 || of_tanh.others) continue;
      gates_.emplace(result, tanh->second->operands[0]);
      in_gates_.insert(s->operands[k]);
    }
  }
}

}  // namespace heddle::jit::cuda
