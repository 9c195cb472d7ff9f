#include "jit/cuda/attention_text.h"

#include <algorithm>
#include <numbers>
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

constexpr std::int64_t kKeys = AttentionForm::kKeys;
/// In a kernel's text, the first tile of keys that a block meets.
constexpr const char* kFirst = "first";
/// And a row of the tile of queries.
constexpr const char* kRow = "row";

/// Writes one kernel.
class AttentionWriter : private TextWriter {
 public:
  AttentionWriter(const AttentionParts& parts, const AttentionTile& tile)
      : parts_(parts),
        nest_(*parts.nest),
        form_(*parts.nest->attention),
        tile_(tile),
        statements_(nest_, Mapping::Flat, {}) {
    statements_.replace_loads(parts.scores->acc, "score");
    statements_.replace_loads(form_.totals, std::string("sums[Tile::total_at + ") + kRow + "]");
    statements_.replace_loads(parts.sums->acc, std::string("sums[") + kRow + " * Tile::line + " +
                                                   parts.columns->axis.to_string() + "]");
  }

  std::string body() {
    line("unsigned char* const shared = hd_dynamic_shared();");
    line("typedef " + tile_type() + " Tile;");
    line("const long long queries = " + index(form_.queries) + ";");
    line("const long long keys = " + index(form_.keys) + ";");
    line("const long long rows = queries * " + number(parts_.group) + ";");
    line("const long long heads = " + index(floordiv(form_.heads, parts_.group)) + ";");
    line("const long long row_tiles = (rows + " + number(tile_.rows() - 1) + ") / " +
         number(tile_.rows()) + ";");
    line("const long long places = row_tiles * heads * (" + index(form_.batches) + ");");
    if (tile_.parts_keys()) {
      line("unsigned int parts;");
      line("const unsigned int part = hd_part_of_block(places, parts);");
    } else {
      line("const unsigned int part = 0, parts = 1;");
    }
    if (tile_.warpgroups) {
      line("Tile::prepare(shared);");
      line("unsigned int turn = 0;");
    }
    open("for (long long place = blockIdx.x - part * places; place < places; place += gridDim.x)");
    begin();
    tile_.warpgroups ? steps() : tiles();
    line("float* const sums = tile.finish(shared);");
    join();
    elements();
    line("__syncthreads();");
    close();
    return std::move(text_);
  }

 private:
  std::string index(const SymExpr& expr) const { return index_text(expr, nest_.facts); }
  void unrolled(const std::string& head) {
    line("#pragma unroll");
    open(head);
  }
  void scalars(const std::vector<const Stmt*>& list) {
    Block block;
    for (const Stmt* statement : list) block.push_back(*statement);
    text_ += statements_.emit(block, depth_);
  }
  /// Where the matrix of a contraction begins at tile `tile` of the keys.
  std::string matrix(const TileOperand& operand, const SymExpr& tile) const {
    return buffer_name(nest_, operand.buffer) + " + (" +
           index(operand.base.substitute({{parts_.tiles->axis, tile}})) + ")";
  }

  std::string tile_type() const {
    const std::string sizes = number(tile_.depth) + ", " + number(tile_.columns) + ", ";
    if (tile_.plain) return "hd_plain_attention_tile<" + sizes + number(tile_.rows()) + ">";
    const std::string type = storage_type(parts_.dtype()) + ", ";
    if (tile_.warpgroups)
      return "hd_warpgroup_attention_tile<" + type + number(tile_.depth) + ", " +
             number(tile_.columns) + ">";
    return "hd_attention_tile<" + type + sizes + number(tile_.row_tiles) + ", " +
           number(tile_.warp_rows) + ", " + number(tile_.warp_keys) + ">";
  }

