#include "heddle/c_api.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>

#include "engine/c_status.h"
#include "heddle/dlpack.h"
#include "heddle/engine.h"
#include "heddle/error.h"
#include "heddle/onnx.h"
#include "heddle/ops.h"
#include "scheduler/stop.h"

namespace hd = heddle;
using hd::engine::check_not_null;
using hd::engine::status_of;

struct heddle_tensor {
  hd::Tensor tensor;
};

struct heddle_stop {
  std::stop_source source;
};

struct heddle_engine {
  explicit heddle_engine(hd::Engine made)
      : engine(std::move(made)), strings(engine.signature().strings) {}

  hd::Engine engine;
  const hd::StringTable strings;  ///< of the model, so that to look one up takes no lock
};

namespace {

hd::DType to_dtype(std::int64_t dtype) {
  if (dtype < HEDDLE_F32 || dtype > HEDDLE_F8E8M0FNU)
    throw hd::DTypeError({.what = "heddle_dtype",
                          .where = {},
                          .expected = "HEDDLE_F32 to HEDDLE_F8E8M0FNU",
                          .got = std::to_string(dtype)});
  return static_cast<hd::DType>(dtype);
}

hd::Sizes to_sizes(const char* function, std::int32_t rank, const std::int64_t* numbers) {
  if (rank < 0)
    throw hd::ShapeError(
        {.what = function, .where = {}, .expected = "a rank >= 0", .got = std::to_string(rank)});
  if (rank > 0) check_not_null(function, numbers);
  return {numbers, numbers + rank};
}

/// Of heddle_stop_watch().
thread_local std::stop_token watched;

/// While it lives, what this thread watches ends its calls.
class Watching {
 public:
  Watching() {
    if (watched.stop_possible()) scope_.emplace(watched);
  }

 private:
  std::optional<hd::scheduler::StopScope> scope_;
};

heddle_tensor* to_handle(hd::Tensor tensor) { return new heddle_tensor{std::move(tensor)}; }

std::set<std::string> to_names(const char* what, const char* const* names, std::size_t count) {
  std::set<std::string> result;
  if (count != 0) check_not_null(what, names);
  for (std::size_t k = 0; k < count; ++k) {
    check_not_null(what, names[k]);
    result.insert(names[k]);
  }
  return result;
}

hd::EngineOptions to_options(const heddle_options* given) {
  hd::EngineOptions options;
  if (given == nullptr) return options;
  if (given->struct_size != sizeof(heddle_options))
    throw hd::OptionError({.what = "heddle_options.struct_size",
                           .where = {},
                           .expected = std::to_string(sizeof(heddle_options)),
                           .got = std::to_string(given->struct_size)});
  if (given->device != nullptr) options.device = hd::Device::parse(given->device);
  options.threads = given->threads;
  options.disk_cache = given->no_disk_cache == 0;
  if (given->cache_dir != nullptr) options.cache_dir = given->cache_dir;
  if (given->cpu != nullptr) options.cpu = given->cpu;
  options.donate = to_names("heddle_options.donate", given->donate, given->donate_count);
  options.append = to_names("heddle_options.append", given->append, given->append_count);
  options.append_room = given->append_room;
  options.memory_cap = given->memory_cap;
  options.pinned_memory_cap = given->pinned_memory_cap;
  return options;
}

heddle_memory_pool to_pool(const hd::MemoryStats::Pool& pool) {
  return {pool.in_use_bytes, pool.cached_bytes, pool.peak_bytes, pool.cap_bytes};
}

/// Handles as the tensors of a call; up to kFew of them without an allocation.
class Tensors {
 public:
  Tensors(const char* function, heddle_tensor* const* handles, std::size_t count) : count_(count) {
    if (count > 0) check_not_null(function, handles);
    if (count > kFew) many_.resize(count);
    for (std::size_t k = 0; k < count; ++k) {
      check_not_null(function, handles[k]);
      get()[k] = handles[k]->tensor;
    }
  }
  std::span<hd::Tensor> get() { return {count_ > kFew ? many_.data() : few_.data(), count_}; }

