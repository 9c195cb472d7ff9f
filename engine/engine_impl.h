// The engine behind the public handle.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/float_control.h"
#include "base/processors.h"
#include "base/stripes.h"
#include "engine/background.h"
#include "engine/call_threads.h"
#include "engine/context.h"
#include "engine/cuda_context.h"
#include "engine/descriptor.h"
#include "engine/donated_memory.h"
#include "engine/executable.h"
#include "engine/in_place_call.h"
#include "engine/parameters.h"
#include "engine/plan_cache.h"
#include "heddle/engine.h"

namespace heddle {

namespace engine {
struct Unmeasured;

/// The caps of an engine's options, while it lives.
struct HeldCaps {
  /// @param cuda  null: on the CPU
  HeldCaps(const EngineOptions& options, CudaExecutor* cuda);
  std::shared_ptr<const void> memory, pinned;
};

}  // namespace engine

struct Engine::Impl {
  using Clock = std::chrono::steady_clock;
  static double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }

  Impl(TraceFunction trace, EngineOptions options, Signature signature);
  ~Impl();

  /// The plan that serves `inputs`: from the memo, or the slow path (guards, trace, compile, bind).
  /// Call inside a reader of plans.reclaimer().
  const engine::BoundPlan& plan_for(std::span<const Tensor> inputs);
  /// Of a call with outputs in inputs: for which there is room.
  const engine::BoundPlan& plan_for(engine::InPlaceCall& call);
  /// The plan for inputs of the callable, which is not run.
  const engine::BoundPlan& plan_like(std::span<const Tensor> inputs);
  bool appends() const { return !options.append.empty(); }
  /// @param owner  as of InPlaceCall
  /// @throws OptionError where the options name no input, or one that is donated
  engine::InPlaceCall in_place_call(std::span<const Tensor> inputs, std::vector<Tensor>* owner);
  /// The callable's outputs: what `run` makes of a plan, its inputs and, where they are handed over, their owner gives those of the graph.
  template <typename F>
  std::vector<Tensor> run_by(std::span<const Tensor> inputs, std::vector<Tensor>* handed_over,
                             F&& run) {
    if (!appends()) [[likely]] {
      const engine::BoundPlan& plan = plan_for(inputs);
      if (plan.executable->in_place.empty()) [[likely]]
        return run(plan, inputs, handed_over);
    }
    engine::InPlaceCall call = in_place_call(inputs, handed_over);
    const engine::BoundPlan& plan = plan_for(call);
    call.own_updated(plan);
    std::vector<Tensor> places = call.places(plan);
    std::vector<Tensor> outputs = run(plan, std::span<const Tensor>(call.inputs()),
                                      handed_over == nullptr ? nullptr : &call.inputs());
    if (handed_over != nullptr)
      for (const engine::Update& update : plan.executable->in_place.updates)
        call.inputs()[update.input] = {};
    return engine::InPlaceCall::joined(std::move(places), std::move(outputs));
  }
  /// Runs the plan by `run`, which takes a context that is ready and gives the first status word that is
  /// not 0, else 0.
  template <typename F>
  void execute_with(const engine::BoundPlan& plan, std::span<const Tensor> inputs,
                    std::span<Tensor> outputs, F&& run) {
    plan.executable->guards().check_overlap(inputs);
    std::unique_ptr<engine::ExecutionContext> context = contexts.acquire();
    LateOutputs late(*this, plan, inputs, outputs);
    make_ready(*context, plan);
    context->set_io(plan, inputs, outputs, &late);
    const std::int32_t status = flushes_subnormals ? run_flushing(*context, run) : run(*context);
    const std::exception_ptr failure = status == 0 ? nullptr : context->take_failure(plan, status);
    note_peak(std::max(plan.memory.peak_bytes, context->peak_bytes()));
    contexts.release(std::move(context));
    finish_run(plan, status, failure);
  }
  template <typename F>
  static std::int32_t run_flushing(engine::ExecutionContext& context, F& run) {
    const base::SubnormalScope scope(base::SubnormalMode::flushing());
    return run(context);
  }
  /// @throws OutOfMemory
  void make_ready(engine::ExecutionContext& context, const engine::BoundPlan& plan);
  void note_peak(std::int64_t arena_bytes);
  /// Counts a run, and throws what its steps reported.
  void finish_run(const engine::BoundPlan& plan, std::int32_t status,
                  const std::exception_ptr& failure);
  /// Outputs whose sizes only the run tells are made by it where they are undefined.
  /// @param handed_over  the owner of `inputs`, which loses donated ones after their last steps; null: another has them
  void execute(const engine::BoundPlan& plan, std::span<const Tensor> inputs,
               std::span<Tensor> outputs, std::vector<Tensor>* handed_over = nullptr);
  /// execute() on CUDA. `events`: not null: as run_traced().
  void execute_on_device(const engine::BoundPlan& plan, std::span<const Tensor> inputs,
                         std::span<Tensor> outputs, std::vector<RunEvent>* events);
  /// execute() step by step, with what the memory plan does in between.
  std::vector<RunEvent> run_traced(const engine::BoundPlan& plan, std::span<const Tensor> inputs,
                                   std::span<Tensor> outputs);
  Tensor make_output(DType dtype, const Sizes& sizes) const;
  /// Fresh tensors for the outputs of `plan`; undefined ones where only the run tells the sizes.
  /// @param taken  memory that some of them take over
  std::vector<Tensor> make_outputs(const engine::BoundPlan& plan, engine::TakenMemory* taken) const;
  /// Memory of the caller's outputs, or of fresh ones, for sizes that the run tells.
  class LateOutputs : public engine::OutputSource {
   public:
    LateOutputs(const Impl& impl, const engine::BoundPlan& plan, std::span<const Tensor> inputs,
                std::span<Tensor> outputs)
        : impl_(impl), plan_(plan), inputs_(inputs), outputs_(outputs) {}
    void* output(std::uint32_t position, const Sizes& sizes) override;

