// The text of a nest. It holds everything that generated code depends on and nothing else, so that
// it serves as the key of the kernel cache.
#include <cstdio>
#include <string>

#include "jit/nest.h"

namespace heddle::jit {
namespace {

std::string scalar(ScalarId id) { return "%" + std::to_string(id); }

std::string scalars(const std::vector<ScalarId>& ids) {
  std::string text;
  for (ScalarId id : ids) text += (text.empty() ? "" : ", ") + scalar(id);
  return text;
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

class Printer {
 public:
  explicit Printer(const Nest& nest) : nest_(nest) {}

  std::string run() {
    text_ = "(" + std::to_string(nest_.size_count) + " sizes) {\n";
    for (const NestBuffer& buffer : nest_.buffers) line(describe(buffer));
    for (const auto& [symbol, range] : nest_.facts.ranges()) line(describe(symbol, range));
    if (nest_.facts.sizes_positive) line("fact sizes are positive");
    if (nest_.product) line(describe(*nest_.product));
    if (nest_.attention) line(describe(*nest_.attention));
    line("parallel " + nest_.parallel_axis.to_string() + " < " + nest_.parallel_extent.to_string());
    block(nest_.body);
    text_ += "}\n";
    return std::move(text_);
  }

  void operator()(const ConstStmt& s) {
    define(s.result, "const " +
                         (is_floating(s.dtype) ? number(s.number) : std::to_string(s.integer)) +
                         ": " + dtype(s.dtype));
  }
  void operator()(const GivenStmt& s) {
    static constexpr const char* kRanges[] = {"", " in [0, 255]", " in [-128, 127]",
                                              " in [2^-60, 2^60]"};
    define(s.result, "given s" + std::to_string(s.parameter) + ": " + dtype(s.dtype) +
                         kRanges[static_cast<int>(s.range)]);
  }
  void operator()(const ApplyStmt& s) {
    define(s.result, std::string(name_of(s.op)) + "(" + scalars(s.operands) +
                         (s.up_to_zero ? " up to 0): " : "): ") + dtype(s.dtype));
  }
  void operator()(const ConvertStmt& s) {
    define(s.result, "convert(" + scalar(s.operand) + "): " + dtype(s.dtype));
  }
  void operator()(const BitsStmt& s) {
    define(s.result, "bits(" + scalar(s.operand) + "): " + dtype(s.dtype));
  }
  void operator()(const IndexStmt& s) { define(s.result, "index(" + s.index.to_string() + ")"); }
  void operator()(const BindStmt& s) {
    line(s.symbol.to_string() + " = bind " + scalar(s.operand) + " in [" + s.low.to_string() +
         ", " + s.high.to_string() + "]" +
         (s.check != 0 ? " check " + std::to_string(s.check) : "") + masked(s.mask));
  }
  void operator()(const LoadStmt& s) {
    define(s.result, "load " + element(s.buffer, s.index) + ": " + dtype(s.dtype) + masked(s.mask));
  }
  void operator()(const StoreStmt& s) {
    std::string how = s.combine ? " " + std::string(name_of(*s.combine)) + "=" : " =";
    line("store " + element(s.buffer, s.index) + how + " " + scalar(s.operand) + masked(s.mask) +
         (s.streaming ? " streaming" : ""));
  }
  void operator()(const ForStmt& s) {
    static constexpr const char* kKinds[] = {"serial", "vector", "unroll", "scan"};
    std::string head = kKinds[static_cast<int>(s.kind)];
    head += " " + s.axis.to_string() + " < " + s.extent.to_string();
    for (const LoopReduction& r : s.reductions)
      head += " reduce(" + scalars(r.results) + " = " + std::string(name_of(r.op)) + " " +
              dtype(r.dtype) + " of " + scalars(r.contributions) + masked(r.mask) + ")";
    for (const LoopCarried& c : s.carried)
      head += " carry(" + scalar(c.result) + ", " + scalar(c.current) + ": " + dtype(c.dtype) +
              " = " + scalar(c.initial) + " then " + scalar(c.next) + ")";
    nested(head, *s.body);
  }
  void operator()(const IfStmt& s) { nested("if " + scalar(s.condition), *s.body); }
  void operator()(const ContractStmt& s) {
    line("contract " + buffer_name(s.acc) + (s.accumulate ? " += " : " = ") + operand(s.a) + " x " +
         operand(s.b) + ": " + dtype(s.dtype) + " tile " + std::to_string(s.tile_rows) + "x" +
         std::to_string(s.tile_columns) + " rows " + s.rows.to_string() + " columns " +
         s.columns.to_string() + " depth " + s.depth.to_string() +
         (s.group == 1 ? "" : " group " + std::to_string(s.group)) +
         (s.gathers ? " gathered" : "") + (s.pairs_fit ? " of pairs that fit i16" : "") +
         (s.tf32 ? " tf32" : "") + runs(s) +
         (s.panel_columns == 0 ? ""
                               : " panels of " + std::to_string(s.panel_columns) + " by " +
                                     s.panel_stride.to_string()) +
         (s.ahead_count == 0
              ? ""
              : " ahead " + std::to_string(s.ahead_count) + " from " + s.ahead.to_string()));
  }

 private:
  static std::string dtype(DType d) { return std::string(name_of(d)); }
  static std::string masked(ScalarId mask) {
    return mask == kNoScalar ? std::string() : " if " + scalar(mask);
  }
  static std::string runs(const ContractStmt& s) {
    std::string text;
    for (const ContractStmt::Run& run : s.runs)
      text += " run " + run.count.to_string() + " by " + run.a_stride.to_string() + " and " +
              run.b_stride.to_string();
    return text;
  }
  /// The name of a buffer by its place, whatever the nest calls it.
  std::string buffer_name(NestBufferId id) const {
    const std::uint32_t globals = nest_.global_count();
    return id < globals ? "b" + std::to_string(id) : "l" + std::to_string(id - globals);
  }
  std::string element(NestBufferId id, const SymExpr& index) const {
    return buffer_name(id) + "[" + index.to_string() + "]";
  }
  std::string operand(const TileOperand& o) const {
    return element(o.buffer, o.base) + "{" + o.row_stride.to_string() + ", " +
           o.column_stride.to_string() + "}" + (o.windows ? windows(*o.windows) : "") +
           (o.dequantised ? dequantised(*o.dequantised) : "");
  }
  std::string part(const Dequantised::Part& p) const {
    return element(p.buffer, p.base) + "{" + p.row_stride.to_string() + ", " +
           p.column_stride.to_string() + "}";
  }
  std::string dequantised(const Dequantised& d) const {
    return (d.zero ? " less " + part(*d.zero) : "") + " by " + part(d.scale) +
           (d.group == 0 ? "" : " of " + std::to_string(d.group) + " rows") +
           (d.bits == 0 ? "" : " in " + std::to_string(d.bits) + " bits") +
           (d.fixed ? fixed(*d.fixed) : "") + " as " + dtype(d.dtype);
  }
  std::string fixed(const Dequantised::FixedRows& f) const {
    return " of rows in " + std::to_string(f.digits) + " digits{" + f.digit_stride.to_string() +
           "} by " + part(f.scale) + " of " + std::to_string(f.block) + " with sums " +
           part(f.sums) + "{" + f.sum_stride.to_string() + "}";
  }
  std::string windows(const Windows& w) const {
    std::string text = " windows from " + w.first.to_string();
    if (w.channels != 0) text += " by " + std::to_string(w.channels) + " channels";
    for (const WindowAxis& axis : w.axes)
      text += " [" + std::to_string(axis.taps) + " taps by " + std::to_string(axis.dilation) +
              ", " + axis.windows.to_string() + " by " + std::to_string(axis.stride) + " from " +
              std::to_string(-axis.pad) + " in " + axis.size.to_string() + "]{" +
              axis.memory_stride.to_string() + "}";
    if (w.outside) text += " outside " + element(w.outside->buffer, w.outside->index);
    return text;
  }
  std::string describe(const NestBuffer& buffer) const {
    const auto id = static_cast<NestBufferId>(&buffer - nest_.buffers.data());
    std::string text = buffer.scope == NestBuffer::Scope::Global ? "buffer " : "local ";
    text += buffer_name(id) + ": " + dtype(buffer.dtype) + "[" + buffer.count.to_string() + "]";
    if (buffer.scope == NestBuffer::Scope::Local && buffer.max_count != 0)
      text += " max " + std::to_string(buffer.max_count);
    return text + (buffer.read ? " read" : "") + (buffer.written ? " written" : "");
  }
  static std::string describe(Symbol symbol, const base::Facts::Range& range) {
    return "fact " + symbol.to_string() + " in [" + (range.low ? range.low->to_string() : "") +
           ", " + (range.high ? range.high->to_string() : "") + "]";
  }

  std::string describe(const ProductGroups& g) const {
    return " in " + g.count.to_string() + " groups to " + element(g.ends, g.offset) + "{" +
           g.stride.to_string() + "} of depth " + g.depth.to_string() + " at " +
           g.row_end.to_string() + ", " + g.products.to_string();
  }

  std::string describe(const ProductForm& p) const {
    return "product of " + p.batches.to_string() + " x [" + p.rows.to_string() + ", " +
           p.columns.to_string() + "] at " + p.batch.to_string() + ", " + p.row_begin.to_string() +
           ", " + p.column_begin.to_string() + (p.groups ? describe(*p.groups) : "");
  }

  std::string describe(const AttentionForm& a) const {
    return "attention of " + a.batches.to_string() + " x " + a.heads.to_string() + " / " +
           a.key_heads.to_string() + " x [" + a.queries.to_string() + ", " + a.keys.to_string() +
           "] at " + a.batch.to_string() + ", " + a.head.to_string() + ", " +
           a.row_begin.to_string() + " totals " + buffer_name(a.totals) + " scale " +
           number(a.scale) + (a.causal ? " causal" : "") + (a.masked ? " masked" : "");
  }

  void line(const std::string& content) {
    text_.append(2 * static_cast<std::size_t>(depth_), ' ');
    text_ += content;
    text_ += '\n';
  }
  void define(ScalarId result, const std::string& what) { line(scalar(result) + " = " + what); }
  void block(const Block& statements) {
    for (const Stmt& statement : statements) std::visit(*this, statement.node);
  }
  void nested(const std::string& head, const Block& body) {
    line(head + " {");
    ++depth_;
    block(body);
    --depth_;
    line("}");
  }

  const Nest& nest_;
  std::string text_;
  int depth_ = 1;
};

}  // namespace

std::string print(const Nest& nest) { return "nest @" + nest.name + Printer(nest).run(); }

std::string structural_text(const Nest& nest) { return Printer(nest).run(); }

base::Hash128 structural_key(const Nest& nest) { return base::hash128(structural_text(nest)); }

}  // namespace heddle::jit