  /// The place, the queries and the first keys. Rows of a tile are all queries of a group's heads, each query's of all heads side
  /// by side; `member` is the first one's number among those of its query.
  void begin() {
    const std::string group = number(parts_.group);
    line("const long long " + form_.batch.to_string() + " = place / row_tiles / heads;");
    line("const long long first_head = place / row_tiles % heads * " + group + ";");
    line("const long long " + form_.head.to_string() + " = first_head;");
    // Under a causal mask later queries see more keys: their blocks begin first.
    line("const long long first_row = " +
         std::string(form_.causal ? "(row_tiles - 1 - place % row_tiles)" : "place % row_tiles") +
         " * " + number(tile_.rows()) + ";");
    line("const long long " + form_.row_begin.to_string() + " = first_row / " + group + ";");
    line("const int member = (int)(first_row % " + group + ");");
    scalars(parts_.before);
    line("const long long rows_left = rows - first_row;");
    line(std::string(hides_keys_ ? "" : "const ") + "long long seen = " +
         (form_.causal ? "hd_clamp((first_row + hd_smaller(rows_left, Tile::rows) - 1) / " + group +
                             " + 1 + keys - queries, 0, keys)"
                       : std::string("keys")) +
         ";");
    line("long long " + std::string(kFirst) + " = 0;");
    if (hides_keys_) skip_hidden();
    part_of_keys();
    fetch_queries();
    tile_.warpgroups ? begin_steps() : begin_tiles();
  }

  void begin_tiles() {
    open("");
    line("const long long " + parts_.tiles->axis.to_string() + " = " + kFirst + ";");
    // Where there are no tiles, the first one's number may be odd, and the queries lie in the second stage.
    fetch("0", SymExpr(parts_.tiles->axis));
    close();
    line("Tile tile;");
    line("tile.start(shared);");
  }

  /// The first steps' keys and values, as many as there are stages.
  void begin_steps() {
    line("const long long steps = tiles > " + std::string(kFirst) + " ? (tiles - " + kFirst +
         " + " + number(step() - 1) + ") / " + number(step()) + " : 1;");
    line("#pragma unroll 1");
    open("for (int step = 0; step < Tile::stages; ++step)");
    begin_step();
    fetch_step("step", SymExpr(parts_.tiles->axis));
    close();
    line("Tile tile;");
    line("tile.start();");
  }

  /// In a step: the nest's tile of keys that its own begins at.
  void begin_step() {
    line("const long long " + parts_.tiles->axis.to_string() + " = " + kFirst + " + " +
         number(step()) + " * step;");
  }

  void fetch_queries() {
    const bool shares = parts_.group != 1;
    const std::string type = storage_type(parts_.dtype());
    line("const " +
         (shares ? "hd_group_lines<" + type + ", " + number(parts_.group) : "hd_lines<" + type) +
         "> query = {" + matrix(parts_.scores->a, 0) + ", " + index(parts_.scores->a.row_stride) +
         (shares ? ", " + index(parts_.head_stride) + ", member" : std::string()) + "};");
    line("hd_fetch_queries<Tile>(shared, query, " + number(parts_.depth()) + ", rows_left);");
  }

  /// The query and the head of row kRow of the tile, and with `again` the scalars that are not the same for all heads of a group.
  void place_of_row(const Symbol& axis, const std::vector<const std::vector<const Stmt*>*>& again) {
    const std::string group = number(parts_.group);
    line("const long long " + axis.to_string() + " = (member + " + kRow + ") / " + group + ";");
    if (parts_.group == 1) return;
    line("const long long " + form_.head.to_string() + " = first_head + (member + " + kRow +
         ") % " + group + ";");
    if (of_heads_)
      for (const auto* list : again) scalars(*list);
  }

  /// Whether scalars outside the rows are not the same for all heads of a group.
  bool of_heads() const {
    if (parts_.group == 1) return false;
    Block all;
    for (const auto* list : {&parts_.before, &parts_.of_tile})
      for (const Stmt* statement : *list) all.push_back(*statement);
    return std::ranges::any_of(expressions_of(all),
                               [&](const SymExpr& expr) { return expr.mentions(form_.head); });
  }

  /// The tiles of keys that are this block's, of those that are seen. The first one, where there is one, is even: the queries lie
  /// where the second stage is.
  void part_of_keys() {
    const std::string first = kFirst;
    const std::string begin = "hd_part_begin<" + number(AttentionTile::kPartTiles) + ">(";
    line("const long long tiles_seen = (seen + " + number(kKeys - 1) + ") / " + number(kKeys) +
         " - " + first + ";");
    line("const long long tiles = " + first + " + " + begin + "tiles_seen, part + 1, parts);");
    line(first + " += " + begin + "tiles_seen, part, parts);");
  }

