#include "jit/cuda/product_text.h"

#include <algorithm>
#include <limits>
#include <set>

#include "jit/cuda/element_text.h"
#include "jit/cuda/prelude.h"
#include "jit/cuda/scalar_text.h"
#include "jit/cuda/statement_emitter.h"
#include "jit/cuda/text_writer.h"
#include "jit/lower/nest_rewrite.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit::cuda {
namespace {

/// Of hd_windows: directions, and taps of each.
constexpr std::size_t kWindowAxes = 3;
constexpr std::int64_t kMostWindowTaps = 32;
/// Of hd_quantised and hd_packed: rows of which a group has a multiple, and the depth that they count.
constexpr std::int64_t kGroupRows = 8;
constexpr std::int64_t kMostGroupedDepth = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kWordBits = 32;

/// Collects the parts of a nest; `fits` becomes false where it has another form.
class ProductFinder {
 public:
  explicit ProductFinder(const Nest& nest) : nest_(nest) { parts_.nest = &nest; }

  std::optional<ProductParts> run() {
    for (const Stmt& statement : nest_.body) at_block_level(statement);
    fits_ = fits_ && parts_.contract != nullptr && parts_.columns != nullptr && is_supported();
    return fits_ ? std::optional(parts_) : std::nullopt;
  }

 private:
  void require(bool condition) { fits_ = fits_ && condition; }

  void at_block_level(const Stmt& statement) {
    if (const auto* bind = std::get_if<BindStmt>(&statement.node); bind != nullptr && is_own(*bind))
      return;
    if (nest_.product->groups && finds_place(statement)) return;
    if (const auto* index = std::get_if<IndexStmt>(&statement.node);
        index != nullptr && index->index.mentions(nest_.parallel_axis)) {
      places_.insert(index->result);
      return;
    }
    if (const auto* contract = std::get_if<ContractStmt>(&statement.node)) {
      require(parts_.contract == nullptr && !contract->accumulate);
      parts_.contract = contract;
      return;
    }
    if (const auto* loop = std::get_if<ForStmt>(&statement.node)) return rows(*loop);
    scalar(statement, parts_.before);
  }

  /// The bind of one of the places.
  bool is_own(const BindStmt& bind) const {
    const ProductForm& form = *nest_.product;
    const auto& groups = form.groups;
    return bind.check == 0 &&
           (bind.symbol == form.batch || bind.symbol == form.row_begin ||
            bind.symbol == form.column_begin ||
            (groups && (bind.symbol == groups->row_end || bind.symbol == groups->products)));
  }

  /// Of groups: the loop that finds the place, or what is made of its results.
  bool finds_place(const Stmt& statement) {
    if (parts_.contract != nullptr) return false;
    Block one = {statement};
    bool finds = std::holds_alternative<ForStmt>(statement.node);
    std::visit(
        [&](auto& node) { visit_uses(node, [&](ScalarId id) { finds |= places_.contains(id); }); },
        one[0].node);
    if (finds)
      std::visit(
          [&](auto& node) { visit_definitions(node, [&](ScalarId id) { places_.insert(id); }); },
          one[0].node);
    return finds;
  }

  void scalar(const Stmt& statement, std::vector<const Stmt*>& list) {
    require(is_scalar(statement) && parts_.rows == nullptr);
    independent(statement);
    list.push_back(&statement);
  }
  static bool is_scalar(const Stmt& statement) {
    return !std::holds_alternative<StoreStmt>(statement.node) &&
           !std::holds_alternative<ForStmt>(statement.node) &&
           !std::holds_alternative<IfStmt>(statement.node) &&
           !std::holds_alternative<ContractStmt>(statement.node);
  }

  /// Nothing but the places may know the parallel axis.
  void independent(const Stmt& statement) {
    Block one = {statement};
    for (const SymExpr& expr : expressions_of(one)) require(!expr.mentions(nest_.parallel_axis));
    std::visit(
        [&](auto& node) { visit_uses(node, [&](ScalarId id) { require(!places_.contains(id)); }); },
        one[0].node);
  }

