// Model files as engines.

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <span>
#include <string_view>

#include "engine/onnx/onnx.pb.h"
#include "engine/onnx/reader.h"
#include "engine/onnx/walker.h"
#include "heddle/error.h"
#include "heddle/frontend.h"
#include "heddle/onnx.h"

namespace heddle::onnx {

using onnx_format::TypeProto;
using onnx_format::ValueInfoProto;
using Clock = std::chrono::steady_clock;

NeedsValueError::NeedsValueError(Parts parts, std::string input)
    : UnsupportedError(std::move(parts)), input_(std::move(input)) {}
NeedsValueError::~NeedsValueError() = default;

namespace {

/// Gives each dim_param one symbol, and each size that is not named one of its own, or by a mark only: "?" is any.
class SizeNames {
 public:
  SymInt size_of(const onnx_format::TensorShapeProto::Dimension& dim, const std::string& where) {
    constexpr std::int64_t kAny = -1;  // as Paddle's exporter says it
    if (dim.has_dim_value() && dim.dim_value() >= 0) return dim.dim_value();
    if (dim.has_dim_value() && dim.dim_value() != kAny)
      throw ModelError({.what = "model: size of " + where,
                        .where = {},
                        .expected = "0 or more, or -1 for any",
                        .got = std::to_string(dim.dim_value())});
    const std::string& name = dim.dim_param();
    const bool is_name = std::ranges::any_of(
        name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c >= 0x80; });
    if (!is_name) return any();
    const auto [found, added] = ids_.emplace(name, next_);
    if (added) ++next_;
    return detail::size_symbol(found->second);
  }

  SymInt any() { return detail::size_symbol(next_++); }

