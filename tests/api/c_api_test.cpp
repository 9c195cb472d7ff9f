// The engine through its C functions.
#include "heddle/c_api.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/api/dlpack_structs.h"

namespace {

/// Frees what C functions gave.
struct Free {
  void operator()(heddle_tensor* tensor) const { heddle_tensor_free(tensor); }
  void operator()(heddle_engine* engine) const { heddle_engine_free(engine); }
  void operator()(char* string) const { heddle_string_free(string); }
};
template <typename T>
using Handle = std::unique_ptr<T, Free>;

Handle<heddle_tensor> wrap(std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  heddle_tensor* tensor = nullptr;
  EXPECT_EQ(
      heddle_tensor_wrap(values.data(), HEDDLE_F32, 1, &count, nullptr, nullptr, nullptr, &tensor),
      HEDDLE_OK)
      << heddle_last_error();
  return Handle<heddle_tensor>(tensor);
}

std::vector<float> values_of(const heddle_tensor* tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < heddle_tensor_rank(tensor); ++d) count *= heddle_tensor_sizes(tensor)[d];
  const auto* data = static_cast<const float*>(heddle_tensor_data(tensor));
  return {data, data + count};
}

Handle<heddle_engine> parse(const char* text) {
  heddle_engine* engine = nullptr;
  EXPECT_EQ(heddle_engine_parse_ir(text, nullptr, &engine), HEDDLE_OK) << heddle_last_error();
  return Handle<heddle_engine>(engine);
}

/// Four numbers as 2 x 2.
void wrap_rows(std::vector<float>& values, heddle_tensor** tensor) {
  const int64_t sizes[] = {2, 2};
  ASSERT_EQ(
      heddle_tensor_wrap(values.data(), HEDDLE_F32, 2, sizes, nullptr, nullptr, nullptr, tensor),
      HEDDLE_OK);
}

constexpr const char* kDouble = R"(graph @main(%x: f32[s0, 2] "rows") {
  %y = add(%x, %x)
  return %y
})";