  void rows(const ForStmt& loop) {
    require(parts_.contract != nullptr && parts_.rows == nullptr &&
            loop.kind == ForStmt::Kind::Serial && is_plain(loop));
    if (!fits_) return;
    require(loop.extent == parts_.contract->rows);
    for (const Stmt& statement : *loop.body) {
      if (const auto* inner = std::get_if<ForStmt>(&statement.node)) {
        columns(*inner);
        continue;
      }
      require(parts_.columns == nullptr);
      scalar(statement, parts_.of_row);
    }
    parts_.rows = &loop;
  }
  static bool is_plain(const ForStmt& loop) {
    return loop.reductions.empty() && loop.carried.empty();
  }

  void columns(const ForStmt& loop) {
    require(parts_.columns == nullptr && loop.kind == ForStmt::Kind::Vector && is_plain(loop) &&
            loop.extent == parts_.contract->columns);
    for (const Stmt& statement : *loop.body) {
      independent(statement);
      require(!std::holds_alternative<ContractStmt>(statement.node));
    }
    parts_.columns = &loop;
  }

  bool is_supported() const {
    const ContractStmt& contract = *parts_.contract;
    const DType left = parts_.left_dtype();
    const DType right = parts_.right_factor();
    if (contract.b.dequantised && !has_groups_of_prelude(contract)) return false;
    const bool bytes = is_byte(left) && is_byte(right) && contract.dtype == DType::I32;
    const bool floats = left == right && contract.dtype == DType::F32 &&
                        (left == DType::F16 || left == DType::BF16 || left == DType::F32);
    if ((!bytes && !floats) || contract.group != 1) return false;
    if (contract.b.windows && !has_windows_of_prelude(contract)) return false;
    if (nest_.buffers.size() != nest_.global_count() + 1) return false;
    // The sums are read where the loops are.
    const SymExpr at =
        SymExpr(parts_.rows->axis) * contract.tile_columns + SymExpr(parts_.columns->axis);
    for (const Stmt& statement : *parts_.columns->body) {
      const auto* load = std::get_if<LoadStmt>(&statement.node);
      if (load != nullptr && load->buffer == contract.acc && load->index != at) return false;
    }
    return true;
  }

  /// Whether hd_quantised can be of these groups, eight rows side by side in one, or hd_packed of these words.
  static bool has_groups_of_prelude(const ContractStmt& contract) {
    const Dequantised& d = *contract.b.dequantised;
    const std::int64_t group = d.group;
    if (d.bits != 0 && (d.bits > 4 || d.fixed || !contract.b.column_stride.is_constant(1)))
      return false;
    return group % kGroupRows == 0 &&
           (group == 0 ||
            (contract.depth.is_constant() && contract.depth.constant() <= kMostGroupedDepth));
  }

  /// Whether hd_windows can be these: as many directions and taps, and rows that 32 bits count.
  static bool has_windows_of_prelude(const ContractStmt& contract) {
    const std::vector<WindowAxis>& axes = contract.b.windows->axes;
    const bool few = std::ranges::all_of(
        axes, [](const WindowAxis& axis) { return axis.taps <= kMostWindowTaps; });
    return few && axes.size() <= kWindowAxes && contract.a.column_stride.is_constant(1) &&
           contract.depth.is_constant() &&
           contract.depth.constant() <= std::numeric_limits<std::int32_t>::max();
  }

  const Nest& nest_;
  ProductParts parts_;
  std::set<ScalarId> places_;
  bool fits_ = true;
};

Along along(const TileOperand& operand) {
  if (operand.windows) return operand.windows->channels == 0 ? Along::Windows : Along::Channels;
  if (operand.column_stride.is_constant(1)) return Along::Rows;
  return operand.row_stride.is_constant(1) ? Along::Columns : Along::Neither;
}

const char* true_or_false(bool value) { return value ? "true" : "false"; }

/// Writes one kernel.
class ProductWriter : private TextWriter {
 public:
  ProductWriter(const ProductParts& parts, const ProductTile& tile)
      : parts_(parts), nest_(*parts.nest), form_(*parts.nest->product), tile_(tile) {}

  std::string body() {
    line("unsigned char* const shared = hd_dynamic_shared();");
    line("typedef " + tile_type() + " Tile;");
    line("const long long rows = " + index(form_.rows) + ";");
    line("const long long columns = " + index(form_.columns) + ";");
    line("const long long row_tiles = " + index(form_.row_tiles(tile_.rows)) + ";");
    line("const long long column_tiles = (columns + " + number(tile_.columns - 1) + ") / " +
         number(tile_.columns) + ";");
    line("const long long tiles = row_tiles * column_tiles;");
    line("const long long all = tiles * (" + index(form_.batches) + ");");
    line("unsigned int parts;");
    line("const unsigned int part = hd_part_of_block(all, parts);");
    open("for (long long tile = blockIdx.x - part * all; tile < all; tile += gridDim.x)");
    if (form_.groups)
      place_in_groups(*form_.groups);
    else
      place();
    multiply();
    join();
    elements();
    line("__syncthreads();");
    close();
    return std::move(text_);
  }

