// heddle: runs, checks, times and explains models.

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <vector>

#include "engine/cli/commands.h"
#include "heddle/c_api.h"
#include "heddle/error.h"

namespace {

constexpr int kFailure = 1;
constexpr int kWrongUsage = 2;

int report(const char* kind, const char* text, int code) {
  std::fflush(stdout);
  fmt::print(stderr, "heddle: {}{}\n", kind, text);
  return code;
}

/// The arguments, last first as CLI11 takes them. It knows no empty values: an empty list of passes becomes
/// one of a comma.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> list;
  for (int k = argc - 1; k > 0; --k) {
    const std::string text = argv[k];
    list.push_back(text == "--passes=" ? "--passes=," : text);
  }
  return list;
}

/// CLI11 would say that a command is missing.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::ranges::find(names, argv[1]) == names.end())
    throw heddle::cli::UsageError(
        fmt::format("unknown command {}: expected one of {}", argv[1], fmt::join(names, ", ")));
}

int run(int argc, char** argv) {
  CLI::App app("Heddle compiles tensor graphs while they run.", "heddle");
  app.set_version_flag("--version", std::string("heddle ") + heddle_version());
  app.require_subcommand(1);
  int exit_code = 0;
  heddle::cli::add_run(app, exit_code);
  heddle::cli::add_verify(app, exit_code);
  heddle::cli::add_bench(app, exit_code);
  heddle::cli::add_plan(app, exit_code);
  heddle::cli::add_opt(app, exit_code);
  check_command(app, argc, argv);
  try {
    app.parse(arguments(argc, argv));
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::Error& error) {
    app.exit(error);
    return kWrongUsage;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const heddle::cli::UsageError& error) {
    return report("", error.what(), kWrongUsage);
  } catch (const heddle::OptionError& error) {
    // One with a place is what a model says.
    return report("", error.what(), error.where().empty() ? kWrongUsage : kFailure);
  } catch (const heddle::Error& error) {
    return report("", error.what(), kFailure);
  } catch (const std::exception& error) {
    return report("internal error: ", error.what(), kFailure);
  }
}
