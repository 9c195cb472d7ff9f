// The engine: a traced, compiled callable.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/device.h"
#include "heddle/regions.h"
#include "heddle/structure.h"
#include "heddle/tensor.h"

namespace heddle {

/// Which order the steps of a plan run in. Each follows every order edge.
enum class StepOrder : std::uint8_t {
  Smallest,  ///< the first of the others with the smallest peak memory
  Given,     ///< of the callable
  Lpmf,      ///< least peak memory first
  Bfs,
  Dfs,
};

/// A pass of the embedder, over graphs as IR text (.hir): text in, text out. It runs when an executable is made,
/// and what it gives is verified like what our own passes give: it must stay functional and typed alike, and
/// no two of inputs and outputs may come to share memory. The same text: nothing changed.
struct GraphPass {
  enum class Point : std::uint8_t {
    First,            ///< on the graph as traced
    BeforeReinplace,  ///< on what the other passes leave, while it is still functional
  };
  /// Plans name it, and errors of what it gives and throws; if `run` is empty: which of our passes runs there.
  std::string name;
  Point point = Point::BeforeReinplace;
  std::function<std::string(const std::string& graph)> run;
};

/// What nodes must wait for: name of a node (of any of its results, without '%') → names of nodes that run
/// before it. Results are not affected, and nothing is kept alive; a node that is not needed is removed all
/// the same.
using ControlDeps = std::map<std::string, std::set<std::string>>;

/// Names of inputs, as Signature has them, that each call gives away: what their memory holds after the call is
/// nobody's business. Steps may overwrite it after its last reader, and an output may lie there: that of run_into()
/// which the caller lets overlap exactly, or one of run(std::vector<Tensor>&&). An input that is given away overlaps
/// no other input and no parameter, which each call checks, and what the callable assigns to it is not written back.
/// An output that is such an input with a part of it overwritten, such as a cache of fixed length, is made by writing that part alone where it lies
/// so.
/// In IR text: `%x: donated f32[8]`.
using Donations = std::set<std::string>;

/// Names of inputs, as Signature has them, that calls append to: caches of keys and values. An output that is a concatenation
/// which begins with such an input lies where the input does: only what comes behind it is written. A call gives that output as a tensor with strides of its own and
/// room to grow, which the next call is given as the input; the handles that there are keep their elements. Elements are copied, to memory
/// with room for half as many more, where an input has no room: one of the caller's memory, one that is full, and one to which another call has appended, such as
/// a beam that parts. In run_into() such an output may be an empty handle, which gets that tensor; else it is copied there.
using Appends = std::set<std::string>;

/// Settings of an engine. Each may also be given by environment (HEDDLE_THREADS, HEDDLE_CACHE_DIR, …);
/// what is set here wins.
struct EngineOptions {
  Device device = Device::cpu();
  /// Threads that work on one call, the caller's included. 0: HEDDLE_THREADS, or one for each processor that the process may run on,
  /// but no more than its control groups leave it the time of.
  int threads = 0;
  bool disk_cache = true;   ///< keep compiled kernels and plans in cache_dir
  std::string cache_dir{};  ///< empty: HEDDLE_CACHE_DIR, else ~/.cache/heddle
  /// The processor that kernels are made for, by LLVM's name: "x86-64-v3" (AVX2), "x86-64-v4" (AVX-512), "znver4", "icelake-server", … Kernels
  /// that one machine keeps on disk then serve all that have its instructions, as those of a container's image do; one whose instructions this machine lacks, or
  /// without F16C, is an OptionError. Libraries and kernels that are part of Heddle take what the machine has. Empty: HEDDLE_CPU, else this machine.
  std::string cpu{};
  /// Where kernels are kept on disk: keep weights there too, as kernels read them (packed, transformed, folded), when they
  /// take a MiB or more; a later process maps them and makes none. In cache_dir/constants, of all models 4 GiB at most, beyond which
  /// those unused for longest are dropped. What is broken there is made anew, and what cannot be written is not kept. Nothing:
  /// HEDDLE_KEEP_CONSTANTS, 0 or 1, else yes.
  std::optional<bool> keep_constants{};
  bool fuse = true;     ///< false: one kernel an op
  bool library = true;  ///< library kernels (oneDNN) may be used
  StepOrder order = StepOrder::Smallest;
  std::vector<std::string> skip_passes{};
  std::string dump_dir{};                    ///< graphs and kernels are written here when not empty
  std::size_t max_executables = 64;          ///< the least recently used beyond it is dropped
  CompileScope scope = CompileScope::Whole;  ///< what annotations choose
  MarkNode mark{};                           ///< chooses nodes by predicate instead of by scope
  /// Called before a region is compiled, each time; what it throws counts as a failed compile.
  std::function<void(const RegionInfo&)> on_region_compile{};
  std::function<void(std::string_view)> log{};  ///< gets lines of text; standard error when empty
  std::size_t max_plans =
      1024;  ///< bound plans remembered, one for each combination of sizes; of 64 MiB at most
  std::vector<GraphPass> passes{};  ///< run in order at their points
  ControlDeps control_deps{};       ///< of the graph as traced, after the passes of its point First
  Donations donate{};               ///< inputs whose memory is the engine's from the call on
  Appends append{};                 ///< inputs that calls append to where they lie
  /// The least room that such an input is given along its axis, with what is there: a length that it often gets.
  std::int64_t append_room = 0;
  /// Prove each plan when it is bound: every order edge holds, no bytes are reused while they are live. Costs
  /// about as much as lowering. Metadata of nodes that passes made is inferred twice. HEDDLE_CHECK_PLANS=1 does the same.
  bool check_plans = false;
  int streams = 0;  ///< CUDA streams of one call, at most; 0: HEDDLE_STREAMS or 4
  /// Calls with one combination of sizes after which an executable for just these is compiled in the
  /// background; calls go on with the general one until it takes its place. The two may round differently.
  /// 0: HEDDLE_SPECIALISE_AFTER or never.
  int specialise_after = 0;
  /// CUDA: from the second call of a kind on, its steps are queued as graphs of the device, but for branches, loops,
  /// and custom ops that are not pure or not flagged capturable. Nothing: HEDDLE_CUDA_GRAPHS, 0 or 1, else they are.
  std::optional<bool> cuda_graphs{};
  /// CUDA: kernels of products and attention exist in several variants, and for floating products cuBLASLt, for
  /// convolutions cuDNN, where they are installed, are one more. The first call of a class of sizes takes the one that a
  /// cost model expects to be the fastest, which a library never is; meanwhile those that may be are timed on the device
  /// in the background, and calls then take the fastest. What was measured is kept in cache_dir. The variants round differently. Nothing:
  /// HEDDLE_AUTOTUNE, 0 or 1, else they are timed on a real device and not on a simulated one.
  /// On the CPU, where it is asked for: convolutions of 3 x 3, and of 3 or 5 elements along a row or a column, are computed directly
  /// or by Winograd's algorithm, as a cost model says, until both were timed in the same way, by one thread.
  std::optional<bool> autotune{};
  /// On the CPU, calls compute with subnormal numbers as 0, which some processors take 100 times as long for (Intel's 130 cycles an
  /// instruction): those of f32 below 2^-126, of f64 below 2^-1022. Without it they do as the calling thread's own floating-point control
  /// says, all threads alike, which by default keeps them. Constants are folded as they are. Nothing: HEDDLE_FLUSH_SUBNORMALS, 0 or 1, else
  /// they are kept.
  std::optional<bool> flush_subnormals{};
  /// CUDA: the caller's context (a CUcontext), which outlives the engine and its tensors; null: the primary one.
  void* context = nullptr;
  /// CUDA: the caller's stream (a CUstream of that context, not the default stream), which outlives the engine. A
  /// call's work begins after what was queued there before and ends before what is queued later. Calls whose
  /// results, written inputs included, lie on the device return when the work is queued: results are ready in the
  /// stream's order, for other engines by themselves, and for the host after Tensor::wait(), which also throws
  /// what a check of the call found; inputs are kept until they are used. Up to four such calls of an engine are
  /// under way at once; the next one waits for the first. Where a branch, a loop or a size depends on values the
  /// call waits on the host for what was queued before it on the stream that brings them. Null: streams of the
  /// engine's, and calls return when they are done.
  void* stream = nullptr;
  /// The most bytes that may be held in the memory of the engine's device, in this process and, on CUDA, context: those
  /// in use by whatever engine and tensor, and those that are kept for later calls. A call that needs more is
  /// OutOfMemory, and the engine can be used as before. The smallest cap of the engines that are there holds. 0: none of this engine's;
  /// on CUDA HEDDLE_DEVICE_MEMORY_CAP holds where no engine has one. Not counted: what the driver keeps for code and graphs, what
  /// libraries take for themselves and, on the CPU, compiled code and the weights of a model.
  std::size_t memory_cap = 0;
  /// The same of the host's pinned memory on CUDA, through which inputs and outputs of the host go.
  /// 0: HEDDLE_PINNED_MEMORY_CAP or none.
  std::size_t pinned_memory_cap = 0;
};

/// What an input or output is.
struct ValueInfo {
  std::string name;  ///< "input_ids"; "input0" when it has none
  DType dtype = f32;
  std::vector<SymInt> sizes;  ///< symbolic where any size is taken
  bool donated = false;       ///< an input that each call gives away (EngineOptions::donate)
  /// Elements, i64, are codes of strings: places in Signature::strings, or the caller's own numbers outside of it for strings that
  /// the model does not know, which equal nothing but themselves (onnx::StringCodes).
  bool is_text = false;
  /// An output that the model gives as maps: the keys of the columns of its last dimension, numbers in decimal. Else empty.
  std::vector<std::string> columns{};
  /// An output: the input that it lies in, one with what a call appends (EngineOptions::append), or a donated one with a part of it
  /// overwritten; known after the first call. Else empty.
  std::string lies_in{};
  std::string to_string() const;
};

/// Counters of an engine since it was made.
struct EngineStats {
  std::uint64_t traces = 0;    ///< how often the callable was called
  std::uint64_t compiles = 0;  ///< executables made
  std::uint64_t found_plans =
      0;  ///< of these, ones whose plan was on disk: no passes were run, nothing was lowered
  std::uint64_t binds = 0;            ///< plans bound to new sizes
  std::uint64_t specialisations = 0;  ///< executables for exact sizes, compiled in the background
  std::uint64_t runs = 0;
  std::uint64_t kernels = 0;  ///< distinct compiled functions in use
  std::uint64_t kernels_compiled =
      0;  ///< compiled by this engine (neither memory nor disk had them)
  std::uint64_t disk_hits = 0;
  std::uint64_t found_constant_bytes =
      0;  ///< of prepared constants that were on disk (EngineOptions::keep_constants)
  std::uint64_t regions_compiled = 0;  ///< compile units that annotations chose
  std::uint64_t region_fallbacks =
      0;  ///< of these, units that run op by op since their compile failed
  std::uint64_t evaluator_steps =
      0;  ///< steps that the reference evaluator ran: 0 but on Device::reference()
  std::uint64_t in_place = 0;               ///< calls that overwrite an operand, in all executables
  std::uint64_t missed_in_place = 0;        ///< calls that could, and copy it
  std::uint64_t missed_in_place_bytes = 0;  ///< of operands with known sizes
  std::uint64_t missed_donations =
      0;  ///< donated inputs, in all executables, that nothing can lie in
  std::uint64_t missed_donation_bytes = 0;  ///< of those with known sizes
  std::uint64_t copied_outputs =
      0;  ///< outputs that calls put into donated inputs by a copy at the end
  std::uint64_t append_copies =
      0;  ///< inputs that calls append to (EngineOptions::append), copied to where there is room
  std::uint64_t append_copied_bytes = 0;
  std::uint64_t measurements =
      0;  ///< kernels and library calls whose variants were timed for a class of sizes
  std::uint64_t graphs = 0;  ///< graphs of the device that were made
  std::uint64_t graph_launches = 0;
  std::uint64_t graph_updates = 0;     ///< nodes that were given other addresses or sizes
  double load_ms = 0;                  ///< reading and checking a model file
  double compile_ms = 0;               ///< tracing to executable, in total
  std::uint64_t arena_peak_bytes = 0;  ///< of one request
  std::vector<std::string>
      recompiles;  ///< why compiles after the first happened, of the last 64: the failed guard
};

/// Bytes of memory that this process holds for all its engines and tensors, in blocks as they are rounded up.
struct MemoryStats {
  struct Pool {
    std::size_t in_use_bytes =
        0;  ///< of tensors, parameters, calls under way, and idle contexts of engines
    std::size_t cached_bytes = 0;  ///< in no use, kept for the next who asks
    std::size_t peak_bytes = 0;    ///< the most that were in use at a time
    std::size_t cap_bytes = 0;     ///< EngineOptions::memory_cap and its like; 0: none
  };
  Pool host;    ///< tensors on the CPU and arenas
  Pool device;  ///< CUDA: the engine's device, in its context
  Pool pinned;  ///< CUDA: memory of the host that this device copies from and to
};

/// What happened in a run, in order: memory of a value taken or given back, a step launched. A value that takes
/// another's bytes in place takes no memory: the bytes are given back, in the name of the first, when the last is
/// done with. Memory of a donated input is given back and was never taken; one that no step uses is given back before
/// the first.
struct RunEvent {
  enum class Kind : std::uint8_t { Alloc, Launch, Free };
  Kind kind = Kind::Launch;
  std::size_t step = 0;
  std::string value;       ///< the value, or the kernel that was launched
  std::int64_t bytes = 0;  ///< of the value; 0 for launches
  friend bool operator==(const RunEvent&, const RunEvent&) = default;
};

/// What Engine::profile() times.
enum class Profile : std::uint8_t {
  Steps,   ///< each step, on as many threads as it runs on
  Shares,  ///< the parts of each step that threads share, all on the calling thread: how a model does on more processors than there are
};

/// What one step of a run takes when the steps run one after another.
struct StepTime {
  std::size_t step = 0;  ///< as in RunEvent and in the plan
  std::string kernel;
  double microseconds =
      0;  ///< the median over the runs; with finding its sizes, where only the run tells them
  /// Of Profile::Shares: what the engine's threads would take, each on a processor of its own, but for what it costs to share; else 0.
  double shared_microseconds = 0;
  std::int64_t bytes = 0;  ///< of the buffers that it reads and writes, each once
  std::int64_t work =
      0;  ///< scalar operations, as schedules estimate them: a multiply-add counts as 1 or 2
  /// Of Profile::Steps and a step that runs plans of its own, as a branch or a loop does: their steps, one run after another. What they say
  /// is of all runs in a call, on average: `runs` of them. Steps that are run for some entries of a batch after others are one, the first
  /// of them, with `kernel` "steps 0 to 9", and are all here.
  std::vector<StepTime> inside{};
  double runs = 1;
};

/// A named input of run().
struct NamedTensor {
  std::string_view name;
  Tensor tensor;
};

/// A tensor that an engine holds: one that its callable captured, or a constant of its model.
struct Parameter {
  std::string name;  ///< in the model; "v0" and so on for captured ones
  Tensor value;      ///< what graphs read now; not to be written to
};

/// The callable as the engine keeps it: symbolic tensors in, flattened results out.
struct TraceResult {
  std::vector<Tensor> tensors;
  std::vector<std::string> names;         ///< of the tensors, may be empty
  std::shared_ptr<const void> prototype;  ///< the callable's own return value, for Function
};
using TraceFunction = std::function<TraceResult(std::span<const Tensor>)>;

/// Strings, sorted by their bytes: each is said by its place. Null: none.
using StringTable = std::shared_ptr<const std::vector<std::string>>;
/// -1: `strings` has no such.
HEDDLE_API std::int64_t place_of(const std::vector<std::string>& strings, std::string_view string);

/// What is known about inputs before the first call. Engines made from a model file know it all.
struct Signature {
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  StringTable strings{};  ///< of the model, which codes stand for
};

class Engine;

namespace detail {

HEDDLE_API void set_load_ms(Engine& engine, double milliseconds);
HEDDLE_API void name_parameter(Engine& engine, const std::string& name, const Tensor& parameter,
                               bool is_label);

template <typename F, typename Seq>
struct CallWith;
template <typename F, std::size_t... I>
struct CallWith<F, std::index_sequence<I...>> {
  static auto call(F& f, [[maybe_unused]] std::span<const Tensor> inputs) {
    return f(inputs[I]...);
  }
};

/// Number of Tensor parameters F takes, tried from 0 to 16; npos for one that takes a span.
template <typename F, std::size_t N, typename = void>
struct TakesTensors : std::false_type {};
template <typename F, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, decltype((void(I), std::declval<const Tensor&>()))...>;
}
template <typename F, std::size_t N = 0>
constexpr std::size_t arity() {
  if constexpr (N > 16) {
    return static_cast<std::size_t>(-1);
  } else if constexpr (takes<F>(std::make_index_sequence<N>())) {
    return N;
  } else {
    return arity<F, N + 1>();
  }
}

[[noreturn]] HEDDLE_API void wrong_input_count(std::size_t expected, std::size_t got);

template <typename R>
TraceResult flatten(R result) {
  TraceResult flat;
  auto kept = std::make_shared<R>(std::move(result));
  visit_tensors(*kept, [&](Tensor& t) { flat.tensors.push_back(t); });
  flat.prototype = kept;
  return flat;
}

template <typename F>
TraceFunction erase(F f) {
  if constexpr (std::is_invocable_v<F&, std::span<const Tensor>>) {
    return
        [f = std::move(f)](std::span<const Tensor> inputs) mutable { return flatten(f(inputs)); };
  } else {
    constexpr std::size_t kCount = arity<F>();
    static_assert(
        kCount != static_cast<std::size_t>(-1),
        "the callable must take tensors: f(const Tensor&, …) or f(std::span<const Tensor>)");
    return [f = std::move(f)](std::span<const Tensor> inputs) mutable {
      if (inputs.size() != kCount) wrong_input_count(kCount, inputs.size());
      return flatten(CallWith<F, std::make_index_sequence<kCount>>::call(f, inputs));
    };
  }
}

}  // namespace detail