 private:
  std::string index(const SymExpr& expr) const { return index_text(expr, nest_.facts); }

  std::string tile_type() const {
    const std::string types =
        storage_type(parts_.left_dtype()) + ", " + storage_type(parts_.right_factor()) + ", ";
    const std::string tile = number(tile_.rows) + ", " + number(tile_.columns) + ", ";
    const bool left = parts_.left() == Along::Rows;
    const bool is_tensor = tile_.kind == ProductTile::Kind::Tensor;
    const bool in_words = parts_.right_bits() != 0;  // a word holds rows of one column
    const bool right = (parts_.right() == Along::Rows && !(in_words && is_tensor)) ||
                       parts_.right() == Along::Windows ||
                       (parts_.right() == Along::Channels && !is_tensor);
    switch (tile_.kind) {
      case ProductTile::Kind::Rows:
        return "hd_row_tile<" + types + tile + number(tile_.threads()) + ", " +
               true_or_false(right) + ">";
      case ProductTile::Kind::Plain:
        return "hd_plain_tile<" + types + tile + number(tile_.depth) + ", " + true_or_false(left) +
               ", " + true_or_false(right) + ">";
      case ProductTile::Kind::Tensor:
        break;
    }
    return "hd_tensor_tile<" + types + tile + number(tile_.depth) + ", " + number(tile_.warp_rows) +
           ", " + number(tile_.warp_columns) + ", " + number(tile_.stages) + ", " +
           true_or_false(left) + ", " + true_or_false(right) +
           (tile_.warpgroups     ? std::string(", ") + true_or_false(parts_.is_turned()) + ", true>"
            : parts_.is_turned() ? ", true>"
                                 : ">");
  }

  void place() {
    const std::string row = form_.row_begin.to_string();
    const std::string column = form_.column_begin.to_string();
    line("const long long " + form_.batch.to_string() + " = tile / tiles;");
    line("long long " + row + ", " + column + ";");
    line("hd_place_tile(tile % tiles, row_tiles, column_tiles, " + row + ", " + column + ");");
    line(row + " *= " + number(tile_.rows) + ";");
    line(column + " *= " + number(tile_.columns) + ";");
  }

  /// A slot left over has no rows.
  void place_in_groups(const ProductGroups& groups) {
    const std::string row = form_.row_begin.to_string();
    const std::string end = groups.row_end.to_string();
    const std::string batch = form_.batch.to_string();
    line("long long " + batch + ", " + row + ", " + end + ";");
    line("const bool has_matrix = hd_place_in_groups<" + number(tile_.rows) + ">(" +
         buffer_name(nest_, groups.ends) + " + (" + index(groups.offset) + "), " +
         index(groups.stride) + ", " + index(groups.count) + ", rows, tile % row_tiles, " + batch +
         ", " + row + ", " + end + ");");
    line("if (" + row + " >= " + end + ") continue;");
    line("const long long " + groups.products.to_string() + " = has_matrix ? " +
         index(groups.depth) + " : 0;");
    line("const long long " + form_.column_begin.to_string() + " = tile / row_tiles * " +
         number(tile_.columns) + ";");
  }

  /// Where the rows of the tile's matrix, or group, end.
  std::string row_end() const { return form_.groups ? form_.groups->row_end.to_string() : "rows"; }

  /// @param from  where the depth begins, which runs along the operand's rows or columns
  std::string operand(const TileOperand& o, const std::string& from, bool along_rows) const {
    return buffer_name(nest_, o.buffer) + " + (" + index(o.base) + ") + " + from + " * (" +
           index(along_rows ? o.row_stride : o.column_stride) + "), " + index(o.row_stride) + ", " +
           index(o.column_stride);
  }