 private:
  static constexpr std::size_t kFew = 16;
  std::array<hd::Tensor, kFew> few_;
  std::vector<hd::Tensor> many_;
  std::size_t count_;
};

/// Gives all of `tensors` to the caller, or none.
void give(const char* function, std::vector<hd::Tensor> tensors, heddle_tensor** handles,
          std::size_t count) {
  if (tensors.size() != count)
    throw hd::ArgumentError({.what = fmt::format("{}: number of results", function),
                             .where = {},
                             .expected = std::to_string(tensors.size()),
                             .got = std::to_string(count)});
  if (count > 0) check_not_null(function, handles);
  std::vector<std::unique_ptr<heddle_tensor>> made;
  for (hd::Tensor& tensor : tensors) made.emplace_back(to_handle(std::move(tensor)));
  for (std::size_t k = 0; k < count; ++k) handles[k] = made[k].release();
}

hd::OpAttr to_attr(const heddle_attr& attr) {
  switch (attr.kind) {
    case HEDDLE_ATTR_INT:
      return attr.integer;
    case HEDDLE_ATTR_FLOAT:
      return attr.number;
    case HEDDLE_ATTR_BOOL:
      return attr.integer != 0;
    case HEDDLE_ATTR_STRING:
      check_not_null("heddle_attr.string", attr.string);
      return std::string(attr.string);
    case HEDDLE_ATTR_DTYPE:
      return to_dtype(attr.integer);
    case HEDDLE_ATTR_INTS:
      if (attr.count > 0) check_not_null("heddle_attr.integers", attr.integers);
      return std::vector<std::int64_t>(attr.integers, attr.integers + attr.count);
    case HEDDLE_ATTR_FLOATS:
      if (attr.count > 0) check_not_null("heddle_attr.numbers", attr.numbers);
      return std::vector<double>(attr.numbers, attr.numbers + attr.count);
  }
  throw hd::ArgumentError({.what = fmt::format("heddle_attr {}: kind", attr.name),
                           .where = {},
                           .expected = "a heddle_attr_kind",
                           .got = std::to_string(attr.kind)});
}

/// One call of the caller's callable.
hd::TraceResult trace_by(heddle_callable callable, void* user, std::size_t result_count,
                         std::span<const hd::Tensor> inputs) {
  std::vector<heddle_tensor> given;
  for (const hd::Tensor& input : inputs) given.push_back({input});
  std::vector<heddle_tensor*> handles;
  for (heddle_tensor& tensor : given) handles.push_back(&tensor);
  std::vector<heddle_tensor*> results(result_count, nullptr);
  const char* message =
      callable(handles.data(), handles.size(), results.data(), result_count, user);
  hd::TraceResult traced;
  for (heddle_tensor* result : results) {
    traced.tensors.push_back(result == nullptr ? hd::Tensor() : result->tensor);
    const auto is_input = [&](heddle_tensor& tensor) { return &tensor == result; };
    if (std::ranges::none_of(given, is_input)) delete result;
  }
  if (message != nullptr) throw hd::engine::CallbackError(message);
  return traced;
}

/// What the last _info function of this thread points to.
struct Info {
  hd::ValueInfo value;
  std::vector<std::int64_t> sizes;
  std::vector<const char*> columns;
};

void info_of(const char* function, const std::vector<hd::ValueInfo>& values, std::size_t index,
             heddle_value_info* info) {
  check_not_null(function, info);
  if (index >= values.size())
    throw hd::ArgumentError({.what = fmt::format("{}: index", function),
                             .where = {},
                             .expected = fmt::format("less than {}", values.size()),
                             .got = std::to_string(index)});
  thread_local Info last;
  last = {values[index], {}, {}};
  for (const hd::SymInt& size : last.value.sizes)
    last.sizes.push_back(size.is_symbolic() ? -1 : size.value());
  for (const std::string& column : last.value.columns) last.columns.push_back(column.c_str());
  *info = {.name = last.value.name.c_str(),
           .dtype = static_cast<heddle_dtype>(last.value.dtype),
           .rank = static_cast<std::int32_t>(last.sizes.size()),
           .sizes = last.sizes.data(),
           .is_text = last.value.is_text ? 1 : 0,
           .column_count = last.columns.size(),
           .columns = last.columns.data(),
           .lies_in = last.value.lies_in.c_str()};
}

template <typename F>
heddle_status make_engine(const char* function, heddle_engine** engine, F&& make) {
  return status_of([&] {
    check_not_null(function, engine);
    *engine = new heddle_engine{make()};
  });
}

}  // namespace

heddle_status heddle_tensor_empty(heddle_dtype dtype, int32_t rank, const int64_t* sizes,
                                  heddle_tensor** tensor) {
  return status_of([&] {
    check_not_null("heddle_tensor_empty", tensor);
    *tensor =
        to_handle(hd::Tensor::empty(to_dtype(dtype), to_sizes("heddle_tensor_empty", rank, sizes)));
  });
}

