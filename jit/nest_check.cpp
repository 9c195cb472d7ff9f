// What every nest must satisfy before an emitter sees it.
//
//   N1   every scalar is defined once
//   N2   a scalar is used after its definition, in the block of the definition or deeper
//   N3   global buffers come before local ones; every buffer named exists and is declared as accessed
//   N4   vector loops do not nest
//   N5   vector loops carry no values
//   N6   ifs and contractions lie outside vector loops
//   N7   operands have the dtypes that the operation takes
//   N8   an index mentions only sizes, enclosing axes and bound temporaries
//   N9   a mask is a bool
//   N10  a reduction and a carried value are defined by the body and have the right widths
//   N11  loads and stores keep the buffer's dtype
//   N12  a contraction accumulates into a local buffer of f32, f64, i32 or i64 that holds its tile
//   N13  the extent of a loop inside a vector loop is the same for all its iterations
//   N14  windows are of a right operand whose elements are not groups, and have taps, strides and dilations of 1 or more
//   N15  what is dequantised is a right operand of bytes, in an f32 accumulator, with scales of f16, bf16 or f32 and zero points
//        of bytes or i32
//   N16  what is dequantised from a few bits, and added to what is there, is of words, with whole words of rows in a group; rows in fixed point
//        are of bytes, and their blocks are whole words of rows that share a scale
//   N17  a scan carries one value, reduces none, and lies outside of vector loops
//   N18  operands of a contraction of runs lie along the depth and have the accumulator's dtype, and its columns are those of the
//        tile, or they are groups of u8 and i8
#include <map>
#include <set>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "jit/nest.h"

namespace heddle::jit {
namespace {

using ir::ReduceOp;
using ir::ScalarOp;

class Checker {
 public:
  explicit Checker(const Nest& nest) : nest_(nest) {}

  void run() {
    check_buffers();
    require_sizes_only(nest_.parallel_extent);
    axes_.insert(nest_.parallel_axis);
    block(nest_.body);
  }

