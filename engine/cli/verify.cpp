// heddle verify: runs cases of the ONNX backend test, each in a process of its own.

#include <CLI/App.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "base/processors.h"
#include "engine/cli/commands.h"
#include "engine/cli/verify_case.h"
#include "heddle/error.h"

namespace heddle::cli {

namespace {

namespace fs = std::filesystem;

struct VerifyOptions {
  ModelOptions model;
  std::vector<std::string> folders;
  double rtol = 1e-3;
  double atol = 1e-7;
  int jobs = 0;
  bool json = false;
};

[[noreturn]] void no_cases(const std::string& folder, const char* got) {
  throw ArgumentError({.what = "verify: " + folder,
                       .where = {},
                       .expected = "a case, or a folder of cases",
                       .got = got});
}

/// DIR itself if it is a case, else the cases in it.
std::vector<std::string> find_cases(const std::vector<std::string>& folders) {
  std::vector<std::string> cases;
  for (const std::string& folder : folders) {
    if (!fs::is_directory(folder)) no_cases(folder, "no such folder");
    if (fs::exists(fs::path(folder) / "model.onnx")) {
      cases.push_back(folder);
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (fs::exists(entry.path() / "model.onnx")) found.push_back(entry.path().string());
    }
    if (found.empty()) no_cases(folder, "no folder with model.onnx in it");
    std::sort(found.begin(), found.end());
    cases.insert(cases.end(), found.begin(), found.end());
  }
  return cases;
}

/// A child that runs one case and writes its outcome into a pipe.
struct Child {
  pid_t process = 0;
  int pipe = -1;
  std::size_t index = 0;
};

void write_all(int file, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
}

constexpr unsigned kCaseSeconds = 300;
/// Fits a pipe's buffer, so that a child never waits for its parent.
constexpr std::size_t kMaxReason = 2000;

Child start(const std::string& folder, std::size_t index, const VerifyOptions& options) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe failed");
  std::fflush(nullptr);
  const pid_t process = ::fork();
  if (process < 0) throw std::runtime_error("fork failed");
  if (process == 0) {
    ::close(ends[0]);
    ::alarm(kCaseSeconds);
    CaseOutcome outcome = verify_case(folder, options.model, {options.rtol, options.atol});
    outcome.reason.resize(std::min(outcome.reason.size(), kMaxReason));
    write_all(ends[1], to_text(outcome));
    ::_exit(0);
  }
  ::close(ends[1]);
  return {process, ends[0], index};
}

std::string read_all(int file) {
  std::string text;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = ::read(file, buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<std::size_t>(count));
  ::close(file);
  return text;
}

CaseOutcome outcome_of(const Child& child, int status) {
  const std::string text = read_all(child.pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !text.empty())
    return outcome_from_text(text);
  CaseOutcome outcome;
  outcome.result = CaseOutcome::Result::Fail;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    outcome.reason = fmt::format("no result within {} s", kCaseSeconds);
  else if (WIFSIGNALED(status))
    outcome.reason = fmt::format("crashed with signal {}", WTERMSIG(status));
  else
    outcome.reason = fmt::format("ended with status {} and no result", WEXITSTATUS(status));
  return outcome;
}

/// Every case's outcome, in order, with up to `jobs` processes at once.
std::vector<CaseOutcome> run_all(const std::vector<std::string>& cases,
                                 const VerifyOptions& options) {
  std::size_t jobs = static_cast<std::size_t>(options.jobs);
  if (jobs == 0) jobs = static_cast<std::size_t>(base::processors());
  std::vector<CaseOutcome> outcomes(cases.size());
  std::vector<Child> running;
  std::size_t next = 0;
  while (next < cases.size() || !running.empty()) {
    if (next < cases.size() && running.size() < jobs) {
      running.push_back(start(cases[next], next, options));
      ++next;
      continue;
    }
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended < 0) throw std::runtime_error("waitpid failed");
    const auto child = std::find_if(running.begin(), running.end(),
                                    [&](const Child& c) { return c.process == ended; });
    if (child == running.end()) continue;
    outcomes[child->index] = outcome_of(*child, status);
    running.erase(child);
  }
  return outcomes;
}

std::string case_name(const std::string& folder) {
  fs::path path(folder);
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().string();
}

struct Totals {
  std::size_t passed = 0;
  std::size_t failed = 0;
  std::size_t skipped = 0;
  StepCounts steps;

  void add(const CaseOutcome& outcome) {
    using Result = CaseOutcome::Result;
    passed += outcome.result == Result::Pass;
    failed += outcome.result == Result::Fail;
    skipped += outcome.result == Result::Skip;
    steps.add(outcome.steps);
  }
};

nlohmann::ordered_json document_of(const std::vector<std::string>& cases,
                                   const std::vector<CaseOutcome>& outcomes, const Totals& totals) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::size_t k = 0; k < cases.size(); ++k)
    list.push_back({{"case", case_name(cases[k])},
                    {"result", name_of(outcomes[k].result)},
                    {"reason", outcomes[k].reason},
                    {"jit_steps", outcomes[k].steps.jit},
                    {"library_steps", outcomes[k].steps.library}});
  return {{"passed", totals.passed},
          {"failed", totals.failed},
          {"skipped", totals.skipped},
          {"jit_steps", totals.steps.jit},
          {"library_steps", totals.steps.library},
          {"custom_steps", totals.steps.custom},
          {"copy_steps", totals.steps.copy},
          {"folded_steps", totals.steps.folded},
          {"evaluator_steps", totals.steps.evaluator},
          {"cases", std::move(list)}};
}

int verify(const VerifyOptions& options) {
  options.model.engine_options();
  const std::vector<std::string> cases = find_cases(options.folders);
  const std::vector<CaseOutcome> outcomes = run_all(cases, options);
  Totals totals;
  for (const CaseOutcome& outcome : outcomes) totals.add(outcome);
  fmt::print(stderr,
             "steps: {} jit, {} library, {} custom, {} copy, {} folded, {} by the evaluator\n",
             totals.steps.jit, totals.steps.library, totals.steps.custom, totals.steps.copy,
             totals.steps.folded, totals.steps.evaluator);
  if (options.json) {
    fmt::print("{}\n", document_of(cases, outcomes, totals)
                           .dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    for (std::size_t k = 0; k < cases.size(); ++k) {
      if (outcomes[k].result == CaseOutcome::Result::Pass) continue;
      fmt::print("{} {}: {}\n", name_of(outcomes[k].result), case_name(cases[k]),
                 outcomes[k].reason);
    }
    fmt::print("{} passed, {} failed, {} skipped\n", totals.passed, totals.failed, totals.skipped);
  }
  return totals.failed == 0 ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("verify", "run cases of the ONNX backend test");
  const auto options = std::make_shared<VerifyOptions>();
  command->add_option("DIR", options->folders, "a case, or a folder of cases")->required();
  options->model.add_to(*command, false);
  command->add_option("--rtol", options->rtol, "relative tolerance")->check(check_tolerance);
  command->add_option("--atol", options->atol, "absolute tolerance")->check(check_tolerance);
  command->add_option("--jobs", options->jobs, "processes at once; 0: one for each processor")
      ->check(check_count);
  command->add_flag("--json", options->json, "one JSON document on standard output");
  command->callback([options, &exit_code] { exit_code = verify(*options); });
}

}  // namespace heddle::cli