  /// Whether which keys are hidden is the same for all queries of a block, as a mask of lengths is.
  bool hides_keys() const {
    if (!form_.masked || form_.causal) return false;
    Block all;
    for (const Stmt& statement : *parts_.score_columns->body) {
      const auto* load = std::get_if<LoadStmt>(&statement.node);
      const bool is_score = load != nullptr && load->buffer == parts_.scores->acc;
      if (!is_score && !std::holds_alternative<StoreStmt>(statement.node)) all.push_back(statement);
    }
    for (const auto* list : {&parts_.before, &parts_.of_tile, &parts_.of_score_row})
      for (const Stmt* statement : *list) all.push_back(*statement);
    return std::ranges::none_of(expressions_of(all), [&](const SymExpr& expr) {
      return expr.mentions(parts_.score_rows->axis) || expr.mentions(form_.row_begin) ||
             (parts_.group != 1 && expr.mentions(form_.head));
    });
  }

  /// Tiles before the first key that is seen and behind the last are not read: the nest's expressions on a score of 0 say
  /// which are hidden whatever their score is. The first tile is an even one, whose stage the queries leave free.
  void skip_hidden() {
    const std::string first = kFirst;
    line(first + " = keys;");
    line("long long last = 0;");
    open("for (long long key = threadIdx.x; key < seen; key += " + number(tile_.threads()) + ")");
    line("const long long " + parts_.tiles->axis.to_string() + " = key / " + number(kKeys) + ";");
    line("const long long " + parts_.score_columns->axis.to_string() + " = key % " + number(kKeys) +
         ";");
    line("const float score = 0.0f;");
    scalars(parts_.of_tile);
    scalars(parts_.of_score_row);
    score();
    open("if (hd_as_exponent(v" + std::to_string(parts_.score->operand) + ") != -hd_infinity())");
    line(first + " = hd_smaller(" + first + ", key);");
    line("last = key + 1;");
    close();
    close();
    line(first + " = hd_block_reduce<hd_minimum>(" + first + ", shared);");
    line("seen = hd_block_reduce<hd_maximum>(last, shared);");
    line("__syncthreads();");
    const std::string step = number(AttentionTile::kPartTiles);
    line(first + " = " + first + " < seen ? " + first + " / (" + step + " * " + number(kKeys) +
         ") * " + step + " : 0;");
  }

  /// What becomes of `score`.
  void score() {
    Block block;
    for (const Stmt& statement : *parts_.score_columns->body)
      if (!std::holds_alternative<StoreStmt>(statement.node)) block.push_back(statement);
    text_ += statements_.emit(block, depth_);
  }

  /// Tiles of the nest that a tile of keys has here.
  std::int64_t step() const { return tile_.keys() / kKeys; }
  /// @param number  of the tile, which says what stage it goes to
  void fetch(const std::string& number_text, const SymExpr& tile) {
    const TileOperand& key = parts_.scores->b;
    const TileOperand& value = parts_.sums->b;
    const std::string lines = "hd_lines<" + storage_type(parts_.dtype()) + ">{";
    line("hd_fetch_keys<Tile>(shared, " + number_text + ", " + lines + matrix(key, tile) + ", " +
         index(key.column_stride) + "}, " + number(parts_.depth()) + ", " + lines +
         matrix(value, tile) + ", " + index(value.row_stride) + "}, " +
         number(parts_.value_columns()) + ", keys - (" + index(tile * kKeys) + "));");
  }

  /// What step `step_text` needs, whose keys are the nest's tile `tile` and what follows it in a tile here.
  void fetch_step(const std::string& step_text, const SymExpr& tile) {
    const TileOperand& key = parts_.scores->b;
    const TileOperand& value = parts_.sums->b;
    const SymExpr before = tile - step();
    const std::string lines = "hd_lines<" + storage_type(parts_.dtype()) + ">{";
    line("hd_fetch_step<Tile>(shared, turn + (unsigned int)(" + step_text + "), " + step_text +
         ", steps, " + lines + matrix(key, tile) + ", " + index(key.column_stride) + "}, " +
         number(parts_.depth()) + ", keys - (" + index(tile * kKeys) + "), " + lines +
         matrix(value, before) + ", " + index(value.row_stride) + "}, " +
         number(parts_.value_columns()) + ", keys - (" + index(before * kKeys) + "), " + step_text +
         " != 0 || query.is_wide());");
  }

