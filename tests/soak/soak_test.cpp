// A server in small: threads send requests of every kind to engines that they share, for long.
//
// Every answer is checked. After each quarter all threads and background compiles stop, and memory in use is read:
// it goes up and down with the executables and plans that happen to be kept, but what is lost adds up, so that the
// second half would lie above the first. HEDDLE_SOAK_COUNT requests a thread and quarter; HEDDLE_NIGHTLY=1 makes
// them many.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <malloc.h>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "heddle/control_flow.h"
#include "heddle/error.h"
#include "heddle/heddle.h"
#include "memory/allocator.h"

namespace hd = heddle;

namespace {

constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kSlots = 32;

std::uint32_t from_environment(const char* name, std::uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::atoi(text));
}

std::uint32_t requests_of_a_quarter() {
  const bool nightly = from_environment("HEDDLE_NIGHTLY", 0) != 0;
  return from_environment("HEDDLE_SOAK_COUNT", nightly ? 500000 : 3000);
}

hd::Tensor rows_of(std::int64_t rows, double value) {
  return hd::Tensor::full(hd::f32, {rows, kWidth}, value);
}

bool all_are(const hd::Tensor& tensor, double value) {
  for (const double element : tensor.to_doubles())
    if (std::abs(element - value) > 1e-3 * (1 + std::abs(value))) return false;
  return true;
}

/// Counts answers by kind of request, and keeps the first wrong one.
class Ledger {
 public:
  void add(const std::string& kind, bool right) {
    const std::scoped_lock lock(mutex_);
    ++counts_[kind];
    if (!right && wrong_.empty()) wrong_ = kind;
  }
  const std::map<std::string, std::uint64_t>& counts() const { return counts_; }
  const std::string& wrong() const { return wrong_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::uint64_t> counts_;  ///< under `mutex_`
  std::string wrong_;                            ///< under `mutex_`; empty: none
};

/// The engines that all threads share, and what is asked of them.
class Server {
 public:
  /// @param counted  where requests are counted
  explicit Server(Ledger& counted) : ledger_(counted) {}

  /// One request of a kind that `random` chooses, with the thread's own `cache`.
  void serve(std::mt19937& random, hd::Tensor& cache) {
    using Request = void (Server::*)(std::mt19937&, hd::Tensor&);
    constexpr std::array<Request, 7> kOften{&Server::matmul, &Server::decode, &Server::loop,
                                            &Server::branch, &Server::sizes,  &Server::submitted,
                                            &Server::refused};
    constexpr std::array<Request, 3> kSeldom{&Server::new_engine, &Server::other_dtype,
                                             &Server::failed_trace};
    const Request request =
        random() % 50 == 0 ? kSeldom[random() % kSeldom.size()] : kOften[random() % kOften.size()];
    (this->*request)(random, cache);
  }

  /// Gives both parameters of the model new values; the answers stay the same.
  void update(int k) {
    const double scale = 1 + k % 3;
    const hd::Tensor weight = hd::Tensor::full(hd::f32, {kWidth, kWidth}, scale);
    const hd::Tensor divisor = hd::Tensor::full(hd::f32, {kWidth}, scale);
    model_.update_parameters({{first_, weight}, {second_, divisor}});
    ledger_.add("update", true);
  }

  /// Executables for exact sizes that took the place of general ones.
  std::uint64_t specialisations() const {
    return model_.stats().specialisations + sums_.stats().specialisations;
  }

  /// Waits for executables that are compiled in the background.
  void settle() {
    model_.wait_for_specialisations();
    sums_.wait_for_specialisations();
  }

  /// Names of the parameters, known after a first call.
  void start() {
    model_.run({rows_of(1, 1)});
    const auto parameters = model_.parameters();
    first_ = parameters.at(0).name;
    second_ = parameters.at(1).name;
  }

 private:
  void matmul(std::mt19937& random, hd::Tensor&) {
    const double value = random() % 5;
    const auto out = model_.run({rows_of(1 + random() % 40, value)});
    ledger_.add("matmul with parameters", all_are(out[0], value * kWidth));
  }

  /// Puts a row into the thread's cache, in place.
  void decode(std::mt19937& random, hd::Tensor& cache) {
    const auto slot = static_cast<std::int64_t>(random() % kSlots);
    const double value = random() % 9;
    const double before = cache.to_doubles()[slot];
    const double sum = decoder_sum(cache);
    const auto out = decoder_.run(
        {cache, hd::Tensor::full(hd::f32, {1}, value), hd::Tensor::of<std::int64_t>({slot}, {1})});
    ledger_.add("state", std::abs(out[0].item() - (sum - before + value)) < 1e-3);
  }
  static double decoder_sum(const hd::Tensor& cache) {
    double sum = 0;
    for (const double element : cache.to_doubles()) sum += element;
    return sum;
  }