  /// The part of the depth that is this block's.
  void multiply() {
    const ContractStmt& contract = *parts_.contract;
    const std::string step = "hd_part_begin<" + number(tile_.part_depth()) + ">(";
    line("const long long depth = " + index(contract.depth) + ";");
    line("const long long begin = " + step + "depth, part, parts);");
    line("const long long end = " + step + "depth, part + 1, parts);");
    if (contract.b.windows) windows(contract.b);
    if (contract.b.dequantised) quantised(contract.b);
    const std::string right = contract.b.windows       ? "windows, (unsigned int)begin"
                              : contract.b.dequantised ? "quantised"
                                                       : operand(contract.b, "begin", true);
    line("Tile::Sum* const sums = " +
         std::string(contract.b.dequantised ? "hd_multiply_quantised<Tile>" : "Tile::multiply") +
         "(shared, " + operand(contract.a, "begin", false) + ", " + right + ", " + row_end() +
         " - " + form_.row_begin.to_string() + ", columns - " + form_.column_begin.to_string() +
         ", end - begin);");
  }

  /// The right matrix of bytes, or of words of a few bits, that stand for numbers.
  void quantised(const TileOperand& o) {
    const Dequantised& d = *o.dequantised;
    const auto type = [&](NestBufferId id) { return storage_type(nest_.buffers[id].dtype); };
    const auto part = [&](const Dequantised::Part& p) {
      return buffer_name(nest_, p.buffer) + " + (" + index(p.base) + "), " + index(p.row_stride) +
             ", " + index(p.column_stride);
    };
    const std::string beside = type(d.scale.buffer) + ", " +
                               (d.zero ? type(d.zero->buffer) : "hd_nothing") + ", " +
                               number(d.group);
    if (d.bits == 0) {
      line("const hd_quantised<" + type(o.buffer) + ", " + beside + "> quantised = {");
      line("    " + operand(o, "begin", true) + ",");
    } else {
      line("const hd_packed<" + beside + ", " + number(d.bits) + "> quantised = {");
      line("    " + buffer_name(nest_, o.buffer) + " + (" + index(o.base) + ") + begin / " +
           number(kWordBits / d.bits) + " * (" + index(o.row_stride) + "), " + index(o.row_stride) +
           ",");
    }
    line("    {" + part(d.scale) + ",");
    line("     " + (d.zero ? part(*d.zero) : "0, 0, 0") + ", (unsigned int)begin}};");
  }

  /// The right matrix; directions that it has not come first.
  void windows(const TileOperand& o) {
    const WindowAxis none{1, 1, 0, 1, 1, 1, 0};
    std::vector<WindowAxis> axes(kWindowAxes - o.windows->axes.size(), none);
    axes.insert(axes.end(), o.windows->axes.begin(), o.windows->axes.end());
    const auto list = [&](auto of) {
      std::string text;
      for (const WindowAxis& axis : axes) text += (text.empty() ? "" : ", ") + index(of(axis));
      return text;
    };
    const std::string taps = list([](const WindowAxis& a) { return SymExpr(a.taps); });
    const std::int64_t channels = o.windows->channels;
    line("const hd_windows<" + storage_type(parts_.right_dtype()) + ", " + taps +
         (channels == 0 ? "" : ", " + number(channels)) + "> windows = {");
    line("    " + buffer_name(nest_, o.buffer) + " + (" + index(o.base) + "), " +
         index(o.column_stride) + ", " + index(o.row_stride) + ", " + index(o.windows->first) +
         ",");
    line("    {" + list([](const WindowAxis& a) { return a.windows; }) + "}, {" +
         list([](const WindowAxis& a) { return a.size; }) + "}, {" +
         list([](const WindowAxis& a) { return a.memory_stride; }) + "},");
    line("    {" + list([](const WindowAxis& a) { return SymExpr(a.stride); }) + "}, {" +
         list([](const WindowAxis& a) { return SymExpr(a.pad); }) + "}, {" +
         list([](const WindowAxis& a) { return SymExpr(a.dilation); }) + "},");
    const auto& outside = o.windows->outside;
    line("    " +
         (outside ? buffer_name(nest_, outside->buffer) + "[" + index(outside->index) + "]"
                  : storage_type(parts_.right_dtype()) + "()") +
         "};");
  }