   private:
    const Impl& impl_;
    const engine::BoundPlan& plan_;
    std::span<const Tensor> inputs_;
    std::span<Tensor> outputs_;
  };
  /// @param prototype  not null: what the callable returned when it was traced is put there
  std::vector<Tensor> run_reference(std::span<const Tensor> inputs,
                                    std::shared_ptr<const void>* prototype);
  engine::CallThreads::Call call_of(std::vector<Tensor> inputs);
  std::vector<Tensor> run(std::span<const Tensor> inputs, std::vector<Tensor>* handed_over,
                          std::shared_ptr<const void>* prototype);
  /// Outputs of the graph, fresh ones.
  std::vector<Tensor> run_plan(const engine::BoundPlan& plan, std::span<const Tensor> inputs,
                               std::vector<Tensor>* handed_over);
  /// Engine::run_into() of a plan.
  void run_plan_into(const engine::BoundPlan& plan, std::span<const Tensor> inputs,
                     std::span<Tensor> outputs);
  /// Engine::run_into() where outputs lie in inputs.
  void run_in_place_into(std::span<const Tensor> inputs, std::span<Tensor> outputs);
  /// @param outputs  of the caller: some lie where donated inputs do, and are not to be written before the end
  void run_aside(const engine::BoundPlan& plan, std::span<const Tensor> inputs,
                 std::span<Tensor> outputs, std::span<const std::size_t> aside);
  /// Which inputs the options say are donated.
  /// @throws OptionError for a name that is no input's.
  void note_donations(engine::Guards& guards) const;
  /// Whether input k is donated, by the model or the options.
  bool is_donated(std::size_t k) const;
  /// An executable and the sizes under which its guards hold.
  struct Match {
    std::shared_ptr<const engine::Executable> executable;  ///< null: no guards hold
    base::SymbolValues sizes;
    std::string failed;  ///< without an executable: the guard that failed, of the most recent one
  };
  Match find_executable(std::span<const Tensor> inputs);
  /// Traces and compiles; waits for another thread's compile, which may turn out to serve.
  Match compile_for(std::span<const Tensor> inputs);