heddle_status heddle_tensor_narrow(const heddle_tensor* tensor, int32_t axis, int64_t start,
                                   int64_t length, heddle_tensor** part) {
  return status_of([&] {
    check_not_null("heddle_tensor_narrow", tensor);
    check_not_null("heddle_tensor_narrow", part);
    *part = to_handle(tensor->tensor.narrow(axis, start, length));
  });
}

heddle_status heddle_tensor_wrap(void* data, heddle_dtype dtype, int32_t rank, const int64_t* sizes,
                                 const int64_t* strides, void (*deleter)(void* data, void* user),
                                 void* user, heddle_tensor** tensor) {
  return status_of([&] {
    constexpr const char* kName = "heddle_tensor_wrap";
    check_not_null(kName, tensor);
    std::function<void(void*)> release;
    if (deleter != nullptr) release = [=](void* wrapped) { deleter(wrapped, user); };
    hd::Sizes numbers = to_sizes(kName, rank, sizes);
    *tensor = to_handle(strides == nullptr
                            ? hd::Tensor::wrap(data, to_dtype(dtype), std::move(numbers), release)
                            : hd::Tensor::wrap_strided(data, to_dtype(dtype), std::move(numbers),
                                                       to_sizes(kName, rank, strides), release));
  });
}

heddle_status heddle_tensor_from_dlpack(DLManagedTensorVersioned* managed, heddle_tensor** tensor) {
  return status_of([&] {
    check_not_null("heddle_tensor_from_dlpack", tensor);
    auto handle = std::make_unique<heddle_tensor>();
    handle->tensor = hd::from_dlpack(managed);
    *tensor = handle.release();
  });
}

heddle_status heddle_tensor_to_dlpack(const heddle_tensor* tensor,
                                      DLManagedTensorVersioned** managed) {
  return status_of([&] {
    check_not_null("heddle_tensor_to_dlpack", tensor);
    check_not_null("heddle_tensor_to_dlpack", managed);
    *managed = hd::to_dlpack(tensor->tensor);
  });
}

void heddle_tensor_free(heddle_tensor* tensor) { delete tensor; }

heddle_dtype heddle_tensor_dtype(const heddle_tensor* tensor) {
  return static_cast<heddle_dtype>(tensor->tensor.dtype());
}
int32_t heddle_tensor_rank(const heddle_tensor* tensor) {
  return static_cast<int32_t>(tensor->tensor.rank());
}
const int64_t* heddle_tensor_sizes(const heddle_tensor* tensor) {
  return tensor->tensor.is_symbolic() ? nullptr : tensor->tensor.sizes().data();
}
const int64_t* heddle_tensor_strides(const heddle_tensor* tensor) {
  return tensor->tensor.is_symbolic() ? nullptr : tensor->tensor.strides().data();
}
void* heddle_tensor_data(const heddle_tensor* tensor) {
  return tensor->tensor.is_symbolic() ? nullptr : const_cast<void*>(tensor->tensor.data());
}

heddle_status heddle_tensor_to(const heddle_tensor* tensor, const char* device,
                               heddle_tensor** moved) {
  return status_of([&] {
    check_not_null("heddle_tensor_to", tensor);
    check_not_null("heddle_tensor_to", device);
    check_not_null("heddle_tensor_to", moved);
    *moved = to_handle(tensor->tensor.to(hd::Device::parse(device)));
  });
}

void heddle_options_init(heddle_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof(heddle_options);
}

heddle_status heddle_engine_load_onnx(const char* path, const heddle_options* options,
                                      heddle_engine** engine) {
  return make_engine("heddle_engine_load_onnx", engine, [&] {
    check_not_null("heddle_engine_load_onnx", path);
    return hd::onnx::load(path, to_options(options));
  });
}

heddle_status heddle_engine_load_onnx_bytes(const void* data, size_t size, const char* folder,
                                            const heddle_options* options, heddle_engine** engine) {
  return make_engine("heddle_engine_load_onnx_bytes", engine, [&] {
    check_not_null("heddle_engine_load_onnx_bytes", data);
    return hd::onnx::load_bytes(data, size, to_options(options), folder == nullptr ? "" : folder);
  });
}

heddle_status heddle_engine_parse_ir(const char* text, const heddle_options* options,
                                     heddle_engine** engine) {
  return make_engine("heddle_engine_parse_ir", engine, [&] {
    check_not_null("heddle_engine_parse_ir", text);
    return hd::parse_ir(text, to_options(options));
  });
}

