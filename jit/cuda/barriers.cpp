#include "jit/cuda/barriers.h"

#include <cstdint>
#include <map>

namespace heddle::jit::cuda {
namespace {

/// Ways of touching a buffer, as bits.
enum Access : std::uint8_t {
  kRead = 1,       // by any thread
  kStoreOne = 2,   // by thread 0
  kStoreMany = 4,  // by the threads of a vector loop
  kCombine = 8,    // atomically
};

/// What happened to one buffer since the last barrier.
struct Touched {
  std::uint8_t how = 0;
  std::set<const Stmt*> stores;  ///< statements at block level behind kStoreMany
  friend bool operator==(const Touched&, const Touched&) = default;
};
using Accesses = std::map<NestBufferId, Touched>;

/// Whether two accesses of one buffer, by statements without a barrier between, may race.
bool may_race(Access a, Access b) {
  if (a != b) return true;
  return a == kStoreMany;
}

bool may_race(std::uint8_t pending, std::uint8_t next) {
  for (const Access a : {kRead, kStoreOne, kStoreMany, kCombine})
    for (const Access b : {kRead, kStoreOne, kStoreMany, kCombine})
      if ((pending & a) != 0 && (next & b) != 0 && may_race(a, b)) return true;
  return false;
}

void merge(Accesses& into, const Accesses& from) {
  for (const auto& [buffer, touched] : from) {
    into[buffer].how |= touched.how;
    into[buffer].stores.insert(touched.stores.begin(), touched.stores.end());
  }
}

/// Whether the threads of a block have iterations of their own.
bool is_shared(const ForStmt& loop) {
  return loop.kind == ForStmt::Kind::Vector || loop.kind == ForStmt::Kind::Scan;
}

class Analysis {
 public:
  explicit Analysis(const Nest& nest) : nest_(nest) {}

  std::set<const Stmt*> run() {
    // Parallel iterations share nothing but the memory of their local buffers.
    Accesses pending;
    for (;;) {
      Accesses state = pending;
      block(nest_.body, state);
      std::erase_if(state, [&](const auto& entry) {
        return nest_.buffers[entry.first].scope == NestBuffer::Scope::Global;
      });
      merge(state, pending);
      if (state == pending) return std::move(barriers_);
      pending = std::move(state);
    }
  }

 private:
  bool tracked(NestBufferId id) const { return nest_.buffers[id].written; }

  void block(const Block& statements, Accesses& pending) {
    for (const Stmt& statement : statements) {
      if (const auto* loop_stmt = std::get_if<ForStmt>(&statement.node);
          loop_stmt != nullptr && !is_shared(*loop_stmt)) {
        loop(*loop_stmt->body, pending);
      } else if (const auto* branch = std::get_if<IfStmt>(&statement.node)) {
        Accesses inside = pending;
        block(*branch->body, inside);
        merge(pending, inside);
      } else {
        simple(statement, pending);
      }
    }
  }

  /// Goes round until the state at the body's start holds what its end leaves.
  void loop(const Block& body, Accesses& pending) {
    for (;;) {
      Accesses state = pending;
      block(body, state);
      merge(state, pending);
      if (state == pending) return;
      pending = std::move(state);
    }
  }

  void simple(const Stmt& statement, Accesses& pending) {
    Accesses mine;
    collect(statement, false, mine);
    bool wait = barriers_.count(&statement) != 0;
    for (auto& [buffer, touched] : mine) {
      if ((touched.how & kStoreMany) != 0) touched.stores = {&statement};
      const auto found = pending.find(buffer);
      wait = wait || (found != pending.end() && conflict(buffer, found->second, touched));
    }
    if (wait) {
      barriers_.insert(&statement);
      pending.clear();
    }
    const auto* loop_stmt = std::get_if<ForStmt>(&statement.node);
    if (loop_stmt != nullptr && !loop_stmt->reductions.empty()) {
      pending.clear();
      return;
    }
    merge(pending, mine);
  }

  /// A statement's iterations store to distinct elements of a global buffer, so it does not wait for
  /// its own stores of an earlier round of the loop around it.
  bool conflict(NestBufferId id, const Touched& pending, const Touched& next) const {
    const bool own = nest_.buffers[id].scope == NestBuffer::Scope::Global &&
                     pending.how == kStoreMany && next.how == kStoreMany &&
                     pending.stores == next.stores;
    return !own && may_race(pending.how, next.how);
  }

  void collect(const Stmt& statement, bool in_vector, Accesses& out) const {
    if (const auto* load = std::get_if<LoadStmt>(&statement.node)) {
      if (tracked(load->buffer)) out[load->buffer].how |= kRead;
    } else if (const auto* store = std::get_if<StoreStmt>(&statement.node)) {
      out[store->buffer].how |= store->combine ? kCombine : in_vector ? kStoreMany : kStoreOne;
    } else if (const auto* contract = std::get_if<ContractStmt>(&statement.node)) {
      std::vector<NestBufferId> read = {contract->a.buffer, contract->b.buffer};
      if (contract->b.windows && contract->b.windows->outside)
        read.push_back(contract->b.windows->outside->buffer);
      if (const auto& dequantised = contract->b.dequantised) {
        for_each_part(*dequantised,
                      [&](const Dequantised::Part& part) { read.push_back(part.buffer); });
      }
      for (const NestBufferId id : read)
        if (tracked(id)) out[id].how |= kRead;
      out[contract->acc].how |= kStoreMany;
    } else if (const auto* loop_stmt = std::get_if<ForStmt>(&statement.node)) {
      for (const Stmt& inner : *loop_stmt->body) collect(inner, true, out);
    }
  }

  const Nest& nest_;
  std::set<const Stmt*> barriers_;
};

}  // namespace

std::set<const Stmt*> barriers_of(const Nest& nest) { return Analysis(nest).run(); }

bool uses_block(const Block& block) {
  for (const Stmt& statement : block) {
    if (std::holds_alternative<ContractStmt>(statement.node)) return true;
    if (const auto* loop = std::get_if<ForStmt>(&statement.node);
        loop != nullptr && (is_shared(*loop) || uses_block(*loop->body)))
      return true;
    if (const auto* branch = std::get_if<IfStmt>(&statement.node);
        branch != nullptr && uses_block(*branch->body))
      return true;
  }
  return false;
}

}  // namespace heddle::jit::cuda
