// What the environment may say.
#include "engine/settings.h"

#include <cstdlib>
#include <gtest/gtest.h>

#include "heddle/error.h"

namespace heddle::engine {
namespace {

std::string cap_error(const char* text) {
  ::setenv("HEDDLE_DEVICE_MEMORY_CAP", text, 1);
  try {
    device_memory_cap();
  } catch (const OptionError& error) {
    return error.what();
  }
  return "none";
}

TEST(Settings, TheCapOnDeviceMemoryIsANumberOfBytes) {
  EXPECT_EQ(cap_error("0"), "none");
  EXPECT_EQ(cap_error("8589934592"), "none");
  EXPECT_EQ(device_memory_cap(), std::size_t{1} << 33);
  for (const char* text : {"8G", "-1", " 5", "99999999999999999999999"})
    EXPECT_EQ(cap_error(text),
              std::string("HEDDLE_DEVICE_MEMORY_CAP: expected a number of bytes, got ") + text);
  ::unsetenv("HEDDLE_DEVICE_MEMORY_CAP");
  EXPECT_EQ(device_memory_cap(), 0u);
  ::setenv("HEDDLE_PINNED_MEMORY_CAP", "4096", 1);
  EXPECT_EQ(pinned_memory_cap(), 4096u);
  ::unsetenv("HEDDLE_PINNED_MEMORY_CAP");
}

TEST(Settings, TheSecondLevelCacheIsTheMachinesOrWhatIsSaid) {
  ::unsetenv("HEDDLE_L2_CACHE");
  EXPECT_GE(second_level_cache(), 128 << 10);
  ::setenv("HEDDLE_L2_CACHE", "4096", 1);
  EXPECT_EQ(second_level_cache(), 4096);
  ::setenv("HEDDLE_L2_CACHE", "1M", 1);
  EXPECT_THROW(second_level_cache(), OptionError);
  ::unsetenv("HEDDLE_L2_CACHE");
}

}  // namespace
}  // namespace heddle::engine