heddle_status heddle_engine_trace(heddle_callable callable, void* user, size_t result_count,
                                  const heddle_options* options, heddle_engine** engine) {
  return make_engine("heddle_engine_trace", engine, [&] {
    check_not_null("heddle_engine_trace", reinterpret_cast<const void*>(callable));
    const auto trace = [=](std::span<const hd::Tensor> inputs) {
      return trace_by(callable, user, result_count, inputs);
    };
    return hd::Engine(hd::Engine::FromTrace{}, trace, to_options(options), {});
  });
}

void heddle_engine_free(heddle_engine* engine) { delete engine; }

heddle_status heddle_apply(const char* op, heddle_tensor* const* operands, size_t operand_count,
                           const heddle_attr* attrs, size_t attr_count, heddle_tensor** results,
                           size_t result_count) {
  return status_of([&] {
    check_not_null("heddle_apply", op);
    if (operand_count > 0) check_not_null("heddle_apply", operands);
    if (attr_count > 0) check_not_null("heddle_apply", attrs);
    std::vector<hd::Tensor> tensors;
    for (std::size_t k = 0; k < operand_count; ++k)
      tensors.push_back(operands[k] == nullptr ? hd::Tensor() : operands[k]->tensor);
    hd::OpAttrs named;
    for (std::size_t k = 0; k < attr_count; ++k) {
      check_not_null("heddle_attr.name", attrs[k].name);
      named.insert_or_assign(attrs[k].name, to_attr(attrs[k]));
    }
    give("heddle_apply", hd::apply(op, tensors, std::move(named)), results, result_count);
  });
}

heddle_status heddle_stop_create(heddle_stop** stop) {
  return status_of([&] {
    check_not_null("heddle_stop_create", stop);
    *stop = new heddle_stop();
  });
}

void heddle_stop_request(heddle_stop* stop) {
  if (stop != nullptr) stop->source.request_stop();
}

void heddle_stop_destroy(heddle_stop* stop) { delete stop; }

heddle_status heddle_stop_watch(heddle_stop* stop) {
  return status_of(
      [&] { watched = stop == nullptr ? std::stop_token() : stop->source.get_token(); });
}

heddle_status heddle_engine_run(heddle_engine* engine, heddle_tensor* const* inputs,
                                size_t input_count, heddle_tensor** outputs, size_t output_count) {
  return status_of([&] {
    check_not_null("heddle_engine_run", engine);
    const Watching watching;
    Tensors given("heddle_engine_run", inputs, input_count);
    give("heddle_engine_run", engine->engine.run(std::span<const hd::Tensor>(given.get())), outputs,
         output_count);
  });
}

heddle_status heddle_engine_run_into(heddle_engine* engine, heddle_tensor* const* inputs,
                                     size_t input_count, heddle_tensor* const* outputs,
                                     size_t output_count) {
  return status_of([&] {
    check_not_null("heddle_engine_run_into", engine);
    const Watching watching;
    Tensors given("heddle_engine_run_into", inputs, input_count);
    Tensors wanted("heddle_engine_run_into", outputs, output_count);
    engine->engine.run_into(given.get(), wanted.get());
  });
}

heddle_status heddle_engine_submit(heddle_engine* engine, heddle_tensor* const* inputs,
                                   size_t input_count, heddle_done done, void* user) {
  return status_of([&] {
    constexpr const char* kName = "heddle_engine_submit";
    check_not_null(kName, engine);
    check_not_null(kName, reinterpret_cast<const void*>(done));
    const Watching watching;
    Tensors given(kName, inputs, input_count);
    std::vector<hd::Tensor> tensors(given.get().begin(), given.get().end());
    engine->engine.submit(std::move(tensors), [=](std::future<std::vector<hd::Tensor>> call) {
      std::vector<heddle_tensor*> handles;
      const heddle_status status = status_of([&] {
        std::vector<hd::Tensor> results = call.get();
        handles.resize(results.size());
        give(kName, std::move(results), handles.data(), handles.size());
      });
      if (status != HEDDLE_OK) handles.clear();
      done(status, handles.data(), handles.size(), user);
    });
  });
}