  void loop(std::mt19937& random, hd::Tensor&) {
    const auto trips = static_cast<std::int64_t>(random() % 12);
    const auto out = loop_.run({hd::Tensor::of<std::int64_t>({trips}, {}), rows_of(2, 1)});
    ledger_.add("loop", all_are(out[0], std::pow(2.0, static_cast<double>(trips))));
  }

  void branch(std::mt19937& random, hd::Tensor&) {
    const double value = static_cast<double>(random() % 7) - 3;
    const auto out = branch_.run({rows_of(3, value)});
    ledger_.add("branch", all_are(out[0], value > 0 ? value + 1 : value * 2));
  }

  /// More sizes than plans are kept for.
  void sizes(std::mt19937& random, hd::Tensor&) {
    const auto rows = static_cast<std::int64_t>(random() % 300);
    const hd::Tensor x = rows_of(rows, 2);
    std::vector<hd::Tensor> outputs{hd::Tensor::empty(hd::f32, {rows})};
    const hd::Tensor inputs[] = {x};
    sums_.run_into(inputs, outputs);
    ledger_.add("sizes", all_are(outputs[0], 2 * kWidth));
  }

  void submitted(std::mt19937& random, hd::Tensor&) {
    const auto rows = static_cast<std::int64_t>(1 + random() % 4);
    const auto out = sums_.submit({rows_of(rows, 1)}).get();
    ledger_.add("submitted", all_are(out[0], kWidth));
  }

  /// Each is refused, by the right error.
  void refused(std::mt19937& random, hd::Tensor&) {
    bool right = false;
    try {
      if (random() % 2 == 0)
        model_.run({hd::Tensor::full(hd::f32, {2, kWidth + 1}, 1)});
      else
        model_.run({rows_of(1, 1), rows_of(1, 1)});
    } catch (const hd::ShapeError&) {
      right = true;
    } catch (const hd::ArgumentError&) {
      right = true;
    }
    ledger_.add("refused", right);
  }

  void new_engine(std::mt19937& random, hd::Tensor&) {
    const double addend = random() % 4;
    hd::Engine engine([addend](const hd::Tensor& x) { return hd::exp(x * 0.0f) + addend; },
                      {.threads = 1});
    ledger_.add("new engine", all_are(engine.run({rows_of(2, 1)})[0], 1 + addend));
  }

  /// Fewer executables are kept than there are dtypes.
  void other_dtype(std::mt19937& random, hd::Tensor&) {
    constexpr hd::DType kTypes[] = {hd::f32, hd::f64, hd::i32, hd::i64};
    const hd::DType type = kTypes[random() % std::size(kTypes)];
    const auto out = dtypes_.run({hd::Tensor::full(type, {4}, 3)});
    ledger_.add("other dtype", out[0].dtype() == type && all_are(out[0], 12));
  }

  void failed_trace(std::mt19937&, hd::Tensor&) {
    bool right = false;
    try {
      throwing_.run({hd::Tensor::full(hd::f32, {2, 2}, 1)});
    } catch (const std::runtime_error& error) {
      right = std::string(error.what()) == "one dimension only";
    }
    ledger_.add("failed trace",
                right && all_are(throwing_.run({hd::Tensor::full(hd::f32, {2}, 1)})[0], 2));
  }

