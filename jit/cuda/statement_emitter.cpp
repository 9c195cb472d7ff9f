#include "jit/cuda/statement_emitter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "jit/cuda/loop_body.h"
#include "jit/cuda/scalar_text.h"

namespace heddle::jit::cuda {

using ir::ReduceOp;
using ir::ScalarOp;

namespace {

/// Serial loops of a thread with more iterations are not unrolled as a whole.
constexpr std::int64_t kMostWrittenOut = 16;
/// Turns of a thread at a tile that are written out.
constexpr std::int64_t kMostTurns = 8;
constexpr std::int64_t kWordBits = 32;

/// Whether a loop's body is short and stores nothing.
bool only_reads(const Block& body) {
  constexpr std::size_t kShort = 32;
  return body.size() <= kShort && std::ranges::all_of(body, [](const Stmt& statement) {
           return is_scalar(statement) && !std::holds_alternative<StoreStmt>(statement.node);
         });
}

/// Whether all that a loop's body reads are elements of 2 bytes or less: of twice as many as many bytes are on their way.
bool reads_halves(const Nest& nest, const Block& body) {
  return std::ranges::all_of(body, [&](const Stmt& statement) {
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    return is_scalar(statement) &&
           (load == nullptr || size_of(nest.buffers[load->buffer].dtype) <= 2);
  });
}

bool is_arg(ReduceOp op) { return op == ReduceOp::ArgMax || op == ReduceOp::ArgMin; }

/// Whether the hardware adds atomically to elements of this dtype.
bool adds_atomically(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F64 || dtype == DType::I32 || dtype == DType::I64;
}

}  // namespace

std::string buffer_name(const Nest& nest, NestBufferId id) {
  const std::uint32_t globals = nest.global_count();
  return id < globals ? "b" + std::to_string(id) : "l" + std::to_string(id - globals);
}

StatementEmitter::StatementEmitter(const Nest& nest, Mapping mapping,
                                   std::set<const Stmt*> barriers, std::uint32_t threads)
    : nest_(nest),
      mapping_(mapping),
      barriers_(std::move(barriers)),
      threads_(threads),
      coarse_(nest) {}

std::string StatementEmitter::emit(const Block& block, int depth) {
  text_.clear();
  depth_ = depth;
  statements(block);
  return std::move(text_);
}

void StatementEmitter::statements(const Block& block) {
  for (const Stmt& statement : block) one(statement);
}

void StatementEmitter::one(const Stmt& statement) {
  if (barriers_.count(&statement) != 0) line("__syncthreads();");
  std::visit(*this, statement.node);
}

void StatementEmitter::define(ScalarId id, DType dtype, const std::string& value) {
  dtypes_[id] = dtype;
  line("const " + compute_type(dtype) + " " + name(id) + " = " + value + ";");
}

std::string StatementEmitter::buffer(NestBufferId id) const { return buffer_name(nest_, id); }

std::string StatementEmitter::index(const SymExpr& expr) const {
  return index_text(expr, nest_.facts);
}

std::string StatementEmitter::element(NestBufferId id, const SymExpr& expr) const {
  if (tile_.loop == nullptr || !expr.mentions(tile_.loop->axis))
    return buffer(id) + "[" + index(expr) + "]";
  const SymExpr place = by_period(nest_, *tile_.loop, tile_.period, expr);
  const base::Facts facts = facts_of_period(nest_, *tile_.loop, tile_.period);
  return buffer(id) + "[" + index_text(place, facts) + "]";
}

std::string StatementEmitter::guard(ScalarId mask) const {
  return mask == kNoScalar ? std::string() : "if (" + name(mask) + ") ";
}

/// What has to hold where element `place` is touched: its mask, and that indices in it have valid values. Empty: nothing.
std::string StatementEmitter::condition(ScalarId mask, const SymExpr& place) const {
  std::string text = mask == kNoScalar ? std::string() : name(mask);
  for (const auto& [symbol, exists] : exists_)
    if (place.mentions(symbol)) text += (text.empty() ? "" : " && ") + exists;
  return text;
}

/// The same of a place outside of vector loops, where the parallel iteration may be none.
std::string StatementEmitter::here_and(const std::string& condition) const {
  if (where_.empty() || in_vector_) return condition;
  return condition.empty() ? where_ : where_ + " && " + condition;
}

void StatementEmitter::operator()(const ConstStmt& s) {
  define(s.result, s.dtype, constant_text(s.dtype, s.number, s.integer));
}

void StatementEmitter::operator()(const ApplyStmt& s) {
  if (coarse_.is_in_gate(s.result)) return;
  if (const auto gated = coarse_.gate(s.result))
    return define(s.result, s.dtype, "hd_coarse_tanh_gate(" + name(*gated) + ")");
  std::vector<std::string> operands;
  for (const ScalarId id : s.operands) operands.push_back(name(id));
  const DType operand = dtypes_.at(s.operands[s.op == ScalarOp::Select ? 1 : 0]);
  define(s.result, s.dtype, apply_text(s.op, operand, operands, coarse_.has(s.result)));
}

void StatementEmitter::operator()(const ConvertStmt& s) {
  const bool is_float = compute_type(dtypes_.at(s.operand)) == "float";
  if (is_float && size_of(s.dtype) == 2 && is_floating(s.dtype)) rounded_[s.result] = s.operand;
  define(s.result, s.dtype, convert_text(dtypes_.at(s.operand), s.dtype, name(s.operand)));
}

void StatementEmitter::operator()(const GivenStmt&) {
  HD_CHECK(false, "numbers are given on the CPU");
}
void StatementEmitter::operator()(const BitsStmt&) { HD_CHECK(false, "bits are for the CPU"); }

void StatementEmitter::operator()(const IndexStmt& s) {
  define(s.result, DType::I64, index(s.index));
}

void StatementEmitter::operator()(const BindStmt& s) {
  const std::string symbol = s.symbol.to_string();
  const std::string value = name(s.operand);
  line("const long long " + symbol + " = hd_clamp(" + value + ", " + index(s.low) + ", " +
       index(s.high) + ");");
  if (s.check == 0) return;
  std::string wrong = value + " != " + symbol;
  if (!provably_nonnegative(s.high - s.low, nest_.facts)) {
    exists_[s.symbol] = index(s.low) + " <= " + index(s.high);
    wrong = "(" + wrong + " || !(" + exists_[s.symbol] + "))";
  }
  const std::string here = here_and(s.mask == kNoScalar ? "" : name(s.mask));
  const std::string masked = here.empty() ? "" : here + " && ";
  line("if (" + masked + wrong + ") hd_report(status, " + std::to_string(s.check) + ");");
}

void StatementEmitter::operator()(const LoadStmt& s) {
  const auto replaced = replaced_.find(s.buffer);
  const auto lane = lanes_.find(&s);
  const std::string place = lane != lanes_.end()          ? lane->second
                            : replaced != replaced_.end() ? replaced->second
                                                          : element(s.buffer, s.index);
  std::string value = loaded_text(s.dtype, place);
  constexpr std::string_view kLane = ".at[lane]";
  if (lane != lanes_.end() && s.dtype == DType::BF16 && place.ends_with(kLane))
    value = "hd_widen_lane(" + place.substr(0, place.size() - kLane.size()) + ", lane)";
  if (const std::string there = here_and(condition(s.mask, s.index)); !there.empty())
    value = there + " ? " + value + " : " + constant_text(s.dtype, 0, 0);
  define(s.result, s.dtype, value);
}

void StatementEmitter::operator()(const StoreStmt& s) {
  if (without_stores_) return;
  std::string when = one_thread() ? thread() + " == 0" : "";
  if (const std::string there = condition(s.mask, s.index); !there.empty())
    when += (when.empty() ? "" : " && ") + there;
  const auto lane = lanes_.find(&s);
  const std::string target = lane != lanes_.end() ? lane->second : element(s.buffer, s.index);
  // What is stored is rounded anyway.
  const DType stored = nest_.buffers[s.buffer].dtype;
  const auto rounded = rounded_.find(s.operand);
  const bool twice = rounded != rounded_.end() && dtypes_.at(s.operand) == stored;
  const std::string value = stored_text(stored, name(twice ? rounded->second : s.operand));
  const std::string action = s.combine ? combined_store(s) : target + " = " + value;
  line((when.empty() ? "" : "if (" + when + ") ") + action + ";");
}

std::string StatementEmitter::combined_store(const StoreStmt& s) const {
  const DType dtype = nest_.buffers[s.buffer].dtype;
  const std::string operands = "(" + buffer(s.buffer) + " + (" + index(s.index) + "), " +
                               stored_text(dtype, name(s.operand)) + ")";
  if (*s.combine == ReduceOp::Sum && adds_atomically(dtype)) return "hd_atomic_sum" + operands;
  const std::string function = size_of(dtype) == 8 ? "hd_atomic_wide" : "hd_atomic";
  return function + "<" + reduction_text(*s.combine) + ">" + operands;
}

void StatementEmitter::operator()(const IfStmt& s) {
  open("if (" + name(s.condition) + ")");
  statements(*s.body);
  close();
}

void StatementEmitter::operator()(const ForStmt& s) {
  if (s.kind == ForStmt::Kind::Scan) return scan(s);
  for (const LoopReduction& r : s.reductions) declare_reduction(r);
  for (const LoopCarried& c : s.carried) {
    dtypes_[c.current] = dtypes_[c.result] = c.dtype;
    line(compute_type(c.dtype) + " " + name(c.current) + " = " + name(c.initial) + ";");
  }
  const std::string axis = s.axis.to_string();
  const bool vector = s.kind == ForStmt::Kind::Vector;
  if (kept_ != nullptr && vector) return row_loop(s);
  std::string from = vector ? thread() : "0";
  const auto is_there = [this](const SymExpr& index) {
    return condition(kNoScalar, index).empty();
  };
  if (const auto wide = threads_ == 0 ? std::nullopt : wide_loop(nest_, s, threads_, is_there)) {
    from = whole_part(s, *wide) + " + " + thread();
    neighbours(s, *wide);
  } else if (const auto lanes =
                 threads_ == 0 ? std::nullopt : column_lanes(nest_, s, threads_, is_there)) {
    from = columns(s, *lanes) + " ? " + index(s.extent) + " : " + thread();
  } else if (vector && threads_ != 0 && only_reads(*s.body)) {
    // Of several iterations, what is read is then on its way at once.
    line("#pragma unroll 4");
  }
  if (s.kind == ForStmt::Kind::Unroll) line("#pragma unroll");
  unroll_reads(s);
  const std::string step = vector ? axis + " += " + threads() : "++" + axis;
  open("for (long long " + axis + " = " + from + "; " + axis + " < " + index(s.extent) + "; " +
       step + ")");
  const bool outer = std::exchange(in_vector_, in_vector_ || vector);
  statements(*s.body);
  for (const LoopReduction& r : s.reductions) accumulate(r);
  carry_on(s);
  in_vector_ = outer;
  close();
  end_reductions(s);
  for (const LoopCarried& c : s.carried) define(c.result, c.dtype, name(c.current));
}

/// Of a thread's own loop: written out, all that it reads may be kept for the next time, in more registers than there are.
void StatementEmitter::unroll_reads(const ForStmt& s) {
  if (s.kind == ForStmt::Kind::Serial && in_vector_ && s.extent.is_constant() &&
      s.extent.constant() > kMostWrittenOut)
    line(reads_halves(nest_, *s.body) ? "#pragma unroll 16" : "#pragma unroll 8");
}

void StatementEmitter::end_reductions(const ForStmt& s) {
  for (const LoopReduction& r : s.reductions) {
    if (s.kind == ForStmt::Kind::Vector) finish_reduction(r);
    const std::size_t width = r.results.size();
    static constexpr const char* kArg[] = {".value", ".index"};
    static constexpr const char* kMoments[] = {".mean", ".squares", ".count"};
    for (std::size_t k = 0; width > 1 && k < width; ++k)
      define(r.results[k], dtypes_.at(r.results[k]),
             partial(r) + (is_arg(r.op) ? kArg[k] : kMoments[k]));
  }
}

namespace {

/// Names in the part of a loop that goes through several iterations at once.
std::string of_loop(const char* what, std::size_t k, const ForStmt& s) {
  return what + std::to_string(k) + "_" + s.axis.to_string();
}

}  // namespace

/// Defines where the loop's neighbours begin and how many of its iterations are taken several at once: none where memory is
/// not aligned, or threads would have nothing to do. @return the name of that number.
std::string StatementEmitter::whole_part(const ForStmt& s, const WideLoop& wide) {
  std::string bits;
  std::size_t count = 0;
  const auto declare = [&](NestBufferId id, const SymExpr& at, bool stored) {
    const std::string first = of_loop("p", count++, s);
    const NeighbourPlaces places = *neighbour_places(nest_, s, wide.period, at);
    line(std::string(stored ? "" : "const ") + storage_type(nest_.buffers[id].dtype) + "* const " +
         first + " = " + buffer(id) + " + (" + index(places.first) + ");");
    bits += (bits.empty() ? "" : " | ") + ("(unsigned long long)" + first);
    // What is known of constants wide_loop() knows.
    if (!places.stride.is_constant())
      bits += " | (unsigned long long)(" + index(places.stride) + ") * " +
              number(static_cast<std::int64_t>(size_of(nest_.buffers[id].dtype)));
  };
  for (const LoadStmt* load : wide.loads) declare(load->buffer, load->index, false);
  for (const StoreStmt* store : wide.stores) declare(store->buffer, store->index, true);
  const std::string all = "all_" + s.axis.to_string();
  const std::string whole = "whole_" + s.axis.to_string();
  line("const long long " + all + " = " + index(s.extent) + ";");
  line("const long long " + whole + " = " + all + " >= " + number(wide.width / 2) +
       " * (long long)" + threads() + " && hd_is_aligned<" + number(wide.bytes) + ">(" + bits +
       ") ? " + all + " / " + number(wide.width) + " * " + number(wide.width) + " : 0;");
  return whole;
}

/// The iterations that are taken several at once.
void StatementEmitter::neighbours(const ForStmt& s, const WideLoop& wide) {
  const std::string first = "first_" + s.axis.to_string();
  const std::string width = number(wide.width);
  const auto lanes = [&](NestBufferId id) {
    return "hd_lanes<" + storage_type(nest_.buffers[id].dtype) + ", " + width + ">";
  };
  const std::string whole = "whole_" + s.axis.to_string();
  const std::string from = "from_" + s.axis.to_string();
  const std::int64_t turn = std::int64_t{wide.width} * threads_;
  // Of a tile a thread takes as much each time, and all it reads is on its way at once.
  const bool in_turns = wide.period != 0 && mapping_ == Mapping::Block && s.extent.is_constant() &&
                        s.extent.constant() > turn && s.extent.constant() % turn == 0 &&
                        s.extent.constant() <= kMostTurns * turn;
  const std::string turns = in_turns ? number(s.extent.constant() / turn) : "";
  const auto open_loop = [&] {
    if (in_turns) {
      line("#pragma unroll");
      open("for (int turn = 0; turn < " + turns + "; ++turn)");
      line("const int " + first + " = turn * " + number(turn) + " + " + width +
           " * (int)threadIdx.x;");
    } else {
      open("for (long long " + first + " = " + width + " * " + thread() + "; " + first + " < " +
           whole + "; " + first + " += " + width + " * " + threads() + ")");
    }
    if (wide.period == 0) return;
    line("const long long " + row_of_period(s).to_string() + " = " + first + " / " +
         number(wide.period) + ";");
    line("const long long " + from + " = " + first + " % " + number(wide.period) + ";");
  };
  const auto place = [&](std::size_t k, const SymExpr& at) {
    const SymExpr stride = neighbour_places(nest_, s, wide.period, at)->stride;
    return of_loop("p", k, s) + " + " +
           (wide.period == 0 ? first : index(row_of_period(s) * stride) + " + " + from);
  };
  if (in_turns) {
    open("if (" + whole + " != 0)");
    for (std::size_t k = 0; k < wide.loads.size(); ++k)
      line(lanes(wide.loads[k]->buffer) + " " + of_loop("x", k, s) + "[" + turns + "];");
  }
  open_loop();
  std::size_t count = 0;
  for (const LoadStmt* load : wide.loads) {
    const std::string type = lanes(load->buffer);
    const std::string name = of_loop("x", count, s);
    line((in_turns ? name + "[turn]" : "const " + type + " " + name) + " = *(const " + type +
         "*)(" + place(count++, load->index) + ");");
    lanes_[load] = name + (in_turns ? "[turn]" : "") + ".at[lane]";
  }
  if (in_turns) {
    close();
    open_loop();
  }
  const std::size_t loads = count;
  for (const StoreStmt* store : wide.stores) {
    const std::string name = of_loop("x", count++, s);
    line(lanes(store->buffer) + " " + name + ";");
    lanes_[store] = name + ".at[lane]";
  }
  lane(s, wide);
  count = loads;
  for (const StoreStmt* store : wide.stores) {
    const std::string at = place(count, store->index);
    const std::string value = of_loop("x", count++, s);
    const bool global = nest_.buffers[store->buffer].scope == NestBuffer::Scope::Global;
    line(global ? "hd_store(" + at + ", " + value + ");"
                : "*(" + lanes(store->buffer) + "*)(" + at + ") = " + value + ";");
  }
  close();
  if (in_turns) close();
  lanes_.clear();
}

/// One iteration of those.
void StatementEmitter::lane(const ForStmt& s, const WideLoop& wide) {
  line("#pragma unroll");
  open("for (int lane = 0; lane < " + number(wide.width) + "; ++lane)");
  line("const long long " + s.axis.to_string() + " = first_" + s.axis.to_string() + " + lane;");
  if (wide.period != 0) {
    line("const long long " + column_of_period(s).to_string() + " = from_" + s.axis.to_string() +
         " + lane;");
    tile_ = {&s, wide.period};
  }
  const bool outer = std::exchange(in_vector_, true);
  statements(*s.body);
  for (const LoopReduction& r : s.reductions) accumulate(r);
  in_vector_ = outer;
  tile_ = {};
  close();
}

/// The variable that holds what a reduction has so far.
std::string StatementEmitter::partial(const LoopReduction& r) const {
  return r.results.size() == 1 ? name(r.results[0]) : "r" + std::to_string(r.results[0]);
}

void StatementEmitter::declare_reduction(const LoopReduction& r) {
  for (std::size_t k = 0; k < r.results.size(); ++k)
    dtypes_[r.results[k]] = is_arg(r.op) && k == 1 ? DType::I64 : r.dtype;
  const std::string type = compute_type(r.dtype);
  const std::string identity = identity_text(r.op, r.dtype);
  if (is_arg(r.op)) {
    line("hd_indexed<" + type + "> " + partial(r) + " = {" + identity +
         ", 9223372036854775807LL};");
  } else if (r.op == ReduceOp::Welford) {
    line("hd_moments<" + type + "> " + partial(r) + " = {0, 0, 0};");
  } else {
    line(type + " " + partial(r) + " = " + identity + ";");
  }
}

void StatementEmitter::accumulate(const LoopReduction& r) {
  const std::string so_far = partial(r);
  std::string value = name(r.contributions[0]);
  if (r.op == ReduceOp::Welford) {
    line(guard(r.mask) + so_far + " = hd_welford::add(" + so_far + ", " + value + ");");
    return;
  }
  if (is_arg(r.op))
    value = "hd_indexed<" + compute_type(r.dtype) + ">{" + value + ", " + name(r.contributions[1]) +
            "}";
  line(guard(r.mask) + so_far + " = " + reduction_text(r.op) + "::combine(" + so_far + ", " +
       value + ");");
}

void StatementEmitter::finish_reduction(const LoopReduction& r) {
  if (mapping_ == Mapping::Rows) {
    line(partial(r) + " = hd_row_reduce<" + reduction_text(r.op) + ", " + threads() + ">(" +
         partial(r) + ");");
    return;
  }
  uses_reduce_scratch_ = true;
  if (kept_ != nullptr) {
    // Each of several has scratch of its own: that of the next is a barrier between two times of this one.
    line(partial(r) + " = hd_block_total<" + reduction_text(r.op) + ", " +
         number(kept_->threads / 32) + ", " + (kept_->reductions == 1 ? "true" : "false") + ">(" +
         partial(r) + ", reduce_scratch + " +
         number(static_cast<std::int64_t>(totals_++) * kReduceScratchBytes) + ");");
    return;
  }
  line(partial(r) + " = hd_block_reduce<" + reduction_text(r.op) + ">(" + partial(r) +
       ", reduce_scratch);");
}

/// Carried values take their next ones together: one may be another's current value.
void StatementEmitter::carry_on(const ForStmt& s) {
  const auto is_current = [&](ScalarId id) {
    return std::any_of(s.carried.begin(), s.carried.end(),
                       [id](const LoopCarried& c) { return c.current == id; });
  };
  for (const LoopCarried& c : s.carried)
    if (is_current(c.next))
      line("const " + compute_type(c.dtype) + " next" + std::to_string(c.current) + " = " +
           name(c.next) + ";");
  for (const LoopCarried& c : s.carried)
    line(name(c.current) + " = " +
         (is_current(c.next) ? "next" + std::to_string(c.current) : name(c.next)) + ";");
}

void StatementEmitter::operator()(const ContractStmt& s) {
  HD_CHECK(s.runs.empty(), "contractions of runs are made for the CPU");
  const std::string type = compute_type(s.dtype);
  const std::string columns = std::to_string(s.tile_columns);
  const auto place = [&](const TileOperand& o, const char* row, const char* column) {
    return buffer(o.buffer) + "[" + index(o.base) + " + " + row + " * (" + index(o.row_stride) +
           ") + " + column + " * (" + index(o.column_stride) + ")" + (s.group == 1 ? "" : " + g") +
           "]";
  };
  const auto factor = [&](const TileOperand& o, const char* row, const char* column) {
    const DType dtype = nest_.buffers[o.buffer].dtype;
    return "(" + type + ")" + (dtype == DType::Bool ? "(" : "") +
           loaded_text(dtype, place(o, row, column)) + (dtype == DType::Bool ? ")" : "");
  };
  line("// contraction: " + buffer(s.acc) + (s.accumulate ? " += " : " = ") + buffer(s.a.buffer) +
       " x " + buffer(s.b.buffer));
  open("for (int e = threadIdx.x; e < " + std::to_string(s.tile_rows * s.tile_columns) +
       "; e += blockDim.x)");
  line("const long long m = e / " + columns + ";");
  line("const long long n = e % " + columns + ";");
  line("if (m >= " + index(s.rows) + " || n >= " + index(s.columns) + ") continue;");
  line(type + " sum = " + (s.accumulate ? buffer(s.acc) + "[e]" : constant_text(s.dtype, 0, 0)) +
       ";");
  open("for (long long k = 0; k < " + index(s.depth) + "; ++k)");
  if (s.group != 1) open("for (int g = 0; g < " + std::to_string(s.group) + "; ++g)");
  if (s.b.dequantised && s.b.dequantised->fixed)
    fixed_element(s);
  else
    line("const " + type + " left = " + factor(s.a, "m", "k") + ";");
  if (s.b.windows) {
    window_element(s.b);
    const DType dtype = nest_.buffers[s.b.buffer].dtype;
    const auto& outside = s.b.windows->outside;
    line("const " + type + " right = inside ? (" + type + ")" +
         loaded_text(dtype, buffer(s.b.buffer) + "[at]") + " : " +
         (outside
              ? "(" + type + ")" +
                    loaded_text(dtype, buffer(outside->buffer) + "[" + index(outside->index) + "]")
              : constant_text(s.dtype, 0, 0)) +
         ";");
  } else if (s.b.dequantised) {
    dequantised_element(s);
  } else {
    line("const " + type + " right = " + factor(s.b, "k", "n") + ";");
  }
  line("sum = " +
       std::string(is_floating(s.dtype) ? "sum + left * right"
                                        : "hd_add(sum, hd_mul(left, right))") +
       ";");
  if (s.group != 1) close();
  close();
  line(buffer(s.acc) + "[e] = sum;");
  close();
}

std::string StatementEmitter::part_text(const Dequantised::Part& p, const std::string& row,
                                        const std::string& column) {
  return loaded_text(nest_.buffers[p.buffer].dtype, buffer(p.buffer) + "[" + index(p.base) + " + " +
                                                        row + " * (" + index(p.row_stride) +
                                                        ") + " + column + " * (" +
                                                        index(p.column_stride) + ")]");
}

/// Element (k, n) of a matrix that is dequantised, as `right`.
void StatementEmitter::dequantised_element(const ContractStmt& s) {
  const Dequantised& d = *s.b.dequantised;
  const std::string group = d.group == 0 ? "0" : "k / " + std::to_string(d.group);
  const Dequantised::Part stored{s.b.buffer, s.b.base, s.b.row_stride, s.b.column_stride};
  const std::string bits = std::to_string(d.bits);
  const std::string above = std::to_string(kWordBits - d.bits);
  if (d.bits != 0) {
    const std::string rows = std::to_string(kWordBits / d.bits);
    line("const unsigned bit = k % 4 * 8 + k % " + rows + " / 4 * " + bits + ";  // bit_panels");
    line("const unsigned word = " + part_text(stored, "k / " + rows, "n") + ";");
  }
  const std::string number = d.bits == 0
                                 ? part_text(stored, "k", "n")
                                 : "((int)(word << (" + above + " - bit)) >> " + above + ")";
  line("const float centred = (float)" + number +
       (d.zero ? " - (float)" + part_text(*d.zero, group, "n") : "") + ";");
  const std::string scaled = "centred * (float)" + part_text(d.scale, group, "n");
  line("const float right = " +
       (d.dtype == DType::F16    ? "hd_round_f16(" + scaled + ")"
        : d.dtype == DType::BF16 ? "hd_round_bf16(" + scaled + ")"
                                 : scaled) +
       ";");
}

/// Element (m, k) of rows in fixed point, as `left`.
void StatementEmitter::fixed_element(const ContractStmt& s) {
  const Dequantised::FixedRows& f = *s.b.dequantised->fixed;
  std::string sum = "0";
  for (std::int64_t d = f.digits; d-- > 0;) {
    const Dequantised::Part digit{s.a.buffer, s.a.base + f.digit_stride * SymExpr(d),
                                  s.a.row_stride, s.a.column_stride};
    sum = "(" + sum + ") * 256 + " + part_text(digit, "m", "k");
  }
  line("const float left = (float)(" + sum + ") * " +
       part_text(f.scale, "m", "k / " + std::to_string(f.block)) + ";");
}

/// Where element (k, n) of a matrix of windows lies, and whether it is `inside` its image.
void StatementEmitter::window_element(const TileOperand& o) {
  const std::string channels = std::to_string(o.windows->channels);
  const bool inner = o.windows->channels != 0;
  line("long long window = " + index(o.windows->first) + " + n, row = k" +
       (inner ? " / " + channels : "") + ";");
  line("long long at = " + index(o.base) + ";");
  line("bool inside = true;");
  for (auto axis = o.windows->axes.rbegin(); axis != o.windows->axes.rend(); ++axis) {
    const std::string windows = "(" + index(axis->windows) + ")";
    const std::string taps = std::to_string(axis->taps);
    open("");
    line("const long long position = window % " + windows + " * " + std::to_string(axis->stride) +
         " + row % " + taps + " * " + std::to_string(axis->dilation) + " - " +
         std::to_string(axis->pad) + ";");
    line("inside = inside && position >= 0 && position < " + index(axis->size) + ";");
    line("at += position * (" + index(axis->memory_stride) + ");");
    line("window /= " + windows + ";");
    line("row /= " + taps + ";");
    close();
  }
  line("at += " + (inner ? "k % " + channels : std::string("row")) + " * (" + index(o.row_stride) +
       ") + window * (" + index(o.column_stride) + ");");
}

}  // namespace heddle::jit::cuda