heddle_status heddle_engine_stats(const heddle_engine* engine, heddle_stats* stats) {
  return status_of([&] {
    check_not_null("heddle_engine_stats", engine);
    check_not_null("heddle_engine_stats", stats);
    const hd::EngineStats all = engine->engine.stats();
    *stats = {.traces = all.traces,
              .compiles = all.compiles,
              .found_plans = all.found_plans,
              .binds = all.binds,
              .runs = all.runs,
              .kernels = all.kernels,
              .kernels_compiled = all.kernels_compiled,
              .disk_hits = all.disk_hits,
              .load_ms = all.load_ms,
              .compile_ms = all.compile_ms,
              .arena_peak_bytes = all.arena_peak_bytes};
  });
}

heddle_status heddle_engine_prepare(heddle_engine* engine, heddle_tensor* const* inputs,
                                    size_t input_count) {
  return status_of([&] {
    check_not_null("heddle_engine_prepare", engine);
    Tensors given("heddle_engine_prepare", inputs, input_count);
    engine->engine.prepare(given.get());
  });
}

heddle_status heddle_engine_memory(const heddle_engine* engine, heddle_memory* memory) {
  return status_of([&] {
    check_not_null("heddle_engine_memory", engine);
    check_not_null("heddle_engine_memory", memory);
    const hd::MemoryStats stats = engine->engine.memory();
    *memory = {to_pool(stats.host), to_pool(stats.device), to_pool(stats.pinned)};
  });
}

heddle_status heddle_engine_trim(heddle_engine* engine, size_t* bytes) {
  return status_of([&] {
    check_not_null("heddle_engine_trim", engine);
    const std::size_t given_back = engine->engine.trim();
    if (bytes != nullptr) *bytes = given_back;
  });
}

heddle_status heddle_engine_update_parameter(heddle_engine* engine, const char* name,
                                             const heddle_tensor* value) {
  return status_of([&] {
    check_not_null("heddle_engine_update_parameter", engine);
    check_not_null("heddle_engine_update_parameter", name);
    check_not_null("heddle_engine_update_parameter", value);
    engine->engine.update_parameters({{name, value->tensor}});
  });
}

size_t heddle_engine_input_count(const heddle_engine* engine) {
  return engine->engine.signature().inputs.size();
}
size_t heddle_engine_output_count(const heddle_engine* engine) {
  return engine->engine.signature().outputs.size();
}

heddle_status heddle_engine_input_info(const heddle_engine* engine, size_t index,
                                       heddle_value_info* info) {
  return status_of([&] {
    check_not_null("heddle_engine_input_info", engine);
    info_of("heddle_engine_input_info", engine->engine.signature().inputs, index, info);
  });
}
heddle_status heddle_engine_output_info(const heddle_engine* engine, size_t index,
                                        heddle_value_info* info) {
  return status_of([&] {
    check_not_null("heddle_engine_output_info", engine);
    info_of("heddle_engine_output_info", engine->engine.signature().outputs, index, info);
  });
}

size_t heddle_engine_string_count(const heddle_engine* engine) {
  return engine->strings == nullptr ? 0 : engine->strings->size();
}
heddle_status heddle_engine_string(const heddle_engine* engine, int64_t code, const char** string,
                                   size_t* length) {
  return status_of([&] {
    check_not_null("heddle_engine_string", engine);
    check_not_null("heddle_engine_string", string);
    check_not_null("heddle_engine_string", length);
    const std::size_t count = heddle_engine_string_count(engine);
    if (code < 0 || static_cast<std::size_t>(code) >= count)
      throw hd::ArgumentError({.what = "heddle_engine_string: code",
                               .where = {},
                               .expected = fmt::format("0 or more, and less than {}", count),
                               .got = std::to_string(code)});
    const std::string& found = (*engine->strings)[static_cast<std::size_t>(code)];
    *string = found.c_str();
    *length = found.size();
  });
}
int64_t heddle_engine_code_of(const heddle_engine* engine, const char* string, size_t length) {
  return engine->strings == nullptr ? -1 : hd::place_of(*engine->strings, {string, length});
}

heddle_status heddle_engine_plan_json(heddle_engine* engine, heddle_tensor* const* inputs,
                                      size_t input_count, char** json) {
  return status_of([&] {
    check_not_null("heddle_engine_plan_json", engine);
    check_not_null("heddle_engine_plan_json", json);
    Tensors given("heddle_engine_plan_json", inputs, input_count);
    const std::string text = engine->engine.plan_json(given.get());
    char* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    *json = copy;
  });
}

void heddle_string_free(char* string) { std::free(string); }

const char* heddle_version(void) { return HEDDLE_VERSION; }