  void operator()(const ConstStmt& s) { define(s.result, s.dtype); }
  void operator()(const GivenStmt& s) {
    require(s.parameter < nest_.size_count, "N8 a number that is given is a parameter");
    require(s.dtype == DType::F32 || s.dtype == DType::I32,
            [&] { return "N7 a number that is given: " + std::string(name_of(s.dtype)); });
    define(s.result, s.dtype);
  }
  void operator()(const IndexStmt& s) {
    index(s.index);
    define(s.result, DType::I64);
  }
  void operator()(const ApplyStmt& s) {
    require(s.operands.size() == static_cast<std::size_t>(ir::arity_of(s.op)),
            [&] { return "N7 arity of " + name(s.op); });
    std::size_t first = 0;
    if (s.op == ScalarOp::Select) {
      require(use(s.operands[0]) == DType::Bool, "N7 select takes a bool");
      first = 1;
    }
    const DType operand = use(s.operands[first]);
    for (std::size_t k = first; k < s.operands.size(); ++k)
      require(use(s.operands[k]) == operand,
              [&] { return "N7 operands of one dtype: " + name(s.op); });
    require(ir::defined_on(s.op, operand),
            [&] { return "N7 " + name(s.op) + " on " + std::string(name_of(operand)); });
    require(ir::result_of(s.op, operand) == s.dtype, [&] { return "N7 result of " + name(s.op); });
    define(s.result, s.dtype);
  }
  void operator()(const ConvertStmt& s) {
    use(s.operand);
    define(s.result, s.dtype);
  }
  void operator()(const BitsStmt& s) {
    const DType operand = use(s.operand);
    require((operand == DType::F32 && s.dtype == DType::I32) ||
                (operand == DType::F64 && s.dtype == DType::I64),
            [&] { return "N7 bits of " + std::string(name_of(operand)); });
    define(s.result, s.dtype);
  }
  void operator()(const BindStmt& s) {
    const DType dtype = use(s.operand);
    require(dtype == DType::I64 || dtype == DType::I32, "N7 bind takes an i64 or i32");
    index(s.low);
    index(s.high);
    mask(s.mask);
    temps_.insert(s.symbol);
    if (in_vector_) varying_.insert(s.symbol);
  }
  void operator()(const LoadStmt& s) {
    const NestBuffer& source = buffer(s.buffer);
    require(source.read, [&] { return "N3 " + source.name + " is declared as read"; });
    require(source.dtype == s.dtype, [&] { return "N11 load from " + source.name; });
    index(s.index);
    mask(s.mask);
    define(s.result, s.dtype);
  }
  void operator()(const StoreStmt& s) {
    const NestBuffer& target = buffer(s.buffer);
    require(target.written, [&] { return "N3 " + target.name + " is declared as written"; });
    require(use(s.operand) == target.dtype, [&] { return "N11 store to " + target.name; });
    index(s.index);
    mask(s.mask);
    if (s.combine)
      require(*s.combine <= ReduceOp::Or, "N7 a store combines with a plain reduction");
  }
  void operator()(const IfStmt& s) {
    require(!in_vector_, "N6 an if inside a vector loop");
    require(use(s.condition) == DType::Bool, "N9 condition");
    scoped([&] { block(*s.body); });
  }
  void operator()(const ContractStmt& s) {
    require(!in_vector_, "N6 a contraction inside a vector loop");
    const NestBuffer& acc = buffer(s.acc);
    require(acc.scope == NestBuffer::Scope::Local && acc.dtype == s.dtype, "N12 accumulator");
    require(s.dtype == DType::F32 || s.dtype == DType::F64 || s.dtype == DType::I32 ||
                s.dtype == DType::I64,
            "N12 dtype of the accumulator");
    require(acc.max_count == 0 || acc.max_count >= s.tile_rows * s.tile_columns, "N12 tile");
    const DType left = buffer(s.a.buffer).dtype;
    const bool bytes = (left == DType::U8 || (left == DType::I16 && !s.pairs_fit)) &&
                       buffer(s.b.buffer).dtype == DType::I8 && s.dtype == DType::I32;
    const DType right = buffer(s.b.buffer).dtype;
    const bool pairs = left == DType::BF16 && s.dtype == DType::F32 &&
                       (right == DType::BF16 || (s.gathers && right == DType::F32));
    require(!s.gathers || (s.group == 2 && s.a.column_stride.is_constant(1) &&
                           (s.b.row_stride.is_constant(1) || s.b.column_stride.is_constant(1))),
            "N12 what is gathered into groups");
    require(s.group == 1 || (s.group == 4 && bytes) || (s.group == 2 && pairs),
            "N12 group of the operands");
    require(!s.pairs_fit || s.group == 4, "N12 pairs of what is no group");
    for (const SymExpr* expr : {&s.rows, &s.columns, &s.depth, &s.panel_stride, &s.ahead})
      index(*expr);
    require(s.panel_columns == 0 || (s.group != 1 && !s.runs.empty() &&
                                     (s.panel_columns == 16 || s.panel_columns == 32)),
            "N12 panels of what is no group, or not of 16 or 32 columns");
    for (const TileOperand* operand : {&s.a, &s.b}) {
      require(buffer(operand->buffer).read, "N3 operands of a contraction are declared as read");
      for (const SymExpr* expr : {&operand->base, &operand->row_stride, &operand->column_stride})
        index(*expr);
    }
    require(!s.a.windows && (!s.b.windows || s.group == 1), "N14 windows of a contraction");
    if (s.b.windows) windows(*s.b.windows, buffer(s.b.buffer).dtype);
    require(!s.a.dequantised, "N15 a left operand that is dequantised");
    if (s.b.dequantised) dequantised(s);
    runs(s);
  }
  void operator()(const ForStmt& s) {
    const bool vector = s.kind == ForStmt::Kind::Vector;
    require(!(vector && in_vector_), "N4 nested vector loops");
    require(!vector || s.carried.empty(), "N5 a vector loop that carries values");
    const bool scan = s.kind == ForStmt::Kind::Scan;
    require(!scan || (!in_vector_ && s.carried.size() == 1 && s.reductions.empty()),
            "N17 a scan carries one value, outside of vector loops");
    index(s.extent);
    check_uniform(s.extent);
    for (const LoopCarried& c : s.carried)
      require(use(c.initial) == c.dtype, "N10 initial of a carried value");
    scoped([&] {
      require(axes_.insert(s.axis).second,
              [&] { return "N8 axis " + s.axis.to_string() + " is in use"; });
      const bool outer = in_vector_;
      if (vector) varying_ = {s.axis};
      in_vector_ = outer || vector;
      for (const LoopCarried& c : s.carried) define(c.current, c.dtype);
      block(*s.body);
      for (const LoopCarried& c : s.carried)
        require(use(c.next) == c.dtype, "N10 next of a carried value");
      for (const LoopReduction& r : s.reductions) check_contributions(r);
      in_vector_ = outer;
    });
    for (const LoopReduction& r : s.reductions)
      for (std::size_t k = 0; k < r.results.size(); ++k)
        define(r.results[k], is_arg(r.op) && k == 1 ? DType::I64 : r.dtype);
    for (const LoopCarried& c : s.carried) define(c.result, c.dtype);
  }