  struct Traced {
    ir::Graph graph;
    engine::Guards guards;
    base::SymbolValues hints;  ///< the sizes of this trace
    std::shared_ptr<const void> prototype;
    std::vector<std::string> output_names;
    std::map<ir::Value, Tensor> originals;  ///< by parameter of the graph
  };
  /// Counts a call; the one that makes it as many as the options say asks for an executable for its sizes.
  void count_call(const engine::BoundPlan& plan) {
    if (specialise_after > 0 &&
        plan.calls.fetch_add(1, std::memory_order_relaxed) + 1 == specialise_after) [[unlikely]]
      ask_for_specialisation(plan);
  }
  void ask_for_specialisation(const engine::BoundPlan& plan);
  /// Compiles `general` for `exact` sizes, and puts it in place of the plan of `words`. On the thread of
  /// `background`. @throws what compiling throws.
  void specialise(const engine::Executable& general, std::span<const ir::Assumption> exact,
                  const base::SymbolValues& sizes, const std::vector<std::int64_t>& words,
                  std::uint64_t hash);
  /// Asks for measurements of the kernels and library calls of a new plan that have several variants, on the thread of
  /// `background`. Where another turns out to be the fastest, one with it takes the plan's place.
  void ask_for_measurements(const engine::BoundPlan& plan);
  /// @return whether a variant that is not the one taken is the fastest.
  bool measure(const engine::Unmeasured& wanted);
  void open_library(const jit::cuda::CudaKernel& kernel);
  void tell_of_library(const jit::cuda::CudaKernel& kernel);
  /// Binds the executable's plan of `words` anew, and puts it in the place of the old one.
  void rebind(const std::shared_ptr<const engine::Executable>& executable,
              const base::SymbolValues& sizes, const std::vector<std::int64_t>& words,
              std::uint64_t hash);
  /// Bytes of prepared constants that the compiler's process found on disk.
  std::uint64_t found_constants() const;
  engine::BuildOptions build_options(const base::SymbolValues& hints) const;
  /// Traces the callable with symbolic tensors like `inputs`. Under `compiling`.
  Traced trace_graph(std::span<const Tensor> inputs);
  /// New values by original. Checked; all executables are made anew before the first is replaced.
  void update(const std::vector<std::pair<Tensor, Tensor>>& values);
  std::shared_ptr<engine::Executable> updated(const engine::Executable& old,
                                              const std::vector<std::pair<Tensor, Tensor>>& values);
  /// Names and symbolic sizes of the outputs, from the first trace. Under `mutex`.
  void describe_outputs(const Traced& traced);

  TraceFunction trace;
  EngineOptions options;
  Signature known;  ///< inputs: constant; outputs: under `mutex`
  std::unique_ptr<jit::CompileService> own_compiler;
  jit::CompileService* compiler = nullptr;
  std::unique_ptr<engine::CudaExecutor> cuda;  ///< null but on a CUDA device
  engine::HeldCaps caps;
  scheduler::Executor executor;
  engine::PlanCache plans;
  engine::ContextPool contexts;
  engine::ParameterTable parameters;  ///< values change under `compiling`

  std::mutex compiling;  ///< held while the callable is traced and compiled; taken before `mutex`
  std::mutex mutex;  ///< held for microseconds: executables, what enters and leaves plans, counters
  using Executables = std::vector<std::shared_ptr<const engine::Executable>>;
  Executables executables;        ///< most recently used first
  Executables exact_executables;  ///< the same; tried before them
  /// Which inputs the options name to append to, and along which axes that is.
  struct AppendedInputs {
    std::vector<std::size_t> named;
    engine::AppendAxes axes;
  };
  std::map<std::size_t, AppendedInputs> appended;  ///< by the number of inputs; under `mutex`
  /// Those of `count` inputs. Under `mutex`. @throws OptionError
  AppendedInputs& find_appended(std::size_t count);
  std::vector<std::size_t> named_to_append(std::size_t count);
  /// Notes which outputs of an executable lie in inputs, for calls and in the signature. Under `mutex`.
  void note_in_place(const engine::OutputsInPlace& in_place, std::size_t inputs);
  static constexpr std::size_t kRecompilesTold = 64;
  std::deque<std::string> recompiles;  ///< the last kRecompilesTold
  std::uint64_t traces = 0;
  std::uint64_t found_plans = 0;
  std::uint64_t compiles = 0;
  std::uint64_t binds = 0;
  std::uint64_t specialisations = 0;
  std::uint64_t regions_compiled = 0;
  std::uint64_t region_fallbacks = 0;
  double compile_ms = 0;
  double load_ms = 0;
  base::StripedCounter runs;
  std::atomic<std::uint64_t> evaluator_steps{0};
  std::atomic<std::uint64_t> measurements{0};
  std::atomic<std::uint64_t> copied_outputs{0};
  std::atomic<std::uint64_t> append_copies{0};
  std::atomic<std::uint64_t> append_copied_bytes{0};
  std::set<std::string>
      told_of_libraries;  ///< under `mutex`: those of which was told that they fail
  std::atomic<std::int64_t> arena_peak{0};
  jit::CompileCounters counters_at_start;
  std::uint64_t found_constants_at_start;  ///< bytes
  std::uint64_t cuda_kernels_at_start;
  std::uint64_t cuda_disk_hits_at_start;
  int specialise_after;
  const bool flushes_subnormals;
  bool autotune;
  engine::Background background;  ///< its thread ends before anything it uses does
  engine::CallThreads submitted{
      static_cast<std::size_t>(base::processors())};  ///< last, for the same reason
};

namespace engine {

/// What a run of the plan does to memory, in order. Bytes that only the run tells are kUnknownSize.
std::vector<RunEvent> events_of(const BoundPlan& plan);

/// The plan as a JSON document (see `heddle plan`).
std::string plan_json(const BoundPlan& plan);

}  // namespace engine
}  // namespace heddle