  void join() {
    open("if (parts != 1)");
    line("Tile::Sum* const of_tile = (Tile::Sum*)scratch + tile * parts * " +
         number(std::int64_t{tile_.rows} * tile_.columns) + ";");
    line("const int count = (int)hd_smaller(" + number(tile_.rows) + ", rows - " +
         form_.row_begin.to_string() + ");");
    line("if (!hd_join_parts<Tile::Sum, " + number(tile_.columns) + ", Tile::line, " +
         number(tile_.threads()) +
         ">(sums, of_tile, counters + tile, part, parts, count)) return;");
    close();
  }

  void elements() {
    Block block;
    for (const auto* list : {&parts_.before, &parts_.of_row})
      for (const Stmt* statement : *list) block.push_back(*statement);
    block.insert(block.end(), parts_.columns->body->begin(), parts_.columns->body->end());
    // Neighbours of neighbouring threads lie in few banks along columns of sums, and where rows of sums have an odd length.
    const bool odd = is_byte(parts_.left_dtype()) && parts_.right() == Along::Rows;
    const ElementText wide(nest_, parts_.is_turned() ? parts_.rows->axis : parts_.columns->axis,
                           block,
                           parts_.is_turned() ? 2
                           : odd              ? 1
                                              : 8,
                           parts_.contract->acc);
    const int least = tile_.rows * tile_.columns / tile_.threads();
    const bool has_neighbours = wide.width() > 1 && wide.width() <= least;
    if (has_neighbours) {
      open("if (" +
           wide.are_aligned(parts_.is_turned() ? parts_.columns->axis : parts_.rows->axis) + ")");
      neighbours(wide);
      close();
      open("else");
    }
    one_by_one(block);
    if (has_neighbours) close();
  }

  void one_by_one(const Block& block) {
    const std::string row = parts_.rows->axis.to_string();
    const std::string column = parts_.columns->axis.to_string();
    const std::string columns = number(tile_.columns);
    open("for (int e = threadIdx.x; e < " + number(std::int64_t{tile_.rows} * tile_.columns) +
         "; e += " + number(tile_.threads()) + ")");
    const bool turned = parts_.is_turned();
    const std::string inner = turned ? number(tile_.rows) : columns;
    line("const long long " + (turned ? column : row) + " = e / " + inner + ";");
    line("const long long " + (turned ? row : column) + " = e % " + inner + ";");
    line("if (" + row + " >= " + row_end() + " - " + form_.row_begin.to_string() + " || " + column +
         " >= columns - " + form_.column_begin.to_string() + ") continue;");
    StatementEmitter statements(nest_, Mapping::Flat, {});
    statements.replace_loads(parts_.contract->acc, sum_at(row + " * Tile::line + " + column));
    text_ += statements.emit(block, depth_);
    close();
  }

  std::string sum_at(const std::string& place) const {
    return "(" + compute_type(parts_.contract->dtype) + ")sums[" + place + "]";
  }

  /// Several neighbours at a time.
  void neighbours(const ElementText& elements) {
    const bool turned = parts_.is_turned();
    const Symbol outer = turned ? parts_.columns->axis : parts_.rows->axis;
    const std::string width = number(elements.width());
    const std::string inner = number(turned ? tile_.rows : tile_.columns);
    open("for (int e = " + width + " * threadIdx.x; e < " +
         number(std::int64_t{tile_.rows} * tile_.columns) +
         "; e += " + number(std::int64_t{elements.width()} * tile_.threads()) + ")");
    line("const long long " + outer.to_string() + " = e / " + inner + ";");
    line("const int first = e % " + inner + ";");
    const std::string rows_there = row_end() + " - " + form_.row_begin.to_string();
    const std::string columns_there = "columns - " + form_.column_begin.to_string();
    line("const long long left = " + (turned ? rows_there : columns_there) + " - first;");
    line("if (" + outer.to_string() + " >= " + (turned ? columns_there : rows_there) +
         " || left <= 0) continue;");
    StatementEmitter statements(nest_, Mapping::Flat, {});
    const std::string row = parts_.rows->axis.to_string();
    const std::string column = parts_.columns->axis.to_string();
    const std::string place = row + " * Tile::line + " + column;
    // Those of a row are read several at once.
    const std::string prepare =
        turned ? std::string()
               : "hd_lanes<Tile::Sum, " + width + "> own;\n" +
                     std::string(2 * static_cast<std::size_t>(depth_ + 2), ' ') +
                     "hd_read_sums<Tile::line>(own, sums + " + row + " * Tile::line + first);";
    text_ += elements.text(
        statements, depth_, "first", "left", prepare,
        turned ? sum_at(place) : "(" + compute_type(parts_.contract->dtype) + ")own.at[lane]",
        sum_at(place));
    close();
  }