  void tiles() {
    const std::string at = parts_.tiles->axis.to_string();
    line("#pragma unroll 1");
    open("for (long long " + at + " = " + kFirst + "; " + at + " < tiles; ++" + at + ")");
    line("Tile::arrive();");
    open("if (" + at + " + 1 < tiles)");
    fetch("(" + at + " + 1)", SymExpr(parts_.tiles->axis) + 1);
    close();
    line("tile.multiply_keys(shared, " + at + ");");
    exponents("");
    line("tile.weigh();");
    line("tile.multiply_values(shared, " + at + ");");
    close();
  }

  void steps() {
    const std::string turn = "turn + (unsigned int)step";
    const std::string multiply = "(shared, " + turn + ", step + 1 == steps);";
    open("");
    line("const int step = 0;");
    begin_step();
    line("tile.multiply_first" + multiply);
    exponents(parts_.tiles->axis.to_string() + " < tiles");
    line("tile.weigh(shared, " + turn + ");");
    close();
    line("#pragma unroll 1");
    open("for (long long step = 1; step < steps; ++step)");
    begin_step();
    line("tile.multiply_next" + multiply);
    exponents("");
    // Where the step before was there is room for the one after the next, once all are through with that.
    open("if (step + 2 <= steps)");
    line("Tile::wait_free(shared, " + turn + " - 1);");
    fetch_step("(step + 2)", SymExpr(parts_.tiles->axis) + 2 * step());
    close();
    line("tile.weigh(shared, " + turn + ");");
    close();
    line("tile.multiply_last(shared, turn + (unsigned int)steps);");
    line("turn += (unsigned int)steps + 1;");
  }

  /// Makes exponents of a tile's scores, those of hidden keys minus infinity.
  /// @param is_there  as text, where the tile may not be; else empty
  void exponents(const std::string& is_there) {
    const std::string at = parts_.tiles->axis.to_string();
    line("const int left = " + (is_there.empty() ? "" : is_there + " ? ") +
         "(int)hd_smaller(seen - " + number(kKeys) + " * " + at + ", " + number(tile_.keys()) +
         ")" + (is_there.empty() ? ";" : " : 0;"));
    if (form_.masked) return scores();
    line("tile.scale(" + constant_text(DType::F32, form_.scale * std::numbers::log2e, 0) + ");");
    // The last key that a row sees, as a number among those of the tile, may be before these.
    const std::string seen_by =
        form_.row_begin.to_string() + " + keys - queries - " + number(kKeys) + " * " + at;
    open("if (left != " + number(tile_.keys()) +
         (form_.causal ? " || " + seen_by + " < " + number(tile_.keys() - 1) : std::string()) +
         ")");
    unrolled("for (int r = 0; r < Tile::thread_rows; ++r)");
    if (form_.causal)
      line("const int last = (int)hd_clamp((member + hd_smaller(Tile::row(r), rows_left - 1)) / " +
           number(parts_.group) + " + " + seen_by + ", -1, left - 1);");
    else
      line("const int last = left - 1;");
    unrolled("for (int c = 0; c < Tile::thread_keys; ++c)");
    line("float& score = tile.score(r, c);");
    line("score = Tile::key(c) <= last ? score : -hd_infinity();");
    close();
    close();
    close();
  }

  /// The nest's expressions on each score of a tile. Rows that do not exist do as the last one.
  void scores() {
    scalars(parts_.of_tile);
    unrolled("for (int r = 0; r < Tile::thread_rows; ++r)");
    line(std::string("const int ") + kRow + " = (int)hd_smaller(Tile::row(r), rows_left - 1);");
    place_of_row(parts_.score_rows->axis, {&parts_.before, &parts_.of_tile});
    scalars(parts_.of_score_row);
    unrolled("for (int c = 0; c < Tile::thread_keys; ++c)");
    const std::string key = parts_.score_columns->axis.to_string();
    line("const long long " + key + " = Tile::key(c);");
    line("float& score = tile.score(r, c);");
    open("if (" + key + " < left)");
    score();
    line("score = hd_as_exponent(v" + std::to_string(parts_.score->operand) + ");");
    close();
    open("else");
    line("score = -hd_infinity();");
    close();
    close();
    close();
  }

