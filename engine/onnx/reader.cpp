#include "engine/onnx/reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <span>

#include "engine/onnx/lean_model.h"
#include "engine/onnx/node_order.h"
#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"
#include "heddle/onnx.h"

namespace heddle::onnx {

using onnx_format::ModelProto;
using onnx_format::TensorProto;

namespace {

[[noreturn]] void fail(std::string what, const std::string& where, std::string expected,
                       std::string got) {
  throw ModelError({.what = std::move(what),
                    .where = where,
                    .expected = std::move(expected),
                    .got = std::move(got)});
}

constexpr std::int64_t kNewestOpset = 28;

void check_opsets(const ModelProto& model, const std::string& where) {
  for (const auto& import : model.opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") {
      if (import.version() < 1 || import.version() > kNewestOpset)
        fail("model: opset", where, "1 to " + std::to_string(kNewestOpset),
             std::to_string(import.version()));
    }
  }
}

/// Every value is defined once, before its uses; a nested graph may call its own by names from around it.
/// @param known  values around the graph
/// @param constants  initialisers, the last ones, that were nodes
void check_order(const onnx_format::GraphProto& graph, std::set<std::string> known,
                 const std::string& where, std::size_t constants = 0) {
  std::set<std::string> own;
  const auto define = [&](const std::string& name, const std::string& by) {
    known.insert(name);
    if (!name.empty() && !own.insert(name).second)
      fail("model: value defined twice", where, "one definition of each value", name + by);
  };
  for (const auto& input : graph.input()) define(input.name(), " (graph input)");
  const auto initializers = static_cast<std::size_t>(graph.initializer_size());
  for (std::size_t k = 0; k < initializers; ++k) {
    const std::string& name = graph.initializer(static_cast<int>(k)).name();
    if (k + constants < initializers) {
      known.insert(name);
      own.insert(name);
    } else {
      define(name, " (a Constant)");
    }
  }
  std::set<std::string> later;
  for (const auto& node : graph.node()) later.insert(node.output().begin(), node.output().end());
  for (const auto& node : graph.node()) {
    for (const std::string& input : node.input()) {
      if (input.empty() || known.contains(input)) continue;
      const bool circular = later.contains(input);
      fail("model: node " + node.name() + " (" + node.op_type() + ")", where,
           circular ? "no cycle of nodes" : "inputs that the model defines",
           circular ? input + ", which depends on what the node makes" : input);
    }
    for (const std::string& output : node.output()) define(output, " (node " + node.name() + ")");
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) check_order(attribute.g(), known, where);
    }
  }
  for (const auto& output : graph.output()) {
    if (!known.contains(output.name()))
      fail("model: graph output", where, "a value that the model defines", output.name());
  }
}

std::int64_t checked_count(const TensorProto& proto, const std::string& where) {
  bool is_empty = false;
  std::int64_t extent = 1;  // as if no size were 0: what strides are made of
  for (const std::int64_t dim : proto.dims()) {
    is_empty = is_empty || dim == 0;
    if (dim < 0 || __builtin_mul_overflow(extent, std::max<std::int64_t>(dim, 1), &extent) ||
        extent > (std::int64_t{1} << 48))
      fail("tensor " + proto.name() + ": size", where, "sizes of 0 to 2^48 elements in all",
           std::to_string(dim));
  }
  return is_empty ? 0 : extent;
}

/// The absolute path of an external file, links resolved, which must lie inside one of the folders.
std::string external_path(const std::string& location, std::span<const std::string> folders,
                          const std::string& where) {
  namespace fs = std::filesystem;
  if (folders.empty()) fail("external data", where, "a model with a folder", location);
  const auto is_inside = [&](const fs::path& file) {
    return std::ranges::any_of(folders, [&](const std::string& folder) {
      std::error_code error;
      const fs::path relative = file.lexically_relative(fs::canonical(folder, error));
      return !error && !relative.empty() && *relative.begin() != "..";
    });
  };
  fs::path first;
  for (const std::string& folder : folders) {
    std::error_code error;
    const fs::path file = fs::weakly_canonical(fs::path(folder) / location, error);
    if (error || fs::path(location).is_absolute() || !is_inside(file))
      fail("external data", where, "a path inside the model's folder", location);
    if (fs::exists(file, error)) return file.string();
    if (first.empty()) first = file;
  }
  return first.string();
}