  const ProductParts& parts_;
  const Nest& nest_;
  const ProductForm& form_;
  const ProductTile& tile_;
};

/// kernel_head()'s. Rows are a matter of memory, whose reads many threads cover, or fewer that have more of them under way. A block that gathers waits for memory between
/// its products: two large ones have to fit, for which the assembler has to do with fewer registers than it would take. It can
/// without spills, but for bytes, each of which has a register of its own until a word is made of four.
int least_threads(const ProductParts& parts, const ProductTile& tile) {
  if (tile.kind == ProductTile::Kind::Rows && tile.rows == 1)
    return parts.right_bits() != 0 ? kTileThreads : 3 * kTileThreads / 2;
  if (tile.kind == ProductTile::Kind::Rows) return parts.stored_bits() == 0 ? kTileThreads : 0;
  if (tile.warpgroups) return tile.columns == 256 ? 0 : tile.rows == 64 ? 384 : 512;
  const bool large = tile.kind == ProductTile::Kind::Tensor && tile.threads() == 256;
  const bool gathers = parts.right() == Along::Windows && !is_byte(parts.right_dtype());
  const bool copies = (parts.right() == Along::Rows || parts.right() == Along::Columns) &&
                      !parts.contract->b.dequantised;
  if (large) return gathers || copies ? kTileThreads : 0;
  // What is gathered waits in registers.
  return parts.right() == Along::Windows ? 3 * kTileThreads / 4 : kTileThreads;
}

}  // namespace

std::int64_t ProductParts::right_bits() const {
  return contract->b.dequantised ? contract->b.dequantised->bits : 0;
}

std::int64_t ProductParts::stored_bits() const {
  if (!contract->b.dequantised) return 0;
  return right_bits() != 0 ? right_bits() : 8 * static_cast<std::int64_t>(size_of(right_dtype()));
}

Along ProductParts::left() const { return along(contract->a); }
Along ProductParts::right() const { return along(contract->b); }

bool ProductParts::is_turned() const {
  int by_row = 0;
  int by_column = 0;
  const auto count = [&](const SymExpr& index) {
    if (!index.mentions(rows->axis) || !index.mentions(columns->axis)) return;
    const auto is_along = [&](Symbol axis) {
      const auto linear = index.linear_in(axis);
      return linear && linear->coefficient.is_constant(1);
    };
    by_row += is_along(rows->axis) ? 1 : 0;
    by_column += is_along(columns->axis) ? 1 : 0;
  };
  for (const Stmt& statement : *columns->body) {
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    if (load != nullptr && load->buffer < nest->global_count()) count(load->index);
    if (const auto* store = std::get_if<StoreStmt>(&statement.node)) count(store->index);
  }
  return by_row > by_column;
}

std::int64_t ProductParts::window_overlap() const {
  if (!contract->b.windows) return 0;
  std::int64_t overlap = 1;
  for (const WindowAxis& axis : contract->b.windows->axes)
    overlap *= std::max<std::int64_t>(1, axis.taps / axis.stride);
  return overlap;
}

std::optional<ProductParts> product_parts(const Nest& nest) {
  return nest.product ? ProductFinder(nest).run() : std::nullopt;
}

CudaSource emit_product(const ProductParts& parts, const ProductTile& tile,
                        const CudaOptions& options) {
  const Nest& nest = *parts.nest;
  const ProductForm& form = *nest.product;
  CudaSource source;
  source.variant = tile.name();
  source.entry = entry_name(nest.name + "_" + source.variant);
  source.block_threads = static_cast<std::uint32_t>(tile.threads());
  source.dynamic_shared_bytes =
      tile.shared_bytes(static_cast<std::int64_t>(size_of(parts.left_dtype())));
  source.part_bytes = tile.part_bytes();
  source.blocks =
      min(form.batches * form.row_tiles(tile.rows) * ceildiv(form.columns, tile.columns),
          options.max_blocks);
  source.kernel =
      kernel_head(source, parameters_text(nest, true, true), least_threads(parts, tile)) +
      ProductWriter(parts, tile).body() + "}\n";
  source.text = prelude_for(source.kernel) + source.kernel;
  return source;
}

}  // namespace heddle::jit::cuda
