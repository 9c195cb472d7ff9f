// Runs tests/passes/*.hir and tests/errors/*.hir. A file holds cases between lines of dashes; a case is
// graph text, a line "==>", and what must come of it. "// passes: dce,cse" in its first line names what
// runs in between.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <heddle_test_paths.h>
#include <iterator>
#include <sstream>

#include "heddle/error.h"
#include "ir/passes/pipeline.h"
#include "ir/text.h"
#include "tests/support/collectives.h"
#include "tests/support/round_trip.h"

namespace heddle::testing {
namespace {

struct Case {
  std::string passes;
  std::string input;
  std::string expected;
};

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  const auto start = text.find_first_not_of("\n ");
  return start == std::string::npos ? "" : text.substr(start);
}

std::vector<Case> cases_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<Case> cases(1);
  bool expected = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("----")) {
      cases.emplace_back();
      expected = false;
    } else if (line == "==>") {
      expected = true;
    } else if (line.starts_with("// passes: ")) {
      cases.back().passes = line.substr(11);
    } else {
      (expected ? cases.back().expected : cases.back().input) += line + "\n";
    }
  }
  return cases;
}

ir::Graph run(const Case& test) {
  register_collectives();
  const ir::Graph graph = ir::parse(test.input);
  ir::verify(graph, ir::Stage::Traced);
  expect_round_trip(graph);
  std::vector<std::string> names;
  std::stringstream list(test.passes);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  const std::vector<std::string_view> views(names.begin(), names.end());
  return ir::run_passes(graph, views);
}

std::vector<std::filesystem::path> files_in(const char* folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests" / folder))
    if (entry.path().extension() == ".hir") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

std::string name_of_file(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.stem().string();
}

class PassCorpus : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(PassCorpus, GivesTheExpectedText) {
  for (const Case& test : cases_of(GetParam())) {
    SCOPED_TRACE(test.input);
    const ir::Graph after = run(test);
    expect_round_trip(after);
    EXPECT_EQ(trimmed(ir::print(after)), trimmed(test.expected));
  }
}

class ErrorCorpus : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(ErrorCorpus, GivesTheExactMessage) {
  for (const Case& test : cases_of(GetParam())) {
    SCOPED_TRACE(test.input);
    std::string message = "no error";
    try {
      run(test);
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, trimmed(test.expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Files, PassCorpus, ::testing::ValuesIn(files_in("passes")), name_of_file);
INSTANTIATE_TEST_SUITE_P(Files, ErrorCorpus, ::testing::ValuesIn(files_in("errors")), name_of_file);

}  // namespace
}  // namespace heddle::testing
