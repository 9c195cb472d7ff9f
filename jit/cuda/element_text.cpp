#include "jit/cuda/element_text.h"

#include <algorithm>

#include "jit/cuda/loop_body.h"
#include "jit/cuda/scalar_text.h"
#include "jit/cuda/text_writer.h"

namespace heddle::jit::cuda {
namespace {

constexpr int kMostBytes = 16;

/// Where a lane that stores and one that loads might meet, they keep their order only one by one.
bool are_apart(const Block& body, const StoreStmt& store) {
  return std::ranges::none_of(body, [&](const Stmt& statement) {
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    const auto* other = std::get_if<StoreStmt>(&statement.node);
    if (load != nullptr) return load->buffer == store.buffer && load->index != store.index;
    return other != nullptr && other != &store && other->buffer == store.buffer;
  });
}

class Writer : private TextWriter {
 public:
  explicit Writer(int depth) { depth_ = depth; }
  using TextWriter::close;
  using TextWriter::depth_;
  using TextWriter::line;
  using TextWriter::number;
  using TextWriter::open;
  using TextWriter::text_;
};

}  // namespace

ElementText::ElementText(const Nest& nest, base::Symbol axis, const Block& body, int most,
                         NestBufferId inner)
    : nest_(nest), axis_(axis), body_(body), inner_(inner) {
  std::size_t largest = 0;
  bool fits = std::ranges::all_of(body, is_scalar);
  const auto take = [&](const void* statement, NestBufferId buffer, const SymExpr& index,
                        bool is_store) {
    accesses_.push_back({statement, buffer, &index, is_store});
    largest = std::max(largest, size_of(nest.buffers[buffer].dtype));
  };
  for (const Stmt& statement : body) {
    if (const auto* load = std::get_if<LoadStmt>(&statement.node)) {
      if (load->buffer != inner && load->mask == kNoScalar &&
          first_neighbour(axis, body, load->index))
        take(load, load->buffer, load->index, false);
    }
    if (const auto* store = std::get_if<StoreStmt>(&statement.node)) {
      const bool wide = store->mask == kNoScalar && !store->combine &&
                        first_neighbour(axis, body, store->index).has_value();
      fits = fits && wide && are_apart(body, *store);
      if (wide) take(store, store->buffer, store->index, true);
    }
  }
  if (!fits || largest == 0) return;
  width_ = std::max(1, std::min(most, kMostBytes / static_cast<int>(largest)));
}

std::string ElementText::are_aligned(base::Symbol outer) const {
  std::string text;
  for (const Access& access : accesses_)
    for (const std::int64_t line : {0, 1}) {
      const SymExpr at = access.index->substitute({{axis_, SymExpr(0)}, {outer, SymExpr(line)}});
      const auto bytes = width_ * static_cast<int>(size_of(nest_.buffers[access.buffer].dtype));
      text += (text.empty() ? "" : " && ") + ("hd_is_aligned<" + std::to_string(bytes)) +
              ">((unsigned long long)(" + buffer_name(nest_, access.buffer) + " + (" +
              index_text(at, nest_.facts) + ")))";
    }
  return text;
}

std::string ElementText::text(StatementEmitter& statements, int depth, const std::string& first,
                              const std::string& left, const std::string& prepare,
                              const std::string& of_lane, const std::string& of_axis) const {
  Writer out(depth);
  const std::string axis = axis_.to_string();
  const std::string width = Writer::number(width_);
  const auto type = [&](const Access& access) {
    return storage_type(nest_.buffers[access.buffer].dtype);
  };
  const auto lanes = [&](const Access& access) {
    return "hd_lanes<" + type(access) + ", " + width + ">";
  };
  const auto named = [](const char* what, std::size_t k) { return what + std::to_string(k); };
  std::string aligned = left + " >= " + width;
  out.open("");
  out.line("const long long " + axis + " = " + first + ";");
  for (std::size_t k = 0; k < accesses_.size(); ++k) {
    const Access& access = accesses_[k];
    out.line(std::string(access.is_store ? "" : "const ") + type(access) + "* const " +
             named("near", k) + " = " + buffer_name(nest_, access.buffer) + " + (" +
             index_text(*access.index, nest_.facts) + ");");
    const auto size = static_cast<int>(size_of(nest_.buffers[access.buffer].dtype));
    aligned += " && hd_is_aligned<" + Writer::number(width_ * size) + ">((unsigned long long)" +
               named("near", k) + ")";
  }
  out.open("if (" + aligned + ")");
  for (std::size_t k = 0; k < accesses_.size(); ++k) {
    const Access& access = accesses_[k];
    out.line(access.is_store ? lanes(access) + " " + named("lanes", k) + ";"
                             : "const " + lanes(access) + " " + named("lanes", k) + " = *(const " +
                                   lanes(access) + "*)" + named("near", k) + ";");
    statements.replace_access(access.statement, named("lanes", k) + ".at[lane]");
  }
  if (!prepare.empty()) out.line(prepare);
  out.line("#pragma unroll");
  out.open("for (int lane = 0; lane < " + width + "; ++lane)");
  out.line("const long long " + axis + " = " + first + " + lane;");
  statements.replace_loads(inner_, of_lane);
  out.text_ += statements.emit(body_, out.depth_);
  out.close();
  statements.restore_accesses();
  for (std::size_t k = 0; k < accesses_.size(); ++k)
    if (accesses_[k].is_store)
      out.line("*(" + lanes(accesses_[k]) + "*)" + named("near", k) + " = " + named("lanes", k) +
               ";");
  out.close();
  out.open("else");
  out.line("#pragma unroll 1");
  out.open("for (int lane = 0; lane < " + width + " && lane < " + left + "; ++lane)");
  out.line("const long long " + axis + " = " + first + " + lane;");
  statements.replace_loads(inner_, of_axis);
  out.text_ += statements.emit(body_, out.depth_);
  out.close();
  out.close();
  out.close();
  return std::move(out.text_);
}

}  // namespace heddle::jit::cuda
