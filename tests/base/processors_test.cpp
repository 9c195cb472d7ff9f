// What control groups leave a process of the processors, from files as Linux shows them.
#include "base/processors.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sched.h>
#include <string>
#include <thread>
#include <unistd.h>

namespace heddle::base {
namespace {

namespace fs = std::filesystem;

class ProcessorQuota : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() /
            ("heddle_processors_" + std::to_string(getpid()) +
             std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  /// Lines of mountinfo for a hierarchy of version 2 whose group `from` lies at /sys/fs/cgroup, and of another file system.
  void mount_second(const std::string& from) {
    write("proc/self/mountinfo",
          "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
          "31 22 0:26 " +
              from + " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }

  fs::path root_;
};

TEST_F(ProcessorQuota, IsNoneWhereNothingSaysOne) {
  EXPECT_EQ(processor_quota(root_), std::nullopt) << "no /proc";
  mount_second("/");
  EXPECT_EQ(processor_quota(root_), std::nullopt) << "no groups";
  write("proc/self/cgroup", "0::/service\n");
  write("sys/fs/cgroup/service/cpu.max", "max 100000\n");
  EXPECT_EQ(processor_quota(root_), std::nullopt);
}

TEST_F(ProcessorQuota, OfAContainerThatSeesItsGroupAsTheRoot) {
  mount_second("/");
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(processor_quota(root_), 1.5);
}

TEST_F(ProcessorQuota, IsTheLeastOfAllGroupsAround) {
  mount_second("/");
  write("proc/self/cgroup", "0::/pods/one/server\n");
  write("sys/fs/cgroup/pods/one/server/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/pods/one/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/pods/cpu.max", "100000 50000\n");
  EXPECT_EQ(processor_quota(root_), 2);
}

/// The path is the host's, of which the container has a part mounted.
TEST_F(ProcessorQuota, OfAGroupThatIsMountedByItself) {
  mount_second("/pods/one");
  write("proc/self/cgroup", "0::/pods/one/server\n");
  write("sys/fs/cgroup/server/cpu.max", "300000 100000\n");
  EXPECT_EQ(processor_quota(root_), 3);
  write("proc/self/cgroup", "0::/elsewhere\n");
  EXPECT_EQ(processor_quota(root_), std::nullopt);
  write("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(processor_quota(root_), 2.5) << "of what is mounted, at least";
}

/// Each controller has a hierarchy of its own, or shares one.
TEST_F(ProcessorQuota, OfVersionOne) {
  write("proc/self/mountinfo",
        "32 31 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
        "33 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "4:memory:/m\n3:cpuset:/\n2:cpu,cpuacct:/docker/1\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_quota(root_), 0.5);
}

/// Names of units hold backslashes, and places blanks, which mountinfo writes in octal digits.
TEST_F(ProcessorQuota, OfPlacesWithBlanksAndBackslashes) {
  write("proc/self/mountinfo",
        "31 22 0:26 /a\\134x2db.slice /mnt/my\\040groups rw - cgroup2 cgroup2 rw\n");
  write("proc/self/cgroup", "0::/a\\x2db.slice/server:1\n");
  write("mnt/my groups/server:1/cpu.max", "200000 100000\n");
  EXPECT_EQ(processor_quota(root_), 2);
}

TEST_F(ProcessorQuota, OfAContainerOfVersionOneThatSeesItsGroupAlone) {
  write("proc/self/mountinfo",
        "33 31 0:31 /docker/1 /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  write("proc/self/cgroup", "2:cpu:/docker/1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_quota(root_), 3);
}

TEST(Processors, AreThoseOfTheAffinity) {
  EXPECT_GE(processors(), 1);
  EXPECT_LE(processors(), allowed_processors());
  int alone = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0) alone = allowed_processors();
  }).join();
  EXPECT_EQ(alone, 1);
}

}  // namespace
}  // namespace heddle::base