/// Compiles a callable over tensors at its first call, and runs it.
///
/// The callable must be pure: it is traced with symbolic tensors once for every way its guards can fall
/// (dtype, rank, a branch on a size), never once a size. Tensors it captures are parameters.
///
/// Threads: run, run_into, submit and prepare may be called from any number of threads at once.
/// After an exception the engine is as it was before the call.
class HEDDLE_API Engine {
 public:
  template <typename F>
    requires(!std::same_as<std::remove_cvref_t<F>, Engine>)
  explicit Engine(F&& f, EngineOptions options = {})
      : Engine(FromTrace{}, detail::erase(std::decay_t<F>(std::forward<F>(f))), std::move(options),
               {}) {}

  /// From an erased callable and what is known of its inputs.
  struct FromTrace {};
  Engine(FromTrace, TraceFunction trace, EngineOptions options, Signature signature);
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  /// Runs on `inputs`, in the callable's order. Outputs are the engine's memory, one fresh tensor each.
  /// @throws ArgumentError (count, name), DTypeError, ShapeError (rank, size), DeviceError, and what tracing
  ///         and compiling may throw at a first call.
  std::vector<Tensor> run(std::span<const Tensor> inputs);
  std::vector<Tensor> run(std::initializer_list<Tensor> inputs) {
    return run(std::span<const Tensor>(inputs.begin(), inputs.size()));
  }
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) {
    return run(std::span<const Tensor>(inputs));
  }
  /// The same with the caller's handles. Those of donated inputs are let go of right after the last step that uses them
  /// (on CUDA when the device has passed that step), so that memory of which no other handle is left can be used again
  /// while the call goes on; and an output of as many bytes may take that memory over. The others stay in
  /// `inputs`; when it throws, some donated ones may be gone and the rest of them overwritten.
  std::vector<Tensor> run(std::vector<Tensor>&& inputs);
  /// By input name: run({{"input_ids", ids}, {"mask", mask}}). Those of a callable are "input0" and so on.
  /// @throws ArgumentError too for names that are unknown, given twice or missing.
  std::vector<Tensor> run_named(std::span<const NamedTensor> inputs);
  std::vector<Tensor> run_named(std::initializer_list<NamedTensor> inputs) {
    return run_named(std::span<const NamedTensor>(inputs.begin(), inputs.size()));
  }
  /// A template, so that run({}) means no tensors.
  template <typename = void>
  std::vector<Tensor> run(std::initializer_list<NamedTensor> inputs) {
    return run_named(inputs);
  }
  /// Into the caller's row-major tensors. A steady-state call allocates nothing. An output may be exactly the memory
  /// of an input that is donated: where the plan still reads that while it writes the output, it is made elsewhere
  /// and copied (EngineStats::copied_outputs).
  /// @throws AliasingError when an output overlaps an input in any other way, or another output.
  void run_into(std::span<const Tensor> inputs, std::span<Tensor> outputs);
  /// On another thread, as run(std::vector<Tensor>&&) does: one of as many as there are processors, which the engine keeps, so that
  /// calls beyond these wait in the order in which they came. A call may submit others and wait for them. The future may be
  /// dropped: the call is run all the same, and the engine's destructor waits for it.
  std::future<std::vector<Tensor>> submit(std::vector<Tensor> inputs);
  /// The same; `done` gets the future when the call has ended, on that thread, so that nobody waits for it: get() gives the outputs or
  /// throws what run() would. It must not throw, and what it does keeps the thread from other calls. It may let go of the engine: the
  /// destructor then waits for all calls but this one.
  void submit(std::vector<Tensor> inputs,
              std::function<void(std::future<std::vector<Tensor>>)> done);

  /// Runs on `inputs` one step after another and tells what happens to the engine's memory: what the plan
  /// lists as `events`. Bytes are overwritten when they are given back, so that a step that reads them
  /// later gives wrong results; those of donated inputs too, where they are row-major. Outputs go to `outputs` if not
  /// null.
  /// @throws what run() throws.
  std::vector<RunEvent> run_trace(std::span<const Tensor> inputs,
                                  std::vector<Tensor>* outputs = nullptr);

  /// Runs on `inputs` as often as `runs` says, one step after another, and tells what each step takes. Steps that run()
  /// runs together are timed apart; what the runs before it compiled or cached is not in it, so call it when warm.
  /// @throws DeviceError on other devices than the CPU, whose own tools tell times; ArgumentError for runs below 1; what run() throws.
  std::vector<StepTime> profile(std::span<const Tensor> inputs, int runs = 20,
                                Profile what = Profile::Steps);

  /// The caller's memory on the engine's CUDA device and in its context, row-major, no copy. `deleter` is called
  /// once when the last handle is gone and no queued work of an engine uses it.
  /// @throws DeviceError when the engine runs elsewhere; what Tensor::wrap() throws.
  Tensor wrap_device(void* data, DType dtype, Sizes sizes, std::function<void(void*)> deleter = {});

  /// Compiles for inputs such as these (their data is not read) without running.
  void prepare(std::span<const Tensor> inputs);
  /// The same for row-major inputs of these sizes: prepare({{8, 128}, {8}}). Their dtypes are those of signature().
  /// @throws ArgumentError where that knows no inputs yet, as before the first call of a callable; what run() throws.
  void prepare(std::span<const Sizes> shapes);
  void prepare(std::initializer_list<Sizes> shapes) {
    prepare(std::span<const Sizes>(shapes.begin(), shapes.size()));
  }
  /// Waits until no executable for exact sizes is being compiled (EngineOptions::specialise_after) and no kernel is
  /// being measured (EngineOptions::autotune).
  void wait_for_specialisations();

  /// The parameters: tensors of one dimension or more that the callable captured (known after its first trace),
  /// initialisers of a model file (known from the start), with the values that they have now.
  std::vector<Parameter> parameters() const;
  /// Gives parameters new values, of the same types. What was derived from the old ones (folded, packed) is made
  /// anew, in this thread, with the kernels that are there; calls that run meanwhile see all of the old values, and
  /// those that start when this has returned all of the new.
  /// @throws ArgumentError for an unknown name, a name given twice, and a parameter whose elements the trace itself
  ///         read, such as a shape; DTypeError and ShapeError; nothing is changed then.
  void update_parameters(std::span<const NamedTensor> values);
  void update_parameters(std::initializer_list<NamedTensor> values) {
    update_parameters(std::span<const NamedTensor>(values.begin(), values.size()));
  }
  /// The same for the parameter that the callable knows as the handle `captured`.
  void update_parameter(const Tensor& captured, const Tensor& value);

  /// Inputs and outputs; known from the start for model files, after the first call otherwise.
  Signature signature() const;
  EngineStats stats() const;
  MemoryStats memory() const;
  /// Gives back to the device and to the system what no call, tensor or parameter uses: arenas, staging and graphs of this
  /// engine's contexts in which nothing is under way, then the blocks that are kept for later calls of all engines on the
  /// device. The next calls take memory anew. On CUDA it may wait for the device to come to rest, as giving memory back does there.
  /// @return the bytes given back: by so many less is held
  /// Threads: any; calls may run meanwhile.
  std::size_t trim();
  const EngineOptions& options() const;

  /// The plan for inputs such as these as a JSON document: guards, regions, kernels, steps, buffers,
  /// events (see the command `heddle plan`).
  std::string plan_json(std::span<const Tensor> inputs);
  /// The graph for inputs such as these as IR text, after tracing or after the passes.
  std::string graph_text(std::span<const Tensor> inputs, bool after_passes = true);

  /// run() and the callable's return value at its trace; what Function is built on.
  std::pair<std::vector<Tensor>, std::shared_ptr<const void>> run_with_prototype(
      std::span<const Tensor> inputs);

 private:
  friend void detail::set_load_ms(Engine& engine, double milliseconds);
  friend void detail::name_parameter(Engine& engine, const std::string& name,
                                     const Tensor& parameter, bool is_label);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// An engine over the graph in an IR text file (.hir). @throws ParseError and what the verifier throws.