  Ledger& ledger_;
  std::string first_, second_;
  hd::Tensor weight_ = hd::Tensor::full(hd::f32, {kWidth, kWidth}, 1);
  hd::Tensor divisor_ = hd::Tensor::full(hd::f32, {kWidth}, 1);
  hd::Engine model_{
      [w = weight_, d = divisor_](const hd::Tensor& x) { return hd::matmul(x, w) / d; },
      {.threads = 2, .max_plans = 16, .specialise_after = 20}};
  hd::Engine decoder_{[](const hd::Tensor& cache, const hd::Tensor& value, const hd::Tensor& at) {
                        const hd::Tensor operands[] = {cache, value,
                                                       at};  // the array, what goes in, where
                        hd::assign(cache, hd::apply("index_put", operands)[0]);
                        return hd::sum(cache, {0});
                      },
                      {.threads = 1}};
  hd::Engine loop_{[](const hd::Tensor& trips, const hd::Tensor& x) {
                     using State = std::vector<hd::Tensor>;
                     const State last = hd::while_loop(
                         State{trips, x}, [](const State& s) { return hd::greater(s[0], 0); },
                         [](const State& s) { return State{s[0] - 1, s[1] * 2}; });
                     return last[1];
                   },
                   {.threads = 1}};
  hd::Engine branch_{[](const hd::Tensor& x) {
                       return hd::cond(
                           hd::greater(hd::sum(x, {0, 1}), 0.0f),
                           [](const hd::Tensor& y) { return y + 1; },
                           [](const hd::Tensor& y) { return y * 2; }, x);
                     },
                     {.threads = 1}};
  hd::Engine sums_{[](const hd::Tensor& x) { return hd::sum(x, {1}); },
                   {.threads = 2, .max_executables = 4, .max_plans = 32, .specialise_after = 2}};
  hd::Engine dtypes_{[](const hd::Tensor& x) { return x * x + x; },
                     {.threads = 1, .max_executables = 2}};
  hd::Engine throwing_{[](const hd::Tensor& x) {
                         if (x.rank() != 1) throw std::runtime_error("one dimension only");
                         return x + 1;
                       },
                       {.threads = 1}};
};

struct Memory {
  std::size_t heap = 0;     ///< bytes of malloc in use
  std::size_t tensors = 0;  ///< of arenas and tensors
};

Memory memory_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return {info.uordblks + info.hblkhd, hd::memory::CachingAllocator::host().stats().in_use_bytes};
}

/// Sends `requests` from each of four threads while parameters are updated, waits for all, and reads memory.
Memory quarter(Server& server, std::uint32_t requests, std::uint32_t seed) {
  std::atomic<bool> done{false};
  std::thread operating([&] {
    for (int k = 0; !done; ++k) {
      server.update(k);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::vector<std::thread> clients;
  for (std::uint32_t t = 0; t < 4; ++t)
    clients.emplace_back([&server, requests, seed, t] {
      std::mt19937 random(seed + t);
      hd::Tensor cache = hd::Tensor::zeros(hd::f32, {kSlots});
      for (std::uint32_t k = 0; k < requests; ++k) server.serve(random, cache);
    });
  for (std::thread& client : clients) client.join();
  done = true;
  operating.join();
  server.settle();
  return memory_in_use();
}

/// Whether what was in use in the second half, at its lowest, is no more than in the first at its highest.
template <class Member>
void expect_level(const std::array<Memory, 4>& quarters, Member what) {
  // The plans, contexts and executables kept take 3.5 MiB, and all of them only after 100,000 requests.
  constexpr std::size_t kSlack = 4u << 20;
  EXPECT_LE(std::min(quarters[2].*what, quarters[3].*what),
            std::max(quarters[0].*what, quarters[1].*what) + kSlack);
}

TEST(Soak, AnswersStayRightAndMemoryStaysLevel) {
  const auto cache =
      std::filesystem::temp_directory_path() / ("heddle_soak_" + std::to_string(getpid()));
  setenv("HEDDLE_CACHE_DIR", cache.c_str(), 1);
  const std::uint32_t requests = requests_of_a_quarter();
  const std::size_t tensors_before = memory_in_use().tensors;
  Ledger ledger;
  {
    Server server(ledger);
    server.start();
    std::array<Memory, 4> quarters;
    for (std::uint32_t k = 0; k < quarters.size(); ++k) {
      quarters[k] = quarter(server, requests, 1 + 100 * k);
      std::printf("%4u x %u requests; in use then: %zu KiB of heap, %zu KiB of tensors\n", k + 1,
                  4 * requests, quarters[k].heap >> 10, quarters[k].tensors >> 10);
    }
    EXPECT_GT(server.specialisations(), 0u);
    expect_level(quarters, &Memory::heap);
    expect_level(quarters, &Memory::tensors);
  }
  for (const auto& [kind, count] : ledger.counts()) {
    std::printf("%10llu %s\n", static_cast<unsigned long long>(count), kind.c_str());
    EXPECT_GT(count, 0u) << kind;
  }
  EXPECT_EQ(ledger.wrong(), "") << "the first kind of request with a wrong answer";
  EXPECT_EQ(ledger.counts().size(), 11u);
  EXPECT_EQ(memory_in_use().tensors, tensors_before) << "bytes of tensors outlived every engine";
  std::filesystem::remove_all(cache);
}

}  // namespace