 private:
  std::map<std::string, std::uint32_t> ids_;
  std::uint32_t next_ = 0;
};

/// The keys of the maps that a graph's output is, where ZipMap makes them.
std::optional<std::vector<std::string>> keys_of(const onnx_format::GraphProto& graph,
                                                const std::string& output) {
  const auto maker = std::ranges::find_if(graph.node(), [&](const onnx_format::NodeProto& node) {
    return node.op_type() == "ZipMap" && node.domain() == "ai.onnx.ml" && node.output_size() == 1 &&
           node.output(0) == output;
  });
  if (maker == graph.node().end()) return {};
  std::vector<std::string> keys;
  for (const auto& attribute : maker->attribute()) {
    if (!attribute.name().starts_with("classlabels_")) continue;
    keys.insert(keys.end(), attribute.strings().begin(), attribute.strings().end());
    for (const std::int64_t key : attribute.ints()) keys.push_back(std::to_string(key));
  }
  return keys;
}

ValueInfo info_of(const ValueInfoProto& proto, SizeNames& names, bool needs_shape) {
  if (!proto.type().has_tensor_type())
    throw UnsupportedError({.what = "model: type of " + proto.name(),
                            .where = {},
                            .expected = "a tensor",
                            .got = "a sequence, map, optional or sparse tensor"});
  const TypeProto::Tensor& type = proto.type().tensor_type();
  const bool is_text = is_string(type.elem_type());
  ValueInfo info{proto.name(), is_text ? i64 : dtype_of_onnx(type.elem_type(), proto.name()), {}};
  info.is_text = is_text;
  if (!type.has_shape() && needs_shape)
    throw UnsupportedError({.what = "model: input " + proto.name(),
                            .where = {},
                            .expected = "a declared number of dimensions",
                            .got = "an input of any rank"});
  for (const auto& dim : type.shape().dim()) info.sizes.push_back(names.size_of(dim, proto.name()));
  if (is_uncountable(info.sizes))
    throw ModelError({.what = "model: sizes of " + proto.name(),
                      .where = {},
                      .expected = "fewer than 2^63 elements",
                      .got = listed(info.sizes)});
  return info;
}

/// @param weights  of the initialisers, where they were not parsed; they lie in `file`, or go after this call
void read_parameters(Model& model, std::span<const std::string_view> weights,
                     const std::shared_ptr<const MappedFile>& file, const Constants& constants) {
  const auto& graph = model.proto->graph();
  if (graph.sparse_initializer_size() > 0)
    throw UnsupportedError(
        {.what = "model: sparse initialisers", .where = {}, .expected = "dense ones", .got = {}});
  for (int k = 0; k < graph.initializer_size(); ++k) {
    const auto& initializer = graph.initializer(k);
    const std::string where = "initialiser " + initializer.name();
    const auto at = static_cast<std::size_t>(k);
    if (is_string(initializer.data_type())) model.texts.insert(initializer.name());
    if (auto packing = packing_of(initializer))
      model.packings[initializer.name()] = std::move(*packing);
    model.parameters[initializer.name()] = at < weights.size() && !weights[at].empty()
                                               ? read_tensor(initializer, weights[at], file, where)
                                               : read_tensor(initializer, model.source, where);
  }
  for (const auto& [name, tensor] : constants) {
    model.parameters[name] = tensor;
    model.packings.erase(name);
  }
}

Signature read_signature(Model& model, const Constants& constants) {
  Signature signature;
  SizeNames names;
  signature.strings = model.source.strings;
  const auto& graph = model.proto->graph();
  for (const auto& input : graph.input()) {
    const bool is_text = is_string(input.type().tensor_type().elem_type());
    const auto parameter = model.parameters.find(input.name());
    if (parameter != model.parameters.end() && is_text && parameter->second.dtype() != i64) {
      const Error::Parts parts{.what = "model: the value of input " + input.name(),
                               .where = {},
                               .expected = "strings, or i64 that are their codes",
                               .got = std::string(name_of(parameter->second.dtype()))};
      if (constants.contains(input.name())) throw ArgumentError(parts);
      throw ModelError(parts);
    }
    if (is_text) model.texts.insert(input.name());
    if (parameter != model.parameters.end()) continue;
    signature.inputs.push_back(info_of(input, names, true));
    model.inputs.push_back(input.name());
    if (const auto bits = bits_of_onnx(input.type().tensor_type().elem_type()); bits != 0)
      model.input_bits[input.name()] = bits;
  }
  for (const auto& [name, tensor] : constants) {
    bool found = false;
    for (const auto& input : graph.input()) found = found || input.name() == name;
    if (!found)
      throw ArgumentError({.what = "onnx::load: constants",
                           .where = {},
                           .expected = "names of inputs",
                           .got = name});
  }
  for (const auto& output : graph.output()) {
    auto keys = keys_of(graph, output.name());
    if (!keys || output.type().has_tensor_type()) {
      signature.outputs.push_back(info_of(output, names, false));
      continue;
    }
    ValueInfo info{output.name(), f32, {names.any(), static_cast<std::int64_t>(keys->size())}};
    info.columns = std::move(*keys);
    signature.outputs.push_back(std::move(info));
  }
  return signature;
}

/// The folder that a path names and, where that is a link, the folder of what it leads to.
std::vector<std::string> folders_of(const std::string& path) {
  namespace fs = std::filesystem;
  const auto folder_of = [](const fs::path& file) {
    return file.has_parent_path() ? file.parent_path().string() : std::string(".");
  };
  std::vector<std::string> folders{folder_of(path)};
  std::error_code error;
  if (fs::is_symlink(path, error)) folders.push_back(folder_of(fs::canonical(path, error)));
  return folders;
}

/// @param file  where the model was parsed from; null: bytes that go after the call
Engine make_engine(ParsedModel parsed, const std::shared_ptr<const MappedFile>& file,
                   std::vector<std::string> folders, EngineOptions options,
                   const Constants& constants, Clock::time_point start) {
  auto model = std::make_shared<Model>();
  model->proto = std::move(parsed.proto);
  model->source = {std::move(folders), strings_of(*model->proto)};
  read_parameters(*model, parsed.weights, file, constants);
  Signature signature = read_signature(*model, constants);
  TraceFunction trace = [model](std::span<const Tensor> inputs) { return walk(*model, inputs); };
  Engine engine(Engine::FromTrace{}, std::move(trace), std::move(options), std::move(signature));
  for (const auto& [name, tensor] : model->parameters)
    if (!is_number(tensor)) detail::name_parameter(engine, name, tensor, true);
  detail::set_load_ms(engine,
                      std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  return engine;
}

}  // namespace

bool is_number(const Tensor& tensor) {
  if (tensor.rank() == 0) return true;
  return is_byte(tensor.dtype()) &&
         std::ranges::all_of(tensor.sizes(), [](std::int64_t size) { return size == 1; });
}

Engine load(const std::string& path, EngineOptions options, const Constants& constants) {
  const auto start = Clock::now();
  const auto file = map_file(path);
  return make_engine(parse_model(file->data(), file->size(), path), file, folders_of(path),
                     std::move(options), constants, start);
}

Engine load_bytes(const void* data, std::size_t size, EngineOptions options,
                  const std::string& folder, const Constants& constants) {
  const auto start = Clock::now();
  std::vector<std::string> folders;
  if (!folder.empty()) folders.push_back(folder);
  return make_engine(parse_model(data, size, "bytes"), nullptr, std::move(folders),
                     std::move(options), constants, start);
}

}  // namespace heddle::onnx