HEDDLE_API Engine load_ir(const std::string& path, EngineOptions options = {});
HEDDLE_API Engine parse_ir(std::string_view text, EngineOptions options = {});

/// An engine typed by its callable: same arguments, same return type. Each call gives a copy of what the callable returned at
/// its trace, of the objects behind shared pointers too, with the tensors of this call in it.
template <typename F>
class Function {
 public:
  explicit Function(F f, EngineOptions options = {}) : engine_(std::move(f), std::move(options)) {}

  template <typename... T>
    requires(std::same_as<std::remove_cvref_t<T>, Tensor> && ...)
  auto operator()(const T&... inputs) {
    using R = std::invoke_result_t<F&, const T&...>;
    const Tensor flat[] = {inputs...};
    auto [outputs, prototype] = engine_.run_with_prototype(std::span<const Tensor>(flat));
    R result = *static_cast<const R*>(prototype.get());
    std::map<const void*, std::shared_ptr<void>> owned;
    detail::own_shared(result, owned);
    std::size_t next = 0;
    visit_tensors(result, [&](Tensor& t) { t = std::move(outputs[next++]); });
    return result;
  }

  Engine& engine() { return engine_; }

 private:
  Engine engine_;
};
template <typename R, typename... A>
Function(R (*)(A...)) -> Function<R (*)(A...)>;

}  // namespace heddle