std::int64_t parse_number(const std::string& text, const std::string& where) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (errno != 0 || end == text.c_str() || *end != 0 || value < 0)
    fail("external data", where, "a number >= 0", text);
  return value;
}

Tensor read_external(const TensorProto& proto, DType dtype, Sizes sizes, std::int64_t bytes,
                     std::span<const std::string> folders, const std::string& where) {
  std::string location;
  std::int64_t offset = 0;
  std::int64_t length = -1;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = parse_number(entry.value(), where);
    if (entry.key() == "length") length = parse_number(entry.value(), where);
  }
  auto file = map_file(external_path(location, folders, where));
  const auto size = static_cast<std::int64_t>(file->size());
  if (length >= 0 && length != bytes)
    fail("tensor " + proto.name() + ": external length", where, std::to_string(bytes) + " bytes",
         std::to_string(length));
  if (offset > size || bytes > size - offset)
    fail("tensor " + proto.name() + ": external data", where,
         std::to_string(bytes) + " bytes at offset " + std::to_string(offset),
         "a file of " + std::to_string(size) + " bytes");
  return Tensor::wrap_bytes(file->data() + offset, dtype, std::move(sizes), [file](void*) {});
}

void check_raw_size(const TensorProto& proto, std::int64_t got, std::int64_t wanted,
                    const std::string& where) {
  if (got != wanted)
    fail("tensor " + proto.name() + ": raw data", where, std::to_string(wanted) + " bytes",
         std::to_string(got));
}

template <typename T, typename Field>
void copy_field(const Field& field, void* data, std::int64_t count, const TensorProto& proto,
                const std::string& where) {
  if (field.size() != count)
    fail("tensor " + proto.name() + ": number of values", where, std::to_string(count),
         std::to_string(field.size()));
  for (std::int64_t k = 0; k < count; ++k)
    static_cast<T*>(data)[k] = static_cast<T>(field.Get(static_cast<int>(k)));
}

void copy_values(const TensorProto& proto, DType dtype, void* data, std::int64_t count,
                 const std::string& where) {
  switch (dtype) {
    case DType::F32:
      return copy_field<float>(proto.float_data(), data, count, proto, where);
    case DType::F64:
      return copy_field<double>(proto.double_data(), data, count, proto, where);
    case DType::I64:
      return copy_field<std::int64_t>(proto.int64_data(), data, count, proto, where);
    case DType::I32:
      return copy_field<std::int32_t>(proto.int32_data(), data, count, proto, where);
    case DType::I16:
      return copy_field<std::int16_t>(proto.int32_data(), data, count, proto, where);
    case DType::I8:
      return copy_field<std::int8_t>(proto.int32_data(), data, count, proto, where);
    case DType::F16:
    case DType::BF16:
      return copy_field<std::uint16_t>(proto.int32_data(), data, count, proto, where);
    case DType::U16:
      return copy_field<std::uint16_t>(proto.int32_data(), data, count, proto, where);
    case DType::U32:
      return copy_field<std::uint32_t>(proto.uint64_data(), data, count, proto, where);
    case DType::U64:
      return copy_field<std::uint64_t>(proto.uint64_data(), data, count, proto, where);
    case DType::U8:
    case DType::Bool:
    case DType::F8E4M3FN:
    case DType::F8E4M3FNUZ:
    case DType::F8E5M2:
    case DType::F8E5M2FNUZ:
    case DType::F8E8M0FNU:
      return copy_field<std::uint8_t>(proto.int32_data(), data, count, proto, where);
  }
}

}  // namespace