  /// Of blocks that part the keys of a place, the last one goes on with all that they found.
  void join() {
    open("if (parts != 1)");
    line("float* const of_place = (float*)scratch + place * parts * " +
         number(tile_.part_bytes() / 4) + ";");
    line("const int count = (int)hd_smaller(rows_left, Tile::rows);");
    line("if (!hd_join_attention<Tile, " + number(parts_.value_columns()) +
         ">(sums, of_place, counters + place, part, parts, count)) return;");
    close();
  }

  void elements() {
    const std::string columns = number(parts_.value_columns());
    const ElementText wide(nest_, parts_.columns->axis, *parts_.columns->body, 8, parts_.sums->acc);
    const int width = parts_.value_columns() % wide.width() == 0 ? wide.width() : 1;
    open("for (int e = " + (width == 1 ? "" : number(width) + " * ") +
         "threadIdx.x; e < (int)hd_smaller(rows_left, Tile::rows) * " + columns +
         "; e += " + number(std::int64_t{width} * tile_.threads()) + ")");
    line(std::string("const int ") + kRow + " = e / " + columns + ";");
    place_of_row(parts_.rows->axis, {&parts_.before});
    const std::string column = parts_.columns->axis.to_string();
    line("const long long " + (width == 1 ? column : "first_column") + " = e % " + columns + ";");
    scalars(parts_.of_row);
    if (width == 1) {
      text_ += statements_.emit(*parts_.columns->body, depth_);
    } else {
      const std::string own = "hd_lanes<float, " + number(width) + "> own;\n" +
                              std::string(2 * static_cast<std::size_t>(depth_ + 2), ' ') +
                              "hd_read_sums<Tile::line>(own, sums + " + kRow +
                              " * Tile::line + first_column);";
      text_ += wide.text(statements_, depth_, "first_column", "(" + columns + " - first_column)",
                         own, "own.at[lane]",
                         std::string("sums[") + kRow + " * Tile::line + " + column + "]");
    }
    close();
  }

  const AttentionParts& parts_;
  const Nest& nest_;
  const AttentionForm& form_;
  const AttentionTile& tile_;
  StatementEmitter statements_;
  bool hides_keys_ = hides_keys();
  bool of_heads_ = of_heads();
};

/// kernel_head()'s: 168 registers are enough, but where a mask's expressions take some, heads are large, or a warp has two
/// tiles of rows. Of warpgroups with small tiles two blocks share a multiprocessor.
int least_threads(const AttentionTile& tile, bool masked) {
  if (tile.warpgroups) return tile.keys() == kKeys && !masked ? 2 * tile.threads() : 0;
  return tile.row_tiles == 1 && !masked && tile.depth + tile.columns <= 128 ? 384 : 256;
}

}  // namespace

CudaSource emit_attention(const AttentionParts& parts, const AttentionTile& tile,
                          const CudaOptions& options) {
  const Nest& nest = *parts.nest;
  const AttentionForm& form = *nest.attention;
  CudaSource source;
  source.variant = tile.name();
  source.entry = entry_name(nest.name + "_" + source.variant);
  source.block_threads = static_cast<std::uint32_t>(tile.threads());
  source.dynamic_shared_bytes = tile.shared_bytes();
  source.part_bytes = tile.part_bytes();
  source.blocks = min(form.batches * floordiv(form.heads, parts.group) *
                          ceildiv(form.queries * parts.group, tile.rows()),
                      options.max_blocks);
  source.kernel =
      kernel_head(source, parameters_text(nest, true, true), least_threads(tile, form.masked)) +
      AttentionWriter(parts, tile).body() + "}\n";
  source.text = prelude_for(source.kernel) + source.kernel;
  return source;
}

}  // namespace heddle::jit::cuda