 private:
  static std::string name(ScalarOp op) { return std::string(ir::name_of(op)); }
  static bool is_arg(ReduceOp op) { return op == ReduceOp::ArgMax || op == ReduceOp::ArgMin; }

  /// `what` makes its text when it is needed: nests are right, and there are many.
  template <typename What>
  void require(bool condition, const What& what) const {
    if (condition) return;
    if constexpr (std::is_invocable_v<What>) {
      fail(what());
    } else {
      fail(what);
    }
  }
  [[noreturn]] void fail(const std::string& what) const {
    base::check_failed(__FILE__, __LINE__, "a nest is right", what + " in\n" + print(nest_));
  }

  void check_buffers() const {
    bool local = false;
    for (const NestBuffer& b : nest_.buffers) {
      const bool is_local = b.scope == NestBuffer::Scope::Local;
      require(!local || is_local, "N3 global buffers first");
      local = local || is_local;
      require_sizes_only(b.count);
    }
  }

  void require_sizes_only(const SymExpr& expr) const {
    std::vector<Symbol> symbols;
    expr.collect_symbols(symbols);
    for (Symbol s : symbols)
      require(s.kind == Symbol::Kind::Size && s.id < nest_.size_count,
              [&] { return "N8 only size parameters: " + expr.to_string(); });
  }

  const NestBuffer& buffer(NestBufferId id) const {
    require(id < nest_.buffers.size(), [&] { return "N3 buffer " + std::to_string(id); });
    return nest_.buffers[id];
  }

  void index(const SymExpr& expr) const {
    std::vector<Symbol> symbols;
    expr.collect_symbols(symbols);
    for (Symbol s : symbols) {
      const bool known = (s.kind == Symbol::Kind::Size && s.id < nest_.size_count) ||
                         axes_.count(s) != 0 || temps_.count(s) != 0;
      require(known, [&] { return "N8 " + s.to_string() + " in " + expr.to_string(); });
    }
  }

  void check_uniform(const SymExpr& extent) const {
    if (!in_vector_) return;
    std::vector<Symbol> symbols;
    extent.collect_symbols(symbols);
    for (Symbol s : symbols)
      require(varying_.count(s) == 0, [&] { return "N13 extent " + extent.to_string(); });
  }

  void windows(const Windows& all, DType dtype) const {
    index(all.first);
    require(all.channels >= 0, "N14 channels of windows");
    if (all.outside) {
      const NestBuffer& outside = buffer(all.outside->buffer);
      require(outside.dtype == dtype && outside.read, "N14 what lies outside of images");
      index(all.outside->index);
    }
    for (const WindowAxis& axis : all.axes) {
      require(axis.taps >= 1 && axis.stride >= 1 && axis.dilation >= 1, "N14 steps of windows");
      for (const SymExpr* expr : {&axis.windows, &axis.size, &axis.memory_stride}) index(*expr);
    }
  }

  void runs(const ContractStmt& s) const {
    for (const ContractStmt::Run& run : s.runs)
      for (const SymExpr* expr : {&run.count, &run.a_stride, &run.b_stride}) index(*expr);
    const DType a = buffer(s.a.buffer).dtype, b = buffer(s.b.buffer).dtype;
    const bool of_groups =
        (s.dtype == DType::I32 && s.group == 4 && a == DType::U8 && b == DType::I8) ||
        (s.dtype == DType::F32 && s.group == 2 && !s.gathers);
    const bool along_depth = is_floating(s.dtype) && s.group == 1 && a == s.dtype && b == s.dtype &&
                             s.a.column_stride.is_constant(1) && s.b.row_stride.is_constant(1) &&
                             s.columns.is_constant(s.tile_columns);
    require(s.runs.empty() ||
                ((of_groups || along_depth) && !s.accumulate && !s.b.windows && !s.b.dequantised),
            "N18 runs of operands along the depth or of groups");
  }