DType dtype_of_onnx(int data_type, const std::string& where) {
  switch (data_type) {
    case TensorProto::FLOAT:
      return f32;
    case TensorProto::UINT8:
    case TensorProto::UINT4:
    case TensorProto::UINT2:
      return u8;
    case TensorProto::INT8:
    case TensorProto::INT4:
    case TensorProto::INT2:
      return i8;
    case TensorProto::INT16:
      return i16;
    case TensorProto::INT32:
      return i32;
    case TensorProto::INT64:
      return i64;
    case TensorProto::UINT16:
      return u16;
    case TensorProto::UINT32:
      return u32;
    case TensorProto::UINT64:
      return u64;
    case TensorProto::BOOL:
      return boolean;
    case TensorProto::FLOAT16:
      return f16;
    case TensorProto::DOUBLE:
      return f64;
    case TensorProto::BFLOAT16:
      return bf16;
    case TensorProto::FLOAT8E4M3FN:
    case TensorProto::FLOAT4E2M1:
      return f8e4m3fn;
    case TensorProto::FLOAT8E4M3FNUZ:
      return f8e4m3fnuz;
    case TensorProto::FLOAT8E5M2:
      return f8e5m2;
    case TensorProto::FLOAT8E5M2FNUZ:
      return f8e5m2fnuz;
    case TensorProto::FLOAT8E8M0:
      return f8e8m0fnu;
    default:
      break;
  }
  const bool known = TensorProto::DataType_IsValid(data_type);
  throw UnsupportedError(
      {.what = "ONNX element type",
       .where = where,
       .expected = "float, double, float16, bfloat16, a float of 8 or 4 bits, int2, uint2, int4, "
                   "uint4, int8, uint8, int16, uint16, int32, uint32, int64, uint64 or bool",
       .got = known ? TensorProto::DataType_Name(static_cast<TensorProto::DataType>(data_type))
                    : std::to_string(data_type)});
}

std::int64_t bits_of_onnx(int data_type) {
  const bool has_two = data_type == TensorProto::INT2 || data_type == TensorProto::UINT2;
  const bool has_four = data_type == TensorProto::INT4 || data_type == TensorProto::UINT4 ||
                        data_type == TensorProto::FLOAT4E2M1;
  return has_two ? 2 : has_four ? 4 : 0;
}

std::optional<Packing> packing_of(const TensorProto& proto) {
  const std::int64_t bits = bits_of_onnx(proto.data_type());
  if (bits == 0) return {};
  const bool is_signed =
      proto.data_type() == TensorProto::INT2 || proto.data_type() == TensorProto::INT4;
  return Packing{bits,
                 is_signed,
                 proto.data_type() == TensorProto::FLOAT4E2M1,
                 {proto.dims().begin(), proto.dims().end()}};
}

std::shared_ptr<const MappedFile> map_file(const std::string& path) {
  std::string reason;
  auto file = MappedFile::open(path, reason);
  if (file == nullptr) fail("read " + path, {}, "a file", reason);
  return file;
}