TEST(CApi, DonatedInputsHoldOutputs) {
  const char* const donate[] = {"rows"};
  heddle_options options;
  heddle_options_init(&options);
  options.donate = donate;
  options.donate_count = 1;
  heddle_engine* made = nullptr;
  ASSERT_EQ(heddle_engine_parse_ir(kDouble, &options, &made), HEDDLE_OK);
  const Handle<heddle_engine> engine(made);
  std::vector<float> numbers{1, 2, 3, 4};
  heddle_tensor* raw = nullptr;
  wrap_rows(numbers, &raw);
  const Handle<heddle_tensor> x(raw);
  EXPECT_EQ(heddle_engine_run_into(engine.get(), &raw, 1, &raw, 1), HEDDLE_OK)
      << heddle_last_error();
  EXPECT_EQ(numbers, (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(heddle_engine_run_into(parse(kDouble).get(), &raw, 1, &raw, 1), HEDDLE_ERROR_ALIASING);
}

TEST(CApi, CachesAreAppendedTo) {
  const char* const append[] = {"past"};
  heddle_options options;
  heddle_options_init(&options);
  options.append = append;
  options.append_count = 1;
  options.append_room = 100;
  heddle_engine* made = nullptr;
  ASSERT_EQ(heddle_engine_parse_ir("graph @main(%past: f32[2, s0], %x: f32[2, s1]) {\n"
                                   "  %all = concat(%past, %x) {axis = 1}\n  return %all\n}\n",
                                   &options, &made),
            HEDDLE_OK);
  const Handle<heddle_engine> engine(made);
  std::vector<float> numbers{1, 2, 3, 4};
  heddle_tensor* x = nullptr;
  wrap_rows(numbers, &x);
  const Handle<heddle_tensor> kept(x);
  heddle_tensor* first = nullptr;
  heddle_tensor* const both[] = {x, x};
  ASSERT_EQ(heddle_engine_run(engine.get(), both, 2, &first, 1), HEDDLE_OK) << heddle_last_error();
  EXPECT_EQ(heddle_tensor_strides(first)[0], 128);
  heddle_value_info info{};
  ASSERT_EQ(heddle_engine_output_info(engine.get(), 0, &info), HEDDLE_OK);
  EXPECT_STREQ(info.lies_in, "past");
  heddle_tensor* part = nullptr;
  EXPECT_EQ(heddle_tensor_narrow(first, 1, 0, 5, &part), HEDDLE_ERROR_SHAPE);
  ASSERT_EQ(heddle_tensor_narrow(first, 1, 0, 3, &part), HEDDLE_OK);
  const void* place = heddle_tensor_data(first);
  heddle_tensor_free(first);
  heddle_tensor* second = nullptr;
  heddle_tensor* const next[] = {part, x};
  ASSERT_EQ(heddle_engine_run(engine.get(), next, 2, &second, 1), HEDDLE_OK);
  EXPECT_EQ(heddle_tensor_data(second), place);
  EXPECT_EQ(heddle_tensor_sizes(second)[1], 5);
  const auto* values = static_cast<const float*>(heddle_tensor_data(second));
  EXPECT_EQ(std::vector<float>(values, values + 5), (std::vector<float>{1, 2, 1, 1, 2}));
  heddle_tensor_free(part);
  heddle_tensor_free(second);
}

TEST(CApi, RunsAGraph) {
  const Handle<heddle_engine> engine = parse(kDouble);
  std::vector<float> numbers{1, 2, 3, 4};
  heddle_tensor* input = nullptr;
  wrap_rows(numbers, &input);
  heddle_tensor* output = nullptr;
  ASSERT_EQ(heddle_engine_run(engine.get(), &input, 1, &output, 1), HEDDLE_OK)
      << heddle_last_error();
  EXPECT_EQ(values_of(output), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(heddle_tensor_dtype(output), HEDDLE_F32);
  EXPECT_EQ(heddle_tensor_strides(output)[0], 2);

  numbers[0] = 10;
  ASSERT_EQ(heddle_engine_run_into(engine.get(), &input, 1, &output, 1), HEDDLE_OK);
  EXPECT_EQ(values_of(output)[0], 20);
  heddle_tensor_free(input);
  heddle_tensor_free(output);
}

/// What heddle_done gets.
struct Ended {
  std::mutex mutex;
  std::vector<std::vector<float>> results;
  std::vector<std::pair<heddle_status, std::string>> failed;

  static void note(heddle_status status, heddle_tensor* const* outputs, size_t count, void* user) {
    auto* ended = static_cast<Ended*>(user);
    const std::scoped_lock lock(ended->mutex);
    if (status != HEDDLE_OK) ended->failed.emplace_back(status, heddle_last_error());
    for (size_t k = 0; k < count; ++k) {
      ended->results.push_back(values_of(outputs[k]));
      heddle_tensor_free(outputs[k]);
    }
  }
};

TEST(CApi, SubmittedCallsTellOfTheirEnd) {
  Ended ended;
  heddle_stats stats{};
  {
    const Handle<heddle_engine> engine = parse(kDouble);
    for (int k = 0; k < 20; ++k) {
      std::vector<float> numbers(4, static_cast<float>(k));
      const int64_t sizes[] = {2, 2};
      heddle_tensor* input = nullptr;
      ASSERT_EQ(heddle_tensor_empty(HEDDLE_F32, 2, sizes, &input), HEDDLE_OK);
      std::copy(numbers.begin(), numbers.end(), static_cast<float*>(heddle_tensor_data(input)));
      ASSERT_EQ(heddle_engine_submit(engine.get(), &input, 1, Ended::note, &ended), HEDDLE_OK);
      heddle_tensor_free(input);
    }
    ASSERT_EQ(heddle_engine_submit(engine.get(), nullptr, 0, Ended::note, &ended), HEDDLE_OK);
    EXPECT_EQ(heddle_engine_submit(nullptr, nullptr, 0, Ended::note, &ended),
              HEDDLE_ERROR_ARGUMENT);
    EXPECT_EQ(heddle_engine_submit(engine.get(), nullptr, 0, nullptr, &ended),
              HEDDLE_ERROR_ARGUMENT);
    EXPECT_EQ(heddle_engine_stats(engine.get(), nullptr), HEDDLE_ERROR_ARGUMENT);
    EXPECT_EQ(heddle_engine_stats(engine.get(), &stats), HEDDLE_OK);
    EXPECT_LE(stats.runs, 20u);
  }  // waits for all
  std::ranges::sort(ended.results);
  ASSERT_EQ(ended.results.size(), 20u);
  for (int k = 0; k < 20; ++k)
    EXPECT_EQ(ended.results[static_cast<size_t>(k)],
              std::vector<float>(4, 2 * static_cast<float>(k)));
  ASSERT_EQ(ended.failed.size(), 1u);
  EXPECT_EQ(ended.failed[0].first, HEDDLE_ERROR_ARGUMENT);
  EXPECT_NE(ended.failed[0].second.find("inputs"), std::string::npos) << ended.failed[0].second;
}

TEST(CApi, StatsCountWhatWasDone) {
  const Handle<heddle_engine> engine = parse(kDouble);
  heddle_stats stats{};
  ASSERT_EQ(heddle_engine_stats(engine.get(), &stats), HEDDLE_OK);
  EXPECT_EQ(stats.runs, 0u);
  std::vector<float> numbers{1, 2, 3, 4};
  heddle_tensor* input = nullptr;
  wrap_rows(numbers, &input);
  for (int k = 0; k < 3; ++k) {
    heddle_tensor* output = nullptr;
    ASSERT_EQ(heddle_engine_run(engine.get(), &input, 1, &output, 1), HEDDLE_OK);
    heddle_tensor_free(output);
  }
  ASSERT_EQ(heddle_engine_stats(engine.get(), &stats), HEDDLE_OK);
  EXPECT_EQ(stats.runs, 3u);
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_LE(stats.kernels, 1u) << "none in a build that compiles nothing for the CPU";
  EXPECT_GT(stats.compile_ms, 0);
  heddle_tensor_free(input);
}

TEST(CApi, CallsEndWhenWhatTheirThreadWatchesIsRequested) {
  const Handle<heddle_engine> engine = parse(kDouble);
  std::vector<float> numbers{1, 2, 3, 4};
  heddle_tensor* input = nullptr;
  wrap_rows(numbers, &input);
  heddle_tensor* output = nullptr;
  heddle_stop* stop = nullptr;
  EXPECT_EQ(heddle_stop_create(nullptr), HEDDLE_ERROR_ARGUMENT);
  ASSERT_EQ(heddle_stop_create(&stop), HEDDLE_OK);
  ASSERT_EQ(heddle_stop_watch(stop), HEDDLE_OK);
  ASSERT_EQ(heddle_engine_run(engine.get(), &input, 1, &output, 1), HEDDLE_OK);
  heddle_stop_request(stop);
  heddle_tensor* second = nullptr;
  EXPECT_EQ(heddle_engine_run(engine.get(), &input, 1, &second, 1), HEDDLE_ERROR_CANCELLED);
  EXPECT_STREQ(heddle_last_error(), "run: ended before its last step, as its caller asked");
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(heddle_engine_run_into(engine.get(), &input, 1, &output, 1), HEDDLE_ERROR_CANCELLED);
  EXPECT_EQ(values_of(output), (std::vector<float>{2, 4, 6, 8}));
  heddle_stop_destroy(stop);
  EXPECT_EQ(heddle_engine_run_into(engine.get(), &input, 1, &output, 1), HEDDLE_ERROR_CANCELLED)
      << "what was watched is, as long as nothing else is";
  ASSERT_EQ(heddle_stop_watch(nullptr), HEDDLE_OK);
  EXPECT_EQ(heddle_engine_run_into(engine.get(), &input, 1, &output, 1), HEDDLE_OK);
  heddle_tensor_free(input);
  heddle_tensor_free(output);
}

TEST(CApi, TellsWhatAModelTakes) {
  const Handle<heddle_engine> engine = parse(kDouble);
  EXPECT_EQ(heddle_engine_input_count(engine.get()), 1u);
  EXPECT_EQ(heddle_engine_output_count(engine.get()), 1u);
  heddle_value_info info{};
  ASSERT_EQ(heddle_engine_input_info(engine.get(), 0, &info), HEDDLE_OK);
  EXPECT_STREQ(info.name, "rows");
  EXPECT_EQ(info.dtype, HEDDLE_F32);
  ASSERT_EQ(info.rank, 2);
  EXPECT_EQ(info.sizes[0], -1);
  EXPECT_EQ(info.sizes[1], 2);
  EXPECT_EQ(heddle_engine_output_info(engine.get(), 1, &info), HEDDLE_ERROR_ARGUMENT);
  EXPECT_STREQ(heddle_last_error(),
               "heddle_engine_output_info: index: expected less than 1, got 1");
}

/// softmax(x * 2): an op with an attribute, a scalar made outside.
const char* softmax_of_double(heddle_tensor* const* inputs, size_t input_count,
                              heddle_tensor** results, size_t result_count, void* user) {
  ++*static_cast<int*>(user);
  if (input_count != 1 || result_count != 1) return "one input and one result";
  heddle_tensor* twice = nullptr;
  heddle_tensor* const operands[] = {inputs[0], inputs[0]};
  if (heddle_apply("add", operands, 2, nullptr, 0, &twice, 1) != HEDDLE_OK)
    return heddle_last_error();
  heddle_attr axis{};
  axis.name = "axis";
  axis.kind = HEDDLE_ATTR_INT;
  axis.integer = -1;
  const heddle_status status = heddle_apply("softmax", &twice, 1, &axis, 1, results, 1);
  heddle_tensor_free(twice);
  return status == HEDDLE_OK ? nullptr : heddle_last_error();
}

TEST(CApi, TracesACallableOnce) {
  int calls = 0;
  heddle_engine* made = nullptr;
  ASSERT_EQ(heddle_engine_trace(softmax_of_double, &calls, 1, nullptr, &made), HEDDLE_OK);
  const Handle<heddle_engine> engine(made);
  for (const std::size_t size : {2, 5, 9}) {
    std::vector<float> numbers(size, 1.0f);
    const Handle<heddle_tensor> input = wrap(numbers);
    heddle_tensor* const inputs[] = {input.get()};
    heddle_tensor* output = nullptr;
    ASSERT_EQ(heddle_engine_run(engine.get(), inputs, 1, &output, 1), HEDDLE_OK)
        << heddle_last_error();
    EXPECT_NEAR(values_of(output)[0], 1.0 / static_cast<double>(size), 1e-6);
    heddle_tensor_free(output);
  }
  EXPECT_EQ(calls, 1);
}

TEST(CApi, WhatACallableSaysIsTheError) {
  heddle_engine* made = nullptr;
  const auto refuse = [](heddle_tensor* const*, size_t, heddle_tensor**, size_t, void*) {
    return "not today";
  };
  ASSERT_EQ(heddle_engine_trace(refuse, nullptr, 1, nullptr, &made), HEDDLE_OK);
  const Handle<heddle_engine> engine(made);
  std::vector<float> numbers{1};
  const Handle<heddle_tensor> input = wrap(numbers);
  heddle_tensor* const inputs[] = {input.get()};
  heddle_tensor* output = nullptr;
  EXPECT_EQ(heddle_engine_run(engine.get(), inputs, 1, &output, 1), HEDDLE_ERROR_CALLBACK);
  EXPECT_STREQ(heddle_last_error(), "not today");
  EXPECT_EQ(output, nullptr);
}

TEST(CApi, ACallableMayReturnItsInput) {
  heddle_engine* made = nullptr;
  const auto same = [](heddle_tensor* const* inputs, size_t, heddle_tensor** results, size_t,
                       void*) -> const char* {
    results[0] = inputs[0];
    return nullptr;
  };
  ASSERT_EQ(heddle_engine_trace(same, nullptr, 1, nullptr, &made), HEDDLE_OK);
  const Handle<heddle_engine> engine(made);
  std::vector<float> numbers{1, 2};
  const Handle<heddle_tensor> input = wrap(numbers);
  heddle_tensor* const inputs[] = {input.get()};
  heddle_tensor* output = nullptr;
  ASSERT_EQ(heddle_engine_run(engine.get(), inputs, 1, &output, 1), HEDDLE_OK)
      << heddle_last_error();
  EXPECT_EQ(values_of(output), numbers);
  EXPECT_NE(heddle_tensor_data(output), numbers.data());
  heddle_tensor_free(output);
}

TEST(CApi, ErrorsHaveTheCodeOfTheirClass) {
  heddle_engine* engine = nullptr;
  EXPECT_EQ(heddle_engine_parse_ir("graph @main(", nullptr, &engine), HEDDLE_ERROR_PARSE);
  EXPECT_EQ(heddle_engine_load_onnx("/no/such/file.onnx", nullptr, &engine), HEDDLE_ERROR_MODEL);
  EXPECT_NE(std::string(heddle_last_error()).find("/no/such/file.onnx"), std::string::npos);
  EXPECT_EQ(heddle_engine_parse_ir(nullptr, nullptr, &engine), HEDDLE_ERROR_ARGUMENT);
  EXPECT_STREQ(heddle_last_error(),
               "heddle_engine_parse_ir: expected an address, got a null pointer");
  EXPECT_EQ(engine, nullptr);

  heddle_options options;
  heddle_options_init(&options);
  options.device = "abacus";
  EXPECT_EQ(heddle_engine_parse_ir(kDouble, &options, &engine), HEDDLE_ERROR_OPTION);
  options.device = nullptr;
  options.donate_count = 1;
  EXPECT_EQ(heddle_engine_parse_ir(kDouble, &options, &engine), HEDDLE_ERROR_ARGUMENT);
  options.struct_size = 3;
  EXPECT_EQ(heddle_engine_parse_ir(kDouble, &options, &engine), HEDDLE_ERROR_OPTION);

  const Handle<heddle_engine> good = parse(kDouble);
  std::vector<float> numbers{1, 2, 3};
  const Handle<heddle_tensor> input = wrap(numbers);
  heddle_tensor* const inputs[] = {input.get()};
  heddle_tensor* output = nullptr;
  EXPECT_EQ(heddle_engine_run(good.get(), inputs, 1, &output, 1), HEDDLE_ERROR_SHAPE);
  EXPECT_EQ(heddle_engine_run(good.get(), inputs, 0, &output, 1), HEDDLE_ERROR_ARGUMENT);
  EXPECT_EQ(heddle_apply("no_such_op", inputs, 1, nullptr, 0, &output, 1),
            HEDDLE_ERROR_UNSUPPORTED);
  EXPECT_EQ(heddle_apply("add", inputs, 1, nullptr, 0, &output, 1), HEDDLE_ERROR_ARGUMENT);
  const int64_t size = -1;
  EXPECT_EQ(heddle_tensor_empty(HEDDLE_F32, 1, &size, &output), HEDDLE_ERROR_SHAPE);
  EXPECT_EQ(heddle_tensor_empty(static_cast<heddle_dtype>(99), 0, nullptr, &output),
            HEDDLE_ERROR_DTYPE);
  EXPECT_EQ(output, nullptr);
}

TEST(CApi, CallsTheDeleterOnceWhenTheLastUserIsGone) {
  int deleted = 0;
  std::vector<float> numbers{1, 2};
  const int64_t count = 2;
  heddle_tensor* tensor = nullptr;
  const auto count_up = [](void*, void* user) { ++*static_cast<int*>(user); };
  ASSERT_EQ(heddle_tensor_wrap(numbers.data(), HEDDLE_F32, 1, &count, nullptr, count_up, &deleted,
                               &tensor),
            HEDDLE_OK);
  DLManagedTensorVersioned* managed = nullptr;
  ASSERT_EQ(heddle_tensor_to_dlpack(tensor, &managed), HEDDLE_OK);
  heddle_tensor_free(tensor);
  EXPECT_EQ(deleted, 0);
  EXPECT_EQ(managed->dl_tensor.data, numbers.data());
  heddle_tensor* back = nullptr;
  ASSERT_EQ(heddle_tensor_from_dlpack(managed, &back), HEDDLE_OK);
  EXPECT_EQ(heddle_tensor_data(back), numbers.data());
  EXPECT_EQ(deleted, 0);
  heddle_tensor_free(back);
  EXPECT_EQ(deleted, 1);
}

TEST(CApi, MovesTensorsBetweenDevices) {
  std::vector<float> numbers{1, 2};
  const Handle<heddle_tensor> tensor = wrap(numbers);
  heddle_tensor* same = nullptr;
  ASSERT_EQ(heddle_tensor_to(tensor.get(), "cpu", &same), HEDDLE_OK) << heddle_last_error();
  EXPECT_EQ(heddle_tensor_data(same), numbers.data());
  heddle_tensor_free(same);
  heddle_tensor* none = nullptr;
  EXPECT_EQ(heddle_tensor_to(tensor.get(), "abacus", &none), HEDDLE_ERROR_OPTION);
  EXPECT_EQ(heddle_tensor_to(tensor.get(), "reference", &none), HEDDLE_ERROR_DEVICE);
  EXPECT_EQ(none, nullptr);
}

TEST(CApi, TellsAndGivesBackMemory) {
  heddle_options options;
  heddle_options_init(&options);
  options.memory_cap = std::size_t{1} << 40;
  heddle_engine* made = nullptr;
  ASSERT_EQ(heddle_engine_parse_ir("graph @main(%x: f32[s0]) {\n  %y = exp(%x)\n  return %y\n}",
                                   &options, &made),
            HEDDLE_OK);
  const Handle<heddle_engine> engine(made);
  heddle_memory before{};
  ASSERT_EQ(heddle_engine_memory(engine.get(), &before), HEDDLE_OK);
  EXPECT_EQ(before.host.cap_bytes, std::size_t{1} << 40);
  heddle_tensor* tensor = nullptr;
  const std::int64_t sizes[] = {100000};
  ASSERT_EQ(heddle_tensor_empty(HEDDLE_F32, 1, sizes, &tensor), HEDDLE_OK);
  heddle_memory after{};
  ASSERT_EQ(heddle_engine_memory(engine.get(), &after), HEDDLE_OK);
  EXPECT_GE(after.host.in_use_bytes, before.host.in_use_bytes + 400000);
  EXPECT_GE(after.host.peak_bytes, after.host.in_use_bytes);
  EXPECT_EQ(after.device.in_use_bytes + after.pinned.cached_bytes, 0u);
  heddle_tensor_free(tensor);
  std::size_t bytes = 0;
  ASSERT_EQ(heddle_engine_trim(engine.get(), &bytes), HEDDLE_OK);
  EXPECT_GE(bytes, 400000u);
  EXPECT_EQ(heddle_engine_trim(engine.get(), nullptr), HEDDLE_OK);
  EXPECT_EQ(heddle_engine_trim(nullptr, &bytes), HEDDLE_ERROR_ARGUMENT);
  EXPECT_EQ(heddle_engine_memory(engine.get(), nullptr), HEDDLE_ERROR_ARGUMENT);
}

TEST(CApi, GivesThePlanAsText) {
  const Handle<heddle_engine> engine = parse(R"(graph @main(%x: f32[s0]) {
  %y = exp(%x)
  return %y
})");
  std::vector<float> numbers{1, 2};
  const Handle<heddle_tensor> input = wrap(numbers);
  heddle_tensor* const inputs[] = {input.get()};
  char* json = nullptr;
  ASSERT_EQ(heddle_engine_plan_json(engine.get(), inputs, 1, &json), HEDDLE_OK);
  const Handle<char> text(json);
  EXPECT_NE(std::string(json).find("\"kernels\""), std::string::npos);
  EXPECT_STREQ(heddle_version(), "0.1.0");
}

}  // namespace
