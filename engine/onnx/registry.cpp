// All rows of the tables by domain and name.

#include <map>
#include <utility>

#include "engine/onnx/converters.h"

namespace heddle::onnx {

namespace {

using Table = std::map<std::string_view, const Converter*, std::less<>>;

Table table_of(std::initializer_list<std::span<const Converter>> families) {
  Table table;
  for (const auto family : families) {
    for (const Converter& row : family) table.emplace(row.name, &row);
  }
  return table;
}

}  // namespace

const Converter* find_converter(std::string_view domain, std::string_view name) {
  static const Table standard =
      table_of({pointwise_converters(), activation_converters(), reduce_converters(),
                shape_converters(),     slice_converters(),      creation_converters(),
                index_converters(),     window_converters(),     norm_converters(),
                matrix_converters(),    attention_converters(),  quantize_converters(),
                resize_converters(),    recurrent_converters(),  loss_converters(),
                select_converters(),    sample_converters(),     signal_converters(),
                region_converters(),    unpool_converters(),     deform_converters(),
                random_converters(),    sequence_converters(),   text_converters()});
  static const Table contrib =
      table_of({contrib_converters(), contrib_attention_converters(), contrib_quantize_converters(),
                contrib_recurrent_converters(), contrib_fused_converters(),
                contrib_qlinear_converters(), contrib_expert_converters()});
  static const Table classical =
      table_of({tree_converters(), svm_converters(), classical_converters()});
  const Table* table = nullptr;
  if (domain.empty() || domain == "ai.onnx") table = &standard;
  if (domain == "ai.onnx.ml") table = &classical;
  // ONNX Runtime writes this one without its domain.
  constexpr std::string_view kAtHome = "SimplifiedLayerNormalization";
  if (domain == "com.microsoft" || name == kAtHome) table = &contrib;
  if (table == nullptr) return nullptr;
  const auto found = table->find(name);
  return found == table->end() ? nullptr : found->second;
}

}  // namespace heddle::onnx