  void dequantised(const ContractStmt& s) const {
    const auto is_real = [](DType d) {
      return d == DType::F16 || d == DType::BF16 || d == DType::F32;
    };
    const Dequantised& d = *s.b.dequantised;
    if (d.bits != 0) return of_bits(s, d);
    require(is_byte(buffer(s.b.buffer).dtype) && s.dtype == DType::F32 && s.group == 1 &&
                !s.b.windows && is_real(d.dtype) && d.group >= 0,
            "N15 an operand that is dequantised");
    require(is_real(buffer(d.scale.buffer).dtype), "N15 dtype of scales");
    part(d.scale);
    if (!d.zero) return;
    const DType zero = buffer(d.zero->buffer).dtype;
    require(is_byte(zero) || zero == DType::I32, "N15 dtype of zero points");
    part(*d.zero);
  }
  void of_bits(const ContractStmt& s, const Dequantised& d) const {
    const bool fits = d.bits == 2 || d.bits == 4 || d.bits == 8;
    require(fits && buffer(s.b.buffer).dtype == DType::I32 && s.dtype == DType::F32 &&
                s.group == 1 && !s.b.windows && d.group >= 0 && d.group % (32 / d.bits) == 0 &&
                (s.accumulate ? d.dtype == DType::F32 : nest_.product && !d.fixed),
            "N16 an operand of a few bits");
    require(is_floating(buffer(d.scale.buffer).dtype), "N16 dtype of scales");
    for_each_part(d, [&](const Dequantised::Part& each) { part(each); });
    if (!d.fixed) return;
    const Dequantised::FixedRows& fixed = *d.fixed;
    require(buffer(s.a.buffer).dtype == DType::I8 && fixed.digits >= 1 && fixed.digits <= 3 &&
                fixed.block >= 1 && fixed.block <= 128 && fixed.block % (32 / d.bits) == 0 &&
                d.group % fixed.block == 0,
            "N16 rows in fixed point");
    require(buffer(fixed.scale.buffer).dtype == DType::F32 &&
                buffer(fixed.sums.buffer).dtype == DType::I32,
            "N16 scales and sums of rows");
    index(fixed.digit_stride);
    index(fixed.sum_stride);
  }
  void part(const Dequantised::Part& p) const {
    require(buffer(p.buffer).read, "N3 scales and zero points are declared as read");
    for (const SymExpr* expr : {&p.base, &p.row_stride, &p.column_stride}) index(*expr);
  }

  void mask(ScalarId id) const {
    if (id != kNoScalar)
      require(use(id) == DType::Bool, [&] { return "N9 mask %" + std::to_string(id); });
  }

  void check_contributions(const LoopReduction& r) const {
    const std::size_t width = static_cast<std::size_t>(ir::width_of(r.op));
    const std::size_t wanted = r.op == ReduceOp::Welford ? 1 : width;
    require(r.contributions.size() == wanted && r.results.size() == width,
            [&] { return "N10 width of " + std::string(ir::name_of(r.op)); });
    require(use(r.contributions[0]) == r.dtype, "N10 dtype of a contribution");
    if (is_arg(r.op)) require(use(r.contributions[1]) == DType::I64, "N10 index of a contribution");
    const bool logical = r.op == ReduceOp::And || r.op == ReduceOp::Or;
    require(logical == (r.dtype == DType::Bool) || r.op == ReduceOp::Max || r.op == ReduceOp::Min ||
                is_arg(r.op),
            [&] { return "N10 dtype of " + std::string(ir::name_of(r.op)); });
    mask(r.mask);
  }

  void define(ScalarId id, DType dtype) {
    require(id != kNoScalar && defined_.insert(id).second,
            [&] { return "N1 %" + std::to_string(id); });
    visible_[id] = dtype;
  }
  DType use(ScalarId id) const {
    const auto found = visible_.find(id);
    require(found != visible_.end(), [&] { return "N2 %" + std::to_string(id); });
    return found->second;
  }

  void block(const Block& statements) {
    for (const Stmt& statement : statements) std::visit(*this, statement.node);
  }
  /// Runs `body`, then forgets what it defined.
  template <typename Body>
  void scoped(Body body) {
    const auto visible = visible_;
    const auto axes = axes_;
    const auto temps = temps_;
    body();
    visible_ = visible;
    axes_ = axes;
    temps_ = temps;
  }

  const Nest& nest_;
  std::set<ScalarId> defined_;
  std::map<ScalarId, DType> visible_;
  std::set<Symbol> axes_;
  std::set<Symbol> temps_;
  std::set<Symbol> varying_;
  bool in_vector_ = false;
};

}  // namespace

void check(const Nest& nest) { Checker(nest).run(); }

}  // namespace heddle::jit
