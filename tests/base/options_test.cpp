#include "base/options.h"

#include <cstdlib>
#include <gtest/gtest.h>

#include "base/check.h"
#include "heddle/error.h"

namespace heddle::base {
namespace {

constexpr std::string_view kModes[] = {"auto", "fast", "small"};

constexpr OptionSpec kTable[] = {
    {.name = "fuse", .kind = OptionSpec::Kind::Bool, .default_text = "true", .help = "Fuses."},
    {.name = "threads",
     .kind = OptionSpec::Kind::Int,
     .default_text = "4",
     .environment = "HEDDLE_TEST_THREADS",
     .help = "How many threads run.",
     .least = 1,
     .most = 1024},
    {.name = "slack", .kind = OptionSpec::Kind::Float, .default_text = "0.5", .help = "Slack."},
    {.name = "cache_folder", .kind = OptionSpec::Kind::String, .default_text = "", .help = "Path."},
    {.name = "mode",
     .kind = OptionSpec::Kind::Choice,
     .default_text = "auto",
     .help = "What to favour.",
     .choices = kModes},
};

class OptionsTest : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("HEDDLE_TEST_THREADS"); }
};

template <typename Function>
std::string option_error(Function function) {
  try {
    function();
  } catch (const OptionError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(OptionsTest, defaults_are_typed) {
  const Options options(kTable);
  EXPECT_TRUE(options.get_bool("fuse"));
  EXPECT_EQ(options.get_int("threads"), 4);
  EXPECT_EQ(options.get_float("slack"), 0.5);
  EXPECT_EQ(options.get_string("cache_folder"), "");
  EXPECT_EQ(options.get_string("mode"), "auto");
  EXPECT_TRUE(options.has("mode"));
  EXPECT_FALSE(options.has("moat"));
}

TEST_F(OptionsTest, argument_over_environment_over_default) {
  ::setenv("HEDDLE_TEST_THREADS", "7", 1);
  Options options(kTable);
  EXPECT_EQ(options.get_int("threads"), 7);
  EXPECT_FALSE(options.is_set("threads"));
  options.set("threads", 2);
  EXPECT_EQ(options.get_int("threads"), 2);
  EXPECT_TRUE(options.is_set("threads"));
}

TEST_F(OptionsTest, takes_text_and_values) {
  Options options(kTable);
  options.set("fuse", "off");
  EXPECT_FALSE(options.get_bool("fuse"));
  options.set("fuse", true);
  EXPECT_TRUE(options.get_bool("fuse"));
  options.set("slack", 2);
  EXPECT_EQ(options.get_float("slack"), 2.0);
  options.set("slack", "1.25");
  EXPECT_EQ(options.get_float("slack"), 1.25);
  options.set("mode", std::string("small"));
  EXPECT_EQ(options.get_string("mode"), "small");
}

TEST_F(OptionsTest, errors_name_the_option_and_what_it_takes) {
  Options options(kTable);
  EXPECT_EQ(option_error([&] { options.set("thraeds", 1); }),
            "unknown option: expected one of cache_folder, fuse, mode, slack, threads, got "
            "\"thraeds\" (did you mean \"threads\"?)");
  EXPECT_EQ(option_error([&] { options.set("zzzzzzzz", 1); }),
            "unknown option: expected one of cache_folder, fuse, mode, slack, threads, got "
            "\"zzzzzzzz\"");
  EXPECT_EQ(option_error([&] { options.set("threads", 0); }),
            "option threads: expected an integer from 1 to 1024, got \"0\"");
  EXPECT_EQ(option_error([&] { options.set("threads", "4x"); }),
            "option threads: expected an integer from 1 to 1024, got \"4x\"");
  EXPECT_EQ(option_error([&] { options.set("mode", "quick"); }),
            "option mode: expected one of auto, fast, small, got \"quick\"");
  EXPECT_EQ(option_error([&] { options.set("fuse", 3); }),
            "option fuse: expected true or false, got \"3\"");
  EXPECT_EQ(option_error([&] { options.set("slack", "nan"); }),
            "option slack: expected a finite number, got \"nan\"");
  EXPECT_EQ(options, Options(kTable)) << "a refused value changes nothing";
}

TEST_F(OptionsTest, errors_name_the_environment_variable) {
  ::setenv("HEDDLE_TEST_THREADS", "many", 1);
  EXPECT_EQ(option_error([] { Options options(kTable); }),
            "option threads at HEDDLE_TEST_THREADS: expected an integer from 1 to 1024, got "
            "\"many\"");
}

TEST_F(OptionsTest, canonical_text_has_what_differs_from_the_defaults) {
  Options options(kTable);
  EXPECT_EQ(options.canonical(), "");
  options.set("threads", 4);
  EXPECT_EQ(options.canonical(), "") << "set to the default";
  options.set("slack", 0.1);
  options.set("cache_folder", "/a,fuse=false");
  EXPECT_EQ(options.canonical(), "cache_folder=/a\\,fuse=false,slack=0.1");
}

TEST_F(OptionsTest, a_region_overrides_by_value) {
  Options outer(kTable);
  outer.set("threads", 8);
  Options region(kTable);
  region.set("mode", "fast");
  const Options inner = outer.with(region);
  EXPECT_EQ(inner.get_int("threads"), 8);
  EXPECT_EQ(inner.get_string("mode"), "fast");
  EXPECT_EQ(outer.get_string("mode"), "auto");
}

TEST_F(OptionsTest, reading_an_option_wrongly_is_our_mistake) {
  const Options options(kTable);
  EXPECT_THROW(options.get_int("fuse"), InternalError);
  EXPECT_THROW(options.get_bool("fusee"), InternalError);
}

TEST_F(OptionsTest, help_comes_from_the_table) {
  EXPECT_EQ(options_help(std::span(kTable).subspan(1, 1)),
            "  threads: an integer from 1 to 1024; default 4; environment HEDDLE_TEST_THREADS\n"
            "      How many threads run.\n");
}

}  // namespace
}  // namespace heddle::base