ParsedModel parse_model(const void* data, std::size_t size, const std::string& where) {
  auto model = std::make_shared<ModelProto>();
  if (size > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    fail("model", where, "at most 2 GiB of protobuf (weights as external data)",
         std::to_string(size) + " bytes");
  const auto lean = without_weights({static_cast<const char*>(data), size});
  const std::string_view bytes =
      lean ? std::string_view(lean->bytes) : std::string_view(static_cast<const char*>(data), size);
  if (!model->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !model->has_graph())
    fail("model", where, "an ONNX model", "bytes that do not parse as one");
  check_opsets(*model, where);
  sort_nodes(*model->mutable_graph());
  check_order(model->graph(), {}, where, lean ? lean->constants : 0);
  return {std::move(model), lean ? lean->weights : std::vector<std::string_view>()};
}

namespace {

/// What lies in memory for a tensor.
struct Stored {
  DType dtype;
  Sizes sizes;
  std::int64_t count;
};

Stored stored_as(const TensorProto& proto, const std::string& where) {
  const DType dtype = dtype_of_onnx(proto.data_type(), where);
  const std::int64_t count = checked_count(proto, where);
  if (const std::int64_t bits = bits_of_onnx(proto.data_type()); bits != 0) {
    const std::int64_t bytes = (count * bits + 7) / 8;
    return {u8, {bytes}, bytes};
  }
  return {dtype, Sizes(proto.dims().begin(), proto.dims().end()), count};
}

}  // namespace

Tensor read_tensor(const TensorProto& proto, std::string_view raw,
                   std::shared_ptr<const MappedFile> file, const std::string& where) {
  auto [dtype, sizes, count] = stored_as(proto, where);
  const std::int64_t bytes = count * static_cast<std::int64_t>(size_of(dtype));
  check_raw_size(proto, static_cast<std::int64_t>(raw.size()), bytes, where);
  if (file != nullptr)
    return Tensor::wrap_bytes(raw.data(), dtype, std::move(sizes), [file](void*) {});
  Tensor tensor = Tensor::empty(dtype, std::move(sizes));
  std::memcpy(tensor.data(), raw.data(), raw.size());
  return tensor;
}

namespace {

/// @param code_of  a string
template <typename CodeOf>
Tensor read_strings(const TensorProto& proto, const std::string& where, CodeOf&& code_of) {
  const std::int64_t count = checked_count(proto, where);
  if (count != proto.string_data_size())
    fail("tensor " + proto.name() + ": number of values", where, std::to_string(count),
         std::to_string(proto.string_data_size()));
  Tensor codes = Tensor::empty(i64, Sizes(proto.dims().begin(), proto.dims().end()));
  for (int k = 0; k < proto.string_data_size(); ++k)
    codes.data_as<std::int64_t>()[k] = code_of(proto.string_data(k));
  return codes;
}

}  // namespace

bool is_string(int data_type) { return data_type == TensorProto::STRING; }

Tensor read_tensor(const TensorProto& proto, const TensorSource& source, const std::string& where) {
  if (is_string(proto.data_type()))
    return read_strings(proto, where,
                        [&](const std::string& text) { return source.code_of(text); });
  auto [dtype, sizes, count] = stored_as(proto, where);
  const std::int64_t bytes = count * static_cast<std::int64_t>(size_of(dtype));
  if (proto.data_location() == TensorProto::EXTERNAL)
    return read_external(proto, dtype, std::move(sizes), bytes, source.folders, where);
  if (proto.has_raw_data()) {
    check_raw_size(proto, static_cast<std::int64_t>(proto.raw_data().size()), bytes, where);
    Tensor tensor = Tensor::empty(dtype, std::move(sizes));
    if (bytes != 0) std::memcpy(tensor.data(), proto.raw_data().data(), proto.raw_data().size());
    return tensor;
  }
  // Values given one by one bound the allocation by the size of the message.
  if (count > static_cast<std::int64_t>(proto.ByteSizeLong()) * 8)
    fail("tensor " + proto.name() + ": number of values", where, std::to_string(count), "fewer");
  Tensor tensor = Tensor::empty(dtype, std::move(sizes));
  copy_values(proto, dtype, tensor.data(), count, where);
  return tensor;
}

Value read_constant(const TensorProto& proto, const TensorSource& source,
                    const std::string& where) {
  Tensor tensor = read_tensor(proto, source, where);
  if (is_string(proto.data_type())) return Value(std::move(tensor)).as_text();
  if (auto packing = packing_of(proto)) return Value::of_packed(std::move(tensor), *packing);
  return Value::of_constant(std::move(tensor));
}

namespace {

Tensor load_tensor(const std::string& path, StringCodes* codes) {
  const std::shared_ptr<const MappedFile> file = map_file(path);
  TensorProto proto;
  if (!proto.ParseFromArray(file->data(), static_cast<int>(file->size())))
    fail("read " + path, {}, "an ONNX TensorProto", "bytes that do not parse as one");
  if (is_string(proto.data_type()) && codes != nullptr)
    return read_strings(proto, path, [&](const std::string& text) { return codes->code_of(text); });
  dtype_of_onnx(proto.data_type(), path);  // refuses strings
  const Tensor tensor = read_tensor(proto, TensorSource(), path);
  const auto packing = packing_of(proto);
  return packing ? unpacked(tensor, *packing) : tensor;
}

}  // namespace

Tensor load_tensor(const std::string& path) { return load_tensor(path, nullptr); }
Tensor load_tensor(const std::string& path, StringCodes& codes) {
  return load_tensor(path, &codes);
}

}  // namespace heddle::onnx
